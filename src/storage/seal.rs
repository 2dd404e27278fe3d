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
