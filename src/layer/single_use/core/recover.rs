//! The sweep over what is not finished (law L12.4).

use std::ops::Bound;

use super::{Item, Ledger};
use crate::layer::{
    boundary::Staging,
    single_use::{
        OperationId,
        guard::Guard,
        record::{OperationState, Progress},
    },
};

/// What one page of the sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Page {
    pub(in super::super) visited: usize,
    pub(in super::super) released: usize,
    pub(in super::super) unknown: usize,
    pub(in super::super) running: usize,
    /// Where the next page goes on; `None` at the end.
    pub(in super::super) next: Option<Item>,
}

impl Ledger {
    /// Visits up to `most` unfinished items after `after`: releases those that were reserved and that nobody can begin any
    /// more. It reads no clock.
    pub(in super::super) fn recover(&mut self, after: Option<Item>, most: usize, stage: &mut impl Staging) -> Page {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let items: Vec<Item> = self.unfinished.range((from, Bound::Unbounded)).take(most).copied().collect();
        let mut page = Page { next: items.last().copied().filter(|_| items.len() == most), ..Page::default() };
        for item in items {
            match item {
                Item::Operation(id) => self.recover_operation(id, &mut page, stage),
                Item::Mark(key) => {
                    let Some(entry) = self.marks.get(&key) else { continue };
                    // An operation's marks go with it.
                    if entry.record.operation.is_some_and(|operation| self.operations.contains_key(&operation)) {
                        continue;
                    }
                    page.visited += 1;
                    if self.abandoned(entry.record.owner) {
                        // A removal needs no room.
                        page.released += usize::from(self.write_mark(key, None, stage).is_ok());
                    } else {
                        page.running += 1;
                    }
                }
            }
        }
        page
    }

    fn recover_operation(&mut self, id: OperationId, page: &mut Page, stage: &mut impl Staging) {
        let Some(entry) = self.operations.get(&id) else { return };
        page.visited += 1;
        let abandoned = self.abandoned(entry.record.owner);
        match &entry.record.state {
            OperationState::Finished(_) => {}
            OperationState::Unknown => page.unknown += 1,
            OperationState::Dispatching if abandoned && self.guards.keep(Guard::ReleaseAbandoned) => page.unknown += 1,
            OperationState::Reserved | OperationState::Dispatching if abandoned => {
                let marks = entry.record.marks.clone();
                let mut released = self.write_operation(id, None, stage).is_ok();
                for key in marks {
                    let mine = self.marks.get(&key).is_some_and(|mark| {
                        let reserved = mark.record.progress == Progress::Reserved;
                        mark.record.operation == Some(id) && (reserved || !self.guards.keep(Guard::ReleaseAbandoned))
                    });
                    if mine {
                        released &= self.write_mark(key, None, stage).is_ok();
                    }
                }
                page.released += usize::from(released);
            }
            OperationState::Reserved | OperationState::Dispatching => page.running += 1,
        }
    }
}
