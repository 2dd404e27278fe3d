//! Operations (law L12.4).

use super::*;
use crate::layer::single_use::{Consumed, OutcomeUnknown};

#[tokio::test]
async fn l12_4_an_exact_retry_of_a_finished_operation_is_its_outcome_byte_for_byte() {
    let node = Node::new().await;
    let deadline = node.now() + 300;
    let op = operation(1, 1, deadline);
    let marks = [nonce(1, deadline), approval(2, deadline - 100, deadline)];
    let dispatching = node.run(&op, &marks).await.unwrap().begin(&[CAP]).await.unwrap();
    let released = dispatching.finish(receipt(b"a note\0")).await.unwrap().release(&[CAP]).unwrap();
    assert_eq!(released.into_inner(), receipt(b"a note\0"));
    // By the same nonce, which is not looked at, and by a fresh one, which is not burnt.
    let fresh = nonce(3, deadline);
    for node in [node] {
        assert_eq!(node.recorded(&op, &marks).await, Ok(receipt(b"a note\0")));
        let node = node.crash().await;
        assert_eq!(node.recorded(&op, &marks).await, Ok(receipt(b"a note\0")));
        assert_eq!(node.recorded(&op, &[fresh]).await, Ok(receipt(b"a note\0")));
        assert_eq!(node.state(&fresh), MarkState::Absent);
        assert_eq!(marks.map(|mark| node.state(&mark)), [MarkState::Committed; 2]);
        // Until the deadline, and not after it, whatever is still kept.
        node.clock.step_wall_to(deadline as u64 * 1_000);
        let refusal = node.recorded(&op, &[]).await.unwrap_err();
        assert_eq!((refusal.code(), refusal.consumed()), ("deadline_passed", Consumed::Yes));
    }
}

#[tokio::test]
async fn l12_4_every_kind_of_outcome_survives() {
    let node = Node::new().await;
    let kinds = [OutcomeKind::Receipt, OutcomeKind::Incident, OutcomeKind::EconomicMutation];
    for (seed, kind) in (1..).zip(kinds) {
        let dispatching = node.run(&operation(seed, 1, T0 + 400), &[]).await.unwrap().begin(&[]).await.unwrap();
        assert!(dispatching.finish(Outcome { kind, bytes: Bytes::new() }).await.is_ok());
    }
    let node = node.crash().await;
    for (seed, kind) in (1..).zip(kinds) {
        let outcome = node.recorded(&operation(seed, 1, T0 + 400), &[]).await.unwrap();
        assert_eq!(outcome, Outcome { kind, bytes: Bytes::new() });
    }
}

#[tokio::test]
async fn l12_4_another_request_under_the_same_identity_is_a_conflict_and_the_original_is_intact() {
    for without in [None, Some(Guard::Conflict)] {
        let node = Node::without(without, |_| {}).await;
        let (op, other) = (operation(1, 1, T0 + 400), operation(1, 2, T0 + 400));
        let fresh = nonce(9, T0 + 400);
        let reservation = node.run(&op, &[]).await.unwrap();
        if without.is_none() {
            let refusal = node.run(&other, &[fresh]).await.unwrap_err();
            assert_eq!((refusal.code(), refusal.consumed()), ("conflict", Consumed::No));
            assert_eq!(node.state(&fresh), MarkState::Absent);
        }
        let dispatching = reservation.begin(&[]).await.unwrap();
        assert!(dispatching.finish(receipt(b"original")).await.is_ok());
        let conflicting = node.single_use.present(&other, &[fresh], &[]).await;
        assert_eq!(code(conflicting), if without.is_some() { "taken" } else { "conflict" });
        assert_eq!(node.recorded(&op, &[]).await, Ok(receipt(b"original")));
    }
}

#[tokio::test]
async fn l12_4_a_changed_identity_over_the_same_authority_is_a_binding_mismatch_and_consumes_nothing() {
    let node = Node::new().await;
    let mark = nonce(1, T0 + 400);
    let (op, renamed) = (operation(1, 1, T0 + 400), operation(2, 1, T0 + 400));
    let reservation = node.run(&op, &[mark]).await.unwrap();
    let fresh = nonce(2, T0 + 400);
    for _ in 0..2 {
        let refusal = node.run(&renamed, &[fresh, mark]).await.unwrap_err();
        assert_eq!((refusal.code(), refusal.consumed()), ("request_binding_mismatch", Consumed::No));
        assert_eq!(node.state(&fresh), MarkState::Absent);
        assert_eq!(node.single_use.health().operations, 1);
    }
    let dispatching = reservation.begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"sent")).await.is_ok());
    assert_eq!(code(node.run(&renamed, &[mark]).await), "request_binding_mismatch");
    assert_eq!(node.recorded(&op, &[mark]).await, Ok(receipt(b"sent")));
    // Alone it is presented before.
    assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "replayed");
}

#[tokio::test]
async fn l12_4_an_exact_retry_of_a_reserved_one_takes_it_over_with_its_marks_in_one_transition() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let [first, second] = [nonce(1, T0 + 400), nonce(2, T0 + 400)];
    let superseded = node.run(&op, &[first]).await.unwrap();
    let batches = node.store.landed().len();
    let owner = node.run(&op, &[first, second]).await.unwrap();
    assert_eq!(node.store.landed().len(), batches + 1);
    assert_eq!([first, second].map(|mark| node.state(&mark)), [MarkState::Reserved; 2]);
    assert_eq!(code(superseded.begin(&[]).await), "superseded");
    let dispatching = owner.begin(&[]).await.unwrap();
    assert_eq!([first, second].map(|mark| node.state(&mark)), [MarkState::Dispatching; 2]);
    assert!(dispatching.finish(receipt(b"once")).await.is_ok());
    assert_eq!([first, second].map(|mark| node.state(&mark)), [MarkState::Committed; 2]);
}

#[tokio::test]
async fn l12_2_only_the_owner_rolls_back_and_only_what_is_reserved() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let superseded = node.run(&op, &[mark]).await.unwrap();
    let owner = node.run(&op, &[mark]).await.unwrap();
    superseded.rollback().await.unwrap();
    assert_eq!(node.state(&mark), MarkState::Reserved);
    let late = node.run(&op, &[mark]).await.unwrap();
    assert_eq!(code(owner.begin(&[]).await), "superseded");
    let dispatching = late.begin(&[]).await.unwrap();
    assert_eq!(node.state(&mark), MarkState::Dispatching);
    assert!(dispatching.finish(receipt(b"once")).await.is_ok());
    assert_eq!(node.recorded(&op, &[]).await, Ok(receipt(b"once")));
}

#[tokio::test]
async fn l12_4_who_was_superseded_follows_and_gets_the_same_answer() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let superseded = node.run(&op, &[]).await.unwrap();
    let owner = node.run(&op, &[]).await.unwrap();
    assert_eq!(code(superseded.begin(&[]).await), "superseded");
    let follow = node.single_use.follow(&op, &[]);
    let run = async {
        tokio::task::yield_now().await;
        assert_eq!(node.single_use.health().waiters, 1);
        let dispatching = owner.begin(&[]).await.unwrap();
        dispatching.finish(receipt(b"once")).await.unwrap()
    };
    let (followed, recorded) = futures::join!(follow, run);
    let answers = [followed.unwrap(), recorded].map(|recorded| recorded.release(&[]).unwrap().into_inner());
    assert_eq!(answers, [receipt(b"once"), receipt(b"once")]);
    assert_eq!(node.single_use.health().waiters, 0);
    // Whoever gave it up leaves nobody to follow.
    let other = operation(2, 1, T0 + 400);
    let owner = node.run(&other, &[]).await.unwrap();
    let (followed, ()) = futures::join!(node.single_use.follow(&other, &[]), async { drop(owner) });
    assert_eq!(code(followed), "abandoned");
    assert_eq!(code(node.single_use.follow(&other, &[]).await), "abandoned");
}

#[tokio::test]
async fn l12_4_exact_retries_wait_for_the_running_one_and_all_answer() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let dispatching = node.run(&op, &[nonce(0, T0 + 400)]).await.unwrap().begin(&[]).await.unwrap();
    let retries = futures::future::join_all((1..=20).map(|seed| {
        let (node, op) = (&node, &op);
        async move { node.recorded(op, &[nonce(seed, T0 + 400)]).await }
    }));
    let run = async {
        tokio::task::yield_now().await;
        assert_eq!(node.single_use.health().waiters, 20);
        assert!(dispatching.finish(receipt(b"once")).await.is_ok());
    };
    let (answers, ()) = futures::join!(retries, run);
    assert!(answers.iter().all(|answer| *answer == Ok(receipt(b"once"))));
    assert_eq!(node.single_use.health().nonces, 1, "no waiting caller's nonce was burnt");
    assert_eq!(node.single_use.health().waiters, 0);
}

#[tokio::test]
async fn l12_4_a_caller_that_goes_away_after_it_began_leaves_the_outcome_unknown_until_the_deadline() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let dispatching = node.run(&op, &[mark]).await.unwrap().begin(&[]).await.unwrap();
    let waits = node.single_use.present(&op, &[], &[]);
    let (waited, ()) = futures::join!(waits, async { drop(dispatching) });
    let refusal = waited.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("outcome_unknown", Consumed::Yes));
    let node = node.crash().await;
    let recovery = node.single_use.recover().await;
    assert_eq!((recovery.visited, recovery.released, recovery.unknown), (1, 0, 1));
    assert_eq!(code(node.run(&op, &[nonce(2, T0 + 400)]).await), "outcome_unknown");
    assert_eq!(node.state(&mark), MarkState::Dispatching);
    node.clock.step_wall_to((T0 + 400) as u64 * 1_000);
    assert_eq!(code(node.run(&op, &[]).await), "deadline_passed");
}

#[tokio::test]
async fn l12_4_an_outcome_over_the_bound_is_unknown_and_one_at_the_bound_is_kept() {
    let node = Node::with(|config| config.outcome_max = 5).await;
    let (kept, lost) = (operation(1, 1, T0 + 400), operation(2, 1, T0 + 400));
    let dispatching = node.run(&kept, &[]).await.unwrap().begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"12345")).await.is_ok());
    let dispatching = node.run(&lost, &[nonce(1, T0 + 400)]).await.unwrap().begin(&[]).await.unwrap();
    let unknown = dispatching.finish(receipt(b"123456")).await.unwrap_err();
    assert_eq!(unknown, OutcomeUnknown::TooLarge { bytes: 6, bound: 5 });
    let node = node.crash().await;
    assert_eq!(node.recorded(&kept, &[]).await, Ok(receipt(b"12345")));
    assert_eq!(code(node.run(&lost, &[]).await), "outcome_unknown");
    assert_eq!(node.state(&nonce(1, 0)), MarkState::Committed);
}

#[tokio::test]
async fn l12_4_an_operation_goes_on_across_a_crash_of_who_reserved_it() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let lost = node.run(&op, &[mark]).await.unwrap();
    let records = node.store.records();
    let node = node.reopened(records).await.unwrap();
    drop(lost);
    // Its mark is its own: no other operation gets it before the sweep.
    assert_eq!(code(node.run(&operation(2, 1, T0 + 400), &[mark]).await), "request_binding_mismatch");
    let dispatching = node.run(&op, &[mark]).await.unwrap().begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"once")).await.is_ok());
}

#[tokio::test]
async fn l12_4_the_sweep_goes_in_pages_and_passes_over_what_is_damaged() {
    let node = Node::new().await;
    let mut lost = Vec::new();
    for seed in 0..200 {
        let reservation = node.run(&operation(seed, 1, T0 + 400), &[nonce(seed, T0 + 400)]).await.unwrap();
        match seed % 4 {
            0 => drop(reservation.begin(&[]).await.unwrap()),
            _ => lost.push(reservation),
        }
    }
    let mut records = node.store.records();
    let damaged: Vec<_> = records
        .keys()
        .filter(|(table, key)| {
            *table == crate::storage::Table::Operation
                && (0..200).filter(|seed| seed % 8 == 1).any(|seed| id(seed) == **key)
        })
        .cloned()
        .collect();
    assert_eq!(damaged.len(), 25);
    for place in damaged {
        records.insert(place, Bytes::from_static(b"damaged"));
    }
    let node = node.reopened(records).await.unwrap();
    drop(lost);
    let recovery = node.single_use.recover().await;
    // 50 began, 25 are damaged and leave their marks without an operation that is known, 125 are free again.
    assert_eq!((recovery.visited, recovery.unknown, recovery.damaged, recovery.failed), (200, 50, 25, None));
    assert_eq!(recovery.released, 150);
    assert_eq!(node.single_use.health().operations, 75);
    let refusal = node.run(&operation(1, 1, T0 + 400), &[]).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("record_damaged", Consumed::Yes));
}

#[tokio::test]
async fn l12_4_past_the_most_marks_the_oldest_of_earlier_callers_stay_consumed() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let marks: Vec<_> = (0..10).map(|seed| nonce(seed, T0 + 400)).collect();
    let mut callers = Vec::new();
    for mark in &marks {
        callers.push(node.run(&op, std::slice::from_ref(mark)).await.unwrap());
    }
    let states: Vec<_> = marks.iter().map(|mark| node.state(mark)).collect();
    assert_eq!(states[..2], [MarkState::Committed; 2]);
    assert_eq!(states[2..], [MarkState::Reserved; 8]);
    callers.pop().unwrap().rollback().await.unwrap();
    assert!(marks[2..].iter().all(|mark| node.state(mark) == MarkState::Absent));
    assert!(marks[..2].iter().all(|mark| node.state(mark) == MarkState::Committed));
    assert_eq!(node.single_use.health().operations, 0);
}

#[test]
fn l12_4_an_operation_needs_a_deadline_and_its_identity_keeps_tenant_and_request_apart() {
    let call = |tenant: &str, request_id: &str, deadline| super::super::Call {
        tenant: tenant.into(),
        request_id: request_id.into(),
        method: "m".into(),
        arguments: [0; 32],
        intent: None,
        issued_at: None,
        deadline,
    };
    let missing = Operation::of(&call("a", "b", None), did(1)).unwrap_err();
    assert_eq!((missing.code(), missing.consumed()), ("deadline_missing", Consumed::No));
    let of = |tenant, request| Operation::of(&call(tenant, request, Some(9)), did(1)).unwrap().id;
    assert_eq!(of("ab", "c"), of("ab", "c"));
    assert_ne!(of("ab", "c"), of("a", "bc"));
    let by = |subject| Operation::of(&call("a", "b", Some(9)), did(subject)).unwrap();
    assert_eq!(by(1).id, by(2).id);
    assert_ne!(by(1).commitment, by(2).commitment);
}
