//! Flushes that the system refuses with `EIO`, for real: a node in a process of its own, with a shim before the C library.
//! The node is this test's own binary, told by its environment what to do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::node::{ENGINES, Node};

const NAME: &str = "flush::l9_4_a_flush_that_the_disk_refuses_fails_its_batch_alone_and_loses_nothing";
const ENGINE: &str = "ADMIT_ONE_FAULT_ENGINE";
const STORE: &str = "ADMIT_ONE_FAULT_STORE";
const TRIGGER: &str = "FAULT_FLUSH";
const LAST: u64 = 300;

/// Compiles the shim, or says why not.
fn shim(directory: &Path) -> Result<PathBuf, String> {
    let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
    fs::write(&source, include_str!("shim.c")).map_err(|error| error.to_string())?;
    let (source, out) = (source.to_string_lossy(), library.to_string_lossy());
    super::disk::run("cc", &["-shared", "-fPIC", "-O1", "-o", &out, &source])?;
    Ok(library)
}

/// The node's part: admits, meets so many failed flushes now and then, and goes on. Says what it saw.
async fn node(engine: &str, store: &Path, trigger: &Path) {
    let node = Node::open(engine, store).await.expect("the disk is sound so far");
    let (mut next, mut failures, mut reopens) = (0, 0, 0);
    // One flush fails, or several in a row, so that what the engine moves to fails too.
    for count in [1, 1, 2, 1, 3, 8] {
        next = node.admit_from(next, LAST / 6).await.0;
        fs::write(trigger, vec![b'x'; count]).expect("the trigger's disk is sound");
        let failure = node.admit(next).await.expect_err("its flush fails");
        let said = failure.to_string();
        assert!(said.contains("Input/output error"), "{said}");
        assert!(said.contains("repair the disk, then reopen the store"), "{said}");
        failures += 1;
        // Whatever is left of them goes to reopening, which is tried until it succeeds.
        while let Err(failure) = node.admit(next).await {
            failures += 1;
            assert!(failures < 100, "{failure}");
            match node.commit.reopen().await {
                Ok(()) => reopens += 1,
                Err(refused) => assert!(refused.to_string().contains("Input/output error"), "{refused}"),
            }
        }
        next += 1;
        node.refuses_all_below(next, "in the same life").await;
    }
    println!("released {next} failures {failures} reopens {reopens}");
    // Nothing is closed in order.
    std::process::abort();
}

#[test]
fn l9_4_a_flush_that_the_disk_refuses_fails_its_batch_alone_and_loses_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let (Ok(engine), Ok(store), Ok(trigger)) = (std::env::var(ENGINE), std::env::var(STORE), std::env::var(TRIGGER))
    {
        return runtime.block_on(node(&engine, Path::new(&store), Path::new(&trigger)));
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shim = match shim(directory.path()) {
        Ok(shim) => shim,
        Err(reason) => return println!("no flush was made to fail: {reason}"),
    };
    for engine in ENGINES {
        let (store, trigger) = (directory.path().join(engine), directory.path().join("trigger"));
        let output = Command::new(std::env::current_exe().expect("this test's path"))
            .args(["--exact", NAME, "--nocapture"])
            .env("LD_PRELOAD", &shim)
            .env(TRIGGER, &trigger)
            .env(ENGINE, engine)
            .env(STORE, &store)
            .output()
            .expect("a child");
        let said = String::from_utf8_lossy(&output.stdout);
        let told = said.lines().find_map(|line| line.split_once("released ")).map(|(_, told)| told.to_owned());
        let told = told.unwrap_or_else(|| panic!("{engine}: {said}{}", String::from_utf8_lossy(&output.stderr)));
        let words: Vec<_> = told.split(' ').collect();
        let released: u64 = words[0].parse().expect("a number");
        assert!(released >= LAST, "{engine}: {told}");
        runtime.block_on(async {
            let node = Node::open(engine, &store).await.unwrap_or_else(|error| panic!("{engine}: {error}"));
            node.refuses_all_below(released, engine).await;
            assert!(node.admit(released).await.expect("a sound disk"), "{engine}: what is new is admitted");
            node.close().await;
        });
        println!("{engine}: with flushes that failed: {told}");
    }
}
