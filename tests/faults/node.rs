//! A node on one engine, and what its callers were told.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use admit_one::{
    StoreUrl,
    clock::{Clock as _, ManualClock, WallMs},
    identity::{Did, KeySigner},
    layer::boundary::{Admission, AdmissionConfig, BoundaryRefusal, Carrier, Request},
    link::LinkId,
    message::{Class, DEFAULT_TTL_MS, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        Journal, JournalConfig, OpenError, Store,
        commit::{CommitConfig, GroupCommit, StoreFailed},
    },
};

/// The engines whose errors say what these tests expect.
pub(crate) const ENGINES: &[&str] = &["journal"];

/// When every node's clock begins.
const START: WallMs = 1_700_000_000_000;
/// Past the birth mark of a store that was made at the start.
const ISSUED: WallMs = START + 1_000;

pub(crate) async fn open(engine: &str, path: &Path) -> Result<Arc<dyn Store>, OpenError> {
    // Short segments, so that a small disk has several.
    let config =
        JournalConfig { segment_bytes: 64 * 1024, compact_floor_bytes: 256 * 1024, ..JournalConfig::default() };
    match engine {
        "journal" => Ok(Arc::new(Journal::open(path, config)?)),
        _ => format!("{engine}:{}", path.display()).parse::<StoreUrl>().expect("an engine of this build").open().await,
    }
}

pub(crate) struct Node {
    pub(crate) commit: GroupCommit,
    admission: Admission,
    origin: Did,
}

impl Node {
    pub(crate) async fn open(engine: &str, path: &Path) -> Result<Self, Box<dyn Error>> {
        let clock = Arc::new(ManualClock::new(START));
        let commit = GroupCommit::open(open(engine, path).await?, CommitConfig::default()).await?;
        let config = AdmissionConfig { sigma: 100, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await?;
        clock.advance(Duration::from_millis(ISSUED + 1 - clock.wall()));
        Ok(Self { commit, admission, origin: KeySigner::from_secret(&[1; 32]).expect("a key").key() })
    }

    /// Presents the transaction of that number.
    pub(crate) async fn admit(&self, number: u64) -> Result<bool, StoreFailed> {
        let stream =
            StreamKey { network: NetworkId(1), origin: self.origin, destination: self.origin, class: Class::E2e };
        let answer = self.admission.admit(Request {
            stream,
            incarnation: Incarnation::new(ISSUED, 7),
            sequence: number,
            digest: TransactionDigest(blake3::hash(&number.to_le_bytes()).into()),
            issued_at: ISSUED,
            ttl: DEFAULT_TTL_MS,
            bytes: 0,
            application: None,
            carrier: Carrier::Link(LinkId::of(0)),
        });
        match answer.await? {
            Ok(_) => Ok(true),
            Err(BoundaryRefusal::Window(_)) => Ok(false),
            Err(other) => panic!("{number}: {other}"),
        }
    }

    /// Admits one after the other, until the store fails or `most` are released. What was released, and the failure.
    pub(crate) async fn admit_from(&self, first: u64, most: u64) -> (u64, Option<StoreFailed>) {
        for number in first..first + most {
            match self.admit(number).await {
                Ok(admitted) => assert!(admitted, "{number} was never presented before"),
                Err(failure) => return (number, Some(failure)),
            }
        }
        (first + most, None)
    }

    /// Nothing below `next` is admitted again.
    pub(crate) async fn refuses_all_below(&self, next: u64, context: &str) {
        for number in 0..next {
            let admitted = self.admit(number).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(!admitted, "{context}: {number} was released, and is admitted again");
        }
    }

    /// Closes the store and waits for it.
    pub(crate) async fn close(self) {
        self.commit.shutdown().await;
    }
}
