//! The layer on real lanes: an origin, a relay and a destination, swarms over TCP with Noise and Yamux on loopback,
//! each on a journal of its own.

use std::{convert::Infallible, sync::Arc, time::Duration};

use admit_one::{
    clock::{Clock, SystemClock},
    identity::{Did, KeySigner},
    lanes::{Behaviour, Config, Incoming, Origin, Outbound},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
        charging::Shares,
        forward::Forwarding,
        local::Namespace,
    },
    link::Router,
    message::Class,
    storage::{
        Journal, JournalConfig,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::StreamExt;
use libp2p::{Multiaddr, SwarmBuilder, identity::Keypair, noise, swarm::SwarmEvent, tcp, yamux};
use tokio::sync::{mpsc, oneshot};
use tower::{Layer, service_fn};

use crate::fixture::NETWORK;

/// A test that waits this long has failed.
const FAILURE: Duration = Duration::from_secs(60);

/// A running node. Its swarm ends with the test's runtime.
struct Node {
    signer: KeySigner,
    outbound: Outbound,
    incoming: Incoming,
    address: Multiaddr,
    clock: Arc<dyn Clock>,
    commit: GroupCommit,
    _directory: tempfile::TempDir,
}

impl Node {
    /// Starts a node, and returns once it is connected to `to`.
    async fn start(to: Option<&Multiaddr>) -> Self {
        Self::on(Stored::new().await, to, Config::default()).await
    }

    async fn on(Stored { clock, commit, directory }: Stored, to: Option<&Multiaddr>, config: Config) -> Self {
        let key = Keypair::generate_ed25519();
        let signer = KeySigner::from_keypair(&key).expect("an Ed25519 key");
        let (lanes, outbound, incoming) = Behaviour::new(config, clock.clone());
        let mut swarm = SwarmBuilder::with_existing_identity(key)
            .with_tokio()
            .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
            .expect("a transport")
            .with_behaviour(|_| lanes)
            .expect("a behaviour")
            .with_swarm_config(|config| config.with_idle_connection_timeout(FAILURE))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address")).expect("listens");
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        let (connected, connection) = oneshot::channel();
        let mut connected = to.map(|to| {
            swarm.dial(to.clone()).expect("dials");
            connected
        });
        tokio::spawn(async move {
            loop {
                if let SwarmEvent::ConnectionEstablished { .. } = swarm.select_next_some().await
                    && let Some(connected) = connected.take()
                {
                    let _ = connected.send(());
                }
            }
        });
        if to.is_some() {
            connection.await.expect("connects");
        }
        Self { signer, outbound, incoming, address, clock, commit, _directory: directory }
    }

    async fn admission(&self) -> Admission {
        admission(&self.commit, &self.clock, Shares::default()).await
    }

    /// An origin that sends straight to whoever it is for.
    fn origin(&self) -> Origin {
        let signer = Arc::new(self.signer.clone());
        let leases = Leases::open(&self.commit, self.clock.clone(), LeaseConfig::default()).expect("opens");
        let origin = Origin::builder(NETWORK, signer, leases, self.outbound.clone(), self.clock.clone());
        origin.build().expect("an origin")
    }
}

/// A node's store, before it has a swarm.
struct Stored {
    clock: Arc<dyn Clock>,
    commit: GroupCommit,
    directory: tempfile::TempDir,
}

impl Stored {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Journal::open(directory.path().join("store"), JournalConfig::default()).expect("a new store");
        let commit = GroupCommit::open(Arc::new(store), CommitConfig::default()).await.expect("opens");
        Self { clock: Arc::new(SystemClock::new()), commit, directory }
    }
}

/// Opens a boundary, and returns once its birth mark has passed.
async fn admission(commit: &GroupCommit, clock: &Arc<dyn Clock>, shares: Shares) -> Admission {
    let config = AdmissionConfig { sigma: 100, shares, ..AdmissionConfig::default() };
    let admission = Admission::open(commit, clock.clone(), config).await.expect("opens");
    while admission.health().refuses_fresh_until.is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    admission
}

#[derive(Debug)]
struct By(Did);

impl Router for By {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        Some(self.0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_relay_each_lane_is_handled_once_and_in_order_and_credit_comes_back_from_the_handler() {
    const EACH: usize = 100;
    let (handled, mut handler) = mpsc::unbounded_channel();
    let work = async {
        let destination = Node::start(None).await;
        let relay = Node::start(Some(&destination.address)).await;
        let origin = Node::start(Some(&relay.address)).await;
        let (at_destination, at_relay) = (destination.admission().await, relay.admission().await);
        let (to, via) = (destination.signer.key(), relay.signer.key());

        let layer = AdmissionLayer::builder(NETWORK, to, at_destination.clone()).build();
        let service = layer.layer(service_fn(move |admitted: Admitted| {
            let seen = (admitted.class(), admitted.sequence(), admitted.origin());
            std::future::ready(handled.send(seen).map_err(|_| "the test is over"))
        }));
        tokio::spawn(destination.incoming.serve(service));

        let forwarding = Forwarding::new(Arc::new(relay.signer.clone()), relay.outbound.clone());
        let layer = AdmissionLayer::builder(NETWORK, via, at_relay.clone()).forward(forwarding).build();
        let service = layer.layer(service_fn(async |_: Admitted| Ok::<_, Infallible>(())));
        tokio::spawn(relay.incoming.serve(service));

        let signer = Arc::new(origin.signer.clone());
        let leases = Leases::open(&origin.commit, origin.clock.clone(), LeaseConfig::default()).expect("opens");
        let sender = Origin::builder(NETWORK, signer, leases, origin.outbound.clone(), origin.clock.clone())
            .router(Arc::new(By(via)))
            .build()
            .expect("an origin");
        let lanes = Class::ALL.map(|class| {
            let sender = &sender;
            async move {
                let mut settlements = Vec::new();
                for _ in 0..EACH {
                    let data = match class {
                        Class::Application => vec![class.lane(), 4, b'c', b'h', b'a', b't', b'!'],
                        _ => vec![class.lane(), b'!'],
                    };
                    settlements.push(sender.send(to, data).await.expect("accepted"));
                }
                for settlement in settlements {
                    settlement.await.expect("taken over: the handler's credit came back by way of the relay");
                }
            }
        });
        futures::future::join_all(lanes).await;
        assert_eq!((at_destination.health().streams, at_relay.health().streams), (4, 0), "law L5.4");
        origin.signer.key()
    };
    let origin = tokio::time::timeout(FAILURE, work).await.expect("in time");

    let mut seen = Vec::new();
    while let Ok(one) = handler.try_recv() {
        seen.push(one);
    }
    for class in Class::ALL {
        let sequences: Vec<_> = seen.iter().filter(|seen| seen.0 == class).map(|seen| seen.1).collect();
        assert_eq!(sequences, (0..EACH as u64).collect::<Vec<_>>(), "{class:?}: each once, in order");
    }
    assert_eq!(seen.len(), 4 * EACH);
    assert!(seen.iter().all(|seen| seen.2 == origin));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_8_a_message_of_5_mb_arrives_once_and_whole_by_way_of_a_relay() {
    const LENGTH: usize = 5_000_000;
    let (handled, mut handler) = mpsc::unbounded_channel();
    let work = async {
        let destination = Node::start(None).await;
        let relay = Node::start(Some(&destination.address)).await;
        let origin = Node::start(Some(&relay.address)).await;
        let (at_destination, at_relay) = (destination.admission().await, relay.admission().await);
        let (to, via) = (destination.signer.key(), relay.signer.key());

        let layer = AdmissionLayer::builder(NETWORK, to, at_destination.clone()).build();
        let service = layer.layer(service_fn(move |admitted: Admitted| {
            let seen = (admitted.sequence(), admitted.origin(), admitted.data().clone());
            std::future::ready(handled.send(seen).map_err(|_| "the test is over"))
        }));
        tokio::spawn(destination.incoming.serve(service));

        let forwarding = Forwarding::new(Arc::new(relay.signer.clone()), relay.outbound.clone());
        let layer = AdmissionLayer::builder(NETWORK, via, at_relay.clone()).forward(forwarding).build();
        let service = layer.layer(service_fn(async |_: Admitted| Ok::<_, Infallible>(())));
        tokio::spawn(relay.incoming.serve(service));

        let signer = Arc::new(origin.signer.clone());
        let leases = Leases::open(&origin.commit, origin.clock.clone(), LeaseConfig::default()).expect("opens");
        let sender = Origin::builder(NETWORK, signer, leases, origin.outbound.clone(), origin.clock.clone())
            .router(Arc::new(By(via)))
            .build()
            .expect("an origin");
        let large: Vec<u8> =
            (0..LENGTH).map(|place| if place == 0 { Class::E2e.lane() } else { (place % 251) as u8 }).collect();
        let small = |text: u8| vec![Class::E2e.lane(), text];
        let mut settlements = Vec::new();
        for data in [small(1), large.clone(), small(2)] {
            settlements.push(sender.send(to, data).await.expect("accepted"));
        }
        for settlement in settlements {
            settlement.await.expect("taken over: every chunk's credit came back by way of the relay");
        }
        assert_eq!((at_destination.health().streams, at_relay.health().streams), (1, 0), "law L5.4");
        (origin.signer.key(), [small(1), large, small(2)])
    };
    let (origin, sent) = tokio::time::timeout(FAILURE, work).await.expect("in time");

    for (sequence, data) in (0..).zip(sent) {
        let (seen, from, got) = handler.try_recv().expect("handled");
        assert_eq!((seen, from, got.len()), (sequence, origin, data.len()));
        assert!(got == data, "whole");
    }
    assert!(handler.try_recv().is_err(), "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_3_a_connection_that_opens_too_many_streams_is_refused_on_its_own_slot_and_no_other() {
    let (handled, mut handler) = mpsc::unbounded_channel();
    let work = async {
        let stored = Stored::new().await;
        let shares = Shares { slots: 2, floor: 2, pool: 0, ..Shares::default() };
        let boundary = admission(&stored.commit, &stored.clock, shares).await;
        let destination = Node::on(stored, None, Config::default().links(Arc::new(boundary.clone()))).await;
        let to = destination.signer.key();
        let layer = AdmissionLayer::builder(NETWORK, to, boundary.clone()).build();
        let service = layer.layer(service_fn(move |admitted: Admitted| {
            let seen = (admitted.origin(), admitted.class());
            std::future::ready(handled.send(seen).map_err(|_| "the test is over"))
        }));
        tokio::spawn(destination.incoming.serve(service));

        // Each class is a stream of its own; the third and fourth are past the floor, and there is no pool.
        let greedy = Node::start(Some(&destination.address)).await;
        let origin = greedy.origin();
        for lane in 0..4 {
            let data = if lane == 3 { vec![3, 1, b'a'] } else { vec![lane] };
            origin.send(to, data).await.expect("accepted").await.expect("taken over, if only to be refused");
        }
        assert_eq!((boundary.health().streams, boundary.health().slots_taken), (2, 1));

        let modest = Node::start(Some(&destination.address)).await;
        let origin = modest.origin();
        for lane in 0..2 {
            origin.send(to, vec![lane]).await.expect("accepted").await.expect("taken over");
        }
        assert_eq!((boundary.health().streams, boundary.health().slots_taken), (4, 2));
        [greedy.signer.key(), modest.signer.key()]
    };
    let [greedy, modest] = tokio::time::timeout(FAILURE, work).await.expect("in time");
    let mut seen = Vec::new();
    while let Ok(one) = handler.try_recv() {
        seen.push(one);
    }
    let each = |origin| [(origin, Class::DhtControl), (origin, Class::Storage)];
    assert_eq!(seen, [each(greedy), each(modest)].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_2_what_comes_on_its_origins_own_connection_is_admitted_in_memory_and_another_namespace_in_the_store() {
    let work = async {
        let stored = Stored::new().await;
        let boundary = admission(&stored.commit, &stored.clock, Shares::default()).await;
        boundary.register(Namespace::new("a").expect("short")).await.expect("durable");
        let mark = stored.clock.wall() + 2 * boundary.config().sigma;
        while stored.clock.wall() <= mark {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let destination = Node::on(stored, None, Config::default().links(Arc::new(boundary.clone()))).await;
        let to = destination.signer.key();
        let layer = AdmissionLayer::builder(NETWORK, to, boundary.clone()).build();
        let service = layer.layer(service_fn(|_: Admitted| std::future::ready(Ok::<_, Infallible>(()))));
        tokio::spawn(destination.incoming.serve(service));
        for origins in 1..=2 {
            let own = Node::start(Some(&destination.address)).await;
            let origin = own.origin();
            for _ in 0..3 {
                origin.send(to, vec![3, 1, b'a']).await.expect("accepted").await.expect("taken over");
            }
            assert_eq!((boundary.health().link_local_windows, boundary.health().streams), (origins, origins - 1));
            origin.send(to, vec![3, 1, b'b']).await.expect("accepted").await.expect("taken over");
            assert_eq!((boundary.health().link_local_windows, boundary.health().streams), (origins, origins));
        }
    };
    tokio::time::timeout(FAILURE, work).await.expect("in time");
}
