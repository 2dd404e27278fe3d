//! The pure core of the forwarding rate: one token bucket a link, in integers (law L3.9).
//!
//! A bucket holds at most `burst` frames, fills by `per_second` frames a second, and each forward takes one. A full
//! bucket is the same as none, so a link has an entry only while it has forwarded lately. At its bound of links the
//! table first drops what is full again, and refuses a link that it has no entry for while none is.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use crate::link::LinkId;

/// Frames a second that one link may have forwarded, unless told otherwise: about what a core can verify.
pub const DEFAULT_FORWARDS_PER_SECOND: NonZeroU32 = NonZeroU32::new(8_192).unwrap();

/// Frames that one link may have forwarded at once, unless told otherwise: two seconds' worth.
pub const DEFAULT_FORWARD_BURST: NonZeroU32 = NonZeroU32::new(16_384).unwrap();

/// The most links whose buckets are kept.
pub(crate) const FORWARD_LINKS: usize = 4_096;

/// One frame, in the billionths that a bucket counts in: what a rate of one a second fills in a nanosecond.
const FRAME: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Rates {
    per_second: NonZeroU32,
    burst: NonZeroU32,
    links: usize,
    buckets: HashMap<LinkId, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Billionths of a frame.
    level: u64,
    /// When the level was right, on the monotonic clock.
    at: Duration,
}

impl Rates {
    pub(super) fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { per_second, burst, links: FORWARD_LINKS, buckets: HashMap::new() }
    }

    /// Whether `link` may forward one more frame at monotonic time `now`; takes it if so.
    pub(super) fn take(&mut self, link: LinkId, now: Duration) -> bool {
        if !self.buckets.contains_key(&link) && self.buckets.len() >= self.links {
            let (per_second, burst) = (self.per_second, self.burst);
            self.buckets.retain(|_, bucket| bucket.filled(now, per_second, burst) < full(burst));
            if self.buckets.len() >= self.links {
                return false;
            }
        }
        let bucket = self.buckets.entry(link).or_insert(Bucket { level: full(self.burst), at: now });
        *bucket = Bucket { level: bucket.filled(now, self.per_second, self.burst), at: bucket.at.max(now) };
        match bucket.level.checked_sub(FRAME) {
            Some(rest) => bucket.level = rest,
            None => return false,
        }
        true
    }
}

impl Bucket {
    /// The level at `now`. Time that went back fills nothing.
    fn filled(&self, now: Duration, per_second: NonZeroU32, burst: NonZeroU32) -> u64 {
        let gained = now.saturating_sub(self.at).as_nanos().saturating_mul(u128::from(per_second.get()));
        self.level.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX)).min(full(burst))
    }
}

const fn full(burst: NonZeroU32) -> u64 {
    // At most 2^32 * 10^9, below 2^62.
    burst.get() as u64 * FRAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(per_second: u32, burst: u32, links: usize) -> Rates {
        let some = |number| NonZeroU32::new(number).expect("not zero");
        Rates { links, ..Rates::new(some(per_second), some(burst)) }
    }

    #[test]
    fn l3_9_a_burst_then_the_rate_to_the_nanosecond() {
        let mut rates = rates(3, 5, 8);
        let link = LinkId::of(1);
        assert_eq!((0..9).filter(|_| rates.take(link, Duration::ZERO)).count(), 5, "the burst");
        assert!(!rates.take(link, Duration::from_nanos(333_333_333)));
        assert!(rates.take(link, Duration::from_nanos(333_333_334)), "a third of a second fills one frame");
        let second = Duration::from_secs(1);
        let passed = (0..90_000_u32).filter(|step| rates.take(link, second + second * *step / 1_000)).count();
        assert!((270..=275).contains(&passed), "90 seconds at 3 a second and at most a burst, not {passed}");
    }

    #[test]
    fn l3_9_links_do_not_pay_for_each_other() {
        let mut rates = rates(1, 1, 8);
        assert!(rates.take(LinkId::of(1), Duration::ZERO));
        assert!(!rates.take(LinkId::of(1), Duration::ZERO));
        assert!(rates.take(LinkId::of(2), Duration::ZERO));
    }

    #[test]
    fn a_clock_that_goes_back_fills_nothing() {
        let mut rates = rates(1, 1, 8);
        assert!(rates.take(LinkId::of(1), Duration::from_secs(9)));
        assert!(!rates.take(LinkId::of(1), Duration::from_secs(3)));
        assert!(!rates.take(LinkId::of(1), Duration::from_millis(9_999)));
        assert!(rates.take(LinkId::of(1), Duration::from_secs(10)));
    }

    #[test]
    fn at_its_bound_the_table_drops_full_buckets_and_else_refuses_the_newcomer() {
        let mut rates = rates(1, 1, 2);
        assert!(rates.take(LinkId::of(1), Duration::ZERO));
        assert!(rates.take(LinkId::of(2), Duration::from_millis(500)));
        assert!(!rates.take(LinkId::of(3), Duration::from_millis(999)), "both are still filling");
        assert!(rates.take(LinkId::of(3), Duration::from_millis(1_000)), "the first is full again, so it is dropped");
        assert_eq!(rates.buckets.len(), 2);
    }
}
