//! The counts against a list that is counted anew for every question.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::link::{LinkId, NoSlot};

/// What the laws say, word for word.
struct Naive {
    shares: Shares,
    streams: Vec<Introducer>,
    links: BTreeMap<u8, u16>,
    shared: Option<u16>,
}

impl Naive {
    fn held(&self, introducer: Introducer) -> u32 {
        u32::try_from(self.streams.iter().filter(|of| **of == introducer).count()).unwrap()
    }

    fn excesses(&self) -> BTreeMap<u16, u32> {
        let slots = (0..=u16::from(u8::MAX)).map(|slot| (slot, self.held(Introducer::Slot(slot))));
        slots
            .filter(|(_, held)| *held > self.shares.floor)
            .map(|(slot, held)| (slot, held - self.shares.floor))
            .collect()
    }

    fn permits(&self, introducer: Introducer) -> bool {
        let held = self.held(introducer);
        match introducer {
            Introducer::Inbox => held < self.shares.inbox,
            Introducer::Own => held < self.shares.own,
            Introducer::Slot(_) if held < self.shares.floor => true,
            Introducer::Slot(slot) => {
                let mut excesses = self.excesses();
                let total: u32 = excesses.values().sum();
                let own = *excesses.entry(slot).or_default();
                let n = u32::try_from(excesses.len()).unwrap();
                let claim = (0..).find(|claim| claim * n >= self.shares.pool).unwrap();
                total < self.shares.pool && own < claim
            }
        }
    }

    fn cleanest(&self) -> Option<u16> {
        let taken: Vec<u16> = self.links.values().copied().chain(self.shared).collect();
        let free = (0..self.shares.slots).filter(|slot| !taken.contains(slot));
        free.min_by_key(|slot| (self.held(Introducer::Slot(*slot)), *slot))
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open(u8),
    Retire(u8),
    Introduce(u8),
    Inbox,
    Own,
    Spend(usize),
    Slots(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let link = 0..6_u8;
    let step = prop_oneof![
        2 => link.clone().prop_map(Step::Open),
        2 => link.clone().prop_map(Step::Retire),
        12 => link.prop_map(Step::Introduce),
        1 => Just(Step::Inbox),
        1 => Just(Step::Own),
        3 => any::<usize>().prop_map(Step::Spend),
        1 => (0..5_u16).prop_map(Step::Slots),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn l10_3_charges_and_slots_are_what_a_plain_count_says(
        slots in 0..5_u16,
        floor in 0..4_u32,
        pool in 0..9_u32,
        (inbox, own) in (0..3_u32, 0..3_u32),
        steps in steps(),
    ) {
        let shares = Shares { slots, floor, pool, inbox, own };
        let mut naive = Naive { shares, streams: Vec::new(), links: BTreeMap::new(), shared: None };
        let (mut charges, mut slots) = (Charges::new(shares), Slots::new(shares.slots));
        for step in steps {
            let introducer = match step {
                Step::Open(link) if !naive.links.contains_key(&link) => {
                    let expected = naive.cleanest().ok_or(NoSlot { slots: naive.shares.slots });
                    prop_assert_eq!(slots.open(LinkId::of(link), &charges), expected);
                    expected.ok().map(|slot| naive.links.insert(link, slot));
                    continue;
                }
                Step::Retire(link) => {
                    naive.links.remove(&link);
                    slots.retire(&LinkId::of(link));
                    continue;
                }
                Step::Spend(place) if !naive.streams.is_empty() => {
                    let place = place % naive.streams.len();
                    charges.give_back(naive.streams.swap_remove(place));
                    continue;
                }
                Step::Slots(count) => {
                    // A restart with another R: charges are restored, links are gone.
                    naive.shares.slots = count;
                    naive.links.clear();
                    naive.shared = None;
                    (charges, slots) = (Charges::new(naive.shares), Slots::new(count));
                    naive.streams.iter().for_each(|introducer| charges.charge(*introducer));
                    continue;
                }
                Step::Introduce(link) => {
                    let known = naive.links.get(&link).copied().or(naive.shared);
                    let expected = known.or_else(|| naive.cleanest()).ok_or(NoSlot { slots: naive.shares.slots });
                    prop_assert_eq!(slots.of(&LinkId::of(link), &charges), expected);
                    let Ok(slot) = expected else { continue };
                    if naive.permits(Introducer::Slot(slot)) {
                        slots.introduced(&LinkId::of(link), slot);
                        if known.is_none() {
                            naive.shared = Some(slot);
                        }
                    }
                    Introducer::Slot(slot)
                }
                Step::Inbox => Introducer::Inbox,
                Step::Own => Introducer::Own,
                Step::Open(_) | Step::Spend(_) => continue,
            };
            prop_assert_eq!(charges.permits(introducer).is_ok(), naive.permits(introducer), "{}", introducer);
            if naive.permits(introducer) {
                naive.streams.push(introducer);
                charges.charge(introducer);
            }
            let excesses = naive.excesses();
            prop_assert_eq!(charges.pool(), excesses.values().sum::<u32>());
            prop_assert!(charges.pool() <= pool);
            prop_assert!(charges.past_floor().eq(excesses.keys().map(|slot| Introducer::Slot(*slot))));
            prop_assert_eq!(charges.held(introducer), naive.held(introducer));
            prop_assert_eq!(slots.used().1, naive.links.len() + usize::from(naive.shared.is_some()));
        }
    }
}

#[test]
fn l10_3_the_default_shares_are_the_published_ones() {
    let default = Shares::default();
    assert_eq!((default.slots, default.floor, default.pool, default.inbox, default.own), (328, 32, 3_328, 768, 1_024));
    assert_eq!(default.total(), 15_616);
    let of = |successors: u16| Shares { slots: 2 * (160 + successors + 1), ..default }.total();
    assert_eq!((of(3), of(4), of(15), of(16)), (15_616, 15_680, 16_384, 16_448));
}

#[test]
fn l10_3_a_fair_claim_is_rounded_up_and_n_counts_the_slot_itself() {
    let shares = Shares { slots: 3, floor: 1, pool: 4, inbox: 0, own: 0 };
    let mut charges = Charges::new(shares);
    let [first, second, third] = [0, 1, 2].map(Introducer::Slot);
    for introducer in [first, first, second, second, third] {
        assert_eq!(charges.permits(introducer), Ok(()));
        charges.charge(introducer);
    }
    // Two are past their floors; the third counts itself when it asks, and claims are then ⌈4/3⌉ = 2.
    assert_eq!(charges.permits(third), Ok(()));
    charges.charge(third);
    assert_eq!(charges.permits(first), Ok(()));
    charges.charge(first);
    assert_eq!(charges.permits(first), Err(Bound::Claim { floor: 1, claim: 2 }));
    assert_eq!(charges.permits(second), Err(Bound::Pool { floor: 1, pool: 4 }));
}
