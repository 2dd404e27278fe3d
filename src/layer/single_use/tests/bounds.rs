//! Every bound is reached, and says what it does there (laws L9.7 and L12.1).

use super::*;
use crate::{
    layer::single_use::{Capacity, Consumed, OUTCOME_MAX, OutcomeUnknown, Places},
    storage::{
        Table,
        commit::{Budget, CommitConfig, GroupCommit},
    },
};

fn of(subject: u8, mark: Mark) -> Mark {
    Mark { subject: did(subject), ..mark }
}

#[tokio::test]
async fn l12_1_one_subject_fills_its_own_places_and_no_live_mark_is_evicted() {
    let node = Node::with(|config| config.nonces = Places { per_subject: 3, in_all: 5 }).await;
    let marks: Vec<_> = (0..3).map(|seed| nonce(seed, T0 + 400)).collect();
    for mark in &marks {
        assert_eq!(node.single_use.reserve_until(mark).await, Ok(true));
    }
    let refusal = node.single_use.reserve_until(&nonce(9, T0 + 400)).await.unwrap_err();
    assert_eq!(refusal, Refusal::Capacity(Capacity::PerSubject { table: Table::Nonce, bound: 3 }));
    assert_eq!(refusal.consumed(), Consumed::No);
    for seed in 10..12 {
        assert_eq!(node.single_use.reserve_until(&of(2, nonce(seed, T0 + 400))).await, Ok(true));
    }
    let refusal = node.single_use.reserve_until(&of(3, nonce(20, T0 + 400))).await.unwrap_err();
    assert_eq!(refusal, Refusal::Capacity(Capacity::InAll { table: Table::Nonce, bound: 5 }));
    for mark in &marks {
        assert_eq!(node.single_use.reserve_until(mark).await, Ok(false));
    }
    // A rollback gives a place back; approvals have places of their own.
    let node = node.crash().await;
    assert_eq!(node.single_use.health().nonces, 5);
    assert!(node.single_use.reserve(&[approval(1, T0 + 400, T0 + 400)], &[]).await.is_ok());
}

#[tokio::test]
async fn l12_1_a_full_store_has_room_again_once_what_expired_has_waited() {
    let node = Node::with(|config| config.nonces = Places { per_subject: 8, in_all: 8 }).await;
    for seed in 0..8 {
        assert_eq!(node.single_use.reserve_until(&nonce(seed, node.now() + 10)).await, Ok(true));
    }
    let fresh = |node: &Node, seed| Mark { issued_at: Some(node.now()), ..nonce(seed, node.now() + 10) };
    node.pass(10);
    assert_eq!(code(node.single_use.reserve_until(&fresh(&node, 8)).await), "capacity");
    node.pass(LIFETIME + SIGMA - 10);
    for seed in 8..16 {
        assert_eq!(node.single_use.reserve_until(&fresh(&node, seed)).await, Ok(true));
    }
    assert_eq!(code(node.single_use.reserve_until(&fresh(&node, 16)).await), "capacity");
}

#[tokio::test]
async fn l12_1_a_subjects_own_expired_marks_make_room_for_it_behind_all_others() {
    let node = Node::with(|config| config.nonces = Places { per_subject: 20, in_all: 1_000 }).await;
    for seed in 0..20 {
        assert_eq!(node.single_use.reserve_until(&nonce(seed, node.now() + 10)).await, Ok(true));
        assert_eq!(node.single_use.reserve_until(&of(2, nonce(100 + seed, node.now() + 10))).await, Ok(true));
    }
    node.pass(LIFETIME + SIGMA);
    let fresh = |seed| of(2, Mark { issued_at: Some(node.now()), ..nonce(seed, node.now() + 10) });
    assert_eq!(node.single_use.reserve_until(&fresh(200)).await, Ok(true));
}

#[tokio::test]
async fn l12_4_operations_have_places_and_bytes() {
    let node = Node::with(|config| {
        config.operations = Places { per_subject: 2, in_all: 100 };
        config.outcome_max = 1_000;
        config.operation_bytes = 6_000;
    })
    .await;
    let by = |subject, seed| Operation { subject: did(subject), ..operation(seed, 1, T0 + 400) };
    let mut held = Vec::new();
    for (subject, seed) in [(1, 1), (1, 2), (2, 3)] {
        held.push(node.run(&by(subject, seed), &[]).await.unwrap());
    }
    let refusal = node.run(&by(1, 4), &[]).await.unwrap_err();
    assert_eq!(refusal, Refusal::Capacity(Capacity::PerSubject { table: Table::Operation, bound: 2 }));
    held.push(node.run(&by(2, 5), &[]).await.unwrap());
    let refusal = node.run(&by(3, 6), &[nonce(1, T0 + 400)]).await.unwrap_err();
    assert_eq!(refusal, Refusal::Capacity(Capacity::OperationBytes { bound: 6_000 }));
    assert_eq!(node.single_use.health().nonces, 0);
    // A retry takes no place.
    assert!(node.run(&by(1, 1), &[]).await.is_ok());
    // One that finished small leaves room.
    let dispatching = held.pop().unwrap().begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"small")).await.is_ok());
    assert!(node.run(&by(3, 6), &[]).await.is_ok());
}

#[tokio::test]
async fn l9_7_a_budget_of_the_store_refuses_and_leaves_everything_as_it_was() {
    let authority = std::sync::Arc::new(Switch::default());
    let mut config = SingleUseConfig::new().with_authority(authority).with_greatest_lifetime(LIFETIME as u64);
    config.outcome_max = OUTCOME_MAX;
    let store = FaultStore::new();
    let budget = CommitConfig::new()
        .with_budget(Table::Nonce, Budget { records: 1, bytes: 1_000 })
        .with_budget(Table::Operation, Budget { records: 10, bytes: 1_000 });
    let commit = GroupCommit::open(store.arc(), budget).await.unwrap();
    let clock = std::sync::Arc::new(ManualClock::new(T0 as u64 * 1_000));
    let single_use = SingleUse::open(&commit, clock.clone(), config).await.unwrap();
    clock.advance(Duration::from_secs(61));
    let op = operation(1, 1, T0 + 400);
    let [one, other] = [nonce(1, T0 + 400), nonce(2, T0 + 400)];
    let refusal = single_use.present(&op, &[one, other], &[]).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Capacity(Capacity::Budget(_))), "{refusal}");
    assert_eq!((single_use.health().operations, single_use.health().nonces), (0, 0));
    let Presentation::Run(reservation) = single_use.present(&op, &[one], &[]).await.unwrap() else { panic!("it ran") };
    let dispatching = reservation.begin(&[]).await.unwrap();
    // The outcome finds no room: unknown, and the marks are committed.
    let outcome = Outcome { kind: OutcomeKind::Receipt, bytes: vec![1; OUTCOME_MAX].into() };
    assert!(matches!(dispatching.finish(outcome).await, Err(OutcomeUnknown::NoRoom(_))));
    assert_eq!(single_use.state(&one.id, one.kind), MarkState::Committed);
    assert_eq!(code(single_use.present(&op, &[], &[]).await), "outcome_unknown");
}

#[tokio::test]
async fn l12_4_the_greatest_outcome_is_recorded_whole() {
    let node = Node::with(|config| config.outcome_max = OUTCOME_MAX).await;
    let op = operation(1, 1, T0 + 400);
    let mut marks: Vec<_> = (0..4).map(|seed| nonce(seed, T0 + 400)).collect();
    let first = node.run(&op, &marks).await.unwrap();
    marks = (4..8).map(|seed| nonce(seed, T0 + 400)).collect();
    let dispatching = node.run(&op, &marks).await.unwrap().begin(&[]).await.unwrap();
    drop(first);
    let outcome = Outcome { kind: OutcomeKind::Incident, bytes: vec![7; OUTCOME_MAX].into() };
    assert!(dispatching.finish(outcome.clone()).await.is_ok());
    assert_eq!(node.crash().await.recorded(&op, &[]).await, Ok(outcome));
}

#[tokio::test]
async fn l12_4_waiting_callers_are_bounded_by_operation_and_in_all_and_give_their_places_back() {
    let node = Node::with(|config| (config.waiters_per_operation, config.waiters) = (2, 3)).await;
    let ops = [operation(1, 1, T0 + 400), operation(2, 1, T0 + 400)];
    let mut running = Vec::new();
    for op in &ops {
        running.push(node.run(op, &[]).await.unwrap().begin(&[]).await.unwrap());
    }
    let wait = |op| Box::pin(node.single_use.present(op, &[], &[]));
    let [mut one, mut two, mut three] = [wait(&ops[0]), wait(&ops[0]), wait(&ops[1])];
    assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut two).is_pending());
    let refusal = node.run(&ops[0], &[]).await.unwrap_err();
    assert_eq!(refusal, Refusal::TooManyWaiters { bound: 2 });
    assert!(futures::poll!(&mut three).is_pending());
    assert_eq!(node.run(&ops[1], &[]).await.unwrap_err(), Refusal::TooManyWaiters { bound: 3 });
    drop(one);
    let mut fourth = wait(&ops[1]);
    assert!(futures::poll!(&mut fourth).is_pending());
    running.clear();
    assert_eq!([code(two.await), code(three.await), code(fourth.await)], ["outcome_unknown"; 3]);
    assert_eq!(node.single_use.health().waiters, 0);
}

#[tokio::test]
async fn a_presentation_brings_a_bounded_number_of_marks() {
    let node = Node::new().await;
    let marks: Vec<_> = (0..5).map(|seed| nonce(seed, T0 + 400)).collect();
    assert_eq!(node.single_use.reserve(&marks, &[]).await.unwrap_err(), Refusal::TooManyMarks { count: 5 });
    assert!(node.single_use.reserve(&marks[..4], &[]).await.is_ok());
}

#[tokio::test]
async fn what_is_configured_over_a_bound_does_not_open() {
    let node = Node::new().await;
    for seed in 0..3 {
        assert_eq!(node.single_use.reserve_until(&nonce(seed, T0 + 400)).await, Ok(true));
    }
    let open_with = async |change: fn(&mut SingleUseConfig)| {
        let mut config = node.config.clone();
        change(&mut config);
        let store = FaultStore::holding(node.store.records());
        open(&store, &node.clock, &config, node.guards).await.err()
    };
    let lifetime = open_with(|config| config.greatest_lifetime_s = 2_592_001).await;
    assert_eq!(lifetime, Some(SingleUseOpenError::LifetimeOverBound { configured: 2_592_001 }));
    let outcome = open_with(|config| config.outcome_max = 7_169).await;
    assert_eq!(outcome, Some(SingleUseOpenError::OutcomeOverBound { configured: 7_169 }));
    let capacity = open_with(|config| config.nonces.in_all = 2).await;
    assert_eq!(capacity, Some(SingleUseOpenError::OverCapacity { table: Table::Nonce, held: 3, bound: 2 }));
    assert!(open_with(|config| config.nonces.in_all = 3).await.is_none());
    let taken = SingleUse::open(&node.commit, node.clock.clone(), node.config.clone()).await.err();
    assert_eq!(taken, Some(SingleUseOpenError::Taken));
}
