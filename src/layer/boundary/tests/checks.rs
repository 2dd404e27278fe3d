//! What is refused, and in which order.

use super::*;
use crate::layer::{
    charging::{Bound, Introducer},
    window::WindowRefusal,
};

#[tokio::test]
async fn l5_3_the_window_answers_and_a_refusal_stores_nothing() {
    let node = Node::new(config()).await;
    let first = node.fresh(stream(1, Class::E2e), 40);
    assert_eq!(node.answer(first).await, Ok(Verdict::First));
    assert_eq!(node.answer(node.fresh(first.stream, 45)).await, Ok(Verdict::Advance));
    assert_eq!(node.answer(node.fresh(first.stream, 44)).await, Ok(Verdict::Late));
    let records = node.store.records();
    assert_eq!(node.answer(first).await, Err(WindowRefusal::Replay.into()));
    let fork = Request { digest: TransactionDigest([9; 32]), ..first };
    let refusal = WindowRefusal::Fork { kept: first.digest, refused: fork.digest };
    assert_eq!(node.answer(fork).await, Err(refusal.into()));
    let refusal = WindowRefusal::Stale { incarnation: first.incarnation, lowest: 14 };
    assert_eq!(node.answer(node.fresh(first.stream, 13)).await, Err(refusal.into()));
    assert_eq!(node.store.records(), records);
    assert_eq!(node.admission.health().streams, 1);
}

#[tokio::test]
async fn l2_4_liveness_is_judged_by_the_wall_clock_at_each_edge() {
    let node = Node::new(config()).await;
    let stream = stream(1, Class::E2e);
    let now = node.clock.wall();
    let at = |sequence, issued_at, ttl| Request { issued_at, ttl, ..node.fresh(stream, sequence) };
    let future = BoundaryRefusal::FromTheFuture { issued_at: now + SIGMA + 1, sigma: SIGMA };
    assert_eq!(node.answer(at(1, now + SIGMA + 1, 5)).await, Err(future));
    assert_eq!(node.answer(at(1, now + SIGMA, 5)).await, Ok(Verdict::First));
    node.pass(50);
    assert_eq!(node.answer(at(2, now, 50)).await, Err(BoundaryRefusal::Expired { expired: now + 50 }));
    assert_eq!(node.answer(at(2, now, 51)).await, Ok(Verdict::Advance));
    let long = BoundaryRefusal::TtlTooLong { ttl: TTL + 1, greatest: TTL };
    assert_eq!(node.answer(at(3, now, TTL + 1)).await, Err(long));
    assert_eq!(
        node.answer(at(3, u64::MAX, u64::MAX)).await,
        Err(BoundaryRefusal::TtlTooLong { ttl: u64::MAX, greatest: TTL })
    );
}

#[tokio::test]
async fn l9_9_what_was_issued_at_or_before_the_birth_mark_is_refused_and_health_says_until_when() {
    let clock = Arc::new(ManualClock::new(START));
    let node = Node::open(FaultStore::new(), clock, config()).await.unwrap();
    let mark = START + 2 * SIGMA;
    let stream = stream(1, Class::E2e);
    assert_eq!(node.admission.health().refuses_fresh_until, Some(mark));
    node.pass(2 * SIGMA);
    assert_eq!(node.admission.health().refuses_fresh_until, Some(mark));
    assert_eq!(node.answer(node.fresh(stream, 1)).await, Err(BoundaryRefusal::BeforeMark { mark }));
    node.pass(1);
    let health = node.admission.health();
    assert_eq!((health.refuses_fresh_until, health.birth_mark, health.birth_settled), (None, Some(mark), false));
    assert_eq!(node.answer(node.fresh(stream, 1)).await, Ok(Verdict::First));
    assert_eq!(
        node.answer(Request { issued_at: mark, ..node.fresh(stream, 2) }).await,
        Err(BoundaryRefusal::BeforeMark { mark })
    );
    node.pass(TTL + SIGMA);
    assert_eq!(node.answer(node.fresh(stream, 2)).await, Ok(Verdict::Advance));
    assert!(node.admission.health().birth_settled);
}

#[tokio::test]
async fn l9_9_the_birth_mark_can_be_opted_out_of_and_into_again() {
    let clock = Arc::new(ManualClock::new(START));
    let without = AdmissionConfig { birth_mark: false, ..config() };
    let node = Node::open(FaultStore::new(), clock, without).await.unwrap();
    assert_eq!(node.admission.health().birth_mark, None);
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await, Ok(Verdict::First));
    let node = node.restart(config()).await.unwrap();
    let mark = START + 2 * SIGMA;
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 2)).await, Err(BoundaryRefusal::BeforeMark { mark }));
}

#[tokio::test]
async fn l9_9_a_reading_made_for_a_refused_request_raises_birth_durably() {
    let node = Node::new(config()).await;
    node.clock.step_wall_to(START + 500_000);
    let expired = Request { issued_at: START, ..node.fresh(stream(1, Class::E2e), 1) };
    assert!(matches!(node.answer(expired).await, Err(BoundaryRefusal::Expired { .. })));
    let mark = node.admission.health().birth_mark;
    assert_eq!(mark, Some(START + 500_000 - 2 * SIGMA - 1 + 2 * SIGMA));
    // The clock goes back and the process is gone: the mark stays.
    node.clock.step_wall_to(START + 100);
    let node = node.restart(config()).await.unwrap();
    assert_eq!(node.admission.health().birth_mark, mark);
}

#[tokio::test]
async fn l8_4_an_incarnation_more_than_the_tolerance_ahead_is_refused() {
    let node = Node::new(config()).await;
    let ahead = |ms| Request {
        incarnation: Incarnation::new(node.clock.wall() + ms, 0xffff),
        ..node.fresh(stream(1, Class::E2e), 1)
    };
    let refused = ahead(SIGMA + 1);
    let refusal = BoundaryRefusal::IncarnationAhead { incarnation: refused.incarnation, sigma: SIGMA };
    assert_eq!(node.answer(refused).await, Err(refusal));
    assert_eq!(node.answer(ahead(SIGMA)).await, Ok(Verdict::First));
    let older = Request { incarnation: Incarnation::new(START, 0), ..node.fresh(stream(1, Class::E2e), 2) };
    let stale = WindowRefusal::Stale { incarnation: ahead(SIGMA).incarnation, lowest: 0 };
    assert_eq!(node.answer(older).await, Err(stale.into()));
}

#[tokio::test]
async fn l5_1_destinations_and_classes_advance_independently() {
    let node = Node::new(config()).await;
    let one = stream(1, Class::E2e);
    for stream in [one, stream(1, Class::Storage), StreamKey { destination: one.origin, ..one }] {
        assert_eq!(node.answer(node.fresh(stream, 1)).await, Ok(Verdict::First));
    }
}

#[tokio::test]
async fn l10_1_a_new_stream_past_the_bound_is_refused_and_known_ones_go_on() {
    let node = Node::new(AdmissionConfig { streams: 2, ..config() }).await;
    for origin in [1, 2] {
        assert_eq!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await, Ok(Verdict::First));
    }
    let (introducer, bound) = (Introducer::Slot(0), Bound::Store { streams: 2 });
    let refusal = BoundaryRefusal::StreamCapacityExceeded { introducer, bound };
    assert_eq!(node.answer(node.fresh(stream(3, Class::E2e), 1)).await, Err(refusal));
    assert_eq!(node.answer(node.fresh(stream(1, Class::E2e), 2)).await, Ok(Verdict::Advance));
}

#[tokio::test]
async fn a_configuration_over_the_bounds_is_refused() {
    let clock = Arc::new(ManualClock::new(START));
    let open = |config| Node::open(FaultStore::new(), clock.clone(), config);
    let ttl = AdmissionConfig { greatest_ttl: crate::message::GREATEST_TTL_MS + 1, ..config() };
    assert!(matches!(open(ttl).await.err(), Some(AdmissionOpenError::TtlOverBound { .. })));
    let streams = AdmissionConfig { streams: super::super::STREAMS_MAX + 1, ..config() };
    assert!(matches!(open(streams).await.err(), Some(AdmissionOpenError::StreamsOverBound { .. })));
}
