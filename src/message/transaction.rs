use std::{fmt, ops::Range};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Class, NetworkId, slice_range};
use crate::{
    clock::WallMs,
    identity::{Did, Proof},
};

/// How long a transaction lives unless told otherwise: 10 minutes, in milliseconds (law L2.4).
pub const DEFAULT_TTL_MS: u64 = 10 * 60 * 1_000;

/// The greatest time to live that a node can be set to accept: 100 minutes, in milliseconds (law L2.4).
pub const GREATEST_TTL_MS: u64 = 100 * 60 * 1_000;

/// For how long mail may be held after it last lived, in milliseconds: 7 days (law L2.4).
pub const MAIL_HOLD_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

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

impl Kind {
    /// Where a chunk's slice stands in its original's encoding (law L2.8). `None` for a whole transaction, and for a chunk
    /// whose index, count and length do not fit each other.
    pub fn slice(&self) -> Option<Range<usize>> {
        match *self {
            Kind::Whole => None,
            Kind::Chunk { index, count, length, .. } => slice_range(index, count, length),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use super::*;
    use crate::identity::{Check, KeySigner, Slot};

    const NETWORK: NetworkId = NetworkId(7);

    fn signer(seed: u8) -> KeySigner {
        KeySigner::from_secret(&[seed; 32]).unwrap()
    }

    fn content() -> Content {
        Content {
            destination: signer(2).key(),
            tx_id: TxId([3; 16]),
            incarnation: Incarnation(4),
            sequence: 5,
            issued_at: 6_000,
            ttl: 700,
            kind: Kind::Whole,
            data: Bytes::from_static(b"data"),
        }
    }

    fn chunk() -> Kind {
        Kind::Chunk { index: 1, count: 2, original: TransactionDigest([9; 32]), length: 3 }
    }

    #[test]
    fn l2_2_changing_any_one_signed_field_changes_the_digest() {
        let origin = signer(1).key();
        let digest = |content: Content| content.digest(NETWORK, &origin, Class::E2e);
        let mut digests = vec![
            digest(content()),
            content().digest(NetworkId(8), &origin, Class::E2e),
            content().digest(NETWORK, &signer(3).key(), Class::E2e),
            content().digest(NETWORK, &origin, Class::DhtControl),
            content().digest(NETWORK, &origin, Class::Storage),
            content().digest(NETWORK, &origin, Class::Application),
            digest(Content { destination: signer(4).key(), ..content() }),
            digest(Content { tx_id: TxId([4; 16]), ..content() }),
            digest(Content { incarnation: Incarnation(5), ..content() }),
            digest(Content { sequence: 6, ..content() }),
            digest(Content { issued_at: 6_001, ..content() }),
            digest(Content { ttl: 701, ..content() }),
            digest(Content { data: Bytes::from_static(b"dat"), ..content() }),
            digest(Content { data: Bytes::from_static(b"datA"), ..content() }),
            digest(Content { data: Bytes::from_static(b"data\0"), ..content() }),
            digest(Content { data: Bytes::new(), ..content() }),
            digest(Content { kind: chunk(), ..content() }),
        ];
        for kind in [
            Kind::Chunk { index: 0, count: 2, original: TransactionDigest([9; 32]), length: 3 },
            Kind::Chunk { index: 1, count: 3, original: TransactionDigest([9; 32]), length: 3 },
            Kind::Chunk { index: 1, count: 2, original: TransactionDigest([8; 32]), length: 3 },
            Kind::Chunk { index: 1, count: 2, original: TransactionDigest([9; 32]), length: 4 },
        ] {
            digests.push(digest(Content { kind, ..content() }));
        }
        // Values that trade places between neighbouring fields of one size.
        digests.push(digest(Content { issued_at: 700, ttl: 6_000, ..content() }));
        digests.push(digest(Content { incarnation: Incarnation(5), sequence: 4, ..content() }));
        digests.push(Content { destination: origin, ..content() }.digest(NETWORK, &signer(2).key(), Class::E2e));
        let distinct: HashSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }

    #[test]
    fn l2_2_a_chunks_fields_are_not_read_as_a_whole_ones() {
        // The bytes that the chunk's fields add, moved to where a whole transaction's next fields and data stand.
        let origin = signer(1).key();
        let chunked = Content { kind: chunk(), data: Bytes::new(), ..content() };
        let tail = [[0; 2].as_slice(), &[9; 32], &3_u64.to_be_bytes()].concat();
        let whole = Content { data: tail.into(), ..content() };
        assert_ne!(chunked.digest(NETWORK, &origin, Class::E2e), whole.digest(NETWORK, &origin, Class::E2e));
    }

    #[test]
    fn l2_3_the_digest_leaves_out_how_a_slot_is_written_and_who_signed() {
        let (account, device) = (signer(1), signer(5));
        let digest = content().digest(NETWORK, &account.key(), Class::E2e);
        let renewed = [(1, 2), (3, 4)].map(|(issued, ttl)| account.delegate(device.key(), issued, ttl));
        let slots = [
            (&account, Slot::Own(account.key())),
            (&device, Slot::Inline(Arc::new(renewed[0].clone()))),
            (&device, Slot::Inline(Arc::new(renewed[1].clone()))),
        ];
        for (signer, slot) in slots {
            let proof = Proof { signature: signer.sign_now(&digest.0), slot };
            let key = proof.slot.key().unwrap();
            assert_eq!(Check { key, message: digest.0, signature: proof.signature }.verify(), Ok(()));
            let transaction = Transaction { content: content(), proof };
            let origin = transaction.origin().unwrap();
            assert_eq!(transaction.content.digest(NETWORK, &origin, Class::E2e), digest);
        }
    }

    #[test]
    fn l1_4_a_swapped_delegation_does_not_re_attribute_a_transaction() {
        let (account, thief, device) = (signer(1), signer(6), signer(5));
        let digest = content().digest(NETWORK, &account.key(), Class::E2e);
        let signature = device.sign_now(&digest.0);
        let swaps = [Slot::Inline(Arc::new(thief.delegate(device.key(), 1, u64::MAX))), Slot::Own(device.key())];
        for slot in swaps {
            let swapped = Transaction { content: content(), proof: Proof { slot, signature } };
            let origin = swapped.origin().unwrap();
            let message = swapped.content.digest(NETWORK, &origin, Class::E2e).0;
            assert!(Check { key: device.key(), message, signature }.verify().is_err());
        }
    }

    #[test]
    fn l2_2_another_network_or_class_fails_the_signature() {
        let origin = signer(1);
        let signature = origin.sign_now(&content().digest(NETWORK, &origin.key(), Class::E2e).0);
        let verify = |network, class| {
            let message = content().digest(network, &origin.key(), class).0;
            Check { key: origin.key(), message, signature }.verify()
        };
        assert_eq!(verify(NETWORK, Class::E2e), Ok(()));
        assert!(verify(NetworkId(8), Class::E2e).is_err());
        assert!(verify(NETWORK, Class::Storage).is_err());
    }

    #[test]
    fn l2_4_live_from_sigma_before_its_issue_until_just_before_its_expiry() {
        let content = content();
        assert_eq!(content.expires_at(), 6_700);
        assert_eq!(content.liveness(5_969, 30), Liveness::FromTheFuture);
        assert_eq!(content.liveness(5_970, 30), Liveness::Live);
        assert_eq!(content.liveness(6_699, 30), Liveness::Live);
        assert_eq!(content.liveness(6_700, 30), Liveness::Expired);
        assert_eq!(content.liveness(5_999, 0), Liveness::FromTheFuture);
        assert_eq!(content.liveness(6_000, 0), Liveness::Live);
    }

    #[test]
    fn l2_4_liveness_saturates_at_both_ends_of_time() {
        let early = Content { issued_at: 5, ttl: 10, ..content() };
        assert_eq!(early.liveness(0, 30), Liveness::Live);
        assert_eq!(early.liveness(15, u64::MAX), Liveness::Expired, "σ never lengthens a life");
        let endless = Content { issued_at: 5, ttl: u64::MAX, ..content() };
        assert_eq!(endless.expires_at(), u64::MAX);
        assert_eq!(endless.liveness(u64::MAX - 1, 0), Liveness::Live);
        assert_eq!(endless.liveness(u64::MAX, 0), Liveness::Expired);
        let never = Content { issued_at: 5, ttl: 0, ..content() };
        assert_eq!(never.liveness(5, 0), Liveness::Expired);
    }

    #[test]
    fn l8_4_an_incarnation_is_48_bits_of_wall_time_then_16_random_bits() {
        let incarnation = Incarnation::new(0x0123_4567_89ab, 0xcdef);
        assert_eq!(incarnation.0, 0x0123_4567_89ab_cdef);
        assert_eq!(incarnation.wall(), 0x0123_4567_89ab);
        assert!(Incarnation::new(2, 0) > Incarnation::new(1, u16::MAX));
        assert_eq!(Incarnation::new(u64::MAX, 1).wall(), (1 << 48) - 1);
    }

    #[test]
    fn random_names_differ() {
        assert_ne!(TxId::random(), TxId::random());
    }
}
