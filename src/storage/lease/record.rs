//! The two records of leases: one a sender stream, and one of the whole store that says what was removed.
//!
//! A stream's record, [`RECORD_LEN`] bytes: key 73, incarnation 8, last covered sequence 8, whether it sent mail 1, known
//! incarnations, checksum 16. The store's, [`REMOVED_LEN`] bytes: key 6, known incarnations, checksum 16.
//! Known incarnations are a count (1) and five places of 8 bytes, greatest first, the unused ones zero. Numbers are
//! big-endian.

use bytes::{BufMut, Bytes, BytesMut};

use super::known::{KNOWN_MAX, Known};
use crate::{
    message::{Incarnation, StreamKey},
    storage::{
        KEY_MAX, VALUE_MAX,
        commit::CommitConfig,
        seal::{SEAL_LEN, seal, unseal},
    },
};

/// A stream's key as its record is filed.
pub(super) type StreamName = [u8; StreamKey::LEN];

/// The key of the record of what was removed, in the clock table.
pub(crate) const REMOVED_KEY: &[u8] = b"sender";

/// The most sender streams that a store holds (law L10.1).
pub const SENDER_STREAMS: usize = 16_384;

const KNOWN_LEN: usize = 1 + KNOWN_MAX * 8;
/// The length of a stream's record, in bytes.
pub(super) const RECORD_LEN: usize = StreamKey::LEN + 8 + 8 + 1 + KNOWN_LEN + SEAL_LEN;
/// The length of the record of what was removed, in bytes.
pub(super) const REMOVED_LEN: usize = REMOVED_KEY.len() + KNOWN_LEN + SEAL_LEN;
const KIND: &str = "admit-one lease record 1";
const REMOVED_KIND: &str = "admit-one removed record 1";

// Law L9.1: the maxima hold at compile time, and the default budget has room for every stream.
const _: () = assert!(StreamKey::LEN <= KEY_MAX && RECORD_LEN <= VALUE_MAX && REMOVED_LEN <= VALUE_MAX);
const _: () = assert!(SENDER_STREAMS as u64 <= CommitConfig::SENDER.records);
const _: () = assert!((SENDER_STREAMS * (StreamKey::LEN + RECORD_LEN)) as u64 <= CommitConfig::SENDER.bytes);

/// What is durable of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) incarnation: Incarnation,
    /// The last sequence that the lease covers.
    pub(super) through: u64,
    /// Whether it ever numbered mail (law L8.5).
    pub(super) mail: bool,
    pub(super) known: Known,
}

pub(super) fn encode(stream: &StreamName, lease: &Lease) -> Bytes {
    let mut out = BytesMut::with_capacity(RECORD_LEN);
    out.put_slice(stream);
    out.put_u64(lease.incarnation.0);
    out.put_u64(lease.through);
    out.put_u8(u8::from(lease.mail));
    put_known(&mut out, &lease.known);
    seal(KIND, out)
}

/// Reads a stream's record that was found under `key`; total. The error says why it is none.
pub(super) fn decode(key: &[u8], record: &[u8]) -> Result<(StreamName, Lease), &'static str> {
    let body = unseal(KIND, record).ok_or("its checksum does not hold")?;
    let (stream, body) = body.split_first_chunk::<{ StreamKey::LEN }>().ok_or("it ends early")?;
    if stream != key {
        return Err("it is filed under another key than its own");
    }
    let (incarnation, body) = u64(body)?;
    let (through, body) = u64(body)?;
    let (&mail, body) = body.split_first().ok_or("it ends early")?;
    let mail = match mail {
        0 => false,
        1 => true,
        _ => return Err("it does not say whether it sent mail"),
    };
    let known = known(body)?;
    if known.list().contains(&Incarnation(incarnation)) {
        return Err("its running incarnation is among those set aside");
    }
    Ok((*stream, Lease { incarnation: Incarnation(incarnation), through, mail, known }))
}

pub(super) fn encode_removed(removed: &Known) -> Bytes {
    let mut out = BytesMut::with_capacity(REMOVED_LEN);
    out.put_slice(REMOVED_KEY);
    put_known(&mut out, removed);
    seal(REMOVED_KIND, out)
}

/// Reads the record of what was removed; total.
pub(super) fn decode_removed(record: &[u8]) -> Result<Known, &'static str> {
    let body = unseal(REMOVED_KIND, record).ok_or("its checksum does not hold")?;
    known(body.strip_prefix(REMOVED_KEY).ok_or("it is filed under another key than its own")?)
}

fn put_known(out: &mut BytesMut, known: &Known) {
    // The list has at most five entries, so its length fits.
    out.put_u8(known.list().len() as u8);
    for place in 0..KNOWN_MAX {
        out.put_u64(known.list().get(place).map_or(0, |known| known.0));
    }
}

fn known(body: &[u8]) -> Result<Known, &'static str> {
    let (&count, mut places) = body.split_first().ok_or("it ends early")?;
    let mut list = Vec::new();
    for place in 0..KNOWN_MAX {
        let (incarnation, rest) = u64(places)?;
        places = rest;
        if place < usize::from(count) {
            list.push(Incarnation(incarnation));
        } else if incarnation != 0 {
            return Err("a place past its known incarnations is in use");
        }
    }
    if !places.is_empty() || usize::from(count) > KNOWN_MAX {
        return Err("it does not have a record's length");
    }
    Known::from_list(list).ok_or("its known incarnations are out of order")
}

fn u64(body: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let (bytes, rest) = body.split_first_chunk::<8>().ok_or("it ends early")?;
    Ok((u64::from_be_bytes(*bytes), rest))
}

/// The fuzz targets of a stream's record, and of the record of what was removed.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 2] = [
    crate::fuzzing::Target {
        name: "lease",
        run: |data| {
            let key = data.get(..StreamKey::LEN).unwrap_or(&[]);
            crate::storage::seal::fuzz(
                KIND,
                true,
                data,
                |record| {
                    let (stream, lease) = decode(key, record).ok()?;
                    assert_eq!(stream, key);
                    assert!(
                        decode(&[&[!key[0]], &key[1..]].concat(), record).is_err(),
                        "it was taken under another key"
                    );
                    Some((stream, lease))
                },
                |(stream, lease)| encode(stream, lease),
            )
        },
        seeds: || {
            let lease = |known: &[u64], mail| {
                let known = known.iter().copied().map(Incarnation).collect();
                let known = Known::from_list(known).unwrap_or_default();
                encode(&[7; StreamKey::LEN], &Lease { incarnation: Incarnation(50), through: 64, mail, known }).to_vec()
            };
            vec![lease(&[], false), lease(&[90, 80, 3, 2, 1], true)]
        },
    },
    crate::fuzzing::Target {
        name: "removed",
        run: |data| {
            crate::storage::seal::fuzz(REMOVED_KIND, true, data, |record| decode_removed(record).ok(), encode_removed)
        },
        seeds: || {
            let removed = |known: &[u64]| {
                let known = known.iter().copied().map(Incarnation).collect();
                encode_removed(&Known::from_list(known).unwrap_or_default()).to_vec()
            };
            vec![removed(&[]), removed(&[90, 80, 3, 2, 1])]
        },
    },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leases() -> impl Strategy<Value = Lease> {
        (any::<u64>(), any::<u64>(), any::<bool>(), prop::collection::btree_set(any::<u64>(), 0..=KNOWN_MAX)).prop_map(
            |(incarnation, through, mail, mut known)| {
                known.remove(&incarnation);
                let known = Known::from_list(known.into_iter().rev().map(Incarnation).collect()).unwrap();
                Lease { incarnation: Incarnation(incarnation), through, mail, known }
            },
        )
    }

    proptest! {
        #[test]
        fn l9_1_a_record_carries_its_key_and_no_changed_bit_goes_unseen(
            lease in leases(), key in any::<[u8; 32]>(), bit in 0..RECORD_LEN * 8, cut in 0..RECORD_LEN
        ) {
            let mut stream = [0; StreamKey::LEN];
            stream[..32].copy_from_slice(&key);
            let record = encode(&stream, &lease);
            prop_assert_eq!(record.len(), RECORD_LEN);
            prop_assert_eq!(decode(&stream, &record), Ok((stream, lease.clone())));
            let mut flipped = record.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&stream, &flipped).is_err());
            prop_assert!(decode(&stream, &record[..cut]).is_err());
            stream[72] ^= 1;
            prop_assert!(decode(&stream, &record).is_err());
            let removed = encode_removed(&lease.known);
            prop_assert_eq!(removed.len(), REMOVED_LEN);
            prop_assert_eq!(decode_removed(&removed), Ok(lease.known));
            prop_assert!(decode_removed(&record).is_err());
        }

        #[test]
        fn any_bytes_under_a_right_checksum_give_a_record_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let record = seal(KIND, BytesMut::from(&body[..]));
            if let Ok((stream, lease)) = decode(&body[..StreamKey::LEN.min(body.len())], &record) {
                prop_assert_eq!(encode(&stream, &lease), record);
            }
            let record = seal(REMOVED_KIND, BytesMut::from(&body[..]));
            if let Ok(removed) = decode_removed(&record) {
                prop_assert_eq!(encode_removed(&removed), record);
            }
        }
    }
}
