//! The journal's log on the directory in memory.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{JournalConfig, log::Log};
pub(crate) use crate::storage::directory::simulated::{Crash, Image, Medium, Operation, Random, Simulated};
pub(super) use crate::storage::directory::simulated::{Fail, Model, apply};
use crate::{
    BoxFuture,
    storage::{Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store, Table},
};

/// The records of a log, and the names of the unreadable ones.
pub(super) fn held(log: &Log<Simulated>) -> (Model, Vec<RecordName>) {
    let (mut model, mut bad) = (Model::new(), Vec::new());
    for table in Table::ALL {
        let scan = log.scan(table).expect("open");
        model.extend(scan.records.into_iter().map(|(key, value)| ((table, key.to_vec()), value.to_vec())));
        bad.extend(scan.bad.into_iter().map(|bad| bad.name));
    }
    (model, bad)
}

/// Small segments and an early compaction, so that a short run has many of both.
pub(super) fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 24 * 1024,
        compact_floor_bytes: 48 * 1024,
        compact_ratio: 2,
        budget_bytes: 96 << 20,
        seal_after: Duration::from_millis(250),
    }
}

/// The same, without compaction: no segment is ever left over.
pub(super) fn uncompacted() -> JournalConfig {
    JournalConfig { compact_floor_bytes: 1 << 30, ..config() }
}

pub(super) fn open(files: &Simulated) -> Result<Log<Simulated>, OpenError> {
    super::open::open(files.clone(), config())
}

/// The real log over the mock, as an engine on its caller's thread. As on a thread of its own, a commit takes a while,
/// in which others gather, and is answered before the work that follows it, which is done before the next.
#[derive(Debug)]
pub(crate) struct OnSimulated(Mutex<Log<Simulated>>);

impl OnSimulated {
    pub(crate) fn open(files: &Simulated) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self(Mutex::new(open(files)?))))
    }

    fn log(&self) -> MutexGuard<'_, Log<Simulated>> {
        self.0.lock().expect("no test panics inside")
    }
}

impl Store for OnSimulated {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move { self.log().scan(table).map_err(|reason| ScanError { table, reason }) })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            // Who waits for the last batch hears of it first, so what it is told is not dated by this one.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut log = self.log();
            log.tidy();
            if log.has_work() {
                log.work();
            }
            log.commit(batch)
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(async move { self.log().discard(name) })
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move { self.log().reopen() })
    }

    fn durable(&self) -> bool {
        true
    }
}
