//! Payloads to encode: fixed keys, and a strategy for everything that the format can hold.

use std::{
    ops::Range,
    sync::{Arc, LazyLock},
};

use admit_one::{
    identity::{Delegation, KeySigner, Proof, Signature, Slot},
    message::{Content, Incarnation, Kind, MAX_HOP_BUDGET, Payload, Transaction, TransactionDigest, TxId},
};
use bytes::Bytes;
use proptest::prelude::*;

/// The signer whose 32 secret bytes are all `seed`.
pub fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).expect("a key")
}

/// A few keys; decoding does not care whose they are.
static KEYS: LazyLock<Vec<KeySigner>> = LazyLock::new(|| (1..=8).map(signer).collect());

/// Any payload that the format can hold, with data of a length in `data`. Its signatures are random bytes.
pub fn any_payload(data: Range<usize>) -> impl Strategy<Value = Payload> {
    (any_transaction(data), any_key(), 0..=MAX_HOP_BUDGET, any_proof()).prop_map(
        |(transaction, next_hop, hop_budget, proof)| Payload {
            transaction,
            next_hop: next_hop.key(),
            hop_budget,
            proof,
        },
    )
}

fn any_key() -> impl Strategy<Value = &'static KeySigner> {
    (0..KEYS.len()).prop_map(|index| &KEYS[index])
}

fn any_transaction(data: Range<usize>) -> impl Strategy<Value = Transaction> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let data = prop::collection::vec(any::<u8>(), data);
    (any_key(), any::<[u8; 16]>(), numbers, any_kind(), data, any_proof()).prop_map(
        |(destination, tx_id, (incarnation, sequence, issued_at, ttl), kind, data, proof)| Transaction {
            content: Content {
                destination: destination.key(),
                tx_id: TxId(tx_id),
                incarnation: Incarnation(incarnation),
                sequence,
                issued_at,
                ttl,
                kind,
                data: Bytes::from(data),
            },
            proof,
        },
    )
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let chunk =
        (any::<u32>(), any::<u32>(), any::<[u8; 32]>(), any::<u64>()).prop_map(|(index, count, original, length)| {
            Kind::Chunk { index, count, original: TransactionDigest(original), length }
        });
    prop_oneof![2 => Just(Kind::Whole), 1 => chunk]
}

fn any_proof() -> impl Strategy<Value = Proof> {
    (any_slot(), any::<[[u8; 32]; 2]>()).prop_map(|(slot, [first, second])| {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&first);
        signature[32..].copy_from_slice(&second);
        Proof { slot, signature: Signature(signature) }
    })
}

fn any_slot() -> impl Strategy<Value = Slot> {
    prop_oneof![
        any_key().prop_map(|key| Slot::Own(key.key())),
        any_delegation().prop_map(|delegation| Slot::Inline(Arc::new(delegation))),
        any_delegation().prop_map(|delegation| Slot::Digest(delegation.digest())),
    ]
}

fn any_delegation() -> impl Strategy<Value = Delegation> {
    (any_key(), any_key(), any::<u64>(), any::<u64>())
        .prop_map(|(delegator, delegatee, issued_at, ttl)| delegator.delegate(delegatee.key(), issued_at, ttl))
}

/// One edit of a frame on its way.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Flips bits of one byte.
    Flip(prop::sample::Index, u8),
    /// Cuts the frame short.
    Truncate(prop::sample::Index),
    /// Puts bytes in, or behind the end.
    Insert(prop::sample::Index, Vec<u8>),
    /// Takes bytes out.
    Remove(prop::sample::Index, prop::sample::Index),
    /// Goes on with the other frame from some place of it.
    Splice(prop::sample::Index, prop::sample::Index),
}

impl Edit {
    /// Applies the edit to `frame`; `other` is what a splice takes from.
    pub fn apply(&self, frame: &mut Vec<u8>, other: &[u8]) {
        let ends = frame.len() + 1;
        match self {
            Edit::Flip(at, bits) if !frame.is_empty() => {
                let at = at.index(frame.len());
                frame[at] ^= bits;
            }
            Edit::Flip(..) => {}
            Edit::Truncate(at) => frame.truncate(at.index(ends)),
            Edit::Insert(at, bytes) => {
                let at = at.index(ends);
                frame.splice(at..at, bytes.iter().copied());
            }
            Edit::Remove(from, to) => {
                let (from, to) = (from.index(ends), to.index(ends));
                frame.drain(from.min(to)..from.max(to));
            }
            Edit::Splice(at, from) => {
                frame.truncate(at.index(ends));
                frame.extend(&other[from.index(other.len() + 1)..]);
            }
        }
    }
}

/// Any one edit.
pub fn any_edit() -> impl Strategy<Value = Edit> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), 1_u8..).prop_map(|(at, bits)| Edit::Flip(at, bits)),
        1 => at().prop_map(Edit::Truncate),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..64)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (at(), at()).prop_map(|(from, to)| Edit::Remove(from, to)),
        1 => (at(), at()).prop_map(|(at, from)| Edit::Splice(at, from)),
    ]
}
