//! What a failed commit, witness or reopen leaves, and what every connection is set to.

use std::{fs::File, path::Path};

use super::{
    super::{database, layout},
    *,
};
use crate::storage::CommitError;

#[test]
fn l9_2_every_connection_flushes_fully_and_its_settings_are_read_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    let check = |connection: &rusqlite::Connection, writing: bool| {
        let always = [
            ("synchronous", "2"),
            ("locking_mode", "exclusive"),
            ("fullfsync", "1"),
            ("checkpoint_fullfsync", "1"),
            ("cell_size_check", "1"),
            ("trusted_schema", "0"),
        ];
        let to_write = [("journal_mode", "wal"), ("wal_autocheckpoint", "0")];
        for (pragma, wanted) in always.iter().chain(to_write.iter().filter(|_| writing)) {
            assert_eq!(database::read_back(connection, pragma).expect("answers"), *wanted, "{pragma}");
        }
    };
    check(engine.connection(), true);
    engine.reopen().expect("reopens");
    check(engine.connection(), true);
    check(&database::connect(&directory.path().join("other"), true).expect("connects"), false);
}

#[test]
fn a_setting_that_does_not_take_refuses_the_connection() {
    // A database in memory has no write-ahead log, and SQLite says so only when it is asked.
    let fault = database::connect_to_write(Path::new(":memory:")).expect_err("not taken");
    assert_eq!(fault.to_string(), "SQLite runs with journal_mode=memory where wal was set");
}

/// SQLite itself refuses the page that would be one too many: its answer to a full disk.
fn full(engine: &mut Engine) {
    let pages = database::read_back(engine.connection(), "page_count").expect("answers");
    engine.connection().pragma_update(None, "max_page_count", pages).expect("is limited");
    let error = engine.commit(batch("big", &"x".repeat(8_000))).expect_err("full");
    assert!(matches!(error, CommitError::Io { action: "commit to", .. }), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
}

#[test]
fn l9_4_a_failed_commit_closes_the_store_until_it_moved_to_a_fresh_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    engine.commit(batch("a", "1")).expect("commits");
    full(&mut engine);
    // The limit is gone, and the file is still not written again.
    engine.connection().pragma_update(None, "max_page_count", 1_000_000).expect("is lifted");
    let error = engine.commit(batch("b", "2")).expect_err("closed");
    assert!(matches!(error, CommitError::Closed { .. }), "{error}");
    engine.scan(Table::Receiver).expect_err("closed");
    engine.discard(RecordName::of(Table::Receiver, b"a")).expect_err("closed");
    let before = names(directory.path());
    engine.reopen().expect("reopens");
    assert_eq!(content(&engine), of(&[("a", "1")]));
    assert!(names(directory.path()).iter().all(|name| name == layout::LOCK || !before.contains(name)), "a fresh file");
    engine.commit(batch("b", "2")).expect("commits");
    drop(engine);
    assert_eq!(content(&open_at(directory.path()).expect("opens")), of(&[("a", "1"), ("b", "2")]));
}

#[test]
fn l9_4_a_restart_after_a_failed_commit_finds_what_was_released() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    engine.commit(batch("a", "1")).expect("commits");
    full(&mut engine);
    drop(engine);
    assert_eq!(content(&open_at(directory.path()).expect("opens")), of(&[("a", "1")]));
}

#[test]
fn l9_4_what_a_failed_batch_left_in_the_database_is_not_there_after_a_reopen() {
    // A file that cannot be written to, in the place of the witness: SQLite committed, and the batch failed.
    for restarted in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut engine = open_at(directory.path()).expect("opens");
        engine.commit(batch("a", "1")).expect("commits");
        engine.replace_witness(File::open(directory.path().join(layout::LOCK)).expect("opens"));
        let error = engine.commit(batch("a", "2")).expect_err("not witnessed");
        assert!(matches!(error, CommitError::Io { action: "witness", .. }), "{error}");
        if restarted {
            // Nobody was told of its success, and it is there whole.
            drop(engine);
            assert_eq!(content(&open_at(directory.path()).expect("opens")), of(&[("a", "2")]));
            continue;
        }
        engine.reopen().expect("reopens");
        assert_eq!(content(&engine), of(&[("a", "1")]));
        drop(engine);
        assert_eq!(content(&open_at(directory.path()).expect("opens")), of(&[("a", "1")]));
    }
}

#[test]
fn l9_4_every_open_and_reopen_goes_on_in_a_fresh_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut before = Vec::new();
    for round in 0..4 {
        let mut engine = open_at(directory.path()).expect("opens");
        engine.commit(batch(&round.to_string(), "1")).expect("commits");
        if round % 2 == 1 {
            engine.reopen().expect("reopens");
        }
        let now = names(directory.path());
        assert!(now.iter().all(|name| name == layout::LOCK || !before.contains(name)), "{before:?} {now:?}");
        assert_eq!(now.iter().filter(|name| name.ends_with(".sqlite")).count(), 1, "{now:?}");
        before = now;
    }
    assert_eq!(content(&open_at(directory.path()).expect("opens")).len(), 4);
}

#[test]
fn l9_4_a_reopen_that_fails_leaves_the_store_closed_and_the_next_one_may_succeed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    engine.commit(batch("a", "1")).expect("commits");
    // A directory that cannot be removed like a file, where the fresh database belongs.
    let blocked = directory.path().join(layout::FRESH);
    std::fs::create_dir(&blocked).expect("makes");
    let error = engine.reopen().expect_err("blocked");
    assert!(matches!(&error, OpenError::Io { path, .. } if *path == blocked), "{error}");
    engine.scan(Table::Receiver).expect_err("closed");
    engine.commit(batch("b", "2")).expect_err("closed");
    std::fs::remove_dir(&blocked).expect("removes");
    engine.reopen().expect("reopens");
    assert_eq!(content(&engine), of(&[("a", "1")]));
}

#[test]
fn the_write_ahead_log_is_emptied_past_its_bound() {
    use super::super::engine::WAL_PAGES;
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = open_at(directory.path()).expect("opens");
    let log = || {
        let name = names(directory.path()).into_iter().find(|name| name.ends_with("-wal")).expect("a log");
        std::fs::metadata(directory.path().join(name)).expect("is there").len()
    };
    let mut emptied = false;
    let mut longest = 0;
    for round in 0_u8..6 {
        let writes = (0..500).map(|key| put(Table::Custody, &key.to_string(), vec![round; 8_000])).collect();
        engine.commit(Batch { writes }).expect("commits");
        longest = longest.max(log());
        engine.tidy();
        assert!(log() <= WAL_PAGES * 4120 + 32);
        emptied |= log() == 0;
    }
    assert!(emptied && longest > WAL_PAGES * 4096, "{longest}");
    assert!(content(&engine).values().flatten().all(|value| *value == vec![5; 8_000]));
}

#[test]
fn a_crash_before_the_first_database_had_its_name_makes_no_store_unopenable() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open_at(directory.path()).expect("opens"));
    let database = names(directory.path()).into_iter().find(|name| name.ends_with(".sqlite")).expect("a database");
    // As a crash leaves it between the witness and the rename.
    std::fs::rename(directory.path().join(database), directory.path().join(layout::FRESH)).expect("renames");
    let mut engine = open_at(directory.path()).expect("opens");
    engine.commit(batch("a", "1")).expect("commits");
    drop(engine);
    // With a batch in it a database that is gone was lost.
    let database = names(directory.path()).into_iter().find(|name| name.ends_with(".sqlite")).expect("a database");
    std::fs::remove_file(directory.path().join(database)).expect("removes");
    let error = open_at(directory.path()).expect_err("lost");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}
