//! Which batch gathers, which one is in flight, and what a failure does to both. Pure: no lock, no task, no time.
//!
//! ```text
//!            stage              take                 succeed
//! (nothing) ------> gathering ---------> in flight ---------> released
//!                       |                    |
//!                       +---- fail: both ----+----> failed
//! ```
//!
//! - `stage` adds writes to the gathering batch; the last value of a record wins, so that a batch holds a record at
//!   most once and is never larger than the tables' budgets together.
//! - `take` moves the whole gathering batch in flight, when none is. So a transition waits for the batch in flight
//!   and its own: two writes at most (law L9.2, Latency).
//! - `fail` drops the batch in flight and the one gathering on top (Fail closed). An error that says the engine is
//!   closed makes the pipeline *refuse*; after any other the next batch is tried.
//! - `halt` drops the gathering batch and refuses for good; a batch in flight still ends as it ends.
//! - `reopened` ends a refusal, unless it is for good.

use std::collections::HashMap;

use super::BatchNumber;
use crate::storage::{Batch, CommitError, Key, Table, Write};

/// `C` is what the waiters of a batch share.
pub(super) struct Pipeline<C> {
    gathering: Gathering<C>,
    in_flight: Option<(BatchNumber, C)>,
    standing: Standing,
    released: BatchNumber,
    batches: u64,
    failures: u64,
}

struct Gathering<C> {
    number: BatchNumber,
    writes: Vec<Write>,
    places: HashMap<(Table, Key), usize>,
    /// Present once something is staged.
    completion: Option<C>,
}

/// Whether transitions are taken.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// The last commit succeeded, or there was none.
    Sound,
    /// The last commit failed in a way that the engine may have left behind; the next one is tried.
    Shaken(CommitError),
    /// Every transition is refused until `reopened`.
    Refusing(CommitError),
    /// Every transition is refused for good.
    Halted(CommitError),
}

impl<C: Clone> Pipeline<C> {
    pub(super) fn new() -> Self {
        Self {
            gathering: Gathering { number: 1, writes: Vec::new(), places: HashMap::new(), completion: None },
            in_flight: None,
            standing: Standing::Sound,
            released: 0,
            batches: 0,
            failures: 0,
        }
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The error that every transition is refused with, if it is.
    pub(super) fn refusal(&self) -> Option<&CommitError> {
        match &self.standing {
            Standing::Sound | Standing::Shaken(_) => None,
            Standing::Refusing(error) | Standing::Halted(error) => Some(error),
        }
    }

    /// The batch that the next write lands in.
    pub(super) fn gathering(&self) -> BatchNumber {
        self.gathering.number
    }

    /// The newest batch that is durable.
    pub(super) fn released(&self) -> BatchNumber {
        self.released
    }

    /// Batches that became durable, and batches that failed (with the one on top counted as part of it).
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.batches, self.failures)
    }

    /// Whether something staged is not durable yet.
    pub(super) fn unreleased(&self) -> bool {
        self.newest().is_some()
    }

    /// What the newest unreleased batch's waiters share: what a transition that staged nothing waits for.
    pub(super) fn newest(&self) -> Option<&C> {
        self.gathering.completion.as_ref().or(self.in_flight.as_ref().map(|(_, completion)| completion))
    }

    /// The number of the newest unreleased batch.
    pub(super) fn newest_number(&self) -> Option<BatchNumber> {
        let gathering = self.gathering.completion.as_ref().map(|_| self.gathering.number);
        gathering.or(self.in_flight.as_ref().map(|(number, _)| *number))
    }

    /// Adds `writes`, at least one, to the gathering batch. `open` makes what its waiters share, if it is the first.
    pub(super) fn stage(&mut self, writes: impl Iterator<Item = Write>, open: impl FnOnce() -> C) -> C {
        let Gathering { writes: staged, places, completion, .. } = &mut self.gathering;
        for write in writes {
            let place = *places.entry((write.table, write.key.clone())).or_insert(staged.len());
            match staged.get_mut(place) {
                Some(earlier) => *earlier = write,
                None => staged.push(write),
            }
        }
        completion.get_or_insert_with(open).clone()
    }

    /// Moves the gathering batch in flight, unless it is empty or another one is.
    pub(super) fn take(&mut self) -> Option<Batch> {
        if self.in_flight.is_some() {
            return None;
        }
        let completion = self.gathering.completion.take()?;
        self.in_flight = Some((self.gathering.number, completion));
        self.gathering.number += 1;
        self.gathering.places.clear();
        Some(Batch { writes: std::mem::take(&mut self.gathering.writes) })
    }

    /// The batch in flight is durable.
    pub(super) fn succeed(&mut self) -> Option<(BatchNumber, C)> {
        let (number, completion) = self.in_flight.take()?;
        self.released = number;
        self.batches += 1;
        if let Standing::Shaken(_) = self.standing {
            self.standing = Standing::Sound;
        }
        Some((number, completion))
    }

    /// The batch in flight failed, and the one gathering on top with it. Returns what their waiters share.
    pub(super) fn fail(&mut self, error: CommitError) -> Vec<C> {
        self.failures += 1;
        if !matches!(self.standing, Standing::Halted(_)) {
            self.standing = match error {
                CommitError::Closed { .. } => Standing::Refusing(error),
                error => Standing::Shaken(error),
            };
        }
        let in_flight = self.in_flight.take().map(|(_, completion)| completion);
        in_flight.into_iter().chain(self.discard()).collect()
    }

    /// Refuses for good, and drops the gathering batch. Returns what its waiters share.
    pub(super) fn halt(&mut self, error: CommitError) -> Option<C> {
        if !matches!(self.standing, Standing::Halted(_)) {
            self.standing = Standing::Halted(error);
        }
        self.discard()
    }

    /// Refuses for good what comes; what is staged still lands.
    pub(super) fn close(&mut self, error: CommitError) {
        if !matches!(self.standing, Standing::Halted(_)) {
            self.standing = Standing::Halted(error);
        }
    }

    /// The engine works again.
    pub(super) fn reopened(&mut self) {
        if !matches!(self.standing, Standing::Halted(_)) {
            self.standing = Standing::Sound;
        }
    }

    fn discard(&mut self) -> Option<C> {
        self.gathering.number += 1;
        self.gathering.writes.clear();
        self.gathering.places.clear();
        self.gathering.completion.take()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn write(key: &'static str, value: &'static str) -> Write {
        let value = Some(Bytes::from_static(value.as_bytes()));
        Write { table: Table::Receiver, key: Bytes::from_static(key.as_bytes()), value }
    }

    fn io() -> CommitError {
        CommitError::Io { action: "flush", path: "x".into(), reason: "full".into() }
    }

    fn closed() -> CommitError {
        CommitError::Closed { reason: "full".into() }
    }

    fn staged(writes: Vec<Write>, pipeline: &mut Pipeline<&'static str>, name: &'static str) -> &'static str {
        pipeline.stage(writes.into_iter(), || name)
    }

    #[test]
    fn the_last_value_of_a_record_wins_and_a_batch_holds_it_once() {
        let mut pipeline = Pipeline::new();
        assert_eq!(staged(vec![write("a", "1"), write("b", "1")], &mut pipeline, "first"), "first");
        assert_eq!(staged(vec![write("a", "2")], &mut pipeline, "second"), "first");
        assert_eq!(pipeline.take().unwrap().writes, [write("a", "2"), write("b", "1")]);
    }

    #[test]
    fn l9_2_order_one_batch_in_flight_and_the_next_gathers_behind_it() {
        let mut pipeline = Pipeline::new();
        assert!(pipeline.take().is_none());
        assert!(pipeline.newest().is_none());
        staged(vec![write("a", "1")], &mut pipeline, "first");
        assert!(pipeline.take().is_some());
        assert_eq!(pipeline.newest(), Some(&"first"));
        assert_eq!(staged(vec![write("a", "2")], &mut pipeline, "second"), "second");
        assert_eq!(pipeline.newest(), Some(&"second"));
        assert!(pipeline.take().is_none(), "one is in flight");
        assert_eq!(pipeline.succeed(), Some((1, "first")));
        assert_eq!(pipeline.released(), 1);
        assert_eq!(pipeline.take().unwrap().writes, [write("a", "2")]);
        assert_eq!(pipeline.succeed(), Some((2, "second")));
        assert!(!pipeline.unreleased());
        assert_eq!(pipeline.counts(), (2, 0));
    }

    #[test]
    fn l9_2_fail_closed_takes_the_batch_in_flight_and_the_one_on_top_and_counts_once() {
        let mut pipeline = Pipeline::new();
        staged(vec![write("a", "1")], &mut pipeline, "first");
        pipeline.take();
        staged(vec![write("a", "2")], &mut pipeline, "second");
        assert_eq!(pipeline.fail(io()), ["first", "second"]);
        assert_eq!(pipeline.counts(), (0, 1));
        assert!(!pipeline.unreleased());
        assert!(pipeline.refusal().is_none(), "the engine may have moved to a fresh file");
        assert_eq!(pipeline.gathering(), 3, "a failed batch's number is never used again");
        staged(vec![write("a", "3")], &mut pipeline, "third");
        assert_eq!(pipeline.take().unwrap().writes, [write("a", "3")]);
        assert_eq!(pipeline.succeed(), Some((3, "third")));
        assert!(matches!(pipeline.standing(), Standing::Sound));
    }

    #[test]
    fn l9_4_a_closed_engine_is_refused_until_reopened() {
        let mut pipeline = Pipeline::new();
        staged(vec![write("a", "1")], &mut pipeline, "first");
        pipeline.take();
        assert_eq!(pipeline.fail(closed()), ["first"]);
        assert!(pipeline.refusal().is_some());
        pipeline.reopened();
        assert!(pipeline.refusal().is_none());
    }

    #[test]
    fn a_halt_drops_what_gathers_lets_what_is_in_flight_end_and_is_for_good() {
        let mut pipeline = Pipeline::new();
        staged(vec![write("a", "1")], &mut pipeline, "first");
        pipeline.take();
        staged(vec![write("a", "2")], &mut pipeline, "second");
        assert_eq!(pipeline.halt(closed()), Some("second"));
        assert_eq!(pipeline.succeed(), Some((1, "first")));
        assert!(pipeline.take().is_none());
        pipeline.reopened();
        assert!(pipeline.refusal().is_some());
        assert!(pipeline.fail(io()).is_empty());
        assert!(pipeline.refusal().is_some());
    }
}
