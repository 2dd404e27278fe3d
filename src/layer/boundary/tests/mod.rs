//! The boundary over group commit, on an engine that fails on demand and a clock that moves when told to. Each test
//! runs on one thread, so nothing happens but where it waits.

mod bad_records;
mod charges;
mod checks;
mod cleared;
mod counted;
mod custody;
mod damage;
mod failure;
mod fairness;
mod images;
mod local;
mod quota;
mod restore;
mod retired;
mod spent;
mod undo;

use std::{sync::Arc, time::Duration};

use super::{Admission, AdmissionConfig, AdmissionOpenError, BoundaryRefusal, Carrier, Request};
use crate::{
    clock::{Clock, ManualClock},
    identity::KeySigner,
    layer::window::Verdict,
    link::LinkId,
    message::{Class, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::commit::{CommitConfig, GroupCommit, StoreFailed, fault::FaultStore},
};

const SIGMA: u64 = 10;
const TTL: u64 = 1_000;
const START: u64 = 1_000_000;

type Answer = Result<Verdict, BoundaryRefusal>;

fn config() -> AdmissionConfig {
    AdmissionConfig { sigma: SIGMA, greatest_ttl: TTL, ..AdmissionConfig::default() }
}

/// One receiver on one store.
struct Node {
    store: FaultStore,
    clock: Arc<ManualClock>,
    commit: GroupCommit,
    admission: Admission,
}

impl Node {
    /// On an empty store, past its birth mark.
    async fn new(config: AdmissionConfig) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let node = Self::open(FaultStore::new(), clock, config).await.unwrap();
        node.pass(2 * SIGMA + 1);
        node
    }

    async fn open(
        store: FaultStore,
        clock: Arc<ManualClock>,
        config: AdmissionConfig,
    ) -> Result<Self, AdmissionOpenError> {
        let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
        let admission = Admission::open(&commit, clock.clone(), config).await?;
        Ok(Self { store, clock, commit, admission })
    }

    /// What another process finds on what is durable now.
    async fn restart(&self, config: AdmissionConfig) -> Result<Self, AdmissionOpenError> {
        Self::open(FaultStore::holding(self.store.records()), self.clock.clone(), config).await
    }

    /// Mail that is held now.
    fn inbox(&self) -> Carrier {
        Carrier::Inbox { held_at: self.clock.wall() }
    }

    fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A fresh transaction: issued now, at the greatest ttl.
    fn fresh(&self, stream: StreamKey, sequence: u64) -> Request {
        Request {
            stream,
            incarnation: Incarnation::new(START, 1),
            sequence,
            digest: TransactionDigest([u8::try_from(sequence % 251).unwrap(); 32]),
            issued_at: self.clock.wall(),
            ttl: TTL,
            bytes: 0,
            application: None,
            carrier: carrier(1),
        }
    }

    async fn admit(&self, request: Request) -> Result<Answer, StoreFailed> {
        self.admission.admit(request).await
    }

    async fn answer(&self, request: Request) -> Answer {
        self.admit(request).await.unwrap()
    }
}

/// What came by link `name`, which is announced to no boundary unless its test does so.
fn carrier(name: u64) -> Carrier {
    Carrier::Link(LinkId::of(name))
}

/// Streams differ by their origin's key.
fn stream(origin: u8, class: Class) -> StreamKey {
    let did = |secret: u8| KeySigner::from_secret(&[secret; 32]).unwrap().key();
    StreamKey { network: NetworkId(7), origin: did(origin), destination: did(255), class }
}
