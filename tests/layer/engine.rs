//! A mock engine: records in memory, and a gate that a test holds shut or lets fail. Nothing in it survives, and it
//! claims to be durable so that admission can be tested against stalls and failures that no real engine makes on
//! demand.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

use admit_one::{
    BoxFuture,
    storage::{Batch, CommitError, Key, OpenError, RecordName, Scan, ScanError, Store, Table},
};
use bytes::Bytes;
use tokio::sync::watch;

/// What the next commits meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// They are durable at once.
    Open,
    /// They wait until the gate is set otherwise.
    Stalled,
    /// They fail, and nothing of them is kept.
    Failing,
}

#[derive(Debug)]
pub struct MockEngine {
    records: Mutex<BTreeMap<(Table, Key), Bytes>>,
    gate: watch::Sender<Gate>,
}

impl MockEngine {
    pub fn new() -> Self {
        Self { records: Mutex::default(), gate: watch::Sender::new(Gate::Open) }
    }

    pub fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    /// How many records `table` holds.
    pub fn count(&self, table: Table) -> usize {
        self.records().keys().filter(|(of, _)| *of == table).count()
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<(Table, Key), Bytes>> {
        self.records.lock().expect("no test panics in here")
    }
}

impl Store for MockEngine {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        let records = self.records();
        let of_table = records.iter().filter(|((of, _), _)| *of == table);
        let records = of_table.map(|((_, key), value)| (key.clone(), value.clone())).collect();
        Box::pin(std::future::ready(Ok(Scan { records, bad: Vec::new() })))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            let mut gate = self.gate.subscribe();
            let gate = *gate.wait_for(|gate| *gate != Gate::Stalled).await.expect("the sender lives in self");
            if gate == Gate::Failing {
                let (path, reason) = (PathBuf::from("mock"), String::from("on purpose"));
                return Err(CommitError::Io { action: "write", path, reason });
            }
            let mut records = self.records();
            for write in batch.writes {
                match write.value {
                    Some(value) => records.insert((write.table, write.key), value),
                    None => records.remove(&(write.table, write.key)),
                };
            }
            Ok(())
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        let mut records = self.records();
        let held = records.len();
        records.retain(|(table, key), _| RecordName::of(*table, key) != name);
        Box::pin(std::future::ready(Ok(records.len() < held)))
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn durable(&self) -> bool {
        true
    }
}
