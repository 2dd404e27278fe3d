//! What an operator reads of the boundary's records, by its own decoders.

use super::record::StreamRecord;
use crate::{
    clock::WallMs,
    layer::{custody::record as custody, local::Registry},
    message::{Incarnation, StreamKey},
};

/// A receiver stream's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceiverRecord {
    pub(crate) stream: StreamKey,
    pub(crate) introducer: String,
    /// The greatest issued + ttl that it ever admitted.
    pub(crate) expiry: WallMs,
    /// The greatest wall instant at which it admitted anything.
    pub(crate) admitted: WallMs,
    pub(crate) incarnation: Incarnation,
    pub(crate) high: u64,
    /// How many of its slots are filled.
    pub(crate) filled: u32,
}

/// Reads the record of a receiver stream that was found under `key`.
pub(crate) fn read_receiver(key: &[u8], value: &[u8]) -> Result<ReceiverRecord, &'static str> {
    let (stream, record) = StreamRecord::decode_after(key, value, None)?;
    let StreamRecord { introducer, expiry, admitted, window } = record;
    Ok(ReceiverRecord {
        stream,
        introducer: introducer.to_string(),
        expiry,
        admitted,
        incarnation: window.incarnation(),
        high: window.high(),
        filled: window.filled().count_ones(),
    })
}

/// Whether the bytes are the record of a mail in custody that was found under `key`.
pub(crate) fn read_custody(key: &[u8], value: &[u8]) -> Result<(), &'static str> {
    custody::decode(key, value).map(drop)
}

/// Whether the bytes are the record of namespaces.
pub(crate) fn read_namespaces(value: &[u8]) -> bool {
    Registry::decode(value).is_some()
}
