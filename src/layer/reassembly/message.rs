use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};

use super::{CHUNK_OVERHEAD, ChunkRefusal, MESSAGE_OVERHEAD, account::Peer};
use crate::{
    clock::WallMs,
    link::LinkId,
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
    /// The peer's connection that it came on.
    pub(super) link: LinkId,
    pub(super) common: Common,
    pub(super) index: u32,
    pub(super) slice: &'a [u8],
}

/// A message that gathers, or has.
#[derive(Debug)]
pub(super) struct Message {
    common: Common,
    pub(super) began: Duration,
    slices: BTreeMap<u32, Slice>,
    parts: BTreeMap<Peer, Part>,
}

#[derive(Debug)]
struct Slice {
    bytes: Box<[u8]>,
    /// How many links brought it.
    bringers: usize,
}

/// What one link brought of a message, whether or not others brought the same.
#[derive(Debug)]
struct Part {
    brought: BTreeSet<u32>,
    /// The connection that all of it came on, if it was one.
    link: Option<LinkId>,
    /// Bytes accounted for it.
    bytes: usize,
}

impl Message {
    /// One without a chunk yet.
    pub(super) fn begin(chunk: &Chunk<'_>, began: Duration) -> Self {
        let mut common = chunk.common.clone();
        // A copy of its own size, since the chunk's is a slice of its whole frame.
        common.head = Bytes::copy_from_slice(&common.head);
        Self { common, began, slices: BTreeMap::new(), parts: BTreeMap::new() }
    }

    pub(super) const fn expires_at(&self) -> WallMs {
        self.common.expires_at()
    }

    /// Whether a chunk agrees with all that is there, and its link has not brought it yet.
    pub(super) fn judge(&self, chunk: &Chunk<'_>) -> Result<(), ChunkRefusal> {
        if let Some(field) = self.common.difference(&chunk.common) {
            return Err(ChunkRefusal::Conflict { field });
        }
        match self.slices.get(&chunk.index) {
            Some(slice) if *slice.bytes != *chunk.slice => Err(ChunkRefusal::Conflict { field: "bytes" }),
            Some(_) if self.parts.get(&chunk.peer).is_some_and(|part| part.brought.contains(&chunk.index)) => {
                Err(ChunkRefusal::Repeated { index: chunk.index })
            }
            _ => Ok(()),
        }
    }

    /// Stores a chunk that was judged and costs its link `cost` bytes.
    pub(super) fn store(&mut self, chunk: &Chunk<'_>, cost: usize) {
        let begin = || Part { brought: BTreeSet::new(), link: Some(chunk.link), bytes: 0 };
        let part = self.parts.entry(chunk.peer).or_insert_with(begin);
        part.bytes += cost;
        part.link = part.link.filter(|link| *link == chunk.link);
        if part.brought.insert(chunk.index) {
            let slice = self.slices.entry(chunk.index);
            slice.or_insert_with(|| Slice { bytes: chunk.slice.into(), bringers: 0 }).bringers += 1;
        }
    }

    /// Lets go what only `peer` brought; gives the bytes accounted to it.
    pub(super) fn leave(&mut self, peer: &Peer) -> usize {
        let Some(part) = self.parts.remove(peer) else { return 0 };
        for index in &part.brought {
            if let Entry::Occupied(mut slice) = self.slices.entry(*index) {
                slice.get_mut().bringers -= 1;
                if slice.get().bringers == 0 {
                    slice.remove();
                }
            }
        }
        part.bytes
    }

    pub(super) fn is_brought_by(&self, peer: &Peer) -> bool {
        self.parts.contains_key(peer)
    }

    pub(super) fn is_complete(&self) -> bool {
        u32::try_from(self.slices.len()).is_ok_and(|held| held == self.common.count)
    }

    /// Whether `peer` brought all of a complete one, on one connection.
    pub(super) fn came_on_one_connection(&self, peer: &Peer) -> bool {
        let part = self.parts.get(peer).filter(|part| part.link.is_some());
        part.is_some_and(|part| part.brought.len() == self.slices.len())
    }

    /// The links that bring it, with the bytes accounted to each.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Peer, usize)> + '_ {
        self.parts.iter().map(|(peer, part)| (*peer, part.bytes))
    }

    /// Bytes of heap that its slices and head take.
    #[cfg(test)]
    pub(super) fn really_held(&self) -> usize {
        self.common.head.len() + self.slices.values().map(|slice| slice.bytes.len()).sum::<usize>()
    }

    /// The slices of a complete one in order, each let go as it is copied.
    pub(super) fn join(mut self) -> Bytes {
        let mut joined = BytesMut::with_capacity(self.slices.values().map(|slice| slice.bytes.len()).sum());
        while let Some((_, slice)) = self.slices.pop_first() {
            joined.put_slice(&slice.bytes);
        }
        joined.freeze()
    }
}

/// Bytes that a chunk takes, and its part of the message where it is its link's first of that.
pub(super) const fn cost(chunk: &Chunk<'_>, first: bool) -> usize {
    let part = if first { MESSAGE_OVERHEAD + chunk.common.head.len() } else { 0 };
    part + CHUNK_OVERHEAD + chunk.slice.len()
}
