//! The SQLite engine on a real directory: what it refuses to open, and who else may not.

use std::{
    fs,
    path::{Path, PathBuf},
};

use admit_one::storage::{Batch, OpenError, Sqlite, SqliteConfig, Store, Table, Write};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Result<Sqlite, OpenError> {
    Sqlite::open(SqliteConfig::new(path))
}

fn batch(key: &str, value: &str) -> Batch {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    Batch { writes: vec![Write { table: Table::Receiver, key, value: Some(value) }] }
}

/// A store with one record of 4 bytes.
async fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/store");
    open(&path).expect("opens").commit(batch("key", "1")).await.expect("commits");
    (directory, path)
}

fn database(path: &Path) -> PathBuf {
    let mut files = fs::read_dir(path).expect("lists").map(|entry| entry.expect("readable").path());
    files.find(|file| file.extension().is_some_and(|ending| ending == "sqlite")).expect("a database")
}

fn edit(path: &Path, sql: &str) {
    Connection::open(database(path)).expect("opens").execute_batch(sql).expect("edits");
}

async fn records(store: &Sqlite) -> usize {
    store.scan(Table::Receiver).await.expect("scans").records.len()
}

#[tokio::test]
async fn l9_8_a_second_open_is_refused_until_the_first_is_dropped() {
    let (_directory, path) = store().await;
    let first = open(&path).expect("opens");
    let error = open(&path).expect_err("in use");
    assert!(matches!(&error, OpenError::Locked { path: named } if *named == path), "{error}");
    // Nor may a program that knows SQLite and not the lock.
    let other = Connection::open(database(&path)).expect("opens");
    let error = other.query_row("SELECT count(*) FROM record", [], |row| row.get::<_, i64>(0)).expect_err("busy");
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
    drop(other);
    first.commit(batch("a", "1")).await.expect("still works");
    drop(first);
    assert_eq!(records(&open(&path).expect("free again")).await, 2);
}

/// Another process has the lock: the shell's own tool takes it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn l9_8_a_store_that_another_process_owns_is_refused() {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };
    let (_directory, path) = store().await;
    let mut holder = Command::new("flock");
    holder.arg("-n").arg(path.join("lock")).args(["sh", "-c", "echo held; read line"]);
    let Ok(mut holder) = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("there is no flock(1) here: nothing was tried");
        return;
    };
    let mut said = String::new();
    BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut said).expect("reads");
    assert_eq!(said, "held\n");
    assert!(matches!(open(&path), Err(OpenError::Locked { .. })));
    drop(holder.stdin.take());
    holder.wait().expect("ends");
    open(&path).expect("free again");
}

#[tokio::test]
async fn l9_8_a_database_that_another_program_reads_is_refused() {
    let (_directory, path) = store().await;
    let other = Connection::open(database(&path)).expect("opens");
    other.execute_batch("BEGIN EXCLUSIVE").expect("holds it");
    let error = open(&path).expect_err("in use");
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(other);
    assert_eq!(records(&open(&path).expect("free again")).await, 1);
}

#[tokio::test]
async fn a_newer_format_and_another_applications_database_are_refused_and_left_alone() {
    let (_directory, path) = store().await;
    edit(&path, "PRAGMA user_version = 7");
    let error = open(&path).expect_err("newer");
    assert!(matches!(error, OpenError::NewerFormat { found: 7, supported: 1, .. }), "{error}");
    edit(&path, "PRAGMA user_version = 1; PRAGMA application_id = 42");
    let error = open(&path).expect_err("another's");
    assert!(matches!(&error, OpenError::NotAStore { reason, .. } if reason.contains("0x2a")), "{error}");
    edit(&path, "PRAGMA application_id = 1093759860");
    assert_eq!(records(&open(&path).expect("opens")).await, 1);
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("app.sqlite");
    Connection::open(&file).expect("opens").execute_batch("CREATE TABLE theirs (id)").expect("is made");
    let before = fs::read(&file).expect("reads");
    assert!(matches!(open(&file), Err(OpenError::NotAStore { .. })));
    let error = open(directory.path()).expect_err("not a store");
    assert!(error.to_string().contains("app.sqlite"), "{error}");
    assert_eq!(fs::read(&file).expect("reads"), before);
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1, "nothing was put there");
}

#[tokio::test]
async fn l9_7_a_store_over_its_budget_is_refused_and_opens_again_with_a_greater_one() {
    let (_directory, path) = store().await;
    let tight = |budget_bytes| {
        let mut config = SqliteConfig::new(&path);
        config.budget_bytes = budget_bytes;
        Sqlite::open(config)
    };
    let error = tight(3).expect_err("over budget");
    assert!(matches!(error, OpenError::OverBudget { held: 4, budget: 3, .. }), "{error}");
    assert_eq!(records(&tight(4).expect("opens")).await, 1);
}

#[tokio::test]
async fn a_witness_that_is_gone_refuses_the_store_by_path_and_cause() {
    let (_directory, path) = store().await;
    fs::remove_file(database(&path).with_extension("witness")).expect("removes");
    let error = open(&path).expect_err("not to be trusted").to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("witness"), "{error}");
}
