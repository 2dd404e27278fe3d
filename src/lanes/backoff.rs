//! How long to wait before the next attempt: to dial a peer, or to open a lane again.
//!
//! **State.** The attempts that failed in a row. **Transitions.** A failure gives the pause before the next attempt,
//! doubling from the first to the longest; a success starts over. **Failures.** None; it never gives up by itself,
//! since what waits behind it expires.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The pause after one more failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let pause = self.first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        pause.min(self.longest)
    }

    pub(crate) const fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let pauses: Vec<_> = (0..6).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000]);
        assert!((0..100).all(|_| backoff.failed() == Duration::from_secs(1)));
        backoff.succeeded();
        assert_eq!(backoff.failed(), Duration::from_millis(100));
    }
}
