//! Both ends whole, an origin with durable leases and a destination with a durable window, and 200 reconnects forced
//! between them (law L3.8).

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use admit_one::{
    clock::{Clock, SystemClock},
    identity::KeySigner,
    lanes::{Config, Fate, LossReason, Lost, Origin, Settlement},
    layer::{
        AdmissionError, AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
    },
    link::Arrival,
    message::{Class, NetworkId},
    storage::{
        Journal, JournalConfig,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::future::join_all;
use libp2p::identity::Keypair;
use tokio::sync::mpsc;
use tower::{Layer, Service, service_fn};

use crate::{
    both_transports,
    support::{Node, Options, Transport},
};

both_transports! {
    l3_8_over_200_forced_reconnects_20000_sends_are_in_order_and_none_is_stale,
}

const NETWORK: NetworkId = NetworkId(38);
const SENDS: usize = 20_000;
const CUTS: usize = 200;

/// The whole test may take this long on a machine with two loaded cores.
const LIMIT: Duration = Duration::from_secs(300);

async fn store(at: &Path) -> GroupCommit {
    let journal = Journal::open(at.join("store"), JournalConfig::default()).unwrap();
    GroupCommit::open(Arc::new(journal), CommitConfig::default()).await.unwrap()
}

fn data(class: Class) -> Vec<u8> {
    match class {
        Class::Application => vec![class.lane(), 4, b'c', b'h', b'a', b't', b'!'],
        _ => vec![class.lane(), b'!'],
    }
}

async fn l3_8_over_200_forced_reconnects_20000_sends_are_in_order_and_none_is_stale(transport: Transport) {
    tokio::time::timeout(LIMIT, over_reconnects(transport)).await.expect("in time");
}

async fn over_reconnects(transport: Transport) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let key = Keypair::generate_ed25519();
    let signer = Arc::new(KeySigner::from_keypair(&key).unwrap());
    let config = Config::default().pauses(Duration::from_millis(5), Duration::from_millis(100));
    let sender = Node::with(transport, Options { key, config, ..Options::default() }).await;
    let mut receiver = Node::start(transport).await;
    sender.know(&receiver);

    let commit = store(there.path()).await;
    let config = AdmissionConfig { sigma: 100, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, clock.clone(), config).await.unwrap();
    while admission.health().refuses_fresh_until.is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (dispatched, mut dispatches) = mpsc::unbounded_channel();
    let handler = service_fn(move |admitted: Admitted| {
        dispatched.send((admitted.class(), admitted.sequence())).unwrap();
        async {
            // So that handlers run over the end of their link.
            tokio::task::yield_now().await;
            Ok::<_, std::convert::Infallible>(())
        }
    });
    let refusals = Arc::new(Mutex::new(BTreeMap::<&'static str, usize>::new()));
    let counted = Arc::clone(&refusals);
    let layer = AdmissionLayer::builder(NETWORK, receiver.did, admission).build();
    let mut admitting = layer.layer(handler);
    let service = service_fn(move |arrival: Arrival| {
        let (answer, counted) = (admitting.call(arrival), Arc::clone(&counted));
        async move {
            let answer = answer.await;
            if let Err(AdmissionError::Refused(refusal)) = &answer {
                *counted.lock().unwrap().entry(refusal.label()).or_default() += 1;
            }
            answer
        }
    });
    let serving = tokio::spawn(receiver.incoming().serve(service));

    let leases = Leases::open(&store(here.path()).await, clock.clone(), LeaseConfig::default()).unwrap();
    let origin = Origin::builder(NETWORK, signer, leases, sender.outbound.clone(), clock).build().unwrap();
    let (destination, outbound) = (receiver.did, sender.outbound.clone());
    let sending = tokio::spawn(join_all(Class::ALL.map(|class| {
        let origin = origin.clone();
        async move {
            let mut settlements: Vec<Settlement> = Vec::new();
            for _ in 0..SENDS / Class::ALL.len() {
                settlements.push(origin.send(destination, data(class)).await.unwrap());
            }
            join_all(settlements).await
        }
    })));

    let (mut seen, mut cuts) = (Vec::new(), 0);
    let mut sent = Box::pin(sending);
    let settled = loop {
        tokio::select! {
            one = dispatches.recv() => {
                seen.push(one.unwrap());
                // Lost ones are not dispatched, so cuts come a little more often than in every hundredth send.
                if seen.len() > cuts * (SENDS / CUTS) * 4 / 5 && cuts < CUTS {
                    cuts += 1;
                    match cuts % 4 {
                        1 => sender.disconnect(receiver.peer),
                        3 => receiver.disconnect(sender.peer),
                        // A second connection, and then the first one goes.
                        _ if sender.is_connected(receiver.peer).await => {
                            receiver.dial(sender.peer, sender.address.clone());
                            sender.close(receiver.peer, 0);
                        }
                        _ => sender.disconnect(receiver.peer),
                    }
                }
            }
            settled = &mut sent => break settled.unwrap(),
        }
    };
    assert_eq!(cuts, CUTS);
    assert_eq!(outbound.health().queued, 0);
    // Everything that was read is served to its end.
    drop(sender);
    drop(receiver);
    serving.await.unwrap();
    while let Some(one) = dispatches.recv().await {
        seen.push(one);
    }

    let mut lost = 0;
    for (class, settled) in Class::ALL.into_iter().zip(settled) {
        let sequences: Vec<u64> = seen.iter().filter(|seen| seen.0 == class).map(|seen| seen.1).collect();
        assert!(sequences.is_sorted_by(|one, next| one < next), "{class:?}: in order, and each at most once");
        assert_eq!(settled.len(), SENDS / Class::ALL.len());
        for (sequence, outcome) in (0..).zip(settled) {
            let dispatched = sequences.binary_search(&sequence).is_ok();
            match outcome {
                Ok(()) => assert!(dispatched, "{class:?} {sequence} was taken over and not dispatched"),
                Err(Lost { reason: LossReason::LinkClosed, fate }) => {
                    assert!(!dispatched || fate == Fate::MayHaveBeenReceived);
                    lost += usize::from(!dispatched);
                }
                Err(other) => panic!("{class:?} {sequence}: {other}"),
            }
        }
    }
    assert_eq!(seen.len() + lost, SENDS);
    // At most a window in each lane at each cut.
    assert!(lost <= CUTS * 4 * 8, "{lost} lost");
    let refusals = refusals.lock().unwrap();
    eprintln!("{transport:?}: {} dispatched, {lost} lost at {CUTS} cuts, refused {refusals:?}", seen.len());
    assert!(refusals.keys().all(|reason| *reason == "superseded"), "{refusals:?}");
}
