//! From the store's records to the ledger (law L11.1).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use super::{
    Ledger, Limits,
    entries::{MarkEntry, OperationEntry, Subjects},
    place,
};
use crate::{
    layer::single_use::{
        LIFETIME_MAX_S, MarkKind, OUTCOME_MAX, SingleUseConfig, SingleUseOpenError,
        guard::Guards,
        record::{
            BIRTH_KEY, CLOCK_KEY, ClockRecord, MarkKey, MarkRecord, OperationRecord, OperationState, Progress,
            STOP_KEY, decode_stop,
        },
    },
    storage::{Key, RecordName, Scan, Table, birth::Birth},
};

/// What the store holds of each table.
#[derive(Debug, Default)]
pub(in super::super) struct Scans {
    pub(in super::super) nonce: Scan,
    pub(in super::super) approval: Scan,
    pub(in super::super) operation: Scan,
    pub(in super::super) clock: Scan,
}

/// A record that cannot be restored, and why.
pub(in super::super) type Unrestorable = (RecordName, &'static str);

const UNNAMED: &str = "a record in it is damaged, and no mark or operation can be named that it stands for";
const MISFILED: &str = "it is filed under another key than its own";

impl Ledger {
    /// Restores from the scans of its tables, and names the records that join the unrestorable set. Each counts as
    /// consumed; one that cannot be named closes its table (law L11.2).
    ///
    /// # Errors
    /// [`SingleUseOpenError`].
    pub(in super::super) fn restore(
        config: &SingleUseConfig,
        guards: Guards,
        scans: &Scans,
        now: Duration,
    ) -> Result<(Self, Vec<Unrestorable>), SingleUseOpenError> {
        if config.greatest_lifetime_s > LIFETIME_MAX_S {
            return Err(SingleUseOpenError::LifetimeOverBound { configured: config.greatest_lifetime_s });
        }
        if config.outcome_max > OUTCOME_MAX {
            return Err(SingleUseOpenError::OutcomeOverBound { configured: config.outcome_max });
        }
        let clock = shared(&scans.clock, "single-use clock", CLOCK_KEY, ClockRecord::decode)?;
        let birth = shared(&scans.clock, "single-use birth", BIRTH_KEY, Birth::decode)?;
        let tables = [&scans.nonce, &scans.approval, &scans.operation];
        if clock.is_none() && tables.iter().any(|scan| !scan.records.is_empty() || !scan.bad.is_empty()) {
            return Err(SingleUseOpenError::Damaged {
                what: "single-use clock",
                record: RecordName::of(Table::Clock, CLOCK_KEY),
                reason: "it is missing".into(),
            });
        }
        let clock = clock.unwrap_or_default();
        let mut ledger = Self {
            limits: Limits::of(config),
            guards,
            marks: HashMap::new(),
            operations: HashMap::new(),
            subjects: Subjects::default(),
            order: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            held: [0; 3],
            damaged: tables.map(|scan| scan.bad.len()),
            operation_bytes: 0,
            unrestorable: tables.iter().flat_map(|scan| scan.bad.iter().map(|bad| bad.name)).collect(),
            closed: [None; 3],
            next_place: 0,
            live: HashSet::new(),
            next_owner: 0,
            high_water: clock.high_water,
            clock,
            birth,
            stop_recorded: stopped(&scans.clock),
            undo: VecDeque::new(),
        };
        let mut bad = Vec::new();
        ledger.restore_marks(MarkKind::Nonce, &scans.nonce, now, &mut bad);
        ledger.restore_marks(MarkKind::Approval, &scans.approval, now, &mut bad);
        for (key, value) in &scans.operation.records {
            match OperationRecord::decode(value) {
                Ok((id, record)) if id.0 == **key => {
                    let entry = OperationEntry { record, since: now, place: ledger.next_place() };
                    ledger.set_operation(id, Some(entry));
                }
                decoded => {
                    let own = decoded.as_ref().ok().map(|(id, _)| id.0);
                    ledger.damage(Table::Operation, key, own, decoded.err(), &mut bad);
                }
            }
        }
        ledger.reconcile();
        for table in [Table::Nonce, Table::Approval, Table::Operation] {
            let held = ledger.sizes().get(place(table)).copied().unwrap_or(0);
            let bound = ledger.limits.places(table).in_all;
            if held > bound {
                return Err(SingleUseOpenError::OverCapacity { table, held, bound });
            }
        }
        Ok((ledger, bad))
    }

    fn restore_marks(&mut self, kind: MarkKind, scan: &Scan, now: Duration, bad: &mut Vec<Unrestorable>) {
        for (key, value) in &scan.records {
            match MarkRecord::decode(kind, value) {
                Ok((id, record)) if id.0 == **key => {
                    let entry = MarkEntry { record, since: now, place: self.next_place() };
                    self.set_mark(MarkKey { kind, id }, Some(entry));
                }
                decoded => {
                    let own = decoded.as_ref().ok().map(|(id, _)| id.0);
                    self.damage(kind.table(), key, own, decoded.err(), bad);
                }
            }
        }
    }

    /// A record that was read and does not restore: it may stand for its key, and for the id that it carries.
    fn damage(
        &mut self,
        table: Table,
        key: &Key,
        own: Option<[u8; 32]>,
        reason: Option<&'static str>,
        bad: &mut Vec<Unrestorable>,
    ) {
        if let Some(damaged) = self.damaged.get_mut(place(table)) {
            *damaged += 1;
        }
        let reason = reason.unwrap_or(MISFILED);
        // A key of another length is no mark's and no operation's, so only the id inside could tell.
        if key.len() != 32
            && own.is_none()
            && let Some(closed) = self.closed.get_mut(place(table))
        {
            *closed = Some(UNNAMED);
        }
        let own = own.map(|own| RecordName::of(table, &own));
        for record in [RecordName::of(table, key)].into_iter().chain(own) {
            self.unrestorable.insert(record);
            bad.push((record, reason));
        }
    }

    /// Where a batch was torn, an operation and its marks tell of different moments: the later one counts, since a call
    /// that began once must not begin again.
    fn reconcile(&mut self) {
        let linked: Vec<_> = self
            .marks
            .iter()
            .filter_map(|(key, entry)| Some((*key, *entry, entry.record.operation?)))
            .filter(|(_, entry, _)| entry.record.progress != Progress::Committed)
            .collect();
        for (key, mut mark, id) in linked {
            let Some(operation) = self.operations.get(&id) else { continue };
            if operation.record.owner != mark.record.owner {
                continue;
            }
            match (&operation.record.state, mark.record.progress) {
                (OperationState::Reserved, Progress::Dispatching) => {
                    let mut operation = operation.clone();
                    operation.record.state = OperationState::Dispatching;
                    self.set_operation(id, Some(operation));
                }
                (OperationState::Dispatching, Progress::Reserved) => {
                    mark.record.progress = Progress::Dispatching;
                    self.set_mark(key, Some(mark));
                }
                (OperationState::Unknown | OperationState::Finished(_), _) => {
                    mark.record.progress = Progress::Committed;
                    self.set_mark(key, Some(mark));
                }
                _ => {}
            }
        }
    }
}

/// Whether the stop is on: a record that cannot be restored says so (law L12.5).
fn stopped(clock: &Scan) -> bool {
    let name = RecordName::of(Table::Clock, STOP_KEY);
    let read = clock.records.iter().find(|(key, _)| key == STOP_KEY).is_some_and(|(_, value)| decode_stop(value));
    read || clock.bad.iter().any(|bad| bad.name == name)
}

/// Reads a record that everything relies on. One that is there and cannot be read refuses the store.
fn shared<T>(
    clock: &Scan,
    what: &'static str,
    key: &'static [u8],
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, SingleUseOpenError> {
    let record = RecordName::of(Table::Clock, key);
    let damaged = |reason: String| SingleUseOpenError::Damaged { what, record, reason };
    if let Some(bad) = clock.bad.iter().find(|bad| bad.name == record) {
        return Err(damaged(bad.reason.clone()));
    }
    let Some((_, value)) = clock.records.iter().find(|(found, _)| found == key) else { return Ok(None) };
    decode(value).map(Some).ok_or_else(|| damaged("it does not decode".into()))
}
