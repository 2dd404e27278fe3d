//! The engine for those who know SQLite's tools: a [`Store`] in a directory of its own, with one transaction a batch.
//!
//! # State
//! A directory holds a lock, one database with its write-ahead log, and the database's witness. The database has a row
//! for every record with a checksum of its own, a row that witnesses the record's presence and repeats that checksum,
//! and one row that says which batch was the last and what all presences add up to. The witness, a small file, says the
//! same of the last batch that was released. In memory stands the live set: the newest content of every record.
//! `docs/sqlite.md` gives the format.
//!
//! # Transitions
//! - [`Sqlite::open`] takes the lock, reads the newest database, settles what can be trusted (`settle`), and copies it
//!   into a fresh, flushed database of the next number before anything else (law L9.4). The older one is removed then.
//! - A commit is one SQL transaction (`synchronous=FULL`), then one write and flush of the witness, then the live set.
//! - A checkpoint, between commits, when the write-ahead log has grown past its bound. SQLite's own is off: it passes
//!   over a flush that failed and would flush the same file again.
//! - [`Store::reopen`] writes the live set into a fresh, flushed database of the next number.
//!
//! # Failures
//! - A crash: a batch that was released is there, one that was not is there whole or not at all.
//! - A failed commit or checkpoint: the database is not written again, not even to close it. Everything fails until
//!   [`Store::reopen`], which finds every record as the last commit that succeeded left it; a process that is restarted
//!   instead finds the failed batch whole or not at all.
//! - Damage: a record that is not whole, or not the one that its presence stands for, or missing though present, is
//!   unreadable by name ([`Scan::bad`](super::Scan)); a damaged presence table is made again from whole records if these
//!   add up. A write-ahead log that lost a released batch is found by the witness, and the store is refused, as where no
//!   name survives ([`OpenError::Damaged`]). Of an unreadable record its name and the reason are kept until a record of
//!   that name is written, removed or discarded. An error of the device while reading refuses the open and changes
//!   nothing.
//!
//! # Bounds
//! Memory: the live set, once (keys and values, and some 200 bytes a record), one batch, and SQLite's cache of 2 MiB.
//! Disk: the live set twice while a fresh database is written, and the write-ahead log, which is emptied after the batch
//! that takes it past 4,096 pages.
//!
//! # Metrics
//! Counter `admit_one_sqlite_failures_total`: commits, witness writes and checkpoints that failed and closed the store.

mod database;
mod engine;
mod layout;
mod open;
mod row;
mod settle;
#[cfg(test)]
mod tests;
mod worker;

use std::path::PathBuf;

use self::worker::Worker;
use super::{Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store, Table};
use crate::BoxFuture;

/// Where a [`Sqlite`] store is, and its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteConfig {
    /// The store's directory, which it has to itself.
    pub path: PathBuf,
    /// The most bytes of keys and values that may be held when the store is opened (law L9.7). Group commit keeps to
    /// its own budgets while it runs.
    pub budget_bytes: u64,
}

impl SqliteConfig {
    /// A store in `path`, with a budget of 96 MiB.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), budget_bytes: 96 << 20 }
    }
}

/// A durable store of one process, in an SQLite database in a directory of its own: two flushes a batch.
///
/// Its one connection lives on a thread of its own (law L9.5); calls wait for it without blocking. Dropping the store
/// waits for what that thread is doing and lets go of the lock. While it is open no other process, SQLite's own shell
/// included, reads or writes the database.
///
/// It holds every record in memory once (some 200 bytes a record beside key and value).
///
/// After a failed commit everything fails until [`Store::reopen`]; a process that is restarted instead finds the failed
/// batch whole or not at all, and every earlier one.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    worker: Worker,
}

impl Sqlite {
    /// Opens the store in the configured directory, or makes one where there is nothing.
    ///
    /// It blocks for as long as reading and copying the records takes: on a runtime, call it in `spawn_blocking`.
    ///
    /// # Errors
    /// [`OpenError`]. No record was changed then, and nothing is lost.
    pub fn open(config: SqliteConfig) -> Result<Self, OpenError> {
        let SqliteConfig { path: given, budget_bytes } = config;
        // Databases are made as long as the store runs, and the working directory may change meanwhile.
        let path =
            std::path::absolute(&given).map_err(|source| OpenError::Io { action: "resolve", path: given, source })?;
        let engine = open::open(&path, budget_bytes)?;
        let worker = Worker::start(engine).map_err(|source| OpenError::Io {
            action: "start a thread for",
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, worker })
    }
}

/// What a call says when the thread ended, which only a panic in it can do.
const WORKER_GONE: &str = "the database's thread ended; open the store again";

fn gone() -> CommitError {
    CommitError::Closed { reason: WORKER_GONE.to_owned() }
}

impl Store for Sqlite {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move {
            let scan = self.worker.ask(move |engine| engine.scan(table)).await;
            scan.unwrap_or_else(|| Err(WORKER_GONE.to_owned())).map_err(|reason| ScanError { table, reason })
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move { self.worker.ask(|engine| engine.commit(batch)).await.unwrap_or_else(|| Err(gone())) })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(
            async move { self.worker.ask(move |engine| engine.discard(name)).await.unwrap_or_else(|| Err(gone())) },
        )
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            self.worker.ask(|engine| engine.reopen()).await.unwrap_or_else(|| {
                let source = std::io::Error::other(WORKER_GONE);
                Err(OpenError::Io { action: "reopen", path: self.path.clone(), source })
            })
        })
    }

    fn durable(&self) -> bool {
        true
    }
}
