//! Leases on group commit, over an engine that fails and crashes on demand.

mod laws;
mod model;

use std::{
    cell::Cell,
    sync::{Arc, LazyLock},
    time::Duration,
};

use super::*;
use crate::{
    clock::ManualClock,
    identity::Did,
    message::{Class, NetworkId},
    storage::commit::{
        CommitConfig,
        fault::{FaultStore, Records},
    },
};

const START: u64 = 1_700_000_000_000;
const TOLERANCE: u64 = 3_000;
const TTL: u64 = 10_000;

thread_local! {
    static BITS: Cell<u16> = const { Cell::new(0) };
}

/// Stands in for random bits: no draw of a test repeats another's, which real ones promise up to one in 65,536.
fn fresh_bits() -> Option<u16> {
    BITS.with(|bits| bits.set(bits.get().wrapping_add(1)));
    Some(BITS.with(Cell::get))
}

/// One process on a store.
struct Node {
    store: FaultStore,
    commit: GroupCommit,
    leases: Leases,
    clock: Arc<ManualClock>,
}

impl Node {
    async fn start(records: Records, clock: Arc<ManualClock>, streams: usize) -> Self {
        Self::on(FaultStore::holding(records), clock, streams).await
    }

    async fn on(store: FaultStore, clock: Arc<ManualClock>, streams: usize) -> Self {
        let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
        let config = LeaseConfig { sigma: TOLERANCE, streams };
        let leases = Leases::open_with(&commit, clock.clone(), config, fresh_bits).unwrap();
        Self { store, commit, leases, clock }
    }

    async fn fresh() -> Self {
        Self::start(Records::new(), Arc::new(ManualClock::new(START)), SENDER_STREAMS).await
    }

    /// The process dies; another starts on what is durable.
    async fn restart(self) -> Self {
        let streams = SENDER_STREAMS;
        Self::start(self.store.records(), self.clock, streams).await
    }

    async fn reserve(&self, key: &StreamKey) -> Result<Reservation, LeaseRefused> {
        self.leases.reserve(key, TTL).await.unwrap()
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
}

/// One of any number of streams.
fn stream(number: u64) -> StreamKey {
    static DIDS: LazyLock<[Did; 2]> = LazyLock::new(|| {
        [1, 2].map(|seed| {
            let key = ed25519_dalek::SigningKey::from_bytes(&[seed; 32]);
            Did::from_bytes(key.verifying_key().as_bytes()).unwrap()
        })
    });
    let [origin, destination] = *DIDS;
    StreamKey { network: NetworkId(number), origin, destination, class: Class::E2e }
}

async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}
