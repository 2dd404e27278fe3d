//! What is different where a person looks: at a terminal of its own, by `script` of util-linux.

use std::process::{Command, Stdio};

use crate::running::code;

/// Runs the command at a terminal, with `answer` typed into it. Gives what it ended with and what the terminal showed.
pub fn at_a_terminal(arguments: &[&str], answer: &str, environment: &[(&str, &str)]) -> (i32, String) {
    use std::io::Write as _;
    let quoted = arguments.iter().map(|word| format!(" '{word}'")).collect::<String>();
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("'{}'{quoted}", env!("CARGO_BIN_EXE_admit-one")))
        .arg("/dev/null")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that asks nothing may have ended before.
    let _ = writeln!(stdin, "{answer}");
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    (code(&output), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_terminal_has_colours_unless_it_is_asked_not_to() {
    for arguments in [&["wire", "decode", "--hex", "00"][..], &["wire", "decode", "/nowhere"]] {
        let (_, shown) = at_a_terminal(arguments, "", &[]);
        assert!(shown.contains("\u{1b}["), "{shown}");
        let (_, shown) = at_a_terminal(arguments, "", &[("NO_COLOR", "1")]);
        assert!(!shown.contains("\u{1b}["), "{shown}");
    }
    let (code, shown) = at_a_terminal(&["wire", "decode", "--hex", "00", "--json"], "", &[]);
    assert!(code == 1 && !shown.contains('\u{1b}'), "a document is never coloured: {shown}");
}

#[test]
fn long_work_shows_how_far_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = format!("journal:{}", directory.path().display());
    let bench = ["store", "bench", &place, "--in-flight", "1,8", "--time", "200"];
    let (code, shown) = at_a_terminal(&bench, "", &[]);
    assert!(code == 0 && shown.contains("1/3") && shown.contains("in flight"), "{shown}");
    let piped = crate::running::admit_one(&bench).output().expect("it runs");
    assert!(piped.stderr.is_empty(), "{piped:?}");
}
