use super::{Bound, Introducer, Shares};

/// How many streams each introducer holds. See the room's docs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Charges {
    shares: Shares,
    /// By slot: those that are, and as many of those that vanished as hold anything.
    slots: Vec<u32>,
    inbox: u32,
    own: u32,
    /// What slots hold past their floors, in all.
    pool: u32,
    /// How many slots hold more than their floor.
    over: u32,
}

impl Charges {
    pub(crate) fn new(shares: Shares) -> Self {
        Self { shares, slots: vec![0; usize::from(shares.slots)], inbox: 0, own: 0, pool: 0, over: 0 }
    }

    /// How many streams `introducer` holds.
    pub(crate) fn held(&self, introducer: Introducer) -> u32 {
        match introducer {
            Introducer::Slot(slot) => self.slots.get(usize::from(slot)).copied().unwrap_or_default(),
            Introducer::Inbox => self.inbox,
            Introducer::Own => self.own,
        }
    }

    /// What slots hold past their floors, in all.
    pub(crate) const fn pool(&self) -> u32 {
        self.pool
    }

    /// Whether slots hold as much past their floors as they may.
    pub(crate) const fn pool_is_used_up(&self) -> bool {
        self.pool >= self.shares.pool
    }

    /// The slots that hold more than their floor, those that vanished included.
    pub(crate) fn past_floor(&self) -> impl Iterator<Item = Introducer> {
        let slots = self.slots.iter().enumerate().filter(|(_, held)| **held > self.shares.floor);
        slots.filter_map(|(slot, _)| u16::try_from(slot).ok().map(Introducer::Slot))
    }

    /// Whether `introducer` may hold one more.
    ///
    /// # Errors
    /// The bound that refuses. Where a slot is past its claim and the pool is used up, the claim, which is its own doing.
    pub(crate) fn permits(&self, introducer: Introducer) -> Result<(), Bound> {
        let Shares { floor, pool, inbox, own, .. } = self.shares;
        let held = self.held(introducer);
        let share = match introducer {
            Introducer::Slot(_) => {
                let Some(excess) = held.checked_sub(floor) else { return Ok(()) };
                let past = self.over + u32::from(excess == 0);
                let claim = pool.div_ceil(past.max(1));
                return match (excess < claim, self.pool < pool) {
                    (true, true) => Ok(()),
                    (true, false) => Err(Bound::Pool { floor, pool }),
                    (false, _) => Err(Bound::Claim { floor, claim }),
                };
            }
            Introducer::Inbox => inbox,
            Introducer::Own => own,
        };
        if held < share { Ok(()) } else { Err(Bound::Share { share }) }
    }

    /// Charges one stream, permitted or not: a restored or undone one is charged whatever the shares are now.
    pub(crate) fn charge(&mut self, introducer: Introducer) {
        let held = self.held_mut(introducer);
        *held += 1;
        let (held, floor) = (*held, self.shares.floor);
        if matches!(introducer, Introducer::Slot(_)) && held > floor {
            self.pool += 1;
            self.over += u32::from(held - 1 == floor);
        }
    }

    /// Gives back what [`Charges::charge`] took.
    pub(crate) fn give_back(&mut self, introducer: Introducer) {
        let held = self.held_mut(introducer);
        debug_assert!(*held > 0, "{introducer} gives back what it does not hold");
        let before = std::mem::replace(held, held.saturating_sub(1));
        if matches!(introducer, Introducer::Slot(_)) && before > self.shares.floor {
            self.pool -= 1;
            self.over -= u32::from(before - 1 == self.shares.floor);
        }
        while self.slots.len() > usize::from(self.shares.slots) && self.slots.last() == Some(&0) {
            self.slots.pop();
        }
    }

    fn held_mut(&mut self, introducer: Introducer) -> &mut u32 {
        match introducer {
            Introducer::Slot(slot) => {
                let place = usize::from(slot);
                if place >= self.slots.len() {
                    self.slots.resize(place + 1, 0);
                }
                &mut self.slots[place]
            }
            Introducer::Inbox => &mut self.inbox,
            Introducer::Own => &mut self.own,
        }
    }
}
