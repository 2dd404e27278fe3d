//! The journal on a real directory.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use admit_one::storage::{Batch, Journal, JournalConfig, OpenError, Store, Table, Write};
use tempfile::TempDir;

use crate::conformance::Engine;

/// A journal in a temporary directory, with small segments so that it rolls and compacts.
struct InDirectory(TempDir);

impl Engine for InDirectory {
    const DURABLE: bool = true;

    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(Journal::open(self.0.path().join("store"), small()).expect("opens"))
    }
}

crate::conformance::suite!(InDirectory);

fn small() -> JournalConfig {
    JournalConfig { segment_bytes: 256 * 1024, compact_floor_bytes: 1 << 20, ..JournalConfig::default() }
}

fn batch(key: &str, value: &str) -> Batch {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    Batch { writes: vec![Write { table: Table::Receiver, key, value: Some(value) }] }
}

fn open(path: &Path) -> Result<Journal, OpenError> {
    Journal::open(path, small())
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("readable").path());
    files.filter(|file| file.extension().is_some_and(|ending| ending == "log")).collect()
}

fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    (directory, path)
}

#[tokio::test]
async fn l9_8_a_second_open_is_refused_until_the_first_is_dropped() {
    let (_directory, path) = store();
    let first = open(&path).expect("opens");
    let error = open(&path).expect_err("in use");
    assert!(matches!(&error, OpenError::Locked { path: named } if *named == path), "{error}");
    first.commit(batch("a", "1")).await.expect("still works");
    drop(first);
    let again = open(&path).expect("free again");
    assert_eq!(again.scan(Table::Receiver).await.expect("scans").records.len(), 1);
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "text").expect("writes");
    assert!(matches!(open(&file), Err(OpenError::NotAStore { .. })));
    assert_eq!(fs::read(&file).expect("reads"), b"text");
    // A directory of something else.
    let error = open(directory.path()).expect_err("not a store");
    assert!(error.to_string().contains("file"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1, "nothing was put there");
    // The parents of a missing one are made.
    open(&directory.path().join("deep/down/store")).expect("opens");
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    let (_directory, path) = store();
    let journal = open(&path).expect("opens");
    journal.commit(batch("a", "1")).await.expect("commits");
    drop(journal);
    let segment = segments(&path).remove(0);
    let written = fs::read(&segment).expect("reads");
    let mut newer = written.clone();
    for copy in [0, 8 * 512] {
        newer[copy + 8..copy + 12].copy_from_slice(&7_u32.to_le_bytes());
        let check = blake3::derive_key("admit-one 2026 journal segment head and witness", &newer[copy..copy + 16]);
        newer[copy + 16..copy + 32].copy_from_slice(&check[..16]);
    }
    fs::write(&segment, &newer).expect("writes");
    let error = open(&path).expect_err("newer");
    assert!(matches!(error, OpenError::NewerFormat { found: 7, supported: 1, .. }), "{error}");
    assert_eq!(fs::read(&segment).expect("reads"), newer);
    fs::write(&segment, written).expect("writes");
    assert_eq!(open(&path).expect("opens").scan(Table::Receiver).await.expect("scans").records.len(), 1);
}

#[tokio::test]
async fn l9_7_a_store_over_its_budget_is_refused_and_opens_again_with_a_greater_one() {
    let (_directory, path) = store();
    let journal = open(&path).expect("opens");
    journal.commit(batch("key", &"x".repeat(2_000))).await.expect("commits");
    drop(journal);
    let tight = |budget_bytes| Journal::open(&path, JournalConfig { budget_bytes, ..small() });
    let error = tight(2_002).expect_err("over budget");
    assert!(matches!(error, OpenError::OverBudget { held: 2_003, budget: 2_002, .. }), "{error}");
    assert_eq!(tight(2_003).expect("opens").scan(Table::Receiver).await.expect("scans").records.len(), 1);
}

#[tokio::test]
async fn damage_on_disk_refuses_the_store_by_path_and_cause() {
    let (_directory, path) = store();
    let journal = open(&path).expect("opens");
    journal.commit(batch("a", "1")).await.expect("commits");
    drop(journal);
    let segment = segments(&path).remove(0);
    let mut bytes = fs::read(&segment).expect("reads");
    bytes[..8192].fill(0);
    fs::write(&segment, bytes).expect("writes");
    let error = open(&path).expect_err("damaged").to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("head"), "{error}");
}

#[tokio::test]
async fn l9_5_an_idle_journal_works_off_its_compaction_by_itself_and_old_segments_go() {
    let (_directory, path) = store();
    let journal = open(&path).expect("opens");
    // 8 MiB of log for 40 KiB of records, then a scan now and then until the writer has caught up.
    for round in 0..200 {
        let value = format!("{round}{}", "x".repeat(8_000));
        let writes = (0..5).flat_map(|key| batch(&key.to_string(), &value).writes).collect();
        journal.commit(Batch { writes }).await.expect("commits");
    }
    let bound = 1 << 20;
    let held = || segments(&path).iter().map(|file| file.metadata().map_or(0, |file| file.len())).sum::<u64>();
    for _ in 0..10_000 {
        if held() <= bound + 3 * 256 * 1024 {
            break;
        }
        journal.scan(Table::Clock).await.expect("scans");
    }
    assert!(held() <= bound + 3 * 256 * 1024, "{} bytes", held());
    assert_eq!(journal.scan(Table::Receiver).await.expect("scans").records.len(), 5);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_the_system_refuses_is_named() {
    let path = Path::new("/proc/admit-one-store");
    let error = open(path).expect_err("not possible there");
    assert!(matches!(&error, OpenError::Io { action: "create", path: named, .. } if named == path), "{error}");
}

/// Root may write anywhere, so permissions cannot make a directory read-only for these tests: a full device does
/// exist, though, wherever `/dev/full` and symbolic links do.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_named_and_nothing_is_lost() {
    let (_directory, path) = store();
    let journal = open(&path).expect("opens");
    journal.commit(batch("a", "1")).await.expect("commits");
    drop(journal);
    // The next segment is to be made where nothing fits.
    let number = segments(&path)[0].file_stem().expect("a name").to_string_lossy().into_owned();
    let next: u64 = number.trim_start_matches("segment-").parse::<u64>().expect("a number") + 1;
    let full = path.join(format!("segment-{next:020}.tmp"));
    std::os::unix::fs::symlink("/dev/full", &full).expect("links");
    let error = open(&path).expect_err("full");
    assert!(matches!(&error, OpenError::Io { action: "write to", path: named, .. } if *named == full), "{error}");
    assert!(error.to_string().contains("space"), "{error}");
    assert!(fs::symlink_metadata(&full).is_err(), "what could not be made takes no room");
    assert_eq!(open(&path).expect("opens").scan(Table::Receiver).await.expect("scans").records.len(), 1);
}

/// A node may change its working directory after it opened its store: the next segment belongs where the others are.
#[test]
fn a_relative_path_is_made_absolute_when_the_store_is_opened() {
    let error = open(Path::new("Cargo.toml")).expect_err("a file");
    let expected = std::env::current_dir().expect("a directory").join("Cargo.toml");
    assert!(matches!(&error, OpenError::NotAStore { path, .. } if *path == expected), "{error}");
}
