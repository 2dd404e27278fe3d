//! `store inspect`, `verify`, `clear`, `renew` and `migrate`, on real stores of every engine.

use std::{collections::BTreeSet, path::Path, process::Stdio, time::Duration};

use admit_one::{
    CommitConfig, GroupCommit, StoreUrl,
    layer::{
        boundary::{BoundaryRefusal, Request},
        window::WindowRefusal,
    },
    storage::{Table, commit::CommitOpenError},
};
use serde_json::Value;

use crate::{
    node::{self, Node},
    running::{admit_one, both, code, document, once},
    terminal::at_a_terminal,
};

/// Runs `test` with a URL in a directory of its own, for each engine of this build.
async fn each<F: Future<Output = ()>>(test: impl Fn(String, tempfile::TempDir) -> F) {
    for engine in StoreUrl::engines() {
        let directory = tempfile::tempdir().expect("a directory");
        test(node::url(engine, directory.path()), directory).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_in_use_missing_or_no_store_is_told_apart_by_every_command() {
    each(|url, directory| async move {
        let missing = node::url("journal", &directory.path().join("missing"));
        let foreign = directory.path().join("foreign");
        std::fs::create_dir(&foreign).expect("a directory");
        std::fs::write(foreign.join("notes.txt"), "no store").expect("written");
        let foreign = format!("{}:{}", url.split_once(':').expect("a URL").0, foreign.display());
        node::admitted(&url, 1).await;
        let held = node::open(&url).await;
        let record = node::record(Table::Receiver, 0);
        for command in [&["inspect"][..], &["verify"], &["clear", "--record", &record, "--yes"], &["renew"]] {
            let run = |url: &str, expected| {
                let arguments = [&["store", command[0], url], &command[1..]].concat();
                both(&arguments, expected).1["error"]["kind"].clone()
            };
            assert_eq!(run(&url, 3), "in_use");
            assert_eq!(run(&missing, 4), "no_store");
            assert_eq!(run(&foreign, 4), "not_a_store", "{foreign}");
        }
        let target = node::url("journal", &directory.path().join("target"));
        assert_eq!(both(&["store", "migrate", &url, &target], 3).1["error"]["kind"], "in_use");
        assert_eq!(both(&["store", "migrate", &missing, &target], 4).1["error"]["kind"], "no_store");
        drop(held);
        both(&["store", "verify", &url], 0);
        assert!(!directory.path().join("missing").exists(), "nothing is made where nothing was");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_shows_what_a_node_left() {
    each(|url, _directory| async move {
        node::admitted(&url, 3).await;
        let (text, document) = both(&["store", "inspect", &url], 0);
        let receivers = document["receivers"].as_array().expect("a list");
        assert_eq!(receivers.len(), 3);
        let of = |number: u32| {
            let name = node::record(Table::Receiver, number);
            receivers.iter().find(|of| of["record"] == name).unwrap_or_else(|| panic!("{name} in {document:#}"))
        };
        for number in 0..3 {
            let (stream, found) = (node::stream(number), of(number));
            assert_eq!((&found["high"], &found["filled"]), (&2.into(), &3.into()), "{found:#}");
            assert_eq!(found["origin"], stream.origin.to_string());
            assert!(text.contains(&node::record(Table::Receiver, number)), "{text}");
        }
        assert_eq!(document["senders"].as_array().map(Vec::len), Some(3));
        assert_eq!(document["unavailable"].as_array().map(Vec::len), Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_fails_verify_shows_in_inspect_and_stops_its_own_stream_alone() {
    each(|url, _directory| async move {
        node::admitted(&url, 3).await;
        both(&["store", "verify", &url], 0);
        node::damage(&url, Table::Receiver, 1).await;
        let name = node::record(Table::Receiver, 1);
        let (text, document) = both(&["store", "verify", &url], 1);
        assert!(text.contains(&name), "{text}");
        let bad = document["bad"].as_array().expect("a list");
        assert_eq!((bad.len(), &bad[0]["record"]), (1, &name.clone().into()));
        let (text, document) = both(&["store", "inspect", &url], 0);
        assert!(text.contains(&name), "{text}");
        assert_eq!(document["unavailable"][0]["record"], name);
        let node = Node::start(&url).await;
        let refused = node.admit(node.transaction(1, 9)).await.expect_err("unavailable");
        assert!(matches!(refused, BoundaryRefusal::StreamUnavailable { .. }), "{refused:?}");
        let said = refused.to_string();
        assert!(said.contains(&format!("admit-one store clear --record {name}")), "{said}");
        node.admit(node.transaction(2, 9)).await.expect("another stream goes on");
        node.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clear_asks_and_without_a_terminal_or_yes_changes_nothing() {
    each(|url, _directory| async move {
        node::admitted(&url, 2).await;
        node::damage(&url, Table::Receiver, 1).await;
        let name = node::record(Table::Receiver, 1);
        let clear = ["store", "clear", &url, "--record", &name];
        let (said, refused) = both(&clear, 5);
        assert_eq!(refused["error"]["kind"], "no_terminal");
        assert!(said.contains("--yes"), "{said}");
        both(&["store", "verify", &url], 1);
        let other = node::record(Table::Receiver, 7);
        assert_eq!(both(&["store", "clear", &url, "--record", &other, "--yes"], 5).1["error"]["kind"], "no_record");
        assert_eq!(code(&admit_one(&["store", "clear", &url, "--record", "x", "--yes"]).output().expect("runs")), 2);

        let document = once(&[&clear[..], &["--yes"]].concat(), 0);
        assert!(document["cost"].is_object() && document["cleared"].is_object(), "{document:#}");
        both(&["store", "verify", &url], 0);
        // The stream is new, and refuses what was issued up to its mark; another goes on.
        let mark = document["cleared"]["mark"].as_u64().expect("a mark");
        let node = Node::start(&url).await;
        node.admit(node.transaction(0, 9)).await.expect("another stream");
        let at = |issued_at| Request { issued_at, ..node.transaction(1, 0) };
        let refused = node.admit(at(mark)).await.expect_err("issued at the mark");
        assert!(matches!(refused, BoundaryRefusal::StreamCleared { .. }), "{refused:?}");
        while node.now() <= mark {
            tokio::task::yield_now().await;
        }
        node.admit(at(mark + 1)).await.expect("issued after it");
        node.stop().await;
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn at_a_terminal_clear_does_what_is_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = node::url("journal", directory.path());
    node::admitted(&url, 2).await;
    let name = node::record(Table::Receiver, 1);
    let clear = ["store", "clear", &url, "--record", &name];
    for no in ["no", "y", "", "YES"] {
        let (code, said) = at_a_terminal(&clear, no, &[]);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("Type yes") && said.contains("nothing was changed"), "{said}");
    }
    assert_eq!(both(&["store", "inspect", &url], 0).1["receivers"].as_array().map(Vec::len), Some(2));
    let (code, said) = at_a_terminal(&clear, "yes", &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(both(&["store", "inspect", &url], 0).1["receivers"].as_array().map(Vec::len), Some(1));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_9_a_restored_backup_admits_again_unless_it_is_renewed() {
    each(|url, directory| async move {
        let (engine, path) = url.split_once(':').expect("a URL");
        let (path, backup) = (Path::new(path), directory.path().join("backup"));
        node::admitted(&url, 1).await;
        copy(path, &backup);
        let node = Node::start(&url).await;
        let (later, reserved) = (node.transaction(0, 3), node.leases_of(0).await);
        node.admit(later).await.expect("admitted");
        assert!(matches!(node.admit(later).await, Err(BoundaryRefusal::Window(WindowRefusal::Replay))));
        node.stop().await;
        for renewed in [false, true] {
            let restored = directory.path().join(format!("restored-{renewed}"));
            copy(&backup, &restored);
            let restored = format!("{engine}:{}", restored.display());
            if renewed {
                once(&["store", "renew", &restored], 0);
            }
            let node = Node::start(&restored).await;
            let again = node.admit(later).await;
            let numbered = node.leases_of(0).await;
            node.stop().await;
            if renewed {
                assert!(matches!(again, Err(BoundaryRefusal::BeforeMark { .. })), "{again:?}");
                assert!(numbered.0 > reserved.0, "a new incarnation: {numbered:?} after {reserved:?}");
            } else {
                assert!(again.is_ok(), "without it a restored receiver admits again: {again:?}");
                assert_eq!(numbered.0, reserved.0, "and a sender goes on in the old incarnation");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_moves_every_record_between_any_two_engines_and_compares_them() {
    for from in StoreUrl::engines() {
        for to in StoreUrl::engines() {
            let directory = tempfile::tempdir().expect("a directory");
            let source = node::url(from, directory.path());
            let target = node::url(to, &directory.path().join("target"));
            std::fs::create_dir(directory.path().join("target")).expect("a directory");
            let last = node::admitted(&source, 20).await;
            once(&["store", "migrate", &source, &target], 0);
            let inspection = |url: &str| both(&["store", "inspect", url], 0).1;
            let (of_source, of_target) = (inspection(&source), inspection(&target));
            assert_eq!(of_source["receivers"], of_target["receivers"], "{from} to {to}");
            assert_eq!(of_source["senders"], of_target["senders"], "{from} to {to}");
            let node = Node::start(&target).await;
            assert!(matches!(node.admit(last).await, Err(BoundaryRefusal::Window(WindowRefusal::Replay))));
            node.stop().await;
        }
    }
}

/// Begins a migration and kills it so long after its target was there.
fn killed(source: &str, target: &str, pause: Duration) {
    let path = Path::new(target.split_once(':').expect("a URL").1);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_admit-one"))
        .args(["store", "migrate", source, target])
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    while !path.exists() && child.try_wait().expect("asked").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(pause);
    // It may have ended by then, which shows in the target.
    let _ = child.kill();
    child.wait().expect("it ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_half_way_opens_for_no_node_and_is_finished_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = node::url("journal", directory.path());
    node::admitted(&source, 2_000).await;
    let inspection = |url: &str| both(&["store", "inspect", url], 0).1;
    for engine in StoreUrl::engines() {
        // A kill may come before the target is one, or after the last batch: then again, at another moment.
        let target = (0..100).find_map(|attempt| {
            let under = directory.path().join(format!("{engine}-{attempt}"));
            std::fs::create_dir(&under).expect("a directory");
            let target = node::url(engine, &under);
            killed(&source, &target, Duration::from_millis(attempt * 3));
            let seen = admit_one(&["store", "inspect", &target, "--json"]).output().expect("it runs");
            (code(&seen) == 0 && document(&seen)["migrating"] == true).then_some(target)
        });
        let target = target.expect("one of a hundred was cut off half way");
        let store = node::open(&target).await;
        let refused = GroupCommit::open(store, CommitConfig::new()).await.expect_err("it is no store yet");
        assert!(matches!(refused, CommitOpenError::Migrating), "{refused}");
        assert!(refused.to_string().contains("admit-one store migrate"), "{refused}");
        for command in [
            &["store", "renew", &target][..],
            &["store", "clear", &target, "--record", &node::record(Table::Receiver, 0), "--yes"],
        ] {
            assert_eq!(once(command, 5)["error"]["kind"], "migrating");
        }
        once(&["store", "migrate", &source, &target], 0);
        assert_eq!(inspection(&source)["receivers"], inspection(&target)["receivers"], "{engine}");
        assert_eq!(once(&["store", "migrate", &source, &target], 5)["error"]["kind"], "target_in_use");
    }
}

/// Every key of a document, whatever it is under.
fn keys(document: &Value, into: &mut BTreeSet<String>) {
    match document {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_every_document_is_on_the_page_and_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let (url, target) =
        (node::url("journal", directory.path()), node::url("journal", &directory.path().join("target")));
    std::fs::create_dir(directory.path().join("target")).expect("a directory");
    std::fs::create_dir(directory.path().join("bench")).expect("a directory");
    node::admitted(&url, 3).await;
    node::damage(&url, Table::Receiver, 1).await;
    let bench = format!("journal:{}", directory.path().join("bench").display());
    let record = node::record(Table::Receiver, 1);
    let into = directory.path().to_str().expect("text");
    let documents = [
        once(&["store", "inspect", &url], 0),
        once(&["store", "verify", &url], 1),
        once(&["store", "clear", &url, "--record", &record, "--yes"], 0),
        once(&["store", "renew", &url], 0),
        once(&["store", "migrate", &url, &target], 0),
        once(&["store", "bench", &bench, "--in-flight", "1", "--time", "1"], 0),
        once(&["wire", "decode", "--hex", "41444d49544f4e45"], 1),
        once(&["completions", "bash"], 0),
        once(&["man"], 0),
        once(&["man", "--into", into], 0),
        once(&["store", "inspect", &target, "--what"], 2),
    ];
    let mut found = BTreeSet::new();
    documents.iter().for_each(|document| keys(document, &mut found));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).expect("the page");
    let section = page.split_once("\n### Fields of `--json`\n").expect("the section").1;
    let section = section.split("\n## ").next().expect("a section");
    let documented = section.lines().filter(|line| line.starts_with("| `")).flat_map(|line| {
        let cell = line.split(" | ").next().expect("a cell");
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(found, documented.collect::<BTreeSet<_>>());
}
