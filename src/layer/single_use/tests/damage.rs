//! Damaged records (law L11.2).

use super::*;
use crate::{
    layer::single_use::{
        Consumed,
        record::{BIRTH_KEY, CLOCK_KEY, STOP_KEY},
    },
    storage::{BadRecord, Key, RecordName, Table},
};

fn place(table: Table, key: &[u8]) -> (Table, Key) {
    (table, Key::copy_from_slice(key))
}

#[tokio::test]
async fn l11_2_a_damaged_mark_counts_as_consumed_and_every_other_one_works() {
    for (without, expected) in [(None, "record_damaged"), (Some(Guard::Damaged), "taken")] {
        let node = Node::without(without, |_| {}).await;
        let [damaged, other] = [nonce(1, T0 + 400), nonce(2, T0 + 400)];
        assert_eq!(node.single_use.reserve_until(&damaged).await, Ok(true));
        let mut records = node.store.records();
        let value = records.get_mut(&place(Table::Nonce, &damaged.id.0)).unwrap();
        let mut bytes = value.to_vec();
        bytes[40] ^= 1;
        *value = bytes.into();
        let node = node.reopened(records).await.unwrap();
        assert_eq!(code(node.single_use.reserve(&[damaged], &[]).await), expected);
        if without.is_none() {
            assert_eq!(node.state(&damaged), MarkState::Consumed);
            assert_eq!(node.single_use.reserve_until(&damaged).await, Ok(false));
            let refusal = node.single_use.reserve(&[damaged], &[]).await.unwrap_err();
            assert_eq!(refusal.consumed(), Consumed::Yes);
            assert_eq!(node.single_use.reserve_until(&other).await, Ok(true));
            let health = node.single_use.health();
            assert_eq!((health.nonces, health.damaged), (2, 1));
            assert_eq!(node.commit.health().unrestorable.len(), 1);
        }
    }
}

#[tokio::test]
async fn l11_2_a_record_that_the_engine_cannot_read_counts_as_consumed() {
    let node = Node::new().await;
    let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
    let dispatching = node.run(&op, &[mark]).await.unwrap().begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"done")).await.is_ok());
    let mut records = node.store.records();
    records.remove(&place(Table::Operation, &op.id.0));
    records.remove(&place(Table::Nonce, &mark.id.0));
    let store = FaultStore::holding(records);
    for (table, key) in [(Table::Operation, op.id.0), (Table::Nonce, mark.id.0)] {
        store.add_bad(table, BadRecord { name: RecordName::of(table, &key), reason: "torn".into() });
    }
    let (_commit, single_use) = open(&store, &node.clock, &node.config, node.guards).await.unwrap();
    assert_eq!(code(single_use.present(&op, &[nonce(2, T0 + 400)], &[]).await), "record_damaged");
    assert_eq!(single_use.reserve_until(&mark).await, Ok(false));
    node.clock.step_wall_to((T0 + 400) as u64 * 1_000);
    let refusal = single_use.present(&op, &[], &[]).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("deadline_passed", Consumed::Yes));
}

#[tokio::test]
async fn l11_2_a_misfiled_record_consumes_what_it_may_stand_for() {
    let node = Node::new().await;
    let [filed, under, other] = [nonce(1, T0 + 400), nonce(2, T0 + 400), nonce(3, T0 + 400)];
    assert_eq!(node.single_use.reserve_until(&filed).await, Ok(true));
    let mut records = node.store.records();
    let value = records.remove(&place(Table::Nonce, &filed.id.0)).unwrap();
    records.insert(place(Table::Nonce, &under.id.0), value.clone());
    // Under a key that no mark has, it still says whose it is.
    records.insert(place(Table::Nonce, b"short"), value);
    let node = node.reopened(records).await.unwrap();
    assert_eq!([filed, under].map(|mark| node.state(&mark)), [MarkState::Consumed; 2]);
    assert_eq!(node.single_use.reserve_until(&other).await, Ok(true));
}

#[tokio::test]
async fn l11_2_damage_that_cannot_be_named_closes_its_table_and_no_other() {
    for (without, expected) in [(None, "unavailable"), (Some(Guard::Closed), "taken")] {
        let node = Node::without(without, |_| {}).await;
        let mut records = node.store.records();
        records.insert(place(Table::Nonce, b"short"), Bytes::from_static(b"no record"));
        let node = node.reopened(records).await.unwrap();
        let mark = nonce(1, T0 + 400);
        let refused = node.single_use.reserve(&[mark], &[]).await;
        assert_eq!(refused.as_ref().err().map(Refusal::consumed), without.map_or(Some(Consumed::Unknown), |_| None));
        assert_eq!(code(refused), expected);
        if without.is_none() {
            assert_eq!(code(node.single_use.reserve_until(&mark).await), "unavailable");
            assert_eq!(node.state(&mark), MarkState::Consumed);
            assert_eq!(code(node.run(&operation(1, 1, T0 + 400), &[mark]).await), "unavailable");
            assert!(node.run(&operation(1, 1, T0 + 400), &[approval(1, T0 + 400, T0 + 400)]).await.is_ok());
            assert!(node.single_use.recover().await.failed.is_none());
        }
    }
}

#[tokio::test]
async fn l11_2_a_damaged_clock_or_birth_refuses_the_store_and_a_damaged_stop_is_a_stop() {
    for (key, refused) in [(CLOCK_KEY, true), (BIRTH_KEY, true), (STOP_KEY, false)] {
        let node = Node::new().await;
        node.single_use.stop().await.unwrap();
        node.single_use.resume().await.unwrap();
        let mut records = node.store.records();
        records.insert(place(Table::Clock, key), Bytes::from_static(b"damaged"));
        match node.reopened(records).await {
            Err(error) => {
                assert!(refused && matches!(error, SingleUseOpenError::Damaged { .. }), "{error}");
            }
            Ok(node) => {
                assert!(!refused && node.single_use.stopped());
                node.single_use.resume().await.unwrap();
                assert!(!node.crash().await.single_use.stopped());
            }
        }
    }
}

#[tokio::test]
async fn l11_4_a_clock_that_went_missing_beside_what_it_stands_for_refuses_the_store() {
    let node = Node::new().await;
    assert_eq!(node.single_use.reserve_until(&nonce(1, T0 + 400)).await, Ok(true));
    let mut records = node.store.records();
    records.remove(&place(Table::Clock, CLOCK_KEY));
    let error = node.reopened(records).await.err().unwrap();
    assert!(error.to_string().contains("it is missing"), "{error}");
}

#[tokio::test]
async fn l12_2_where_a_batch_was_torn_the_later_of_an_operation_and_its_marks_counts() {
    for operation_lags in [true, false] {
        let node = Node::new().await;
        let (op, mark) = (operation(1, 1, T0 + 400), nonce(1, T0 + 400));
        let reservation = node.run(&op, &[mark]).await.unwrap();
        let reserved = node.store.records();
        let dispatching = reservation.begin(&[]).await.unwrap();
        let mut records = node.store.records();
        let lags = match operation_lags {
            true => place(Table::Operation, &op.id.0),
            false => place(Table::Nonce, &mark.id.0),
        };
        records.insert(lags.clone(), reserved[&lags].clone());
        let node = node.reopened(records).await.unwrap();
        drop(dispatching);
        assert_eq!(node.single_use.recover().await.released, 0);
        assert_eq!(code(node.run(&op, &[nonce(2, T0 + 400)]).await), "outcome_unknown");
        assert_eq!(node.state(&mark), MarkState::Dispatching);
        assert_eq!(code(node.single_use.reserve(&[mark], &[]).await), "replayed");
    }
}
