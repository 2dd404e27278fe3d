//! Stores as a node leaves them: made by admissions and reservations through the crate's interface.

use std::{path::Path, sync::Arc, time::Duration};

use admit_one::{
    Admission, AdmissionConfig, CommitConfig, GroupCommit, LeaseConfig, Leases, NetworkId, StoreUrl, SystemClock,
    clock::Clock as _,
    identity::KeySigner,
    layer::{
        boundary::{BoundaryRefusal, Carrier, Request},
        charging::Shares,
        window::Verdict,
    },
    link::LinkId,
    message::{Class, DEFAULT_TTL_MS, Incarnation, StreamKey, TransactionDigest},
    storage::{Batch, RecordName, Store, Table, Write},
};

/// The tolerance that all of these nodes run with.
pub const SIGMA_MS: u64 = 10;

/// The streams of so many origins to this node, of class `E2e`.
pub fn stream(number: u32) -> StreamKey {
    let key = |number: u32| {
        let secret = blake3::hash(&number.to_be_bytes());
        KeySigner::from_secret(secret.as_bytes()).expect("a key").key()
    };
    StreamKey { network: NetworkId(1), origin: key(number), destination: key(u32::MAX), class: Class::E2e }
}

/// The name of a stream's record.
pub fn record(table: Table, number: u32) -> String {
    RecordName::of(table, &stream(number).to_bytes()).to_string()
}

/// The URL of a store of `engine` in `directory`.
pub fn url(engine: &str, directory: &Path) -> String {
    format!("{engine}:{}", directory.join(engine).display())
}

/// Opens it; it is in use until it is dropped.
pub async fn open(url: &str) -> Arc<dyn Store> {
    url.parse::<StoreUrl>().expect("a URL").open().await.expect("it opens")
}

/// A running node.
pub struct Node {
    pub commit: GroupCommit,
    pub admission: Admission,
    pub leases: Leases,
    clock: Arc<SystemClock>,
}

impl Node {
    /// Starts one; waits until it takes what is issued now.
    pub async fn start(url: &str) -> Self {
        let clock = Arc::new(SystemClock::new());
        let commit = GroupCommit::open(open(url).await, CommitConfig::new()).await.expect("it opens");
        // All streams come by links that nobody announced, which share a slot.
        let shares = Shares { floor: 4_096, ..Shares::default() };
        let config = AdmissionConfig { sigma: SIGMA_MS, shares, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.expect("it opens");
        let lease = LeaseConfig { sigma: SIGMA_MS, ..LeaseConfig::default() };
        let leases = Leases::open(&commit, clock.clone(), lease).expect("it opens");
        // The mark follows a wall clock that is being slewed: what is issued from here on stays clear of it.
        while admission.health().birth_mark.is_some_and(|mark| clock.wall() <= mark + 50) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self { commit, admission, leases, clock }
    }

    /// Its wall clock.
    pub fn now(&self) -> u64 {
        self.clock.wall()
    }

    /// The transaction of `sequence` of a stream, issued now.
    pub fn transaction(&self, stream: u32, sequence: u64) -> Request {
        let issued_at = self.clock.wall();
        Request {
            stream: self::stream(stream),
            incarnation: Incarnation(1),
            sequence,
            digest: TransactionDigest(blake3::hash(&sequence.to_be_bytes()).into()),
            issued_at,
            ttl: DEFAULT_TTL_MS,
            bytes: 0,
            application: None,
            carrier: Carrier::Link(LinkId::of(0)),
        }
    }

    /// Presents it.
    pub async fn admit(&self, request: Request) -> Result<Verdict, BoundaryRefusal> {
        self.admission.admit(request).await.expect("the store works")
    }

    /// Ends it; the store can be opened at once.
    pub async fn stop(self) {
        self.commit.shutdown().await;
    }
}

/// A store with `streams` windows of three transactions each, and as many leases. Gives the first stream's last one.
pub async fn admitted(url: &str, streams: u32) -> Request {
    let node = Node::start(url).await;
    let requests: Vec<_> = (0..streams).flat_map(|number| (0..3).map(move |sequence| (number, sequence))).collect();
    let requests: Vec<_> = requests.into_iter().map(|(number, sequence)| node.transaction(number, sequence)).collect();
    let admissions: Vec<_> = requests.iter().map(|request| node.admission.admit(*request)).collect();
    for admitted in futures::future::join_all(admissions).await {
        admitted.expect("the store works").expect("admitted");
    }
    let reservations: Vec<_> =
        (0..streams).map(|number| node.leases.reserve(&stream(number), DEFAULT_TTL_MS)).collect();
    for reserved in futures::future::join_all(reservations).await {
        reserved.expect("the store works").expect("reserved");
    }
    node.stop().await;
    requests[2]
}

/// Overwrites a stream's record with what is none: readable for the engine, and not to be restored.
pub async fn damage(url: &str, table: Table, number: u32) {
    let write = Write { table, key: stream(number).to_bytes().to_vec().into(), value: Some(vec![7; 40].into()) };
    open(url).await.commit(Batch { writes: vec![write] }).await.expect("written");
}

impl Node {
    /// The next sequence of a stream of its own, with its incarnation.
    pub async fn leases_of(&self, number: u32) -> (Incarnation, u64) {
        let reserved = self.leases.reserve(&stream(number), DEFAULT_TTL_MS).await;
        let reserved = reserved.expect("the store works").expect("reserved");
        (reserved.incarnation, reserved.sequence)
    }
}
