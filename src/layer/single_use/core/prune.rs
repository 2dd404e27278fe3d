//! What is forgotten, and the floor that stays in its place (law L12.6).

use std::time::Duration;

use super::{Item, Ledger, Now};
use crate::{
    clock::WallMs,
    layer::{
        boundary::Staging,
        single_use::{
            Refusal,
            guard::Guard,
            record::{OperationState, Owner, Progress, Subject},
        },
    },
};

/// The most records that a presentation prunes of its subjects each, and of all.
pub(super) const PRUNES: usize = 4;

/// What pruning asks of a record.
struct Look {
    since: Duration,
    expires: WallMs,
    /// Its owner, while the call may go on.
    owner: Option<Owner>,
}

impl Ledger {
    /// Looks at the oldest few records of `subjects`, and of all, and removes what has waited and expired. The floor is
    /// staged with it. What has waited and may not be removed yet goes to the end, so that a few looks always suffice.
    pub(super) fn prune(&mut self, subjects: &[Subject], now: &Now, stage: &mut impl Staging) -> Result<(), Refusal> {
        let wait = self.wait();
        let mut clock = self.clock;
        for (at, subject) in subjects.iter().enumerate() {
            if !subjects.iter().take(at).any(|other| other == subject) {
                for place in self.subjects.oldest(subject, PRUNES) {
                    if !self.prune_at(place, wait, now, &mut clock, stage)? {
                        break;
                    }
                }
            }
        }
        let oldest: Vec<u64> = self.order.keys().take(PRUNES).copied().collect();
        for place in oldest {
            if !self.prune_at(place, wait, now, &mut clock, stage)? {
                break;
            }
        }
        if clock != self.clock {
            if !self.guards.keep(Guard::FloorStaged) {
                self.clock = clock;
                return Ok(());
            }
            self.write_clock(clock, stage)?;
        }
        Ok(())
    }

    /// How long a record waits after it was written or loaded.
    pub(super) fn wait(&self) -> Duration {
        let (sigma, lifetime) = self.greatest();
        match self.guards.keep(Guard::PruneWait) {
            true => Duration::from_millis(lifetime.saturating_add(sigma)),
            false => Duration::ZERO,
        }
    }

    /// Looks at one place. `false` where it has not waited long enough, and nothing after it has.
    fn prune_at(
        &mut self,
        place: u64,
        wait: Duration,
        now: &Now,
        clock: &mut super::ClockRecord,
        stage: &mut impl Staging,
    ) -> Result<bool, Refusal> {
        let Some(item) = self.order.get(&place).copied() else { return Ok(true) };
        let Some(look) = self.look(&item) else { return Ok(true) };
        if look.since.saturating_add(wait) > now.monotonic {
            return Ok(false);
        }
        let held = look.owner.is_some_and(|owner| !self.abandoned(owner)) && self.guards.keep(Guard::PruneHeld);
        let expired = look.expires <= now.now || !self.guards.keep(Guard::PruneExpired);
        if held || !expired {
            self.move_to_end(&item);
            return Ok(true);
        }
        clock.raise(item.table(), look.expires);
        match item {
            Item::Mark(key) => self.write_mark(key, None, stage)?,
            Item::Operation(id) => self.write_operation(id, None, stage)?,
        }
        Ok(true)
    }

    fn look(&self, item: &Item) -> Option<Look> {
        match item {
            Item::Mark(key) => self.marks.get(key).map(|entry| Look {
                since: entry.since,
                expires: entry.record.kept_until,
                owner: (entry.record.progress != Progress::Committed).then_some(entry.record.owner),
            }),
            Item::Operation(id) => self.operations.get(id).map(|entry| Look {
                since: entry.since,
                expires: entry.record.deadline,
                owner: matches!(entry.record.state, OperationState::Reserved | OperationState::Dispatching)
                    .then_some(entry.record.owner),
            }),
        }
    }

    fn move_to_end(&mut self, item: &Item) {
        let place = self.next_place();
        match item {
            Item::Mark(key) => {
                if let Some(mut entry) = self.marks.get(key).copied() {
                    entry.place = place;
                    self.set_mark(*key, Some(entry));
                }
            }
            Item::Operation(id) => {
                if let Some(mut entry) = self.operations.get(id).cloned() {
                    entry.place = place;
                    self.set_operation(*id, Some(entry));
                }
            }
        }
    }
}
