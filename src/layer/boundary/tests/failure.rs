//! What a failing store does to the boundary.

use super::*;
use crate::{layer::window::WindowRefusal, storage::commit::fault::Fault};

#[tokio::test]
async fn l9_2_an_admission_answers_only_once_it_is_durable_and_so_does_a_refusal_that_saw_it() {
    let node = Node::new(config()).await;
    let request = node.fresh(stream(1, Class::E2e), 1);
    node.store.stall();
    let mut admitted = std::pin::pin!(node.admit(request));
    let mut refused = std::pin::pin!(node.admit(request));
    for _ in 0..20 {
        assert!(futures::poll!(&mut admitted).is_pending());
        assert!(futures::poll!(&mut refused).is_pending());
        tokio::task::yield_now().await;
    }
    node.store.resume();
    assert_eq!(admitted.await.unwrap(), Ok(Verdict::First));
    assert_eq!(refused.await.unwrap(), Err(WindowRefusal::Replay.into()));
}

#[tokio::test]
async fn l9_2_a_failed_batch_is_undone_in_memory_and_its_transactions_are_admitted_again() {
    let node = Node::new(config()).await;
    let (old, other) = (node.fresh(stream(1, Class::E2e), 1), node.fresh(stream(2, Class::E2e), 1));
    assert_eq!(node.answer(old).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA);
    // Its batch holds a removal, a floor, a settled birth and a new stream; one more transition gathers on top.
    let before = node.admission.health();
    let request = node.fresh(other.stream, 1);
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    node.store.stall();
    let (first, second) = (node.admission.admit(request), node.admission.admit(node.fresh(other.stream, 2)));
    assert_eq!(node.admission.health().streams, 1);
    tokio::task::yield_now().await;
    node.store.resume();
    assert!(first.await.is_err());
    assert!(second.await.is_err());
    assert_eq!(node.admission.health(), before);
    assert_eq!(node.answer(old).await, Err(BoundaryRefusal::Expired { expired: old.expires_at() }));
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    node.clock.step_wall_to(old.issued_at + 1);
    assert_eq!(node.answer(old).await, Err(BoundaryRefusal::BelowFloor { floor: old.expires_at() }));
}

#[tokio::test]
async fn l9_7_a_budget_that_is_reached_refuses_its_own_admission_and_leaves_the_tables() {
    let clock = Arc::new(ManualClock::new(START));
    let store = FaultStore::new();
    let budget = crate::storage::commit::Budget { records: 1, bytes: 4_096 };
    let budgets = CommitConfig::new().with_budget(crate::storage::Table::Receiver, budget);
    let commit = GroupCommit::open(store.arc(), budgets).await.unwrap();
    let admission = Admission::open(&commit, clock.clone(), config()).await.unwrap();
    let node = Node { store, clock, commit, admission };
    node.pass(2 * SIGMA + 1);
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await, Ok(Verdict::First));
    let records = node.store.records();
    // The clock was behind: this reading would raise birth, and what it stages is discarded with the rest.
    node.clock.step_wall_to(START + 300);
    let before = node.admission.health();
    let refused = node.answer(node.fresh(stream(2, Class::E2e), 1)).await;
    assert!(matches!(refused, Err(BoundaryRefusal::BudgetExhausted(_))), "{refused:?}");
    assert_eq!(node.admission.health(), before);
    assert_eq!(node.store.records(), records);
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 2)).await, Ok(Verdict::Advance));
    assert_eq!(node.admission.health().birth_mark, Some(START + 299));
}

#[tokio::test]
async fn l9_3_a_dropped_ticket_leaves_its_admission_staged() {
    let node = Node::new(config()).await;
    let request = node.fresh(stream(1, Class::E2e), 1);
    drop(node.admission.admit(request));
    assert_eq!(node.answer(request).await, Err(WindowRefusal::Replay.into()));
    let node = node.restart(config()).await.unwrap();
    assert_eq!(node.answer(request).await, Err(WindowRefusal::Replay.into()));
}

#[tokio::test]
async fn l9_9_a_store_whose_birth_cannot_be_recorded_does_not_open() {
    let store = FaultStore::new();
    store.fail_at(store.begun() + 1, Fault::Io);
    let opened = Node::open(store, Arc::new(ManualClock::new(START)), config()).await;
    assert!(matches!(opened.err(), Some(AdmissionOpenError::NotRecorded(_))));
}

#[tokio::test]
async fn an_opening_that_was_not_recorded_or_was_abandoned_takes_its_group_commit_and_no_other() {
    let clock = Arc::new(ManualClock::new(START));
    for abandoned in [false, true] {
        let store = FaultStore::new();
        let engine = store.arc();
        let commit = GroupCommit::open(engine.clone(), CommitConfig::new()).await.unwrap();
        if abandoned {
            store.stall();
            let mut opening = std::pin::pin!(Admission::open(&commit, clock.clone(), config()));
            assert!(futures::poll!(&mut opening).is_pending());
        } else {
            store.fail_at(store.begun() + 1, Fault::Io);
            let opened = Admission::open(&commit, clock.clone(), config()).await;
            assert!(matches!(opened.err(), Some(AdmissionOpenError::NotRecorded(_))));
        }
        store.resume();
        let again = Admission::open(&commit, clock.clone(), config()).await;
        assert_eq!(again.err(), Some(AdmissionOpenError::Taken));
        // What the error says to do: the same engine, under another group commit.
        commit.shutdown().await;
        let commit = GroupCommit::open(engine, CommitConfig::new()).await.unwrap();
        assert!(Admission::open(&commit, clock.clone(), config()).await.is_ok());
    }
}
