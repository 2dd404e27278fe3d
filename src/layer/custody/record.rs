//! The record of one mail in custody (law L9.1).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{CUSTODY_MAX, Entry};
use crate::{
    message::{Incarnation, StreamKey, TransactionDigest},
    storage::{
        Key,
        commit::CommitConfig,
        seal::{SEAL_LEN, seal, unseal},
    },
};

const KIND: &str = "admit-one custody record 1";

const DIGEST_LEN: usize = 32;

/// The length of a record, in bytes: digest 32, stream 73, incarnation 8, sequence 8, expiry 8, checksum 16.
pub(in crate::layer) const CUSTODY_RECORD_LEN: usize = DIGEST_LEN + StreamKey::LEN + 3 * 8 + SEAL_LEN;

// Law L9.1: the default budget has room for every place.
const _: () = assert!(CUSTODY_MAX as u64 <= CommitConfig::CUSTODY.records);
const _: () = assert!((CUSTODY_MAX * (DIGEST_LEN + CUSTODY_RECORD_LEN)) as u64 <= CommitConfig::CUSTODY.bytes);

/// What a mail's record is filed under: its digest, which is bound to all else.
pub(in crate::layer) fn key(digest: &TransactionDigest) -> Key {
    Key::copy_from_slice(&digest.0)
}

/// The bytes of the record of `digest`.
pub(in crate::layer) fn encode(digest: &TransactionDigest, entry: &Entry) -> Bytes {
    let mut out = BytesMut::with_capacity(CUSTODY_RECORD_LEN);
    out.put_slice(&digest.0);
    out.put_slice(&entry.stream.to_bytes());
    out.put_u64(entry.incarnation.0);
    out.put_u64(entry.sequence);
    out.put_u64(entry.expiry);
    seal(KIND, out)
}

/// Reads the record filed under `filed`.
///
/// # Errors
/// Why it cannot be restored, for the log (law L11.1).
pub(in crate::layer) fn decode(filed: &[u8], bytes: &[u8]) -> Result<(TransactionDigest, Entry), &'static str> {
    let record = unseal(KIND, bytes).ok_or("its checksum does not hold")?;
    let (digest, rest) = record.split_first_chunk::<DIGEST_LEN>().ok_or("it is too short")?;
    if digest != filed {
        return Err("it is filed under another mail's digest");
    }
    let (stream, mut rest) = rest.split_at_checked(StreamKey::LEN).ok_or("it is too short")?;
    let stream = StreamKey::from_bytes(stream).ok_or("its stream is none")?;
    let mut number = || rest.try_get_u64().map_err(|_| "it is too short");
    let (incarnation, sequence, expiry) = (Incarnation(number()?), number()?, number()?);
    if !rest.is_empty() {
        return Err("it is too long");
    }
    Ok((TransactionDigest(*digest), Entry { stream, incarnation, sequence, expiry }))
}

/// The fuzz target of a custody record.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "custody",
    run: |data| {
        let filed = data.get(..DIGEST_LEN).unwrap_or(&[]);
        crate::storage::seal::fuzz(
            KIND,
            true,
            data,
            |bytes| {
                let (digest, entry) = decode(filed, bytes).ok()?;
                assert_eq!(key(&digest), filed);
                assert_eq!(bytes.len(), CUSTODY_RECORD_LEN);
                Some((digest, entry))
            },
            |(digest, entry)| encode(digest, entry),
        )
    },
    seeds: || {
        let did = |seed| crate::identity::KeySigner::fuzzing(seed).key();
        let (network, class) = (crate::message::NetworkId(7), crate::message::Class::Application);
        let stream = StreamKey { network, origin: did(1), destination: did(2), class };
        let entry = Entry { stream, incarnation: Incarnation(9), sequence: 4, expiry: 1_700_000_000_000 };
        vec![encode(&TransactionDigest([8; 32]), &entry).to_vec()]
    },
};
