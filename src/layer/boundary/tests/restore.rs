//! What a restart finds, and what of it is bad.

use super::*;
use crate::{
    layer::{
        boundary::{STREAM_RECORD_MAX, STREAMS_MAX, record::StreamRecord},
        charging::{Bound, Introducer},
        window::{WINDOW_SLOTS, WindowRefusal, observe},
    },
    message::GREATEST_TTL_MS,
    storage::{
        BadRecord, Key, RecordName, Table,
        seal::{SEAL_LEN, seal},
    },
};

/// A new stream of [`Node::fresh`] meets the bound of all streams. After a restart its links share the cleanest slot,
/// which is not the one that holds the streams of before.
fn store_full(streams: usize) -> BoundaryRefusal {
    let (introducer, bound) = (Introducer::Slot(1), Bound::Store { streams });
    BoundaryRefusal::StreamCapacityExceeded { introducer, bound }
}

fn record_key(stream: &StreamKey) -> Key {
    Key::copy_from_slice(&stream.to_bytes())
}

#[tokio::test]
async fn l5_5_what_was_admitted_is_a_replay_after_a_restart() {
    let node = Node::new(config()).await;
    let requests: Vec<_> = (1..=40).map(|sequence| node.fresh(stream(1, Class::E2e), sequence)).collect();
    for request in &requests {
        assert!(node.answer(*request).await.is_ok());
    }
    let node = node.restart(config()).await.unwrap();
    for request in requests {
        let expected = match request.sequence {
            ..=8 => WindowRefusal::Stale { incarnation: request.incarnation, lowest: 9 },
            _ => WindowRefusal::Replay,
        };
        assert_eq!(node.answer(request).await, Err(expected.into()));
    }
}

#[test]
fn l9_1_a_stream_record_is_read_back_whole_under_its_own_key_or_not_at_all() {
    let (key, other) = (stream(1, Class::E2e), stream(2, Class::E2e));
    let mut window = None;
    for sequence in 0..WINDOW_SLOTS {
        let digest = TransactionDigest([u8::try_from(sequence).unwrap(); 32]);
        window = Some(observe(window.as_ref(), Incarnation(5), sequence, digest).unwrap().1);
    }
    let record = StreamRecord { introducer: Introducer::Slot(9), expiry: 77, admitted: 66, window: window.unwrap() };
    for introducer in [Introducer::Inbox, Introducer::Own, Introducer::Slot(0), Introducer::Slot(u16::MAX)] {
        let record = StreamRecord { introducer, ..record.clone() };
        assert_eq!(StreamRecord::decode(&key.to_bytes(), &record.encode(&key)), Ok((key, record)));
    }
    let bytes = record.encode(&key);
    for introducer in [[3, 0, 0], [1, 0, 1], [2, 1, 0], [255, 0, 0]] {
        let mut body = bytes::BytesMut::from(&bytes[..bytes.len() - SEAL_LEN]);
        body[StreamKey::LEN..][..3].copy_from_slice(&introducer);
        let sealed = seal("admit-one receiver record 1", body);
        assert_eq!(StreamRecord::decode(&key.to_bytes(), &sealed), Err("it names no introducer"));
    }
    assert_eq!(bytes.len(), STREAM_RECORD_MAX);
    assert_eq!(StreamRecord::decode(&key.to_bytes(), &bytes), Ok((key, record)));
    assert!(StreamRecord::decode(&other.to_bytes(), &bytes).is_err());
    for place in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[place] ^= 4;
        assert!(StreamRecord::decode(&key.to_bytes(), &damaged).is_err(), "byte {place}");
        assert!(StreamRecord::decode(&key.to_bytes(), &bytes[..place]).is_err(), "cut at {place}");
    }
}

#[tokio::test]
async fn l11_2_a_bad_record_makes_its_own_stream_unavailable_and_takes_one_place() {
    let node = Node::new(config()).await;
    let streams = [1, 2, 3, 4].map(|origin| stream(origin, Class::E2e));
    for stream in streams {
        assert!(node.answer(node.fresh(stream, 1)).await.is_ok());
    }
    let mut records = node.store.records();
    // One is torn, one lies under another's key, and one the engine itself cannot read.
    let places = streams.map(|stream| (Table::Receiver, record_key(&stream)));
    let torn = records[&places[0]].slice(..100);
    records.insert(places[0].clone(), torn);
    let misfiled = records[&places[3]].clone();
    records.insert(places[1].clone(), misfiled);
    records.remove(&places[2]);
    let store = FaultStore::holding(records.clone());
    let unreadable = RecordName::of(Table::Receiver, &places[2].1);
    store.add_bad(Table::Receiver, BadRecord { name: unreadable, reason: "a bad sector".into() });

    let bound = AdmissionConfig { streams: 4, ..config() };
    let node = Node::open(store, node.clock.clone(), bound).await.unwrap();
    for key in &streams[..3] {
        let record = RecordName::of(Table::Receiver, &key.to_bytes());
        let refusal = BoundaryRefusal::StreamUnavailable { key: *key, record };
        assert_eq!(node.answer(node.fresh(*key, 2)).await, Err(refusal));
    }
    assert_eq!(node.answer(node.fresh(streams[3], 2)).await, Ok(Verdict::Advance));
    let full = store_full(4);
    assert_eq!(node.answer(node.fresh(stream(5, Class::E2e), 1)).await, Err(full));
    // They are kept as they are, and named to the operator.
    assert_eq!(node.store.records()[&places[0]], records[&places[0]]);
    assert_eq!(node.commit.health().unrestorable.len(), 3);
}

#[tokio::test]
async fn l9_9_a_birth_or_floor_record_that_cannot_be_restored_refuses_the_store() {
    let node = Node::new(config()).await;
    assert!(node.answer(node.fresh(stream(1, Class::E2e), 1)).await.is_ok());
    node.pass(TTL + SIGMA);
    assert!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await.is_ok());
    for what in ["birth", "floor"] {
        let mut records = node.store.records();
        let place = (Table::Clock, Key::from_static(what.as_bytes()));
        let cut = records[&place].slice(1..);
        records.insert(place.clone(), cut);
        let opened = Node::open(FaultStore::holding(records.clone()), node.clock.clone(), config()).await;
        assert!(matches!(opened.err(), Some(AdmissionOpenError::Damaged { what: named, .. }) if named == what));

        records.remove(&place);
        let store = FaultStore::holding(records);
        let name = RecordName::of(Table::Clock, &place.1);
        store.add_bad(Table::Clock, BadRecord { name, reason: "missing though marked present".into() });
        let opened = Node::open(store, node.clock.clone(), config()).await;
        assert!(matches!(opened.err(), Some(AdmissionOpenError::Damaged { what: named, .. }) if named == what));
    }
}

#[tokio::test]
async fn l9_7_a_store_over_a_lowered_bound_is_refused() {
    let node = Node::new(config()).await;
    for origin in [1, 2] {
        assert!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await.is_ok());
    }
    let lowered = node.restart(AdmissionConfig { streams: 1, ..config() }).await;
    assert_eq!(lowered.err(), Some(AdmissionOpenError::OverCapacity { held: 2, bound: 1 }));
}

#[tokio::test]
async fn one_boundary_serves_a_store() {
    let node = Node::new(config()).await;
    let second = Admission::open(&node.commit, node.clock.clone(), config()).await;
    assert_eq!(second.err(), Some(AdmissionOpenError::Taken));
}

/// Bad records of another table than the receiver's.
fn bad_senders(store: &FaultStore, count: u8) {
    for number in 0..count {
        let name = RecordName::of(Table::Sender, &[number]);
        store.add_bad(Table::Sender, BadRecord { name, reason: "a bad sector".into() });
    }
}

#[tokio::test]
async fn l11_2_bad_records_of_another_table_never_keep_a_full_receiver_from_opening() {
    let bound = AdmissionConfig { streams: 2, ..config() };
    let node = Node::new(bound).await;
    for origin in [1, 2] {
        assert!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await.is_ok());
    }
    let store = FaultStore::holding(node.store.records());
    bad_senders(&store, 1);
    let node = Node::open(store, node.clock.clone(), bound).await.unwrap();
    for origin in [1, 2] {
        let request = node.fresh(stream(origin, Class::E2e), 2);
        assert_eq!(node.answer(request).await, Ok(Verdict::Advance), "it runs as if the bad record were not there");
    }
    let full = store_full(2);
    assert_eq!(node.answer(node.fresh(stream(3, Class::E2e), 1)).await, Err(full));
}

#[tokio::test]
async fn l10_5_spent_streams_make_room_for_a_new_one_however_many_places_bad_records_take() {
    let streams = 20;
    let bound = AdmissionConfig { streams, ..config() };
    let node = Node::new(bound).await;
    for origin in 1..=20 {
        assert!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await.is_ok());
    }
    let store = FaultStore::holding(node.store.records());
    bad_senders(&store, 12);
    let node = Node::open(store, node.clock.clone(), bound).await.unwrap();
    node.pass(TTL + SIGMA);
    // Each request lets a few streams pass from waiting to waited; nobody but new streams asks.
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(node.answer(node.fresh(stream(100, Class::E2e), 1)).await);
    }
    assert!(answers.contains(&Ok(Verdict::First)), "all of {streams} streams are spent, and still: {answers:?}");
    assert!(node.admission.health().streams + 12 <= streams);
}

#[tokio::test]
async fn an_open_that_was_refused_may_be_tried_again_with_another_configuration() {
    let node = Node::new(config()).await;
    for origin in [1, 2] {
        assert!(node.answer(node.fresh(stream(origin, Class::E2e), 1)).await.is_ok());
    }
    let replayed = node.fresh(stream(1, Class::E2e), 2);
    assert!(node.answer(replayed).await.is_ok());
    let store = FaultStore::holding(node.store.records());
    let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
    for refused in [
        AdmissionConfig { streams: STREAMS_MAX + 1, ..config() },
        AdmissionConfig { greatest_ttl: GREATEST_TTL_MS + 1, ..config() },
        AdmissionConfig { streams: 1, ..config() },
    ] {
        let error = Admission::open(&commit, node.clock.clone(), refused).await.unwrap_err();
        assert_ne!(error, AdmissionOpenError::Taken);
    }
    let admission = Admission::open(&commit, node.clock.clone(), config()).await.unwrap();
    assert_eq!(admission.admit(replayed).await.unwrap(), Err(WindowRefusal::Replay.into()));
}
