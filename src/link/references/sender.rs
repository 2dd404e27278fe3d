use std::{collections::VecDeque, time::Duration};

use super::{Control, FrameName, Now, Terms};
use crate::{clock::WallMs, identity::DelegationDigest};

/// The sender's end: the delegations that it may refer to (laws L4.1 to L4.3). See the [module](super).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SenderTable {
    terms: Terms,
    bound: usize,
    notes_bound: usize,
    /// Least recently referenced first.
    leases: Vec<Lease>,
    /// Oldest first.
    notes: VecDeque<Note>,
    /// Bit *c*: channel *c* ended once, so its frames' numbers may stand for two frames.
    ended: u8,
    written: u64,
    told: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Lease {
    digest: DelegationDigest,
    until: Duration,
    /// The delegation's own end.
    expires_at: WallMs,
    /// When it was last carried inline to have the lease renewed.
    renewed_at: Option<Duration>,
}

/// A frame that carried a delegation inline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Note {
    digest: DelegationDigest,
    frame: FrameName,
    /// Just before it began to be written.
    begun: Duration,
    expires_at: WallMs,
}

/// What a frame's two slots carry, the hop's first: a delegation's digest and end, or nothing to refer to.
pub(crate) type Slots = [Option<(DelegationDigest, WallMs)>; 2];

/// How to write a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Write {
    /// As it is.
    Inline,
    /// By its digest.
    Reference,
}

/// What a control frame changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// There is a lease, or it lasts longer.
    Leased,
    /// A lease ended.
    Disclaimed,
    /// Nothing: it was old, doubled, or named what is not remembered.
    Nothing,
}

/// The receiver said more than an honest one can: two control frames for each frame that was written (law L4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlAhead {
    pub(crate) count: u64,
    pub(crate) written: u64,
}

impl SenderTable {
    /// An empty table of at most `bound` leases, which remembers `notes` slots that were written inline.
    pub(crate) const fn new(terms: Terms, bound: usize, notes: usize) -> Self {
        Self {
            terms,
            bound,
            notes_bound: notes,
            leases: Vec::new(),
            notes: VecDeque::new(),
            ended: 0,
            written: 0,
            told: 0,
        }
    }

    /// Says how to write the slots of `frame`, which is begun to be written no earlier than `now`.
    pub(crate) fn write(&mut self, frame: FrameName, slots: Slots, now: Now) -> [Write; 2] {
        self.wrote_plain();
        let [hop, origin] = slots;
        let hop_write = hop.map_or(Write::Inline, |slot| self.slot(frame, slot, now));
        // One delegation in both slots is carried once where a lease allows, and noted once where none does.
        let origin_write = match (origin, hop) {
            (Some(origin), Some(hop)) if origin.0 == hop.0 && hop_write == Write::Inline => {
                if self.is_leased(&origin.0, now) { Write::Reference } else { Write::Inline }
            }
            (Some(origin), _) => self.slot(frame, origin, now),
            (None, _) => Write::Inline,
        };
        [hop_write, origin_write]
    }

    /// A frame without a delegation is begun to be written.
    pub(crate) const fn wrote_plain(&mut self) {
        self.written = self.written.saturating_add(1);
    }

    /// Takes what the receiver says.
    pub(crate) fn take(&mut self, control: &Control, now: Now) -> Result<Told, ControlAhead> {
        self.told = self.told.saturating_add(1);
        if self.told > self.written.saturating_mul(2) {
            return Err(ControlAhead { count: self.told, written: self.written });
        }
        Ok(match control {
            Control::Grant { digest, frame } => self.granted(digest, *frame, now),
            Control::Disclaim { digest } => {
                let before = self.leases.len();
                self.leases.retain(|lease| lease.digest != *digest);
                if self.leases.len() < before { Told::Disclaimed } else { Told::Nothing }
            }
        })
    }

    /// A channel ended: what it brings if it is opened again is not told apart from what it brought before.
    pub(crate) fn channel_ended(&mut self, channel: u8) {
        self.ended |= bit(channel);
        self.notes.retain(|note| note.frame.channel != channel);
    }

    /// How many leases it holds, those included that are over and were not looked at since.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.leases.len()
    }

    /// How many inline slots it remembers.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> usize {
        self.notes.len()
    }

    fn slot(&mut self, frame: FrameName, (digest, expires_at): (DelegationDigest, WallMs), now: Now) -> Write {
        let notable = self.ended & bit(frame.channel) == 0;
        let terms = self.terms;
        // Time for the inline frame's way and for the grant's back.
        let early = terms.delivery.saturating_mul(2);
        if let Some(lease) = self.live(&digest, now) {
            let due = now.at.saturating_add(early) >= lease.until;
            let tried = lease.renewed_at.is_some_and(|at| now.at < at.saturating_add(terms.delivery));
            if !(due && notable) || tried {
                return Write::Reference;
            }
            lease.renewed_at = Some(now.at);
        }
        if notable && !terms.is_over(expires_at, now.wall) {
            while self.notes.len() >= self.notes_bound {
                if self.notes.pop_front().is_none() {
                    return Write::Inline;
                }
            }
            self.notes.push_back(Note { digest, frame, begun: now.at, expires_at });
        }
        Write::Inline
    }

    fn granted(&mut self, digest: &DelegationDigest, frame: FrameName, now: Now) -> Told {
        let named = |note: &Note| note.frame == frame && note.digest == *digest;
        let Some(place) = self.notes.iter().position(named) else { return Told::Nothing };
        let Some(Note { begun, expires_at, .. }) = self.notes.remove(place) else { return Told::Nothing };
        let until = begun.saturating_add(self.terms.lease);
        if now.at >= until || self.terms.is_over(expires_at, now.wall) {
            return Told::Nothing;
        }
        if let Some(lease) = self.live(digest, now) {
            if until <= lease.until {
                return Told::Nothing;
            }
            (lease.until, lease.renewed_at) = (until, None);
            return Told::Leased;
        }
        if self.leases.len() >= self.bound {
            let terms = self.terms;
            self.leases.retain(|lease| now.at < lease.until && !terms.is_over(lease.expires_at, now.wall));
        }
        // Evicting one that lives costs bytes alone: the sender carries it inline again.
        while self.leases.len() >= self.bound {
            if self.leases.is_empty() {
                return Told::Nothing;
            }
            self.leases.remove(0);
        }
        self.leases.push(Lease { digest: *digest, until, expires_at, renewed_at: None });
        Told::Leased
    }

    fn is_leased(&mut self, digest: &DelegationDigest, now: Now) -> bool {
        self.live(digest, now).is_some()
    }

    /// The lease of `digest`, from now on the most recently referenced; one that is over is dropped.
    fn live(&mut self, digest: &DelegationDigest, now: Now) -> Option<&mut Lease> {
        let place = self.leases.iter().rposition(|lease| lease.digest == *digest)?;
        let lease = self.leases.get(place)?;
        if now.at >= lease.until || self.terms.is_over(lease.expires_at, now.wall) {
            self.leases.remove(place);
            return None;
        }
        self.leases.get_mut(place..)?.rotate_left(1);
        self.leases.last_mut()
    }
}

const fn bit(channel: u8) -> u8 {
    match 1_u8.checked_shl(channel as u32) {
        Some(bit) => bit,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{
        super::tests::{NEVER, TERMS, at, digest},
        *,
    };

    fn frame(number: u64) -> FrameName {
        FrameName { channel: 2, number }
    }

    fn table() -> SenderTable {
        SenderTable::new(TERMS, 4, 8)
    }

    fn write(table: &mut SenderTable, number: u64, of: u8, now: u64) -> Write {
        let [hop, origin] = table.write(frame(number), [None, Some((digest(of), NEVER))], at(now));
        assert_eq!(hop, Write::Inline);
        origin
    }

    fn grant(table: &mut SenderTable, number: u64, of: u8, now: u64) -> Told {
        table.take(&Control::Grant { digest: digest(of), frame: frame(number) }, at(now)).expect("not too many")
    }

    fn disclaim(table: &mut SenderTable, of: u8, now: u64) -> Told {
        table.take(&Control::Disclaim { digest: digest(of) }, at(now)).expect("not too many")
    }

    #[test]
    fn l4_3_it_refers_only_under_a_lease_which_is_counted_from_the_inline_frame() {
        let mut table = table();
        assert_eq!(write(&mut table, 0, 1, 0), Write::Inline);
        assert_eq!(write(&mut table, 1, 1, 1), Write::Inline, "no grant yet");
        assert_eq!(grant(&mut table, 0, 1, 30), Told::Leased);
        assert_eq!(write(&mut table, 2, 1, 39), Write::Reference);
        table.channel_ended(2);
        assert_eq!(write(&mut table, 3, 1, 59), Write::Reference, "nothing could renew it");
        assert_eq!(write(&mut table, 4, 1, 60), Write::Inline, "60 s from the frame, not from the grant");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn l4_3_it_renews_by_carrying_inline_once_before_the_lease_ends() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        grant(&mut table, 0, 1, 1);
        assert_eq!(write(&mut table, 1, 1, 39), Write::Reference);
        assert_eq!(write(&mut table, 2, 1, 40), Write::Inline);
        assert_eq!(write(&mut table, 3, 1, 41), Write::Reference, "once");
        assert_eq!(write(&mut table, 4, 1, 50), Write::Inline, "once more where no grant came within D");
        assert_eq!(grant(&mut table, 2, 1, 51), Told::Leased);
        assert_eq!(write(&mut table, 5, 1, 79), Write::Reference);
        assert_eq!(write(&mut table, 6, 1, 80), Write::Inline);
        assert_eq!(write(&mut table, 7, 1, 99), Write::Inline);
        assert_eq!(write(&mut table, 8, 1, 100), Write::Inline, "it was never renewed, and is over");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn l4_7_grants_are_idempotent_and_old_ones_shorten_nothing() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        write(&mut table, 1, 1, 10);
        assert_eq!(grant(&mut table, 1, 1, 11), Told::Leased);
        assert_eq!(grant(&mut table, 0, 1, 12), Told::Nothing, "reordered");
        assert_eq!(grant(&mut table, 1, 1, 13), Told::Nothing, "doubled");
        assert_eq!(write(&mut table, 2, 1, 49), Write::Reference);
    }

    #[test]
    fn l4_7_a_grant_for_what_was_never_written_inline_changes_nothing() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        for (number, of) in [(1, 1), (0, 2), (u64::MAX, 1)] {
            assert_eq!(grant(&mut table, number, of, 1), Told::Nothing);
            write(&mut table, 7, 9, 1);
        }
        let elsewhere = Control::Grant { digest: digest(1), frame: FrameName { channel: 3, number: 0 } };
        assert_eq!(table.take(&elsewhere, at(1)), Ok(Told::Nothing));
        assert_eq!(write(&mut table, 8, 1, 1), Write::Inline);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn l4_3_a_grant_that_comes_after_its_lease_would_have_ended_changes_nothing() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        assert_eq!(grant(&mut table, 0, 1, 60), Told::Nothing);
        assert_eq!(write(&mut table, 1, 1, 60), Write::Inline);
    }

    #[test]
    fn l4_6_a_disclaimer_brings_it_back_inline_and_a_later_grant_back_to_references() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        grant(&mut table, 0, 1, 1);
        assert_eq!(write(&mut table, 1, 1, 1), Write::Reference);
        assert_eq!(disclaim(&mut table, 1, 2), Told::Disclaimed);
        assert_eq!(disclaim(&mut table, 1, 2), Told::Nothing);
        assert_eq!(write(&mut table, 2, 1, 3), Write::Inline);
        assert_eq!(grant(&mut table, 2, 1, 4), Told::Leased);
        assert_eq!(write(&mut table, 3, 1, 5), Write::Reference);
    }

    #[test]
    fn l4_7_more_than_two_control_frames_a_frame_are_named() {
        let mut table = table();
        assert_eq!(
            table.take(&Control::Disclaim { digest: digest(1) }, at(0)),
            Err(ControlAhead { count: 1, written: 0 })
        );
        let mut table = SenderTable::new(TERMS, 4, 8);
        write(&mut table, 0, 1, 0);
        disclaim(&mut table, 1, 0);
        disclaim(&mut table, 1, 0);
        assert_eq!(
            table.take(&Control::Disclaim { digest: digest(1) }, at(0)),
            Err(ControlAhead { count: 3, written: 1 })
        );
    }

    #[test]
    fn l4_2_the_least_recently_referenced_goes_first_and_one_that_is_over_before_it() {
        let mut table = table();
        for of in 1..=4 {
            write(&mut table, u64::from(of), of, 0);
            assert_eq!(grant(&mut table, u64::from(of), of, 1), Told::Leased);
        }
        assert_eq!(write(&mut table, 10, 1, 2), Write::Reference);
        write(&mut table, 5, 5, 2);
        assert_eq!(grant(&mut table, 5, 5, 3), Told::Leased);
        assert_eq!(table.len(), 4);
        let how = [1, 2, 3, 4, 5].map(|of| write(&mut table, 20 + u64::from(of), of, 4));
        assert_eq!(how, [Write::Reference, Write::Inline, Write::Reference, Write::Reference, Write::Reference]);
        assert_eq!(grant(&mut table, 22, 2, 61), Told::Leased);
        assert_eq!(table.len(), 2, "three of the first four were over");
    }

    #[test]
    fn a_channel_that_was_opened_again_brings_no_leases() {
        let mut table = table();
        write(&mut table, 0, 1, 0);
        table.channel_ended(2);
        assert_eq!(write(&mut table, 0, 1, 100), Write::Inline);
        assert_eq!(grant(&mut table, 0, 1, 101), Told::Nothing, "it is for the first frame of that number");
        let other = FrameName { channel: 1, number: 0 };
        table.write(other, [None, Some((digest(1), NEVER))], at(101));
        assert_eq!(table.take(&Control::Grant { digest: digest(1), frame: other }, at(101)), Ok(Told::Leased));
        assert_eq!(write(&mut table, 1, 1, 102), Write::Reference, "a lease holds for all channels");
    }

    #[test]
    fn one_delegation_in_both_slots_is_noted_once_and_renewed_in_one_of_them() {
        let mut table = table();
        let both = [Some((digest(1), NEVER)); 2];
        assert_eq!(table.write(frame(0), both, at(0)), [Write::Inline; 2]);
        assert_eq!(table.notes(), 1);
        grant(&mut table, 0, 1, 1);
        assert_eq!(table.write(frame(1), both, at(2)), [Write::Reference; 2]);
        assert_eq!(table.write(frame(2), both, at(45)), [Write::Inline, Write::Reference]);
    }

    #[test]
    fn l4_8_a_delegation_is_absent_once_its_end_and_sigma_passed() {
        let mut table = table();
        let slots = [None, Some((digest(1), at(20).wall))];
        table.write(frame(0), slots, at(0));
        table.write(frame(1), slots, at(0));
        grant(&mut table, 0, 1, 1);
        assert_eq!(table.write(frame(2), slots, at(22)), [Write::Inline, Write::Reference]);
        assert_eq!(table.write(frame(3), slots, at(23)), [Write::Inline; 2]);
        assert_eq!(table.len(), 0);
        assert_eq!(grant(&mut table, 1, 1, 23), Told::Nothing);
    }

    proptest! {
        /// Whatever the receiver says, in any order and number: no reference without a grant that named an inline frame
        /// begun less than a lease ago, and no bound exceeded.
        #[test]
        fn l4_3_no_reference_past_a_lease_whatever_the_receiver_says(
            bound in 0_usize..4,
            notes in 0_usize..6,
            steps in prop::collection::vec((0_u64..15, 0_u8..4, 0_u8..5, any::<u8>()), 1..300),
        ) {
            let mut table = SenderTable::new(TERMS, bound, notes);
            let (mut now, mut next) = (0, 0);
            let mut begun = Vec::<(u64, u8, u64)>::new();
            let mut leased = HashMap::<u8, u64>::new();
            for (passed, step, of, choice) in steps {
                now += passed;
                match step {
                    0 | 1 => {
                        let how = write(&mut table, next, of, now);
                        match how {
                            Write::Inline => begun.push((next, of, now)),
                            Write::Reference => {
                                let until = leased.get(&of).copied().unwrap_or(0);
                                prop_assert!(now < until, "a reference at {} under a lease to {}", now, until);
                            }
                        }
                        next += 1;
                    }
                    2 => {
                        // A true one, an old one, a doubled one, or a lie.
                        let number = u64::from(choice) % (next + 1);
                        let told = table.take(&Control::Grant { digest: digest(of), frame: frame(number) }, at(now));
                        if told == Ok(Told::Leased) {
                            let named = begun.iter().find(|(at, what, _)| (*at, *what) == (number, of));
                            let (_, _, begun) = named.expect("a lease for what was written inline");
                            let until = leased.entry(of).or_default();
                            *until = (*until).max(begun + 60);
                        }
                    }
                    _ => {
                        if table.take(&Control::Disclaim { digest: digest(of) }, at(now)).is_ok() {
                            leased.remove(&of);
                        }
                    }
                }
                prop_assert!(table.len() <= bound && table.notes() <= notes);
            }
        }
    }
}
