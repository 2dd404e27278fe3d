//! The clock, floors, pruning and birth (laws L12.6 and L9.9).

use super::*;
use crate::{layer::single_use::Consumed, storage::Table};

/// How many nonces are on the disk.
fn durable(node: &Node) -> usize {
    node.store.records().keys().filter(|(table, _)| *table == Table::Nonce).count()
}

#[tokio::test]
async fn l12_6_a_step_back_over_the_tolerance_refuses_naming_both_instants_and_a_smaller_one_uses_the_mark() {
    for (step, refused) in [(1, false), (2_000, false), (3_000, false), (3_001, true), (3_600_000, true)] {
        let node = Node::new().await;
        let wall = node.clock.wall();
        let now = node.now();
        assert_eq!(node.single_use.reserve_until(&nonce(1, now + 300)).await, Ok(true));
        node.clock.step_wall_to(wall - step);
        let taken = node.single_use.reserve(&[nonce(2, now + 300)], &[]).await;
        assert_eq!(node.single_use.health().clock_regressed, refused);
        if refused {
            let refusal = taken.unwrap_err();
            assert_eq!(refusal.consumed(), Consumed::No);
            let named = Refusal::ClockRegressed { wall_ms: wall - step, high_water_ms: wall, sigma_ms: 3_000 };
            assert_eq!(refusal, named);
            // Another process reads the mark from the store, opens, and refuses too.
            let node = node.crash().await;
            assert_eq!(node.single_use.reserve_until(&nonce(1, now + 300)).await, Err(named));
            node.clock.step_wall_to(wall - 3_000);
            assert_eq!(node.single_use.reserve_until(&nonce(1, now + 300)).await, Ok(false));
        } else {
            assert!(taken.is_ok());
            // What expired at the mark stays expired.
            assert_eq!(code(node.single_use.reserve(&[nonce(3, now)], &[]).await), "expired");
        }
    }
}

#[tokio::test]
async fn l12_6_without_the_mark_a_step_back_revives_what_expired() {
    for (without, expected) in [(None, "expired"), (Some(Guard::HighWater), "taken")] {
        let node = Node::without(without, |_| {}).await;
        let mark = nonce(1, node.now() + 1);
        node.pass(1);
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "expired");
        node.clock.step_wall_to(node.clock.wall() - 2);
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), expected);
    }
}

#[tokio::test]
async fn l12_6_the_mark_is_durable_with_what_was_decided_at_it() {
    for (without, expected) in [(None, "clock_regressed"), (Some(Guard::HighWaterStaged), "taken")] {
        let node = Node::without(without, |_| {}).await;
        let mark = nonce(1, node.now() + 500);
        node.pass(100);
        assert_eq!(node.single_use.reserve_until(&nonce(2, node.now() + 300)).await, Ok(true));
        node.clock.step_wall_to(node.clock.wall() - 50_000);
        let node = node.crash().await;
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), expected);
    }
}

#[tokio::test]
async fn l12_6_one_glitch_forward_closes_nothing_once_the_operator_moved_the_mark_back() {
    for (without, expected) in [(None, "taken"), (Some(Guard::PruneWait), "below_floor")] {
        let node = Node::without(without, |_| {}).await;
        // Birth has settled, so that no reading moves it any more.
        node.pass(LIFETIME + 3 * SIGMA);
        let wall = node.clock.wall();
        let (old, fresh) = (nonce(1, node.now() + LIFETIME), nonce(3, node.now() + 400));
        assert_eq!(node.single_use.reserve_until(&old).await, Ok(true));
        node.clock.step_wall_to(wall + 3_600_000);
        let ahead = Mark { issued_at: Some(node.now()), ..nonce(2, node.now() + 10) };
        assert_eq!(node.single_use.reserve_until(&ahead).await, Ok(true));
        node.clock.step_wall_to(wall);
        assert_eq!(code(node.single_use.reserve(&[fresh], &[]).await), "clock_regressed");
        // What the operator's command does: a compare-and-swap of the high-water mark, the floors as they are.
        let mut records = node.store.records();
        let place = (Table::Clock, bytes::Bytes::from_static(crate::layer::single_use::record::CLOCK_KEY));
        let mut clock = crate::layer::single_use::record::ClockRecord::decode(&records[&place]).unwrap();
        clock.high_water = wall;
        records.insert(place, clock.encode());
        let node = node.reopened(records).await.unwrap();
        assert_eq!(code(node.single_use.reserve(&[fresh], &[]).await), expected);
        if without.is_none() {
            assert_eq!(node.single_use.reserve_until(&old).await, Ok(false));
        }
    }
}

#[tokio::test]
async fn l12_6_what_was_pruned_leaves_a_floor_at_its_expiry_and_equality_is_refused() {
    for (without, expected) in
        [(None, "below_floor"), (Some(Guard::Floor), "taken"), (Some(Guard::FloorStaged), "taken")]
    {
        let node = Node::without(without, |_| {}).await;
        let expiry = node.now() + 100;
        let mark = nonce(1, expiry);
        assert_eq!(node.single_use.reserve_until(&mark).await, Ok(true));
        node.clock.advance(Duration::from_millis((LIFETIME + SIGMA) as u64 * 1_000 - 1));
        node.clock.step_wall_to(expiry as u64 * 1_000);
        let later = |seed| nonce(seed, expiry + 400);
        assert_eq!(node.single_use.reserve_until(&later(2)).await, Ok(true));
        assert_eq!(durable(&node), 2, "a millisecond too early");
        node.clock.advance(Duration::from_millis(1));
        node.clock.step_wall_to(expiry as u64 * 1_000);
        assert_eq!(node.single_use.reserve_until(&later(3)).await, Ok(true));
        assert_eq!(durable(&node), 2, "pruned at equality");
        // The clock steps back within the tolerance of what the store remembers after a restart.
        let mut records = node.store.records();
        let place = (Table::Clock, bytes::Bytes::from_static(crate::layer::single_use::record::CLOCK_KEY));
        let mut clock = crate::layer::single_use::record::ClockRecord::decode(&records[&place]).unwrap();
        assert_eq!(clock.nonce_floor, if without == Some(Guard::FloorStaged) { 0 } else { expiry as u64 * 1_000 });
        // An operator who moves the mark below the floor, which the command refuses to do.
        clock.high_water -= 2_000;
        records.insert(place, clock.encode());
        node.clock.step_wall_to(expiry as u64 * 1_000 - 1_000);
        let node = node.reopened(records).await.unwrap();
        let refused = node.single_use.reserve(&[mark], &[]).await;
        assert_eq!(code(refused), expected);
        if without.is_none() {
            let refusal = node.single_use.reserve(&[mark], &[]).await.unwrap_err();
            assert_eq!(refusal, Refusal::BelowFloor { expires_at: expiry, floor: expiry });
            // Another table has another floor.
            let other = Mark { kind: MarkKind::Approval, ..mark };
            assert!(node.single_use.reserve(&[other], &[]).await.is_ok());
        }
    }
}

#[tokio::test]
async fn l12_6_nothing_that_lives_is_pruned() {
    for (without, expected) in [(None, "replayed"), (Some(Guard::PruneExpired), "below_floor")] {
        let node = Node::without(without, |_| {}).await;
        let mark = nonce(1, node.now() + LIFETIME);
        assert_eq!(node.single_use.reserve_until(&mark).await, Ok(true));
        let wall = node.clock.wall();
        node.pass(LIFETIME + SIGMA);
        node.clock.step_wall_to(wall);
        assert_eq!(node.single_use.reserve_until(&nonce(2, T0 + 400)).await, Ok(true));
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), expected);
    }
}

#[tokio::test]
async fn l12_6_what_a_live_caller_holds_is_not_pruned() {
    for (without, ends_well) in [(None, true), (Some(Guard::PruneHeld), false)] {
        let node = Node::without(without, |_| {}).await;
        let op = operation(1, 1, node.now() + 10);
        let dispatching = node.run(&op, &[nonce(1, node.now() + 10)]).await.unwrap().begin(&[]).await.unwrap();
        node.pass(LIFETIME + SIGMA);
        for seed in 2..5 {
            let fresh = Mark { issued_at: Some(node.now()), ..nonce(seed, node.now() + 100) };
            assert_eq!(node.single_use.reserve_until(&fresh).await, Ok(true));
        }
        assert_eq!(dispatching.finish(receipt(b"late")).await.is_ok(), ends_well);
    }
}

#[tokio::test]
async fn l12_4_operations_and_approvals_are_kept_and_floored_by_the_deadline() {
    let node = Node::new().await;
    let deadline = node.now() + 100;
    let op = operation(1, 1, deadline);
    let mark = approval(1, deadline - 90, deadline);
    let dispatching = node.run(&op, &[mark]).await.unwrap().begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"")).await.is_ok());
    node.pass(LIFETIME + SIGMA);
    let fresh = Mark { issued_at: Some(node.now()), ..nonce(2, node.now() + 10) };
    assert_eq!(node.single_use.reserve_until(&fresh).await, Ok(true));
    let health = node.single_use.health();
    assert_eq!((health.operations, health.approvals), (0, 0));
    let place = (Table::Clock, bytes::Bytes::from_static(crate::layer::single_use::record::CLOCK_KEY));
    let clock = crate::layer::single_use::record::ClockRecord::decode(&node.store.records()[&place]).unwrap();
    let floor = deadline as u64 * 1_000;
    assert_eq!((clock.operation_floor, clock.approval_floor, clock.nonce_floor), (floor, floor, 0));
}

#[tokio::test]
async fn l12_4_a_deadline_is_the_first_instant_at_which_an_operation_is_refused() {
    for (without, expected) in [(None, "deadline_passed"), (Some(Guard::Deadline), "taken")] {
        let node = Node::without(without, |_| {}).await;
        let op = operation(1, 1, node.now() + 1);
        node.clock.advance(Duration::from_millis(999));
        assert!(node.run(&op, &[]).await.is_ok());
        node.clock.advance(Duration::from_millis(1));
        assert_eq!(code(node.run(&op, &[]).await), expected);
    }
}

#[tokio::test]
async fn l12_1_each_instant_of_a_mark_is_a_bound_of_its_own() {
    let node = Node::new().await;
    let now = node.now();
    let at = |issued: i64, until: i64, expires: i64| Mark {
        issued_at: Some(issued),
        valid_until: until,
        ..nonce((issued + until + expires) as u64, expires)
    };
    let cases = [
        (at(now, now + LIFETIME, now + LIFETIME), "taken"),
        (at(now, now + 1, now + LIFETIME + 1), "lifetime_too_long"),
        (at(now, now + LIFETIME + 1, now + 1), "lifetime_too_long"),
        (at(now, now, now + 9), "expired"),
        (at(now, now + 9, now), "expired"),
        (at(now, now + 1, now + 9), "taken"),
        (at(now + SIGMA, now + 9, now + 9), "taken"),
        (at(now + SIGMA + 1, now + 9, now + 9), "not_yet_valid"),
        (at(T0 + 7, now + 9, now + 9), "taken"),
        // Born at T0, and the mark is 2σ later.
        (at(T0 + 6, now + 9, now + 9), "issued_before_mark"),
        (at(-5, now + 9, now + 9), "issued_before_mark"),
    ];
    for (mark, expected) in cases {
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), expected, "{mark:?}");
        let consumed = match node.single_use.reserve(&[mark], &[]).await {
            Ok(_) => "taken",
            Err(refusal) => refusal.code(),
        };
        assert_eq!(consumed, expected, "what is refused burns nothing, and what was dropped was rolled back");
        let op = Operation { issued_at: mark.issued_at, ..operation(99, 1, mark.expires_at) };
        if mark.valid_until == mark.expires_at && expected != "expired" {
            assert_eq!(code(node.run(&op, &[]).await), expected, "{op:?}");
        }
    }
    for (guard, mark) in [
        (Guard::Expired, cases[3].0),
        (Guard::Lifetime, cases[1].0),
        (Guard::NotYetValid, cases[7].0),
        (Guard::BirthMark, cases[9].0),
    ] {
        let node = Node::without(Some(guard), |_| {}).await;
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "taken", "{guard:?}");
    }
}

#[tokio::test]
async fn l12_6_a_lost_store_refuses_what_its_predecessor_took() {
    for (without, mark_on, expected) in
        [(None, true, "issued_before_mark"), (Some(Guard::BirthMark), true, "taken"), (None, false, "taken")]
    {
        let node = Node::without(without, |config| config.birth_mark = mark_on).await;
        let mark = nonce(1, node.now() + 500);
        assert_eq!(node.single_use.reserve_until(&mark).await, Ok(true));
        node.pass(1);
        let node = node.reopened(Records::new()).await.unwrap();
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), expected);
        assert_eq!(node.single_use.health().birth_mark.is_some(), mark_on);
    }
}

#[tokio::test]
async fn l12_6_what_carries_no_issued_instant_meets_a_floor_at_birth() {
    for (without, expected) in [(None, "below_floor"), (Some(Guard::BirthFloor), "taken")] {
        let node = Node::without(without, |_| {}).await;
        // Born at T0, with 2σ and the greatest lifetime on top.
        let floor = T0 + 2 * SIGMA + LIFETIME;
        let undated = |seed, expires_at| Mark { issued_at: None, ..nonce(seed, expires_at) };
        assert_eq!(code(node.single_use.reserve(&[undated(1, floor)], &[]).await), expected);
        assert!(node.single_use.reserve(&[undated(2, floor + 1)], &[]).await.is_ok());
        let op = Operation { issued_at: None, ..operation(1, 1, floor) };
        assert_eq!(code(node.run(&op, &[]).await), expected);
    }
}

#[tokio::test]
async fn l9_9_birth_is_raised_against_a_clock_that_was_behind_and_taken_anew_by_a_longer_lifetime() {
    let node = Node::new().await;
    assert_eq!(node.single_use.health().birth_mark, Some((T0 + 6) as u64 * 1_000));
    let wall = node.clock.wall();
    node.clock.step_wall_to(wall + 7_200_000);
    // Before the raise its issue was after the mark.
    let late = Mark { issued_at: Some(node.now() - 55), ..nonce(1, node.now() + 10) };
    assert_eq!(code(node.single_use.reserve(&[late], &[]).await), "issued_before_mark");
    assert_eq!(node.single_use.health().birth_mark, Some((T0 + 6) as u64 * 1_000 + 7_200_000));
    node.pass(LIFETIME + 3 * SIGMA);
    let fresh = Mark { issued_at: Some(node.now()), ..nonce(2, node.now() + 10) };
    assert_eq!(node.single_use.reserve_until(&fresh).await, Ok(true));
    assert!(node.single_use.health().birth_settled);
    let mut node = node.crash().await;
    assert!(node.single_use.health().birth_settled);
    node.config.greatest_lifetime_s *= 2;
    let now = node.clock.wall();
    let node = node.crash().await;
    assert!(!node.single_use.health().birth_settled);
    assert_eq!(node.single_use.health().birth_mark, Some(now + 6_000));
}
