//! The ledger itself, without clocks, locks or files. See the room's docs for its transitions and its failures.

mod dispatch;
mod entries;
mod judge;
mod present;
mod prune;
mod recover;
mod restore;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use self::entries::{MarkEntry, OperationEntry, Subjects};
pub(super) use self::{
    entries::Item,
    present::{Grant, Presented},
    restore::Scans,
};
use super::{
    Capability, OperationId, Places, Refusal, SingleUseConfig,
    guard::{Guard, Guards},
    record::{BIRTH_KEY, CLOCK_KEY, ClockRecord, MarkKey, Owner, STOP_KEY, encode_stop},
};
use crate::{
    clock::WallMs,
    layer::boundary::Staging,
    storage::{
        Key, RecordName, Table,
        birth::{Birth, Reading, Tolerance},
        commit::{BatchNumber, BudgetExhausted},
    },
};

/// The bounds that the ledger runs with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) sigma: u64,
    /// The greatest lifetime, in milliseconds.
    pub(super) lifetime: u64,
    nonces: Places,
    approvals: Places,
    operations: Places,
    operation_bytes: u64,
    outcome_max: usize,
    birth_mark: bool,
}

impl Limits {
    pub(super) fn of(config: &SingleUseConfig) -> Self {
        Self {
            sigma: config.sigma_ms,
            lifetime: config.greatest_lifetime_s.saturating_mul(1_000),
            nonces: config.nonces,
            approvals: config.approvals,
            operations: config.operations,
            operation_bytes: config.operation_bytes,
            outcome_max: config.outcome_max,
            birth_mark: config.birth_mark,
        }
    }

    const fn places(&self, table: Table) -> Places {
        match table {
            Table::Nonce => self.nonces,
            Table::Approval => self.approvals,
            _ => self.operations,
        }
    }
}

/// What a transition is judged under, read under the same lock: the stop first, and nothing else where it is on
/// (law L12.5).
#[derive(Debug, Clone, Copy)]
pub(super) enum Standing {
    /// The emergency stop is on.
    Stopped,
    /// It is not.
    Live {
        /// What the clocks read.
        reading: Reading,
        /// The first of the presented capabilities that was revoked.
        revoked: Option<Capability>,
    },
}

impl Standing {
    /// What stands at a presentation, or where `begins` at the start of a call. The stop was read first; where it is on,
    /// neither the clock nor anything else is read.
    pub(super) fn of(
        guards: Guards,
        begins: bool,
        stopped: bool,
        reading: impl FnOnce() -> Reading,
        revoked: impl FnOnce() -> Option<Capability>,
    ) -> Self {
        let (stop, revocation) = match begins {
            true => (Guard::StopAtBegin, Guard::RevocationAtBegin),
            false => (Guard::Stop, Guard::Revocation),
        };
        if stopped && guards.keep(stop) {
            return Standing::Stopped;
        }
        Standing::Live { reading: reading(), revoked: revoked().filter(|_| guards.keep(revocation)) }
    }
}

/// The instants that a transition is judged at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// What the wall clock reads.
    wall: WallMs,
    /// That, or the high-water mark where it is ahead.
    now: WallMs,
    monotonic: Duration,
}

/// All that single-use authority remembers.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    guards: Guards,
    marks: HashMap<MarkKey, MarkEntry>,
    operations: HashMap<OperationId, OperationEntry>,
    subjects: Subjects,
    /// Every item in the order that it was written in, or loaded.
    order: BTreeMap<u64, Item>,
    /// Operations that are not finished, and marks that are reserved.
    unfinished: BTreeSet<Item>,
    /// Records held, and damaged ones, of nonces, approvals and operations.
    held: [usize; 3],
    damaged: [usize; 3],
    operation_bytes: u64,
    /// The records that cannot be restored: each counts as consumed (law L11.2).
    unrestorable: BTreeSet<RecordName>,
    /// Why a table is closed (law L11.2).
    closed: [Option<&'static str>; 3],
    next_place: u64,
    /// The owners of this epoch whose callers are there. Volatile, and no failure touches it.
    live: HashSet<u64>,
    next_owner: u64,
    /// The greatest reading of the wall clock, refused ones included. It never goes back.
    high_water: WallMs,
    /// The clock record as it was staged last.
    clock: ClockRecord,
    birth: Option<Birth>,
    /// Whether the stop is on in the record as it was staged last.
    stop_recorded: bool,
    undo: VecDeque<(BatchNumber, Undo)>,
}

/// A value before a change.
#[derive(Debug)]
enum Undo {
    Mark(MarkKey, Option<MarkEntry>),
    Operation(OperationId, Option<Box<OperationEntry>>),
    Clock(ClockRecord),
    Birth(Option<Birth>),
    Stop(bool),
}

impl Ledger {
    /// Begins an epoch, and gives a store its birth. The clock may be unusable.
    ///
    /// # Errors
    /// [`BudgetExhausted`]; nothing changed.
    pub(super) fn begin_epoch(&mut self, reading: &Reading, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        let before = self.undo.len();
        if !self.regressed(reading.wall) {
            self.high_water = self.high_water.max(reading.wall);
        }
        let mut clock = self.clock;
        if self.guards.keep(Guard::Epoch) {
            clock.epoch = clock.epoch.saturating_add(1);
        }
        let begun = self.advance_birth(reading, stage).and_then(|()| self.write_clock(clock, stage));
        begun.inspect_err(|_| self.take_back(before, stage))
    }

    /// Whether a wall clock that reads `wall` is behind what it read before by more than the tolerance (law L12.6).
    pub(super) const fn regressed(&self, wall: WallMs) -> bool {
        wall.saturating_add(self.limits.sigma) < self.high_water
    }

    /// Takes a reading of the clocks, which may advance birth (law L9.9).
    fn read(&mut self, reading: &Reading, stage: &mut impl Staging) -> Result<Now, Refusal> {
        if self.guards.keep(Guard::Regressed) && self.regressed(reading.wall) {
            return Err(Refusal::ClockRegressed {
                wall_ms: reading.wall,
                high_water_ms: self.high_water,
                sigma_ms: self.limits.sigma,
            });
        }
        self.advance_birth(reading, stage)?;
        self.high_water = self.high_water.max(reading.wall);
        let now = if self.guards.keep(Guard::HighWater) { self.high_water } else { reading.wall };
        Ok(Now { wall: reading.wall, now, monotonic: reading.monotonic })
    }

    fn advance_birth(&mut self, reading: &Reading, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        let Limits { sigma, lifetime, .. } = self.limits;
        let tolerance = Tolerance { sigma, ttl: lifetime, hold: 0, guards: self.guards.birth };
        let next = Birth::advance(self.birth.as_ref(), reading, &tolerance, self.high_water);
        if self.birth.as_ref() != Some(&next) {
            stage.put(Table::Clock, Key::from_static(BIRTH_KEY), next.encode())?;
            let before = self.birth.replace(next);
            self.undo.push_back((stage.batch(), Undo::Birth(before)));
        }
        Ok(())
    }

    /// Stages the clock record as `clock` with the high-water mark, where that is another than was staged last.
    fn write_clock(&mut self, clock: ClockRecord, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        let high_water = match self.guards.keep(Guard::HighWaterStaged) {
            true => self.high_water.max(clock.high_water),
            false => clock.high_water,
        };
        let next = ClockRecord { high_water, ..clock };
        if next != self.clock {
            stage.put(Table::Clock, Key::from_static(CLOCK_KEY), next.encode())?;
            self.undo.push_back((stage.batch(), Undo::Clock(self.clock)));
            self.clock = next;
        }
        Ok(())
    }

    /// Records that the emergency stop is on, or off (law L12.5).
    ///
    /// # Errors
    /// [`BudgetExhausted`]; nothing changed.
    pub(super) fn record_stop(&mut self, stopped: bool, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        if self.guards.keep(Guard::StopRecorded) && self.stop_recorded != stopped {
            stage.put(Table::Clock, Key::from_static(STOP_KEY), encode_stop(stopped))?;
            self.undo.push_back((stage.batch(), Undo::Stop(self.stop_recorded)));
            self.stop_recorded = stopped;
        }
        Ok(())
    }

    /// A fresh owner, whose caller is there.
    fn own(&mut self) -> Owner {
        self.next_owner += 1;
        self.live.insert(self.next_owner);
        Owner { epoch: self.clock.epoch, serial: self.next_owner }
    }

    /// The caller of `owner` went away.
    pub(super) fn leave(&mut self, owner: Owner) {
        self.live.remove(&owner.serial);
    }

    /// Whether nobody in this process can act as `owner` any more.
    fn abandoned(&self, owner: Owner) -> bool {
        owner.epoch != self.clock.epoch || !self.live.contains(&owner.serial)
    }

    /// Everything in batches up to `batch` is durable.
    pub(super) fn released(&mut self, batch: BatchNumber) {
        let durable = self.undo.iter().take_while(|(of, _)| *of <= batch).count();
        self.undo.drain(..durable);
    }

    /// Restores the last durable value of everything that is not durable as it stands.
    pub(super) fn undo(&mut self) {
        self.undo_to(0);
    }

    /// Discards what this transition staged, and what it changed since the undo log was `before` long.
    fn take_back(&mut self, before: usize, stage: &mut impl Staging) {
        stage.rewind();
        self.undo_to(before);
    }

    fn undo_to(&mut self, length: usize) {
        while self.undo.len() > length
            && let Some((_, undo)) = self.undo.pop_back()
        {
            match undo {
                Undo::Mark(key, before) => drop(self.set_mark(key, before)),
                Undo::Operation(id, before) => drop(self.set_operation(id, before.map(|before| *before))),
                Undo::Clock(before) => self.clock = before,
                Undo::Birth(before) => self.birth = before,
                Undo::Stop(before) => self.stop_recorded = before,
            }
        }
    }

    /// σ and lifetime in milliseconds, the greatest that this store ever ran with.
    fn greatest(&self) -> (u64, u64) {
        match &self.birth {
            Some(birth) => (birth.greatest_sigma(), birth.greatest_ttl()),
            None => (self.limits.sigma, self.limits.lifetime),
        }
    }

    /// How many nonces, approvals and operations are held, damaged ones included.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let [nonces, approvals, operations] = self.held;
        let [bad_nonces, bad_approvals, bad_operations] = self.damaged;
        [nonces + bad_nonces, approvals + bad_approvals, operations + bad_operations]
    }

    /// How many records are damaged.
    pub(super) fn damaged(&self) -> usize {
        self.damaged.iter().sum()
    }

    /// The greatest reading of the wall clock.
    pub(super) const fn high_water(&self) -> WallMs {
        self.high_water
    }

    /// The instant at or before which nothing may be issued, where the guard is enabled.
    pub(super) fn mark(&self) -> Option<WallMs> {
        self.birth.as_ref().filter(|_| self.limits.birth_mark).map(Birth::mark)
    }

    /// Whether birth has settled.
    pub(super) fn settled(&self) -> bool {
        self.birth.as_ref().is_some_and(Birth::settled)
    }

    /// Whether the stop is on in the record.
    pub(super) const fn stop_recorded(&self) -> bool {
        self.stop_recorded
    }
}

/// A table's place among the three.
const fn place(table: Table) -> usize {
    match table {
        Table::Nonce => 0,
        Table::Approval => 1,
        _ => 2,
    }
}
