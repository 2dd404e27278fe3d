//! The engine that keeps its records in this process alone.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use super::{Batch, CommitError, Key, OpenError, RecordName, Scan, ScanError, Store, Table, Write};
use crate::BoxFuture;

/// Records in memory, for tests: they are gone with the process, and [`Store::durable`] says so (law L9.6).
///
/// A batch is applied under one lock, so that a scan sees all of it or none. Nothing bounds the records but the
/// budgets of group commit. [`Store::reopen`] keeps what is there.
#[derive(Debug, Default)]
pub struct Memory {
    records: Mutex<BTreeMap<(Table, Key), Bytes>>,
}

impl Memory {
    /// A store without records.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Table, Key), Bytes>> {
        // A batch is applied by inserts and removals that do not panic, so a poisoned map is still whole.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move {
            let records = self.lock();
            let of_table = records.iter().filter(|((of, _), _)| *of == table);
            let records = of_table.map(|((_, key), value)| (key.clone(), value.clone())).collect();
            Ok(Scan { records, bad: Vec::new() })
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            batch.check()?;
            let mut records = self.lock();
            for Write { table, key, value } in batch.writes {
                match value {
                    Some(value) => records.insert((table, key), value),
                    None => records.remove(&(table, key)),
                };
            }
            Ok(())
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(async move {
            let mut records = self.lock();
            let named = |(table, key): &&(Table, Key)| *table == name.table && RecordName::of(*table, key) == name;
            let found = records.keys().find(named).cloned();
            Ok(found.is_some_and(|found| records.remove(&found).is_some()))
        })
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async { Ok(()) })
    }

    fn durable(&self) -> bool {
        false
    }
}
