//! Record files on a real directory.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use admit_one::{
    Files, FilesConfig, Journal, JournalConfig,
    storage::{Batch, OpenError, RecordName, Store, Table, Write},
};
use tempfile::TempDir;

use crate::conformance::Engine;

struct InDirectory(TempDir);

impl Engine for InDirectory {
    const DURABLE: bool = true;

    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(open(&self.0.path().join("store")).expect("opens"))
    }
}

crate::conformance::suite!(InDirectory);

fn open(path: &Path) -> Result<Files, OpenError> {
    Files::open(path, FilesConfig::default())
}

fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    (directory, path)
}

fn batch(key: &'static str) -> Batch {
    Batch { writes: vec![Write { table: Table::Receiver, key: key.into(), value: Some("value".into()) }] }
}

#[tokio::test]
async fn l9_8_a_second_open_is_refused_until_the_first_is_dropped() {
    let (_directory, path) = store();
    let first = open(&path).expect("opens");
    let error = open(&path).expect_err("in use");
    assert!(matches!(&error, OpenError::Locked { path: named } if *named == path), "{error}");
    first.commit(batch("a")).await.expect("still works");
    drop(first);
    assert_eq!(open(&path).expect("free again").scan(Table::Receiver).await.expect("scans").records.len(), 1);
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "text").expect("writes");
    assert!(matches!(open(&file), Err(OpenError::NotAStore { .. })));
    let error = open(directory.path()).expect_err("not a store");
    assert!(error.to_string().contains("file"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1, "nothing was put there");
    open(&directory.path().join("deep/down/store")).expect("opens");
}

#[tokio::test]
async fn a_store_of_another_engine_is_refused_and_left_alone() {
    let (_directory, path) = store();
    let journal = Journal::open(&path, JournalConfig::default()).expect("opens");
    journal.commit(batch("a")).await.expect("works");
    drop(journal);
    let error = open(&path).expect_err("a journal");
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    let journal = Journal::open(&path, JournalConfig::default()).expect("opens");
    assert_eq!(journal.scan(Table::Receiver).await.expect("scans").records.len(), 1);
    let (_directory, path) = store();
    let files = open(&path).expect("opens");
    files.commit(batch("a")).await.expect("works");
    drop(files);
    let error = Journal::open(&path, JournalConfig::default()).expect_err("record files");
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
}

#[tokio::test]
async fn l11_4_a_record_that_an_operator_removes_by_hand_is_unavailable_until_its_marker_is_removed_too() {
    let (_directory, path) = store();
    let first = open(&path).expect("opens");
    first.commit(batch("a")).await.expect("works");
    first.commit(batch("b")).await.expect("works");
    drop(first);
    let name = RecordName::of(Table::Receiver, b"a");
    fs::remove_file(path.join(format!("{name}.record"))).expect("it has a file");
    let scan = open(&path).expect("opens").scan(Table::Receiver).await.expect("scans");
    assert_eq!(scan.records.len(), 1);
    assert_eq!(scan.bad.iter().map(|bad| bad.name).collect::<Vec<_>>(), [name]);
    fs::remove_file(path.join(format!("{name}.present"))).expect("it has a marker");
    let scan = open(&path).expect("opens").scan(Table::Receiver).await.expect("scans");
    assert_eq!((scan.records.len(), scan.bad.len()), (1, 0));
}
