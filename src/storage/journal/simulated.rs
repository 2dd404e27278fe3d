//! The journal's log on the directory in memory.

use std::time::Duration;

use super::{JournalConfig, log::Log};
pub(crate) use crate::storage::directory::simulated::{Image, Simulated};
pub(super) use crate::storage::directory::{
    enumerate::{Crash, Medium},
    simulated::{Fail, Model, Random, apply},
};
use crate::storage::{
    Batch, CommitError, OpenError, RecordName, Scan, Table,
    crash_tests::engine::{Driven, Engine},
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

/// The real log over the mock.
#[derive(Debug)]
pub(crate) struct OnJournal(Log<Simulated>);

impl Engine for OnJournal {
    const NAME: &'static str = "journal";
    const WHOLE_BATCHES: bool = true;

    fn open(files: &Simulated) -> Result<Self, OpenError> {
        open(files).map(Self)
    }

    fn scan(&self, table: Table) -> Result<Scan, String> {
        self.0.scan(table)
    }

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        self.0.commit(batch)
    }

    fn discard(&mut self, name: RecordName) -> Result<bool, CommitError> {
        self.0.discard(name)
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        self.0.reopen()
    }

    fn tidy(&mut self) {
        self.0.tidy();
    }

    fn work(&mut self) {
        if self.0.has_work() {
            self.0.work();
        }
    }

    fn seal(&mut self) {
        self.0.seal();
    }
}

/// The journal as a store on its caller's thread.
pub(crate) type OnSimulated = Driven<OnJournal>;
