//! What a run came to, as a table and as one JSON object.

use std::fmt;

use serde::Serialize;

use crate::protocol::Reply;

/// What a step must come to.
pub enum Expected<'a> {
    /// It ran, and nothing like its answer was there before.
    Ran,
    /// Nothing ran, and the answer is this one, byte for byte.
    Same(&'a str),
    /// It was refused, with this code and this said of what was shown.
    Refused(&'a str, &'a str),
}

#[derive(Debug, Serialize)]
pub struct Step {
    pub part: &'static str,
    pub step: String,
    pub expected: String,
    pub got: String,
    /// The answer, or why there is none.
    pub answer: String,
    /// How often the tool ran until here, counted in what it does outside of the store.
    pub notes: usize,
    pub holds: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub steps: Vec<Step>,
    pub kills: usize,
    /// Every step came to what it must.
    pub holds: bool,
}

impl Expected<'_> {
    fn said(&self) -> String {
        match self {
            Expected::Ran => "accepted, ran".into(),
            Expected::Same(_) => "the same bytes, nothing ran".into(),
            Expected::Refused(code, consumed) => format!("{code}, consumed: {consumed}"),
        }
    }

    /// How often the tool runs for it.
    pub const fn runs(&self) -> usize {
        match self {
            Expected::Ran => 1,
            Expected::Same(_) | Expected::Refused(..) => 0,
        }
    }
}

impl Step {
    /// What `reply` comes to, where the tool has run `notes` times and should have run `expected_notes` times.
    pub fn new(
        part: &'static str,
        step: impl Into<String>,
        expected: &Expected<'_>,
        reply: &Reply,
        (notes, expected_notes): (usize, usize),
    ) -> Self {
        let (got, answer) = match (&reply.answer, expected) {
            (Ok(answer), Expected::Same(bytes)) if reply.replayed && answer == bytes => {
                (expected.said(), answer.clone())
            }
            (Ok(answer), _) if reply.replayed => ("other bytes, nothing ran".into(), answer.clone()),
            (Ok(answer), _) => (Expected::Ran.said(), answer.clone()),
            (Err(refused), _) => (Expected::Refused(&refused.code, &refused.consumed).said(), refused.reason.clone()),
        };
        let expected = expected.said();
        let holds = got == expected && notes == expected_notes;
        Self { part, step: step.into(), expected, got, answer, notes, holds }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = "";
        for step in &self.steps {
            if step.part != part {
                part = step.part;
                writeln!(f, "\n{part}")?;
            }
            let verdict = if step.holds { "" } else { "  ← NOT AS IT MUST BE" };
            writeln!(f, "  {:<58} {}{verdict}", step.step, step.got)?;
            if !step.holds {
                writeln!(
                    f,
                    "    expected {}; the tool ran {} times by now: {}",
                    step.expected, step.notes, step.answer
                )?;
            }
        }
        let runs = self.steps.last().map_or(0, |step| step.notes);
        writeln!(f, "\nthe tool ran {runs} times, the server was killed {} times", self.kills)?;
        writeln!(f, "{}", if self.holds { "every step went as it must" } else { "this is not what was to happen" })
    }
}
