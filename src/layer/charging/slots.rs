use std::collections::HashMap;

use super::{Charges, Introducer};
use crate::link::{LinkId, NoSlot};

/// Which link has which slot. See the room's docs.
#[derive(Debug)]
pub(crate) struct Slots {
    taken: Vec<bool>,
    links: HashMap<LinkId, Taken>,
    /// The slot of links that nobody announced.
    shared: Option<u16>,
}

/// A link's slot, and how many guards keep it.
#[derive(Debug)]
struct Taken {
    slot: u16,
    guards: usize,
}

impl Slots {
    /// `slots` slots, all free.
    pub(crate) fn new(slots: u16) -> Self {
        Self { taken: vec![false; usize::from(slots)], links: HashMap::new(), shared: None }
    }

    /// How many slots there are, and how many of them are taken.
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.taken.len(), self.taken.iter().filter(|taken| **taken).count())
    }

    /// Gives `link` the cleanest free slot, or once more the one that it has.
    pub(crate) fn open(&mut self, link: LinkId, charges: &Charges) -> Result<u16, NoSlot> {
        if let Some(taken) = self.links.get_mut(&link) {
            taken.guards += 1;
            return Ok(taken.slot);
        }
        let slot = self.cleanest(charges)?;
        self.mark(slot, true);
        self.links.insert(link, Taken { slot, guards: 1 });
        Ok(slot)
    }

    /// One guard of `link` is gone; with the last one its slot is free. Says whether it was that.
    pub(crate) fn retire(&mut self, link: &LinkId) -> bool {
        let Some(taken) = self.links.get_mut(link) else { return false };
        taken.guards -= 1;
        let Taken { slot, guards } = *taken;
        if guards == 0 {
            self.links.remove(link);
            self.mark(slot, false);
        }
        guards == 0
    }

    /// The slot of `link`; for one that nobody announced the shared one, or the one that would become it.
    pub(crate) fn of(&self, link: &LinkId, charges: &Charges) -> Result<u16, NoSlot> {
        match self.links.get(link).map(|taken| taken.slot).or(self.shared) {
            Some(slot) => Ok(slot),
            None => self.cleanest(charges),
        }
    }

    /// `link` introduced a stream on `slot`, which [`Slots::of`] named: from now on the shared slot, if nobody announced
    /// the link.
    pub(crate) fn introduced(&mut self, link: &LinkId, slot: u16) {
        if self.shared.is_none() && !self.links.contains_key(link) {
            self.shared = Some(slot);
            self.mark(slot, true);
        }
    }

    /// The free slot that holds the fewest streams; of equals the lowest.
    fn cleanest(&self, charges: &Charges) -> Result<u16, NoSlot> {
        let slots = u16::try_from(self.taken.len()).unwrap_or(u16::MAX);
        let free = self.taken.iter().zip(0..slots).filter(|(taken, _)| !**taken).map(|(_, slot)| slot);
        free.min_by_key(|slot| charges.held(Introducer::Slot(*slot))).ok_or(NoSlot { slots })
    }

    fn mark(&mut self, slot: u16, taken: bool) {
        if let Some(mark) = self.taken.get_mut(usize::from(slot)) {
            *mark = taken;
        }
    }
}
