//! The stop, revocation, and what may leave (law L12.5).

use super::*;
use crate::{
    layer::single_use::{Consumed, ResumeError},
    storage::commit::fault::Fault,
};

#[tokio::test]
async fn l12_5_a_recorded_outcome_leaves_only_under_live_authority() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let dispatching = node.run(&op, &[]).await.unwrap().begin(&[CAP]).await.unwrap();
    let recorded = dispatching.finish(receipt(b"done")).await.unwrap();
    let Presentation::Recorded(again) = node.single_use.present(&op, &[], &[CAP]).await.unwrap() else {
        panic!("it runs again");
    };
    node.authority.revoke(CAP);
    for recorded in [recorded, again] {
        let refusal = recorded.release(&[CAP]).unwrap_err();
        assert_eq!((refusal.code(), refusal.consumed()), ("revoked", Consumed::Yes));
    }
    assert_eq!(code(node.recorded(&op, &[]).await), "revoked");
    // Other authority over the same operation gets it.
    let other = node.single_use.present(&op, &[], &[Capability([8; 32])]).await.unwrap();
    assert!(matches!(other, Presentation::Recorded(recorded) if recorded.answer == receipt(b"done")));
    node.authority.revoked.lock().unwrap().clear();
    let Presentation::Recorded(kept) = node.single_use.present(&op, &[], &[CAP]).await.unwrap() else {
        panic!("it runs again");
    };
    node.single_use.stop().await.unwrap();
    let refusal = kept.release(&[CAP]).unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("stopped", Consumed::Yes));
    assert_eq!(code(node.single_use.release("an answer that nothing keeps", &[CAP])), "stopped");
    node.single_use.resume().await.unwrap();
    assert_eq!(node.recorded(&op, &[]).await, Ok(receipt(b"done")));
}

#[tokio::test]
async fn l12_5_each_guard_of_a_release_is_what_withholds() {
    for guard in [Guard::StopAtRelease, Guard::RevocationAtRelease] {
        let node = Node::without(Some(guard), |_| {}).await;
        node.authority.revoke(Capability([9; 32]));
        if guard == Guard::StopAtRelease {
            node.single_use.stop().await.unwrap();
        }
        let withdrawn = if guard == Guard::StopAtRelease { CAP } else { Capability([9; 32]) };
        assert!(node.single_use.release((), &[withdrawn]).is_ok());
    }
}

#[tokio::test]
async fn l12_5_a_stop_refuses_at_every_door_and_reads_no_clock() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let reservation = node.run(&op, &[]).await.unwrap();
    let dispatching = node.run(&operation(2, 1, T0 + 400), &[]).await.unwrap().begin(&[]).await.unwrap();
    node.single_use.stop().await.unwrap();
    assert!(node.single_use.stopped());
    node.clock.step_wall_to(1);
    assert_eq!(code(node.single_use.reserve_until(&mark).await), "stopped");
    assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "stopped");
    assert_eq!(code(node.single_use.present(&op, &[], &[]).await), "stopped");
    assert_eq!(code(node.single_use.follow(&op, &[]).await), "stopped");
    assert_eq!(code(reservation.begin(&[]).await), "stopped");
    // What ran is recorded, and stays here.
    let recorded = dispatching.finish(receipt(b"ran")).await.unwrap();
    assert_eq!(code(recorded.release(&[])), "stopped");
    assert_eq!(node.single_use.health().operations, 1, "what had not begun was rolled back");
}

#[tokio::test]
async fn l12_5_a_stop_outlives_the_process_and_ends_durably() {
    for (without, stays) in [(None, true), (Some(Guard::StopRecorded), false)] {
        let node = Node::without(without, |_| {}).await;
        node.single_use.stop().await.unwrap();
        node.single_use.stop().await.unwrap();
        let node = node.crash().await;
        assert_eq!(node.single_use.stopped(), stays);
        node.single_use.resume().await.unwrap();
        assert!(!node.single_use.stopped());
        assert!(!node.crash().await.single_use.stopped());
    }
}

#[tokio::test]
async fn l12_5_a_stop_is_latched_even_if_its_batch_fails_and_a_resume_that_fails_leaves_it_on() {
    let node = Node::new().await;
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    let error = node.single_use.stop().await.unwrap_err();
    assert!(error.to_string().contains("the stop is on"), "{error}");
    assert!(node.single_use.stopped());
    assert_eq!(code(node.single_use.reserve(&[nonce(1, T0 + 400)], &[]).await), "stopped");
    node.single_use.stop().await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Closed);
    assert!(matches!(node.single_use.resume().await, Err(ResumeError::NotRecorded { .. })));
    assert!(node.single_use.stopped());
    assert!(node.crash().await.single_use.stopped());
}

#[tokio::test]
async fn l12_5_a_stop_latches_while_the_store_stalls_and_a_resume_ends_no_later_stop() {
    let node = Node::new().await;
    node.single_use.stop().await.unwrap();
    node.store.stall();
    let mut resume = Box::pin(node.single_use.resume());
    assert!(futures::poll!(&mut resume).is_pending());
    let mut stop = Box::pin(node.single_use.stop());
    assert!(futures::poll!(&mut stop).is_pending());
    node.store.resume();
    assert!(matches!(resume.await, Err(ResumeError::StoppedAgain)));
    stop.await.unwrap();
    assert!(node.single_use.stopped());
    assert!(node.crash().await.single_use.stopped());
}

#[tokio::test]
async fn l12_5_stop_and_revocation_are_read_after_the_wait_for_durability() {
    let node = Node::new().await;
    let op = operation(1, 1, T0 + 400);
    let dispatching = node.run(&op, &[]).await.unwrap().begin(&[]).await.unwrap();
    node.store.stall();
    let mut finish = Box::pin(dispatching.finish(receipt(b"done")));
    assert!(futures::poll!(&mut finish).is_pending());
    // A retry sees the outcome before it is durable, and waits for that.
    let mut retry = Box::pin(node.recorded(&op, &[]));
    assert!(futures::poll!(&mut retry).is_pending());
    node.authority.stopped.store(true, Ordering::SeqCst);
    node.store.resume();
    assert_eq!(code(finish.await.unwrap().release(&[])), "stopped");
    assert_eq!(code(retry.await), "stopped");
}
