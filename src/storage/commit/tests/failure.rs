//! Fail closed, reopen, panics (laws L9.2 and L9.4).

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::{FutureExt, poll};

use super::*;
use crate::storage::{
    CommitError, OpenError,
    commit::{ReopenError, StoreState, fault::Fault},
};

const BATCHES: u64 = 8;

#[tokio::test]
async fn l9_2_fail_closed_undoes_its_batch_and_the_one_gathering_on_top_for_every_k() {
    for fault in [Fault::Io, Fault::Closed] {
        for k in 1..=BATCHES {
            let store = FaultStore::new();
            let (commit, member) = open(&store).await;
            let (_, other) = (commit.clone(), commit.join(Counters::default()));
            store.stall();
            store.fail_at(k, fault);
            // In flight, always with one gathering on top of it.
            let mut on_top = add(&member, 0);
            settle().await;
            for batch in 1..=BATCHES {
                let in_flight = std::mem::replace(&mut on_top, add(&member, batch as u8));
                let removal = member.transition(|counters, stage| counters.remove(0, stage));
                let looked = look(&member, 0);
                let before = durable(&store.records());
                store.let_through(1);
                settle().await;
                if batch < k {
                    in_flight.now_or_never().unwrap().unwrap();
                    continue;
                }
                assert!(in_flight.now_or_never().unwrap().is_err());
                assert!(on_top.now_or_never().unwrap().is_err(), "the one on top fails with it");
                assert!(removal.now_or_never().unwrap().is_err());
                assert!(looked.now_or_never().unwrap().is_err(), "a refusal's verdict is not reported either");
                assert_eq!(values(&member), before, "in memory too");
                assert_eq!(durable(&store.records()), before);
                assert_eq!(other.inspect(|counters| counters.undone), 1, "every participant");
                break;
            }
            assert_eq!(commit.health().failures, 1, "counted once");
            assert_eq!(store.begun(), k, "the one on top is never written");
            store.resume();
            match fault {
                Fault::Io => assert!(matches!(commit.health().state, StoreState::Failing(_))),
                _ => {
                    assert!(matches!(commit.health().state, StoreState::Closed(_)));
                    let mut ran = false;
                    let refused = member.transition(|_, _| ran = true).now_or_never().unwrap();
                    assert!(matches!(refused.unwrap_err().reason, CommitError::Closed { .. }));
                    assert!(!ran, "a refused transition is not run");
                    commit.reopen().await.unwrap();
                }
            }
            let next = values(&member).get(&1).copied().unwrap_or(0) + 1;
            assert_eq!(add(&member, 1).await.unwrap(), next);
            assert_eq!(durable(&store.records()), values(&member));
            assert!(matches!(commit.health().state, StoreState::Open));
        }
    }
}

#[tokio::test]
async fn l9_2_fail_closed_gives_back_budget() {
    let store = FaultStore::new();
    let config =
        CommitConfig::new().with_budget(Table::Receiver, crate::storage::commit::Budget { records: 1, bytes: 100 });
    let commit = GroupCommit::open(store.arc(), config).await.unwrap();
    let member = commit.join(Counters::default());
    store.fail_at(1, Fault::Io);
    assert!(add(&member, 1).await.is_err());
    assert_eq!(add(&member, 2).await.unwrap(), 1);
}

#[tokio::test]
async fn l9_4_reopen_is_tried_again_and_a_caller_that_goes_away_does_not_stop_it() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    commit.reopen().await.unwrap();
    assert_eq!(store.reopened(), 0, "a store that works is left alone");
    store.fail_at(1, Fault::Closed);
    add(&member, 1).await.unwrap_err();
    store.fail_reopen(true);
    assert!(matches!(commit.reopen().await, Err(ReopenError::Engine(OpenError::Damaged { .. }))));
    assert!(add(&member, 1).now_or_never().unwrap().is_err(), "it still refuses");
    store.fail_reopen(false);
    let mut abandoned = Box::pin(commit.reopen());
    assert!(poll!(&mut abandoned).is_pending());
    drop(abandoned);
    settle().await;
    assert_eq!(add(&member, 1).await.unwrap(), 1);
    assert_eq!(store.reopened(), 2);
    store.fail_at(store.begun() + 1, Fault::Closed);
    add(&member, 1).await.unwrap_err();
    let (one, other) = futures::join!(commit.reopen(), commit.reopen());
    one.unwrap();
    other.unwrap();
    assert_eq!(store.reopened(), 3, "the second found it open");
}

#[tokio::test]
async fn a_transition_that_panics_stops_group_commit_and_what_gathers_fails() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.stall();
    let in_flight = add(&member, 1);
    settle().await;
    let gathering = add(&member, 2);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        drop(member.transition(|counters, stage| {
            counters.add(3, stage).unwrap();
            panic!("injected");
        }))
    }));
    assert!(panicked.is_err(), "the caller sees its own panic");
    assert!(gathering.now_or_never().unwrap().is_err());
    assert!(add(&member, 4).now_or_never().unwrap().is_err());
    store.resume();
    assert_eq!(in_flight.await.unwrap(), 1, "what was written is written");
    assert!(matches!(commit.reopen().await, Err(ReopenError::Stopped { .. })));
    assert!(matches!(commit.health().state, StoreState::Stopped(_)));
    assert_eq!(durable(&store.records()), [(1, 1)].into());
    // Opened anew, it is whole.
    let (_commit, member) = open(&store).await;
    assert_eq!(add(&member, 1).await.unwrap(), 2);
}

#[tokio::test]
async fn l12_7_an_engine_that_panics_fails_closed() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.stall();
    store.fail_at(1, Fault::Panic);
    let in_flight = add(&member, 1);
    settle().await;
    let gathering = add(&member, 2);
    store.resume();
    in_flight.await.unwrap_err();
    gathering.await.unwrap_err();
    assert!(add(&member, 3).now_or_never().unwrap().is_err());
    assert!(matches!(commit.reopen().await, Err(ReopenError::Stopped { .. })));
    assert_eq!(commit.health().failures, 1);
    commit.shutdown().await;
}

/// Panics when it is told of a durable batch, or of a failed one.
struct Broken;

impl Participant for Broken {
    fn released(&mut self, _: BatchNumber) {
        panic!("injected");
    }

    fn undo(&mut self) {
        panic!("injected");
    }
}

#[tokio::test]
async fn a_participant_that_panics_stops_group_commit_and_nobody_waits_for_ever() {
    for fails in [false, true] {
        let store = FaultStore::new();
        let (commit, member) = open(&store).await;
        let _broken = commit.join(Broken);
        if fails {
            store.fail_at(1, Fault::Io);
        }
        store.stall();
        let in_flight = add(&member, 1);
        settle().await;
        let gathering = add(&member, 2);
        store.resume();
        assert_eq!(in_flight.await.is_err(), fails, "a durable batch is released all the same");
        gathering.await.unwrap_err();
        assert!(add(&member, 3).now_or_never().unwrap().is_err());
        assert!(matches!(commit.health().state, StoreState::Stopped(_)));
    }
}
