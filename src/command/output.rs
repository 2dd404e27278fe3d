//! What a command says: text for people, one JSON document for scripts, and colours only where a person looks.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::{Value, json};

use super::exit::{Exit, Failure};

/// What a command gives when it ran to its end.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) exit: Exit,
    /// The document of `--json`.
    pub(crate) json: Value,
    /// The text of everyone else, with its last line's end.
    pub(crate) text: String,
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Colours where `terminal` is one, and `NO_COLOR` is not set to anything.
    pub(crate) fn of(terminal: bool) -> Self {
        let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(terminal && !asked_not_to)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes what a command gave, and says what the process ends with. Under `--json` standard output gets exactly one
/// document, whatever happened.
pub(crate) fn finish(as_json: bool, outcome: Result<Done, Failure>) -> Exit {
    match outcome {
        Ok(done) if as_json => {
            print_document(&done.json);
            done.exit
        }
        Ok(done) => {
            print(&done.text);
            done.exit
        }
        Err(failure) if as_json => {
            print_document(&json!({
                "error": { "exit": failure.exit.code(), "kind": failure.kind, "message": failure.message },
            }));
            failure.exit
        }
        Err(failure) => {
            let paint = Paint::of(io::stderr().is_terminal());
            // Nobody is left to be told where standard error is gone.
            let _ = writeln!(io::stderr(), "{} {}", paint.bad("error:"), failure.message);
            failure.exit
        }
    }
}

/// Whether colours belong on standard output.
pub(crate) fn paint() -> Paint {
    Paint::of(io::stdout().is_terminal())
}

fn print_document(document: &Value) {
    print(&format!("{document:#}\n"));
}

fn print(text: &str) {
    // A reader that has seen enough, such as `head`, closes the pipe: what was asked is done all the same.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
}
