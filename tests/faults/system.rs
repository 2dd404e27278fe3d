//! The disk's own faults, on each engine.

use std::path::Path;

use super::{
    disk::{Disk, run},
    node::{ENGINES, Node, open},
};

/// Room for a store and its growth, in kilobytes.
const SMALL: u64 = 4 * 1024;
/// More admissions than any full disk takes.
const MANY: u64 = 20_000;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

/// The store on a sound disk after all of it: what was released is there, and it takes what is new.
async fn sound(engine: &str, path: &Path, released: u64) {
    let node = Node::open(engine, path).await.unwrap_or_else(|error| panic!("{engine}: {error}"));
    node.refuses_all_below(released, engine).await;
    // What failed, at `released`, was never admitted: it may be refused now, and never twice admitted.
    let first = node.admit(released).await.expect("a sound disk");
    assert!(!(node.admit(released).await.expect("a sound disk") && first), "{engine}: admitted twice");
    assert!(node.admit(released + 1).await.expect("a sound disk"), "{engine}: what is new is admitted");
    node.close().await;
}

#[test]
fn l9_4_a_full_disk_fails_what_does_not_fit_and_goes_on_once_there_is_room() {
    for engine in ENGINES {
        let disk = match Disk::in_memory(SMALL) {
            Ok(disk) => disk,
            Err(reason) => return println!("no disk was filled: {reason}"),
        };
        let store = disk.path().join("store");
        block_on(async {
            let node = Node::open(engine, &store).await.expect("room for a new store");
            let (next, failure) = node.admit_from(0, 100).await;
            assert!(failure.is_none(), "{engine}: {failure:?}");
            let filler = disk.fill(8);
            let (next, failure) = node.admit_from(next, MANY).await;
            let said = failure.expect("a full disk").to_string();
            assert!(said.contains("No space left on device"), "{engine}: {said}");
            assert!(said.contains("free space or repair the disk, then reopen the store"), "{engine}: {said}");
            println!("{engine}: {next} released, then: {said}");
            // Closed or not, it admits nothing while there is no room, and says so.
            if let Err(refused) = node.commit.reopen().await {
                let said = refused.to_string();
                assert!(said.contains("No space left on device"), "{engine}: {said}");
                assert!(said.contains("free space on its disk"), "{engine}: {said}");
                println!("{engine}: reopening: {said}");
            }
            filler.remove();
            node.commit.reopen().await.unwrap_or_else(|error| panic!("{engine}: {error}"));
            node.refuses_all_below(next, engine).await;
            let (next, failure) = node.admit_from(next, 100).await;
            assert!(failure.is_none(), "{engine}: there is room again, and yet {failure:?}");
            node.close().await;
            // A start on a full disk: refused, or, where an engine needs no room to start, sound.
            let filler = disk.fill(0);
            match open(engine, &store).await {
                Ok(store) => drop(store),
                Err(refused) => {
                    let said = refused.to_string();
                    assert!(said.contains("No space left on device"), "{engine}: {said}");
                    assert!(said.contains("free space on its disk"), "{engine}: {said}");
                    println!("{engine}: opening: {said}");
                }
            }
            filler.remove();
            sound(engine, &store, next).await;
        });
    }
}

/// What ext4 does to itself when its journal fails: from then on nothing is written, whoever has it open.
#[test]
fn l9_4_a_file_system_that_turns_read_only_under_a_node_fails_what_comes_after_and_loses_nothing() {
    for engine in ENGINES {
        let disk = match Disk::ext4(24) {
            Ok(disk) => disk,
            Err(reason) => return println!("no file system turned read-only: {reason}"),
        };
        let store = disk.path().join("store");
        let released = block_on(async {
            let node = Node::open(engine, &store).await.expect("a sound disk");
            let (next, failure) = node.admit_from(0, 100).await;
            assert!(failure.is_none(), "{engine}: {failure:?}");
            if let Err(reason) = disk.remount("abort") {
                println!("no file system turned read-only: {reason}");
                return None;
            }
            let (next, failure) = node.admit_from(next, MANY).await;
            let said = failure.expect("a read-only file system").to_string();
            assert!(said.contains("Read-only file system"), "{engine}: {said}");
            assert!(said.contains("repair the disk, then reopen the store"), "{engine}: {said}");
            println!("{engine}: {next} released, then: {said}");
            let said = node.commit.reopen().await.expect_err("still read-only").to_string();
            assert!(said.contains("Read-only file system") && said.contains("mount it writable"), "{engine}: {said}");
            node.close().await;
            let said = open(engine, &store).await.expect_err("still read-only").to_string();
            assert!(said.contains("Read-only file system") && said.contains("mount it writable"), "{engine}: {said}");
            println!("{engine}: opening: {said}");
            Some(next)
        });
        let Some(released) = released else { return };
        disk.again().expect("nobody has a file of it open");
        block_on(sound(engine, &store, released));
    }
}

/// Root passes over permissions, not over the immutable flag.
#[test]
fn l9_4_files_that_may_not_be_changed_any_more_fail_what_comes_after_and_lose_nothing() {
    for engine in ENGINES {
        let disk = match Disk::ext4(24) {
            Ok(disk) => disk,
            Err(reason) => return println!("no file was made immutable: {reason}"),
        };
        let store = disk.path().join("store");
        let immutable = |flag| run("chattr", &["-R", flag, &store.to_string_lossy()]);
        block_on(async {
            let node = Node::open(engine, &store).await.expect("a sound disk");
            let (next, failure) = node.admit_from(0, 100).await;
            assert!(failure.is_none(), "{engine}: {failure:?}");
            if let Err(reason) = immutable("+i") {
                return println!("no file was made immutable: {reason}");
            }
            let (next, failure) = node.admit_from(next, MANY).await;
            let said = failure.expect("files that may not be changed").to_string();
            assert!(said.contains("Operation not permitted"), "{engine}: {said}");
            assert!(said.contains("repair the disk, then reopen the store"), "{engine}: {said}");
            println!("{engine}: {next} released, then: {said}");
            let said = node.commit.reopen().await.expect_err("still immutable").to_string();
            assert!(
                said.contains("Operation not permitted") && said.contains("let this user write"),
                "{engine}: {said}"
            );
            immutable("-i").expect("as it was set");
            node.commit.reopen().await.unwrap_or_else(|error| panic!("{engine}: {error}"));
            node.refuses_all_below(next, engine).await;
            let (next, failure) = node.admit_from(next, 100).await;
            assert!(failure.is_none(), "{engine}: {failure:?}");
            node.close().await;
            immutable("+i").expect("as before");
            let said = open(engine, &store).await.expect_err("immutable").to_string();
            assert!(
                said.contains("Operation not permitted") && said.contains("let this user write"),
                "{engine}: {said}"
            );
            println!("{engine}: opening: {said}");
            immutable("-i").expect("as it was set");
            sound(engine, &store, next).await;
        });
    }
}
