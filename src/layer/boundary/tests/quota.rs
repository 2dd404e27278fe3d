//! The quota inside the boundary.

use super::*;
use crate::{
    layer::{
        quota::{Bucket, Quota, Quotas, Rate},
        window::WindowRefusal,
    },
    storage::commit::fault::Fault,
};

/// Two messages at once and one every 100 ms; 100 bytes at once and one a millisecond.
const QUOTA: Quota = match (Rate::new(10, 2), Rate::new(1_000, 100)) {
    (Some(messages), Some(bytes)) => Quota { messages, bytes },
    _ => unreachable!(),
};

fn limited() -> AdmissionConfig {
    AdmissionConfig { quotas: Quotas::NONE.with(Class::E2e, QUOTA), ..config() }
}

fn over(key: StreamKey, bucket: Bucket, after_ms: Option<u64>) -> Answer {
    Err(BoundaryRefusal::QuotaExceeded { key, bucket, after_ms })
}

#[tokio::test]
async fn l7_1_a_quota_refusal_leaves_window_and_record_as_they_were_and_costs_nothing() {
    let node = Node::new(limited()).await;
    let stream = stream(1, Class::E2e);
    for sequence in [1, 2] {
        assert!(node.answer(node.fresh(stream, sequence)).await.is_ok());
    }
    let records = node.store.records();
    let third = node.fresh(stream, 3);
    for _ in 0..10 {
        assert_eq!(node.answer(third).await, over(stream, Bucket::Messages, Some(101)));
    }
    assert_eq!(node.store.records(), records);
    node.pass(100);
    // Had a refusal moved the window it were Late now, and had it cost anything it were refused.
    assert_eq!(node.answer(node.fresh(stream, 4)).await, Ok(Verdict::Advance));
    node.pass(100);
    assert_eq!(node.answer(third).await, Ok(Verdict::Late));
}

#[tokio::test]
async fn l7_1_replay_fork_and_stale_cost_nothing() {
    let node = Node::new(limited()).await;
    let first = node.fresh(stream(1, Class::E2e), 100);
    assert_eq!(node.answer(first).await, Ok(Verdict::First));
    for _ in 0..10 {
        assert_eq!(node.answer(first).await, Err(WindowRefusal::Replay.into()));
        let fork = Request { digest: TransactionDigest([9; 32]), ..first };
        assert!(matches!(node.answer(fork).await, Err(BoundaryRefusal::Window(WindowRefusal::Fork { .. }))));
        let stale = node.fresh(first.stream, 3);
        assert!(matches!(node.answer(stale).await, Err(BoundaryRefusal::Window(WindowRefusal::Stale { .. }))));
    }
    assert_eq!(node.answer(node.fresh(first.stream, 101)).await, Ok(Verdict::Advance));
}

#[tokio::test]
async fn l7_2_bytes_cost_what_the_data_is_long_and_only_a_class_that_has_a_quota_pays() {
    let node = Node::new(limited()).await;
    let of = |stream, sequence, bytes| Request { bytes, ..node.fresh(stream, sequence) };
    let limited = stream(1, Class::E2e);
    assert_eq!(node.answer(of(limited, 1, 101)).await, over(limited, Bucket::Bytes, None));
    assert_eq!(node.answer(of(limited, 1, 100)).await, Ok(Verdict::First));
    assert_eq!(node.answer(of(limited, 2, 40)).await, over(limited, Bucket::Bytes, Some(41)));
    assert_eq!(node.answer(of(stream(2, Class::E2e), 1, 100)).await, Ok(Verdict::First), "another stream's own");
    let free = stream(1, Class::Storage);
    for sequence in 1..=20 {
        assert!(node.answer(of(free, sequence, 1 << 40)).await.is_ok());
    }
}

#[tokio::test]
async fn l9_2_a_failed_batch_gives_the_quota_back_up_to_the_burst() {
    let node = Node::new(limited()).await;
    let stream = stream(1, Class::E2e);
    assert!(node.answer(node.fresh(stream, 1)).await.is_ok());
    // One of two is left. Two batches, one on top of the other, spend it and what fills since.
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    node.store.stall();
    let second = node.admission.admit(node.fresh(stream, 2));
    tokio::task::yield_now().await;
    node.pass(100);
    let third = node.admission.admit(node.fresh(stream, 3));
    node.store.resume();
    assert!(second.await.is_err() && third.await.is_err());
    // As if neither had been: one was left, one filled since, and no more than the burst.
    for sequence in [2, 3] {
        assert_eq!(node.answer(node.fresh(stream, sequence)).await, Ok(Verdict::Advance));
    }
    assert_eq!(node.answer(node.fresh(stream, 4)).await, over(stream, Bucket::Messages, Some(101)));
}

#[tokio::test]
async fn l7_2_a_stream_is_not_removed_before_its_buckets_are_full_again() {
    let slow = Quota { messages: Rate::new(1, 5).unwrap(), ..QUOTA };
    let node = Node::new(AdmissionConfig { quotas: Quotas::NONE.with(Class::E2e, slow), ..config() }).await;
    let stream = stream(1, Class::E2e);
    assert!(node.answer(node.fresh(stream, 1)).await.is_ok());
    let other = |sequence| node.fresh(super::stream(2, Class::Storage), sequence);
    node.pass(4_999);
    assert!(node.answer(other(1)).await.is_ok());
    assert_eq!(node.admission.health().streams, 2, "spent since {} ms, and not full for one more", 4_999 - TTL - SIGMA);
    node.pass(1);
    assert!(node.answer(other(2)).await.is_ok());
    assert_eq!(node.admission.health().streams, 1);
}

#[tokio::test]
async fn l7_2_a_quota_that_fills_too_slowly_does_not_open() {
    let slow = Quota { messages: Rate::new(1, 6_001).unwrap(), ..QUOTA };
    let config = AdmissionConfig { quotas: Quotas::NONE.with(Class::Storage, slow), ..config() };
    let opened = Node::open(FaultStore::new(), Arc::new(ManualClock::new(START)), config).await;
    assert_eq!(opened.err(), Some(AdmissionOpenError::QuotaTooSlow { seconds: 6_001 }));
}
