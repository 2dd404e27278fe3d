//! The log on its thread: batches as they are asked for, and work of its own in slices while nothing is.

use std::time::Duration;

use super::log::Log;
use crate::storage::{Batch, CommitError, OpenError, RecordName, Scan, Table, directory::Directory, thread::Blocking};

/// How long nothing must be asked before a slice of background work is done for its own sake.
const PAUSE: Duration = Duration::from_millis(1);

impl<F: Directory> Blocking for Log<F> {
    fn scan(&mut self, table: Table) -> Result<Scan, String> {
        Log::scan(self, table)
    }

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        Log::commit(self, batch)
    }

    fn discard(&mut self, name: RecordName) -> Result<bool, CommitError> {
        Log::discard(self, name)
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        Log::reopen(self)
    }

    fn answered(&mut self) {
        self.tidy();
    }

    fn idle_after(&self) -> Option<Duration> {
        if self.has_work() { Some(PAUSE) } else { self.seals_after() }
    }

    fn idle(&mut self) {
        if self.has_work() {
            self.work();
        } else {
            self.seal();
        }
    }

    fn close(&mut self) {
        self.seal();
    }
}
