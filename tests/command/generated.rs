//! Completions and manual pages.

use crate::running::{admit_one, both, code};

#[test]
fn every_shell_has_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (script, document) = both(&["completions", shell], 0);
        assert_eq!(document["script"], script);
        for word in ["store", "bench", "wire", "decode", "completions", "man"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(code(&admit_one(&["completions", "no-shell"]).output().expect("it runs")), 2);
}

#[test]
fn the_manual_has_a_page_of_every_command() {
    let (page, document) = both(&["man"], 0);
    assert_eq!(document["page"], page);
    assert!(page.contains(".TH admit-one 1") && page.contains("Exit codes"), "{page}");

    let directory = tempfile::tempdir().expect("a directory");
    let into = directory.path().to_str().expect("text");
    both(&["man", "--into", into], 0);
    for page in ["admit-one", "admit-one-store", "admit-one-store-bench", "admit-one-wire-decode"] {
        let text = std::fs::read_to_string(directory.path().join(format!("{page}.1"))).expect("a page");
        assert!(text.contains(".TH"), "{text}");
    }
    both(&["man", "--into", "/nowhere/at/all"], 4);
}

#[test]
fn bash_takes_its_completions() {
    // Where there is a bash at all.
    let (script, _) = both(&["completions", "bash"], 0);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("completions");
    std::fs::write(&path, script).expect("written");
    if let Ok(status) = std::process::Command::new("bash").arg("-n").arg(&path).status() {
        assert!(status.success());
    }
}
