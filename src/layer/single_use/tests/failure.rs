//! Failing batches, crashes inside them, and dropped futures (laws L9.2 and L9.3).

use super::*;
use crate::{
    layer::single_use::{Consumed, OutcomeUnknown},
    storage::commit::fault::{Crash, Fault},
};

#[tokio::test]
async fn l9_2_a_reservation_whose_batch_fails_reserves_nothing() {
    for fault in [Fault::Io, Fault::Closed] {
        let node = Node::new().await;
        let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
        node.store.fail_at(node.store.begun() + 1, fault);
        let refusal = node.run(&op, &[mark]).await.unwrap_err();
        assert_eq!((refusal.code(), refusal.consumed()), ("store_failed", Consumed::Unknown));
        assert_eq!(node.state(&mark), MarkState::Absent);
        assert_eq!(node.single_use.health().operations, 0);
        if fault == Fault::Closed {
            assert_eq!(code(node.single_use.reserve_until(&mark).await), "store_failed");
            node.commit.reopen().await.unwrap();
        }
        assert!(node.run(&op, &[mark]).await.is_ok());
    }
}

#[tokio::test]
async fn l9_2_a_start_that_is_not_durable_does_not_begin_and_is_rolled_back() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let reservation = node.run(&op, &[mark]).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert_eq!(code(reservation.begin(&[]).await), "store_failed");
    assert_eq!(node.state(&mark), MarkState::Absent);
    assert!(node.run(&op, &[mark]).await.is_ok());
}

#[tokio::test]
async fn l12_4_an_end_that_is_not_durable_leaves_the_outcome_unknown_and_the_marks_blocking() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let dispatching = node.run(&op, &[mark]).await.unwrap().begin(&[]).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    let unknown = dispatching.finish(receipt(b"lost")).await.unwrap_err();
    assert!(matches!(unknown, OutcomeUnknown::NotRecorded { .. }));
    assert_eq!(code(node.run(&op, &[mark]).await), "outcome_unknown");
    assert_eq!(node.state(&mark), MarkState::Dispatching);
    // The same for marks alone, and a retry that saw the outcome before it failed is not answered with it.
    let other = nonce(2, T0 + 400);
    let dispatching = node.single_use.reserve(&[other], &[]).await.unwrap().begin(&[]).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert!(dispatching.commit(()).await.is_err());
    assert_eq!(node.state(&other), MarkState::Dispatching);
    let third = operation(3, 1, T0 + 400);
    let dispatching = node.run(&third, &[]).await.unwrap().begin(&[]).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    let (finished, retried) = futures::join!(dispatching.finish(receipt(b"lost")), node.recorded(&third, &[]));
    assert!(finished.is_err());
    assert_eq!(code(retried), "store_failed");
    assert_eq!(code(node.recorded(&third, &[]).await), "outcome_unknown");
}

#[tokio::test]
async fn l9_2_a_failed_batch_takes_pruning_floors_and_extensions_back() {
    let node = Node::new().await;
    let (old, kept) = (nonce(1, node.now() + 10), nonce(2, node.now() + 600));
    assert_eq!(node.single_use.reserve_until(&old).await, Ok(true));
    assert_eq!(node.single_use.reserve_until(&kept).await, Ok(true));
    let before = node.store.records();
    let wall = node.clock.wall();
    node.pass(LIFETIME + SIGMA);
    node.clock.step_wall_to(wall + 500_000);
    let fresh = nonce(3, node.now() + 100);
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert_eq!(code(node.single_use.reserve_until(&fresh).await), "store_failed");
    assert_eq!(node.state(&old), MarkState::Committed);
    assert_eq!(node.store.records(), before);
    let long = Mark { valid_until: node.now() + 500, expires_at: node.now() + 500, ..kept };
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert_eq!(code(node.single_use.reserve_until(&long).await), "store_failed");
    assert_eq!(node.store.records(), before);
    assert_eq!(node.single_use.reserve_until(&long).await, Ok(false));
    assert_eq!(node.single_use.reserve_until(&fresh).await, Ok(true));
    assert_eq!(node.state(&old), MarkState::Absent);
    assert_eq!(code(node.single_use.reserve(&[old], &[]).await), "expired");
}

/// A call that crashes inside each record of each of its batches is made at most once, whatever the crash left of them.
#[tokio::test]
async fn l12_2_a_crash_at_any_record_of_a_call_never_lets_it_be_made_twice() {
    for crash in [Crash::Whole, Crash::Torn, Crash::Landed] {
        for with_operation in [true, false] {
            for record in 0..14 {
                let node = Node::new().await;
                let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
                node.store.crash_before(record, crash);
                let mut calls = 0;
                let first = call(&node, with_operation.then_some(&op), mark, &mut calls).await;
                assert!(record < 9 || first.is_ok() || with_operation, "{record}");
                let node = node.crash().await;
                node.single_use.recover().await;
                let fresh = nonce(2, T0 + 400);
                let mut codes = Vec::new();
                for mark in [mark, fresh] {
                    codes.push(code(call(&node, with_operation.then_some(&op), mark, &mut calls).await));
                    if !with_operation {
                        // Without an operation, fresh authority is another call.
                        break;
                    }
                }
                assert!(calls <= 1, "{crash:?} at record {record}: {codes:?}");
                if first.is_err() && calls == 0 {
                    assert!(codes.iter().all(|code| ["outcome_unknown", "replayed"].contains(code)), "{codes:?}");
                }
            }
        }
    }
}

async fn call(node: &Node, op: Option<&Operation>, mark: Mark, calls: &mut usize) -> Result<(), Refusal> {
    let reservation = match op {
        Some(op) => match node.single_use.present(op, &[mark], &[]).await? {
            Presentation::Run(reservation) => reservation,
            Presentation::Recorded(_) => return Ok(()),
        },
        None => node.single_use.reserve(&[mark], &[]).await?,
    };
    let dispatching = reservation.begin(&[]).await?;
    *calls += 1;
    let recorded = match op {
        Some(_) => dispatching.finish(receipt(b"done")).await.map(drop),
        None => dispatching.commit(()).await.map(drop),
    };
    recorded.map_err(|unknown| Refusal::StoreFailed { reason: unknown.to_string() })
}

#[tokio::test]
async fn l9_3_a_dropped_presentation_rolls_back_and_a_dropped_start_is_unknown() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    node.store.stall();
    let marks = [mark];
    let mut present = Box::pin(node.single_use.present(&op, &marks, &[]));
    assert!(futures::poll!(&mut present).is_pending());
    assert_eq!(node.state(&mark), MarkState::Reserved);
    drop(present);
    node.store.resume();
    assert_eq!(node.state(&mark), MarkState::Absent);
    let reservation = node.run(&op, &[mark]).await.unwrap();
    node.store.stall();
    let mut begin = Box::pin(reservation.begin(&[]));
    assert!(futures::poll!(&mut begin).is_pending());
    drop(begin);
    node.store.resume();
    assert_eq!(code(node.run(&op, &[mark]).await), "outcome_unknown");
    // An end that is not waited for is recorded all the same.
    let other = operation(2, 1, T0 + 400);
    let dispatching = node.run(&other, &[]).await.unwrap().begin(&[]).await.unwrap();
    node.store.stall();
    let mut finish = Box::pin(dispatching.finish(receipt(b"done")));
    assert!(futures::poll!(&mut finish).is_pending());
    drop(finish);
    node.store.resume();
    assert_eq!(node.recorded(&other, &[]).await, Ok(receipt(b"done")));
}

#[tokio::test]
async fn l12_2_a_rollback_that_the_store_does_not_take_leaves_the_mark_free_for_the_next() {
    let node = Node::new().await;
    let (op, mark, other) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400), nonce(2, T0 + 400));
    let kept = node.run(&op, &[mark]).await.unwrap();
    let alone = node.single_use.reserve(&[other], &[]).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Closed);
    assert_eq!(code(node.single_use.reserve_until(&nonce(3, T0 + 400)).await), "store_failed");
    assert_eq!(code(kept.rollback().await), "store_failed");
    drop(alone);
    node.commit.reopen().await.unwrap();
    assert_eq!([mark, other].map(|mark| node.state(&mark)), [MarkState::Reserved; 2]);
    assert!(node.single_use.reserve(&[other], &[]).await.is_ok());
    assert!(node.run(&op, &[mark]).await.is_ok());
}
