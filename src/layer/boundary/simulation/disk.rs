//! The disk under one process after another: its batches are late, fail, tear and are lost, its records go bad.

use super::super::model::Draw;
use crate::storage::{
    BadRecord, RecordName, Table,
    commit::fault::{Crash, Fault, FaultStore, Records},
};

/// One disk. Group commit runs on [`Disk::store`], a new one for each process.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) store: FaultStore,
    /// What was durable before the newest batch landed.
    before: Records,
    bad: Vec<(Table, BadRecord)>,
    /// How many commits have ended.
    ended: u64,
}

/// Lets everything that can go on go on.
pub(super) async fn settle() {
    for _ in 0..6 {
        tokio::task::yield_now().await;
    }
}

impl Disk {
    pub(super) fn new() -> Self {
        Self { store: FaultStore::new(), before: Records::new(), bad: Vec::new(), ended: 0 }
    }

    /// A process has started: from now on commits wait for [`Disk::land`].
    pub(super) fn started(&mut self) {
        self.store.stall();
        self.ended = self.store.begun();
    }

    /// The batch in flight lands, if there is one.
    pub(super) async fn land(&mut self) -> bool {
        settle().await;
        if self.store.begun() == self.ended {
            return false;
        }
        self.before = self.store.records();
        self.end_commit().await;
        true
    }

    /// The batch in flight fails, if there is one.
    pub(super) async fn fail(&mut self, fault: Fault) -> bool {
        settle().await;
        if self.store.begun() == self.ended {
            return false;
        }
        self.store.fail_at(self.store.begun(), fault);
        self.end_commit().await;
        true
    }

    async fn end_commit(&mut self) {
        self.ended += 1;
        self.store.let_through(1);
        settle().await;
    }

    /// The process died. The batch in flight is lost, whole, torn or landed; without honesty the one before is, too.
    pub(super) async fn crash(&mut self, draw: &mut Draw, honest: bool) {
        settle().await;
        if self.store.begun() > self.ended && !draw.one_in(4) {
            let crash = *draw.pick(&[Crash::Torn, Crash::Torn, Crash::Landed, Crash::Whole]).unwrap();
            self.store.crash_before(draw.below(4), crash);
            self.end_commit().await;
        }
        let records = if honest { self.store.records() } else { std::mem::take(&mut self.before) };
        self.replace(records);
    }

    /// Everything is gone.
    pub(super) fn lose(&mut self) {
        self.bad.clear();
        self.replace(Records::new());
    }

    /// One record goes bad: a bit of what the engine gives back, or it says that it cannot.
    pub(super) fn damage(&mut self, table: Table, draw: &mut Draw) {
        let mut records = self.store.records();
        let places: Vec<_> = records.keys().filter(|(of, _)| *of == table).cloned().collect();
        let Some(place) = draw.pick(&places) else { return };
        if draw.one_in(2) {
            records.remove(place);
            let name = RecordName::of(table, &place.1);
            self.bad.push((table, BadRecord { name, reason: "a bad sector".into() }));
        } else if let Some(value) = records.get_mut(place) {
            let mut bytes = value.to_vec();
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << draw.below(8);
            *value = bytes.into();
        }
        self.replace(records);
    }

    fn replace(&mut self, records: Records) {
        // What is parked in the old one goes its way.
        self.store.resume();
        self.before = records.clone();
        self.store = FaultStore::holding(records);
        self.bad.iter().for_each(|(table, bad)| self.store.add_bad(*table, bad.clone()));
        self.ended = 0;
    }
}
