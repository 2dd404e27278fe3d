//! The writer thread: takes one job after the other, and does background work in slices while there is none.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::log::Log;
use crate::storage::{Batch, CommitError, OpenError, RecordName, Scan, Table, directory::Directory};

/// How long nothing must be asked before a slice of background work is done for its own sake.
const PAUSE: Duration = Duration::from_millis(1);

/// What the writer is asked. An answer that nobody waits for any more is dropped: the work is done all the same.
#[derive(Debug)]
pub(super) enum Job {
    Scan { table: Table, answer: oneshot::Sender<Result<Scan, String>> },
    Commit { batch: Batch, answer: oneshot::Sender<Result<(), CommitError>> },
    Discard { name: RecordName, answer: oneshot::Sender<Result<bool, CommitError>> },
    Reopen { answer: oneshot::Sender<Result<(), OpenError>> },
}

/// Runs until the other end of the queue is gone; then seals the last batch.
pub(super) fn run<F: Directory>(mut log: Log<F>, queue: &Receiver<(Job, OwnedSemaphorePermit)>, seal_after: Duration) {
    loop {
        let next = if log.has_work() {
            queue.recv_timeout(PAUSE)
        } else if log.unsealed() {
            queue.recv_timeout(seal_after)
        } else {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok((job, _permit)) => {
                answer(&mut log, job);
                log.tidy();
            }
            Err(RecvTimeoutError::Timeout) if log.has_work() => log.work(),
            Err(RecvTimeoutError::Timeout) => log.seal(),
            Err(RecvTimeoutError::Disconnected) => return log.seal(),
        }
    }
}

fn answer<F: Directory>(log: &mut Log<F>, job: Job) {
    match job {
        Job::Scan { table, answer } => drop(answer.send(log.scan(table))),
        Job::Commit { batch, answer } => drop(answer.send(log.commit(batch))),
        Job::Discard { name, answer } => drop(answer.send(log.discard(name))),
        Job::Reopen { answer } => drop(answer.send(log.reopen())),
    }
}
