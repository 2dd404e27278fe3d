//! One node of an overlay, as a user puts it together: swarm, lanes, boundary, forwarding and origin.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, RwLock},
};

use admit_one::{
    clock::{Clock, SystemClock},
    identity::{Did, KeySigner},
    lanes::{Config, Origin, Outbound, Settlement},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
        forward::Forwarding,
    },
    link::{CreditGuard, Frame, Router},
    message::{Class, Classifier, FRAME_LIMIT, MAX_HOP_BUDGET, Payload, TagClassifier},
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::StreamExt;
use libp2p::identity::Keypair;
use tokio::sync::{Semaphore, mpsc};
use tower::{Layer, service_fn};

use crate::{
    fixture::{Counters, NETWORK},
    support::{FAILURE, Node, Options, Seen, Transport},
};

/// A node. Its store is in memory, without a birth mark: it lives as long as the test.
pub struct Site {
    pub node: Node,
    pub signer: Arc<KeySigner>,
    pub admission: Admission,
    pub ways: Arc<Ways>,
    pub origin: Origin,
}

/// How a node is set up, where a test does not leave it at the default.
pub struct Terms {
    pub config: Config,
    pub hop_budget: u8,
    pub ttl: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { config: Config::default(), hop_budget: 8, ttl: 60_000 }
    }
}

/// The next hop for each destination, as a test sets it and changes it; a destination without one is its own.
#[derive(Debug, Default)]
pub struct Ways(RwLock<HashMap<Did, Did>>);

impl Ways {
    pub fn lead(&self, destination: Did, by: Did) {
        self.0.write().expect("no panic in here").insert(destination, by);
    }
}

impl Router for Ways {
    fn next_hop(&self, destination: &Did) -> Option<Did> {
        Some(self.0.read().expect("no panic in here").get(destination).copied().unwrap_or(*destination))
    }
}

/// What a handler was called with: origin, class and sequence.
pub type Handled = (Did, Class, u64);

impl Site {
    pub async fn start(transport: Transport) -> Self {
        Self::with(transport, Terms::default()).await
    }

    pub async fn with(transport: Transport, terms: Terms) -> Self {
        let key = Keypair::generate_ed25519();
        let signer = Arc::new(KeySigner::from_keypair(&key).expect("an Ed25519 key"));
        let node = Node::with(transport, Options { key, config: terms.config, ..Options::default() }).await;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests());
        let commit = commit.await.expect("an empty store opens");
        let config = AdmissionConfig { birth_mark: false, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.expect("the boundary opens");
        let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("the leases open");
        let ways = Arc::new(Ways::default());
        let origin = Origin::builder(NETWORK, signer.clone(), leases, node.outbound.clone(), clock)
            .router(ways.clone())
            .hop_budget(terms.hop_budget)
            .ttl(terms.ttl)
            .build()
            .expect("an origin");
        Self { node, signer, admission, ways, origin }
    }

    pub fn did(&self) -> Did {
        self.signer.key()
    }

    /// Tells this node where `next` is, and that the way to `destinations` leads by it.
    pub fn leads_by(&self, next: &Self, destinations: &[&Self]) {
        self.node.know(&next.node);
        destinations.iter().for_each(|destination| self.ways.lead(destination.did(), next.did()));
    }

    /// Connects to `next`, so that no test's bound on time has to cover a handshake.
    pub async fn connect(&mut self, next: &Self) {
        let there = next.node.peer;
        self.node.dial(there, next.node.address.clone());
        self.node.until(|seen| matches!(seen, Seen::Connected(peer) if peer == there).then_some(())).await;
    }

    pub fn forwarding(&self) -> Forwarding<Outbound> {
        Forwarding::new(self.signer.clone(), self.node.outbound.clone()).router(self.ways.clone())
    }

    /// Admits what is for this node and forwards the rest. What the handler was called with.
    pub fn serve(&mut self) -> mpsc::UnboundedReceiver<Handled> {
        let forwarding = self.forwarding();
        self.serve_by(forwarding)
    }

    pub fn serve_by(&mut self, forwarding: Forwarding<Outbound>) -> mpsc::UnboundedReceiver<Handled> {
        let (note, handled) = mpsc::unbounded_channel();
        self.serve_with(forwarding, move |admitted| {
            let _ = note.send((admitted.origin(), admitted.class(), admitted.sequence()));
            std::future::ready(())
        });
        handled
    }

    /// As [`Site::serve`], with a handler that waits for a permit with each transaction before it is done.
    pub fn serve_held(&mut self, permits: &Arc<Semaphore>) -> mpsc::UnboundedReceiver<Handled> {
        let (note, handled) = mpsc::unbounded_channel();
        let (forwarding, permits) = (self.forwarding(), permits.clone());
        self.serve_with(forwarding, move |admitted| {
            let _ = note.send((admitted.origin(), admitted.class(), admitted.sequence()));
            let permits = permits.clone();
            async move { permits.acquire().await.expect("never closed").forget() }
        });
        handled
    }

    pub fn serve_with<H, W>(&mut self, forwarding: Forwarding<Outbound>, handler: H)
    where
        H: Fn(Admitted) -> W + Clone + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let layer = AdmissionLayer::builder(NETWORK, self.did(), self.admission.clone()).forward(forwarding).build();
        let service = layer.layer(service_fn(move |admitted| {
            let work = handler(admitted);
            async move {
                work.await;
                Ok::<_, Infallible>(())
            }
        }));
        tokio::spawn(self.node.incoming().serve(service));
    }

    /// A relay that verifies nothing, and sends instead of each frame what `forge` makes of it. Each frame is taken over
    /// at once, or with `holds` when the test gives a permit for it. How each frame that it sends ends.
    pub fn forge<M>(&mut self, holds: Option<&Arc<Semaphore>>, forge: M) -> mpsc::UnboundedReceiver<Settlement>
    where
        M: FnMut(Payload, Option<CreditGuard>) -> Vec<Frame> + Send + 'static,
    {
        let (sent, settlements) = mpsc::unbounded_channel();
        let (forge, outbound, holds) = (Arc::new(Mutex::new(forge)), self.node.outbound.clone(), holds.cloned());
        tokio::spawn(self.node.incoming().for_each_concurrent(None, move |mut inbound| {
            let (forge, outbound, holds, sent) = (forge.clone(), outbound.clone(), holds.clone(), sent.clone());
            async move {
                while let Some(arrival) = inbound.next().await {
                    if let Some(holds) = &holds {
                        holds.acquire().await.expect("never closed").forget();
                    }
                    let payload = Payload::decode(arrival.bytes, FRAME_LIMIT).expect("an honest peer's");
                    let frames = forge.lock().expect("no panic in here")(payload, arrival.credit);
                    for frame in frames {
                        let _ = sent.send(outbound.send(frame).await.expect("accepted"));
                    }
                }
            }
        }));
        settlements
    }

    /// Sends `count` of `class` to each of `destinations` in turn, and waits until all are taken over.
    pub async fn send(&self, class: Class, count: u64, destinations: &[&Self]) {
        let mut settlements = Vec::new();
        for _ in 0..count {
            for destination in destinations {
                settlements.push(self.origin.send(destination.did(), data(class)).await.expect("accepted"));
            }
        }
        for settlement in settlements {
            settlement.await.expect("taken over");
        }
    }
}

/// The least that is of `class`.
pub fn data(class: Class) -> Vec<u8> {
    match class {
        Class::Application => vec![class.lane(), 1, b'n', b'!'],
        _ => vec![class.lane(), b'!'],
    }
}

pub fn class_of(payload: &Payload) -> Class {
    TagClassifier.classify(&payload.transaction.content.data).expect("of a class").class
}

/// `payload` as a frame, to whom it names.
pub fn frame(payload: Payload, inbound: Option<CreditGuard>) -> Frame {
    Frame { class: class_of(&payload), payload, write_within: FAILURE, inbound }
}

/// `payload` carried on by `signer` to `next_hop`, as it should be.
pub fn carried(payload: Payload, signer: &KeySigner, next_hop: Did, hop_budget: u8) -> Payload {
    assert!(hop_budget <= MAX_HOP_BUDGET);
    let transaction = payload.transaction;
    let origin = transaction.origin().expect("no reference");
    let class = TagClassifier.classify(&transaction.content.data).expect("of a class").class;
    let digest = transaction.content.digest(NETWORK, &origin, class);
    crate::fixture::hop(transaction, digest, signer, next_hop, hop_budget)
}

/// Waits until `name` was counted so many times more, and no more often.
pub async fn counted(counters: &Counters, name: &str, count: u64) {
    let mut found = 0;
    while found < count {
        tokio::task::yield_now().await;
        found += counters.take(name, "").values().sum::<u64>();
    }
    assert_eq!(found, count, "{name}");
}

/// Waits until so many more frames were accepted on their way.
pub async fn forwarded(counters: &Counters, count: u64) {
    counted(counters, "admit_one_forwarded_total", count).await;
}

/// The next `count` that a handler was called with.
pub async fn next(handled: &mut mpsc::UnboundedReceiver<Handled>, count: u64) -> Vec<Handled> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(handled.recv().await.expect("the node runs"));
    }
    found
}

/// What a handler was called with and nobody took yet.
pub fn rest(handled: &mut mpsc::UnboundedReceiver<Handled>) -> Vec<Handled> {
    std::iter::from_fn(|| handled.try_recv().ok()).collect()
}

/// The sequences of `class` from `origin`, in the order of `handled`.
pub fn sequences(handled: &[Handled], origin: &Site, class: Class) -> Vec<u64> {
    let of = |one: &&Handled| (one.0, one.1) == (origin.did(), class);
    handled.iter().filter(of).map(|one| one.2).collect()
}
