//! Transactions too large for one frame: cutting them into chunks, and the encoding that chunks are slices of (law
//! L2.8).
//!
//! The *self-contained* encoding of a whole transaction is what its frame has from the destination on, its slot own or
//! inline, so that it can be read without the link that it came on.
//!
//! A chunk's data is the original's head, the first bytes that its class is derived from, followed by the chunk's slice
//! of that encoding. So a chunk is classified as its original is, from signed data alone. Slices are of one size,
//! `⌈length / count⌉`, and the last has what is left, at least one byte: each chunk tells by itself where its slice
//! stands and how long it must be ([`slice_range`]).

use std::{iter::FusedIterator, ops::Range};

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Content, DecodeError, Kind, Payload, Transaction, TransactionDigest,
    wire::{CHUNK_FIELDS, Keys},
};
use crate::identity::{Proof, Slot};

/// The most bytes of a transaction's self-contained encoding (law L2.8): 60 MB.
pub const MESSAGE_LIMIT: usize = 60_000_000;

/// Why a transaction cannot be cut into chunks. Nothing was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// It is over [`MESSAGE_LIMIT`].
    #[error("a transaction of {length} bytes is over the message limit of {MESSAGE_LIMIT}")]
    MessageTooLarge {
        /// Its self-contained encoding's length in bytes.
        length: usize,
    },
    /// It is a chunk itself.
    #[error("a chunk cannot be cut into chunks")]
    Nested,
    /// Its slot is a reference, which only a link resolves.
    #[error("a transaction whose delegation is a reference cannot be cut: carry the delegation inline")]
    Reference,
    /// The classifier's head is longer than the data, so it broke its contract.
    #[error("a head of {head} bytes is longer than the data, which has {data}")]
    HeadPastData {
        /// The head's length in bytes.
        head: usize,
        /// The data's length in bytes.
        data: usize,
    },
    /// A frame has no room for a slice behind the head.
    #[error("a frame of {frame_limit} bytes has no room for a chunk behind a head of {head} bytes")]
    HeadFillsFrame {
        /// The head's length in bytes.
        head: usize,
        /// The frame limit in bytes.
        frame_limit: usize,
    },
}

/// Cuts `original`, which is whole and whose slot is own or inline, into the chunks that carry it.
///
/// `digest` is its digest and `head` its [`Classified::head`](super::Classified::head). Each chunk has the original's
/// destination, tx_id, incarnation, sequence, issued-at and ttl, takes no sequence of its own, and is still to be signed.
/// Its frame is at most `frame_limit` bytes with both slots inline, so it fits at every hop.
///
/// # Errors
/// [`CutError`].
pub fn cut(
    original: &Transaction,
    digest: TransactionDigest,
    head: usize,
    frame_limit: usize,
) -> Result<Chunks, CutError> {
    let data = &original.content.data;
    let room = room_in_frame(head, frame_limit)?;
    let first = data.get(..head).ok_or(CutError::HeadPastData { head, data: data.len() })?;
    let encoded = original.encode_self_contained()?;
    let too_large = CutError::MessageTooLarge { length: encoded.len() };
    let count = u32::try_from(encoded.len().div_ceil(room)).map_err(|_| too_large)?;
    let length = u64::try_from(encoded.len()).map_err(|_| too_large)?;
    // A copy, which does not keep the original's data.
    let fields = Content { data: Bytes::copy_from_slice(first), ..original.content.clone() };
    Ok(Chunks { fields, digest, encoded, count, length, next: 0 })
}

/// Whether a transaction with `data` bytes of data can be cut, whatever its proof.
///
/// # Errors
/// As [`cut`]'s.
pub(crate) fn check_cut(data: usize, head: usize, frame_limit: usize) -> Result<(), CutError> {
    room_in_frame(head, frame_limit)?;
    let length = data.saturating_add(Content::FIXED_LEN + Proof::MAX_LEN + 4);
    if head > data {
        return Err(CutError::HeadPastData { head, data });
    }
    if length > MESSAGE_LIMIT {
        return Err(CutError::MessageTooLarge { length });
    }
    Ok(())
}

/// How many bytes of an original's encoding a chunk has room for behind its head.
fn room_in_frame(head: usize, frame_limit: usize) -> Result<usize, CutError> {
    frame_limit
        .checked_sub(Payload::OVERHEAD + CHUNK_FIELDS)
        .and_then(|room| room.checked_sub(head))
        .filter(|room| *room > 0)
        .ok_or(CutError::HeadFillsFrame { head, frame_limit })
}

/// The contents of an original's chunks, in order. Holds the original's encoding once, and makes each chunk when asked.
#[derive(Debug, Clone)]
pub struct Chunks {
    /// The original's fields, with its head as data.
    fields: Content,
    digest: TransactionDigest,
    encoded: Bytes,
    count: u32,
    length: u64,
    next: u32,
}

impl Iterator for Chunks {
    type Item = Content;

    fn next(&mut self) -> Option<Content> {
        let (index, count, length) = (self.next, self.count, self.length);
        // Past the last there is no range.
        let slice = self.encoded.get(slice_range(index, count, length)?)?;
        let mut data = BytesMut::with_capacity(self.fields.data.len() + slice.len());
        data.put_slice(&self.fields.data);
        data.put_slice(slice);
        self.next += 1;
        let kind = Kind::Chunk { index, count, original: self.digest, length };
        Some(Content { kind, data: data.freeze(), ..self.fields.clone() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.count.saturating_sub(self.next)).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Chunks {}
impl FusedIterator for Chunks {}

/// Where the slice of chunk `index` stands in an encoding of `length` bytes cut into `count`. `None` where there is no
/// such chunk, where the last would have no byte, or where this machine cannot address it.
pub(crate) fn slice_range(index: u32, count: u32, length: u64) -> Option<Range<usize>> {
    let size = length.div_ceil(u64::from(count).max(1));
    let start = u64::from(index).checked_mul(size)?;
    let last = u64::from(count.checked_sub(1)?).checked_mul(size)?;
    if index >= count || last >= length {
        return None;
    }
    let end = start.saturating_add(size).min(length);
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

impl Transaction {
    /// The self-contained encoding of a whole transaction. See the [module](self).
    ///
    /// # Errors
    /// [`CutError::Nested`], [`CutError::Reference`] and [`CutError::MessageTooLarge`].
    pub(crate) fn encode_self_contained(&self) -> Result<Bytes, CutError> {
        if self.content.kind != Kind::Whole {
            return Err(CutError::Nested);
        }
        if matches!(self.proof.slot, Slot::Digest(_)) {
            return Err(CutError::Reference);
        }
        let length = self.encoded_len();
        match u32::try_from(self.content.data.len()) {
            Ok(data_length) if length <= MESSAGE_LIMIT => {
                let mut out = BytesMut::with_capacity(length);
                self.encode(&mut out, data_length);
                Ok(out.freeze())
            }
            _ => Err(CutError::MessageTooLarge { length }),
        }
    }

    /// Decodes the self-contained encoding of an original, which is what its chunks join to (law L2.8). Total: any bytes
    /// give a whole transaction or an error. The data is a slice of `encoded`, not a copy. No signature is verified.
    ///
    /// # Errors
    /// [`DecodeError`], with [`DecodeError::Nested`] for a chunk and [`DecodeError::Reference`] for a reference slot.
    pub fn decode_self_contained(encoded: Bytes) -> Result<Self, DecodeError> {
        if encoded.len() > MESSAGE_LIMIT {
            return Err(DecodeError::Oversize { length: encoded.len(), limit: MESSAGE_LIMIT });
        }
        let transaction = Self::decode(encoded, &mut Keys::default())?;
        if transaction.content.kind != Kind::Whole {
            return Err(DecodeError::Nested);
        }
        match transaction.proof.slot {
            Slot::Digest(_) => Err(DecodeError::Reference),
            Slot::Own(_) | Slot::Inline(_) => Ok(transaction),
        }
    }
}

#[cfg(test)]
mod tests;
