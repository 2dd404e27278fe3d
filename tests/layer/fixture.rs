//! Nodes and senders: real keys, real signatures, a real boundary over group commit on the mock engine.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use admit_one::{
    clock::{Clock, ManualClock, WallMs},
    identity::{Did, KeySigner, Proof, Signer},
    layer::{
        AdmissionError, AdmissionLayer, AdmissionLayerBuilder, Admitted, Outcome, Refusal,
        boundary::{Admission, AdmissionConfig},
    },
    link::{Arrival, LinkId},
    message::{
        Class, Classifier, Content, DEFAULT_TTL_MS, FRAME_LIMIT, Incarnation, Kind, NetworkId, Payload, TagClassifier,
        Transaction, TransactionDigest, TxId, cut,
    },
    storage::commit::{CommitConfig, GroupCommit},
};
use bytes::Bytes;
use metrics::Key;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::engine::MockEngine;

pub const NETWORK: NetworkId = NetworkId(7);
pub const START: WallMs = 1_700_000_000_000;

/// A receiving node on a store of its own.
pub struct Node {
    pub signer: KeySigner,
    pub clock: Arc<ManualClock>,
    pub engine: Arc<MockEngine>,
    pub admission: Admission,
}

impl Node {
    /// A node whose birth mark has passed.
    pub async fn start() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let engine = Arc::new(MockEngine::new());
        let commit = GroupCommit::open(engine.clone(), CommitConfig::default()).await.expect("an empty store opens");
        let admission =
            Admission::open(&commit, clock.clone(), AdmissionConfig::default()).await.expect("the boundary opens");
        clock.advance(Duration::from_secs(60));
        Self { signer: KeySigner::generate(), clock, engine, admission }
    }

    pub fn did(&self) -> Did {
        self.signer.key()
    }

    pub fn layer(&self) -> AdmissionLayerBuilder {
        AdmissionLayer::builder(NETWORK, self.did(), self.admission.clone())
    }

    /// How many streams the boundary keeps.
    pub fn streams(&self) -> usize {
        self.admission.health().streams
    }
}

/// Who signs transactions, and the connection that they come on.
pub struct Sender {
    pub signer: KeySigner,
    pub link: LinkId,
    pub incarnation: Incarnation,
    pub next: u64,
    clock: Arc<ManualClock>,
}

impl Sender {
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self::with(clock, KeySigner::generate())
    }

    pub fn with(clock: &Arc<ManualClock>, signer: KeySigner) -> Self {
        let link = LinkId::of(signer.key().as_bytes());
        Self { signer, link, incarnation: Incarnation::new(clock.wall(), 1), next: 0, clock: Arc::clone(clock) }
    }

    pub fn origin(&self) -> Did {
        self.signer.slot().speaker().expect("no reference")
    }

    /// The next whole transaction for `destination`.
    pub fn content(&mut self, destination: Did, data: &'static [u8]) -> Content {
        let sequence = self.next;
        self.next += 1;
        Content {
            destination,
            tx_id: TxId::random(),
            incarnation: self.incarnation,
            sequence,
            issued_at: self.clock.wall(),
            ttl: DEFAULT_TTL_MS,
            kind: Kind::Whole,
            data: Bytes::from_static(data),
        }
    }

    /// Signs content as its origin and as the hop to `next_hop`.
    pub fn sign(&self, content: Content, next_hop: Did, hop_budget: u8) -> Payload {
        self.sign_for(NETWORK, content, next_hop, hop_budget)
    }

    pub fn sign_for(&self, network: NetworkId, content: Content, next_hop: Did, hop_budget: u8) -> Payload {
        let digest = content.digest(network, &self.origin(), class_of(&content));
        let proof = Proof { slot: self.signer.slot(), signature: self.signer.sign_now(&digest.0) };
        hop(Transaction { content, proof }, digest, &self.signer, next_hop, hop_budget)
    }

    /// The next transaction, straight to its destination.
    pub fn next(&mut self, destination: Did, data: &'static [u8]) -> Payload {
        let content = self.content(destination, data);
        self.sign(content, destination, 0)
    }

    pub fn arrival(&self, payload: &Payload) -> Arrival {
        self.raw(payload.encode(FRAME_LIMIT).expect("fits a frame"))
    }

    pub fn raw(&self, bytes: Bytes) -> Arrival {
        Arrival::from_parts(self.signer.key().to_peer_id(), self.link, bytes)
    }
}

/// Frames that have room for `slice` bytes of an original in each chunk, behind a head of one byte.
pub const fn frame_with(slice: usize) -> usize {
    Payload::OVERHEAD + 4 + 4 + 32 + 8 + 1 + slice
}

/// The chunks of an original of `content`, each signed as `sender`'s own and for `next_hop`.
pub fn chunks(sender: &Sender, content: Content, next_hop: Did, frame_limit: usize) -> Vec<Payload> {
    let head = TagClassifier.classify(&content.data).expect("has a class").head;
    let digest = content.digest(NETWORK, &sender.origin(), class_of(&content));
    let original = sender.sign(content, next_hop, 0).transaction;
    let chunks = cut(&original, digest, head, frame_limit).expect("can be cut");
    chunks.map(|chunk| sender.sign(chunk, next_hop, 3)).collect()
}

/// A transaction under the hop proof of `signer`.
pub fn hop(
    transaction: Transaction,
    digest: TransactionDigest,
    signer: &KeySigner,
    next_hop: Did,
    hop_budget: u8,
) -> Payload {
    let signature = signer.sign_now(&Payload::hop_digest(&digest, &next_hop, hop_budget));
    Payload { transaction, next_hop, hop_budget, proof: Proof { slot: signer.slot(), signature } }
}

pub fn class_of(content: &Content) -> Class {
    TagClassifier.classify(&content.data).map_or(Class::E2e, |classified| classified.class)
}

/// Digests in the order that a handler was called with them.
#[derive(Debug, Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<(Did, u64)>>>);

impl Calls {
    pub fn note(&self, admitted: &Admitted) {
        self.0.lock().expect("no panic in here").push((admitted.origin(), admitted.sequence()));
    }

    pub fn sequences(&self) -> Vec<u64> {
        self.0.lock().expect("no panic in here").iter().map(|(_, sequence)| *sequence).collect()
    }

    pub fn origins(&self) -> Vec<Did> {
        self.0.lock().expect("no panic in here").iter().map(|(origin, _)| *origin).collect()
    }
}

/// A handler that takes whatever is admitted.
pub async fn accept(_: Admitted) -> Result<(), std::convert::Infallible> {
    Ok(())
}

pub type Answer<R> = Result<Outcome<R>, AdmissionError<std::convert::Infallible>>;

/// The refusal that an answer must be.
pub fn refused<R: std::fmt::Debug>(answer: Answer<R>) -> Refusal {
    match answer {
        Err(AdmissionError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Counters of this thread, while it lives.
pub struct Counters {
    snapshotter: Snapshotter,
    /// What was counted and not looked at yet, since a snapshot sets every counter back.
    kept: Mutex<Vec<(Key, u64)>>,
    _guard: metrics::LocalRecorderGuard<'static>,
}

impl Counters {
    pub fn record() -> Self {
        // Leaked, since the guard borrows it: a test's process is short.
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let snapshotter = recorder.snapshotter();
        Self { snapshotter, kept: Mutex::default(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// What `name` counted since it was last looked at, by the value of `label`.
    pub fn take(&self, name: &str, label: &str) -> HashMap<String, u64> {
        sum(self
            .kept()
            .extract_if(.., |(key, _)| key.name() == name)
            .map(|(key, count)| (labelled(&key, label), count)))
    }

    /// What every counter counted since it was last looked at, by its name and the value of `label`.
    pub fn take_all(&self, label: &str) -> HashMap<(String, String), u64> {
        let named = |(key, count): (Key, u64)| ((key.name().to_owned(), labelled(&key, label)), count);
        sum(self.kept().drain(..).map(named))
    }

    /// What all counters counted since they were last looked at, by name.
    pub fn totals(&self) -> HashMap<String, u64> {
        sum(self.kept().drain(..).map(|(key, count)| (key.name().to_owned(), count)))
    }

    /// What was counted and not looked at. Reading the recorder sets its counters back.
    fn kept(&self) -> MutexGuard<'_, Vec<(Key, u64)>> {
        let mut kept = self.kept.lock().expect("no panic in here");
        kept.extend(self.snapshotter.snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| match value {
            DebugValue::Counter(count) if count > 0 => Some((key.key().clone(), count)),
            _ => None,
        }));
        kept
    }

    pub fn refusals(&self) -> HashMap<String, u64> {
        self.take("admit_one_refusals_total", "reason")
    }
}

fn labelled(key: &Key, label: &str) -> String {
    key.labels().find(|of| of.key() == label).map(|of| of.value().to_owned()).unwrap_or_default()
}

fn sum<K: Eq + Hash>(counted: impl Iterator<Item = (K, u64)>) -> HashMap<K, u64> {
    counted.fold(HashMap::new(), |mut sums, (key, count)| {
        *sums.entry(key).or_default() += count;
        sums
    })
}
