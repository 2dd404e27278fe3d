//! Opening, bad records, shutting down (laws L9.6, L9.7, L11.1, L11.3, L13.3).

use std::sync::{Arc, Mutex, mpsc};

use futures::{FutureExt, poll};

use super::*;
use crate::{
    BoxFuture,
    storage::{
        BadRecord, Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store,
        commit::{Budget, CommitOpenError, StoreState, fault::Fault},
    },
};

#[tokio::test]
async fn l9_6_a_store_that_forgets_is_refused_unless_it_is_asked_for() {
    let store = FaultStore::volatile();
    let refused = GroupCommit::open(store.arc(), CommitConfig::new()).await;
    assert!(matches!(refused, Err(CommitOpenError::Volatile)));
    GroupCommit::open(store.arc(), CommitConfig::volatile_for_tests()).await.unwrap();
}

#[tokio::test]
async fn l9_7_opening_over_a_lowered_budget_is_refused() {
    let store = FaultStore::holding([((Table::Sender, name(1)), Bytes::from_static(b"12"))].into());
    let config = |bytes| CommitConfig::new().with_budget(Table::Sender, Budget { records: 1, bytes });
    let refused = GroupCommit::open(store.arc(), config(2)).await;
    assert!(matches!(refused, Err(CommitOpenError::OverBudget(_))));
    GroupCommit::open(store.arc(), config(3)).await.unwrap();
}

#[tokio::test]
async fn l11_3_a_table_that_cannot_be_listed_fails_the_call_and_the_next_one_scans_again() {
    let store = FaultStore::new();
    store.fail_scans(true);
    let refused = GroupCommit::open(store.arc(), CommitConfig::new()).await;
    assert!(matches!(refused, Err(CommitOpenError::Scan(_))));
    store.fail_scans(false);
    GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
}

#[tokio::test]
async fn l11_1_bad_records_are_known_to_every_member_and_a_scan_has_one_owner() {
    let store = FaultStore::holding(
        [((Table::Sender, name(1)), Bytes::from_static(b"1")), ((Table::Clock, name(2)), Bytes::from_static(b"2"))]
            .into(),
    );
    let torn = RecordName::of(Table::Receiver, &name(3));
    store.add_bad(Table::Receiver, BadRecord { name: torn, reason: "torn".into() });
    let (commit, member) = open(&store).await;
    assert_eq!(commit.take_scan(Table::Sender).unwrap().records.len(), 1);
    assert!(commit.take_scan(Table::Sender).is_none());
    assert_eq!(commit.take_scan(Table::Clock), commit.take_scan(Table::Clock));
    assert_eq!(commit.take_scan(Table::Clock).unwrap().records.len(), 1);
    let misfiled = RecordName::of(Table::Sender, &name(1));
    commit.set_unrestorable(misfiled, "misfiled");
    commit.set_unrestorable(misfiled, "misfiled");
    let seen = member.transition(|_, stage| {
        let found = [(Table::Receiver, 3), (Table::Sender, 1), (Table::Receiver, 1)]
            .map(|(table, key)| stage.unavailable(table, &name(key)));
        (found, stage.unrestorable())
    });
    assert_eq!(seen.await.unwrap(), ([Some(torn), Some(misfiled), None], 2));
    assert_eq!(commit.health().unrestorable, [(misfiled, "misfiled".into()), (torn, "torn".into())]);
}

#[tokio::test]
async fn l13_3_shutdown_takes_nothing_more_and_waits_until_what_is_staged_has_landed() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.stall();
    let (first, second) = {
        let first = add(&member, 1);
        settle().await;
        (first, add(&member, 2))
    };
    let mut shutdown = Box::pin(commit.shutdown());
    assert!(poll!(&mut shutdown).is_pending());
    assert!(add(&member, 3).now_or_never().unwrap().is_err());
    store.let_through(1);
    settle().await;
    assert!(poll!(&mut shutdown).is_pending());
    store.let_through(1);
    shutdown.await;
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 1));
    assert_eq!(durable(&store.records()), [(1, 1), (2, 1)].into());
    commit.shutdown().await;
    assert!(matches!(commit.health().state, StoreState::Stopped(_)));
}

/// An engine that notes, when it is let go of, whether group commit had already said that it was shut down.
#[derive(Debug)]
struct LetGo {
    engine: FaultStore,
    commit: Arc<Mutex<Option<GroupCommit>>>,
    told: mpsc::Sender<bool>,
}

impl Store for LetGo {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        self.engine.scan(table)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        self.engine.commit(batch)
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        self.engine.discard(name)
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        self.engine.reopen()
    }

    fn durable(&self) -> bool {
        true
    }
}

impl Drop for LetGo {
    fn drop(&mut self) {
        let commit = self.commit.lock().unwrap().take().unwrap();
        self.told.send(commit.shutdown().now_or_never().is_some()).unwrap();
    }
}

#[tokio::test]
async fn l9_8_shutdown_returns_only_once_the_engine_is_let_go_of_so_that_it_can_be_opened_again() {
    let (told, early) = mpsc::channel();
    let handle = Arc::new(Mutex::new(None));
    let engine = LetGo { engine: FaultStore::new(), commit: handle.clone(), told };
    let commit = GroupCommit::open(Arc::new(engine), CommitConfig::new()).await.unwrap();
    *handle.lock().unwrap() = Some(commit.clone());
    commit.shutdown().await;
    assert_eq!(early.try_recv(), Ok(false), "another open of the store would have found it locked");
}

#[tokio::test]
async fn l9_8_two_group_commits_never_run_over_one_engine() {
    let store = FaultStore::new();
    let engine = store.arc();
    let commit = GroupCommit::open(engine.clone(), CommitConfig::new()).await.unwrap();
    let second = GroupCommit::open(engine.clone(), CommitConfig::new()).await;
    assert!(matches!(second, Err(CommitOpenError::InUse)), "both would admit");
    commit.shutdown().await;
    let commit = GroupCommit::open(engine.clone(), CommitConfig::new()).await.unwrap();
    drop(commit);
    settle().await;
    store.fail_scans(true);
    assert!(matches!(GroupCommit::open(engine.clone(), CommitConfig::new()).await, Err(CommitOpenError::Scan(_))));
    store.fail_scans(false);
    GroupCommit::open(engine, CommitConfig::new()).await.unwrap();
}

#[tokio::test]
async fn shutdown_of_a_store_that_fails_ends_too() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.fail_at(1, Fault::Closed);
    let failed = add(&member, 1);
    commit.shutdown().await;
    failed.await.unwrap_err();
}

#[tokio::test]
async fn the_last_handle_dropped_lands_what_is_staged_and_frees_the_store() {
    let store = FaultStore::new();
    let weak = {
        let engine = store.arc();
        let weak = std::sync::Arc::downgrade(&engine);
        let commit = GroupCommit::open(engine, CommitConfig::new()).await.unwrap();
        let member = commit.join(Counters::default());
        drop(commit);
        drop(add(&member, 1));
        weak
    };
    settle().await;
    assert_eq!(durable(&store.records()), [(1, 1)].into());
    assert!(weak.upgrade().is_none(), "the writer ended and let go of the engine");
}

#[test]
fn a_runtime_that_goes_away_fails_what_is_unreleased_instead_of_leaving_it_waiting() {
    let store = FaultStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (commit, member) = runtime.block_on(open(&store));
    store.stall();
    let in_flight = add(&member, 1);
    runtime.block_on(settle());
    let gathering = add(&member, 2);
    drop(runtime);
    assert!(in_flight.now_or_never().unwrap().is_err());
    assert!(gathering.now_or_never().unwrap().is_err());
    assert!(add(&member, 3).now_or_never().unwrap().is_err());
    assert!(matches!(commit.health().state, StoreState::Stopped(_)));
}
