//! Tables that ride on group commit: what they must be able to do, and how a transition reaches them.

use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    BatchNumber, BudgetExhausted, Handle, State, StoreFailed, Ticket, occupancy::Occupancy, ticket::Completion,
    unrestorable::Unrestorable,
};
use crate::storage::{CommitError, Key, RecordName, Table, Write};

/// Tables in memory whose records ride on group commit. All calls happen under its one lock, so none may block, and
/// none may call into group commit. A participant holds no [`Member`] and no [`GroupCommit`](super::GroupCommit), since
/// group commit would then hold itself alive.
///
/// A participant remembers how to undo each transition since the last released batch; [`Stage::batch`] says which
/// batch a transition is in.
pub(crate) trait Participant: Send + 'static {
    /// Everything staged in batches up to and including `batch` is durable: forget how to undo it.
    fn released(&mut self, batch: BatchNumber);

    /// Undo every transition that is not released, newest first: its batch failed, or the one that it gathered on
    /// did (law L9.2, Fail closed).
    fn undo(&mut self);
}

/// A participant whose type is forgotten under the lock and told again by its [`Member`].
pub(super) trait Erased: Participant + Any {}

impl<P: Participant> Erased for P {}

/// Access to one participant's tables. Cheap to clone.
pub(crate) struct Member<P> {
    handle: Arc<Handle>,
    place: usize,
    tables: PhantomData<fn() -> P>,
}

impl<P: Participant> Member<P> {
    pub(super) fn new(handle: Arc<Handle>, place: usize) -> Self {
        Self { handle, place, tables: PhantomData }
    }

    /// Locks, runs `transition` on the tables, stages what it put, and unlocks; synchronous and short. Nothing is
    /// written under the lock and no task is started.
    ///
    /// The ticket gives the result once the batch that the writes are in is durable. A transition that staged
    /// nothing waits for the newest unreleased batch, whose changes it may have seen, or not at all when there is
    /// none. While the store refuses, the transition is not run and its ticket fails at once.
    ///
    /// A transition that refuses leaves its tables as they were, and discards what it staged by [`Stage::rewind`].
    ///
    /// # Panics
    /// Where `transition` does. Its tables may then be half changed, so group commit stops for good: the gathering
    /// batch fails, no later transition is taken, and the store must be opened anew.
    pub(crate) fn transition<R>(&self, transition: impl FnOnce(&mut P, &mut Stage<'_>) -> R) -> Ticket<R> {
        let shared = &self.handle.shared;
        let mut guard = shared.lock();
        let State { pipeline, participants, occupancy, unrestorable, scratch, .. } = &mut *guard;
        if let Some(error) = pipeline.refusal() {
            return Ticket::ready(Err(StoreFailed { reason: error.clone() }));
        }
        let tables = tables::<P>(participants, self.place);
        let mark = occupancy.mark();
        let (batch, unreleased) = (pipeline.gathering(), pipeline.newest_number());
        let mut stage = Stage { batch, unreleased, occupancy, mark, writes: scratch, unrestorable };
        let result = match catch_unwind(AssertUnwindSafe(|| transition(tables, &mut stage))) {
            Ok(result) => result,
            Err(panic) => {
                let error = CommitError::Closed { reason: "a transition panicked".into() };
                tracing::error!("a transition panicked: group commit stops, open the store anew");
                let dropped = pipeline.halt(error.clone());
                scratch.clear();
                drop(guard);
                if let Some(completion) = dropped {
                    completion.complete(Err(StoreFailed { reason: error }));
                }
                resume_unwind(panic);
            }
        };
        if scratch.is_empty() {
            return match pipeline.newest() {
                Some(completion) => Ticket::after(completion.clone(), result),
                None => Ticket::ready(Ok(result)),
            };
        }
        let completion = pipeline.stage(scratch.drain(..), Completion::new);
        drop(guard);
        // A permit is kept if the writer is busy, so that it looks again before it sleeps.
        shared.work.notify_one();
        Ticket::after(completion, result)
    }

    /// Changes what no record holds and no undo restores, without waiting and also while the store refuses.
    pub(crate) fn arrange<R>(&self, change: impl FnOnce(&mut P) -> R) -> R {
        change(tables::<P>(&mut self.handle.shared.lock().participants, self.place))
    }

    /// Looks at the tables as they stand, unreleased changes included, without waiting: for health and tests.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&P) -> R) -> R {
        look(tables::<P>(&mut self.handle.shared.lock().participants, self.place))
    }
}

fn tables<P: Participant>(participants: &mut [Box<dyn Erased>], place: usize) -> &mut P {
    let tables = participants.get_mut(place).and_then(|tables| {
        let tables: &mut dyn Any = &mut **tables;
        tables.downcast_mut::<P>()
    });
    match tables {
        Some(tables) => tables,
        None => unreachable!("a member is made with its participant's place, and participants never leave"),
    }
}

impl<P> Clone for Member<P> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), place: self.place, tables: PhantomData }
    }
}

impl<P> fmt::Debug for Member<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("place", &self.place).finish_non_exhaustive()
    }
}

/// What one transition stages. It counts once the transition returns, in the order of the lock.
pub(crate) struct Stage<'a> {
    batch: BatchNumber,
    unreleased: Option<BatchNumber>,
    occupancy: &'a mut Occupancy,
    mark: usize,
    writes: &'a mut Vec<Write>,
    unrestorable: &'a Unrestorable,
}

impl Stage<'_> {
    /// The batch that what is staged now lands in.
    pub(crate) fn batch(&self) -> BatchNumber {
        self.batch
    }

    /// The batch that this transition's ticket waits for, as it stands: the one that its writes land in; without any, the
    /// newest that is not released; `None` where it waits for nothing.
    pub(crate) fn waits_for(&self) -> Option<BatchNumber> {
        if self.writes.is_empty() { self.unreleased } else { Some(self.batch) }
    }

    /// Stages a record's whole new value. A batch writes a record once, with the last value staged.
    ///
    /// # Errors
    /// [`BudgetExhausted`]: nothing of this call is staged, and no other transition is touched (law L9.7).
    pub(crate) fn put(&mut self, table: Table, key: Key, value: Bytes) -> Result<(), BudgetExhausted> {
        self.occupancy.put(self.batch, table, &key, value.len())?;
        self.writes.push(Write { table, key, value: Some(value) });
        Ok(())
    }

    /// Stages a record's removal. One that is not there is no error.
    pub(crate) fn remove(&mut self, table: Table, key: Key) {
        self.occupancy.remove(self.batch, table, &key);
        self.writes.push(Write { table, key, value: None });
    }

    /// Discards everything that this transition staged: for one that is refused half-way.
    pub(crate) fn rewind(&mut self) {
        self.occupancy.rewind(self.mark);
        self.writes.clear();
    }

    /// The name of the record of `key`, if it cannot be restored, so that its stream is unavailable (law L11.2).
    pub(crate) fn unavailable(&self, table: Table, key: &[u8]) -> Option<RecordName> {
        self.unrestorable.find(table, key)
    }

    /// How many records of all tables cannot be restored: each takes one place of a table's bound (law L11.2).
    pub(crate) fn unrestorable(&self) -> usize {
        self.unrestorable.len()
    }
}

impl fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("batch", &self.batch).field("writes", &self.writes).finish_non_exhaustive()
    }
}
