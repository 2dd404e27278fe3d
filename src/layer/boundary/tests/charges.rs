//! Whom streams are charged to, and what that refuses.

use super::*;
use crate::{
    layer::charging::{Bound, Introducer, Shares},
    link::{LinkGuard, Links, NoSlot},
    storage::commit::fault::Fault,
};

/// Shares of a few streams each.
fn small(slots: u16) -> AdmissionConfig {
    AdmissionConfig { shares: Shares { slots, floor: 2, pool: 4, inbox: 1, own: 2 }, ..config() }
}

fn open(node: &Node, name: u64) -> Result<LinkGuard, NoSlot> {
    node.admission.open(libp2p::PeerId::random(), LinkId::of(name))
}

fn refused(introducer: Introducer, bound: Bound) -> Answer {
    Err(BoundaryRefusal::StreamCapacityExceeded { introducer, bound })
}

impl Node {
    /// The first transaction of a new stream.
    async fn opens(&self, origin: u8, carrier: Carrier) -> Answer {
        let class = if matches!(carrier, Carrier::Inbox { .. }) { Class::Application } else { Class::E2e };
        self.answer(Request { carrier, ..self.fresh(stream(origin, class), 1) }).await
    }
}

#[tokio::test]
async fn l10_2_a_new_stream_is_charged_to_what_brought_it_and_a_known_one_to_nothing_more() {
    let node = Node::new(AdmissionConfig { custody: true, ..small(3) }).await;
    let inbox = node.inbox();
    let _guards = [open(&node, 1).unwrap(), open(&node, 2).unwrap()];
    for (origin, carrier) in [(1, carrier(1)), (2, carrier(1)), (3, inbox), (4, Carrier::Own), (5, Carrier::Own)] {
        assert_eq!(node.opens(origin, carrier).await, Ok(Verdict::First));
    }
    assert_eq!(node.opens(9, inbox).await, refused(Introducer::Inbox, Bound::Share { share: 1 }));
    assert_eq!(node.opens(9, Carrier::Own).await, refused(Introducer::Own, Bound::Share { share: 2 }));
    // Slot 0 grows by the whole pool, alone as it is, and no further.
    for origin in 11..=14 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    assert_eq!(node.opens(9, carrier(1)).await, refused(Introducer::Slot(0), Bound::Claim { floor: 2, claim: 4 }));
    assert_eq!(node.admission.health().pool, 4);
    // Another slot has its floor all the same, and nothing of a pool that is used up.
    for origin in [21, 22] {
        assert_eq!(node.opens(origin, carrier(2)).await, Ok(Verdict::First));
    }
    assert_eq!(node.opens(9, carrier(2)).await, refused(Introducer::Slot(1), Bound::Pool { floor: 2, pool: 4 }));
    // A stream that is known goes on, whatever brings it now.
    for (sequence, carrier) in (2..).zip([carrier(1), carrier(2), carrier(7), inbox]) {
        let request = Request { carrier, ..node.fresh(stream(3, Class::Application), sequence) };
        assert_eq!(node.answer(request).await, Ok(Verdict::Advance));
    }
}

#[tokio::test]
async fn l10_4_a_stream_stays_charged_after_its_connection_left_and_across_restarts() {
    let node = Node::new(small(2)).await;
    let guard = open(&node, 1).unwrap();
    for origin in 1..=6 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    drop(guard);
    assert_eq!(node.admission.health().slots_taken, 0);
    for node in [&node, &node.restart(small(2)).await.unwrap()] {
        // The clean slot goes first; who comes next inherits what the other still holds.
        let _first = open(node, 2).unwrap();
        let _second = open(node, 3).unwrap();
        let inherited = refused(Introducer::Slot(0), Bound::Claim { floor: 2, claim: 4 });
        assert_eq!(node.opens(9, carrier(3)).await, inherited);
        assert_eq!(open(node, 4).err(), Some(NoSlot { slots: 2 }));
    }
}

#[tokio::test]
async fn l10_3_slots_that_vanished_keep_their_excess_in_the_pool_and_in_n() {
    let node = Node::new(small(2)).await;
    let _first = open(&node, 1).unwrap();
    let guard = open(&node, 2).unwrap();
    for origin in 1..=5 {
        assert_eq!(node.opens(origin, carrier(2)).await, Ok(Verdict::First));
    }
    drop(guard);
    // Slot 1 is gone, and holds 3 of the pool's 4.
    let node = node.restart(small(1)).await.unwrap();
    assert_eq!(node.admission.health().pool, 3);
    let _guard = open(&node, 1).unwrap();
    for origin in 11..=13 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First), "its floor, and the last of the pool");
    }
    // Claims are of 4 / 2 now; the pool is what refuses.
    assert_eq!(node.opens(14, carrier(1)).await, refused(Introducer::Slot(0), Bound::Pool { floor: 2, pool: 4 }));
}

#[tokio::test]
async fn l10_5_a_refusal_ends_once_a_stream_of_the_introducer_is_spent_though_nobody_else_admits() {
    // More streams wait before the introducer's own than one admission looks at.
    let node = Node::new(AdmissionConfig { shares: Shares { own: 50, ..small(2).shares }, ..small(2) }).await;
    for origin in 50..=90 {
        assert_eq!(node.opens(origin, Carrier::Own).await, Ok(Verdict::First));
    }
    node.pass(1);
    let _guard = open(&node, 1).unwrap();
    for origin in 1..=6 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    node.pass(TTL + SIGMA - 1);
    let full = refused(Introducer::Slot(0), Bound::Claim { floor: 2, claim: 4 });
    assert_eq!(node.opens(9, carrier(1)).await, full, "one millisecond short");
    node.pass(1);
    let before = node.admission.health().streams;
    assert_eq!(node.opens(9, carrier(1)).await, Ok(Verdict::First));
    assert!(node.admission.health().streams < before);
}

#[tokio::test]
async fn l10_3_a_slot_at_its_floor_grows_once_any_slot_that_uses_the_pool_has_a_spent_stream() {
    // Other spent streams stand before those that help.
    let node = Node::new(AdmissionConfig { shares: Shares { own: 50, ..small(2).shares }, ..small(2) }).await;
    for origin in 50..=90 {
        assert_eq!(node.opens(origin, Carrier::Own).await, Ok(Verdict::First));
    }
    node.pass(1);
    let _guards = [open(&node, 1).unwrap(), open(&node, 2).unwrap()];
    for origin in 1..=6 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    node.pass(TTL + SIGMA);
    for origin in [11, 12, 13] {
        assert_eq!(node.opens(origin, carrier(2)).await, Ok(Verdict::First));
    }
}

#[tokio::test]
async fn l10_3_a_slot_keeps_its_floor_though_its_own_spent_streams_fill_it_and_the_pool_is_used_up() {
    let node = Node::new(AdmissionConfig { shares: Shares { own: 50, ..small(2).shares }, ..small(2) }).await;
    for origin in 50..=90 {
        assert_eq!(node.opens(origin, Carrier::Own).await, Ok(Verdict::First));
    }
    let _guards = [open(&node, 1).unwrap(), open(&node, 2).unwrap()];
    for origin in [1, 2] {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    node.pass(100);
    for origin in 11..=16 {
        assert_eq!(node.opens(origin, carrier(2)).await, Ok(Verdict::First));
    }
    node.pass(TTL + SIGMA - 100);
    for origin in [3, 4] {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
}

#[tokio::test]
async fn l9_2_a_failed_batch_restores_charges_and_touches_no_slot() {
    let node = Node::new(small(2)).await;
    let _guard = open(&node, 1).unwrap();
    assert_eq!(node.opens(1, carrier(1)).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA);
    let before = node.admission.health();
    for round in 0..3 {
        // Removes the spent stream and opens others; then all of it is undone, removal and charges.
        node.store.fail_at(node.store.begun() + 1, Fault::Io);
        node.store.stall();
        let tickets: Vec<_> = (10..16)
            .map(|origin| Request { carrier: carrier(1), ..node.fresh(stream(origin, Class::E2e), 1) })
            .map(|request| node.admission.admit(request))
            .collect();
        assert_eq!(node.admission.health().pool, 4, "round {round}");
        tokio::task::yield_now().await;
        node.store.resume();
        for ticket in tickets {
            assert!(ticket.await.is_err());
        }
        assert_eq!(node.admission.health(), before, "round {round}");
    }
    for origin in 10..16 {
        assert_eq!(node.opens(origin, carrier(1)).await, Ok(Verdict::First));
    }
    assert_eq!(node.opens(16, carrier(1)).await, refused(Introducer::Slot(0), Bound::Claim { floor: 2, claim: 4 }));
}

#[tokio::test]
async fn l10_3_links_that_nobody_announced_share_one_slot() {
    let node = Node::new(small(2)).await;
    assert_eq!(node.admission.health().slots_taken, 0, "none before the first of them introduces a stream");
    for origin in 1..=6 {
        assert_eq!(node.opens(origin, carrier(u64::from(origin))).await, Ok(Verdict::First));
    }
    let full = refused(Introducer::Slot(0), Bound::Claim { floor: 2, claim: 4 });
    assert_eq!(node.opens(7, carrier(7)).await, full);
    let _guard = open(&node, 8).unwrap();
    assert_eq!(open(&node, 9).err(), Some(NoSlot { slots: 2 }));
    assert_eq!(node.opens(8, carrier(8)).await, Ok(Verdict::First), "an announced one has its own");
}

#[tokio::test]
async fn l10_3_a_link_that_nobody_announced_is_refused_where_every_slot_is_taken() {
    let node = Node::new(small(1)).await;
    let _guard = open(&node, 1).unwrap();
    assert_eq!(node.opens(1, carrier(2)).await, Err(BoundaryRefusal::NoSlot(NoSlot { slots: 1 })));
    assert_eq!(node.opens(1, carrier(1)).await, Ok(Verdict::First));
    assert_eq!(
        node.answer(Request { carrier: carrier(2), ..node.fresh(stream(1, Class::E2e), 2) }).await,
        Ok(Verdict::Advance)
    );
}

#[tokio::test]
async fn l10_3_a_link_announced_twice_keeps_its_slot_until_the_last_guard_is_dropped() {
    let node = Node::new(small(1)).await;
    let (first, second) = (open(&node, 1).unwrap(), open(&node, 1).unwrap());
    drop(first);
    assert!(open(&node, 2).is_err());
    drop(second);
    assert!(open(&node, 2).is_ok());
}

#[tokio::test]
async fn l10_3_slots_are_taken_and_freed_also_while_the_store_refuses() {
    let node = Node::new(small(1)).await;
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert!(node.admit(Request { carrier: carrier(1), ..node.fresh(stream(1, Class::E2e), 1) }).await.is_err());
    // That link was never announced, and took the shared slot; what is charged is undone, what is taken is not.
    assert_eq!(node.admission.health().pool, 0);
    assert!(open(&node, 2).is_err());
}
