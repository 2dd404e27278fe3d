//! What the rows of a database and its witness say, and the checksums that bind them.

use bytes::{BufMut, Bytes, BytesMut};

use crate::storage::{
    Key, RecordName, Table,
    seal::{SEAL_LEN, seal, unseal},
};

/// The checksum of one record: over its table, key and value.
pub(super) type Seal = [u8; SEAL_LEN];

/// What all presences of a database add up to.
pub(super) type Sum = [u8; 32];

/// The checksum of a record's content.
pub(super) fn content_seal(table: Table, key: &[u8], value: &[u8]) -> Seal {
    let mut found = [0; SEAL_LEN];
    let mut hasher = blake3::Hasher::new_derive_key("admit-one 2026 sqlite record");
    // The key's length separates it from the value; no key of this store is longer than two bytes can tell.
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    hasher.update(&[table.tag()]).update(&length.to_le_bytes()).update(key).update(value);
    hasher.finalize_xof().fill(&mut found);
    found
}

/// Adds a presence to the sum, or takes it out again.
pub(super) fn toggle(sum: &mut Sum, name: &RecordName, seal: &Seal) {
    let mut hasher = blake3::Hasher::new_derive_key("admit-one 2026 sqlite presence");
    hasher.update(&encode_name(name)).update(seal);
    sum.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(byte, of_this)| *byte ^= of_this);
}

/// A name as rows carry it: the table's tag and the key's hash.
pub(super) fn encode_name(name: &RecordName) -> [u8; 33] {
    let mut bytes = [0; 33];
    let (tag, hash) = bytes.split_at_mut(1);
    tag.fill(name.table.tag());
    hash.copy_from_slice(&name.hash);
    bytes
}

pub(super) fn decode_name(bytes: &[u8]) -> Option<RecordName> {
    let (tag, hash) = bytes.split_first()?;
    Some(RecordName { table: Table::from_tag(*tag)?, hash: hash.try_into().ok()? })
}

/// A record that is in itself whole: under its own name, with its own checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: RecordName,
    pub(super) key: Key,
    pub(super) value: Bytes,
    pub(super) seal: Seal,
}

impl Record {
    pub(super) fn new(table: Table, key: Key, value: Bytes) -> Self {
        let (name, seal) = (RecordName::of(table, &key), content_seal(table, &key, &value));
        Self { name, key, value, seal }
    }

    /// The record of a row's columns, or why they are none.
    pub(super) fn of_columns(name: &[u8], key: &[u8], value: &[u8], seal: &[u8]) -> Result<Self, &'static str> {
        let name = decode_name(name).ok_or("its name is damaged")?;
        let record = Self::new(name.table, Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        if record.name != name {
            return Err("its key is not the one of its name");
        }
        if record.seal != *seal {
            return Err("its checksum does not hold");
        }
        Ok(record)
    }
}

/// That a record is there, which of its contents, and since when it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) id: i64,
    pub(super) name: RecordName,
    pub(super) seal: Seal,
    /// Why the record is unreadable, where that was found out before.
    pub(super) reason: Option<String>,
}

/// Where a database stands: the last batch in it, and what all presences add up to after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// The database's number.
    pub(super) database: u64,
    /// The number of the batch; 0 before the first.
    pub(super) batch: u64,
    pub(super) sum: Sum,
}

/// The length of an encoded [`Standing`], in bytes.
pub(super) const STANDING_LEN: usize = 8 + 8 + 32 + SEAL_LEN;

impl Standing {
    const KIND: &'static str = "admit-one 2026 sqlite standing";

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(STANDING_LEN);
        bytes.put_u64_le(self.database);
        bytes.put_u64_le(self.batch);
        bytes.put_slice(&self.sum);
        seal(Self::KIND, bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (database, rest) = unseal(Self::KIND, bytes)?.split_first_chunk()?;
        let (batch, sum) = rest.split_first_chunk()?;
        let (database, batch) = (u64::from_le_bytes(*database), u64::from_le_bytes(*batch));
        Some(Self { database, batch, sum: sum.try_into().ok()? })
    }
}

/// The bytes between the two slots of a witness: no write of one touches the other's sector.
pub(super) const SLOT_BYTES: u64 = 4096;

/// Where the witness of a batch is written: batches take turns, so that a torn write leaves the one before.
pub(super) fn slot(batch: u64) -> u64 {
    batch % 2 * SLOT_BYTES
}

/// The newest standing that a witness file tells for the database of that number.
pub(super) fn newest(image: &[u8], database: u64) -> Option<Standing> {
    let slots = [0, SLOT_BYTES].into_iter().filter_map(|at| {
        let at = usize::try_from(at).ok()?;
        Standing::decode(image.get(at..at.checked_add(STANDING_LEN)?)?)
    });
    slots.filter(|standing| standing.database == database).max_by_key(|standing| standing.batch)
}
