use std::time::Duration;

use super::{Now, Terms};
use crate::{clock::WallMs, identity::DelegationDigest};

/// The receiver's end: the delegations that its peer may refer to (laws L4.2 to L4.5). See the [module](super).
///
/// `V` is what a digest resolves to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReceiverTable<V> {
    terms: Terms,
    bound: usize,
    /// Least recently referenced first.
    entries: Vec<Entry<V>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry<V> {
    digest: DelegationDigest,
    value: V,
    /// Not evicted before.
    keep_until: Duration,
    /// The delegation's own end.
    expires_at: WallMs,
}

impl<V: Clone> ReceiverTable<V> {
    /// An empty table of at most `bound` entries.
    pub(crate) const fn new(terms: Terms, bound: usize) -> Self {
        Self { terms, bound, entries: Vec::new() }
    }

    /// What a reference in a frame that is read now stands for; `None` is a miss.
    pub(crate) fn resolve(&mut self, digest: &DelegationDigest, now: Now) -> Option<V> {
        self.drop_if_over(digest, now.wall);
        let place = self.place(digest)?;
        Some(self.referenced(place)?.value.clone())
    }

    /// A frame that was read at `read_at` carried this delegation inline, and has verified. Whether it is held from now
    /// on for at least a lease and two delivery bounds from then, so that a lease may be granted.
    ///
    /// It is not while the table is full of entries whose time has not come (law L4.4), where the delegation is over,
    /// and where a lease of that frame would be over already.
    pub(crate) fn verified(
        &mut self,
        digest: &DelegationDigest,
        value: impl FnOnce() -> V,
        expires_at: WallMs,
        read_at: Duration,
        now: Now,
    ) -> bool {
        let lease_over = now.at >= read_at.saturating_add(self.terms.lease);
        if lease_over || self.terms.is_over(expires_at, now.wall) {
            return false;
        }
        let keep_until = read_at.saturating_add(self.terms.lease).saturating_add(self.terms.delivery.saturating_mul(2));
        if let Some(place) = self.place(digest) {
            if let Some(entry) = self.referenced(place) {
                entry.keep_until = entry.keep_until.max(keep_until);
            }
            return true;
        }
        if self.entries.len() >= self.bound && !self.make_room(now) {
            return false;
        }
        self.entries.push(Entry { digest: *digest, value: value(), keep_until, expires_at });
        true
    }

    /// How many delegations it holds.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Evicts what is over, else the least recently referenced of those that may be evicted.
    fn make_room(&mut self, now: Now) -> bool {
        let terms = self.terms;
        let before = self.entries.len();
        self.entries.retain(|entry| !terms.is_over(entry.expires_at, now.wall));
        if self.entries.len() < before {
            return self.entries.len() < self.bound;
        }
        let Some(place) = self.entries.iter().position(|entry| entry.keep_until <= now.at) else { return false };
        self.entries.remove(place);
        true
    }

    fn drop_if_over(&mut self, digest: &DelegationDigest, wall: WallMs) {
        let terms = self.terms;
        self.entries.retain(|entry| entry.digest != *digest || !terms.is_over(entry.expires_at, wall));
    }

    fn place(&self, digest: &DelegationDigest) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.digest == *digest)
    }

    /// Makes the entry at `place` the most recently referenced.
    fn referenced(&mut self, place: usize) -> Option<&mut Entry<V>> {
        self.entries.get_mut(place..)?.rotate_left(1);
        self.entries.last_mut()
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

    fn verified(table: &mut ReceiverTable<u8>, of: u8, read_at: u64, now: u64) -> bool {
        table.verified(&digest(of), || of, NEVER, Duration::from_secs(read_at), at(now))
    }

    #[test]
    fn l4_2_only_what_verified_resolves() {
        let mut table = ReceiverTable::new(TERMS, 2);
        assert_eq!(table.resolve(&digest(1), at(0)), None);
        assert!(verified(&mut table, 1, 0, 0));
        assert_eq!(table.resolve(&digest(1), at(0)), Some(1));
        assert_eq!(table.resolve(&digest(2), at(0)), None);
    }

    #[test]
    fn l4_4_a_table_full_of_leased_entries_grants_nothing_new_and_renews_what_it_has() {
        let mut table = ReceiverTable::new(TERMS, 2);
        assert!(verified(&mut table, 1, 0, 0) && verified(&mut table, 2, 1, 1));
        assert!(!verified(&mut table, 3, 79, 79), "both are kept for 80 s");
        assert!(verified(&mut table, 1, 79, 79), "no room is needed for it");
        assert!(!verified(&mut table, 3, 80, 80), "the first was renewed, the other was read at 1");
        assert!(verified(&mut table, 3, 81, 81));
        assert_eq!([1, 2, 3].map(|of| table.resolve(&digest(of), at(81)).is_some()), [true, false, true]);
    }

    #[test]
    fn l4_4_after_its_lease_an_entry_stays_until_room_is_needed_and_the_least_recently_referenced_goes_first() {
        let mut table = ReceiverTable::new(TERMS, 3);
        assert!([1, 2, 3].into_iter().all(|of| verified(&mut table, of, 0, 0)));
        assert_eq!(table.resolve(&digest(1), at(10_000)), Some(1), "nobody needed the room");
        assert!(verified(&mut table, 4, 10_000, 10_000));
        let held = [1, 2, 3, 4].map(|of| table.resolve(&digest(of), at(10_000)).is_some());
        assert_eq!(held, [true, false, true, true]);
    }

    #[test]
    fn l4_3_it_is_kept_from_when_its_frame_was_read_not_from_when_it_verified() {
        let mut table = ReceiverTable::new(TERMS, 1);
        assert!(verified(&mut table, 1, 0, 59), "it waited in its lane, and the lease has a second left");
        assert!(!verified(&mut table, 2, 79, 79));
        assert!(verified(&mut table, 2, 80, 80));
        assert!(!verified(&mut table, 1, 80, 140), "its lease would be over when it begins");
    }

    #[test]
    fn l4_3_an_older_frame_that_verifies_later_shortens_nothing() {
        let mut table = ReceiverTable::new(TERMS, 1);
        assert!(verified(&mut table, 1, 30, 30));
        assert!(verified(&mut table, 1, 10, 31));
        assert!(!verified(&mut table, 2, 109, 109));
        assert!(verified(&mut table, 2, 110, 110));
    }

    #[test]
    fn l4_8_a_delegation_is_absent_once_its_end_and_sigma_passed() {
        let mut table = ReceiverTable::new(TERMS, 1);
        let ends = at(20).wall;
        assert!(table.verified(&digest(1), || 1, ends, Duration::ZERO, at(0)));
        assert_eq!(table.resolve(&digest(1), at(22)), Some(1));
        assert!(!verified(&mut table, 2, 22, 22), "leased");
        assert!(verified(&mut table, 2, 23, 23), "it makes room, though its lease runs on");
        assert_eq!(table.resolve(&digest(1), at(23)), None);
        assert!(!table.verified(&digest(1), || 1, ends, Duration::from_secs(23), at(23)));

        let mut table = ReceiverTable::new(TERMS, 1);
        assert!(table.verified(&digest(1), || 1, ends, Duration::ZERO, at(0)));
        assert_eq!(table.resolve(&digest(1), at(23)), None);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_bound_of_zero_holds_nothing() {
        let mut table = ReceiverTable::new(TERMS, 0);
        assert!(!verified(&mut table, 1, 0, 0));
        assert_eq!(table.len(), 0);
    }

    proptest! {
        /// Whatever a peer sends: the bound holds, nothing is evicted before its time, and what resolves was verified.
        #[test]
        fn l4_4_no_leased_entry_is_evicted_and_the_bound_holds(
            bound in 0_usize..5,
            steps in prop::collection::vec((0_u64..30, 0_u64..70, 0_u8..8, any::<bool>()), 1..200),
        ) {
            let (mut table, mut now) = (ReceiverTable::new(TERMS, bound), 100);
            let mut kept = HashMap::<u8, u64>::new();
            for (passed, waited, of, verifies) in steps {
                now += passed;
                if verifies {
                    let read_at = now - waited;
                    let full = kept.iter().filter(|(_, until)| **until > now).count() >= bound;
                    let held = verified(&mut table, of, read_at, now);
                    if held {
                        let until = kept.entry(of).or_default();
                        *until = (*until).max(read_at + 80);
                    } else {
                        let leased = kept.get(&of).is_some_and(|until| *until > now);
                        prop_assert!(waited >= 60 || (full && !leased), "refused with room");
                    }
                } else {
                    let resolved = table.resolve(&digest(of), at(now));
                    prop_assert!(resolved.is_none_or(|value| value == of && kept.contains_key(&of)));
                }
                prop_assert!(table.len() <= bound);
                for (of, until) in &kept {
                    let there = table.entries.iter().any(|entry| entry.digest == digest(*of));
                    prop_assert!(there || *until <= now, "{} was evicted before {}", of, until);
                }
            }
        }
    }
}
