//! The checksum that every record carries over its own bytes and kind.

use bytes::{BufMut, Bytes, BytesMut};

/// Length of a record's checksum in bytes.
pub(crate) const SEAL_LEN: usize = 16;

/// Appends the checksum of `record` under `kind`, so that a record of one kind never reads as one of another.
pub(crate) fn seal(kind: &'static str, mut record: BytesMut) -> Bytes {
    let seal = checksum(kind, &record);
    record.put_slice(&seal);
    record.freeze()
}

/// The record's bytes without their checksum, or `None` where it does not hold.
pub(crate) fn unseal<'a>(kind: &'static str, sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (record, seal) = sealed.split_last_chunk::<SEAL_LEN>()?;
    (checksum(kind, record) == *seal).then_some(record)
}

fn checksum(kind: &'static str, record: &[u8]) -> [u8; SEAL_LEN] {
    let mut seal = [0; SEAL_LEN];
    blake3::Hasher::new_derive_key(kind).update(record).finalize_xof().fill(&mut seal);
    seal
}

/// The fuzz target of a record of `kind`: takes `data` as it is, and with its checksum put right, and asserts that what
/// decodes is written as it was read, or, unless it is `exact`, no longer and to what reads as the same.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz<T: PartialEq + std::fmt::Debug>(
    kind: &'static str,
    exact: bool,
    data: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Bytes,
) -> bool {
    let body = data.get(..data.len().saturating_sub(SEAL_LEN)).unwrap_or(&[]);
    let mended = seal(kind, BytesMut::from(body));
    [data, &mended].into_iter().fold(false, |any, bytes| {
        let Some(record) = decode(bytes) else { return any };
        let encoded = encode(&record);
        assert!(unseal(kind, bytes).is_some(), "its checksum does not hold");
        assert!(if exact { encoded == *bytes } else { encoded.len() <= bytes.len() }, "a record has two encodings");
        assert_eq!(decode(&encoded), Some(record));
        true
    })
}
