//! Which lane writes next (law L3.6).
//!
//! **State.** How many control frames were picked in a row while another lane could have been, and which of the
//! other lanes has its turn.
//!
//! **Transitions.** [`Scheduler::pick`] is told which lanes can write now: a frame is queued, the lane's channel is
//! open, and its window, its credit and its write buffer leave room. Control goes first, until it was picked
//! [`CONTROL_RUN`] times in a row with another lane ready; then the other lanes take one turn, round-robin, and
//! control starts over. A lane that cannot write loses no turn and holds up nobody.
//!
//! **Failures.** None: with no lane ready there is nothing to pick.

use crate::message::Class;

/// The most control frames in a row while another class waits (law L3.6).
pub(crate) const CONTROL_RUN: u8 = 4;

const CONTROL: u8 = Class::DhtControl.lane();

/// The lanes of one link, each ready or not.
pub(crate) type Ready = [bool; LANES];

/// How many lanes there are: one a class (law L3.1).
pub(crate) const LANES: usize = Class::ALL.len();

/// Picks lanes in turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scheduler {
    control_run: u8,
    next: u8,
}

impl Scheduler {
    pub(crate) const fn new() -> Self {
        Self { control_run: 0, next: CONTROL + 1 }
    }

    /// The lane that writes the next frame, which the caller then writes; `None` when no lane is ready.
    pub(crate) fn pick(&mut self, ready: Ready) -> Option<u8> {
        let is_ready = |lane: &u8| ready.get(usize::from(*lane)).copied().unwrap_or(false);
        let other = (self.next..lanes()).chain(CONTROL + 1..self.next).find(is_ready);
        match other {
            None if is_ready(&CONTROL) => {
                // Nobody waits, so this one does not count.
                self.control_run = 0;
                Some(CONTROL)
            }
            None => None,
            Some(_) if is_ready(&CONTROL) && self.control_run < CONTROL_RUN => {
                self.control_run += 1;
                Some(CONTROL)
            }
            Some(lane) => {
                self.control_run = 0;
                self.next = if lane + 1 < lanes() { lane + 1 } else { CONTROL + 1 };
                Some(lane)
            }
        }
    }
}

const fn lanes() -> u8 {
    LANES as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn l3_6_four_control_frames_then_one_other_in_turn() {
        let mut scheduler = Scheduler::new();
        let picked: Vec<_> = (0..20).map(|_| scheduler.pick([true; LANES]).unwrap()).collect();
        assert_eq!(picked, [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn l3_6_control_alone_is_never_held_back_and_owes_nothing_later() {
        let mut scheduler = Scheduler::new();
        assert!((0..100).all(|_| scheduler.pick([true, false, false, false]) == Some(0)));
        assert_eq!(scheduler.pick([true, true, false, false]), Some(0));
    }

    #[test]
    fn nothing_ready_picks_nothing() {
        assert_eq!(Scheduler::new().pick([false; LANES]), None);
    }

    proptest! {
        /// Any history of readiness: a picked lane was ready; one is picked whenever one is ready; control never
        /// runs past its bound while another waits; and a lane that stays ready is picked within the longest round
        /// that the others can take before it.
        #[test]
        fn l3_6_no_class_starves(history in prop::collection::vec(any::<[bool; LANES]>(), 1..400)) {
            let mut scheduler = Scheduler::new();
            let (mut run, mut waited) = (0_u8, [0_u32; LANES]);
            let round = (u32::from(CONTROL_RUN) + 1) * (LANES as u32 - 1);
            for ready in history {
                let picked = scheduler.pick(ready);
                prop_assert_eq!(picked.is_some(), ready.contains(&true));
                if let Some(lane) = picked {
                    prop_assert!(ready[usize::from(lane)]);
                    run = if lane == 0 && ready[1..].contains(&true) { run + 1 } else { 0 };
                    prop_assert!(run <= CONTROL_RUN);
                }
                for lane in 0..LANES {
                    let passed_over = ready[lane] && picked.map(usize::from) != Some(lane);
                    waited[lane] = if passed_over { waited[lane] + 1 } else { 0 };
                    prop_assert!(waited[lane] <= round, "lane {} waited {}", lane, waited[lane]);
                }
            }
        }
    }
}
