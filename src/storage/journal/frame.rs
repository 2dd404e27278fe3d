//! A batch as bytes: what is in it (the manifest), what was in the one before (its manifest again), and the records.
//!
//! The manifest names each record and its length, so that damage to one record moves no other, and a record whose
//! bytes are lost can still be named. It stands twice, in its own frame and in the next one, so that a frame whose
//! head is lost can be read by its successor's copy.

use bytes::Bytes;

use crate::storage::{KEY_MAX, Key, RecordName, Table, VALUE_MAX};

const MAGIC: [u8; 4] = *b"AOF1";
const CHECK: usize = 16;
const FIXED: usize = 48;
const ENTRY: usize = 1 + 32 + 4;
const RECORD_FIXED: usize = CHECK + 8 + 4 + 1 + 1 + 2 + 4;
/// The longest explanation kept of an unreadable record, in bytes.
const REASON_MAX: usize = 128;
/// The most bytes kept of what is left of an unreadable record: a whole record of any kind.
const REMAINS_MAX: usize = RECORD_FIXED + KEY_MAX + VALUE_MAX;

/// What a frame says of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Its key and whole value.
    Put { key: Key, value: Bytes },
    /// That it is gone.
    Removal { key: Key },
    /// That it is gone, whatever its key was: an operator discarded it by its name.
    Discarded,
    /// That it was found unreadable, why, and the bytes that were in its place.
    Unreadable { reason: String, remains: Bytes },
}

impl Content {
    pub(super) fn unreadable(reason: &str, remains: &[u8]) -> Self {
        let reason = reason.chars().filter(char::is_ascii).take(REASON_MAX).collect();
        let remains = Bytes::copy_from_slice(remains.get(..REMAINS_MAX).unwrap_or(remains));
        Content::Unreadable { reason, remains }
    }

    fn parts(&self) -> (u8, &[u8], &[u8]) {
        match self {
            Content::Put { key, value } => (1, key, value),
            Content::Removal { key } => (2, key, &[]),
            Content::Unreadable { reason, remains } => (3, reason.as_bytes(), remains),
            Content::Discarded => (4, &[], &[]),
        }
    }

    /// The bytes that the record takes in a frame, its entry in the manifest included.
    pub(super) fn encoded_len(&self) -> usize {
        let (_, first, second) = self.parts();
        ENTRY + RECORD_FIXED + first.len() + second.len()
    }

    /// The bytes that count against the budget: key and value.
    pub(super) fn held_len(&self) -> usize {
        let (_, first, second) = self.parts();
        first.len() + second.len()
    }
}

/// A record's name and the length of its bytes in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: RecordName,
    pub(super) length: u32,
}

/// The records of one batch, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The batch's number; 0 where there is no such batch.
    pub(super) batch: u64,
    /// Where its first record begins in its frame.
    pub(super) records_at: u32,
    pub(super) entries: Vec<Entry>,
}

/// The head of a frame, verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Segments below this one are no longer needed.
    pub(super) base: u64,
    /// How many sectors the frame takes.
    pub(super) sectors: u32,
    pub(super) own: Manifest,
    pub(super) previous: Manifest,
}

/// The length of the frame of `items` that repeats `previous`.
pub(super) fn length(items: &[(RecordName, Content)], previous: &Manifest) -> usize {
    let records: usize = items.iter().map(|(_, content)| content.encoded_len()).sum();
    FIXED + CHECK + records + previous.entries.len() * ENTRY
}

/// Writes the frame of `items` into `out`, which is overwritten, and returns its manifest.
///
/// `None` where a length does not fit the format: the caller bounds batches far below.
pub(super) fn encode(
    key: &[u8; 32],
    batch: u64,
    base: u64,
    sectors: u32,
    items: &[(RecordName, Content)],
    previous: &Manifest,
    out: &mut Vec<u8>,
) -> Option<Manifest> {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&u32::try_from(items.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&u32::try_from(previous.entries.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&sectors.to_le_bytes());
    out.extend_from_slice(&batch.to_le_bytes());
    out.extend_from_slice(&base.to_le_bytes());
    out.extend_from_slice(&previous.batch.to_le_bytes());
    out.extend_from_slice(&previous.records_at.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let mut own = Manifest { batch, records_at: 0, entries: Vec::with_capacity(items.len()) };
    for (name, content) in items {
        own.entries.push(Entry { name: *name, length: u32::try_from(content.encoded_len() - ENTRY).ok()? });
    }
    for Entry { name, length } in own.entries.iter().chain(&previous.entries) {
        out.push(name.table.tag());
        out.extend_from_slice(&name.hash);
        out.extend_from_slice(&length.to_le_bytes());
    }
    let check = checksum(key, out);
    out.extend_from_slice(&check);
    own.records_at = u32::try_from(out.len()).ok()?;
    for ((name, content), slot) in items.iter().zip(0_u32..) {
        let (kind, first, second) = content.parts();
        let start = out.len();
        out.extend_from_slice(&[0; CHECK]);
        out.extend_from_slice(&batch.to_le_bytes());
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(&[kind, name.table.tag()]);
        out.extend_from_slice(&u16::try_from(first.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&u32::try_from(second.len()).ok()?.to_le_bytes());
        out.extend_from_slice(first);
        out.extend_from_slice(second);
        let (place, record) = out.get_mut(start..)?.split_first_chunk_mut::<CHECK>()?;
        *place = checksum(key, record);
    }
    Some(own)
}

/// How many bytes the head of a frame takes that begins with `bytes`; `None` where no frame begins so.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut rest = Reader(bytes);
    if rest.array()? != MAGIC {
        return None;
    }
    let entries = u64::from(rest.u32()?) + u64::from(rest.u32()?);
    usize::try_from(entries).ok()?.checked_mul(ENTRY)?.checked_add(FIXED + CHECK)
}

/// Reads the head of a frame. `bytes` may go on past it. `None` where it is not whole.
pub(super) fn decode_head(key: &[u8; 32], bytes: &[u8]) -> Option<Head> {
    let head = bytes.get(..head_length(bytes)?)?;
    let (body, check) = head.split_last_chunk::<CHECK>()?;
    if checksum(key, body) != *check {
        return None;
    }
    let mut rest = Reader(body);
    rest.array::<4>()?;
    let (own, previous, sectors) = (rest.u32()?, rest.u32()?, rest.u32()?);
    let (batch, base) = (rest.u64()?, rest.u64()?);
    let (previous_batch, previous_at) = (rest.u64()?, rest.u32()?);
    rest.array::<4>()?;
    let mut entries = |count: u32| (0..count).map(|_| rest.entry()).collect::<Option<Vec<_>>>();
    let own = Manifest { batch, records_at: u32::try_from(head.len()).ok()?, entries: entries(own)? };
    let previous = Manifest { batch: previous_batch, records_at: previous_at, entries: entries(previous)? };
    Some(Head { base, sectors, own, previous })
}

/// Reads the records that `manifest` names from the payload of their frame. One that is not whole comes out as
/// [`Content::Unreadable`]; the flag says whether all were whole.
pub(super) fn decode_records(
    key: &[u8; 32],
    manifest: &Manifest,
    payload: &[u8],
) -> (Vec<(RecordName, Content)>, bool) {
    let mut at = usize::try_from(manifest.records_at).unwrap_or(usize::MAX);
    let mut all = true;
    let records = manifest.entries.iter().zip(0_u32..).map(|(entry, slot)| {
        let end = at.saturating_add(usize::try_from(entry.length).unwrap_or(usize::MAX));
        let bytes = payload.get(at..end);
        at = end;
        let content = match bytes {
            None => Err("its place lies outside its frame"),
            Some(bytes) => decode_record(key, manifest.batch, slot, &entry.name, bytes),
        };
        let content = content.unwrap_or_else(|reason| {
            all = false;
            Content::unreadable(reason, bytes.unwrap_or(&[]))
        });
        (entry.name, content)
    });
    (records.collect(), all)
}

fn decode_record(
    key: &[u8; 32],
    batch: u64,
    slot: u32,
    name: &RecordName,
    bytes: &[u8],
) -> Result<Content, &'static str> {
    let (check, record) = bytes.split_first_chunk::<CHECK>().ok_or("it is too short")?;
    if checksum(key, record) != *check {
        return Err("its checksum does not match");
    }
    let mut rest = Reader(record);
    let parts = (|| {
        let place = (rest.u64()?, rest.u32()?);
        let [kind, table] = rest.array()?;
        let (first, second) = (rest.u16()?, rest.u32()?);
        let first = rest.take(usize::from(first))?;
        Some((place, kind, table, first, rest.take(usize::try_from(second).ok()?)?))
    })();
    let (place, kind, table, first, second) = parts.ok_or("it ends early")?;
    if place != (batch, slot) {
        return Err("it belongs to another place");
    }
    if Table::from_tag(table) != Some(name.table) {
        return Err("it belongs to another table");
    }
    match kind {
        1 | 2 if RecordName::of(name.table, first) != *name => Err("it belongs to another key"),
        1 => Ok(Content::Put { key: Bytes::copy_from_slice(first), value: Bytes::copy_from_slice(second) }),
        2 => Ok(Content::Removal { key: Bytes::copy_from_slice(first) }),
        3 => Ok(Content::Unreadable {
            reason: String::from_utf8_lossy(first).into_owned(),
            remains: Bytes::copy_from_slice(second),
        }),
        4 => Ok(Content::Discarded),
        _ => Err("its kind is unknown"),
    }
}

fn checksum(key: &[u8; 32], bytes: &[u8]) -> [u8; CHECK] {
    let hash = blake3::keyed_hash(key, bytes);
    let [check @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *hash.as_bytes();
    check
}

/// Takes little-endian integers off the front of bytes.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn entry(&mut self) -> Option<Entry> {
        let [tag] = self.array()?;
        let name = RecordName { table: Table::from_tag(tag)?, hash: self.array()? };
        Some(Entry { name, length: self.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn items() -> Vec<(RecordName, Content)> {
        let name = |key: &[u8]| RecordName::of(Table::Receiver, key);
        vec![
            (name(b"a"), Content::Put { key: "a".into(), value: vec![1; 700].into() }),
            (name(b"b"), Content::Removal { key: "b".into() }),
            (name(b"c"), Content::unreadable("torn", &[5; 40])),
            (name(b""), Content::Put { key: Bytes::new(), value: Bytes::new() }),
        ]
    }

    fn encoded() -> (Vec<u8>, Manifest, Manifest) {
        let previous = Manifest {
            batch: 8,
            records_at: 77,
            entries: vec![Entry { name: RecordName::of(Table::Clock, b"birth"), length: 60 }],
        };
        let mut out = vec![1; 9];
        let own = encode(&KEY, 9, 4, 3, &items(), &previous, &mut out).expect("fits");
        assert_eq!(out.len(), length(&items(), &previous));
        (out, own, previous)
    }

    #[test]
    fn a_frame_reads_back() {
        let (bytes, own, previous) = encoded();
        let head = decode_head(&KEY, &bytes).expect("whole");
        assert_eq!(head, Head { base: 4, sectors: 3, own: own.clone(), previous });
        assert_eq!(decode_records(&KEY, &own, &bytes), (items(), true));
    }

    #[test]
    fn damage_to_a_record_is_that_records_alone_and_damage_to_the_head_is_seen() {
        let (bytes, own, _) = encoded();
        let records_at = own.records_at as usize;
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            if at < records_at {
                assert_eq!(decode_head(&KEY, &changed), None, "byte {at}");
                continue;
            }
            let (records, all) = decode_records(&KEY, &own, &changed);
            assert!(!all);
            let touched = records.iter().zip(items()).filter(|(found, wrote)| **found != *wrote).count();
            assert_eq!(touched, 1, "byte {at}");
        }
    }

    #[test]
    fn cut_bytes_another_key_and_another_slot_are_refused_without_a_panic() {
        let (bytes, mut own, _) = encoded();
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            assert!(decode_head(&KEY, cut).is_none() || length >= own.records_at as usize);
            assert!(!decode_records(&KEY, &own, cut).1 || length == bytes.len());
        }
        assert_eq!(decode_head(&[4; 32], &bytes), None);
        own.batch = 10;
        assert!(!decode_records(&KEY, &own, &bytes).1);
    }

    #[test]
    fn what_is_kept_of_an_unreadable_record_is_bounded() {
        let content = Content::unreadable(&"x".repeat(1_000), &[0; 20_000]);
        assert_eq!(content.held_len(), REASON_MAX + REMAINS_MAX);
    }
}
