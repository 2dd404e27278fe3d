//! The disk of a world: what is durable, and batches on their way to it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::super::core::Staging;
use crate::storage::{
    BadRecord, Key, RecordName, Scan, Table,
    commit::{BatchNumber, BudgetExhausted},
};

/// Draws numbers, alike for every run of a seed (splitmix64).
#[derive(Debug)]
pub(in super::super) struct Draw(pub(in super::super) u64);

impl Draw {
    pub(in super::super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to `end` - 1.
    pub(in super::super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(in super::super) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub(in super::super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let place = self.below(from.len() as u64);
        from.get(place as usize)
    }
}

type Records = BTreeMap<(Table, Key), Option<Bytes>>;

/// What is durable.
#[derive(Debug, Default)]
pub(super) struct Disk {
    records: BTreeMap<(Table, Key), Bytes>,
    bad: BTreeSet<(Table, Key)>,
}

impl Disk {
    pub(super) fn land(&mut self, writes: Records) {
        for (place, value) in writes {
            match value {
                Some(value) => drop(self.records.insert(place, value)),
                None => drop(self.records.remove(&place)),
            }
        }
    }

    /// A batch that a crash cut: any part of it landed, with the marks in it first if the engine keeps that law.
    pub(super) fn land_torn(&mut self, writes: Records, marks_first: bool, draw: &mut Draw) {
        let landed = writes
            .into_iter()
            .filter(|((table, _), _)| (marks_first && *table == Table::Clock) || draw.one_in(2))
            .collect();
        self.land(landed);
    }

    pub(super) fn scan(&self, table: Table) -> Scan {
        let held = self.records.iter().filter(|((of, _), _)| *of == table);
        let (bad, good): (Vec<_>, Vec<_>) = held.partition(|(place, _)| self.bad.contains(*place));
        Scan {
            records: good.into_iter().map(|((_, key), value)| (key.clone(), value.clone())).collect(),
            bad: bad
                .into_iter()
                .map(|((table, key), _)| BadRecord { name: RecordName::of(*table, key), reason: "damaged".into() })
                .collect(),
        }
    }

    /// Damages one record, readable to the engine or not.
    pub(super) fn damage(&mut self, table: Table, draw: &mut Draw) {
        let keys: Vec<_> = self.records.keys().filter(|(of, _)| *of == table).cloned().collect();
        let Some(place) = draw.pick(&keys) else { return };
        if draw.one_in(2) {
            self.bad.insert(place.clone());
        } else if let Some(value) = self.records.get_mut(place) {
            let mut bytes = value.to_vec();
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << draw.below(8);
            *value = bytes.into();
        }
    }

    pub(super) fn value(&self, table: Table, key: &[u8]) -> Option<&Bytes> {
        self.records.get(&(table, Key::copy_from_slice(key)))
    }

    pub(super) fn holds(&self, table: Table, key: &[u8]) -> bool {
        self.records.contains_key(&(table, Key::copy_from_slice(key)))
    }
}

/// A batch that gathers, and what a crash or a failure of it takes along.
#[derive(Debug)]
pub(super) struct Gathering<A> {
    pub(super) number: BatchNumber,
    pub(super) writes: Records,
    pub(super) admitted: Vec<A>,
    /// The greatest offset of the clock at a reading made while birth was settling.
    pub(super) noticed: Option<i64>,
    /// Whose namespaces' registration ends with it.
    pub(super) ended: [bool; 2],
}

impl<A> Gathering<A> {
    pub(super) fn new(number: BatchNumber) -> Self {
        Self { number, writes: Records::new(), admitted: Vec::new(), noticed: None, ended: [false; 2] }
    }
}

/// One transition's stage.
pub(super) struct ModelStage<'a> {
    pub(super) number: BatchNumber,
    /// The newest batch that holds something and is not released.
    pub(super) unreleased: Option<BatchNumber>,
    pub(super) bad: &'a BTreeSet<RecordName>,
    pub(super) staged: Vec<((Table, Key), Option<Bytes>)>,
}

impl Staging for ModelStage<'_> {
    fn batch(&self) -> BatchNumber {
        self.number
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        if self.staged.is_empty() { self.unreleased } else { Some(self.number) }
    }

    fn put(&mut self, table: Table, key: Key, value: Bytes) -> Result<(), BudgetExhausted> {
        self.staged.push(((table, key), Some(value)));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: Key) {
        self.staged.push(((table, key), None));
    }

    fn rewind(&mut self) {
        self.staged.clear();
    }

    fn unavailable(&self, table: Table, key: &[u8]) -> Option<RecordName> {
        if self.bad.is_empty() {
            return None;
        }
        let name = RecordName::of(table, key);
        self.bad.contains(&name).then_some(name)
    }

    fn unrestorable(&self) -> usize {
        self.bad.len()
    }
}
