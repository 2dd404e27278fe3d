//! The set U of law L11.1: records that are there and cannot be restored. Each is logged once and counted.

use std::collections::BTreeMap;

use crate::storage::{RecordName, Table};

/// Bounded by the tables' budgets: a bad record takes the place of one.
#[derive(Default)]
pub(super) struct Unrestorable {
    names: BTreeMap<RecordName, String>,
}

impl Unrestorable {
    pub(super) fn add(&mut self, name: RecordName, reason: &str) {
        if self.names.insert(name, reason.to_owned()).is_none() {
            tracing::error!(record = %name, reason, "a record cannot be restored: its stream is unavailable until it is cleared");
            metrics::gauge!("admit_one_unrestorable_records").set(self.names.len() as f64);
        }
    }

    /// The record's name, if it is in the set. A key is hashed only when the set is not empty.
    pub(super) fn find(&self, table: Table, key: &[u8]) -> Option<RecordName> {
        if self.names.is_empty() {
            return None;
        }
        let name = RecordName::of(table, key);
        self.names.contains_key(&name).then_some(name)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RecordName, &String)> {
        self.names.iter()
    }
}
