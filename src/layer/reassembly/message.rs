use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};

use super::{CHUNK_OVERHEAD, ChunkRefusal, LINK_OVERHEAD, MESSAGE_OVERHEAD, account::Peer};
use crate::{
    clock::WallMs,
    message::{Class, Incarnation, TransactionDigest, TxId},
};

/// Names a message: whose it is, and what its chunks claim that it is. Its network and destination are this node's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) origin: [u8; 32],
    pub(super) original: TransactionDigest,
}

/// What all chunks of a message must agree in, beside its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) class: Class,
    pub(super) tx_id: TxId,
    pub(super) incarnation: Incarnation,
    pub(super) sequence: u64,
    pub(super) issued_at: WallMs,
    pub(super) ttl: u64,
    pub(super) count: u32,
    pub(super) length: u64,
    pub(super) head: Bytes,
}

impl Common {
    pub(super) const fn expires_at(&self) -> WallMs {
        self.issued_at.saturating_add(self.ttl)
    }

    /// The first field in which `self` and `other` differ.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.class == other.class, "class"),
            (self.tx_id == other.tx_id, "tx_id"),
            (self.incarnation == other.incarnation, "incarnation"),
            (self.sequence == other.sequence, "sequence"),
            (self.issued_at == other.issued_at, "issued-at"),
            (self.ttl == other.ttl, "ttl"),
            (self.count == other.count, "count"),
            (self.length == other.length, "length"),
            (self.head == other.head, "head"),
        ]
        .into_iter()
        .find_map(|(alike, field)| (!alike).then_some(field))
    }
}

/// A verified chunk. Its slices borrow its frame, which is not kept.
#[derive(Debug, Clone)]
pub(super) struct Chunk<'a> {
    pub(super) name: Name,
    pub(super) peer: Peer,
    pub(super) common: Common,
    pub(super) index: u32,
    pub(super) slice: &'a [u8],
}

/// A message that gathers, or has.
#[derive(Debug)]
pub(super) struct Message {
    common: Common,
    /// Who brought the first chunk of it, and is charged its place.
    pub(super) beginner: Peer,
    pub(super) began: Duration,
    slices: BTreeMap<u32, Box<[u8]>>,
    /// Bytes accounted to each peer that brought any of it.
    parts: BTreeMap<Peer, usize>,
}

impl Message {
    /// One without a chunk yet; what it takes at first is accounted by [`Message::cost`].
    pub(super) fn begin(chunk: &Chunk<'_>, began: Duration) -> Self {
        let mut common = chunk.common.clone();
        // A copy of its own size, since the chunk's is a slice of its whole frame.
        common.head = Bytes::copy_from_slice(&common.head);
        Self { common, beginner: chunk.peer, began, slices: BTreeMap::new(), parts: BTreeMap::new() }
    }

    pub(super) const fn expires_at(&self) -> WallMs {
        self.common.expires_at()
    }

    /// Whether a chunk may be the next one: alike in all that must be, and not there yet.
    pub(super) fn judge(&self, chunk: &Chunk<'_>) -> Result<(), ChunkRefusal> {
        if let Some(field) = self.common.difference(&chunk.common) {
            return Err(ChunkRefusal::Conflict { field });
        }
        match self.slices.get(&chunk.index) {
            None => Ok(()),
            Some(held) if **held == *chunk.slice => Err(ChunkRefusal::Repeated { index: chunk.index }),
            Some(_) => Err(ChunkRefusal::Conflict { field: "bytes" }),
        }
    }

    /// Bytes that one more chunk of `peer` takes.
    pub(super) fn cost(&self, chunk: &Chunk<'_>) -> usize {
        let message = if self.slices.is_empty() { MESSAGE_OVERHEAD + self.common.head.len() } else { 0 };
        message + self.cost_of_link(&chunk.peer) + CHUNK_OVERHEAD + chunk.slice.len()
    }

    /// Bytes that `peer` takes by bringing any of it.
    pub(super) fn cost_of_link(&self, peer: &Peer) -> usize {
        if self.parts.contains_key(peer) { 0 } else { LINK_OVERHEAD }
    }

    /// Stores a chunk that was judged and costs `cost`.
    pub(super) fn store(&mut self, chunk: &Chunk<'_>, cost: usize) {
        if let Entry::Vacant(place) = self.slices.entry(chunk.index) {
            place.insert(chunk.slice.into());
            self.charge(chunk.peer, cost);
        }
    }

    /// Notes that `bytes` more are accounted to `peer` for it.
    pub(super) fn charge(&mut self, peer: Peer, bytes: usize) {
        *self.parts.entry(peer).or_default() += bytes;
    }

    /// Whether nobody but `peer` brings it.
    pub(super) fn is_of_only(&self, peer: &Peer) -> bool {
        self.parts.keys().all(|other| other == peer)
    }

    /// The one peer that brings it, and the bytes held for it; `None` where several do.
    pub(super) fn of_only(&self) -> Option<(Peer, usize)> {
        let mut parts = self.parts.iter();
        parts.next().map(|(peer, bytes)| (*peer, *bytes)).filter(|_| parts.next().is_none())
    }

    pub(super) fn is_complete(&self) -> bool {
        u32::try_from(self.slices.len()).is_ok_and(|held| held == self.common.count)
    }

    /// Bytes accounted to each peer.
    pub(super) const fn parts(&self) -> &BTreeMap<Peer, usize> {
        &self.parts
    }

    /// The slices of a complete one in order, each let go as it is copied.
    pub(super) fn join(mut self) -> Bytes {
        let mut joined = BytesMut::with_capacity(self.slices.values().map(|slice| slice.len()).sum());
        while let Some((_, slice)) = self.slices.pop_first() {
            joined.put_slice(&slice);
        }
        joined.freeze()
    }
}
