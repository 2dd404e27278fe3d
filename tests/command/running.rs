//! Running the binary, and what is the same for every command.

use std::process::Output;

use serde_json::Value;

/// The binary, with nothing of this process's environment that changes what it says.
pub fn admit_one(arguments: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_admit-one"));
    command.env_remove("NO_COLOR").args(arguments);
    command
}

/// What it ended with.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("it was killed: {output:?}"))
}

/// Standard output of a run under `--json`: exactly one document.
pub fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Runs it, and again under `--json`: both end with `code`. Gives the text and the document.
pub fn both(arguments: &[&str], expected: i32) -> (String, Value) {
    let plain = admit_one(arguments).output().expect("it runs");
    assert_eq!(code(&plain), expected, "{plain:?}");
    let json = admit_one(&[arguments, &["--json"]].concat()).output().expect("it runs");
    assert_eq!(code(&json), expected, "{json:?}");
    let document = document(&json);
    if let Some(error) = document.get("error") {
        assert_eq!(error["exit"], expected);
        assert!(error["kind"].is_string() && error["message"].is_string());
        assert!(plain.stdout.is_empty(), "an error is not output");
        let said = String::from_utf8(plain.stderr).expect("text");
        assert!(said.contains(error["message"].as_str().expect("text")), "{said}");
        return (said, document);
    }
    (String::from_utf8(plain.stdout).expect("text"), document)
}

/// Runs it once, under `--json`, where it changes something.
pub fn once(arguments: &[&str], expected: i32) -> Value {
    let output = admit_one(&[arguments, &["--json"]].concat()).output().expect("it runs");
    assert_eq!(code(&output), expected, "{output:?}");
    document(&output)
}

#[test]
fn arguments_that_are_not_understood_end_with_2_and_are_a_document_under_json() {
    for arguments in
        [&["stroe"][..], &["store", "bench"], &["wire", "decode", "--limit", "-1", "x"], &["wire", "decode"]]
    {
        let plain = admit_one(arguments).output().expect("it runs");
        assert_eq!(code(&plain), 2);
        assert!(plain.stdout.is_empty() && !plain.stderr.is_empty());
        let json = admit_one(&[&["--json"], arguments].concat()).output().expect("it runs");
        assert_eq!(code(&json), 2);
        assert_eq!(document(&json)["error"]["kind"], "usage");
    }
}

#[test]
fn help_and_version_end_with_0_and_help_says_every_exit_code() {
    let version = admit_one(&["--version"]).output().expect("it runs");
    assert_eq!(code(&version), 0);
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), concat!("admit-one ", env!("CARGO_PKG_VERSION")));
    for arguments in [&["--help"][..], &["store", "--help"], &["store", "bench", "--help"], &["wire", "decode", "-h"]] {
        let help = admit_one(arguments).output().expect("it runs");
        assert_eq!(code(&help), 0);
        let help = String::from_utf8(help.stdout).expect("text");
        for code in 0..=6 {
            assert!(help.contains(&format!("\n  {code}  ")), "{code} in {help}");
        }
    }
}

#[test]
fn nothing_is_coloured_where_nobody_looks() {
    for arguments in [&["wire", "decode", "--hex", "00"][..], &["stroe"], &["--help"], &["wire", "decode", "/nowhere"]]
    {
        let output = admit_one(arguments).output().expect("it runs");
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{output:?}");
    }
}
