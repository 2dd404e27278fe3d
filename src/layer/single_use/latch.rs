//! The emergency stop in memory: read without a lock, and set before anything else is done (law L12.5).

use std::sync::atomic::{AtomicU64, Ordering};

/// On in odd numbers. Each stop moves to another odd number, so that whoever ends a stop ends the one that it saw.
#[derive(Debug)]
pub(super) struct Latch(AtomicU64);

impl Latch {
    pub(super) const fn new(stopped: bool) -> Self {
        Self(AtomicU64::new(stopped as u64))
    }

    pub(super) fn stopped(&self) -> bool {
        self.seen() % 2 == 1
    }

    /// What is to be given to [`Latch::resume`].
    pub(super) fn seen(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn stop(&self) {
        let next = |seen: u64| Some(if seen % 2 == 1 { seen.wrapping_add(2) } else { seen.wrapping_add(1) });
        // The closure never gives none.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Ends the stop that was `seen`; `false` where another came since.
    pub(super) fn resume(&self, seen: u64) -> bool {
        let off = if seen % 2 == 1 { seen.wrapping_add(1) } else { seen };
        self.0.compare_exchange(seen, off, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l12_5_a_resume_ends_the_stop_that_it_saw_and_no_later_one() {
        let latch = Latch::new(false);
        assert!(!latch.stopped() && latch.resume(latch.seen()) && !latch.stopped());
        latch.stop();
        let seen = latch.seen();
        latch.stop();
        assert!(latch.stopped() && !latch.resume(seen) && latch.stopped());
        assert!(latch.resume(latch.seen()) && !latch.stopped());
        assert!(Latch::new(true).stopped());
    }
}
