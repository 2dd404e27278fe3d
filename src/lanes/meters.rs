//! What is metered of frames that wait to be written (law L13.5).
//!
//! [`Depth`] counts a frame of a lane from when it was handed over until it is taken to be written, or given up.
//!
//! **[`CreditWaits`].** State: since when each lane of a link has had frames and no credit or window for them.
//! Transitions: [`CreditWaits::turn`] is told after each turn of the link which lanes are held up so, and which had a
//! frame taken; a wait ends with the first frame taken, or once nothing is held up any more. Failures: none.

use std::time::Duration;

use super::scheduler::{LANES, Ready};
use crate::message::Class;

/// One frame that waits, in all lanes of its class, until dropped.
#[derive(Debug)]
pub(crate) struct Depth(Class);

impl Depth {
    pub(crate) fn of(class: Class) -> Self {
        metrics::gauge!("admit_one_lane_depth", "class" => class.label()).increment(1.0);
        Self(class)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        metrics::gauge!("admit_one_lane_depth", "class" => self.0.label()).decrement(1.0);
    }
}

/// Since when the lanes of one link have waited for credit.
#[derive(Debug, Default)]
pub(crate) struct CreditWaits {
    since: [Option<Duration>; LANES],
}

impl CreditWaits {
    /// After a turn at `now` that took frames off the lanes in `took` and left those in `held_up` with frames and no
    /// credit: how long each wait was that ended.
    pub(crate) fn turn(&mut self, held_up: Ready, took: Ready, now: Duration) -> [Option<Duration>; LANES] {
        let mut ended = [None; LANES];
        for (((since, ended), held_up), took) in self.since.iter_mut().zip(&mut ended).zip(held_up).zip(took) {
            if took || !held_up {
                *ended = since.take().map(|since| now.saturating_sub(since));
            }
            if held_up {
                since.get_or_insert(now);
            }
        }
        ended
    }

    /// Whether no lane waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.iter().all(Option::is_none)
    }
}

/// Counts waits that ended, by lane.
pub(crate) fn credit_waits(ended: [Option<Duration>; LANES]) {
    for (class, wait) in Class::ALL.into_iter().zip(ended) {
        if let Some(wait) = wait {
            metrics::histogram!("admit_one_lane_credit_wait_seconds", "class" => class.label()).record(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Ready = [false; LANES];
    const FIRST: Ready = [true, false, false, false];
    const LAST: Ready = [false, false, false, true];

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn l13_5_a_wait_lasts_from_when_credit_was_out_until_a_frame_was_taken() {
        let mut waits = CreditWaits::default();
        assert_eq!(waits.turn(FIRST, FIRST, at(1)), [None; LANES]);
        assert_eq!(waits.turn(FIRST, NONE, at(3)), [None; LANES]);
        assert_eq!(waits.turn(FIRST, FIRST, at(4)), [Some(at(3)), None, None, None], "and the next begins");
        assert_eq!(waits.turn(NONE, FIRST, at(9)), [Some(at(5)), None, None, None]);
        assert!(waits.is_empty());
        assert_eq!(waits.turn(NONE, FIRST, at(10)), [None; LANES], "it did not wait");
    }

    #[test]
    fn l13_5_lanes_wait_each_for_itself_and_a_wait_ends_when_nothing_is_left_to_wait() {
        let mut waits = CreditWaits::default();
        assert_eq!(waits.turn(LAST, NONE, at(1)), [None; LANES]);
        assert_eq!(waits.turn([true, false, false, true], NONE, at(2)), [None; LANES]);
        assert_eq!(waits.turn(FIRST, NONE, at(7)), [None, None, None, Some(at(6))]);
        assert!(!waits.is_empty());
    }
}
