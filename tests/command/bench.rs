//! `store bench`: figures of real admissions on a fresh store, which is gone afterwards.

use std::{path::Path, process::Stdio, time::Duration};

use crate::running::{admit_one, both, code, document};

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("a directory").next().is_none()
}

fn place(engine: &str, directory: &Path) -> String {
    format!("{engine}:{}", directory.display())
}

#[test]
fn each_count_has_its_figures_beside_the_floor_and_nothing_is_left_behind() {
    for engine in admit_one::StoreUrl::engines() {
        let directory = tempfile::tempdir().expect("a directory");
        let (svg, at) = (directory.path().join("figures.svg"), directory.path().join("disk"));
        std::fs::create_dir(&at).expect("a directory");
        let (place, drawn) = (place(engine, &at), svg.to_str().expect("text"));
        let (text, document) =
            both(&["store", "bench", &place, "--in-flight", "1,8,64", "--time", "50", "--svg", drawn], 0);
        assert!(text.contains("in flight") && text.contains("flush floor") && text.contains(drawn), "{text}");
        assert_eq!((&document["engine"], &document["svg"]), (&engine.into(), &drawn.into()));
        assert!(document["flush_floor"]["flushes"].as_u64() > Some(0));
        let admissions = document["admissions"].as_array().expect("a list");
        let counts = admissions.iter().map(|of| of["in_flight"].as_u64().expect("a number")).collect::<Vec<_>>();
        assert_eq!(counts, [1, 8, 64]);
        for of in admissions {
            let number = |name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name} of {of}"));
            assert!(number("admitted") >= number("batches") && number("batches") > 0.0, "{of}");
            assert!(number("per_second") > 0.0 && number("batch") >= 1.0 && number("seconds") >= 0.05, "{of}");
            let latency = ["p50", "p99", "greatest"].map(|name| of["latency_ms"][name].as_f64().expect("a number"));
            assert!(latency.is_sorted() && latency[0] > 0.0, "{latency:?}");
        }
        // One alone has a batch of its own.
        assert_eq!(admissions[0]["batch"], 1.0);
        let svg = std::fs::read_to_string(&svg).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.contains("flush floor"));
        assert!(is_empty(&at));
    }
}

#[test]
fn what_cannot_be_measured_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = place("journal", &directory.path().join("missing"));
    let (_, document) = both(&["store", "bench", &missing], 4);
    assert_eq!(document["error"]["kind"], "not_a_directory");
    drop(admit_one::Journal::open(directory.path().join("store"), admit_one::JournalConfig::default()));
    let store = directory.path().join("store");
    let held = std::fs::read_dir(&store).expect("a store").count();
    let (_, document) = both(&["store", "bench", &place("journal", &store)], 5);
    assert_eq!(document["error"]["kind"], "store");
    assert_eq!(std::fs::read_dir(&store).expect("a store").count(), held);
    for wrong in ["tape:/tmp", "journal", "journal:"] {
        let (_, document) = both_usage(wrong);
        assert_eq!(document["error"]["kind"], "usage");
    }
}

/// The text of a usage error differs from its document's by what clap adds for people.
fn both_usage(place: &str) -> (String, serde_json::Value) {
    let plain = admit_one(&["store", "bench", place]).output().expect("it runs");
    let json = admit_one(&["store", "bench", place, "--json"]).output().expect("it runs");
    assert_eq!((code(&plain), code(&json)), (2, 2));
    (String::from_utf8(plain.stderr).expect("text"), document(&json))
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_with_6_and_leaves_nothing_behind() {
    for signal in ["INT", "TERM"] {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place("journal", directory.path());
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_admit-one"))
            .args(["store", "bench", &place, "--time", "600000", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        // Once it has begun to make something it also listens.
        while is_empty(directory.path()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let path = std::fs::read_dir(directory.path()).expect("a directory").next().expect("one").expect("read").path();
        while !path.join("floor").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(told.expect("kill runs").success());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(code(&output), 6, "{output:?}");
        assert_eq!(document(&output)["error"]["kind"], "interrupted");
        assert!(is_empty(directory.path()));
    }
}
