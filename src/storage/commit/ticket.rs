//! Waiting for a batch: one completion a batch, shared by every ticket of a transition in it.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::storage::CommitError;

/// The batch that a transition waited for is not durable, and never will be: the transition was undone, in memory
/// too. Nothing of it may be acted on. Called `StoreFailed` in the laws (law L9.2).
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store failed and the transition was undone: {reason}")]
pub struct StoreFailed {
    /// The engine's error.
    #[source]
    pub reason: CommitError,
}

/// What became of one batch, and who waits to hear it.
pub(super) struct Completion {
    outcome: OnceLock<Result<(), StoreFailed>>,
    waiting: Mutex<Waiting>,
}

/// Wakers by slot. Slots of dropped tickets are used again, so there are never more than tickets alive at once.
#[derive(Default)]
struct Waiting {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Completion {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { outcome: OnceLock::new(), waiting: Mutex::default() })
    }

    /// Tells every ticket. Only the first call counts. Wakes without holding a lock.
    pub(super) fn complete(&self, outcome: Result<(), StoreFailed>) {
        let waiting = {
            let mut waiting = self.lock();
            // A second outcome is dropped: the first one was handed out already.
            let _ = self.outcome.set(outcome);
            std::mem::take(&mut *waiting)
        };
        waiting.wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn poll(&self, slot: &mut Option<usize>, context: &Context<'_>) -> Poll<Result<(), StoreFailed>> {
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        let mut waiting = self.lock();
        // Again under the lock: after `complete` took the wakers, nobody would wake this one.
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        let index = match *slot {
            Some(index) => index,
            None => waiting.free.pop().unwrap_or(waiting.wakers.len()),
        };
        *slot = Some(index);
        match waiting.wakers.get_mut(index) {
            Some(Some(waker)) => waker.clone_from(context.waker()),
            Some(vacant) => *vacant = Some(context.waker().clone()),
            None => waiting.wakers.push(Some(context.waker().clone())),
        }
        Poll::Pending
    }

    fn forget(&self, slot: usize) {
        if self.outcome.get().is_none() {
            let mut waiting = self.lock();
            if let Some(waker) = waiting.wakers.get_mut(slot) {
                *waker = None;
                waiting.free.push(slot);
            }
        }
    }

    #[cfg(test)]
    fn slots(&self) -> usize {
        self.lock().wakers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // Nothing panics under this lock but a waker's clone, and each change is whole before the next.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a transition, once it may be acted on: when the batch that it waits for is durable (law L9.2,
/// Release). Dropping it abandons the wait, never what was staged (law L9.3).
///
/// # Errors
/// [`StoreFailed`] in place of the result, when that batch failed.
///
/// # Panics
/// When it is polled again after it was ready.
#[must_use = "a transition's result may be acted on only once its ticket is ready"]
pub struct Ticket<R> {
    result: Option<Result<R, StoreFailed>>,
    wait: Option<(Arc<Completion>, Option<usize>)>,
}

impl<R> Ticket<R> {
    pub(super) fn ready(result: Result<R, StoreFailed>) -> Self {
        Self { result: Some(result), wait: None }
    }

    pub(super) fn after(completion: Arc<Completion>, result: R) -> Self {
        Self { result: Some(Ok(result)), wait: Some((completion, None)) }
    }
}

// A result is moved out whole and never pinned.
impl<R> Unpin for Ticket<R> {}

impl<R> Future for Ticket<R> {
    type Output = Result<R, StoreFailed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = &mut *self;
        if let Some((completion, slot)) = &mut ticket.wait {
            match completion.poll(slot, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(outcome) => {
                    ticket.wait = None;
                    if let Err(failed) = outcome {
                        ticket.result = Some(Err(failed));
                    }
                }
            }
        }
        match ticket.result.take() {
            Some(result) => Poll::Ready(result),
            None => panic!("a ticket was polled after it was ready"),
        }
    }
}

impl<R> Drop for Ticket<R> {
    fn drop(&mut self) {
        if let Some((completion, Some(slot))) = self.wait.take() {
            completion.forget(slot);
        }
    }
}

impl<R> fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("waits", &self.wait.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn wakers_of_dropped_tickets_do_not_pile_up_behind_a_stalled_batch() {
        let completion = Completion::new();
        let mut kept = Ticket::after(completion.clone(), 1);
        assert!((&mut kept).now_or_never().is_none());
        for _ in 0..10_000 {
            let mut abandoned = Ticket::after(completion.clone(), 2);
            assert!((&mut abandoned).now_or_never().is_none());
        }
        assert_eq!(completion.slots(), 2);
        completion.complete(Ok(()));
        assert!(matches!(kept.now_or_never(), Some(Ok(1))));
    }

    #[test]
    fn only_the_first_outcome_counts() {
        let completion = Completion::new();
        completion.complete(Ok(()));
        completion.complete(Err(StoreFailed { reason: CommitError::Closed { reason: "late".into() } }));
        assert!(matches!(Ticket::after(completion, ()).now_or_never(), Some(Ok(()))));
    }
}
