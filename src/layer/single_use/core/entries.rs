//! What is held of marks and operations, and whom it is accounted to.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::{Ledger, Undo, judge::millis, place};
use crate::{
    clock::WallMs,
    layer::{
        boundary::Staging,
        single_use::{
            Mark, MarkId, MarkKind, MarkState, OperationId,
            guard::Guard,
            record::{MarkKey, MarkRecord, OPERATION_MARKS, OperationRecord, OperationState, Progress, Subject},
        },
    },
    storage::{Key, RecordName, Table, commit::BudgetExhausted},
};

/// The length of an operation's key, in bytes.
const KEY_LEN: usize = 32;

/// One record of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Item {
    Operation(OperationId),
    Mark(MarkKey),
}

impl Item {
    pub(super) const fn table(&self) -> Table {
        match self {
            Item::Operation(_) => Table::Operation,
            Item::Mark(key) => key.kind.table(),
        }
    }
}

/// A mark, and what of it no record holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkEntry {
    pub(super) record: MarkRecord,
    /// When it was written or loaded, on the monotonic clock (law L12.6).
    pub(super) since: Duration,
    /// Its place in the order of pruning.
    pub(super) place: u64,
}

/// An operation, and what of it no record holds.
#[derive(Debug, Clone)]
pub(super) struct OperationEntry {
    pub(super) record: OperationRecord,
    pub(super) since: Duration,
    pub(super) place: u64,
}

/// The places that each subject has. One without any has no entry.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    of: HashMap<Subject, Held>,
}

#[derive(Debug, Default)]
struct Held {
    counts: [usize; 3],
    /// Places in the order of pruning.
    places: BTreeSet<u64>,
}

impl Subjects {
    pub(super) fn count(&self, subject: &Subject, table: Table) -> usize {
        self.of.get(subject).and_then(|held| held.counts.get(place(table)).copied()).unwrap_or(0)
    }

    /// The oldest places of `subject`, at most `most`.
    pub(super) fn oldest(&self, subject: &Subject, most: usize) -> Vec<u64> {
        self.of.get(subject).map(|held| held.places.iter().take(most).copied().collect()).unwrap_or_default()
    }

    fn enter(&mut self, subject: Subject, table: Table, at: u64) {
        let held = self.of.entry(subject).or_default();
        held.places.insert(at);
        if let Some(count) = held.counts.get_mut(place(table)) {
            *count += 1;
        }
    }

    fn leave(&mut self, subject: &Subject, table: Table, at: u64) {
        if let Some(held) = self.of.get_mut(subject) {
            held.places.remove(&at);
            if let Some(count) = held.counts.get_mut(place(table)) {
                *count = count.saturating_sub(1);
            }
            if held.places.is_empty() {
                self.of.remove(subject);
            }
        }
    }
}

/// What accounting needs of an entry.
struct Account {
    subject: Subject,
    place: u64,
    unfinished: bool,
    bytes: u64,
}

impl Ledger {
    /// Sets a mark in memory, and returns what was there.
    pub(super) fn set_mark(&mut self, key: MarkKey, next: Option<MarkEntry>) -> Option<MarkEntry> {
        let account = |entry: &MarkEntry| Account {
            subject: entry.record.subject,
            place: entry.place,
            unfinished: entry.record.progress == Progress::Reserved,
            bytes: 0,
        };
        let after = next.as_ref().map(account);
        let before = match next {
            Some(entry) => self.marks.insert(key, entry),
            None => self.marks.remove(&key),
        };
        self.account(Item::Mark(key), before.as_ref().map(account), after);
        before
    }

    /// Sets an operation in memory, and returns what was there.
    pub(super) fn set_operation(&mut self, id: OperationId, next: Option<OperationEntry>) -> Option<OperationEntry> {
        let outcome_max = self.limits.outcome_max;
        let account = |entry: &OperationEntry| Account {
            subject: entry.record.subject,
            place: entry.place,
            unfinished: !matches!(entry.record.state, OperationState::Finished(_)),
            bytes: charge(&entry.record, outcome_max),
        };
        let after = next.as_ref().map(account);
        let before = match next {
            Some(entry) => self.operations.insert(id, entry),
            None => self.operations.remove(&id),
        };
        self.account(Item::Operation(id), before.as_ref().map(account), after);
        before
    }

    fn account(&mut self, item: Item, before: Option<Account>, after: Option<Account>) {
        let table = item.table();
        let moved = match (&before, &after) {
            (Some(before), Some(after)) => (before.subject, before.place) != (after.subject, after.place),
            _ => true,
        };
        if let Some(before) = before {
            self.operation_bytes = self.operation_bytes.saturating_sub(before.bytes);
            if before.unfinished {
                self.unfinished.remove(&item);
            }
            if moved {
                self.order.remove(&before.place);
                self.subjects.leave(&before.subject, table, before.place);
                self.count(table, false);
            }
        }
        if let Some(after) = after {
            self.operation_bytes = self.operation_bytes.saturating_add(after.bytes);
            if after.unfinished {
                self.unfinished.insert(item);
            }
            if moved {
                self.order.insert(after.place, item);
                self.subjects.enter(after.subject, table, after.place);
                self.count(table, true);
            }
        }
    }

    fn count(&mut self, table: Table, more: bool) {
        if let Some(held) = self.held.get_mut(place(table)) {
            *held = if more { *held + 1 } else { held.saturating_sub(1) };
        }
    }

    /// The next place at the end of the order of pruning.
    pub(super) fn next_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// Stages a mark's record, or its removal, and sets it.
    pub(super) fn write_mark(
        &mut self,
        key: MarkKey,
        next: Option<MarkEntry>,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        let name = Key::copy_from_slice(&key.id.0);
        match &next {
            Some(entry) => stage.put(key.kind.table(), name, entry.record.encode(&key))?,
            None => stage.remove(key.kind.table(), name),
        }
        let before = self.set_mark(key, next);
        self.undo.push_back((stage.batch(), Undo::Mark(key, before)));
        Ok(())
    }

    /// Stages an operation's record, or its removal, and sets it.
    pub(super) fn write_operation(
        &mut self,
        id: OperationId,
        next: Option<OperationEntry>,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        let name = Key::copy_from_slice(&id.0);
        match &next {
            Some(entry) => stage.put(Table::Operation, name, entry.record.encode(&id))?,
            None => stage.remove(Table::Operation, name),
        }
        let before = self.set_operation(id, next);
        self.undo.push_back((stage.batch(), Undo::Operation(id, before.map(Box::new))));
        Ok(())
    }

    /// How far a mark has come.
    pub(in super::super) fn state(&self, kind: MarkKind, id: MarkId) -> MarkState {
        let table = kind.table();
        if self.closed_table(table).is_some() || self.damaged_record(table, &id.0).is_some() {
            return MarkState::Consumed;
        }
        match self.marks.get(&MarkKey { kind, id }) {
            None => MarkState::Absent,
            Some(entry) => shown(entry.record.progress),
        }
    }

    /// The name of the record of `key`, if it cannot be restored. A key is hashed only where one cannot.
    pub(super) fn damaged_record(&self, table: Table, key: &[u8]) -> Option<RecordName> {
        if self.unrestorable.is_empty() || !self.guards.keep(Guard::Damaged) {
            return None;
        }
        let name = RecordName::of(table, key);
        self.unrestorable.contains(&name).then_some(name)
    }

    /// Why a table is closed, if it is.
    pub(super) fn closed_table(&self, table: Table) -> Option<&'static str> {
        self.closed.get(place(table)).copied().flatten()
    }
}

pub(super) const fn shown(progress: Progress) -> MarkState {
    match progress {
        Progress::Reserved => MarkState::Reserved,
        Progress::Dispatching => MarkState::Dispatching,
        Progress::Committed => MarkState::Committed,
    }
}

/// The bytes that an operation takes, with the most marks and the greatest outcome where more may still come.
pub(super) fn charge(record: &OperationRecord, outcome_max: usize) -> u64 {
    let body = match &record.state {
        OperationState::Reserved | OperationState::Dispatching => {
            OperationRecord::head(OPERATION_MARKS) + 1 + outcome_max
        }
        OperationState::Unknown => OperationRecord::head(record.marks.len()),
        OperationState::Finished(outcome) => OperationRecord::head(record.marks.len()) + 1 + outcome.bytes.len(),
    };
    (KEY_LEN + body) as u64
}

/// Until when a mark is kept: as long as anything that was shown for it may hold.
pub(super) fn kept_until(mark: &Mark) -> WallMs {
    millis(mark.expires_at).max(millis(mark.valid_until))
}
