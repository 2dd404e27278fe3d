//! Record files: a [`Store`] with one file a record, for operators who want to see and remove records by hand.
//!
//! # State
//! A directory of its own holds a lock, a file that says whose it is, and for each record a file and a marker that it is
//! there. `docs/files.md` gives names and formats. In memory stands the newest content of every record.
//!
//! # Transitions
//! [`Files::open`] takes the lock, reads every record, clears up what a crash left, and flushes the directory. A commit
//! writes each value to a fresh file, flushes it and gives it its name; `records` has the order of a batch's steps. It
//! takes one flush a value and at most six of the directory, so a batch costs what its records cost: take the journal
//! where rates matter.
//!
//! # Failures
//! - A crash: each record is whole at its old or its new value. A batch may be torn, in the order of its steps (law L9.2,
//!   Atomicity).
//! - A failed write or flush: [`CommitError`](super::CommitError), and the store is closed until [`Store::reopen`].
//! - Damage: what it hit is unreadable, by name ([`Scan::bad`](super::Scan)), and left as it is until one of that key is
//!   written, removed or discarded. A marker without a file is such a record. Without the file that says whose directory
//!   it is, the store is refused ([`OpenError::Damaged`]).
//!
//! # Bounds
//! Memory: every record, once (keys and values, and some 150 bytes a record). Disk: a block of the file system a record,
//! and an empty file.
//!
//! # Metrics
//! Counter `admit_one_files_failures_total` (batches whose write or flush failed).

mod format;
mod names;
pub(crate) mod open;
pub(crate) mod records;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{
    Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store, Table,
    directory::{self, Disk},
    thread::EngineThread,
};
use crate::BoxFuture;

/// How [`Files`] uses its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesConfig {
    /// The most bytes of keys and values that may be held when the store is opened (law L9.7). Group commit keeps to its
    /// own budgets while it runs.
    pub budget_bytes: u64,
}

impl Default for FilesConfig {
    /// A budget of 96 MiB.
    fn default() -> Self {
        Self { budget_bytes: 96 << 20 }
    }
}

/// A durable store of one process in a directory of its own: one file a record.
///
/// All file operations but those of [`Files::open`] run on a thread of its own (law L9.5); calls wait for it without
/// blocking. Dropping it waits for what that thread is doing, and lets go of the lock.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use admit_one::{Files, FilesConfig};
///
/// let directory = tempfile::tempdir()?;
/// let store = Files::open(directory.path().join("store"), FilesConfig::default())?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Files(EngineThread);

impl Files {
    /// Opens the store in `path`, a directory of its own, or makes one where there is nothing.
    ///
    /// It blocks for as long as reading the records takes: on a runtime, call it in `spawn_blocking`.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing in the store was changed then, but for unfinished files.
    pub fn open(path: impl AsRef<Path>, config: FilesConfig) -> Result<Self, OpenError> {
        let path = &directory::absolute(path.as_ref())?;
        EngineThread::start("admit-one-files", path, open::open(Disk::new(path), &config)?).map(Self)
    }
}

impl Store for Files {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        self.0.scan(table)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        self.0.commit(batch)
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        self.0.discard(name)
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        self.0.reopen()
    }

    fn durable(&self) -> bool {
        true
    }
}
