//! What a node did before its files were damaged, and what it was told.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    clock::{Clock, ManualClock},
    layer::{
        boundary::{
            Admission, AdmissionConfig, Application, Carrier, Request,
            tests::{SIGMA, START, carrier, config, stream},
        },
        local::Namespace,
        window::Verdict,
    },
    link::{LinkGuard, LinkId, Links as _},
    message::{Class, ClassifierId, Incarnation, StreamKey, TransactionDigest},
    storage::{
        Table,
        commit::{CommitConfig, GroupCommit, fault::Records},
        lease::{LeaseConfig, Leases, Reservation},
        simulated::Simulated,
    },
};

/// Longer than everything after the week.
pub(super) const TTL: u64 = 90_000;
/// So many streams may be numbered at once: the last ones take the places of the first.
const SENDERS: usize = 8;
const WEEK_MS: u64 = 8 * 24 * 60 * 60 * 1_000;
const DAY: u64 = WEEK_MS / 8;

pub(super) const CONFIG: fn() -> AdmissionConfig =
    || AdmissionConfig { custody: true, greatest_ttl: 100_000, ..config() };

pub(super) struct History {
    pub(super) image: Image,
    /// All of its files, cut into regions.
    pub(super) places: Vec<Place>,
    /// Where the newest word on each record stands, on those that are gone too.
    pub(super) words: Vec<(RecordName, Place)>,
    /// What the image holds.
    pub(super) records: Records,
    /// What an earlier one of each record was, for an engine that gives that.
    pub(super) older: Records,
    /// When the damage is done, after the clock began.
    pub(super) passed: Duration,
    /// Admitted and released, in order: by streams that are still there.
    pub(super) admitted: Vec<Request>,
    /// Admitted by streams that are spent and removed.
    pub(super) removed: Vec<Request>,
    /// Mail that the application took, and mail that it did not.
    pub(super) taken: Vec<Request>,
    pub(super) kept: Vec<Request>,
    /// Of a namespace that was withdrawn: never presented, or admitted link-locally.
    pub(super) withdrawn: Vec<Request>,
    /// Handed out and released.
    pub(super) reserved: BTreeSet<(StreamKey, Reservation)>,
    /// Streams that were numbered; some of the first have no lease any more.
    pub(super) senders: BTreeSet<StreamKey>,
}

/// One process over a store.
pub(super) struct Node {
    pub(super) clock: Arc<ManualClock>,
    pub(super) commit: GroupCommit,
    pub(super) admission: Admission,
    pub(super) leases: Leases,
}

impl Node {
    async fn open(engine: &Engine, files: &Simulated, clock: Arc<ManualClock>) -> Self {
        let store = (engine.open)(files).expect("it is not damaged");
        let commit = GroupCommit::open(store, CommitConfig::new()).await.expect("it opens");
        let admission = Admission::open(&commit, clock.clone(), CONFIG()).await.expect("it is not damaged");
        let leases = LeaseConfig { sigma: SIGMA, streams: SENDERS };
        let leases = Leases::open(&commit, clock.clone(), leases).expect("nobody else has it");
        Self { clock, commit, admission, leases }
    }

    async fn restart(self, engine: &Engine, files: &Simulated) -> Self {
        let Self { clock, commit, admission, leases } = self;
        commit.shutdown().await;
        drop((commit, admission, leases));
        Self::open(engine, files, clock).await
    }

    pub(super) fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A fresh transaction.
    pub(super) fn request(&self, stream: StreamKey, sequence: u64) -> Request {
        let digest = blake3::hash(&[&stream.to_bytes()[..], &sequence.to_be_bytes()].concat());
        Request {
            stream,
            incarnation: Incarnation::new(START, 1),
            sequence,
            digest: TransactionDigest(digest.into()),
            issued_at: self.clock.wall(),
            ttl: TTL,
            bytes: 0,
            application: None,
            carrier: carrier(1),
        }
    }

    async fn admit(&self, request: Request) -> Request {
        let answer = self.admission.admit(request).await.expect("no fault is injected");
        assert!(answer.is_ok(), "{request:?}: {answer:?}");
        request
    }
}

fn chat(link: Option<u64>, request: Request) -> Request {
    let namespace = Namespace::new("chat").expect("it is short");
    let own_link = link.map(LinkId::of);
    let application = Application { classifier: ClassifierId::of("one"), namespace: Some(namespace), own_link };
    Request { application: Some(application), ..request }
}

pub(super) async fn read(engine: &Engine, files: &Simulated) -> Records {
    let store = (engine.open)(&Simulated::holding(&files.image())).expect("it is not damaged");
    let mut records = Records::new();
    for table in Table::ALL {
        let scan = store.scan(table).await.expect("it is not damaged");
        assert_eq!(scan.bad, []);
        records.extend(scan.records.into_iter().map(|(key, value)| ((table, key), value)));
    }
    records
}

impl History {
    /// With a restart shortly before the end, or none: an engine may copy everything when it opens.
    pub(super) async fn new(engine: &Engine, restarted: bool) -> Self {
        let files = Simulated::default();
        let mut node = Node::open(engine, &files, Arc::new(ManualClock::new(START))).await;
        let mut history = History {
            image: Image::new(),
            places: Vec::new(),
            words: Vec::new(),
            records: Records::new(),
            older: Records::new(),
            passed: Duration::ZERO,
            admitted: Vec::new(),
            removed: Vec::new(),
            taken: Vec::new(),
            kept: Vec::new(),
            withdrawn: Vec::new(),
            reserved: BTreeSet::new(),
            senders: BTreeSet::new(),
        };
        history.before_the_week(&node).await;
        // In steps, since nothing is removed by one of the clock.
        for _ in 0..WEEK_MS / DAY {
            node.pass(DAY);
        }
        history.older = read(engine, &files).await;
        let link = history.namespace(&node).await;
        history.rounds(&node, 0..4).await;
        history.mail(&node, 30..36).await;
        // The latest of what is no longer what it was.
        let later = read(engine, &files).await;
        history.older.extend(later);
        drop(link);
        node = node.restart(engine, &files).await;
        history.rounds(&node, 4..14).await;
        if restarted {
            node = node.restart(engine, &files).await;
        }
        history.takes(&node).await;
        node.commit.shutdown().await;
        history.passed = node.clock.monotonic();
        drop(node);
        history.image = files.image();
        history.records = read(engine, &files).await;
        let gone = history.older.keys().filter(|place| !history.records.contains_key(*place));
        let gone = gone.cloned().map(|place| (place, None));
        let held = history.records.iter().map(|(place, value)| (place.clone(), Some(value.clone())));
        let all: Vec<_> = held.chain(gone).collect();
        history.words = (engine.words)(&history.image, &all);
        history.places = (engine.places)(&history.image, &history.words);
        history
    }

    /// Streams that will be spent, and leases that will be retired.
    async fn before_the_week(&mut self, node: &Node) {
        node.pass(2 * SIGMA + 1);
        for origin in 50..54 {
            let class = Class::ALL[usize::from(origin % 3)];
            self.removed.push(node.admit(node.request(stream(origin, class), 5)).await);
            self.reserve(node, stream(origin, Class::E2e), 3).await;
        }
    }

    /// A namespace that is registered, used and withdrawn.
    async fn namespace(&mut self, node: &Node) -> LinkGuard {
        let name = Namespace::new("chat").expect("it is short");
        node.admission.register(name).await.expect("there is room");
        node.pass(2 * SIGMA + 1);
        let link = node.admission.open(libp2p::PeerId::random(), LinkId::of(7)).expect("there is a slot");
        let streams = [60, 61].map(|origin| stream(origin, Class::Application));
        let local = node.admit(chat(Some(7), node.request(streams[0], 1))).await;
        // It was never presented: only the mark refuses it.
        self.withdrawn.push(chat(None, node.request(streams[1], 1)));
        self.withdrawn.push(chat(None, local));
        node.pass(1);
        node.admission.withdraw(name).await.expect("no fault is injected");
        node.pass(2 * SIGMA + 1);
        link
    }

    async fn rounds(&mut self, node: &Node, rounds: std::ops::Range<u64>) {
        for round in rounds {
            node.pass(1);
            for origin in 1..4 {
                for class in Class::ALL {
                    // A gap, and what fills it; and a jump of a window in the middle.
                    let sequence = round / 4 * 4 + [3, 0, 1, 2][(round % 4) as usize] + round / 8 * 40;
                    self.admitted.push(node.admit(node.request(stream(origin, class), sequence)).await);
                }
                self.reserve(node, stream(origin, Class::ALL[usize::from(origin)]), 20).await;
            }
            // One that takes a retired one's place.
            self.reserve(node, stream(70 + (round % 4) as u8, Class::Storage), 1).await;
        }
    }

    async fn reserve(&mut self, node: &Node, sender: StreamKey, count: usize) {
        self.senders.insert(sender);
        for _ in 0..count {
            let reserved = node.leases.reserve(&sender, TTL).await.expect("no fault is injected");
            assert!(self.reserved.insert((sender, reserved.expect("there is room"))));
        }
    }

    async fn mail(&mut self, node: &Node, origins: std::ops::Range<u8>) {
        for origin in origins {
            let carrier = Carrier::Inbox { held_at: node.clock.wall() };
            let mail = Request { carrier, ..node.request(stream(origin, Class::Application), 1) };
            let (ticket, _pending) = node.admission.offer(mail);
            assert_eq!(ticket.await.expect("no fault is injected"), Ok(Verdict::First));
            self.kept.push(mail);
        }
    }

    /// The application takes half of its mail.
    async fn takes(&mut self, node: &Node) {
        for mail in self.kept.split_off(self.kept.len() / 2) {
            let (ticket, _pending) = node.admission.offer(mail);
            assert_eq!(ticket.await.expect("no fault is injected"), Ok(Verdict::Redelivered));
            assert_eq!(node.admission.take(&mail).await.expect("no fault is injected"), Ok(()));
            self.taken.push(mail);
        }
    }
}
