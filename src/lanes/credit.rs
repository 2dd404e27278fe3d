//! Credit at both ends of one channel (laws L3.3 and L3.4).
//!
//! A channel is the unit of credit and of the window: with the default pool it carries one lane, and where two lanes
//! share one (law L3.1) they share its credit, since a receiver learns a frame's lane only after it took the frame.
//!
//! The receiver numbers the frames of a channel from 0 as it reads them, and returns one cumulative count: all frames
//! below it were **taken over**. It advances over a frame only once every earlier one was taken over too, so that the
//! sender knows exactly which sends are settled, and so that no frame is ever overtaken by more than the window:
//! that is what keeps reordering behind a relay inside the 32 slots of a replay window.
//!
//! **[`Spending`], the sender's end.** State: frames written, frames credited. `wrote` is allowed while fewer than
//! the window and fewer than the advertised credit are in flight. `credit` takes a count: a greater one than before
//! settles the difference, an old or repeated one changes nothing, and one over what was written is a violation.
//!
//! **[`Granting`], the receiver's end.** State: frames read, the length of the taken-over prefix, and which of the at
//! most 32 frames after it are taken over already. `read` numbers a frame, or refuses it as over the credit: a
//! violation. `taken` marks one and says whether the count advanced.

/// The most frames that a receiver can advertise for a channel (law L3.3).
pub(crate) const GREATEST_CREDIT: u8 = 32;

/// The greatest window of unsettled frames that a sender may use: below the 32 slots of a replay window (law L3.3).
pub(crate) const GREATEST_WINDOW: u8 = 31;

/// The sender's end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spending {
    bound: u64,
    written: u64,
    credited: u64,
}

/// A receiver credited frames that were never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreditAhead {
    pub(crate) count: u64,
    pub(crate) written: u64,
}

impl Spending {
    /// A channel whose receiver advertised `advertised`, under the sender's own `window`.
    pub(crate) fn new(advertised: u8, window: u8) -> Self {
        Self { bound: u64::from(advertised.min(window)), written: 0, credited: 0 }
    }

    /// Frames written and not credited.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.written - self.credited
    }

    /// Whether one more frame may be written.
    pub(crate) const fn may_write(&self) -> bool {
        self.in_flight() < self.bound
    }

    /// Counts a frame as written, which [`Self::may_write`] allowed.
    pub(crate) fn wrote(&mut self) {
        debug_assert!(self.may_write());
        self.written += 1;
    }

    /// Takes the receiver's cumulative count, and says how many frames it settles, oldest first.
    pub(crate) fn credit(&mut self, count: u64) -> Result<u64, CreditAhead> {
        if count > self.written {
            return Err(CreditAhead { count, written: self.written });
        }
        let settled = count.saturating_sub(self.credited);
        self.credited += settled;
        Ok(settled)
    }
}

/// The receiver's end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Granting {
    advertised: u8,
    read: u64,
    taken: u64,
    /// Bit i: frame `taken + i` is taken over. Bit 0 is always clear.
    ahead: u64,
}

/// A frame came while the whole credit was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreditExceeded;

impl Granting {
    /// A channel with `advertised` frames of credit, at most [`GREATEST_CREDIT`].
    pub(crate) fn new(advertised: u8) -> Self {
        Self { advertised: advertised.min(GREATEST_CREDIT), read: 0, taken: 0, ahead: 0 }
    }

    /// Numbers the next frame.
    pub(crate) fn read(&mut self) -> Result<u64, CreditExceeded> {
        if self.read - self.taken >= u64::from(self.advertised) {
            return Err(CreditExceeded);
        }
        let frame = self.read;
        self.read += 1;
        Ok(frame)
    }

    /// Marks `frame` as taken over. The new cumulative count, if it advanced.
    pub(crate) fn taken(&mut self, frame: u64) -> Option<u64> {
        let place = frame.checked_sub(self.taken).filter(|_| frame < self.read)?;
        self.ahead |= 1_u64.checked_shl(u32::try_from(place).ok()?)?;
        let advance = self.ahead.trailing_ones();
        if advance == 0 {
            return None;
        }
        self.ahead >>= advance;
        self.taken += u64::from(advance);
        Some(self.taken)
    }

    /// The cumulative count: every frame below it is taken over.
    pub(crate) const fn count(&self) -> u64 {
        self.taken
    }

    /// Frames read and not taken over, those behind a gap included.
    #[cfg(test)]
    pub(crate) const fn unsettled(&self) -> u64 {
        self.read - self.taken
    }
}

/// The fuzz target of credit: what a peer says on one end, and does on the other, in any order.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "credit",
    run: |data| {
        let Some((&[advertised, window], steps)) = data.split_first_chunk() else { return false };
        let (mut spending, mut granting) = (Spending::new(advertised, window), Granting::new(advertised));
        let (mut settled, mut written, mut read) = (0, 0, 0_u64);
        for step in steps {
            let number = u64::from(step >> 2);
            match step & 3 {
                0 if spending.may_write() => {
                    spending.wrote();
                    written += 1;
                }
                0 => assert_eq!(spending.in_flight(), u64::from(advertised.min(window))),
                1 => match spending.credit(number) {
                    Ok(count) => settled += count,
                    Err(ahead) => assert_eq!((ahead.count, ahead.written), (number, written)),
                },
                2 => read += u64::from(granting.read().is_ok()),
                _ => {
                    let before = granting.count();
                    assert!(granting.taken(number).is_none_or(|count| before < count && count <= read));
                }
            }
            assert_eq!(spending.in_flight(), written - settled);
            assert!(spending.in_flight() <= u64::from(advertised.min(window)));
            assert!(read - granting.count() <= u64::from(advertised.min(GREATEST_CREDIT)));
        }
        true
    },
    seeds: || {
        // Write, read, take in and out of turn, credit.
        vec![vec![16, 8, 0, 0, 0, 2, 2, 2, 7, 3, 11, 5, 13, 255], vec![1, 31, 2, 2, 3, 2, 7], vec![0, 0, 0, 2]]
    },
};

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn l3_4_an_old_or_repeated_credit_changes_nothing() {
        let mut spending = Spending::new(16, 8);
        for _ in 0..5 {
            spending.wrote();
        }
        assert_eq!(spending.credit(3), Ok(3));
        assert_eq!(spending.credit(3), Ok(0));
        assert_eq!(spending.credit(1), Ok(0));
        assert_eq!(spending.in_flight(), 2);
    }

    #[test]
    fn l3_4_a_credit_for_what_was_never_written_is_a_violation() {
        let mut spending = Spending::new(16, 8);
        spending.wrote();
        assert_eq!(spending.credit(2), Err(CreditAhead { count: 2, written: 1 }));
        assert_eq!(spending.in_flight(), 1);
    }

    #[test]
    fn l3_4_a_frame_beyond_the_credit_is_refused_and_the_last_one_within_it_is_not() {
        let mut granting = Granting::new(GREATEST_CREDIT);
        for frame in 0..32 {
            assert_eq!(granting.read(), Ok(frame));
        }
        assert_eq!(granting.read(), Err(CreditExceeded));
        assert_eq!(granting.taken(0), Some(1));
        assert_eq!(granting.read(), Ok(32));
    }

    #[test]
    fn l3_4_the_count_waits_for_the_oldest_frame() {
        let mut granting = Granting::new(4);
        for _ in 0..3 {
            granting.read().unwrap();
        }
        assert_eq!(granting.taken(2), None);
        assert_eq!(granting.taken(1), None);
        assert_eq!(granting.taken(1), None, "taken over twice");
        assert_eq!(granting.taken(3), None, "never read");
        assert_eq!(granting.taken(0), Some(3));
        assert_eq!(granting.taken(0), None);
    }

    proptest! {
        /// An honest sender and a receiver, with frames and credits in transit, credits lost to a later one, repeated
        /// or overtaken, and frames taken over in any order: the window and the credit are never exceeded, and
        /// everything settles once all is taken over.
        #[test]
        fn l3_4_an_honest_sender_never_exceeds_the_credit_and_everything_settles(
            advertised in 1_u8..=GREATEST_CREDIT,
            window in 1_u8..=GREATEST_WINDOW,
            steps in prop::collection::vec((0_u8..4, any::<u8>()), 1..400),
        ) {
            let (mut spending, mut granting) = (Spending::new(advertised, window), Granting::new(advertised));
            let (mut frames, mut credits, mut held) = (0_u32, VecDeque::from([0_u64]), Vec::new());
            let (mut written, mut settled) = (0_u64, 0_u64);
            for (step, choice) in steps {
                match step {
                    0 if spending.may_write() => {
                        spending.wrote();
                        written += 1;
                        frames += 1;
                        prop_assert!(spending.in_flight() <= u64::from(window.min(advertised)));
                    }
                    1 if frames > 0 => {
                        frames -= 1;
                        held.push(granting.read().expect("an honest sender stays within the credit"));
                    }
                    2 if !held.is_empty() => {
                        let frame = held.swap_remove(usize::from(choice) % held.len());
                        credits.extend(granting.taken(frame));
                    }
                    3 => {
                        // Any credit ever sent may come, or come again, in any order.
                        let count = credits[usize::from(choice) % credits.len()];
                        settled += spending.credit(count).expect("an honest receiver never runs ahead");
                    }
                    _ => {}
                }
                prop_assert!(granting.unsettled() <= u64::from(advertised));
                prop_assert_eq!(written - settled, spending.in_flight());
            }
            for _ in 0..frames {
                held.push(granting.read().unwrap());
            }
            for frame in held {
                credits.extend(granting.taken(frame));
            }
            settled += spending.credit(*credits.iter().max().unwrap()).unwrap();
            prop_assert_eq!(settled, written);
        }
    }
}
