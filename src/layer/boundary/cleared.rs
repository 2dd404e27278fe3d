//! What is left of receiver streams that an operator cleared: a mark, at or before which nothing of the stream may have
//! been issued (law L11.5). Pure.
//!
//! A cleared stream's window is gone, so what it admitted could be presented again. Everything that it may have admitted was
//! issued at or before the mark. A record that could not be restored is known by its name only, so marks are kept by names.
//!
//! | event | does |
//! | --- | --- |
//! | clear of a name | its mark is the greater of the one it has and the new one |
//! | clear past [`CLEARED_MAX`] names | the earliest mark goes, and becomes that of all streams where it is greater |
//! | request of a stream, issued at or before its mark or that of all | refused |
//!
//! Marks are never taken away. What the law asks for, that a mark count as an admission that is spent in its time, would
//! refuse no more: once it is spent, all that was issued at or before it has expired.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    clock::WallMs,
    message::StreamKey,
    storage::{
        RecordName, Table, VALUE_MAX,
        seal::{SEAL_LEN, seal, unseal},
    },
};

/// The key of the record in the clock table.
pub(crate) const CLEARED_KEY: &[u8] = b"cleared";

/// The most streams whose marks are kept apart.
pub const CLEARED_MAX: usize = 128;

const KIND: &str = "admit-one cleared record 1";
const ENTRY: usize = 32 + 8;

// Law L9.1.
const _: () = assert!(8 + CLEARED_MAX * ENTRY + SEAL_LEN <= VALUE_MAX);

/// The marks of streams that were cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cleared {
    all: WallMs,
    marks: BTreeMap<[u8; 32], WallMs>,
}

impl Cleared {
    /// Notes that the receiver's record of that name was cleared under `mark`.
    pub(crate) fn note(&mut self, name: &RecordName, mark: WallMs) {
        let kept = self.marks.entry(name.hash).or_insert(mark);
        *kept = mark.max(*kept);
        if self.marks.len() > CLEARED_MAX
            && let Some((earliest, mark)) = self.marks.iter().min_by_key(|(_, mark)| **mark).map(|(n, m)| (*n, *m))
        {
            self.marks.remove(&earliest);
            self.all = self.all.max(mark);
        }
    }

    /// What of `stream` was issued at or before this is refused; 0 where nothing is.
    pub(crate) fn mark(&self, stream: &StreamKey) -> WallMs {
        if self.marks.is_empty() {
            return self.all;
        }
        let name = RecordName::of(Table::Receiver, &stream.to_bytes());
        self.marks.get(&name.hash).map_or(self.all, |mark| self.all.max(*mark))
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + self.marks.len() * ENTRY + SEAL_LEN);
        out.put_u64(self.all);
        for (hash, mark) in &self.marks {
            out.put_slice(hash);
            out.put_u64(*mark);
        }
        seal(KIND, out)
    }

    /// Reads [`Cleared::encode`] back; `None` where the bytes are no such record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = unseal(KIND, bytes)?;
        let mut cleared = Self { all: record.try_get_u64().ok()?, marks: BTreeMap::new() };
        while !record.is_empty() {
            let (hash, rest) = record.split_first_chunk::<32>()?;
            record = rest;
            cleared.marks.insert(*hash, record.try_get_u64().ok()?);
        }
        (cleared.marks.len() <= CLEARED_MAX).then_some(cleared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::KeySigner,
        message::{Class, NetworkId},
    };

    fn stream(number: u8) -> StreamKey {
        let key = |number| KeySigner::from_secret(&[number; 32]).unwrap().key();
        StreamKey { network: NetworkId(1), origin: key(number), destination: key(255), class: Class::E2e }
    }

    fn name(number: u8) -> RecordName {
        RecordName::of(Table::Receiver, &stream(number).to_bytes())
    }

    #[test]
    fn l11_5_a_cleared_stream_has_its_mark_and_no_other_stream_has_it() {
        let mut cleared = Cleared::default();
        cleared.note(&name(1), 500);
        cleared.note(&name(1), 400);
        assert_eq!((cleared.mark(&stream(1)), cleared.mark(&stream(2))), (500, 0));
        cleared.note(&name(1), 600);
        assert_eq!(cleared.mark(&stream(1)), 600);
    }

    #[test]
    fn l11_5_past_the_bound_the_earliest_mark_is_that_of_all_streams() {
        let mut cleared = Cleared::default();
        for number in 0..=128_u8 {
            cleared.note(&name(number), 1_000 + u64::from(number));
        }
        assert_eq!(cleared.mark(&stream(0)), 1_000);
        assert_eq!(cleared.mark(&stream(200)), 1_000);
        assert_eq!(cleared.mark(&stream(128)), 1_128);
        assert_eq!(cleared.marks.len(), CLEARED_MAX);
        assert_eq!(Cleared::decode(&cleared.encode()), Some(cleared));
    }

    #[test]
    fn l9_1_a_record_of_marks_is_read_back_whole_or_not_at_all() {
        let mut cleared = Cleared::default();
        cleared.note(&name(1), 500);
        cleared.note(&name(2), 700);
        let bytes = cleared.encode();
        for place in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[place] ^= 1;
            assert_eq!(Cleared::decode(&damaged), None);
            assert_eq!(Cleared::decode(&bytes[..place]), None);
        }
    }
}
