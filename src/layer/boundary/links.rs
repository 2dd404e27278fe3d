//! Which links are open, and what they hold.

use super::core::Boundary;
use crate::link::{LinkId, NoSlot};

impl Boundary {
    /// A link takes a slot with its first lane (law L10.3).
    pub(super) fn open_link(&mut self, link: LinkId) -> Result<u16, NoSlot> {
        let slot = self.slots.open(link, self.streams.charges())?;
        self.open_windows(link);
        Ok(slot)
    }

    /// A link is retired, by the last of its guards: its slot is free and its volatile windows are gone (law L6.2). Its
    /// charges stay (law L10.4).
    pub(super) fn retire_link(&mut self, link: &LinkId) {
        if self.slots.retire(link) {
            self.retire_windows(link);
        }
    }

    /// How many slots there are, and how many of them are taken.
    pub(super) fn slots(&self) -> (usize, usize) {
        self.slots.used()
    }

    /// How many streams slots hold past their floors.
    pub(super) fn pool(&self) -> u32 {
        self.streams.charges().pool()
    }
}
