//! The journal: a [`Store`] in a directory of its own, with one append and one flush a batch.
//!
//! # State
//! A directory holds a lock, a witness of the newest segment, and numbered segments that are written from end to end.
//! A batch is one frame of whole sectors in the newest segment. In memory stands the live set: the newest content of
//! every record. `docs/journal.md` gives the format field by field.
//!
//! # Transitions
//! [`Journal::open`] takes the lock, reads all segments that are still needed, and copies what they add up to into a
//! fresh, flushed one before anything else (law L9.4). A commit appends a frame. What rolling to the next segment,
//! compaction, failure and reopening do is told in `log`; what a sequence of segments means, in `recovery`.
//!
//! # Failures
//! - A crash: a batch that was released is there, one that was not is there whole or not at all.
//! - A failed write or flush: [`CommitError`](super::CommitError), and the batch is not there, now or after a restart,
//!   if a fresh segment could be made; if not, the store is closed until [`Store::reopen`], and a restart before that
//!   finds the failed batch whole or not at all.
//! - Damage: what it hit is unreadable, by name ([`Scan::bad`](super::Scan)), or where no name survives the store is
//!   refused ([`OpenError::Damaged`]). Unreadable records are copied along as they are until one of that key is
//!   written or removed. What cannot be told from a write that never happened: a last frame that the medium turned
//!   back into exactly what was there before. An idle store writes an empty frame behind it, which ends that.
//!
//! # Bounds
//! Memory: the live set, once (keys and values, and some 200 bytes a record), two buffers of the largest batch, and
//! while opening two segments. Disk: old segments up to the greater of the floor and the ratio times the live set,
//! then as much again as a pass needs to copy it (at most three live sets while batches go on), and two segments.
//!
//! # Metrics
//! Counters `admit_one_journal_failures_total` (frames whose write or flush failed) and
//! `admit_one_journal_compactions_total`.

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod failure_tests;
mod frame;
mod live;
mod log;
mod making;
mod open;
mod recovery;
mod sector;
mod segment;
#[cfg(test)]
pub(crate) mod simulated;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::writer::Job;
use super::{Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store, Table, directory::Disk};
use crate::BoxFuture;

/// How many calls may wait for the writer; more wait for room, in order.
const QUEUE: usize = 16;

/// How a [`Journal`] uses its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// The length of a segment, in bytes; raised to [`JournalConfig::SEGMENT_MIN`], and for a batch that is longer.
    pub segment_bytes: u64,
    /// Compaction begins no earlier than when the full segments hold more than this, in bytes.
    pub compact_floor_bytes: u64,
    /// Compaction begins when the full segments hold more than this many times what the live records take; at least 2.
    pub compact_ratio: u32,
    /// The most bytes of keys and values that may be held when the store is opened (law L9.7). Group commit keeps
    /// to its own budgets while it runs.
    pub budget_bytes: u64,
    /// How long nothing must be asked before the last batch's list of records is written a second time.
    pub seal_after: Duration,
}

impl JournalConfig {
    /// The shortest segment, in bytes.
    pub const SEGMENT_MIN: u64 = 16 * 1024;
}

impl Default for JournalConfig {
    /// Segments of 16 MiB, compaction past 64 MiB and four times the live set, a budget of 96 MiB, a seal after
    /// 250 ms.
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            compact_floor_bytes: 64 << 20,
            compact_ratio: 4,
            budget_bytes: 96 << 20,
            seal_after: Duration::from_millis(250),
        }
    }
}

/// A durable store of one process in a directory of its own: one append and one flush a batch.
///
/// All file operations but those of [`Journal::open`] run on a thread of its own (law L9.5); calls wait for it without
/// blocking. Dropping it waits for what that thread is doing, at most a batch and two flushes, and lets go of the lock.
///
/// It holds every record in memory once (some 200 bytes a record beside key and value; values are shared with the
/// batches that brought them), and two buffers of the largest batch. On disk it takes the greater of
/// [`compact_floor_bytes`](JournalConfig::compact_floor_bytes) and
/// [`compact_ratio`](JournalConfig::compact_ratio) times the live records, three times these while it compacts, and
/// a few segments.
///
/// After a failed commit that could not move to a fresh file everything fails until [`Store::reopen`]; a process that
/// is restarted instead finds the failed batch whole or not at all, and every earlier one.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    jobs: Option<mpsc::Sender<(Job, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the store in `path`, a directory of its own, or makes one where there is nothing.
    ///
    /// It blocks for as long as reading and copying the records takes (tens of milliseconds for a full budget on a
    /// fast disk): on a runtime, call it in `spawn_blocking`.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing in the store was changed then, unless the copy or its witness could not be finished;
    /// even so nothing is lost.
    pub fn open(path: impl AsRef<Path>, config: JournalConfig) -> Result<Self, OpenError> {
        let given = path.as_ref();
        // Segments are made as long as the store runs, and the working directory may change meanwhile.
        let path = &std::path::absolute(given).map_err(|source| OpenError::Io {
            action: "resolve",
            path: given.to_owned(),
            source,
        })?;
        if !path.is_dir() && std::fs::symlink_metadata(path).is_ok() {
            return Err(OpenError::NotAStore { path: path.to_owned(), reason: "it is not a directory".to_owned() });
        }
        let seal_after = config.seal_after;
        let log = open::open(Disk::new(path), config)?;
        let (jobs, queue) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("admit-one-journal".to_owned())
            .spawn(move || writer::run(log, &queue, seal_after))
            .map_err(|source| OpenError::Io { action: "start a thread for", path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            jobs: Some(jobs),
            room: Arc::new(Semaphore::new(QUEUE)),
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Hands the writer a job and waits for its answer; `None` if the writer is gone.
    ///
    /// Dropping the future abandons the wait, not the job (law L9.3).
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Option<T> {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let (answer, answered) = oneshot::channel();
        self.jobs.as_ref()?.send((job(answer), permit)).ok()?;
        answered.await.ok()
    }
}

/// What a call says when the writer thread ended, which only a panic in it can do.
const WRITER_GONE: &str = "the writer thread ended; open the store again";

impl Store for Journal {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move {
            let scan = self.ask(|answer| Job::Scan { table, answer }).await;
            scan.unwrap_or_else(|| Err(WRITER_GONE.to_owned())).map_err(|reason| ScanError { table, reason })
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Commit { batch, answer }).await;
            result.unwrap_or_else(|| Err(CommitError::Closed { reason: WRITER_GONE.to_owned() }))
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Discard { name, answer }).await;
            result.unwrap_or_else(|| Err(CommitError::Closed { reason: WRITER_GONE.to_owned() }))
        })
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Reopen { answer }).await;
            result.unwrap_or_else(|| {
                let source = std::io::Error::other(WRITER_GONE);
                Err(OpenError::Io { action: "reopen", path: self.path.clone(), source })
            })
        })
    }

    fn durable(&self) -> bool {
        true
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.jobs = None;
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!(path = %self.path.display(), "the journal's writer thread had panicked");
        }
    }
}
