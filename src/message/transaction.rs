use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Class, NetworkId};
use crate::{
    clock::WallMs,
    identity::{Did, Proof},
};

/// How long a transaction lives unless told otherwise: 10 minutes, in milliseconds (law L2.4).
pub const DEFAULT_TTL_MS: u64 = 10 * 60 * 1_000;

/// The greatest time to live that a node can be set to accept: 100 minutes, in milliseconds (law L2.4).
pub const GREATEST_TTL_MS: u64 = 100 * 60 * 1_000;

const CONTEXT: &str = "admit-one transaction transcript";

/// A name that the origin gives a transaction, 16 bytes. Nothing is decided by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TxId(pub [u8; 16]);

impl TxId {
    /// A random one.
    ///
    /// # Panics
    /// If the system has no random source.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).unwrap_or_else(|error| panic!("no random source: {error}"));
        Self(bytes)
    }
}

/// Which life of its stream's numbering a sequence belongs to: 48 bits of wall milliseconds, then 16 random bits
/// (law L8.4). A greater one supersedes a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The incarnation of `wall` milliseconds, of which the lowest 48 bits count, and `random` bits.
    pub const fn new(wall: WallMs, random: u16) -> Self {
        Self(wall << 16 | random as u64)
    }

    /// The wall milliseconds in it.
    pub const fn wall(self) -> WallMs {
        self.0 >> 16
    }
}

/// The hash of a transaction's transcript, 32 bytes: what is signed, and what a window remembers (law L2.3).
///
/// It does not depend on signature bytes or on how a slot is encoded, so a re-signed copy has the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransactionDigest(pub [u8; 32]);

impl fmt::Debug for TransactionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransactionDigest({self})")
    }
}

impl fmt::Display for TransactionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether a transaction is whole, or a part of a larger one (law L2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The whole message.
    Whole,
    /// Chunk `index` of `count` of the original with this digest and encoded length.
    Chunk {
        /// Place of the chunk, from 0.
        index: u32,
        /// How many chunks the original has.
        count: u32,
        /// The original's digest.
        original: TransactionDigest,
        /// The original's encoded length in bytes.
        length: u64,
    },
}

/// What an origin signs, except what both sides derive: the network, the origin and the class (law L2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Whom it is for.
    pub destination: Did,
    /// The origin's name for it.
    pub tx_id: TxId,
    /// Which life of the stream's numbering `sequence` belongs to.
    pub incarnation: Incarnation,
    /// Its place in the stream.
    pub sequence: u64,
    /// When it was signed, in wall milliseconds. Decides liveness only, never order.
    pub issued_at: WallMs,
    /// How long it lives from then, in milliseconds.
    pub ttl: u64,
    /// Whole, or a chunk.
    pub kind: Kind,
    /// The message.
    pub data: Bytes,
}

impl Content {
    /// The digest that the origin signs and a window remembers (laws L1.4, L2.2 and L2.3).
    pub fn digest(&self, network: NetworkId, origin: &Did, class: Class) -> TransactionDigest {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher
            .update(&network.0.to_be_bytes())
            .update(origin.as_bytes())
            .update(self.destination.as_bytes())
            .update(&[class.lane()]);
        match self.kind {
            Kind::Whole => hasher.update(&[0]),
            Kind::Chunk { index, count, original, length } => hasher
                .update(&[1])
                .update(&index.to_be_bytes())
                .update(&count.to_be_bytes())
                .update(&original.0)
                .update(&length.to_be_bytes()),
        };
        hasher
            .update(&self.tx_id.0)
            .update(&self.incarnation.0.to_be_bytes())
            .update(&self.sequence.to_be_bytes())
            .update(&self.issued_at.to_be_bytes())
            .update(&self.ttl.to_be_bytes())
            .update(&self.data);
        TransactionDigest(hasher.finalize().into())
    }

    /// The first instant at which it no longer lives.
    pub const fn expires_at(&self) -> WallMs {
        self.issued_at.saturating_add(self.ttl)
    }

    /// Whether it lives at `instant`, with `sigma` milliseconds of tolerance (law L2.4).
    pub const fn liveness(&self, instant: WallMs, sigma: u64) -> Liveness {
        if self.issued_at.saturating_sub(sigma) > instant {
            Liveness::FromTheFuture
        } else if instant < self.expires_at() {
            Liveness::Live
        } else {
            Liveness::Expired
        }
    }
}

/// Where an instant lies in a transaction's life (law L2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Issued more than the clock tolerance ahead of the instant.
    FromTheFuture,
    /// Live.
    Live,
    /// Past its time to live.
    Expired,
}

/// Content and its origin's proof (law L2.1). Nothing in it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// What was signed.
    pub content: Content,
    /// Who signed it: the origin, or its delegatee.
    pub proof: Proof,
}

impl Transaction {
    /// Who it is from: the delegator, or the key itself (law L1.3). `None` while its slot is an unresolved reference.
    pub fn origin(&self) -> Option<Did> {
        self.proof.slot.speaker()
    }
}
