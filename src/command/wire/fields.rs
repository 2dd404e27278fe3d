//! The fields of a frame by its layout, as far as it tells where they are. Total: any bytes give fields, and what they
//! hold stands in the frame from its first byte on without a gap.

use admit_one::{
    identity::{Delegation, Did, Signature},
    message::{Incarnation, MARKER, MAX_HOP_BUDGET},
};
use serde_json::{Value, json};

use super::SHOWN;

/// One field as it stands in the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Where it begins.
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
    /// What it says.
    pub(super) value: String,
}

impl Field {
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "offset": self.offset,
            "length": self.bytes.len(),
            "hex": hex::encode(&self.bytes),
            "value": self.value,
        })
    }
}

/// The first `most` bytes in hex digits, and how many more there are.
pub(super) fn short(bytes: &[u8], most: usize) -> String {
    match bytes.split_at_checked(most) {
        Some((first, rest)) if !rest.is_empty() => format!("{}… and {} more", hex::encode(first), rest.len()),
        _ => hex::encode(bytes),
    }
}

/// The fields of a frame.
pub(super) fn of_frame(frame: &[u8]) -> Vec<Field> {
    let mut walk = Walk { frame, at: 0, fields: Vec::new() };
    // Where it returns nothing, the frame ends inside a field or has a tag that tells no layout.
    let _ = walk.frame();
    walk.fields
}

/// The fields of a self-contained transaction.
pub(super) fn of_original(encoded: &[u8]) -> Vec<Field> {
    let mut walk = Walk { frame: encoded, at: 0, fields: Vec::new() };
    // As above.
    let _ = walk.transaction();
    walk.fields
}

struct Walk<'a> {
    frame: &'a [u8],
    at: usize,
    fields: Vec<Field>,
}

impl<'a> Walk<'a> {
    fn frame(&mut self) -> Option<()> {
        let marker = self.take("marker", MARKER.len(), |bytes| match bytes == MARKER {
            true => "ADMITONE".to_owned(),
            false => format!("{} is another protocol's", hex::encode(bytes)),
        })?;
        if marker != MARKER {
            return None;
        }
        self.key("next hop")?;
        self.take("hop budget", 1, |bytes| match bytes {
            [budget] if *budget > MAX_HOP_BUDGET => format!("{budget}, over {MAX_HOP_BUDGET}"),
            bytes => number(bytes).to_string(),
        })?;
        self.proof("hop")?;
        self.transaction()
    }

    fn transaction(&mut self) -> Option<()> {
        self.key("destination")?;
        self.take("tx_id", 16, digits)?;
        self.take("incarnation", 8, |bytes| {
            let incarnation = Incarnation(number(bytes));
            format!("{} (begun at {} ms)", incarnation.0, incarnation.wall())
        })?;
        self.number("sequence", 8)?;
        self.take("issued-at", 8, |bytes| format!("{} ms", number(bytes)))?;
        self.take("ttl", 8, |bytes| format!("{} ms", number(bytes)))?;
        match self.tag("kind", &["whole", "chunk"])? {
            0 => {}
            _ => {
                self.number("chunk index", 4)?;
                self.number("chunk count", 4)?;
                self.take("original's digest", 32, digits)?;
                self.number("original's length", 8)?;
            }
        }
        self.proof("origin")?;
        let length = self.number("data length", 4)?;
        self.take("data", usize::try_from(length).ok()?, |bytes| short(bytes, SHOWN))?;
        Some(())
    }

    fn proof(&mut self, whose: &str) -> Option<()> {
        let slot = format!("{whose}'s slot");
        match self.tag(&slot, &["own", "inline", "digest"])? {
            0 => self.key(&format!("{slot}, key"))?,
            1 => {
                // The parts of `Delegation::LEN` bytes.
                const { assert!(Delegation::LEN == 2 * Did::LEN + 16 + Signature::LEN) };
                self.key(&format!("{slot}, delegator"))?;
                self.key(&format!("{slot}, delegatee"))?;
                self.take(&format!("{slot}, issued-at"), 8, |bytes| format!("{} ms", number(bytes)))?;
                self.take(&format!("{slot}, ttl"), 8, |bytes| format!("{} ms", number(bytes)))?;
                self.take(&format!("{slot}, signature"), Signature::LEN, digits)?;
            }
            _ => drop(self.take(&format!("{slot}, digest"), 32, digits)?),
        }
        self.take(&format!("{whose}'s signature"), Signature::LEN, digits)?;
        Some(())
    }

    /// A byte that chooses one of `names`; nothing for another.
    fn tag(&mut self, name: &str, names: &[&str]) -> Option<usize> {
        let named = |bytes: &[u8]| names.get(usize::from(*bytes.first()?)).copied();
        let bytes = self.take(name, 1, |bytes| match named(bytes) {
            Some(found) => found.to_owned(),
            None => format!("{} has no meaning", number(bytes)),
        })?;
        named(bytes).and_then(|_| bytes.first().copied()).map(usize::from)
    }

    fn key(&mut self, name: &str) -> Option<()> {
        self.take(name, Did::LEN, |bytes| {
            let refused = <&[u8; Did::LEN]>::try_from(bytes).map(|bytes| Did::from_bytes(bytes).err());
            match refused {
                Ok(Some(error)) => format!("{} ({error})", hex::encode(bytes)),
                _ => hex::encode(bytes),
            }
        })?;
        Some(())
    }

    fn number(&mut self, name: &str, length: usize) -> Option<u64> {
        self.take(name, length, |bytes| number(bytes).to_string()).map(number)
    }

    fn take(&mut self, name: &str, length: usize, value: impl FnOnce(&[u8]) -> String) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.frame.get(self.at..end)?;
        let value = value(bytes);
        self.fields.push(Field { name: name.to_owned(), offset: self.at, bytes: bytes.to_vec(), value });
        self.at = end;
        Some(bytes)
    }
}

fn digits(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// The number that at most 8 big-endian bytes are.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
