//! Which refusals of one connection's frames are reported (law L13.3).
//!
//! **State.** Per reason, how many were refused and not reported, and when the last report was; and how many reports the
//! connection made in its current second.
//!
//! **Transitions.** [`Sampler::refused`] counts a refusal and says how many to report with it, if any: the first of its
//! reason at once, then no more than one report a reason and [`PER_SECOND`] reports in all each second. [`Refusals`]
//! sends it; where the behaviour is behind with its reports, the count is kept for the next one.
//!
//! **Failures.** A reason past [`REASONS`] is not reported; metrics count it all the same. What was counted after the
//! last report of a connection that ends is not reported either.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libp2p::PeerId;
use tokio::sync::mpsc;

use super::{event::Event, report::Report};
use crate::{clock::Clock, link::LinkId};

/// How many reasons are told apart on one connection. There are fewer.
const REASONS: usize = 128;

/// How many reports a connection makes in a second at most.
const PER_SECOND: u32 = 4;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Sampler {
    reasons: HashMap<&'static str, Tally>,
    second: Option<Duration>,
    reports: u32,
}

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    reported: Option<Duration>,
}

impl Sampler {
    /// Counts one refusal at monotonic time `now`, and says how many of its reason are to be reported, if any.
    fn refused(&mut self, reason: &'static str, now: Duration) -> Option<u64> {
        if self.reasons.len() >= REASONS && !self.reasons.contains_key(reason) {
            return None;
        }
        let tally = self.reasons.entry(reason).or_default();
        tally.count = tally.count.saturating_add(1);
        let passed = |since: Option<Duration>| since.is_none_or(|since| now >= since.saturating_add(SECOND));
        if passed(self.second) {
            (self.second, self.reports) = (Some(now), 0);
        }
        if !passed(tally.reported) || self.reports >= PER_SECOND {
            return None;
        }
        self.reports += 1;
        tally.reported = Some(now);
        Some(std::mem::take(&mut tally.count))
    }

    /// A report could not be made: what it counted is counted into the next one.
    fn unsent(&mut self, reason: &'static str, count: u64) {
        if let Some(tally) = self.reasons.get_mut(reason) {
            tally.count = tally.count.saturating_add(count);
        }
    }
}

/// The refusals of one connection's frames.
pub(crate) struct Refusals {
    peer: PeerId,
    link: LinkId,
    clock: Arc<dyn Clock>,
    reports: mpsc::Sender<Report>,
    sampler: Mutex<Sampler>,
}

impl Refusals {
    pub(crate) fn new(peer: PeerId, link: LinkId, clock: Arc<dyn Clock>, reports: mpsc::Sender<Report>) -> Self {
        Self { peer, link, clock, reports, sampler: Mutex::default() }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = sampler.refused(reason, self.clock.monotonic()) else { return };
        let event = Event::Refused { peer: self.peer, link: self.link, reason, count };
        if self.reports.try_send(Report::Event(event)).is_err() {
            sampler.unsent(reason, count);
        }
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals").field("peer", &self.peer).field("link", &self.link).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::ManualClock, identity::KeySigner};

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn l13_3_the_first_is_reported_at_once_and_the_rest_once_a_second_with_how_many() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.refused("stale", at(5_000)), Some(1));
        for millis in 5_001..6_000 {
            assert_eq!(sampler.refused("stale", at(millis)), None);
        }
        assert_eq!(sampler.refused("stale", at(6_000)), Some(1_000));
        assert_eq!(sampler.refused("stale", at(9_000)), Some(1));
    }

    #[test]
    fn l13_3_all_reasons_of_a_connection_together_are_bounded_in_rate_and_none_is_lost_count_of() {
        let mut sampler = Sampler::default();
        let reasons = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let (mut reported, mut counted) = (0, 0);
        for millis in 0..10_000_u64 {
            for reason in reasons {
                if let Some(count) = sampler.refused(reason, at(millis)) {
                    reported += 1;
                    counted += count;
                }
            }
        }
        assert_eq!(reported, 10 * PER_SECOND);
        let left: u64 = sampler.reasons.values().map(|tally| tally.count).sum();
        assert_eq!(counted + left, 100_000);
    }

    #[test]
    fn a_reason_past_the_bound_is_not_reported() {
        let mut sampler = Sampler::default();
        let reasons: Vec<&'static str> = (0..=REASONS).map(|reason| &*reason.to_string().leak()).collect();
        let reported = reasons.iter().zip(0..).filter_map(|(reason, time)| sampler.refused(reason, at(time * 1_000)));
        assert_eq!(reported.count(), REASONS);
        assert_eq!(sampler.reasons.len(), REASONS);
    }

    #[test]
    fn what_a_behaviour_that_is_behind_cannot_hear_is_counted_into_the_next_report() {
        let clock = Arc::new(ManualClock::new(0));
        let (reports, mut reported) = mpsc::channel(1);
        let peer = KeySigner::generate().key().to_peer_id();
        let refusals = Refusals::new(peer, LinkId::of(1), clock.clone(), reports);
        for _ in 0..3 {
            refusals.refused("stale");
            clock.advance(SECOND);
        }
        let mut counts = || match reported.try_recv() {
            Ok(Report::Event(Event::Refused { reason: "stale", count, .. })) => Some(count),
            _ => None,
        };
        assert_eq!((counts(), counts()), (Some(1), None), "two found no room");
        refusals.refused("stale");
        let mut counts = || match reported.try_recv() {
            Ok(Report::Event(Event::Refused { count, .. })) => Some(count),
            _ => None,
        };
        assert_eq!(counts(), Some(3));
    }
}
