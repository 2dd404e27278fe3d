//! What keeps a connection alive: a count of reasons, shared by its handler and the tasks beside the swarm.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::task::AtomicWaker;

/// The reasons to keep one connection, in one direction.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    reasons: AtomicUsize,
    /// The connection's task. It is woken when the last reason goes, since only then does its idle timer start.
    handler: AtomicWaker,
}

/// One reason, until dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Activity {
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.reasons.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.reasons.load(Ordering::Acquire) > 0
    }

    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.handler.register(waker);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.reasons.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.handler.wake();
        }
    }
}
