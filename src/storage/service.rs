//! Whether a store may be used by a node. Pure.
//!
//! A store that a migration fills is no store yet: it knows some of what was admitted, and would admit the rest again. A
//! record in the clock table says so from the migration's first batch to its last, and nothing opens the store meanwhile.

use bytes::{Bytes, BytesMut};

use super::{
    Scan,
    seal::{seal, unseal},
};

/// The key of the record in the clock table.
pub(crate) const MIGRATION_KEY: &[u8] = b"migration";

const KIND: &str = "admit-one migration record 1";

/// The record of a migration that has not ended.
pub(crate) fn unfinished() -> Bytes {
    seal(KIND, BytesMut::from(MIGRATION_KEY))
}

/// Whether the clock table says that a migration has not ended. A record that does not decode says so too.
pub(crate) fn is_unfinished(clock: &Scan) -> bool {
    let name = super::RecordName::of(super::Table::Clock, MIGRATION_KEY);
    clock.records.iter().any(|(key, _)| key == MIGRATION_KEY) || clock.bad.iter().any(|bad| bad.name == name)
}

/// Whether the bytes are such a record.
pub(crate) fn decode(bytes: &[u8]) -> bool {
    unseal(KIND, bytes) == Some(MIGRATION_KEY)
}
