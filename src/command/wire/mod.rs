//! `wire decode`: a frame's fields as they stand in it, and the checks that a receiver makes of it.
//!
//! The checks are the crate's own decoder, classifier and signature checks, in the order in which a receiver makes them.
//! The fields are read by the layout alone, so that those of a frame that is refused show as far as the layout tells
//! where they are.

mod checks;
mod fields;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use admit_one::message::MESSAGE_LIMIT;
use bytes::Bytes;
use serde_json::json;

use self::{
    checks::{Check, Verdict},
    fields::Field,
};
use super::{
    arguments::Decode,
    exit::{Exit, Failure},
    output::{self, Done, Paint},
};

/// The most bytes that are read: an original of chunks in hex digits, each with white space around it.
const READ_MAX: u64 = 4 * MESSAGE_LIMIT as u64;
/// How many of a field's first bytes are shown to people; `--json` has all of them.
const SHOWN: usize = 32;

/// Decodes what is asked for.
pub(super) fn decode(asked: &Decode) -> Result<Done, Failure> {
    let frame = read(asked)?;
    let fields = if asked.original { fields::of_original(&frame) } else { fields::of_frame(&frame) };
    let known = fields.iter().map(|field| field.bytes.len()).sum();
    let rest = frame.get(known..).unwrap_or_default();
    let checks = checks::of(asked, &frame);
    let failed = checks.iter().find(|check| check.verdict == Verdict::Failed);
    let exit = if failed.is_some() { Exit::CheckFailed } else { Exit::Done };
    let json = json!({
        "length": frame.len(),
        "fields": fields.iter().map(Field::json).collect::<Vec<_>>(),
        "unread": hex::encode(rest),
        "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
        "refused_by": failed.map(|check| check.name),
    });
    Ok(Done { exit, json, text: text(output::paint(), frame.len(), &fields, rest, &checks) })
}

fn text(paint: Paint, length: usize, fields: &[Field], rest: &[u8], checks: &[Check]) -> String {
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let mut text = format!("{}\n", paint.strong(&format!("{length} bytes")));
    for Field { name, offset, bytes, value } in fields {
        let size = bytes.len();
        text += &format!("{} {name:<width$}  {value}\n", paint.faint(&format!("{offset:>6} {size:>5}")));
    }
    if !rest.is_empty() {
        let offset = length.saturating_sub(rest.len());
        let line = format!("{offset:>6} {:>5}", rest.len());
        text += &format!("{} {:<width$}  {}\n", paint.faint(&line), "not read", fields::short(rest, SHOWN));
    }
    text.push('\n');
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, verdict, detail } in checks {
        let verdict = match verdict {
            Verdict::Passed => paint.good("passed     "),
            Verdict::Failed => paint.bad("FAILED     "),
            Verdict::NotChecked => paint.faint("not checked"),
        };
        text += format!("{verdict} {name:<width$}  {detail}").trim_end();
        text.push('\n');
    }
    text
}

fn read(asked: &Decode) -> Result<Bytes, Failure> {
    if let Some(digits) = &asked.hex {
        return from_hex(digits.as_bytes());
    }
    let path = asked.file.clone().unwrap_or_else(|| PathBuf::from("-"));
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(READ_MAX).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(&path).and_then(|file| file.take(READ_MAX).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::io("read", &path, &error))?;
    if asked.text { from_hex(&bytes) } else { Ok(bytes.into()) }
}

fn from_hex(digits: &[u8]) -> Result<Bytes, Failure> {
    let digits = digits.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>();
    match hex::decode(digits) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Failure::new(Exit::Usage, "hex", format!("not a frame in hex digits: {error}"))),
    }
}
