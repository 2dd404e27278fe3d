//! A mock engine for fault injection: a map in memory that a test can stall, fail at a chosen commit, and crash
//! between any two records. It stands in for a disk where a real one cannot be made to fail on demand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::{
    BoxFuture,
    storage::{BadRecord, Batch, CommitError, Key, OpenError, RecordName, Scan, ScanError, Store, Table},
};

/// What a chosen commit does instead of succeeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fails, and the next commit works: the engine moved to a fresh file.
    Io,
    /// Fails, and so does every commit until the store is reopened.
    Closed,
    /// Panics.
    Panic,
}

/// What a crash in the middle of a batch leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Nothing of the batch.
    Whole,
    /// The records written so far, those of the clock table first: the least that law L9.2 asks of an engine.
    Torn,
    /// All of the batch, and the commit still fails.
    Landed,
}

pub(crate) type Records = BTreeMap<(Table, Key), Bytes>;

/// Cheap to clone; a clone is the same store.
#[derive(Debug, Clone)]
pub(crate) struct FaultStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    gate: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    durable: bool,
    records: Records,
    bad: Vec<(Table, BadRecord)>,
    begun: u64,
    landed: Vec<Batch>,
    faults: BTreeMap<u64, Fault>,
    crash: Option<(u64, Crash)>,
    closed: Option<String>,
    scan_fails: bool,
    reopen_fails: bool,
    reopened: u64,
}

const OPEN: usize = Semaphore::MAX_PERMITS / 2;

impl FaultStore {
    pub(crate) fn new() -> Self {
        Self::holding(Records::new())
    }

    pub(crate) fn holding(records: Records) -> Self {
        let state = State { durable: true, records, ..State::default() };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), gate: Semaphore::new(OPEN) }) }
    }

    pub(crate) fn volatile() -> Self {
        let store = Self::new();
        store.lock().durable = false;
        store
    }

    pub(crate) fn arc(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    /// Commits wait from now on.
    pub(crate) fn stall(&self) {
        self.inner.gate.forget_permits(usize::MAX);
    }

    /// Lets `commits` of those that wait, or will, through.
    pub(crate) fn let_through(&self, commits: usize) {
        self.inner.gate.add_permits(commits);
    }

    pub(crate) fn resume(&self) {
        self.stall();
        self.inner.gate.add_permits(OPEN);
    }

    /// The commit of this number, counted from 1 in the order that they begin, does not succeed.
    pub(crate) fn fail_at(&self, commit: u64, fault: Fault) {
        self.lock().faults.insert(commit, fault);
    }

    /// The next commit that reaches `record`, counted from 0 over all that it and those after it write, crashes the
    /// store just before it.
    pub(crate) fn crash_before(&self, record: u64, crash: Crash) {
        self.lock().crash = Some((record, crash));
    }

    pub(crate) fn add_bad(&self, table: Table, bad: BadRecord) {
        self.lock().bad.push((table, bad));
    }

    pub(crate) fn fail_scans(&self, fails: bool) {
        self.lock().scan_fails = fails;
    }

    pub(crate) fn fail_reopen(&self, fails: bool) {
        self.lock().reopen_fails = fails;
    }

    /// Commits that have begun, stalled ones included.
    pub(crate) fn begun(&self) -> u64 {
        self.lock().begun
    }

    /// The batches that landed, in order.
    pub(crate) fn landed(&self) -> Vec<Batch> {
        self.lock().landed.clone()
    }

    /// The newest batch that landed.
    pub(crate) fn newest(&self) -> Option<Batch> {
        self.lock().landed.last().cloned()
    }

    pub(crate) fn reopened(&self) -> u64 {
        self.lock().reopened
    }

    /// What is durable: what a restart would find.
    pub(crate) fn records(&self) -> Records {
        self.lock().records.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, mut batch: Batch) -> Result<(), CommitError> {
        if let Some(reason) = &self.closed {
            return Err(CommitError::Closed { reason: reason.clone() });
        }
        match self.faults.get(&self.begun) {
            Some(Fault::Io) => {
                return Err(CommitError::Io { action: "flush", path: "mock".into(), reason: "injected".into() });
            }
            Some(Fault::Closed) => {
                self.closed = Some("injected".into());
                return Err(CommitError::Closed { reason: "injected".into() });
            }
            Some(Fault::Panic) => panic!("injected"),
            None => {}
        }
        batch.writes.sort_by_key(|write| write.table != Table::Clock);
        // Kept only where a crash may need it.
        let before = self.crash.map(|_| self.records.clone());
        let mut crashed = None;
        for write in &batch.writes {
            if let Some((left, crash)) = &mut self.crash {
                match left.checked_sub(1) {
                    Some(fewer) => *left = fewer,
                    None => crashed = Some(*crash),
                }
            }
            if crashed == Some(Crash::Torn) {
                break;
            }
            let name = (write.table, write.key.clone());
            match &write.value {
                Some(value) => self.records.insert(name, value.clone()),
                None => self.records.remove(&name),
            };
        }
        if let Some(crash) = crashed {
            if let (Crash::Whole, Some(before)) = (crash, before) {
                self.records = before;
            }
            self.closed = Some("crashed".into());
            return Err(CommitError::Closed { reason: "crashed".into() });
        }
        self.landed.push(batch);
        Ok(())
    }
}

impl Store for FaultStore {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        let state = self.lock();
        let result = if state.scan_fails {
            Err(ScanError { table, reason: "injected".into() })
        } else {
            let records = state.records.iter().filter(|((of, _), _)| *of == table);
            let bad = state.bad.iter().filter(|(of, _)| *of == table);
            Ok(Scan {
                records: records.map(|((_, key), value)| (key.clone(), value.clone())).collect(),
                bad: bad.map(|(_, bad)| bad.clone()).collect(),
            })
        };
        Box::pin(std::future::ready(result))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        self.lock().begun += 1;
        Box::pin(async move {
            if let Ok(permit) = self.inner.gate.acquire().await {
                permit.forget();
            }
            self.lock().apply(batch)
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        let mut state = self.lock();
        let held = state.records.len() + state.bad.len();
        state.records.retain(|(table, key), _| RecordName::of(*table, key) != name);
        state.bad.retain(|(_, bad)| bad.name != name);
        let found = state.records.len() + state.bad.len() < held;
        Box::pin(std::future::ready(Ok(found)))
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        let mut state = self.lock();
        state.reopened += 1;
        let result = if state.reopen_fails {
            Err(OpenError::Damaged { path: "mock".into(), reason: "injected".into() })
        } else {
            state.closed = None;
            Ok(())
        };
        Box::pin(async move {
            // A reopen takes a while, so that callers can go away during it.
            tokio::task::yield_now().await;
            result
        })
    }

    fn durable(&self) -> bool {
        self.lock().durable
    }
}
