//! What every engine must do, whatever it is made of.

use std::{collections::BTreeMap, sync::Arc};

use admit_one::storage::{BATCH_MAX, Batch, CommitError, KEY_MAX, RecordName, Store, Table, VALUE_MAX, Write};
use bytes::Bytes;

/// A place for one store of an engine.
pub trait Engine {
    /// Whether its records survive being closed.
    const DURABLE: bool;
    /// A place without records.
    fn new() -> Self;
    /// Opens the store there. The one opened before was dropped.
    fn open(&mut self) -> impl Future<Output = Arc<dyn Store>>;
}

/// One test for each function of this module, for one engine.
macro_rules! suite {
    ($engine:ty) => {
        $crate::conformance::suite!($engine:
            puts_overwrites_and_removals_survive_a_reopen,
            a_scan_shows_its_own_table_alone,
            an_empty_batch_changes_nothing,
            keys_and_values_of_every_length_up_to_their_bounds_survive,
            what_is_over_a_bound_is_refused_and_the_store_goes_on,
            l9_2_a_batch_is_seen_whole_after_a_reopen,
            many_records_and_many_batches_survive,
            l9_4_reopening_in_place_keeps_every_record,
            l9_3_a_commit_whose_caller_is_gone_breaks_nothing,
            l9_6_durability_is_told_truly,
            l11_5_a_record_is_discarded_by_its_name_alone
        );
    };
    ($engine:ty: $($name:ident),*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::conformance::$name::<$engine>().await;
            }
        )*
    };
}
pub(crate) use suite;

type Model = BTreeMap<(Table, Bytes), Bytes>;

fn put(table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Write {
    Write { table, key: key.into(), value: Some(value.into()) }
}

fn remove(table: Table, key: impl Into<Bytes>) -> Write {
    Write { table, key: key.into(), value: None }
}

async fn commit(store: &Arc<dyn Store>, writes: Vec<Write>) {
    store.commit(Batch { writes }).await.expect("commits");
}

async fn all(store: &Arc<dyn Store>) -> Model {
    let mut model = Model::new();
    for table in Table::ALL {
        let scan = store.scan(table).await.expect("scans");
        assert_eq!(scan.bad, []);
        for (key, value) in scan.records {
            assert_eq!(model.insert((table, key), value), None, "a record shows twice");
        }
    }
    model
}

fn model<const N: usize>(records: [(Table, &'static str, &'static str); N]) -> Model {
    records.map(|(table, key, value)| ((table, key.into()), value.into())).into()
}

pub async fn puts_overwrites_and_removals_survive_a_reopen<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    assert_eq!(all(&store).await, Model::new());
    commit(&store, vec![put(Table::Sender, "a", "1"), put(Table::Sender, "b", "1")]).await;
    commit(&store, vec![put(Table::Sender, "a", "2"), remove(Table::Sender, "b"), remove(Table::Sender, "c")]).await;
    commit(&store, vec![put(Table::Sender, "b", "3"), put(Table::Sender, "empty", "")]).await;
    let expected = model([(Table::Sender, "a", "2"), (Table::Sender, "b", "3"), (Table::Sender, "empty", "")]);
    assert_eq!(all(&store).await, expected);
    drop(store);
    let store = engine.open().await;
    assert_eq!(all(&store).await, expected);
    commit(&store, vec![remove(Table::Sender, "a"), remove(Table::Sender, "empty")]).await;
    drop(store);
    assert_eq!(all(&engine.open().await).await, model([(Table::Sender, "b", "3")]));
}

pub async fn a_scan_shows_its_own_table_alone<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    let writes = vec![put(Table::Sender, "k", "s"), put(Table::Receiver, "k", "r"), put(Table::Clock, "k", "c")];
    commit(&store, writes).await;
    commit(&store, vec![remove(Table::Receiver, "k")]).await;
    let check = async |store: &Arc<dyn Store>| {
        for (table, values) in [(Table::Sender, vec!["s"]), (Table::Receiver, vec![]), (Table::Clock, vec!["c"])] {
            let records = store.scan(table).await.expect("scans").records;
            assert_eq!(records.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), values, "{table:?}");
        }
    };
    check(&store).await;
    drop(store);
    check(&engine.open().await).await;
}

pub async fn an_empty_batch_changes_nothing<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    commit(&store, vec![]).await;
    commit(&store, vec![put(Table::Clock, "birth", "1")]).await;
    commit(&store, vec![]).await;
    drop(store);
    assert_eq!(all(&engine.open().await).await, model([(Table::Clock, "birth", "1")]));
}

pub async fn keys_and_values_of_every_length_up_to_their_bounds_survive<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    let mut expected = Model::new();
    for length in [0, 1, 63, 64, 65, KEY_MAX - 1, KEY_MAX] {
        let key = Bytes::from(vec![0xFF; length]);
        expected.insert((Table::Receiver, key), vec![0; VALUE_MAX - length].into());
    }
    for length in [0, 1, 479, 480, 481, 511, 512, 513, VALUE_MAX - 1, VALUE_MAX] {
        let value: Vec<u8> = (0..length).map(|byte| (byte % 251) as u8).collect();
        expected.insert((Table::Sender, length.to_string().into()), value.into());
    }
    let writes = expected.iter().map(|((table, key), value)| put(*table, key.clone(), value.clone())).collect();
    commit(&store, writes).await;
    assert_eq!(all(&store).await, expected);
    drop(store);
    assert_eq!(all(&engine.open().await).await, expected);
}

pub async fn what_is_over_a_bound_is_refused_and_the_store_goes_on<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    let good = put(Table::Sender, "good", "1");
    let key = put(Table::Sender, vec![0; KEY_MAX + 1], "1");
    let value = put(Table::Sender, "k", vec![0; VALUE_MAX + 1]);
    let shared = Bytes::from(vec![0; VALUE_MAX]);
    let many = (0..=BATCH_MAX / VALUE_MAX).map(|key| put(Table::Sender, key.to_string(), shared.clone()));
    for writes in [vec![good.clone(), key], vec![good.clone(), value], many.collect()] {
        let error = store.commit(Batch { writes }).await.expect_err("over a bound");
        assert!(matches!(error, CommitError::OverBound { .. }), "{error}");
    }
    assert_eq!(all(&store).await, Model::new());
    commit(&store, vec![good]).await;
    drop(store);
    assert_eq!(all(&engine.open().await).await, model([(Table::Sender, "good", "1")]));
}

pub async fn l9_2_a_batch_is_seen_whole_after_a_reopen<E: Engine>() {
    let mut engine = E::new();
    let mut store = engine.open().await;
    for round in 0..6_u8 {
        // One batch, over every table, larger than a page and a segment's smallest frame.
        let writes: Vec<_> = (0..300_u32)
            .map(|key| put(Table::ALL[key as usize % 3], key.to_be_bytes().to_vec(), vec![round; 500]))
            .collect();
        commit(&store, writes).await;
        drop(store);
        store = engine.open().await;
        let found = all(&store).await;
        assert_eq!(found.len(), 300);
        assert!(found.values().all(|value| *value == vec![round; 500]), "round {round}");
    }
}

pub async fn many_records_and_many_batches_survive<E: Engine>() {
    let mut engine = E::new();
    let mut store = engine.open().await;
    let mut expected = Model::new();
    for batch in 0..400_u32 {
        let mut writes = Vec::new();
        for slot in 0..40_u32 {
            let number = batch.wrapping_mul(7_919).wrapping_add(slot.wrapping_mul(104_729)) % 5_000;
            let (table, key) = (Table::ALL[number as usize % 3], Bytes::from(number.to_be_bytes().to_vec()));
            if writes.iter().any(|write: &Write| write.table == table && write.key == key) {
                continue;
            }
            if number % 11 == batch % 11 {
                expected.remove(&(table, key.clone()));
                writes.push(remove(table, key));
            } else {
                let value = Bytes::from(vec![batch as u8; 100 + number as usize % 900]);
                expected.insert((table, key.clone()), value.clone());
                writes.push(put(table, key, value));
            }
        }
        commit(&store, writes).await;
        if batch % 150 == 149 {
            drop(store);
            store = engine.open().await;
        }
    }
    assert_eq!(all(&store).await, expected);
    drop(store);
    assert_eq!(all(&engine.open().await).await, expected);
}

pub async fn l9_4_reopening_in_place_keeps_every_record<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    commit(&store, vec![put(Table::Sender, "a", "1"), put(Table::Clock, "b", "2")]).await;
    store.reopen().await.expect("reopens");
    assert_eq!(all(&store).await, model([(Table::Sender, "a", "1"), (Table::Clock, "b", "2")]));
    commit(&store, vec![put(Table::Sender, "a", "3")]).await;
    store.reopen().await.expect("reopens");
    drop(store);
    assert_eq!(all(&engine.open().await).await, model([(Table::Sender, "a", "3"), (Table::Clock, "b", "2")]));
}

pub async fn l9_3_a_commit_whose_caller_is_gone_breaks_nothing<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    for round in 0..50 {
        let value = round.to_string();
        let mut abandoned = store.commit(Batch { writes: vec![put(Table::Sender, "abandoned", value.clone())] });
        // Polled once: it may be on its way. Then dropped.
        let waker = std::task::Waker::noop();
        let _ = abandoned.as_mut().poll(&mut std::task::Context::from_waker(waker));
        drop(abandoned);
        commit(&store, vec![put(Table::Sender, "kept", value.clone())]).await;
        assert_eq!(all(&store).await[&(Table::Sender, "kept".into())], value);
    }
    drop(store);
    let found = all(&engine.open().await).await;
    assert_eq!(found, model([(Table::Sender, "abandoned", "49"), (Table::Sender, "kept", "49")]));
}

pub async fn l9_6_durability_is_told_truly<E: Engine>() {
    let mut engine = E::new();
    assert_eq!(engine.open().await.durable(), E::DURABLE);
    // What an operator would be told is bad has one name in every engine.
    let name = RecordName::of(Table::Clock, b"birth").to_string();
    assert!(name.starts_with("clock-") && name.len() == 70, "{name}");
}

pub async fn l11_5_a_record_is_discarded_by_its_name_alone<E: Engine>() {
    let mut engine = E::new();
    let store = engine.open().await;
    commit(&store, vec![put(Table::Sender, "a", "1"), put(Table::Receiver, "a", "2"), put(Table::Sender, "b", "3")])
        .await;
    let name: RecordName = RecordName::of(Table::Sender, b"a").to_string().parse().expect("what it displays as");
    assert!(store.discard(name).await.expect("discards"));
    assert!(!store.discard(name).await.expect("is asked again"));
    assert!(!store.discard(RecordName::of(Table::Clock, b"a")).await.expect("is asked"));
    let expected = model([(Table::Receiver, "a", "2"), (Table::Sender, "b", "3")]);
    assert_eq!(all(&store).await, expected);
    store.reopen().await.expect("reopens");
    drop(store);
    let store = engine.open().await;
    assert_eq!(all(&store).await, expected);
    // Its name is free again.
    commit(&store, vec![put(Table::Sender, "a", "4")]).await;
    drop(store);
    assert_eq!(all(&engine.open().await).await.len(), 3);
}
