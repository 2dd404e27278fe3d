//! Removing what is spent.

use super::*;

#[tokio::test]
async fn l10_5_a_spent_stream_is_removed_with_the_next_admission_and_leaves_its_floor() {
    let node = Node::new(config()).await;
    let old = node.fresh(stream(1, Class::E2e), 1);
    assert_eq!(node.answer(old).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA - 1);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 2, "one millisecond short of the wait");
    node.pass(1);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 2)).await, Ok(Verdict::Advance));
    assert_eq!(node.admission.health().streams, 1);

    // However the clock steps, what the removed window knew is refused, by another process too.
    node.clock.step_wall_to(old.issued_at + 1);
    let refusal = BoundaryRefusal::BelowFloor { floor: old.expires_at() };
    assert_eq!(node.answer(old).await, Err(refusal));
    let restarted = node.restart(config()).await.unwrap();
    assert_eq!(restarted.answer(old).await, Err(refusal));
    // The floor is the class's own.
    let other = Request { stream: stream(1, Class::Storage), ..old };
    assert_eq!(restarted.answer(other).await, Ok(Verdict::First));
}

#[tokio::test]
async fn l10_5_one_step_forward_removes_nothing_and_refuses_nothing_that_lives() {
    let node = Node::new(config()).await;
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await, Ok(Verdict::First));
    let right = node.clock.wall();
    node.clock.step_wall_to(right + 100 * TTL);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 2);
    // That birth was raised is what its settling costs; past it the class is open.
    node.clock.step_wall_to(right);
    let short = Request { ttl: 5, ..node.fresh(stream(3, Class::E2e), 1) };
    assert!(matches!(node.answer(short).await, Err(BoundaryRefusal::BeforeMark { .. })));
    let open = node.restart(AdmissionConfig { birth_mark: false, ..config() }).await.unwrap();
    assert_eq!(open.answer(short).await, Ok(Verdict::First));
}

#[tokio::test]
async fn l10_5_a_loaded_stream_waits_from_when_it_was_loaded() {
    let node = Node::new(config()).await;
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await, Ok(Verdict::First));
    node.pass(10 * TTL);
    let node = node.restart(config()).await.unwrap();
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 2);
    node.pass(TTL + SIGMA);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 2)).await, Ok(Verdict::Advance));
    assert_eq!(node.admission.health().streams, 1);
}

#[tokio::test]
async fn l10_5_a_full_table_takes_a_new_stream_in_the_place_of_a_spent_one() {
    let node = Node::new(AdmissionConfig { streams: 1, ..config() }).await;
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 1);
}

#[tokio::test]
async fn l10_5_streams_that_keep_admitting_hold_back_none_that_are_spent() {
    // More of them than one admission looks at, and each is expired whenever it is looked at.
    let node = Node::new(config()).await;
    for origin in 1..=20 {
        assert_eq!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await, Ok(Verdict::First));
    }
    for round in 2..40 {
        node.pass(100);
        for origin in 101..=120 {
            let short = Request { ttl: 1, ..node.fresh(stream(origin, Class::Storage), round) };
            assert!(node.answer(short).await.is_ok());
        }
    }
    assert_eq!(node.admission.health().streams, 20);
}

#[tokio::test]
async fn l10_5_an_admission_removes_a_bounded_number() {
    let node = Node::new(config()).await;
    for origin in 1..=20 {
        assert_eq!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await, Ok(Verdict::First));
    }
    node.pass(TTL + SIGMA);
    let mut held = 20;
    for sequence in 2..=6 {
        assert!(node.answer(node.fresh(stream(99, Class::E2e), sequence)).await.is_ok());
        let now = node.admission.health().streams;
        assert!(held <= now + super::super::REMOVALS, "{held} to {now}");
        held = now;
    }
    assert_eq!(held, 1);
}
