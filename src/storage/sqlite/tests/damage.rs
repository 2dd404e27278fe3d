//! Random bytes over every region of the files: restored, exactly what was touched unreadable, or refused as a whole.

use std::fs;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{super::database, *};

/// The files of a store that was dropped, and what they hold.
struct Image {
    files: Vec<(String, Vec<u8>)>,
    content: Content,
}

/// Some 60 records of all lengths over a few batches; with `log`, the last ones are in the write-ahead log alone.
fn image(log: bool) -> Image {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    let commit = |engine: &mut Engine, round: usize| {
        let length = |key: usize| [0, 30, 400, 1_200, 3_000, 8_192][(key + round) % 6];
        let keys = (0..60).filter(|key| key % (round + 1) == 0);
        let value = |key: usize| vec![u8::try_from(key * 4 + round).expect("short"); length(key)];
        let mut writes: Vec<_> = keys.map(|key| put(Table::ALL[key % 7], &format!("key {key}"), value(key))).collect();
        if round == 1 {
            writes[0].value = None;
        }
        engine.commit(Batch { writes }).expect("commits");
    };
    (0..3).for_each(|round| commit(&mut engine, round));
    if log {
        database::checkpoint(engine.connection()).expect("empties");
        commit(&mut engine, 3);
        commit(&mut engine, 1);
        commit(&mut engine, 2);
        database::leave_alone(engine.connection()).expect("is set");
    }
    let content = content(&engine);
    drop(engine);
    let names = names(directory.path());
    let files = names.into_iter().map(|name| (name.clone(), fs::read(directory.path().join(name)).expect("reads")));
    let files: Vec<_> = files.filter(|(_, bytes)| !bytes.is_empty()).collect();
    assert_eq!(files.len(), if log { 3 } else { 2 }, "a database, a witness and perhaps a log");
    Image { files, content }
}

/// How many opens ended in what.
#[derive(Debug, Default)]
struct Tally {
    restored: u32,
    confined: u32,
    records: usize,
    refused: u32,
}

impl Image {
    /// Opens the store with one file changed, twice, and holds the outcome against the law.
    fn try_with(&self, file: usize, change: impl FnOnce(&mut Vec<u8>), tally: &mut Tally, what: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut change = Some(change);
        for (at, (name, bytes)) in self.files.iter().enumerate() {
            let mut bytes = bytes.clone();
            if at == file {
                change.take().expect("one file")(&mut bytes);
            }
            fs::write(directory.path().join(name), bytes).expect("writes");
        }
        let found = match open_at(directory.path()) {
            Ok(engine) => content(&engine),
            Err(OpenError::Locked { .. } | OpenError::OverBudget { .. }) => panic!("{what}: not what is wrong"),
            Err(_) => {
                tally.refused += 1;
                return;
            }
        };
        assert!(found.keys().eq(self.content.keys()), "{what}: the names are not those that there were");
        let bad = found.values().filter(|value| value.is_none()).count();
        for (name, value) in &found {
            assert!(value.is_none() || *value == self.content[name], "{what}: a wrong value of {name}");
        }
        tally.records += bad;
        *if bad == 0 { &mut tally.restored } else { &mut tally.confined } += 1;
        let again = open_at(directory.path()).expect("opens as often as it is asked");
        assert_eq!(content(&again), found, "{what}: another answer the second time");
    }

    fn file(&self, ending: &str) -> usize {
        self.files.iter().position(|(name, _)| name.ends_with(ending)).expect("is there")
    }
}

#[test]
fn l11_1_a_damaged_byte_in_any_region_of_any_page_is_told_by_name_or_refuses_the_store() {
    let image = image(false);
    let database = image.file(".sqlite");
    let pages = image.files[database].1.len() / 4096;
    assert!(pages > 30, "{pages}");
    let mut random = StdRng::seed_from_u64(11);
    let mut tally = Tally::default();
    for page in 0..pages {
        // Pages have one of two kinds of head, a list of cells behind it, and cells from the end.
        let places = [[0, 3, 8, 2_048], [1, 5, 101, 4_095]][page % 2];
        for at in places {
            let other = random.random_range(1..=255);
            let what = format!("page {page} byte {at} xor {other}");
            image.try_with(database, |bytes| bytes[page * 4096 + at] ^= other, &mut tally, &what);
        }
    }
    println!("{pages} pages: {tally:?}");
    assert!(tally.restored > 0 && tally.confined > 0 && tally.refused > 0, "{tally:?}");
}

#[test]
fn l11_1_random_bytes_over_any_file_are_told_by_name_or_refuse_the_store() {
    let images = [image(false), image(true)];
    let mut random = StdRng::seed_from_u64(12);
    let mut tally = Tally::default();
    for round in 0..240 {
        let image = &images[round % 2];
        let file = random.random_range(0..image.files.len());
        let length = image.files[file].1.len();
        let at = random.random_range(0..length);
        let most = *[1, 16, 512, 4_096, 20_000].get(round % 5).expect("one of five");
        let span = random.random_range(1..=most).min(length - at);
        let what = format!("round {round}: {} bytes at {at} of {}", span, image.files[file].0);
        let mut noise = vec![0; span];
        // Every third time a hole, every seventh a file cut short.
        if round % 3 != 0 {
            random.fill(&mut noise[..]);
        }
        let change = |bytes: &mut Vec<u8>| {
            bytes[at..at + span].copy_from_slice(&noise);
            if round % 7 == 0 {
                bytes.truncate(at);
            }
        };
        image.try_with(file, change, &mut tally, &what);
    }
    println!("{tally:?}");
    assert!(tally.restored > 0 && tally.confined > 0 && tally.refused > 0, "{tally:?}");
}

#[test]
fn l11_1_a_damaged_value_makes_its_own_record_unreadable_and_no_other() {
    let image = image(false);
    let (name, value) =
        image.content.iter().find(|(_, value)| value.as_ref().is_some_and(|of| of.len() == 400)).expect("one");
    let value = value.as_ref().expect("whole");
    let database = image.file(".sqlite");
    let bytes = &image.files[database].1;
    let at = bytes.windows(400).position(|window| window == value).expect("stands in the file");
    let directory = tempfile::tempdir().expect("a directory");
    for (file, bytes) in &image.files {
        fs::write(directory.path().join(file), bytes).expect("writes");
    }
    let mut bytes = bytes.clone();
    bytes[at + 200] ^= 1;
    fs::write(directory.path().join(&image.files[database].0), bytes).expect("writes");
    let mut engine = open_at(directory.path()).expect("opens");
    let mut expected = image.content.clone();
    expected.insert(*name, None);
    assert_eq!(content(&engine), expected);
    // It is carried along, until it is discarded.
    engine.reopen().expect("reopens");
    assert_eq!(content(&engine), expected);
    assert!(engine.discard(*name).expect("discards"));
    expected.remove(name);
    drop(engine);
    assert_eq!(content(&open_at(directory.path()).expect("opens")), expected);
}

#[test]
fn a_write_ahead_log_that_lost_a_released_batch_refuses_the_store() {
    let image = image(true);
    let log = image.file("-wal");
    let length = image.files[log].1.len();
    let mut tally = Tally::default();
    // SQLite takes every one of these for a torn end, and would go on with what stands before it.
    for at in [10, 40, length / 3, length / 2, length - 2] {
        image.try_with(log, |bytes| bytes[at] ^= 1, &mut tally, &format!("log byte {at}"));
        image.try_with(log, |bytes| bytes.truncate(at), &mut tally, &format!("log cut at {at}"));
    }
    assert_eq!((tally.refused, tally.restored, tally.confined), (10, 0, 0), "{tally:?}");
    // Without damage it is restored.
    image.try_with(log, |_| {}, &mut tally, "no damage");
    assert_eq!(tally.restored, 1);
}

#[test]
fn l11_4_a_row_that_went_missing_is_unreadable_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    engine.commit(batch("a", "1")).expect("commits");
    engine.commit(batch("b", "2")).expect("commits");
    engine.commit(batch("c", "3")).expect("commits");
    drop(engine);
    let file = names(directory.path()).into_iter().find(|name| name.ends_with(".sqlite")).expect("a database");
    let edit = |sql: &str| {
        let connection = rusqlite::Connection::open(directory.path().join(&file)).expect("opens");
        assert_eq!(connection.execute(sql, []).expect("edits"), 1);
    };
    edit("DELETE FROM record WHERE key = CAST('a' AS BLOB)");
    edit("UPDATE record SET value = CAST('9' AS BLOB) WHERE key = CAST('b' AS BLOB)");
    let engine = open_at(directory.path()).expect("opens");
    let mut expected = of(&[("c", "3")]);
    let reasons: Vec<_> = engine.scan(Table::Receiver).expect("scans").bad.into_iter().map(|bad| bad.reason).collect();
    assert!(reasons.iter().any(|reason| reason.contains("missing")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("checksum")), "{reasons:?}");
    for key in [b"a", b"b"] {
        expected.insert(RecordName::of(Table::Receiver, key), None);
    }
    assert_eq!(content(&engine), expected);
}
