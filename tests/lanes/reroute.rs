//! A router that changes its mind all the time, under load: no frame arrives after a later one of its stream that went
//! another way (law L3.9).

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use admit_one::{
    clock::SystemClock,
    identity::{Did, KeySigner},
    lanes::{Config, Inbound, Origin},
    link::{Frame, Router},
    message::{Class, FRAME_LIMIT, NetworkId, Payload},
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::{StreamExt, future::join_all};
use libp2p::{PeerId, identity::Keypair};
use tokio::sync::mpsc;
use tower::Service;

use crate::{
    both_transports,
    support::{FAILURE, Node, Options, Transport, frame_by, in_time},
};

both_transports! {
    l3_9_a_relay_that_changes_its_next_hop_thousands_of_times_keeps_every_stream_in_order,
    l3_9_an_origin_that_changes_its_next_hop_thousands_of_times_keeps_its_streams_in_order,
}

/// A stream, the way that a frame of it came by last, and its sequence.
type Found = ((Did, Class), PeerId, u64);

fn wide() -> Options {
    Options { config: Config::default().window(31).credit(32), ..Options::default() }
}

async fn payload_of(inbound: &mut Inbound) -> Option<(Payload, admit_one::link::Arrival)> {
    let arrival = inbound.next().await?;
    Some((Payload::decode(arrival.bytes.clone(), FRAME_LIMIT).unwrap(), arrival))
}

/// Forwards what comes in, each channel in its order, by the hop that `choose` says.
fn relay(node: &mut Node, choose: impl Fn(&Payload) -> Did + Clone + Send + 'static) {
    let (incoming, outbound) = (node.incoming(), node.outbound.clone());
    tokio::spawn(incoming.for_each_concurrent(None, move |mut inbound| {
        let (choose, mut outbound) = (choose.clone(), outbound.clone());
        async move {
            let class = Class::from_lane(inbound.channel().index).unwrap();
            while let Some((mut payload, arrival)) = payload_of(&mut inbound).await {
                payload.next_hop = choose(&payload);
                let frame = Frame { payload, class, write_within: FAILURE, inbound: arrival.credit };
                drop(outbound.call(frame).await.unwrap());
            }
        }
    }));
}

/// Notes what comes in, on all channels in one order, before its credit goes back.
fn destination(node: &mut Node) -> mpsc::UnboundedReceiver<Found> {
    let (found, finds) = mpsc::unbounded_channel();
    tokio::spawn(node.incoming().for_each_concurrent(None, move |mut inbound| {
        let found = found.clone();
        async move {
            let class = Class::from_lane(inbound.channel().index).unwrap();
            while let Some((Payload { transaction, .. }, arrival)) = payload_of(&mut inbound).await {
                let stream = (transaction.origin().unwrap(), class);
                let _ = found.send((stream, arrival.peer, transaction.content.sequence));
                drop(arrival);
            }
        }
    }));
    finds
}

/// Two relays between this node and a destination.
struct Diamond {
    ways: [Node; 2],
    destination: Node,
    finds: mpsc::UnboundedReceiver<Found>,
}

impl Diamond {
    async fn start(transport: Transport) -> Self {
        let mut destination = Node::with(transport, wide()).await;
        let finds = self::destination(&mut destination);
        let mut ways = [Node::with(transport, wide()).await, Node::with(transport, wide()).await];
        for way in &mut ways {
            way.know(&destination);
            let did = destination.did;
            relay(way, move |_| did);
        }
        Self { ways, destination, finds }
    }

    fn known_to(&self, node: &Node) {
        self.ways.iter().for_each(|way| node.know(way));
    }

    /// Takes `count` frames, and checks each against those before it. How many times a stream changed its way.
    async fn check(&mut self, count: u64, streams: usize) -> u64 {
        let mut greatest: HashMap<(Did, Class), HashMap<PeerId, u64>> = HashMap::new();
        let mut next: HashMap<(Did, Class), (Option<PeerId>, u64)> = HashMap::new();
        let (mut changes, mut overtaken, mut out_of_order) = (0, 0, 0);
        for _ in 0..count {
            let (stream, way, sequence) = in_time(self.finds.recv()).await.unwrap();
            let by_way = greatest.entry(stream).or_default();
            overtaken += u64::from(by_way.iter().any(|(other, greatest)| *other != way && *greatest > sequence));
            let last = by_way.entry(way).or_default();
            *last = sequence.max(*last);
            let (before, expected) = next.entry(stream).or_default();
            out_of_order += u64::from(sequence != *expected);
            changes += u64::from(before.replace(way).is_some_and(|before| before != way));
            *expected = sequence + 1;
        }
        assert_eq!(overtaken, 0, "of {count} frames overtaken by later ones that went the other way");
        assert_eq!((out_of_order, next.len()), (0, streams));
        changes
    }
}

async fn l3_9_a_relay_that_changes_its_next_hop_thousands_of_times_keeps_every_stream_in_order(transport: Transport) {
    const EACH: u64 = 1_500;
    let mut diamond = Diamond::start(transport).await;
    let (mut hub, sender) = (Node::with(transport, wide()).await, Node::with(transport, wide()).await);
    diamond.known_to(&hub);
    sender.know(&hub);
    let ways = [diamond.ways[0].did, diamond.ways[1].did];
    let origins = [1, 2].map(|seed| KeySigner::from_secret(&[seed; 32]).unwrap().key());
    // Of each stream's frames, runs of one to four by each way in turn.
    relay(&mut hub, move |payload| {
        ways[[0, 1, 1, 0, 0, 0, 1, 1, 1, 1][(payload.transaction.content.sequence % 10) as usize]]
    });
    let streams: HashSet<_> =
        origins.into_iter().flat_map(|origin| [(origin, Class::Storage), (origin, Class::E2e)]).collect();
    let (hub, to) = (hub.did, diamond.destination.did);
    let sending = streams.iter().map(|(origin, class)| {
        let (origin, class, mut outbound) = (*origin, *class, sender.outbound.clone());
        tokio::spawn(async move {
            let mut settlements = Vec::new();
            for sequence in 0..EACH {
                settlements.push(outbound.call(frame_by(hub, origin, to, class, sequence)).await.unwrap());
            }
            join_all(settlements).await.into_iter().for_each(|settled| assert_eq!(settled, Ok(())));
        })
    });
    let sending: Vec<_> = sending.collect();
    let changes = diamond.check(EACH * streams.len() as u64, streams.len()).await;
    assert!(changes >= 2_000, "{changes} changes");
    for sent in sending {
        in_time(sent).await.unwrap();
    }
}

/// Says one of two ways twice, then the other twice.
#[derive(Debug)]
struct ToAndFro {
    ways: [Did; 2],
    asked: AtomicU64,
}

impl Router for ToAndFro {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Some(self.ways[usize::from(asked % 4 < 2)])
    }
}

async fn l3_9_an_origin_that_changes_its_next_hop_thousands_of_times_keeps_its_streams_in_order(transport: Transport) {
    const TASKS: u64 = 16;
    const EACH: u64 = 400;
    let mut diamond = Diamond::start(transport).await;
    let key = Keypair::generate_ed25519();
    let signer = Arc::new(KeySigner::from_keypair(&key).unwrap());
    let sender = Node::with(transport, Options { key, ..wide() }).await;
    diamond.known_to(&sender);
    let clock = Arc::new(SystemClock::new());
    let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests()).await.unwrap();
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).unwrap();
    let ways = [diamond.ways[0].did, diamond.ways[1].did];
    let origin = Origin::builder(NetworkId(77), signer, leases, sender.outbound.clone(), clock)
        .router(Arc::new(ToAndFro { ways, asked: AtomicU64::new(0) }))
        .build()
        .unwrap();
    let to = diamond.destination.did;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let origin = origin.clone();
            tokio::spawn(async move {
                let class = if task % 2 == 0 { Class::E2e } else { Class::Storage };
                let mut settlements = Vec::new();
                for _ in 0..EACH {
                    settlements.push(origin.send(to, vec![class.lane(), 7]).await.unwrap());
                }
                join_all(settlements).await.into_iter().for_each(|settled| assert_eq!(settled, Ok(())));
            })
        })
        .collect();
    let changes = diamond.check(TASKS * EACH, 2).await;
    assert!(changes >= 2_000, "{changes} changes");
    for task in tasks {
        in_time(task).await.unwrap();
    }
}
