//! The thread that an engine of files runs on, so that no file operation runs on an async worker (law L9.5).
//!
//! It takes one job after the other. A job whose caller is gone is done all the same (law L9.3). While nothing is asked
//! the engine may do work of its own, in slices that a job waits for at most once.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Batch, CommitError, OpenError, RecordName, Scan, ScanError, Table};
use crate::BoxFuture;

/// How many calls may wait for the thread; more wait for room, in order.
const QUEUE: usize = 16;

/// What a call says when the thread ended, which only a panic in it can do.
const ENDED: &str = "the engine's thread ended; open the store again";

/// An engine as its thread sees it. The methods of [`Store`](super::Store), called one at a time.
pub(super) trait Blocking: Send + 'static {
    fn scan(&mut self, table: Table) -> Result<Scan, String>;
    fn commit(&mut self, batch: Batch) -> Result<(), CommitError>;
    fn discard(&mut self, name: RecordName) -> Result<bool, CommitError>;
    fn reopen(&mut self) -> Result<(), OpenError>;

    /// After a job was answered.
    fn answered(&mut self) {}

    /// How long nothing must be asked before [`Blocking::idle`]; `None` where there is nothing to do.
    fn idle_after(&self) -> Option<Duration> {
        None
    }

    /// A slice of work of its own.
    fn idle(&mut self) {}

    /// The last call: nobody will ask again.
    fn close(&mut self) {}
}

#[derive(Debug)]
enum Job {
    Scan { table: Table, answer: oneshot::Sender<Result<Scan, String>> },
    Commit { batch: Batch, answer: oneshot::Sender<Result<(), CommitError>> },
    Discard { name: RecordName, answer: oneshot::Sender<Result<bool, CommitError>> },
    Reopen { answer: oneshot::Sender<Result<(), OpenError>> },
}

/// An engine on its thread. Dropping it waits for what the thread is doing.
#[derive(Debug)]
pub(super) struct EngineThread {
    path: PathBuf,
    jobs: Option<mpsc::Sender<(Job, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EngineThread {
    /// Starts `engine`, whose store is in `path`, on a thread of that name.
    pub(super) fn start(name: &str, path: &Path, engine: impl Blocking) -> Result<Self, OpenError> {
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(engine, &queue))
            .map_err(|source| OpenError::Io { action: "start a thread for", path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            jobs: Some(jobs),
            room: Arc::new(Semaphore::new(QUEUE)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Hands the thread a job and waits for its answer; `None` if the thread is gone.
    ///
    /// Dropping the future abandons the wait, not the job (law L9.3).
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Option<T> {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let (answer, answered) = oneshot::channel();
        self.jobs.as_ref()?.send((job(answer), permit)).ok()?;
        answered.await.ok()
    }

    pub(super) fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move {
            let scan = self.ask(|answer| Job::Scan { table, answer }).await;
            scan.unwrap_or_else(|| Err(ENDED.to_owned())).map_err(|reason| ScanError { table, reason })
        })
    }

    pub(super) fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Commit { batch, answer }).await;
            result.unwrap_or_else(|| Err(CommitError::Closed { reason: ENDED.to_owned() }))
        })
    }

    pub(super) fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Discard { name, answer }).await;
            result.unwrap_or_else(|| Err(CommitError::Closed { reason: ENDED.to_owned() }))
        })
    }

    pub(super) fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let result = self.ask(|answer| Job::Reopen { answer }).await;
            result.unwrap_or_else(|| {
                Err(OpenError::Io { action: "reopen", path: self.path.clone(), source: io::Error::other(ENDED) })
            })
        })
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.jobs = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(path = %self.path.display(), "the engine's thread had panicked");
        }
    }
}

/// Runs until the other end of the queue is gone.
fn run(mut engine: impl Blocking, queue: &Receiver<(Job, OwnedSemaphorePermit)>) {
    loop {
        let next = match engine.idle_after() {
            Some(time) => queue.recv_timeout(time),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((job, _permit)) => {
                // An answer that nobody waits for any more is dropped: the work is done.
                match job {
                    Job::Scan { table, answer } => drop(answer.send(engine.scan(table))),
                    Job::Commit { batch, answer } => drop(answer.send(engine.commit(batch))),
                    Job::Discard { name, answer } => drop(answer.send(engine.discard(name))),
                    Job::Reopen { answer } => drop(answer.send(engine.reopen())),
                }
                engine.answered();
            }
            Err(RecvTimeoutError::Timeout) => engine.idle(),
            Err(RecvTimeoutError::Disconnected) => return engine.close(),
        }
    }
}
