//! Group commit: many transitions, one flush (law L9.2).
//!
//! A transition locks, changes its tables in memory, stages its records in the gathering batch, unlocks, and waits
//! on a [`Ticket`]. One task writes batches in order, through [`Store::commit`]. While one batch is in flight the
//! next one gathers, so that the cost of a flush is shared by everyone who came during the last one.
//!
//! - **Release**: a ticket gives its result after the batch is durable. A transition that staged nothing waits for
//!   the newest unreleased batch, since it may have seen its changes.
//! - **Order**: one lock, one writer. A record's durable values follow the order of the lock.
//! - **Fail closed**: when a commit fails, every participant undoes, under the lock and before any other
//!   transition, what is not released; the batch in flight and the one gathering on top fail, counted once.
//! - **Latency**: a transition waits for two batch writes at most, the one in flight and its own.
//! - **Cancellation**: dropping a ticket abandons the wait, never what was staged (law L9.3).
//!
//! What a failure does: after [`CommitError::Io`] the next batch is tried, since the engine may have moved to a fresh
//! file (law L9.4). After [`CommitError::Closed`] every transition is refused until [`GroupCommit::reopen`]. A
//! transition that panics, an engine that panics, and a runtime that goes away stop group commit for good: tables in
//! memory may be half changed, and only opening the store anew restores them.
//!
//! Bounds: a batch holds a record once, so it is never larger than the tables' budgets (law L9.7); at most one batch
//! is in flight and one gathers; waiters are the callers' own tickets.
//!
//! Metrics: `admit_one_batch_records` (histogram, records a batch), `admit_one_commit_seconds` (histogram),
//! `admit_one_persistence_failures_total` (counter, one for each failed commit or scan), and
//! `admit_one_unrestorable_records` (gauge).
//!
//! The state machine is in `pipeline`, the budgets in `occupancy`; the rest is a lock, a task and wakers.

mod claim;
mod config;
#[cfg(test)]
pub(crate) mod fault;
mod member;
mod occupancy;
mod pipeline;
#[cfg(test)]
mod tests;
mod ticket;
mod unrestorable;
mod writer;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

pub(crate) use self::member::{Member, Participant, Stage};
use self::{
    claim::Claim,
    member::Erased,
    occupancy::Occupancy,
    pipeline::{Pipeline, Standing},
    ticket::Completion,
    unrestorable::Unrestorable,
};
pub use self::{
    config::{Budget, BudgetExhausted, CommitConfig, CommitOpenError, Limit, ReopenError},
    ticket::{StoreFailed, Ticket},
};
use crate::storage::{CommitError, OpenError, RecordName, Scan, Store, Table, Write, service};

/// Numbers batches from 1 in the order that they are written in. A failed batch's number is not used again.
pub type BatchNumber = u64;

/// Group commit over one store. Cheap to clone. It owns the one lock that serializes all transitions of all members,
/// and the one task that writes. The task ends, after what is staged has landed, when the last clone is dropped,
/// and all that was opened on it.
#[derive(Clone)]
pub struct GroupCommit {
    handle: Arc<Handle>,
}

/// Whether transitions are taken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreState {
    /// The last commit succeeded, or there was none.
    Open,
    /// The last commit failed; the next one is tried.
    Failing(CommitError),
    /// Every transition is refused until [`GroupCommit::reopen`].
    Closed(CommitError),
    /// Every transition is refused for good: open the store anew.
    Stopped(CommitError),
}

/// What an operator asks first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreHealth {
    /// Whether transitions are taken.
    pub state: StoreState,
    /// Batches made durable since opening.
    pub batches: u64,
    /// Commits that failed since opening.
    pub failures: u64,
    /// The newest durable batch, or 0.
    pub released: BatchNumber,
    /// Whether something staged is not durable yet.
    pub unreleased: bool,
    /// The records that cannot be restored, and why (law L11.1).
    pub unrestorable: Vec<(RecordName, String)>,
}

/// What handles and members hold. The writer holds only what is inside, so that it can see the last one go.
struct Handle {
    shared: Arc<Shared>,
    reopening: tokio::sync::Mutex<()>,
}

struct Shared {
    state: Mutex<State>,
    /// There may be something to do for the writer.
    work: Notify,
    /// The writer has ended.
    ended: Arc<Completion>,
}

struct State {
    pipeline: Pipeline<Arc<Completion>>,
    participants: Vec<Box<dyn Erased>>,
    occupancy: Occupancy,
    unrestorable: Unrestorable,
    scans: Vec<(Table, Scan)>,
    /// What the running transition stages. Kept for its allocation.
    scratch: Vec<Write>,
    reopen: Option<oneshot::Sender<Result<(), OpenError>>>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A transition's panic is caught under the lock and stops group commit. One in a participant's `released` or
        // `undo` ends the writer, which does the same. So a poisoned lock tells nothing new.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupCommit {
    /// Scans every table once (law L11.1), checks the budgets, and starts the writer on the current runtime. The store
    /// cannot be opened by another group commit until this one ended, whoever else holds it (law L9.8).
    ///
    /// # Errors
    /// [`CommitOpenError`]; the store is as it was.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(store: Arc<dyn Store>, config: CommitConfig) -> Result<Self, CommitOpenError> {
        if !store.durable() && !config.volatile {
            return Err(CommitOpenError::Volatile);
        }
        let claim = Claim::take(store).ok_or(CommitOpenError::InUse)?;
        let mut occupancy = Occupancy::default();
        let mut unrestorable = Unrestorable::default();
        let mut scans = Vec::new();
        for table in Table::ALL {
            let scan = claim.store().scan(table).await.inspect_err(|_| {
                metrics::counter!("admit_one_persistence_failures_total").increment(1);
            })?;
            if table == Table::Clock && service::is_unfinished(&scan) {
                return Err(CommitOpenError::Migrating);
            }
            occupancy.load(table, config.budget(table), &scan)?;
            for bad in &scan.bad {
                unrestorable.add(bad.name, &bad.reason);
            }
            scans.push((table, scan));
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                pipeline: Pipeline::new(),
                participants: Vec::new(),
                occupancy,
                unrestorable,
                scans,
                scratch: Vec::new(),
                reopen: None,
                stopping: false,
            }),
            work: Notify::new(),
            ended: Completion::new(),
        });
        crate::task::spawn(Box::pin(writer::run(shared.clone(), claim, config.clock)));
        Ok(Self { handle: Arc::new(Handle { shared, reopening: tokio::sync::Mutex::new(()) }) })
    }

    /// Takes what the scan of `table` found. A table of streams has one owner, so a second take gives `None`; the
    /// clock table's records have several, and each gets a copy to pick its own keys from.
    pub(crate) fn take_scan(&self, table: Table) -> Option<Scan> {
        let mut state = self.handle.shared.lock();
        let place = state.scans.iter().position(|(scanned, _)| *scanned == table)?;
        match table {
            Table::Clock => state.scans.get(place).map(|(_, scan)| scan.clone()),
            _ => Some(state.scans.swap_remove(place).1),
        }
    }

    /// Takes a scan back from an owner that could not start on it, for the next one.
    pub(crate) fn give_back_scan(&self, table: Table, scan: Scan) {
        self.handle.shared.lock().scans.push((table, scan));
    }

    /// Puts a record that the engine could read into the set of those that cannot be restored, since its owner
    /// cannot decode it, or it is not under its own key (law L11.1). It stays in the store as it is.
    pub(crate) fn set_unrestorable(&self, record: RecordName, reason: &str) {
        self.handle.shared.lock().unrestorable.add(record, reason);
    }

    /// Puts a member's tables under the lock. They stay as long as group commit does.
    pub(crate) fn join<P: Participant>(&self, tables: P) -> Member<P> {
        let mut state = self.handle.shared.lock();
        state.participants.push(Box::new(tables));
        Member::new(self.handle.clone(), state.participants.len() - 1)
    }

    /// Makes a store that refuses usable again, after its operator repaired the cause (law L9.4). A store that
    /// works is left alone. Once the engine began, dropping the future abandons the wait only.
    ///
    /// # Errors
    /// [`ReopenError`]; the store still refuses.
    pub async fn reopen(&self) -> Result<(), ReopenError> {
        let _one_at_a_time = self.handle.reopening.lock().await;
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.handle.shared.lock();
            match state.pipeline.standing() {
                Standing::Sound => return Ok(()),
                Standing::Halted(error) => return Err(ReopenError::Stopped { reason: error.to_string() }),
                Standing::Shaken(_) | Standing::Refusing(_) => state.reopen = Some(reply),
            }
        }
        self.handle.shared.work.notify_one();
        match answer.await {
            Ok(result) => Ok(result?),
            Err(_) => Err(ReopenError::Stopped { reason: "the writer ended".into() }),
        }
    }

    /// How the store is doing, without waiting.
    pub fn health(&self) -> StoreHealth {
        let state = self.handle.shared.lock();
        let (batches, failures) = state.pipeline.counts();
        StoreHealth {
            state: match state.pipeline.standing() {
                Standing::Sound => StoreState::Open,
                Standing::Shaken(error) => StoreState::Failing(error.clone()),
                Standing::Refusing(error) => StoreState::Closed(error.clone()),
                Standing::Halted(error) => StoreState::Stopped(error.clone()),
            },
            batches,
            failures,
            released: state.pipeline.released(),
            unreleased: state.pipeline.unreleased(),
            unrestorable: state.unrestorable.iter().map(|(name, reason)| (*name, reason.clone())).collect(),
        }
    }

    /// Refuses every later transition, waits until everything staged has landed or failed, and ends the writer.
    /// Dropping the future abandons the wait only.
    pub async fn shutdown(&self) {
        self.handle.stop("it was shut down");
        // The completion of the writer's end is never a failure.
        let _ = Ticket::after(self.handle.shared.ended.clone(), ()).await;
    }
}

impl Handle {
    fn stop(&self, reason: &str) {
        let mut state = self.shared.lock();
        state.stopping = true;
        state.pipeline.close(CommitError::Closed { reason: reason.into() });
        drop(state);
        self.shared.work.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop("nobody holds it any more");
    }
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").field("health", &self.health()).finish()
    }
}
