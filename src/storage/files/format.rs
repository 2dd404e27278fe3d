//! A record as the bytes of its file, and the file that says whose directory it is: pure.
//!
//! A record's file is magic (4), table (1), zero (1), length of the key (2, little-endian), length of the value (4), key,
//! value, and a checksum (16) of all before it under a key that is this store's, so that no other store's file reads as one
//! of this. The store's file is magic (8), format (4), zeros (4), a checksum of these (16), store id (16), and a checksum of
//! all before it (16).

use bytes::Bytes;

use crate::storage::{KEY_MAX, RecordName, Table, VALUE_MAX};

/// The format that this release writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// The length of the store's file in bytes.
pub(super) const STORE_LEN: usize = 16 + CHECK + 16 + CHECK;
/// The longest file of a record, in bytes.
pub(super) const RECORD_MAX: usize = FIXED + KEY_MAX + VALUE_MAX + CHECK;

const MAGIC: [u8; 4] = *b"AOR1";
const STORE_MAGIC: [u8; 8] = *b"admit1fs";
const CHECK: usize = 16;
const FIXED: usize = 12;
const RECORD_CONTEXT: &str = "admit-one 2026 files record";
const STORE_CONTEXT: &str = "admit-one 2026 files store";

/// What a store's records are checked under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreId {
    id: [u8; 16],
    key: [u8; 32],
}

/// Why the store's file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreError {
    /// It is not whole.
    Damaged,
    /// It is of a later format.
    Newer(u32),
}

impl StoreId {
    pub(super) fn new(id: [u8; 16]) -> Self {
        Self { id, key: blake3::derive_key(RECORD_CONTEXT, &id) }
    }

    /// The store's file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(STORE_LEN);
        out.extend_from_slice(&STORE_MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&store_check(&out));
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&store_check(&out));
        out
    }

    /// Reads [`StoreId::encode`] back.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let (prefix, check, rest) = split(bytes, 16).ok_or(StoreError::Damaged)?;
        if store_check(prefix) != check {
            return Err(StoreError::Damaged);
        }
        let (magic, format) = prefix.split_first_chunk::<8>().ok_or(StoreError::Damaged)?;
        let (format, _) = format.split_first_chunk::<4>().ok_or(StoreError::Damaged)?;
        match u32::from_le_bytes(*format) {
            _ if *magic != STORE_MAGIC => Err(StoreError::Damaged),
            FORMAT => {
                let (id, check) = rest.split_first_chunk::<16>().ok_or(StoreError::Damaged)?;
                let before = bytes.get(..STORE_LEN - CHECK).ok_or(StoreError::Damaged)?;
                if *check != store_check(before) { Err(StoreError::Damaged) } else { Ok(Self::new(*id)) }
            }
            newer => Err(StoreError::Newer(newer)),
        }
    }

    /// A record's file; `None` where a length is over its bound.
    pub(super) fn encode_record(&self, table: Table, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(FIXED + key.len() + value.len() + CHECK);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[table.tag(), 0]);
        out.extend_from_slice(&u16::try_from(key.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        let check = self.check(&out);
        out.extend_from_slice(&check);
        Some(out)
    }

    /// The key and value in the file of `name`.
    ///
    /// # Errors
    /// Why it cannot be restored, for the log (law L11.1).
    pub(super) fn decode_record(&self, name: &RecordName, bytes: &[u8]) -> Result<(Bytes, Bytes), &'static str> {
        let (record, check) = bytes.split_last_chunk::<CHECK>().ok_or("its file is too short")?;
        if self.check(record) != *check {
            return Err("its checksum does not match");
        }
        let (fixed, body) = record.split_first_chunk::<FIXED>().ok_or("its file is too short")?;
        let [m0, m1, m2, m3, table, zero, k0, k1, v0, v1, v2, v3] = *fixed;
        if [m0, m1, m2, m3] != MAGIC || zero != 0 {
            return Err("it is no record");
        }
        let value = usize::try_from(u32::from_le_bytes([v0, v1, v2, v3])).map_err(|_| "its length is impossible")?;
        let (key, rest) =
            body.split_at_checked(usize::from(u16::from_le_bytes([k0, k1]))).ok_or("its length is impossible")?;
        if rest.len() != value || key.len() > KEY_MAX || value > VALUE_MAX {
            return Err("its length is impossible");
        }
        if Table::from_tag(table) != Some(name.table) || RecordName::of(name.table, key) != *name {
            return Err("it is filed under another record's name");
        }
        Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(rest)))
    }

    fn check(&self, bytes: &[u8]) -> [u8; CHECK] {
        let mut check = [0; CHECK];
        blake3::Hasher::new_keyed(&self.key).update(bytes).finalize_xof().fill(&mut check);
        check
    }
}

fn store_check(bytes: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    blake3::Hasher::new_derive_key(STORE_CONTEXT).update(bytes).finalize_xof().fill(&mut check);
    check
}

/// The first `at` bytes, the checksum behind them, and the rest.
fn split(bytes: &[u8], at: usize) -> Option<(&[u8], [u8; CHECK], &[u8])> {
    let (first, rest) = bytes.split_at_checked(at)?;
    let (check, rest) = rest.split_first_chunk::<CHECK>()?;
    Some((first, *check, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l9_1_a_records_file_is_read_back_whole_or_not_at_all() {
        let store = StoreId::new([7; 16]);
        let name = RecordName::of(Table::Receiver, b"key");
        let file = store.encode_record(Table::Receiver, b"key", b"value").expect("within its bounds");
        assert_eq!(store.decode_record(&name, &file), Ok(("key".into(), "value".into())));
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 4;
            assert!(store.decode_record(&name, &damaged).is_err());
            assert!(store.decode_record(&name, &file[..place]).is_err());
        }
        for other in [RecordName::of(Table::Receiver, b"kez"), RecordName::of(Table::Sender, b"key")] {
            assert_eq!(store.decode_record(&other, &file), Err("it is filed under another record's name"));
        }
        assert!(StoreId::new([8; 16]).decode_record(&name, &file).is_err(), "another store's");
        let greatest = store.encode_record(Table::Sender, &[1; KEY_MAX], &[2; VALUE_MAX]).expect("at its bounds");
        assert_eq!(greatest.len(), RECORD_MAX);
        assert!(store.decode_record(&RecordName::of(Table::Sender, &[1; KEY_MAX]), &greatest).is_ok());
    }

    #[test]
    fn the_stores_file_is_read_back_whole_or_not_at_all_and_tells_a_newer_one() {
        let store = StoreId::new([7; 16]);
        let file = store.encode();
        assert_eq!(file.len(), STORE_LEN);
        assert_eq!(StoreId::decode(&file), Ok(store));
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 4;
            assert_eq!(StoreId::decode(&damaged), Err(StoreError::Damaged));
            assert_eq!(StoreId::decode(&file[..place]), Err(StoreError::Damaged));
        }
        let mut newer = file[..12].to_vec();
        newer[8] = 2;
        newer.extend_from_slice(&[0; 4]);
        let check = store_check(&newer);
        newer.extend_from_slice(&check);
        assert_eq!(StoreId::decode(&newer), Err(StoreError::Newer(2)));
    }
}
