//! The one task that writes batches, in order.

use std::sync::Arc;

use futures::future;
use tokio::sync::oneshot;

use super::{Completion, Shared, StoreFailed, claim::Claim};
use crate::{
    clock::Clock,
    storage::{Batch, CommitError, OpenError},
};

enum Next {
    Commit(Batch),
    Reopen(oneshot::Sender<Result<(), OpenError>>),
    Sleep,
    Stop,
}

/// Runs until group commit stops and nothing is left to write. If it ends in any other way, because the engine
/// panicked or the runtime is going away, everything unreleased fails and group commit stops.
pub(super) async fn run(shared: Arc<Shared>, claim: Claim, clock: Arc<dyn Clock>) {
    let _ended = Ended { shared: &shared };
    // Let go of before the end is told, so that whoever waited for it can open the store again.
    let claim = claim;
    let store = claim.store();
    let mut released = None;
    loop {
        // Whoever waited for the last batch is woken while the next one is being flushed: waking thousands takes
        // longer than a fast disk does.
        let wake: Option<Released> = released.take();
        match shared.next() {
            Next::Commit(batch) => {
                let records = batch.writes.len();
                let started = clock.monotonic();
                let (result, ()) = future::join(store.commit(batch), async { drop(wake) }).await;
                metrics::histogram!("admit_one_batch_records").record(records as f64);
                metrics::histogram!("admit_one_commit_seconds")
                    .record(clock.monotonic().saturating_sub(started).as_secs_f64());
                match result {
                    Ok(()) => released = shared.succeeded(),
                    Err(error) => shared.failed(error),
                }
            }
            Next::Reopen(reply) => {
                drop(wake);
                let result = store.reopen().await;
                if result.is_ok() {
                    shared.lock().pipeline.reopened();
                }
                // A caller that went away has the answer in the store's health.
                let _ = reply.send(result);
            }
            Next::Sleep => {
                drop(wake);
                shared.work.notified().await;
            }
            Next::Stop => break,
        }
    }
}

/// A durable batch's waiters, told when it is dropped: so they hear of it even if the engine panics meanwhile.
struct Released(Arc<Completion>);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.complete(Ok(()));
    }
}

impl Shared {
    fn next(&self) -> Next {
        let mut state = self.lock();
        if let Some(reply) = state.reopen.take() {
            return Next::Reopen(reply);
        }
        match state.pipeline.take() {
            Some(batch) => Next::Commit(batch),
            None if state.stopping => Next::Stop,
            None => Next::Sleep,
        }
    }

    fn succeeded(&self) -> Option<Released> {
        let mut state = self.lock();
        let (number, completion) = state.pipeline.succeed()?;
        // From here on the batch's waiters hear of it, even if a participant panics below.
        let released = Released(completion);
        state.occupancy.released(number);
        for tables in &mut state.participants {
            tables.released(number);
        }
        Some(released)
    }

    fn failed(&self, error: CommitError) {
        metrics::counter!("admit_one_persistence_failures_total").increment(1);
        tracing::error!(%error, "a batch failed: it and the one gathering on top are undone");
        let mut state = self.lock();
        state.occupancy.undo();
        for tables in &mut state.participants {
            tables.undo();
        }
        let dropped = state.pipeline.fail(error.clone());
        drop(state);
        let failed = StoreFailed { reason: error };
        for completion in dropped {
            completion.complete(Err(failed.clone()));
        }
    }
}

/// Tells whoever waits that the writer ended, however it did.
struct Ended<'a> {
    shared: &'a Shared,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let error =
            CommitError::Closed { reason: "the writer ended: its runtime is gone, or the engine panicked".into() };
        let mut state = self.shared.lock();
        state.pipeline.close(error.clone());
        state.reopen = None;
        let unreleased = state.pipeline.unreleased();
        let dropped = if unreleased { state.pipeline.fail(error.clone()) } else { Vec::new() };
        drop(state);
        if unreleased {
            metrics::counter!("admit_one_persistence_failures_total").increment(1);
        }
        for completion in dropped {
            completion.complete(Err(StoreFailed { reason: error.clone() }));
        }
        self.shared.ended.complete(Ok(()));
    }
}
