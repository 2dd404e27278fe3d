//! The laws of single-use authority, over group commit and a mock engine that fails and crashes on demand.

mod bounds;
mod damage;
mod failure;
mod instants;
mod laws;
mod model;
mod operations;
mod release;
mod sharing;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Authority, Capability, Commitment, Mark, MarkId, MarkKind, MarkState, Operation, OperationId, Outcome, OutcomeKind,
    Presentation, Refusal, Reservation, SingleUse, SingleUseConfig, SingleUseOpenError,
    guard::{Guard, Guards},
};
use crate::{
    clock::{Clock, ManualClock},
    identity::{Did, KeySigner},
    storage::{
        Store,
        commit::{
            CommitConfig, GroupCommit,
            fault::{FaultStore, Records},
        },
    },
};

/// When the tests begin, in unix seconds.
const T0: i64 = 1_700_000_000;
/// The greatest lifetime of most tests, in seconds.
const LIFETIME: i64 = 600;
/// σ in seconds.
const SIGMA: i64 = 3;

fn did(seed: u8) -> Did {
    KeySigner::from_secret(&[seed; 32]).unwrap().key()
}

fn id(seed: u64) -> [u8; 32] {
    *blake3::hash(&seed.to_be_bytes()).as_bytes()
}

/// A nonce of subject 1 that was issued a minute after the tests began, and expires at `expires_at`.
fn nonce(seed: u64, expires_at: i64) -> Mark {
    Mark {
        kind: MarkKind::Nonce,
        id: MarkId(id(seed)),
        subject: did(1),
        issued_at: Some(T0 + 60),
        valid_until: expires_at,
        expires_at,
    }
}

fn approval(seed: u64, valid_until: i64, deadline: i64) -> Mark {
    Mark { kind: MarkKind::Approval, valid_until, ..nonce(seed, deadline) }
}

fn operation(seed: u64, commitment: u64, deadline: i64) -> Operation {
    Operation {
        id: OperationId(id(seed)),
        commitment: Commitment(id(commitment)),
        subject: did(1),
        issued_at: Some(T0 + 60),
        deadline,
    }
}

fn receipt(bytes: &'static [u8]) -> Outcome {
    Outcome { kind: OutcomeKind::Receipt, bytes: Bytes::from_static(bytes) }
}

/// An authority that a test turns.
#[derive(Debug, Default)]
struct Switch {
    stopped: AtomicBool,
    panics: AtomicBool,
    revoked: Mutex<BTreeSet<Capability>>,
}

impl Switch {
    fn revoke(&self, capability: Capability) {
        self.revoked.lock().unwrap().insert(capability);
    }
}

impl Authority for Switch {
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn revoked(&self, capability: &Capability) -> bool {
        assert!(!self.panics.load(Ordering::SeqCst), "the authority fails");
        self.revoked.lock().unwrap().contains(capability)
    }
}

const CAP: Capability = Capability([7; 32]);

/// One node: its disk, its clock, and what runs on them.
struct Node {
    store: FaultStore,
    clock: Arc<ManualClock>,
    authority: Arc<Switch>,
    config: SingleUseConfig,
    guards: Guards,
    commit: GroupCommit,
    single_use: SingleUse,
}

impl Node {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut SingleUseConfig)) -> Self {
        Self::without(None, change).await
    }

    /// A store that was born at [`T0`] and has lived a minute and a second since.
    async fn without(guard: Option<Guard>, change: impl FnOnce(&mut SingleUseConfig)) -> Self {
        let authority = Arc::new(Switch::default());
        let mut config = SingleUseConfig::new().with_authority(authority.clone());
        config.greatest_lifetime_s = LIFETIME as u64;
        change(&mut config);
        let guards = Guards { without: guard, ..Guards::default() };
        let clock = Arc::new(ManualClock::new(T0 as u64 * 1_000));
        let store = FaultStore::new();
        let (commit, single_use) = open(&store, &clock, &config, guards).await.unwrap();
        clock.advance(Duration::from_secs(61));
        Self { store, clock, authority, config, guards, commit, single_use }
    }

    fn now(&self) -> i64 {
        (self.clock.wall() / 1_000) as i64
    }

    fn pass(&self, seconds: i64) {
        self.clock.advance(Duration::from_secs(seconds as u64));
    }

    /// The process dies, and another opens what is durable.
    async fn crash(self) -> Self {
        let records = self.store.records();
        self.reopened(records).await.unwrap()
    }

    async fn reopened(self, records: Records) -> Result<Self, SingleUseOpenError> {
        let Self { clock, authority, config, guards, .. } = self;
        let store = FaultStore::holding(records);
        let (commit, single_use) = open(&store, &clock, &config, guards).await?;
        Ok(Self { store, clock, authority, config, guards, commit, single_use })
    }

    fn state(&self, mark: &Mark) -> MarkState {
        self.single_use.state(&mark.id, mark.kind)
    }

    async fn run(&self, operation: &Operation, marks: &[Mark]) -> Result<Reservation, Refusal> {
        match self.single_use.present(operation, marks, &[CAP]).await? {
            Presentation::Run(reservation) => Ok(reservation),
            Presentation::Recorded(recorded) => panic!("it ran before: {recorded:?}"),
        }
    }

    async fn recorded(&self, operation: &Operation, marks: &[Mark]) -> Result<Outcome, Refusal> {
        match self.single_use.present(operation, marks, &[CAP]).await? {
            Presentation::Run(reservation) => panic!("it runs again: {reservation:?}"),
            Presentation::Recorded(recorded) => Ok(recorded.release(&[CAP])?.into_inner()),
        }
    }
}

async fn open(
    store: &FaultStore,
    clock: &Arc<ManualClock>,
    config: &SingleUseConfig,
    guards: Guards,
) -> Result<(GroupCommit, SingleUse), SingleUseOpenError> {
    let store: Arc<dyn Store> = store.arc();
    let commit = GroupCommit::open(store, CommitConfig::new()).await.unwrap();
    let single_use = SingleUse::open_guarded(&commit, clock.clone(), config.clone(), guards).await?;
    Ok((commit, single_use))
}

fn code<T>(refused: Result<T, Refusal>) -> &'static str {
    match refused {
        Ok(_) => "taken",
        Err(refusal) => refusal.code(),
    }
}
