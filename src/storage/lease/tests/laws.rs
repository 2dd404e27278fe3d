use futures::{FutureExt, poll};

use super::*;
use crate::storage::{
    BadRecord,
    commit::{Budget, Limit, fault::Fault},
};

/// A stream's record as if an earlier process had written it.
fn durable(number: u64, incarnation: Incarnation, through: u64) -> Records {
    let name = stream(number).to_bytes();
    let lease = record::Lease { incarnation, through, mail: false, known: known::Known::default() };
    [((Table::Sender, bytes::Bytes::copy_from_slice(&name)), record::encode(&name, &lease))].into()
}

#[tokio::test]
async fn l8_1_no_sequence_before_its_lease_is_durable_and_one_write_covers_64() {
    let node = Node::fresh().await;
    node.store.stall();
    let mut first = node.leases.reserve(&stream(1), TTL);
    let mut inside = node.leases.reserve(&stream(1), TTL);
    settle().await;
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut inside).is_pending(), "inside the lease, and the lease is not durable");
    node.store.resume();
    assert_eq!(first.await.unwrap().unwrap().sequence, 0);
    assert_eq!(inside.await.unwrap().unwrap().sequence, 1);
    for sequence in 2..64 {
        let ticket = node.leases.reserve(&stream(1), TTL);
        assert_eq!(ticket.now_or_never().unwrap().unwrap().unwrap().sequence, sequence, "it waits for nothing");
    }
    assert_eq!(node.store.begun(), 1);
    assert_eq!(node.reserve(&stream(1)).await.unwrap().sequence, 64);
    assert_eq!(node.store.begun(), 2);
}

#[tokio::test]
async fn l8_2_a_restart_resumes_past_the_lease_with_a_gap_of_at_most_64() {
    let mut node = Node::fresh().await;
    let mut last = node.reserve(&stream(1)).await.unwrap();
    for used in [1, 2, 62, 63, 64, 65, 128, 1] {
        node = node.restart().await;
        for place in 0..used {
            let next = node.reserve(&stream(1)).await.unwrap();
            assert_eq!(next.incarnation, last.incarnation);
            assert!(next.sequence > last.sequence);
            assert!(next.sequence - last.sequence - 1 <= if place == 0 { LEASE } else { 0 });
            last = next;
        }
    }
}

#[tokio::test]
async fn l8_2_a_reservation_past_the_last_sequence_fails_closed() {
    let incarnation = Incarnation::new(START, 0);
    let clock = Arc::new(ManualClock::new(START));
    let node = Node::start(durable(1, incarnation, u64::MAX - 2), clock, SENDER_STREAMS).await;
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { incarnation, sequence: u64::MAX - 1 }));
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { incarnation, sequence: u64::MAX }));
    assert_eq!(node.reserve(&stream(1)).await, Err(LeaseRefused::Exhausted));
    assert_eq!(node.reserve(&stream(1)).await, Err(LeaseRefused::Exhausted));
    let node = node.restart().await;
    assert_eq!(node.reserve(&stream(1)).await, Err(LeaseRefused::Exhausted));
    assert_eq!(node.reserve(&stream(2)).await.unwrap().sequence, 0, "no other stream is touched");
}

#[tokio::test]
async fn l9_2_a_failed_batch_never_lowers_the_next_sequence() {
    let node = Node::fresh().await;
    let before = node.reserve(&stream(1)).await.unwrap();
    for _ in 1..64 {
        node.reserve(&stream(1)).await.unwrap();
    }
    node.store.fail_at(2, Fault::Io);
    let extends = node.leases.reserve(&stream(1), TTL);
    let inside = node.leases.reserve(&stream(1), TTL);
    let fresh = node.leases.reserve(&stream(2), TTL);
    extends.await.unwrap_err();
    inside.await.unwrap_err();
    fresh.await.unwrap_err();
    assert_eq!(node.leases.streams(), 1, "the stream that it would have opened is not there");
    let after = node.reserve(&stream(1)).await.unwrap();
    assert_eq!(after, Reservation { incarnation: before.incarnation, sequence: 66 });
    assert_eq!(node.store.begun(), 3, "what it would have covered is covered anew");
    let node = node.restart().await;
    assert_eq!(node.reserve(&stream(1)).await.unwrap().sequence, 66 + LEASE);
}

#[tokio::test]
async fn l9_2_a_failed_batch_restores_the_incarnation_that_a_draw_replaced() {
    let mut node = Node::fresh().await;
    let before = node.reserve(&stream(1)).await.unwrap();
    node.clock.step_wall_to(START - TOLERANCE - 2);
    node.store.fail_at(2, Fault::Io);
    assert!(node.leases.reserve(&stream(1), TTL).await.is_err());
    node.clock.step_wall_to(START);
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { sequence: 1, ..before }));
    node = node.restart().await;
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { sequence: LEASE, ..before }));
}

#[tokio::test]
async fn l8_4_an_incarnation_too_far_ahead_is_set_aside_and_exceeded_once_the_clock_reaches_it() {
    let mut node = Node::fresh().await;
    let ahead = node.reserve(&stream(1)).await.unwrap();
    // One past the tolerance is still run: it may be one above a known one at the edge.
    node.clock.step_wall_to(START - TOLERANCE - 1);
    assert_eq!(node.reserve(&stream(1)).await.unwrap().incarnation, ahead.incarnation);
    node.clock.step_wall_to(START - TOLERANCE - 2);
    let below = node.reserve(&stream(1)).await.unwrap();
    assert_eq!(below.incarnation.wall(), START - TOLERANCE - 2);
    assert_eq!(below.sequence, 0);
    for _ in 0..2 {
        // A restart remembers what was set aside.
        node = node.restart().await;
        node.clock.step_wall_to(START - 1);
        assert_eq!(node.reserve(&stream(1)).await.unwrap().incarnation, below.incarnation);
    }
    node.clock.step_wall_to(START);
    let above = node.reserve(&stream(1)).await.unwrap();
    assert_eq!(above.incarnation.wall(), START + 1);
    assert_eq!(above.sequence, 0);
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { sequence: 1, ..above }));
}

#[tokio::test]
async fn l8_4_a_store_that_was_lost_is_heard_again_at_once() {
    let node = Node::fresh().await;
    let before = node.reserve(&stream(1)).await.unwrap();
    node.advance(1);
    let node = Node::start(Records::new(), node.clock, SENDER_STREAMS).await;
    assert!(node.reserve(&stream(1)).await.unwrap().incarnation > before.incarnation);
}

#[tokio::test]
async fn l8_5_an_idle_stream_gives_its_room_and_is_exceeded_when_it_comes_back() {
    let mut node = Node::start(Records::new(), Arc::new(ManualClock::new(START)), 2).await;
    let first = node.reserve(&stream(1)).await.unwrap();
    node.advance(1);
    let second = node.reserve(&stream(2)).await.unwrap();
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: 2 });
    assert_eq!(node.reserve(&stream(3)).await, full);
    node.advance(TTL + TOLERANCE - 2);
    assert_eq!(node.reserve(&stream(3)).await, full, "one millisecond too early");
    node.advance(1);
    let before = node.store.begun();
    let third = node.reserve(&stream(3)).await.unwrap();
    assert_eq!(node.store.begun(), before + 1, "the removal and its mark land in the fresh stream's own batch");
    assert_eq!(node.leases.streams(), 2);
    assert_eq!(node.reserve(&stream(2)).await, Ok(Reservation { sequence: 1, ..second }), "in use, and kept");
    // The clock steps back to where the first one was drawn: what was removed is known, and exceeded.
    node.clock.step_wall_to(START);
    node = Node::start(node.store.records(), node.clock, 3).await;
    let again = node.reserve(&stream(1)).await.unwrap();
    assert_eq!(again.incarnation.wall(), first.incarnation.wall() + 1);
    assert_eq!(again.sequence, 0);
    assert!(third.incarnation > again.incarnation);
}

#[tokio::test]
async fn l8_5_after_a_restart_a_stream_is_idle_only_after_the_greatest_ttl_that_any_node_accepts() {
    let node = Node::start(durable(1, Incarnation::new(START, 0), 63), Arc::new(ManualClock::new(START)), 1).await;
    node.advance(crate::message::GREATEST_TTL_MS + TOLERANCE - 1);
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: 1 });
    assert_eq!(node.reserve(&stream(2)).await, full);
    node.advance(1);
    node.reserve(&stream(2)).await.unwrap();
}

#[tokio::test]
async fn l8_5_a_failed_batch_brings_back_the_streams_that_it_retired() {
    let node = Node::start(Records::new(), Arc::new(ManualClock::new(START)), 1).await;
    let first = node.reserve(&stream(1)).await.unwrap();
    node.advance(TTL + TOLERANCE);
    node.store.fail_at(2, Fault::Io);
    assert!(node.leases.reserve(&stream(2), TTL).await.is_err());
    assert_eq!(node.reserve(&stream(1)).await, Ok(Reservation { sequence: 1, ..first }));
    assert!(node.store.records().keys().all(|(table, _)| *table == Table::Sender));
}

#[tokio::test]
async fn l8_5_a_table_far_over_its_bound_makes_room_too_once_its_streams_are_idle() {
    let clock = Arc::new(ManualClock::new(START));
    let mut records = Records::new();
    for number in 0..100 {
        records.append(&mut durable(number, Incarnation::new(START, 0), 63));
    }
    let store = FaultStore::holding(records);
    for number in 0..100_u8 {
        let name = RecordName::of(Table::Receiver, &[number]);
        store.add_bad(Table::Receiver, BadRecord { name, reason: "a bad sector".into() });
    }
    // Each bad record takes a place, so that 200 are taken of 120.
    let node = Node::on(store, clock, 120).await;
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: 120 });
    node.advance(crate::message::GREATEST_TTL_MS);
    node.reserve(&stream(0)).await.unwrap();
    node.advance(TOLERANCE);
    assert_eq!(node.reserve(&stream(0)).await.unwrap().sequence, 65);
    node.reserve(&stream(1_000)).await.unwrap();
    assert!(node.leases.streams() + 100 <= 120);
    assert_eq!(node.reserve(&stream(0)).await.unwrap().sequence, 66, "in use, and kept");
    for number in 0..18 {
        node.reserve(&stream(2_000 + number)).await.unwrap();
    }
    assert_eq!(node.reserve(&stream(3_000)).await, full);
}

#[tokio::test]
async fn l10_1_the_16385th_stream_fails_closed_and_the_others_go_on() {
    let node = Node::fresh().await;
    let tickets: Vec<_> = (0..SENDER_STREAMS as u64).map(|number| node.leases.reserve(&stream(number), TTL)).collect();
    for ticket in tickets {
        ticket.await.unwrap().unwrap();
    }
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: SENDER_STREAMS });
    assert_eq!(node.reserve(&stream(SENDER_STREAMS as u64)).await, full);
    assert_eq!(node.reserve(&stream(7)).await.unwrap().sequence, 1);
    assert_eq!(node.store.records().len(), SENDER_STREAMS);
    node.advance(TTL + TOLERANCE);
    for number in SENDER_STREAMS as u64..SENDER_STREAMS as u64 + 200 {
        node.reserve(&stream(number)).await.unwrap();
    }
    assert!(node.leases.streams() <= SENDER_STREAMS);
    assert_eq!(node.store.records().len(), node.leases.streams() + 1);
}

#[tokio::test]
async fn l11_2_a_bad_record_makes_its_own_stream_unavailable_and_takes_one_place() {
    let incarnation = Incarnation::new(START, 0);
    let mut records = durable(1, incarnation, 63);
    records.append(&mut durable(2, incarnation, 63));
    records.append(&mut durable(3, incarnation, 63));
    let key = |number: u64| bytes::Bytes::copy_from_slice(&stream(number).to_bytes());
    // 1 is torn, 2 lies under the key of 4, 3 is whole, and the engine cannot read 5.
    let torn = records.get_mut(&(Table::Sender, key(1))).unwrap();
    torn.truncate(100);
    let misfiled = records.remove(&(Table::Sender, key(2))).unwrap();
    records.insert((Table::Sender, key(4)), misfiled);
    let store = FaultStore::holding(records);
    let name = |number| RecordName::of(Table::Sender, &key(number));
    store.add_bad(Table::Sender, BadRecord { name: name(5), reason: "unreadable".into() });
    let node = Node::on(store, Arc::new(ManualClock::new(START)), 5).await;
    for number in [1, 4, 5] {
        let refused = Err(LeaseRefused::Unavailable { record: name(number) });
        assert_eq!(node.reserve(&stream(number)).await, refused);
    }
    assert_eq!(node.commit.health().unrestorable.len(), 3);
    assert_eq!(node.reserve(&stream(3)).await, Ok(Reservation { incarnation, sequence: 64 }));
    node.reserve(&stream(2)).await.unwrap();
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: 5 });
    assert_eq!(node.reserve(&stream(6)).await, full);
    assert!(node.store.records().contains_key(&(Table::Sender, key(1))), "it is kept as it is");
}

#[tokio::test]
async fn l11_2_without_what_was_removed_no_fresh_stream_is_opened_and_the_others_run() {
    let mut records = durable(1, Incarnation::new(START, 0), 63);
    records.insert((Table::Clock, bytes::Bytes::from_static(REMOVED_KEY)), bytes::Bytes::from_static(b"torn"));
    let node = Node::start(records, Arc::new(ManualClock::new(START)), SENDER_STREAMS).await;
    let record = RecordName::of(Table::Clock, REMOVED_KEY);
    assert_eq!(node.reserve(&stream(2)).await, Err(LeaseRefused::Unavailable { record }));
    assert_eq!(node.reserve(&stream(1)).await.unwrap().sequence, 64);
}

#[tokio::test]
async fn l9_7_a_budget_that_is_spent_refuses_the_reservation_and_changes_nothing() {
    let store = FaultStore::new();
    let config = CommitConfig::new().with_budget(Table::Sender, Budget { records: 1, bytes: 10_000 });
    let commit = GroupCommit::open(store.arc(), config).await.unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let leases = Leases::open(&commit, clock, LeaseConfig::default()).unwrap();
    leases.reserve(&stream(1), TTL).await.unwrap().unwrap();
    let refused = leases.reserve(&stream(2), TTL).await.unwrap().unwrap_err();
    assert!(matches!(refused, LeaseRefused::BudgetExhausted(over) if over.limit == Limit::Records(1)));
    assert_eq!(leases.streams(), 1);
    assert_eq!(leases.reserve(&stream(1), TTL).await.unwrap().unwrap().sequence, 1);
    assert!(matches!(
        Leases::open(&commit, Arc::new(ManualClock::new(START)), LeaseConfig::default()),
        Err(LeaseOpenError::Taken)
    ));
}

#[tokio::test]
async fn l8_4_no_random_bits_and_a_clock_out_of_range_fail_closed() {
    let commit = GroupCommit::open(FaultStore::new().arc(), CommitConfig::new()).await.unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let leases = Leases::open_with(&commit, clock.clone(), LeaseConfig::default(), || None).unwrap();
    assert_eq!(leases.reserve(&stream(1), TTL).await.unwrap(), Err(LeaseRefused::NoRandomness));
    let node = Node::start(Records::new(), clock, SENDER_STREAMS).await;
    node.clock.step_wall_to(1 << 48);
    assert_eq!(node.reserve(&stream(1)).await, Err(LeaseRefused::ClockOutOfRange { wall: 1 << 48 }));
    assert_eq!(node.leases.streams(), 0);
}

/// The same of class Application.
fn application(number: u64) -> StreamKey {
    StreamKey { class: crate::message::Class::Application, ..stream(number) }
}

#[tokio::test]
async fn l8_5_a_stream_that_sent_mail_is_retired_7_days_later_across_restarts_and_no_other_is() {
    let hold = crate::message::MAIL_HOLD_MS;
    let full = Err(LeaseRefused::StreamCapacityExceeded { bound: 1 });
    let node = Node::start(Records::new(), Arc::new(ManualClock::new(START)), 1).await;
    let first = node.reserve(&application(1)).await.unwrap();
    let begun = node.store.begun();
    let mail = node.leases.reserve_mail(&application(1), TTL).await.unwrap().unwrap();
    assert_eq!((mail.incarnation, mail.sequence), (first.incarnation, 1));
    assert_eq!(node.store.begun(), begun + 1, "its record says so, durably, before anything is signed");
    node.leases.reserve_mail(&application(1), TTL).await.unwrap().unwrap();
    node.reserve(&application(1)).await.unwrap();
    assert_eq!(node.store.begun(), begun + 1, "once");
    node.advance(TTL + TOLERANCE + hold - 1);
    assert_eq!(node.reserve(&application(2)).await, full, "one millisecond too early");
    let records = node.store.records();
    node.advance(1);
    assert!(node.reserve(&application(2)).await.is_ok());

    // After a restart it counts as used now, for the greatest time to live of any node.
    let node = Node::start(records, node.clock, 1).await;
    node.advance(crate::message::GREATEST_TTL_MS + TOLERANCE + hold - 1);
    assert_eq!(node.reserve(&application(2)).await, full);
    node.advance(1);
    assert!(node.reserve(&application(2)).await.is_ok());
    // The fresh one sent none.
    node.advance(TTL + TOLERANCE);
    assert!(node.reserve(&application(3)).await.is_ok());
}

#[tokio::test]
async fn l8_5_a_failed_batch_that_was_to_say_that_a_stream_sent_mail_leaves_it_to_the_next() {
    let node = Node::start(Records::new(), Arc::new(ManualClock::new(START)), 1).await;
    node.reserve(&application(1)).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert!(node.leases.reserve_mail(&application(1), TTL).await.is_err());
    let begun = node.store.begun();
    node.leases.reserve_mail(&application(1), TTL).await.unwrap().unwrap();
    assert_eq!(node.store.begun(), begun + 1);
    let node = node.restart().await;
    node.leases.reserve_mail(&application(1), TTL).await.unwrap().unwrap();
    assert_eq!(node.store.begun(), 1, "its lease is outrun, as after every restart");
    node.leases.reserve_mail(&application(1), TTL).await.unwrap().unwrap();
    assert_eq!(node.store.begun(), 1, "it is known to have sent mail");
}
