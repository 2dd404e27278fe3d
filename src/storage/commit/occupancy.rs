//! What a store will hold once everything staged has landed, against its budgets (law L9.7). Pure.
//!
//! State: per table the size of every record, and a log of the changes that no durable batch has released.
//! Transitions: `put` and `remove` change one record and log what it was; `rewind` takes back to a mark, `released`
//! forgets the log up to a batch, `undo` takes everything unreleased back. A put past a budget changes nothing.

use std::collections::{HashMap, VecDeque};

use super::{BatchNumber, Budget, BudgetExhausted, Limit};
use crate::storage::{KEY_MAX, Key, Scan, Table, VALUE_MAX};

/// Sizes are of key and value together, in bytes.
#[derive(Default)]
struct Held {
    budget: Budget,
    sizes: HashMap<Key, u64>,
    bytes: u64,
    /// Records that the engine holds and cannot give back: each takes the place of one.
    bad: u64,
}

impl Held {
    fn records(&self) -> u64 {
        self.bad + self.sizes.len() as u64
    }

    /// Sets a record's size and returns the one before.
    fn set(&mut self, key: &Key, size: Option<u64>) -> Option<u64> {
        let before = match size {
            Some(size) => self.sizes.insert(key.clone(), size),
            None => self.sizes.remove(key),
        };
        self.bytes = self.bytes.saturating_sub(before.unwrap_or(0)).saturating_add(size.unwrap_or(0));
        before
    }
}

struct Change {
    batch: BatchNumber,
    table: Table,
    key: Key,
    before: Option<u64>,
}

#[derive(Default)]
pub(super) struct Occupancy {
    sender: Held,
    receiver: Held,
    clock: Held,
    custody: Held,
    nonce: Held,
    approval: Held,
    operation: Held,
    /// Oldest first.
    log: VecDeque<Change>,
}

impl Occupancy {
    /// Takes in a table's scan, and refuses one that is over its budget.
    pub(super) fn load(&mut self, table: Table, budget: Budget, scan: &Scan) -> Result<(), BudgetExhausted> {
        let held = self.held(table);
        held.budget = budget;
        held.bad = scan.bad.len() as u64;
        for (key, value) in &scan.records {
            held.set(key, Some(size(key, value.len())));
        }
        if held.records() > budget.records {
            return Err(BudgetExhausted { table, limit: Limit::Records(budget.records) });
        }
        if held.bytes > budget.bytes {
            return Err(BudgetExhausted { table, limit: Limit::Bytes(budget.bytes) });
        }
        Ok(())
    }

    /// A place in the log to [`Occupancy::rewind`] to.
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    pub(super) fn put(
        &mut self,
        batch: BatchNumber,
        table: Table,
        key: &Key,
        length: usize,
    ) -> Result<(), BudgetExhausted> {
        let held = self.held(table);
        let refuse = |limit| Err(BudgetExhausted { table, limit });
        if key.len() > KEY_MAX {
            return refuse(Limit::KeyLength);
        }
        if length > VALUE_MAX {
            return refuse(Limit::ValueLength);
        }
        let size = size(key, length);
        let before = held.sizes.get(key).copied();
        if before.is_none() && held.records() >= held.budget.records {
            return refuse(Limit::Records(held.budget.records));
        }
        let bytes = held.bytes.saturating_sub(before.unwrap_or(0)).saturating_add(size);
        // A record that shrinks is always taken: it could only bring an over-full table closer to its budget.
        if bytes > held.budget.bytes && bytes > held.bytes {
            return refuse(Limit::Bytes(held.budget.bytes));
        }
        if before != Some(size) {
            held.set(key, Some(size));
            self.log.push_back(Change { batch, table, key: key.clone(), before });
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, batch: BatchNumber, table: Table, key: &Key) {
        let before = self.held(table).set(key, None);
        if before.is_some() {
            self.log.push_back(Change { batch, table, key: key.clone(), before });
        }
    }

    /// Takes back what was changed since `mark`, newest first.
    pub(super) fn rewind(&mut self, mark: usize) {
        while self.log.len() > mark {
            if let Some(Change { table, key, before, .. }) = self.log.pop_back() {
                self.held(table).set(&key, before);
            }
        }
    }

    /// Everything up to and including `batch` is durable.
    pub(super) fn released(&mut self, batch: BatchNumber) {
        while self.log.front().is_some_and(|change| change.batch <= batch) {
            self.log.pop_front();
        }
    }

    /// Takes back everything that is not released.
    pub(super) fn undo(&mut self) {
        self.rewind(0);
    }

    fn held(&mut self, table: Table) -> &mut Held {
        match table {
            Table::Sender => &mut self.sender,
            Table::Receiver => &mut self.receiver,
            Table::Clock => &mut self.clock,
            Table::Custody => &mut self.custody,
            Table::Nonce => &mut self.nonce,
            Table::Approval => &mut self.approval,
            Table::Operation => &mut self.operation,
        }
    }
}

fn size(key: &Key, length: usize) -> u64 {
    (key.len() as u64).saturating_add(length as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupancy(records: u64, bytes: u64) -> Occupancy {
        let mut occupancy = Occupancy::default();
        occupancy.load(Table::Sender, Budget { records, bytes }, &Scan::default()).unwrap();
        occupancy
    }

    fn key(name: &'static str) -> Key {
        Key::from_static(name.as_bytes())
    }

    fn held(occupancy: &mut Occupancy) -> (u64, u64) {
        let held = occupancy.held(Table::Sender);
        (held.records(), held.bytes)
    }

    #[test]
    fn l9_7_both_bounds_are_reached_and_a_refusal_changes_nothing() {
        let mut occupancy = occupancy(2, 25);
        occupancy.put(1, Table::Sender, &key("a"), 9).unwrap();
        let over = occupancy.put(1, Table::Sender, &key("b"), 15).unwrap_err();
        assert_eq!(over.limit, Limit::Bytes(25));
        occupancy.put(1, Table::Sender, &key("b"), 14).unwrap();
        assert_eq!(held(&mut occupancy), (2, 25));
        let over = occupancy.put(1, Table::Sender, &key("c"), 0).unwrap_err();
        assert_eq!(over.limit, Limit::Records(2));
        assert_eq!(held(&mut occupancy), (2, 25));
        let over = occupancy.put(1, Table::Sender, &key("a"), VALUE_MAX + 1).unwrap_err();
        assert_eq!(over.limit, Limit::ValueLength);
        let over = occupancy.put(1, Table::Sender, &Key::from(vec![0; KEY_MAX + 1]), 1).unwrap_err();
        assert_eq!(over.limit, Limit::KeyLength);
        occupancy.remove(1, Table::Sender, &key("a"));
        occupancy.put(1, Table::Sender, &key("c"), 9).unwrap();
    }

    #[test]
    fn l9_2_undo_restores_what_the_last_released_batch_left() {
        let mut occupancy = occupancy(10, 1_000);
        occupancy.put(1, Table::Sender, &key("a"), 9).unwrap();
        occupancy.put(1, Table::Sender, &key("b"), 19).unwrap();
        occupancy.released(1);
        occupancy.put(2, Table::Sender, &key("a"), 99).unwrap();
        occupancy.remove(2, Table::Sender, &key("b"));
        occupancy.put(3, Table::Sender, &key("b"), 4).unwrap();
        occupancy.put(3, Table::Sender, &key("c"), 4).unwrap();
        occupancy.undo();
        assert_eq!(held(&mut occupancy), (2, 30));
    }

    #[test]
    fn l9_7_opening_over_a_lowered_budget_is_refused_and_bad_records_count() {
        let records = vec![(key("a"), Key::from_static(b"12345"))];
        let bad = vec![crate::storage::BadRecord {
            name: crate::storage::RecordName::of(Table::Sender, b"x"),
            reason: "torn".into(),
        }];
        let scan = Scan { records, bad };
        let load = |budget| Occupancy::default().load(Table::Sender, budget, &scan);
        assert_eq!(load(Budget { records: 1, bytes: 6 }).unwrap_err().limit, Limit::Records(1));
        assert_eq!(load(Budget { records: 2, bytes: 5 }).unwrap_err().limit, Limit::Bytes(5));
        load(Budget { records: 2, bytes: 6 }).unwrap();
    }
}
