//! Presentations: marks alone, and operations with theirs.

use super::{
    Ledger, Now, Standing,
    entries::{MarkEntry, OperationEntry, charge, kept_until, shown},
    judge::millis,
};
use crate::{
    layer::{
        boundary::Staging,
        single_use::{
            Capacity, Consumed, Mark, MarkState, Operation, OperationId, Outcome, Refusal,
            guard::Guard,
            record::{MarkKey, MarkRecord, OPERATION_MARKS, OperationRecord, OperationState, Owner, Progress, Subject},
        },
    },
    storage::Table,
};

/// What a caller was given: it alone may begin, finish and roll back.
#[derive(Debug, Clone)]
pub(in super::super) struct Grant {
    pub(in super::super) owner: Owner,
    pub(in super::super) operation: Option<Operation>,
    pub(in super::super) marks: Vec<Mark>,
}

/// What became of a presented operation.
#[derive(Debug, Clone)]
pub(in super::super) enum Presented {
    /// It is reserved for this caller.
    Run(Grant),
    /// It ended before.
    Recorded(Outcome),
    /// Another caller of this process has it: wait for that one.
    Wait,
}

/// How far a presented operation has come.
enum Found {
    Absent,
    Reserved,
    Running,
    Recorded(Outcome),
}

impl Ledger {
    /// Consumes a mark at once: whether it was fresh (law L12.1).
    ///
    /// # Errors
    /// [`Refusal`]; nothing changed.
    pub(in super::super) fn reserve_until(
        &mut self,
        mark: &Mark,
        standing: &Standing,
        stage: &mut impl Staging,
    ) -> Result<bool, Refusal> {
        self.whole(stage, |ledger, stage| {
            let now = ledger.stand(standing, stage)?;
            let marks = std::slice::from_ref(mark);
            ledger.judge_marks(marks, &now)?;
            match ledger.look_for(marks, None, &now, stage) {
                Ok(()) => {}
                Err(Refusal::Replayed { .. } | Refusal::RecordDamaged { .. }) => return Ok(false),
                Err(refusal) => return Err(refusal),
            }
            ledger.make_room(None, marks, &now, stage)?;
            // Nobody's to begin or to roll back.
            let owner = Owner { epoch: ledger.clock.epoch, serial: 0 };
            ledger.put_mark(mark, Progress::Committed, owner, None, &now, stage)?;
            ledger.write_clock(ledger.clock, stage)?;
            Ok(true)
        })
    }

    /// Reserves all of `marks`, or none (law L12.2).
    ///
    /// # Errors
    /// [`Refusal`]; a mark that was presented before is kept for longer where this one says so.
    pub(in super::super) fn reserve(
        &mut self,
        marks: &[Mark],
        standing: &Standing,
        stage: &mut impl Staging,
    ) -> Result<Grant, Refusal> {
        self.whole(stage, |ledger, stage| {
            let now = ledger.stand(standing, stage)?;
            ledger.judge_marks(marks, &now)?;
            ledger.look_for(marks, None, &now, stage)?;
            ledger.make_room(None, marks, &now, stage)?;
            ledger.grant(None, marks, &now, stage)
        })
    }

    /// Presents an operation with its marks, and decides in one transition (law L12.4).
    ///
    /// # Errors
    /// [`Refusal`]; what was there is intact, but that a mark may be kept for longer.
    pub(in super::super) fn present(
        &mut self,
        operation: &Operation,
        marks: &[Mark],
        standing: &Standing,
        stage: &mut impl Staging,
    ) -> Result<Presented, Refusal> {
        self.whole(stage, |ledger, stage| {
            let now = ledger.stand(standing, stage)?;
            match ledger.look_up(operation, &now)? {
                Found::Recorded(outcome) => return Ok(Presented::Recorded(outcome)),
                Found::Running => return Ok(Presented::Wait),
                Found::Absent | Found::Reserved => {}
            }
            ledger.judge_operation(operation, &now)?;
            ledger.judge_marks(marks, &now)?;
            ledger.look_for(marks, Some(&operation.id), &now, stage)?;
            ledger.make_room(Some(operation), marks, &now, stage)?;
            ledger.grant(Some(operation), marks, &now, stage).map(Presented::Run)
        })
    }

    /// Looks for an operation that another caller took over: [`Presented::Wait`] as long as one has it, and never a grant.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changed.
    pub(in super::super) fn follow(
        &mut self,
        operation: &Operation,
        standing: &Standing,
        stage: &mut impl Staging,
    ) -> Result<Presented, Refusal> {
        self.whole(stage, |ledger, stage| {
            let now = ledger.stand(standing, stage)?;
            let owner = ledger.operations.get(&operation.id).map(|entry| entry.record.owner);
            match ledger.look_up(operation, &now)? {
                Found::Recorded(outcome) => Ok(Presented::Recorded(outcome)),
                Found::Running => Ok(Presented::Wait),
                Found::Reserved if owner.is_some_and(|owner| !ledger.abandoned(owner)) => Ok(Presented::Wait),
                Found::Absent | Found::Reserved => Err(Refusal::Abandoned),
            }
        })
    }

    /// Runs a transition, and takes it back whole where a budget stopped it half-way. Any other refusal keeps what it
    /// staged: an advanced birth, an extended mark, what was pruned.
    pub(super) fn whole<S: Staging, R>(
        &mut self,
        stage: &mut S,
        change: impl FnOnce(&mut Self, &mut S) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let before = self.undo.len();
        let result = change(self, stage);
        if let Err(Refusal::Capacity(Capacity::Budget(_))) = &result {
            self.take_back(before, stage);
        }
        result
    }

    /// How far an operation has come.
    fn look_up(&self, operation: &Operation, now: &Now) -> Result<Found, Refusal> {
        self.judge_table(Table::Operation)?;
        let damaged = self.damaged_record(Table::Operation, &operation.id.0);
        let found = self.operations.get(&operation.id);
        if self.guards.keep(Guard::Deadline) && millis(operation.deadline) <= now.now {
            let consumed = if damaged.is_some() || found.is_some() { Consumed::Yes } else { Consumed::No };
            return Err(Refusal::DeadlinePassed { deadline: operation.deadline, consumed });
        }
        if let Some(record) = damaged {
            return Err(Refusal::RecordDamaged { record });
        }
        let Some(OperationEntry { record, .. }) = found else { return Ok(Found::Absent) };
        if record.commitment != operation.commitment && self.guards.keep(Guard::Conflict) {
            return Err(Refusal::Conflict { operation: operation.id });
        }
        match &record.state {
            OperationState::Finished(outcome) => Ok(Found::Recorded(outcome.clone())),
            OperationState::Reserved => Ok(Found::Reserved),
            _ if !self.guards.keep(Guard::Began) => Ok(Found::Reserved),
            OperationState::Dispatching if !self.abandoned(record.owner) => Ok(Found::Running),
            OperationState::Dispatching | OperationState::Unknown => {
                Err(Refusal::OutcomeUnknown { operation: operation.id, deadline: operation.deadline })
            }
        }
    }

    /// Looks for marks that were presented before, and keeps those for longer that are presented with a later expiry
    /// (law L12.1).
    fn look_for(
        &mut self,
        marks: &[Mark],
        of: Option<&OperationId>,
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        let mut found = marks.iter().enumerate().try_for_each(|(at, mark)| {
            // The same mark twice in one presentation is presented before.
            let twice = marks.iter().take(at).any(|other| (other.kind, other.id) == (mark.kind, mark.id));
            match twice {
                true => Err(Refusal::Replayed { kind: mark.kind, state: MarkState::Reserved }),
                false => self.look_for_one(mark, of),
            }
        });
        if let Err(Refusal::Replayed { .. } | Refusal::RequestBindingMismatch { .. }) = &found
            && self.guards.keep(Guard::Extended)
            && let Err(exhausted) = self.extend(marks, now, stage)
        {
            found = Err(exhausted);
        }
        found
    }

    fn look_for_one(&self, mark: &Mark, of: Option<&OperationId>) -> Result<(), Refusal> {
        let Mark { kind, id, .. } = *mark;
        if let Some(record) = self.damaged_record(kind.table(), &id.0) {
            return Err(Refusal::RecordDamaged { record });
        }
        let Some(MarkEntry { record, .. }) = self.marks.get(&MarkKey { kind, id }) else { return Ok(()) };
        if self.is_free(record, of) || !self.guards.keep(Guard::Replay) {
            return Ok(());
        }
        match (of, record.operation) {
            (Some(of), Some(operation)) if *of != operation => Err(Refusal::RequestBindingMismatch { kind, operation }),
            _ => Err(Refusal::Replayed { kind, state: shown(record.progress) }),
        }
    }

    /// Whether a mark that is there may be reserved anew: for its own operation's continuation, or since nobody can begin
    /// with it any more.
    fn is_free(&self, record: &MarkRecord, of: Option<&OperationId>) -> bool {
        if record.progress != Progress::Reserved {
            return false;
        }
        let linked = record.operation.as_ref().filter(|operation| self.operations.contains_key(operation));
        match linked {
            Some(operation) => of == Some(operation),
            None => self.abandoned(record.owner) || !self.guards.keep(Guard::ReleaseAbandoned),
        }
    }

    fn extend(&mut self, marks: &[Mark], now: &Now, stage: &mut impl Staging) -> Result<(), Refusal> {
        for mark in marks {
            let key = MarkKey { kind: mark.kind, id: mark.id };
            if let Some(entry) = self.marks.get(&key).copied()
                && kept_until(mark) > entry.record.kept_until
            {
                let record = MarkRecord { kept_until: kept_until(mark), ..entry.record };
                let place = self.next_place();
                self.write_mark(key, Some(MarkEntry { record, since: now.monotonic, place }), stage)?;
                self.write_clock(self.clock, stage)?;
            }
        }
        Ok(())
    }

    /// Prunes what can be, and refuses what then finds no place. Nothing else is evicted (law L12.1).
    fn make_room(
        &mut self,
        operation: Option<&Operation>,
        marks: &[Mark],
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        let subjects = operation.iter().map(|operation| operation.subject).chain(marks.iter().map(|mark| mark.subject));
        let subjects: Vec<Subject> = subjects.map(|subject| *subject.as_bytes()).collect();
        self.prune(&subjects, now, stage)?;
        let fresh = |mark: &Mark| {
            let entry = self.marks.get(&MarkKey { kind: mark.kind, id: mark.id });
            entry.is_none_or(|entry| entry.record.subject != *mark.subject.as_bytes())
        };
        for (at, mark) in marks.iter().enumerate().filter(|(_, mark)| fresh(mark)) {
            let alike = || marks.iter().take(at + 1).filter(|other| other.kind == mark.kind && fresh(other));
            let own = alike().filter(|other| other.subject == mark.subject).count();
            self.judge_room(mark.subject.as_bytes(), mark.kind.table(), own, alike().count())?;
        }
        if let Some(operation) = operation.filter(|operation| !self.operations.contains_key(&operation.id)) {
            self.judge_room(operation.subject.as_bytes(), Table::Operation, 1, 1)?;
            let record = first(operation, Owner { epoch: 0, serial: 0 }, Vec::new());
            let bound = self.limits.operation_bytes;
            if self.operation_bytes.saturating_add(charge(&record, self.limits.outcome_max)) > bound {
                return Err(Refusal::Capacity(Capacity::OperationBytes { bound }));
            }
        }
        Ok(())
    }

    /// Reserves for a fresh owner. The operation is staged before its marks, so that an engine which tears a batch in order
    /// never keeps a mark's progress without its operation's.
    fn grant(
        &mut self,
        operation: Option<&Operation>,
        marks: &[Mark],
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<Grant, Refusal> {
        let running = operation.and_then(|operation| self.operations.get(&operation.id));
        let owner = match running.map(|entry| entry.record.owner) {
            Some(owner) if !self.guards.keep(Guard::TakenOver) => owner,
            _ => self.own(),
        };
        let granted = self.reserve_all(owner, operation, marks, now, stage);
        if granted.is_err() {
            self.leave(owner);
        }
        granted?;
        Ok(Grant { owner, operation: operation.copied(), marks: marks.to_vec() })
    }

    fn reserve_all(
        &mut self,
        owner: Owner,
        operation: Option<&Operation>,
        marks: &[Mark],
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        if let Some(operation) = operation {
            self.reserve_operation(owner, operation, marks, now, stage)?;
        }
        for mark in marks {
            self.put_mark(mark, Progress::Reserved, owner, operation.map(|operation| operation.id), now, stage)?;
        }
        Ok(self.write_clock(self.clock, stage)?)
    }

    /// Reserves a new operation, or takes one over with the marks that it has. Beyond [`OPERATION_MARKS`] of them, the
    /// oldest that were brought by earlier callers stay consumed for good.
    fn reserve_operation(
        &mut self,
        owner: Owner,
        operation: &Operation,
        marks: &[Mark],
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        let presented: Vec<MarkKey> = marks.iter().map(|mark| MarkKey { kind: mark.kind, id: mark.id }).collect();
        let Some(running) = self.operations.get(&operation.id) else {
            let record = first(operation, owner, presented);
            let entry = OperationEntry { record, since: now.monotonic, place: self.next_place() };
            return Ok(self.write_operation(operation.id, Some(entry), stage)?);
        };
        let mut entry = running.clone();
        let mut earlier = std::mem::take(&mut entry.record.marks);
        earlier.retain(|key| {
            let linked = self.marks.get(key).is_some_and(|mark| mark.record.operation == Some(operation.id));
            linked && !presented.contains(key)
        });
        let kept =
            earlier.split_off((earlier.len() + presented.len()).saturating_sub(OPERATION_MARKS).min(earlier.len()));
        entry.record.owner = owner;
        entry.record.state = OperationState::Reserved;
        entry.record.marks = kept.iter().chain(&presented).copied().collect();
        self.write_operation(operation.id, Some(entry), stage)?;
        for (keys, progress) in [(earlier, Progress::Committed), (kept, Progress::Reserved)] {
            for key in keys {
                if let Some(mark) = self.marks.get(&key).copied() {
                    let record = MarkRecord { owner, progress: mark.record.progress.max(progress), ..mark.record };
                    self.write_mark(key, Some(MarkEntry { record, ..mark }), stage)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a mark anew, as fresh from now.
    fn put_mark(
        &mut self,
        mark: &Mark,
        progress: Progress,
        owner: Owner,
        operation: Option<OperationId>,
        now: &Now,
        stage: &mut impl Staging,
    ) -> Result<(), Refusal> {
        let key = MarkKey { kind: mark.kind, id: mark.id };
        let before = self.marks.get(&key).map_or(0, |entry| entry.record.kept_until);
        let record = MarkRecord {
            subject: *mark.subject.as_bytes(),
            kept_until: kept_until(mark).max(before),
            progress,
            owner,
            operation,
        };
        let entry = MarkEntry { record, since: now.monotonic, place: self.next_place() };
        Ok(self.write_mark(key, Some(entry), stage)?)
    }
}

fn first(operation: &Operation, owner: Owner, marks: Vec<MarkKey>) -> OperationRecord {
    OperationRecord {
        commitment: operation.commitment,
        subject: *operation.subject.as_bytes(),
        deadline: millis(operation.deadline),
        owner,
        marks,
        state: OperationState::Reserved,
    }
}
