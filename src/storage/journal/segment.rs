//! The head of a segment file, and the witness of the newest one.
//!
//! Both begin with a prefix that every format keeps: magic (8), format (4), zeros (4), and a checksum of these (16).
//! So an older release tells a newer store from a damaged one.

use super::{
    frame::Reader,
    sector::{SECTOR, SegmentKeys},
};

/// The format that this release writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// The first sector that a frame may take. The head stands in sectors 0 and [`SECOND_COPY`].
pub(super) const DATA_START: u64 = 16;
const SECOND_COPY: usize = 8;
/// Bytes before the first frame.
pub(super) const HEAD_BYTES: usize = 16 * SECTOR;
/// The file that witnesses which segment is the newest.
pub(super) const WITNESS: &str = "store";
/// The file that is locked.
pub(super) const LOCK: &str = "lock";
/// The bytes of one of the two slots of the witness.
pub(super) const WITNESS_SLOT: usize = 4096;

const SEGMENT_MAGIC: [u8; 8] = *b"admit1js";
const WITNESS_MAGIC: [u8; 8] = *b"admit1jw";
const CONTEXT: &str = "admit-one 2026 journal segment head and witness";

/// Where the segment before this one ended. What lies behind was never released, whatever it looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The number of that segment.
    pub(super) segment: u64,
    /// The first sector that is not part of it.
    pub(super) sector: u64,
    /// Its last batch.
    pub(super) batch: u64,
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) store: [u8; 16],
    pub(super) number: u64,
    /// How many sectors the file has.
    pub(super) sectors: u64,
    /// The number of the first batch in it.
    pub(super) first_batch: u64,
    /// When the segment was made, segments below this one were no longer needed.
    pub(super) base: u64,
    /// The segment before; `None` where this one begins with a copy of everything.
    pub(super) previous: Option<End>,
}

/// Why a head could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadError {
    /// No copy of it is whole.
    Damaged,
    /// It is of a later format.
    Newer(u32),
}

impl SegmentHead {
    /// The bytes before the first frame: two copies of the head, and fill.
    pub(super) fn encode(&self, keys: &SegmentKeys) -> Vec<u8> {
        let previous = self.previous.unwrap_or(End { segment: 0, sector: 0, batch: 0 });
        let mut head = prefix(SEGMENT_MAGIC);
        head.extend_from_slice(&self.store);
        for word in
            [self.number, self.sectors, self.first_batch, self.base, previous.segment, previous.sector, previous.batch]
        {
            head.extend_from_slice(&word.to_le_bytes());
        }
        let head = finish(head);
        let mut out = Vec::with_capacity(HEAD_BYTES);
        for sector in 0..HEAD_BYTES / SECTOR {
            out.extend_from_slice(if sector % SECOND_COPY == 0 { &head } else { &keys.fill });
        }
        out
    }

    /// Reads the head from the start of a file: from either copy.
    pub(super) fn decode(image: &[u8]) -> Result<Self, HeadError> {
        either(image, SECOND_COPY * SECTOR, SEGMENT_MAGIC, |mut rest| {
            let store = rest.array()?;
            let (number, sectors, first_batch, base) = (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
            let end = End { segment: rest.u64()?, sector: rest.u64()?, batch: rest.u64()? };
            let previous = (end.segment != 0).then_some(end);
            Some(Self { store, number, sectors, first_batch, base, previous })
        })
    }
}

/// The newest segment that ever counted: with this a store whose newest segment went missing is not taken for an
/// older one (law L11.4). It lives in two slots written in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) store: [u8; 16],
    pub(super) segment: u64,
}

impl Witness {
    /// Its slot: a sector of content, and zeros.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = prefix(WITNESS_MAGIC);
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.segment.to_le_bytes());
        let mut out = finish(out).to_vec();
        out.resize(WITNESS_SLOT, 0);
        out
    }

    /// Reads the slot with the greater segment.
    pub(super) fn decode(image: &[u8]) -> Result<Self, HeadError> {
        let read = |mut rest: Reader<'_>| Some(Self { store: rest.array()?, segment: rest.u64()? });
        let second = image.get(WITNESS_SLOT..).unwrap_or(&[]);
        let (first, second) = (one(image, WITNESS_MAGIC, read), one(second, WITNESS_MAGIC, read));
        match (first, second) {
            (Ok(first), Ok(second)) => Ok(if first.segment > second.segment { first } else { second }),
            (Err(newer @ HeadError::Newer(_)), _) | (_, Err(newer @ HeadError::Newer(_))) => Err(newer),
            (Ok(one), Err(HeadError::Damaged)) | (Err(HeadError::Damaged), Ok(one)) => Ok(one),
            (Err(HeadError::Damaged), Err(HeadError::Damaged)) => Err(HeadError::Damaged),
        }
    }
}

fn prefix(magic: [u8; 8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let check = check(&out);
    out.extend_from_slice(&check);
    out
}

/// Fills up to a sector, the last 16 bytes being a checksum of the rest.
fn finish(mut head: Vec<u8>) -> [u8; SECTOR] {
    head.resize(SECTOR - 16, 0);
    let sum = check(&head);
    let mut out = [0; SECTOR];
    let (body, place) = out.split_at_mut(SECTOR - 16);
    body.copy_from_slice(&head);
    place.copy_from_slice(&sum);
    out
}

fn check(bytes: &[u8]) -> [u8; 16] {
    let [check @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = blake3::derive_key(CONTEXT, bytes);
    check
}

fn either<T>(
    image: &[u8],
    second: usize,
    magic: [u8; 8],
    read: impl Fn(Reader<'_>) -> Option<T> + Copy,
) -> Result<T, HeadError> {
    match one(image, magic, read) {
        Err(HeadError::Damaged) => one(image.get(second..).unwrap_or(&[]), magic, read),
        found => found,
    }
}

fn one<T>(image: &[u8], magic: [u8; 8], read: impl Fn(Reader<'_>) -> Option<T>) -> Result<T, HeadError> {
    let damaged = HeadError::Damaged;
    let (sector, _) = image.split_first_chunk::<SECTOR>().ok_or(damaged)?;
    let (first, rest) = sector.split_first_chunk::<16>().ok_or(damaged)?;
    let mut rest = Reader(rest);
    if first[..8] != magic || rest.array() != Some(check(first)) {
        return Err(damaged);
    }
    let mut prefix = Reader(&first[8..]);
    let format = prefix.u32().ok_or(damaged)?;
    if format > FORMAT {
        return Err(HeadError::Newer(format));
    }
    let (body, sum) = sector.split_last_chunk::<16>().ok_or(damaged)?;
    if check(body) != *sum || format != FORMAT {
        return Err(damaged);
    }
    read(rest).ok_or(damaged)
}

/// The name of a segment's file.
pub(super) fn name(number: u64) -> String {
    format!("segment-{number:020}.log")
}

/// The name of a segment's file while it is made.
pub(super) fn unfinished_name(number: u64) -> String {
    format!("segment-{number:020}.tmp")
}

/// What a file in the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A segment.
    Segment(u64),
    /// A segment that was never finished.
    Unfinished,
    /// The lock or the witness.
    Own,
    /// Nothing of this engine.
    Foreign,
}

/// Tells a file by its name.
pub(super) fn kind(file: &str) -> Kind {
    if file == LOCK || file == WITNESS {
        return Kind::Own;
    }
    let Some((digits, ending)) = file.strip_prefix("segment-").and_then(|rest| rest.split_once('.')) else {
        return Kind::Foreign;
    };
    match digits.parse() {
        Ok(number) if file == name(number) && number > 0 => Kind::Segment(number),
        Ok(number) if file == unfinished_name(number) && ending == "tmp" => Kind::Unfinished,
        _ => Kind::Foreign,
    }
}

/// The fuzz targets of a segment's head, of the witness, and of the files' names.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 3] = [
    crate::fuzzing::Target {
        name: "journal_head",
        run: |data| {
            let mended = fuzzing::mended(data, SECOND_COPY * SECTOR);
            [data, &mended].into_iter().fold(false, |any, bytes| {
                let Ok(head) = SegmentHead::decode(bytes) else { return any };
                let encoded = head.encode(&SegmentKeys::of(&head.store, head.number));
                assert_eq!(encoded.len(), HEAD_BYTES);
                assert_eq!(SegmentHead::decode(&encoded), Ok(head));
                true
            })
        },
        seeds: || {
            let previous = Some(End { segment: 6, sector: 99, batch: 40 });
            let head = SegmentHead { store: [2; 16], number: 7, sectors: 128, first_batch: 41, base: 5, previous };
            let heads = [head, SegmentHead { previous: None, ..head }];
            heads.map(|head| head.encode(&SegmentKeys::of(&head.store, head.number))[..9 * SECTOR].to_vec()).into()
        },
    },
    crate::fuzzing::Target {
        name: "journal_witness",
        run: |data| {
            let mended = fuzzing::mended(data, WITNESS_SLOT);
            [data, &mended].into_iter().fold(false, |any, bytes| {
                let Ok(witness) = Witness::decode(bytes) else { return any };
                assert_eq!(Witness::decode(&witness.encode()), Ok(witness));
                true
            })
        },
        seeds: || {
            let slot = |segment| Witness { store: [1; 16], segment }.encode();
            vec![[slot(4), slot(5)].concat(), slot(4)]
        },
    },
    crate::fuzzing::Target {
        name: "journal_names",
        run: |data| {
            let Ok(file) = std::str::from_utf8(data) else { return false };
            match kind(file) {
                Kind::Segment(number) => assert_eq!(name(number), file, "a segment has two names"),
                Kind::Unfinished | Kind::Own => {}
                Kind::Foreign => return false,
            }
            true
        },
        seeds: || {
            let names = [name(12), unfinished_name(12), LOCK.into(), WITNESS.into(), "segment-1.log".into()];
            names.map(String::into_bytes).into()
        },
    },
];

#[cfg(any(test, fuzzing))]
mod fuzzing {
    use super::*;

    /// With the checksums of both copies, of which the other begins at `second`, put right.
    pub(super) fn mended(data: &[u8], second: usize) -> Vec<u8> {
        let mut bytes = data.to_vec();
        for start in [0, second] {
            let Some(sector) = bytes.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<SECTOR>) else { continue };
            let prefix = check(&sector[..16]);
            sector[16..32].copy_from_slice(&prefix);
            let whole = check(&sector[..SECTOR - 16]);
            sector[SECTOR - 16..].copy_from_slice(&whole);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> (SegmentHead, Vec<u8>) {
        let previous = Some(End { segment: 6, sector: 99, batch: 40 });
        let head = SegmentHead { store: [2; 16], number: 7, sectors: 128, first_batch: 41, base: 5, previous };
        (head, head.encode(&SegmentKeys::of(&[2; 16], 7)))
    }

    #[test]
    fn a_head_reads_back_from_either_copy() {
        let (head, bytes) = head();
        assert_eq!(bytes.len(), HEAD_BYTES);
        assert_eq!(SegmentHead::decode(&bytes), Ok(head));
        for at in [0, 9, 20, 40, 100, 511] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(SegmentHead::decode(&changed), Ok(head), "byte {at}");
            changed[SECOND_COPY * SECTOR + at] ^= 1;
            assert_eq!(SegmentHead::decode(&changed), Err(HeadError::Damaged), "byte {at}");
        }
        assert_eq!(SegmentHead::decode(&bytes[..300]), Err(HeadError::Damaged));
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let (_, mut bytes) = head();
        for copy in [0, SECOND_COPY * SECTOR] {
            bytes[copy + 8] = 2;
            let sum = check(&bytes[copy..copy + 16]);
            bytes[copy + 16..copy + 32].copy_from_slice(&sum);
        }
        assert_eq!(SegmentHead::decode(&bytes), Err(HeadError::Newer(2)));
        bytes[17] ^= 1;
        bytes[SECOND_COPY * SECTOR + 17] ^= 1;
        assert_eq!(SegmentHead::decode(&bytes), Err(HeadError::Damaged));
    }

    #[test]
    fn the_witness_is_the_greater_of_its_whole_slots() {
        let witness = |segment| Witness { store: [1; 16], segment };
        let mut bytes = [witness(4).encode(), witness(5).encode()].concat();
        assert_eq!(Witness::decode(&bytes), Ok(witness(5)));
        bytes[WITNESS_SLOT + 50] ^= 1;
        assert_eq!(Witness::decode(&bytes), Ok(witness(4)));
        bytes[3] ^= 1;
        assert_eq!(Witness::decode(&bytes), Err(HeadError::Damaged));
        assert_eq!(Witness::decode(&[]), Err(HeadError::Damaged));
    }

    #[test]
    fn names_tell_what_a_file_is() {
        assert_eq!(kind(&name(12)), Kind::Segment(12));
        assert_eq!(kind(&unfinished_name(12)), Kind::Unfinished);
        assert_eq!((kind("lock"), kind("store")), (Kind::Own, Kind::Own));
        for foreign in ["segment-12.log", "segment-+0000000000000000012.log", "notes.txt", "Lock", &name(0)] {
            assert_eq!(kind(foreign), Kind::Foreign, "{foreign}");
        }
    }
}
