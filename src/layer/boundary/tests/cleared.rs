//! A stream that an operator cleared: the mark that it keeps, and what it would admit again without it (law L11.5).

use super::*;
use crate::{
    layer::boundary::cleared::CLEARED_KEY,
    operator,
    storage::{
        RecordName, Table,
        guard::{Guard, Guards},
    },
};

fn name(stream: StreamKey) -> RecordName {
    RecordName::of(Table::Receiver, &stream.to_bytes())
}

/// Stops the node, clears the stream's record, and starts another on what is left, without `guard`.
async fn cleared(node: Node, stream: StreamKey, guard: Option<Guard>) -> (Node, u64) {
    node.commit.shutdown().await;
    let cleared = operator::clear(&node.store.arc(), name(stream), &*node.clock).await.unwrap();
    let store = FaultStore::holding(node.store.records());
    let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
    let guards = Guards { without: guard };
    let admission = Admission::open_guarded(&commit, node.clock.clone(), config(), &[], guards).await.unwrap();
    (Node { store, clock: node.clock, commit, admission }, cleared.mark.expect("a receiver's"))
}

#[tokio::test]
async fn l11_5_a_cleared_stream_admits_nothing_again_and_goes_on_past_its_mark() {
    for guard in [None, Some(Guard::ClearedMark)] {
        let node = Node::new(config()).await;
        let (victim, other) = (stream(1, Class::E2e), stream(2, Class::E2e));
        let before = node.fresh(victim, 5);
        assert!(node.answer(before).await.is_ok());
        assert!(node.answer(node.fresh(other, 5)).await.is_ok());
        let again = node.fresh(other, 6);
        let (node, mark) = cleared(node, victim, guard).await;
        assert_eq!(mark, node.clock.wall() + 2 * SIGMA);
        let answer = node.answer(before).await;
        if guard.is_some() {
            assert!(answer.is_ok(), "without the mark it is admitted twice");
            continue;
        }
        assert_eq!(answer, Err(BoundaryRefusal::StreamCleared { mark }));
        assert!(node.answer(again).await.is_ok(), "another stream is as it was");
        node.pass(2 * SIGMA);
        assert_eq!(node.answer(node.fresh(victim, 6)).await, Err(BoundaryRefusal::StreamCleared { mark }));
        node.pass(1);
        assert!(node.answer(node.fresh(victim, 6)).await.is_ok(), "its sender is heard again past the mark");
        // It holds after a restart, however the clock steps.
        let node = node.restart(config()).await.unwrap();
        node.clock.step_wall_to(before.issued_at);
        assert_eq!(node.answer(before).await, Err(BoundaryRefusal::StreamCleared { mark }));
    }
}

#[tokio::test]
async fn l11_5_a_mark_starts_from_the_greatest_instant_of_an_admission_where_the_clock_has_stepped_back() {
    let node = Node::new(config()).await;
    let (victim, other) = (stream(1, Class::E2e), stream(2, Class::E2e));
    node.pass(50_000);
    let ahead = node.clock.wall();
    let before = node.fresh(victim, 5);
    assert!(node.answer(before).await.is_ok());
    assert!(node.answer(node.fresh(other, 5)).await.is_ok());
    node.clock.step_wall_to(START + 100);
    let (node, mark) = cleared(node, victim, None).await;
    assert_eq!(mark, ahead + 2 * SIGMA);
    node.clock.step_wall_to(ahead);
    assert_eq!(node.answer(before).await, Err(BoundaryRefusal::StreamCleared { mark }));
}

#[tokio::test]
async fn l11_5_not_to_be_had_an_instant_that_only_the_lost_record_told() {
    // The clock was ahead when the one stream admitted, and stepped back; its record then went bad. Nothing that can be
    // read tells how far ahead it was, so the mark lies before what was admitted.
    let node = Node::new(config()).await;
    let victim = stream(1, Class::E2e);
    node.pass(50_000);
    let ahead = node.clock.wall();
    let before = node.fresh(victim, 5);
    assert!(node.answer(before).await.is_ok());
    node.clock.step_wall_to(START + 100);
    node.commit.shutdown().await;
    let mut records = node.store.records();
    records.insert((Table::Receiver, victim.to_bytes().to_vec().into()), "damaged".into());
    let node = Node { store: FaultStore::holding(records), ..node };
    let (node, mark) = cleared(node, victim, None).await;
    assert!(mark < ahead);
    node.clock.step_wall_to(ahead);
    assert!(node.answer(before).await.is_ok(), "as after a store lost with a clock that was ahead (law L9.9)");
}

#[tokio::test]
async fn l11_5_a_record_of_marks_that_cannot_be_restored_refuses_the_store() {
    let node = Node::new(config()).await;
    assert!(node.answer(node.fresh(stream(1, Class::E2e), 5)).await.is_ok());
    let (node, _) = cleared(node, stream(1, Class::E2e), None).await;
    let mut records = node.store.records();
    records.insert((Table::Clock, CLEARED_KEY.into()), "damaged".into());
    let opened = Node::open(FaultStore::holding(records), node.clock.clone(), config()).await;
    assert!(matches!(opened.err(), Some(AdmissionOpenError::Damaged { what: "cleared", .. })));
}
