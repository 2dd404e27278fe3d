//! What is refused for what it says of itself, before it is looked for.

use super::{Ledger, Now, Standing, place};
use crate::{
    clock::WallMs,
    layer::{
        boundary::Staging,
        single_use::{Capacity, Consumed, MARKS_MAX, Mark, Operation, Refusal, guard::Guard, record::Subject},
    },
    storage::Table,
};

impl Ledger {
    /// Reads what a presentation is judged under, in the order of law L12.5: the stop, the clock, revocation.
    pub(super) fn stand(&mut self, standing: &Standing, stage: &mut impl Staging) -> Result<Now, Refusal> {
        let (reading, revoked) = match standing {
            Standing::Stopped => return Err(Refusal::Stopped { consumed: Consumed::No }),
            Standing::Live { reading, revoked } => (reading, revoked),
        };
        let now = self.read(reading, stage)?;
        match revoked {
            Some(capability) => Err(Refusal::Revoked { capability: *capability, consumed: Consumed::No }),
            None => Ok(now),
        }
    }

    /// Refuses marks for what they say of themselves.
    pub(super) fn judge_marks(&self, marks: &[Mark], now: &Now) -> Result<(), Refusal> {
        if marks.len() > MARKS_MAX {
            return Err(Refusal::TooManyMarks { count: marks.len() });
        }
        marks.iter().try_for_each(|mark| self.judge_mark(mark, now))
    }

    /// Refuses a mark for what it says of itself.
    pub(super) fn judge_mark(&self, mark: &Mark, now: &Now) -> Result<(), Refusal> {
        let table = mark.kind.table();
        self.judge_table(table)?;
        let until = mark.valid_until.min(mark.expires_at);
        if self.guards.keep(Guard::Expired) && millis(until) <= now.now {
            return Err(Refusal::Expired { expires_at: until });
        }
        self.judge_lifetime(mark.valid_until.max(mark.expires_at), now)?;
        self.judge_issue(mark.issued_at, mark.expires_at, table, now)
    }

    /// Refuses an operation for what it says of itself; its deadline was looked at before.
    pub(super) fn judge_operation(&self, operation: &Operation, now: &Now) -> Result<(), Refusal> {
        self.judge_lifetime(operation.deadline, now)?;
        self.judge_issue(operation.issued_at, operation.deadline, Table::Operation, now)
    }

    /// Refuses everything of a table that is closed (law L11.2).
    pub(super) fn judge_table(&self, table: Table) -> Result<(), Refusal> {
        match self.closed_table(table) {
            Some(reason) if self.guards.keep(Guard::Closed) => {
                Err(Refusal::Unavailable { table, reason: reason.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn judge_lifetime(&self, expires_at: i64, now: &Now) -> Result<(), Refusal> {
        let lifetime = self.limits.lifetime;
        if self.guards.keep(Guard::Lifetime) && millis(expires_at) > now.now.saturating_add(lifetime) {
            return Err(Refusal::LifetimeTooLong { expires_at, greatest_s: lifetime / 1_000 });
        }
        Ok(())
    }

    /// The birth mark, and the floors (laws L9.9 and L12.6).
    fn judge_issue(&self, issued_at: Option<i64>, expires_at: i64, table: Table, now: &Now) -> Result<(), Refusal> {
        let mark = self.mark();
        let mut floor = if self.guards.keep(Guard::Floor) { self.clock.floor(table) } else { 0 };
        match (issued_at, mark) {
            (Some(issued_at), Some(mark)) if self.guards.keep(Guard::BirthMark) && millis(issued_at) <= mark => {
                return Err(Refusal::IssuedBeforeMark { issued_at, mark_ms: mark });
            }
            (None, Some(mark)) if self.guards.keep(Guard::BirthFloor) => {
                floor = floor.max(mark.saturating_add(self.greatest().1));
            }
            _ => {}
        }
        if let Some(issued_at) = issued_at
            && self.guards.keep(Guard::NotYetValid)
            && millis(issued_at) > now.wall.saturating_add(self.limits.sigma)
        {
            return Err(Refusal::NotYetValid { issued_at, sigma_ms: self.limits.sigma });
        }
        if millis(expires_at) <= floor {
            return Err(Refusal::BelowFloor { expires_at, floor: seconds(floor) });
        }
        Ok(())
    }

    /// Refuses `more` records of `subject` in `table`, of which there are `more_in_all` by others too.
    pub(super) fn judge_room(
        &self,
        subject: &Subject,
        table: Table,
        more: usize,
        more_in_all: usize,
    ) -> Result<(), Refusal> {
        let places = self.limits.places(table);
        if self.subjects.count(subject, table) + more > places.per_subject {
            return Err(Refusal::Capacity(Capacity::PerSubject { table, bound: places.per_subject }));
        }
        let held = self.sizes().get(place(table)).copied().unwrap_or(usize::MAX);
        if held.saturating_add(more_in_all) > places.in_all {
            return Err(Refusal::Capacity(Capacity::InAll { table, bound: places.in_all }));
        }
        Ok(())
    }
}

/// Unix seconds as milliseconds; an instant before 1970 is 1970.
pub(super) fn millis(seconds: i64) -> WallMs {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000)
}

/// Milliseconds as unix seconds, rounded up.
pub(super) fn seconds(instant: WallMs) -> i64 {
    i64::try_from(instant.div_ceil(1_000)).unwrap_or(i64::MAX)
}
