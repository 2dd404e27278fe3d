//! Nonces and approvals (laws L12.1 to L12.3).

use super::*;
use crate::layer::single_use::Consumed;

#[tokio::test]
async fn l12_1_a_nonce_is_true_once_and_false_ever_after_across_restarts() {
    let node = Node::new().await;
    let mark = nonce(1, node.now() + 300);
    assert_eq!(node.state(&mark), MarkState::Absent);
    assert_eq!(node.single_use.reserve_until(&mark).await, Ok(true));
    assert_eq!(node.single_use.reserve_until(&mark).await, Ok(false));
    let node = node.crash().await;
    assert_eq!(node.single_use.reserve_until(&mark).await, Ok(false));
    assert_eq!(node.state(&mark), MarkState::Committed);
    let refusal = node.single_use.reserve(&[mark], &[CAP]).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("replayed", Consumed::Yes));
    // An approval of the same id is another mark.
    assert_eq!(node.single_use.reserve_until(&Mark { kind: MarkKind::Approval, ..mark }).await, Ok(true));
}

#[tokio::test]
async fn l12_1_a_refused_presentation_extends_the_mark_durably_and_nothing_shortens_it() {
    for without in [None, Some(Guard::Extended)] {
        let node = Node::without(without, |_| {}).await;
        let short = nonce(1, node.now() + 10);
        let long = Mark { valid_until: node.now() + 500, expires_at: node.now() + 500, ..short };
        assert_eq!(node.single_use.reserve_until(&short).await, Ok(true));
        assert_eq!(code(node.single_use.reserve(&[long], &[]).await), "replayed");
        assert_eq!(node.single_use.reserve_until(&short).await, Ok(false));
        let node = node.crash().await;
        // Past the first expiry, and long enough after it was loaded that what expired is pruned; the wall clock passed
        // slower than the other.
        let wall = node.clock.wall();
        node.pass(LIFETIME + SIGMA);
        node.clock.step_wall_to(wall + 400_000);
        assert_eq!(node.single_use.reserve_until(&nonce(2, node.now() + 5)).await, Ok(true));
        let again = node.single_use.reserve(&[long], &[]).await;
        assert_eq!(code(again), if without.is_some() { "taken" } else { "replayed" });
    }
}

#[tokio::test]
async fn l12_2_a_reservation_is_begun_once_and_committed_and_nothing_reopens_it() {
    let node = Node::new().await;
    let marks = [nonce(1, node.now() + 300), approval(2, node.now() + 300, node.now() + 400)];
    let reservation = node.single_use.reserve(&marks, &[CAP]).await.unwrap();
    assert_eq!(marks.map(|mark| node.state(&mark)), [MarkState::Reserved; 2]);
    let refusal = node.single_use.reserve(&marks[..1], &[CAP]).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("replayed", Consumed::Unknown));
    assert_eq!(node.single_use.reserve_until(&marks[0]).await, Ok(false));
    let dispatching = reservation.begin(&[CAP]).await.unwrap();
    assert_eq!(marks.map(|mark| node.state(&mark)), [MarkState::Dispatching; 2]);
    let released = dispatching.commit("answer").await.unwrap().release(&[CAP]).unwrap();
    assert_eq!(released.into_inner(), "answer");
    assert_eq!(marks.map(|mark| node.state(&mark)), [MarkState::Committed; 2]);
    let node = node.crash().await;
    assert_eq!(marks.map(|mark| node.state(&mark)), [MarkState::Committed; 2]);
    assert_eq!(node.single_use.recover().await, Default::default());
    assert_eq!(code(node.single_use.reserve(&marks[1..], &[CAP]).await), "replayed");
}

#[tokio::test]
async fn l12_2_a_rollback_reopens_what_was_reserved_and_a_drop_rolls_back() {
    let node = Node::new().await;
    let mark = nonce(1, node.now() + 300);
    node.single_use.reserve(&[mark], &[]).await.unwrap().rollback().await.unwrap();
    assert_eq!(node.state(&mark), MarkState::Absent);
    drop(node.single_use.reserve(&[mark], &[]).await.unwrap());
    assert_eq!(node.state(&mark), MarkState::Absent);
    let dispatching = node.single_use.reserve(&[mark], &[]).await.unwrap().begin(&[]).await.unwrap();
    drop(dispatching);
    assert_eq!(node.state(&mark), MarkState::Dispatching);
    assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "replayed");
}

#[tokio::test]
async fn l12_2_a_rollback_and_a_commit_work_while_the_clock_is_unusable() {
    let node = Node::new().await;
    let [one, other] = [nonce(1, node.now() + 300), nonce(2, node.now() + 300)];
    let reservation = node.single_use.reserve(&[one], &[]).await.unwrap();
    let dispatching = node.single_use.reserve(&[other], &[]).await.unwrap().begin(&[]).await.unwrap();
    node.clock.step_wall_to(1_000);
    assert_eq!(code(node.single_use.reserve(&[nonce(3, T0)], &[]).await), "clock_regressed");
    reservation.rollback().await.unwrap();
    assert!(dispatching.commit(()).await.is_ok());
    assert_eq!([one, other].map(|mark| node.state(&mark)), [MarkState::Absent, MarkState::Committed]);
    let node = node.crash().await;
    assert_eq!([one, other].map(|mark| node.state(&mark)), [MarkState::Absent, MarkState::Committed]);
}

#[tokio::test]
async fn l12_2_what_refuses_the_start_of_a_call_rolls_it_back() {
    let node = Node::new().await;
    let deadline = node.now() + 300;
    let (op, mark) = (operation(1, 1, deadline), nonce(1, deadline));
    for (refused, what) in
        [("stopped", 0), ("revoked", 1), ("clock_regressed", 2), ("expired", 3), ("deadline_passed", 4)]
    {
        for with_operation in [true, false] {
            if what == 4 && !with_operation {
                continue;
            }
            let (op, mark) = match what {
                3 => (op, Mark { valid_until: node.now() + 5, ..mark }),
                4 => (Operation { deadline: node.now() + 5, ..op }, mark),
                _ => (op, mark),
            };
            let reservation = match with_operation {
                true => node.run(&op, &[mark]).await.unwrap(),
                false => node.single_use.reserve(&[mark], &[CAP]).await.unwrap(),
            };
            let wall = node.clock.wall();
            match what {
                0 => node.authority.stopped.store(true, Ordering::SeqCst),
                1 => node.authority.revoke(CAP),
                2 => node.clock.step_wall_to(wall - 3_001),
                _ => node.clock.step_wall_to(wall + 5_000),
            }
            let refusal = reservation.begin(&[CAP]).await.unwrap_err();
            assert_eq!((refusal.code(), refusal.consumed()), (refused, Consumed::No));
            assert_eq!(node.state(&mark), MarkState::Absent);
            assert_eq!(node.single_use.health().operations, 0);
            node.authority.stopped.store(false, Ordering::SeqCst);
            node.authority.revoked.lock().unwrap().clear();
            if what < 3 {
                node.clock.step_wall_to(wall);
            }
        }
    }
}

#[tokio::test]
async fn l12_2_each_guard_of_the_start_is_what_refuses_it() {
    for guard in [Guard::StopAtBegin, Guard::RevocationAtBegin, Guard::ExpiredAtBegin, Guard::Regressed] {
        let node = Node::without(Some(guard), |_| {}).await;
        let mark = nonce(1, node.now() + 5);
        let reservation = node.single_use.reserve(&[mark], &[CAP]).await.unwrap();
        match guard {
            Guard::StopAtBegin => node.authority.stopped.store(true, Ordering::SeqCst),
            Guard::RevocationAtBegin => node.authority.revoke(CAP),
            Guard::Regressed => node.clock.step_wall_to(node.clock.wall() - 3_001),
            _ => node.pass(5),
        }
        assert!(reservation.begin(&[CAP]).await.is_ok(), "{guard:?}");
    }
}

#[tokio::test]
async fn l12_2_a_later_epoch_releases_what_is_reserved_and_the_rest_stays_consumed() {
    let node = Node::new().await;
    let [reserved, begun, committed] = [1, 2, 3].map(|seed| nonce(seed, T0 + 400));
    let kept = node.single_use.reserve(&[reserved], &[]).await.unwrap();
    let running = node.single_use.reserve(&[begun], &[]).await.unwrap().begin(&[]).await.unwrap();
    let done = node.single_use.reserve(&[committed], &[]).await.unwrap().begin(&[]).await.unwrap();
    assert!(done.commit(()).await.is_ok());
    // The process dies with both handles.
    let records = node.store.records();
    let node = node.reopened(records).await.unwrap();
    let marks = [reserved, begun, committed];
    let states = [MarkState::Reserved, MarkState::Dispatching, MarkState::Committed];
    assert_eq!(marks.map(|mark| node.state(&mark)), states);
    // The dead process's handles reach its own tables, not these.
    drop((kept, running));
    assert_eq!(marks.map(|mark| node.state(&mark)), states);
    let recovery = node.single_use.recover().await;
    assert_eq!((recovery.visited, recovery.released, recovery.unknown), (1, 1, 0));
    assert_eq!(node.state(&reserved), MarkState::Absent);
    assert!(node.single_use.reserve(&[reserved], &[]).await.is_ok());
    assert_eq!(code(node.single_use.reserve(&[begun], &[]).await), "replayed");
    assert_eq!(code(node.single_use.reserve(&[committed], &[]).await), "replayed");
}

#[tokio::test]
async fn l12_2_an_earlier_epochs_reservation_is_free_without_a_sweep_and_a_live_one_is_not_swept() {
    let node = Node::new().await;
    let mark = nonce(1, T0 + 400);
    let lost = node.single_use.reserve(&[mark], &[]).await.unwrap();
    let records = node.store.records();
    let node = node.reopened(records).await.unwrap();
    drop(lost);
    let live = node.single_use.reserve(&[mark], &[]).await.unwrap();
    let recovery = node.single_use.recover().await;
    assert_eq!((recovery.visited, recovery.released, recovery.running), (1, 0, 1));
    assert!(live.begin(&[]).await.is_ok());
}

#[tokio::test]
async fn l12_2_an_owner_of_an_earlier_epoch_is_none_of_this_one() {
    // Without a new epoch, the first owner of the second run is taken for the first of the first.
    for (without, expected) in [(None, (1, 0)), (Some(Guard::Epoch), (0, 1))] {
        let node = Node::without(without, |_| {}).await;
        let lost = node.single_use.reserve(&[nonce(1, T0 + 400)], &[]).await.unwrap();
        let records = node.store.records();
        let node = node.reopened(records).await.unwrap();
        drop(lost);
        let live = node.single_use.reserve(&[], &[]).await.unwrap();
        let recovery = node.single_use.recover().await;
        assert_eq!((recovery.released, recovery.running), expected);
        drop(live);
    }
}

#[tokio::test]
async fn l12_1_one_presentation_reserves_all_its_marks_or_none() {
    let node = Node::new().await;
    let [one, other] = [nonce(1, T0 + 400), nonce(2, T0 + 400)];
    assert_eq!(node.single_use.reserve_until(&other).await, Ok(true));
    assert_eq!(code(node.single_use.reserve(&[one, other], &[]).await), "replayed");
    assert_eq!(node.state(&one), MarkState::Absent);
    // The same mark twice is presented before.
    assert_eq!(code(node.single_use.reserve(&[one, one], &[]).await), "replayed");
    assert_eq!(node.state(&one), MarkState::Absent);
}

#[tokio::test]
async fn l12_5_an_authority_that_panics_withdraws() {
    let node = Node::new().await;
    let reservation = node.single_use.reserve(&[nonce(1, T0 + 400)], &[CAP]).await.unwrap();
    node.authority.panics.store(true, Ordering::SeqCst);
    assert_eq!(code(node.single_use.reserve(&[nonce(2, T0 + 400)], &[CAP]).await), "revoked");
    assert_eq!(code(reservation.begin(&[CAP]).await), "revoked");
    node.authority.panics.store(false, Ordering::SeqCst);
    assert!(node.single_use.reserve(&[nonce(2, T0 + 400)], &[CAP]).await.is_ok());
}
