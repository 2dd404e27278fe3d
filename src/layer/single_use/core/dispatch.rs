//! From a grant to its end: begun, finished, or rolled back.

use super::{
    Grant, Ledger, Standing,
    entries::{MarkEntry, OperationEntry},
    judge::millis,
};
use crate::{
    layer::{
        boundary::Staging,
        single_use::{
            Consumed, Mark, Operation, Outcome, OutcomeUnknown, Refusal,
            guard::Guard,
            record::{MarkKey, OperationState, Owner, Progress},
        },
    },
    storage::commit::BudgetExhausted,
};

impl Ledger {
    /// Begins a call: once, and for the owner alone. What refuses it rolls it back in the same transition (law L12.2).
    ///
    /// # Errors
    /// [`Refusal`]; the call must not be made.
    pub(in super::super) fn begin(
        &mut self,
        grant: &Grant,
        standing: &Standing,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        self.whole(stage, |ledger, stage| {
            if !ledger.owns(grant, Progress::Reserved, Guard::BeginOwner, Guard::BeginOnce) {
                return Err(Refusal::Superseded);
            }
            match ledger.may_begin(grant, standing, stage) {
                Ok(()) => {}
                Err(Refusal::Capacity(exhausted)) => return Err(Refusal::Capacity(exhausted)),
                Err(refusal) => {
                    ledger.give_back(grant, stage)?;
                    return Err(refusal);
                }
            }
            ledger.advance(grant, OperationState::Dispatching, Progress::Dispatching, Guard::BeginStaged, stage)?;
            Ok(ledger.write_clock(ledger.clock, stage)?)
        })
    }

    /// Stop, clock, revocation, and what the marks and the operation say of themselves, read again.
    fn may_begin(&mut self, grant: &Grant, standing: &Standing, stage: &mut impl Staging) -> Result<(), Refusal> {
        let now = self.stand(standing, stage)?;
        if !self.guards.keep(Guard::ExpiredAtBegin) {
            return Ok(());
        }
        if let Some(operation) = &grant.operation {
            if millis(operation.deadline) <= now.now {
                return Err(Refusal::DeadlinePassed { deadline: operation.deadline, consumed: Consumed::No });
            }
            self.judge_operation(operation, &now)?;
        }
        self.judge_marks(&grant.marks, &now)
    }

    /// Records the end of a call, whatever the clock says: with an outcome where one may be kept (laws L12.3 and L12.4).
    ///
    /// # Errors
    /// [`OutcomeUnknown`]; that the call ended is recorded all the same, where the store takes it.
    pub(in super::super) fn finish(
        &mut self,
        grant: &Grant,
        outcome: Option<Outcome>,
        stage: &mut impl Staging,
    ) -> Result<(), OutcomeUnknown> {
        self.leave(grant.owner);
        if !self.owns(grant, Progress::Dispatching, Guard::BeginOwner, Guard::BeginOnce) {
            return Err(OutcomeUnknown::NotRecorded { reason: "it is not running for this caller".into() });
        }
        let bound = self.limits.outcome_max;
        let (state, mut result) = match outcome {
            Some(outcome) if outcome.bytes.len() > bound => {
                (OperationState::Unknown, Err(OutcomeUnknown::TooLarge { bytes: outcome.bytes.len(), bound }))
            }
            Some(outcome) => (OperationState::Finished(outcome), Ok(())),
            None => (OperationState::Unknown, Ok(())),
        };
        if grant.operation.is_none() {
            result = Ok(());
        }
        let before = self.undo.len();
        let staged = self.advance(grant, state, Progress::Committed, Guard::OutcomeStaged, stage);
        if let Err(exhausted) = staged {
            self.take_back(before, stage);
            // Without the outcome no record grows.
            let again = self.advance(grant, OperationState::Unknown, Progress::Committed, Guard::OutcomeStaged, stage);
            if again.is_err() {
                self.take_back(before, stage);
            }
            return Err(OutcomeUnknown::NoRoom(exhausted));
        }
        result
    }

    /// Gives back what the owner reserved and did not begin. It reads no clock (law L12.2). Whether there was something.
    pub(in super::super) fn rollback(&mut self, grant: &Grant, stage: &mut impl Staging) -> bool {
        let owned = self.owns(grant, Progress::Reserved, Guard::RollbackOwner, Guard::RollbackReserved);
        // A removal needs no room.
        owned && self.give_back(grant, stage).is_ok()
    }

    /// Whether the grant's owner is the owner, and has come to `progress`.
    fn owns(&self, grant: &Grant, progress: Progress, owner: Guard, state: Guard) -> bool {
        let right = |of: Owner, at: Progress| {
            (of == grant.owner || !self.guards.keep(owner)) && (at == progress || !self.guards.keep(state))
        };
        match &grant.operation {
            Some(operation) => self.operations.get(&operation.id).is_some_and(|entry| {
                let at = match &entry.record.state {
                    OperationState::Reserved => Progress::Reserved,
                    OperationState::Dispatching => Progress::Dispatching,
                    OperationState::Unknown | OperationState::Finished(_) => Progress::Committed,
                };
                right(entry.record.owner, at)
            }),
            None => grant.marks.iter().all(|mark| {
                let entry = self.marks.get(&MarkKey { kind: mark.kind, id: mark.id });
                entry.is_some_and(|entry| right(entry.record.owner, entry.record.progress))
            }),
        }
    }

    /// The marks that a grant stands for: an operation's all, those of earlier callers too.
    pub(super) fn granted(&self, operation: Option<&Operation>, marks: &[Mark]) -> Vec<MarkKey> {
        match operation {
            Some(operation) => self.operations.get(&operation.id).map(|entry| entry.record.marks.clone()),
            None => Some(marks.iter().map(|mark| MarkKey { kind: mark.kind, id: mark.id }).collect()),
        }
        .unwrap_or_default()
    }

    /// Moves an operation and its marks on; the operation is staged first. Without `staged`, which only a test takes away,
    /// they move in memory alone.
    fn advance(
        &mut self,
        grant: &Grant,
        state: OperationState,
        progress: Progress,
        staged: Guard,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        let staged = self.guards.keep(staged);
        let marks = self.granted(grant.operation.as_ref(), &grant.marks);
        if let Some(operation) = &grant.operation
            && let Some(entry) = self.operations.get(&operation.id)
        {
            let mut next: OperationEntry = entry.clone();
            next.record.state = state;
            match staged {
                true => self.write_operation(operation.id, Some(next), stage)?,
                false => drop(self.set_operation(operation.id, Some(next))),
            }
        }
        for key in marks {
            if let Some(entry) = self.marks.get(&key).copied()
                && grant.operation.is_none_or(|operation| entry.record.operation == Some(operation.id))
            {
                let mut next: MarkEntry = entry;
                next.record.progress = next.record.progress.max(progress);
                match staged {
                    true => self.write_mark(key, Some(next), stage)?,
                    false => drop(self.set_mark(key, Some(next))),
                }
            }
        }
        Ok(())
    }

    /// Removes an operation that has not begun, and its marks.
    fn give_back(&mut self, grant: &Grant, stage: &mut impl Staging) -> Result<(), Refusal> {
        let marks = self.granted(grant.operation.as_ref(), &grant.marks);
        let operation = grant.operation.map(|operation| operation.id);
        if let Some(id) = operation {
            self.write_operation(id, None, stage)?;
        }
        for key in marks {
            let mine = self.marks.get(&key).is_some_and(|entry| {
                let reserved =
                    entry.record.progress == Progress::Reserved || !self.guards.keep(Guard::RollbackReserved);
                reserved && entry.record.operation == operation
            });
            if mine {
                self.write_mark(key, None, stage)?;
            }
        }
        Ok(())
    }
}
