//! The engine on the directory in memory: its steps, whatever operation fails, crashes, and each kind of damage.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{FilesConfig, names, open::open, records::Records};
use crate::storage::{
    Batch, CommitError, OpenError, RecordName, Table, Write,
    directory::{
        enumerate::Medium,
        simulated::{Fail, Image, Model, Operation, Random, Simulated, apply},
    },
    thread::Blocking,
};

fn start(directory: &Simulated) -> Result<Records<Simulated>, OpenError> {
    open(directory.clone(), &FilesConfig::default())
}

fn held(records: &mut Records<Simulated>) -> (Model, BTreeSet<RecordName>) {
    let (mut model, mut bad) = (Model::new(), BTreeSet::new());
    for table in Table::ALL {
        let scan = records.scan(table).expect("open");
        model.extend(scan.records.into_iter().map(|(key, value)| ((table, key.to_vec()), value.to_vec())));
        bad.extend(scan.bad.into_iter().map(|bad| bad.name));
    }
    (model, bad)
}

fn put(table: Table, key: &'static str, value: &'static str) -> Write {
    Write { table, key: key.into(), value: Some(value.into()) }
}

fn remove(table: Table, key: &'static str) -> Write {
    Write { table, key: key.into(), value: None }
}

/// Each record is at its value of before or of after the batch.
fn whole_at_old_or_new(found: &Model, before: &Model, after: &Model, context: &str) {
    for key in before.keys().chain(after.keys()).chain(found.keys()) {
        let now = found.get(key);
        assert!(now == before.get(key) || now == after.get(key), "{context}: {key:?} is neither old nor new");
    }
}

#[test]
fn l9_2_a_batch_lands_in_steps_floors_first_and_removals_last() {
    let directory = Simulated::default();
    let mut records = start(&directory).expect("opens");
    let first = vec![put(Table::Receiver, "old", "1"), put(Table::Nonce, "mark", "reserved")];
    records.commit(Batch { writes: first }).expect("no fault");
    let begun = directory.done();
    let writes = vec![
        remove(Table::Receiver, "old"),
        put(Table::Nonce, "mark", "dispatching"),
        put(Table::Sender, "new", "1"),
        put(Table::Operation, "operation", "dispatching"),
        put(Table::Clock, "floor", "1"),
    ];
    records.commit(Batch { writes }).expect("no fault");
    let name = |table, key: &str| RecordName::of(table, key.as_bytes());
    let mut steps = vec![Vec::new()];
    for operation in directory.operations().split_off(begun) {
        match operation {
            Operation::FlushNames => steps.push(Vec::new()),
            Operation::Rename { to, .. } => steps.last_mut().expect("one").push(to),
            Operation::Create { name, .. } if !name.ends_with(".tmp") => steps.last_mut().expect("one").push(name),
            Operation::Remove { name } => steps.last_mut().expect("one").push(format!("- {name}")),
            _ => {}
        }
    }
    let mut made = vec![
        names::marker(&name(Table::Sender, "new")),
        names::marker(&name(Table::Operation, "operation")),
        names::marker(&name(Table::Clock, "floor")),
    ];
    steps[3].sort();
    made.sort();
    assert_eq!(
        steps,
        [
            vec![names::record(&name(Table::Clock, "floor"))],
            vec![names::record(&name(Table::Operation, "operation"))],
            vec![names::record(&name(Table::Nonce, "mark")), names::record(&name(Table::Sender, "new"))],
            made,
            vec![format!("- {}", names::marker(&name(Table::Receiver, "old")))],
            vec![format!("- {}", names::record(&name(Table::Receiver, "old")))],
            vec![],
        ]
    );
    // A batch that only writes over what is there flushes the directory once.
    let begun = directory.done();
    records.commit(Batch { writes: vec![put(Table::Sender, "new", "2")] }).expect("no fault");
    let flushes = directory.operations().split_off(begun).into_iter().filter(|o| matches!(o, Operation::FlushNames));
    assert_eq!(flushes.count(), 1);
}

#[test]
fn l9_4_whatever_single_operation_fails_the_store_closes_and_a_reopen_brings_back_what_was_released() {
    for seed in 0..6 {
        for at in 0.. {
            let directory = Simulated::default();
            let mut records = start(&directory).expect("opens");
            let mut random = Random(seed);
            let mut model = Model::new();
            for _ in 0..4 {
                let batch = random.batch(5, 4);
                apply(&mut model, &batch);
                records.commit(batch).expect("no fault");
            }
            let begun = directory.attempts();
            directory.fail(Fail::At(begun + at));
            let batch = random.batch(5, 4);
            let mut after = model.clone();
            apply(&mut after, &batch);
            let context = format!("seed {seed}, operation {at}");
            let Err(error) = records.commit(batch) else {
                assert!(directory.attempts() <= begun + at, "{context}: a failure was swallowed");
                assert!(at > 4, "{context}: nothing was tried");
                break;
            };
            assert!(matches!(error, CommitError::Io { .. }) && error.to_string().contains("reopen"), "{error}");
            assert!(matches!(records.commit(Batch::default()), Err(CommitError::Closed { .. })));
            assert!(records.scan(Table::Sender).is_err());
            // A process that is started anew finds each record old or new.
            let mut anew = start(&Simulated::holding(&directory.image())).expect("opens");
            let (found, bad) = held(&mut anew);
            assert_eq!(bad, BTreeSet::new(), "{context}");
            whole_at_old_or_new(&found, &model, &after, &context);
            // A reopen finds exactly what was released, and so does whoever opens after it.
            records.reopen().expect("the fault is over");
            assert_eq!(held(&mut records), (model.clone(), BTreeSet::new()), "{context}");
            let mut anew = start(&Simulated::holding(&directory.image())).expect("opens");
            assert_eq!(held(&mut anew), (model, BTreeSet::new()), "{context}");
        }
    }
}

#[test]
fn l9_4_a_reopen_that_fails_leaves_the_store_closed_until_one_succeeds() {
    let directory = Simulated::default();
    let mut records = start(&directory).expect("opens");
    records.commit(Batch { writes: vec![put(Table::Sender, "a", "1")] }).expect("no fault");
    directory.fail(Fail::Always);
    records.commit(Batch { writes: vec![put(Table::Sender, "a", "2")] }).expect_err("everything fails");
    records.reopen().expect_err("everything fails");
    assert!(records.discard(RecordName::of(Table::Sender, b"a")).is_err());
    directory.fail(Fail::Never);
    records.reopen().expect("repaired");
    assert_eq!(held(&mut records).0[&(Table::Sender, b"a".to_vec())], b"1");
}

#[test]
fn l9_2_a_crash_at_any_operation_leaves_each_record_old_or_new_and_no_removal_before_its_floor() {
    let mut tried = 0_u64;
    for seed in 0..10 {
        let directory = Simulated::default();
        let mut records = start(&directory).expect("opens");
        let mut random = Random(seed);
        let (mut before, mut after) = (Model::new(), Model::new());
        let mut medium = Medium::default();
        let mut seen = 0;
        for round in 0..12_u8 {
            before = after.clone();
            let mut batch = random.batch(4, 4);
            // A floor that counts the rounds stands for whatever the batch removes.
            batch.writes.retain(|write| write.table != Table::Clock);
            batch.writes.push(Write {
                table: Table::Clock,
                key: "floor".into(),
                value: Some(Bytes::from(vec![round])),
            });
            let removes: Vec<_> = batch.writes.iter().filter(|write| write.value.is_none()).cloned().collect();
            apply(&mut after, &batch);
            records.commit(batch).expect("no fault");
            let operations = directory.operations();
            for operation in &operations[seen..] {
                medium.apply(operation);
                for crash in medium.states(16, 8, tried).crashes {
                    tried += 1;
                    let context = format!("seed {seed}, round {round}, {operation:?}, {crash:?}");
                    let mut found = start(&Simulated::holding(&medium.image(&crash))).expect(&context);
                    let (model, bad) = held(&mut found);
                    assert_eq!(bad, BTreeSet::new(), "{context}");
                    whole_at_old_or_new(&model, &before, &after, &context);
                    let gone = |write: &Write| {
                        let key = (write.table, write.key.to_vec());
                        before.contains_key(&key) && !model.contains_key(&key)
                    };
                    if removes.iter().any(gone) {
                        assert_eq!(model[&(Table::Clock, b"floor".to_vec())], [round], "{context}: removed too early");
                    }
                }
            }
            seen = operations.len();
            // What was released is there after any crash.
            for crash in medium.states(16, 8, tried).crashes {
                let mut found = start(&Simulated::holding(&medium.image(&crash))).expect("opens");
                assert_eq!(held(&mut found).0, after, "seed {seed}, round {round}, released, {crash:?}");
            }
        }
        assert!(before != after);
    }
    println!("{tried} states of crashes");
}

/// A store of a few records, and one of them.
fn store() -> (Image, Model, RecordName) {
    let directory = Simulated::default();
    let mut records = start(&directory).expect("opens");
    let writes: Vec<_> = ["a", "b", "c"].into_iter().map(|key| put(Table::Receiver, key, "value")).collect();
    let mut model = Model::new();
    let batch = Batch { writes };
    apply(&mut model, &batch);
    records.commit(batch).expect("no fault");
    (directory.image(), model, RecordName::of(Table::Receiver, b"b"))
}

#[test]
fn l11_1_each_way_in_which_a_record_is_bad_is_that_records_alone_until_it_is_written_or_discarded() {
    let (image, model, name) = store();
    let file = names::record(&name);
    let other = names::record(&RecordName::of(Table::Receiver, b"c"));
    type Damage = fn(&mut Image, &str, &str);
    let damages: [(&str, Damage); 7] = [
        ("torn", |image, file, _| image.get_mut(file).expect("there").truncate(20)),
        ("emptied", |image, file, _| image.get_mut(file).expect("there").clear()),
        ("one bit", |image, file, _| image.get_mut(file).expect("there")[13] ^= 1),
        ("longer", |image, file, _| image.get_mut(file).expect("there").push(0)),
        ("misfiled", |image, file, other| drop(image.insert(file.to_owned(), image[other].clone()))),
        ("missing", |image, file, _| drop(image.remove(file))),
        ("of another letter case", |image, file, _| {
            let bytes = image.remove(file).expect("there");
            image.insert(file.to_uppercase(), bytes);
        }),
    ];
    for (what, damage) in damages {
        let mut image = image.clone();
        damage(&mut image, &file, &other);
        let directory = Simulated::holding(&image);
        let mut records = start(&directory).expect("one record is damaged");
        let mut others = model.clone();
        others.remove(&(Table::Receiver, b"b".to_vec()));
        assert_eq!(held(&mut records), (others.clone(), [name].into()), "{what}");
        // It stays, whatever else is done.
        records.commit(Batch { writes: vec![put(Table::Clock, "floor", "1")] }).expect("no fault");
        others.insert((Table::Clock, b"floor".to_vec()), b"1".to_vec());
        let mut again = start(&Simulated::holding(&directory.image())).expect("opens");
        assert_eq!(held(&mut again), (others.clone(), [name].into()), "{what}");
        assert!(again.discard(name).expect("no fault"), "{what}");
        assert_eq!(held(&mut again), (others.clone(), BTreeSet::new()), "{what}");
        assert!(records.discard(name).expect("no fault"), "{what}");
        let mut after = start(&Simulated::holding(&directory.image())).expect("opens");
        assert_eq!(held(&mut after), (others, BTreeSet::new()), "{what}: came back");
    }
}

#[test]
fn l11_1_a_bad_record_that_is_written_over_is_whole_again() {
    let (mut image, mut model, name) = store();
    image.get_mut(&names::record(&name)).expect("there")[13] ^= 1;
    let directory = Simulated::holding(&image);
    let mut records = start(&directory).expect("one record is damaged");
    let batch = Batch { writes: vec![put(Table::Receiver, "b", "new")] };
    apply(&mut model, &batch);
    records.commit(batch).expect("no fault");
    assert_eq!(held(&mut records), (model.clone(), BTreeSet::new()));
    assert_eq!(held(&mut start(&Simulated::holding(&directory.image())).expect("opens")), (model, BTreeSet::new()));
}

#[test]
fn what_a_crash_leaves_unfinished_or_unmarked_is_cleared_up() {
    let (mut image, model, name) = store();
    image.remove(&names::marker(&name));
    image.insert(names::unfinished(&name), b"half".to_vec());
    image.insert(names::STORE_UNFINISHED.to_owned(), b"half".to_vec());
    let directory = Simulated::holding(&image);
    assert_eq!(held(&mut start(&directory).expect("opens")), (model, BTreeSet::new()));
    let left = directory.image();
    assert!(left.contains_key(&names::marker(&name)));
    assert!(!left.keys().any(|file| file.ends_with(".tmp")), "{:?}", left.keys());
}

#[test]
fn l11_a_store_that_cannot_be_told_is_refused_whole() {
    let (image, _, _) = store();
    let mut without = image.clone();
    without.remove(names::STORE);
    let mut broken = image.clone();
    broken.get_mut(names::STORE).expect("there")[30] ^= 1;
    for (image, reason) in [(without, "missing"), (broken, "not whole")] {
        let error = start(&Simulated::holding(&image)).expect_err("whose is it");
        assert!(matches!(&error, OpenError::Damaged { .. }) && error.to_string().contains(reason), "{error}");
    }
    // Another store's records are no one's here.
    let (other, _, _) = store();
    let mut mixed = image.clone();
    mixed.insert(names::STORE.to_owned(), other[names::STORE].clone());
    assert_eq!(held(&mut start(&Simulated::holding(&mixed)).expect("opens")).1.len(), 3);
}

#[test]
fn l9_7_opening_over_a_lowered_budget_is_refused() {
    let (image, model, _) = store();
    let bytes: usize = model.iter().map(|((_, key), value)| key.len() + value.len()).sum();
    let with = |budget_bytes| open(Simulated::holding(&image), &FilesConfig { budget_bytes });
    let bytes = u64::try_from(bytes).expect("few");
    assert!(with(bytes).is_ok());
    assert!(matches!(with(bytes - 1), Err(OpenError::OverBudget { held, .. }) if held == bytes));
}
