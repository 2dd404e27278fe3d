//! The encoding of a payload, and its total decoder.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Content, Incarnation, Kind, MAX_HOP_BUDGET, Payload, Transaction, TransactionDigest, TxId};
use crate::identity::{Delegation, DelegationDigest, DelegationError, Did, DidError, Proof, Signature, Slot};

/// What every frame begins with (law L2.7).
pub const MARKER: [u8; 8] = *b"ADMITONE";

/// The most bytes that a frame may have unless told otherwise, marker included (law L2.7).
pub const FRAME_LIMIT: usize = 32 * 1024;

const OWN: u8 = 0;
const INLINE: u8 = 1;
const DIGEST: u8 = 2;
const WHOLE: u8 = 0;
const CHUNK: u8 = 1;

/// Encoded bytes of a chunk's index, count, original and length.
pub(super) const CHUNK_FIELDS: usize = 4 + 4 + 32 + 8;

/// Why bytes are no payload, or no original of chunks. Nothing was allocated but what the frame itself holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The frame does not begin with [`MARKER`].
    #[error("the frame does not begin with the protocol's marker")]
    WrongMarker,
    /// The frame is over the limit.
    #[error("a frame of {length} bytes is over the limit of {limit}")]
    Oversize {
        /// The frame's length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The frame ends inside a field.
    #[error("the frame ends inside its {field}")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{count} bytes follow the frame's last field")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// A tag that the format does not have.
    #[error("no {field} has tag {tag}")]
    UnknownTag {
        /// The field.
        field: &'static str,
        /// The tag.
        tag: u8,
    },
    /// The hop budget is over [`MAX_HOP_BUDGET`].
    #[error("a hop budget of {0} is over {MAX_HOP_BUDGET}")]
    HopBudget(u8),
    /// A key is refused.
    #[error("the {field} is refused: {reason}")]
    Key {
        /// The field.
        field: &'static str,
        /// Why.
        reason: DidError,
    },
    /// An original of chunks is itself a chunk (law L2.8).
    #[error("the original of chunks is itself a chunk")]
    Nested,
    /// An original of chunks refers to a delegation instead of carrying it (law L2.8).
    #[error("the original of chunks refers to a delegation that it does not carry")]
    Reference,
}

/// A transaction that does not fit one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a transaction of {length} bytes on the wire is over the frame limit of {limit}")]
pub struct FrameTooLarge {
    /// The frame's length in bytes, as its slots stand.
    pub length: usize,
    /// The limit in bytes.
    pub limit: usize,
}

impl Payload {
    /// The most bytes that a whole transaction's frame has beside its data: both slots inline.
    pub const OVERHEAD: usize = MARKER.len() + Did::LEN + 1 + Proof::MAX_LEN + Content::FIXED_LEN + Proof::MAX_LEN + 4;

    /// The frame's length in bytes.
    pub fn encoded_len(&self) -> usize {
        MARKER.len() + Did::LEN + 1 + self.proof.encoded_len() + self.transaction.encoded_len()
    }

    /// Encodes one frame.
    ///
    /// # Errors
    /// [`FrameTooLarge`] when it would be over `limit` bytes.
    pub fn encode(&self, limit: usize) -> Result<Bytes, FrameTooLarge> {
        let length = self.encoded_len();
        let content = &self.transaction.content;
        let data_length = u32::try_from(content.data.len()).map_err(|_| FrameTooLarge { length, limit })?;
        if length > limit {
            return Err(FrameTooLarge { length, limit });
        }
        let mut out = BytesMut::with_capacity(length);
        out.put_slice(&MARKER);
        out.put_slice(self.next_hop.as_bytes());
        out.put_u8(self.hop_budget);
        self.proof.encode(&mut out);
        self.transaction.encode(&mut out, data_length);
        Ok(out.freeze())
    }

    /// Decodes one frame. Total: any bytes give a payload or an error. The data is a slice of `frame`, not a copy.
    /// No signature is verified.
    ///
    /// # Errors
    /// [`DecodeError`]; the marker and the limit are judged before anything else is read (law L2.7).
    pub fn decode(mut frame: Bytes, limit: usize) -> Result<Self, DecodeError> {
        if frame.len() > limit {
            return Err(DecodeError::Oversize { length: frame.len(), limit });
        }
        if !frame.starts_with(&MARKER) {
            return Err(DecodeError::WrongMarker);
        }
        frame.advance(MARKER.len());
        let mut keys = Keys::default();
        let next_hop = keys.take(&mut frame, "next hop")?;
        let hop_budget = u8(&mut frame, "hop budget")?;
        if hop_budget > MAX_HOP_BUDGET {
            return Err(DecodeError::HopBudget(hop_budget));
        }
        let hop_proof = Proof::decode(&mut frame, &mut keys, "hop's slot")?;
        let transaction = Transaction::decode(frame, &mut keys)?;
        Ok(Self { transaction, next_hop, hop_budget, proof: hop_proof })
    }

    /// What a frame's two slots refer by, the hop's first, found without decoding the frame: a few comparisons, and
    /// nothing is allocated. Total: any bytes give an answer, and that of a frame that decodes is what decoding gives.
    pub(crate) fn references(frame: &[u8]) -> [Option<DelegationDigest>; 2] {
        const HOPS_SLOT: usize = MARKER.len() + Did::LEN + 1;
        let mut rest = match frame.get(HOPS_SLOT..) {
            Some(rest) if frame.starts_with(&MARKER) => rest,
            _ => return [None; 2],
        };
        let Some(hop) = skip_proof(&mut rest) else { return [None; 2] };
        let origin = skip_content(&mut rest).and_then(|()| skip_proof(&mut rest)).flatten();
        [hop, origin]
    }
}

impl Transaction {
    /// Encoded bytes, from the destination to the end of the data.
    pub(super) fn encoded_len(&self) -> usize {
        self.content.encoded_len() + self.proof.encoded_len() + 4
    }

    /// Appends what a frame has from the destination on; `data_length` is the data's.
    pub(super) fn encode(&self, out: &mut BytesMut, data_length: u32) {
        let content = &self.content;
        out.put_slice(content.destination.as_bytes());
        out.put_slice(&content.tx_id.0);
        out.put_u64(content.incarnation.0);
        out.put_u64(content.sequence);
        out.put_u64(content.issued_at);
        out.put_u64(content.ttl);
        match content.kind {
            Kind::Whole => out.put_u8(WHOLE),
            Kind::Chunk { index, count, original, length } => {
                out.put_u8(CHUNK);
                out.put_u32(index);
                out.put_u32(count);
                out.put_slice(&original.0);
                out.put_u64(length);
            }
        }
        self.proof.encode(out);
        out.put_u32(data_length);
        out.put_slice(&content.data);
    }

    /// Decodes all of `frame`, from the destination on. The data is a slice of it.
    pub(super) fn decode(mut frame: Bytes, keys: &mut Keys) -> Result<Self, DecodeError> {
        let destination = keys.take(&mut frame, "destination")?;
        let tx_id = TxId(array(&mut frame, "tx_id")?);
        let incarnation = Incarnation(u64(&mut frame, "incarnation")?);
        let sequence = u64(&mut frame, "sequence")?;
        let issued_at = u64(&mut frame, "issued-at")?;
        let ttl = u64(&mut frame, "ttl")?;
        let kind = match u8(&mut frame, "kind")? {
            WHOLE => Kind::Whole,
            CHUNK => Kind::Chunk {
                index: u32(&mut frame, "chunk index")?,
                count: u32(&mut frame, "chunk count")?,
                original: TransactionDigest(array(&mut frame, "original's digest")?),
                length: u64(&mut frame, "original's length")?,
            },
            tag => return Err(DecodeError::UnknownTag { field: "kind", tag }),
        };
        let proof = Proof::decode(&mut frame, keys, "origin's slot")?;
        let length = u32(&mut frame, "data length")?;
        let data = match usize::try_from(length) {
            Ok(length) if length <= frame.len() => frame.split_to(length),
            _ => return Err(DecodeError::Truncated { field: "data" }),
        };
        if !frame.is_empty() {
            return Err(DecodeError::TrailingBytes { count: frame.len() });
        }
        let content = Content { destination, tx_id, incarnation, sequence, issued_at, ttl, kind, data };
        Ok(Self { content, proof })
    }
}

/// Skips a proof, and says what its slot refers by if it does. `None` where there is no proof.
fn skip_proof(rest: &mut &[u8]) -> Option<Option<DelegationDigest>> {
    let (&tag, slot) = rest.split_first()?;
    let (length, reference) = match tag {
        OWN => (Did::LEN, None),
        INLINE => (Delegation::LEN, None),
        DIGEST => (32, slot.first_chunk().map(|digest| DelegationDigest(*digest))),
        _ => return None,
    };
    *rest = slot.get(length + Signature::LEN..)?;
    Some(reference)
}

/// Skips what stands between the two proofs.
fn skip_content(rest: &mut &[u8]) -> Option<()> {
    let (&tag, kind) = rest.get(Content::FIXED_LEN - 1..)?.split_first()?;
    *rest = match tag {
        WHOLE => kind,
        CHUNK => kind.get(CHUNK_FIELDS..)?,
        _ => return None,
    };
    Some(())
}

impl Content {
    /// Encoded bytes of a whole transaction's content, without its data and the data's length.
    pub(super) const FIXED_LEN: usize = Did::LEN + 16 + 4 * 8 + 1;

    fn encoded_len(&self) -> usize {
        let kind = match self.kind {
            Kind::Whole => 0,
            Kind::Chunk { .. } => CHUNK_FIELDS,
        };
        Self::FIXED_LEN + kind + self.data.len()
    }
}

impl Proof {
    pub(super) const MAX_LEN: usize = 1 + Delegation::LEN + Signature::LEN;

    fn encoded_len(&self) -> usize {
        let slot = match self.slot {
            Slot::Own(_) => Did::LEN,
            Slot::Inline(_) => Delegation::LEN,
            Slot::Digest(_) => 32,
        };
        1 + slot + Signature::LEN
    }

    fn encode(&self, out: &mut BytesMut) {
        match &self.slot {
            Slot::Own(did) => {
                out.put_u8(OWN);
                out.put_slice(did.as_bytes());
            }
            Slot::Inline(delegation) => {
                out.put_u8(INLINE);
                delegation.encode(out);
            }
            Slot::Digest(digest) => {
                out.put_u8(DIGEST);
                out.put_slice(&digest.0);
            }
        }
        out.put_slice(self.signature.as_bytes());
    }

    fn decode(frame: &mut Bytes, keys: &mut Keys, field: &'static str) -> Result<Self, DecodeError> {
        let slot = match u8(frame, field)? {
            OWN => Slot::Own(keys.take(frame, field)?),
            INLINE => {
                let delegation = Delegation::decode_with(frame, |bytes| keys.did(bytes));
                Slot::Inline(Arc::new(delegation.map_err(|error| match error {
                    DelegationError::Truncated => DecodeError::Truncated { field },
                    DelegationError::Key(reason) => DecodeError::Key { field, reason },
                })?))
            }
            DIGEST => Slot::Digest(DelegationDigest(array(frame, field)?)),
            tag => return Err(DecodeError::UnknownTag { field, tag }),
        };
        Ok(Self { slot, signature: Signature(array(frame, "signature")?) })
    }
}

/// The keys that a frame has named so far. Taking a key costs more than the rest of decoding, and on a direct link
/// most keys of a frame stand in it twice: the next hop is the destination, the hop's keys are the origin's.
#[derive(Default)]
pub(super) struct Keys {
    known: [Option<Did>; 6],
}

impl Keys {
    fn take(&mut self, frame: &mut Bytes, field: &'static str) -> Result<Did, DecodeError> {
        self.did(&array(frame, field)?).map_err(|reason| DecodeError::Key { field, reason })
    }

    fn did(&mut self, bytes: &[u8; Did::LEN]) -> Result<Did, DidError> {
        if let Some(known) = self.known.iter().flatten().find(|known| known.as_bytes() == bytes) {
            return Ok(*known);
        }
        let did = Did::from_bytes(bytes)?;
        if let Some(free) = self.known.iter_mut().find(|place| place.is_none()) {
            *free = Some(did);
        }
        Ok(did)
    }
}

fn array<const N: usize>(frame: &mut Bytes, field: &'static str) -> Result<[u8; N], DecodeError> {
    let mut bytes = [0; N];
    frame.try_copy_to_slice(&mut bytes).map_err(|_| DecodeError::Truncated { field })?;
    Ok(bytes)
}

fn u8(frame: &mut Bytes, field: &'static str) -> Result<u8, DecodeError> {
    frame.try_get_u8().map_err(|_| DecodeError::Truncated { field })
}

fn u32(frame: &mut Bytes, field: &'static str) -> Result<u32, DecodeError> {
    frame.try_get_u32().map_err(|_| DecodeError::Truncated { field })
}

fn u64(frame: &mut Bytes, field: &'static str) -> Result<u64, DecodeError> {
    frame.try_get_u64().map_err(|_| DecodeError::Truncated { field })
}

/// The fuzz target of a frame. Its seeds begin with what `tests/wire/vectors.json` has.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "frame",
    run: |data| {
        let found = Payload::references(data);
        let Ok(payload) = Payload::decode(Bytes::copy_from_slice(data), FRAME_LIMIT) else { return false };
        assert!(data.len() <= FRAME_LIMIT);
        assert_eq!(payload.encoded_len(), data.len());
        assert_eq!(payload.encode(FRAME_LIMIT).as_deref(), Ok(data), "a frame has two encodings");
        assert!(payload.encode(data.len() - 1).is_err());
        let reference = |slot: &Slot| match slot {
            Slot::Digest(digest) => Some(*digest),
            Slot::Own(_) | Slot::Inline(_) => None,
        };
        assert_eq!(found, [&payload.proof.slot, &payload.transaction.proof.slot].map(reference));
        assert!(payload.transaction.content.data.len() < data.len());
        true
    },
    seeds: || fuzzing::frames().collect(),
};

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing {
    use super::*;
    use crate::identity::KeySigner;

    /// A transaction of every kind of slot and content, its signature of no worth.
    pub(in crate::message) fn transactions() -> impl Iterator<Item = Transaction> {
        let (account, device) = (KeySigner::fuzzing(1), KeySigner::fuzzing(2));
        let inline = Slot::Inline(Arc::new(account.delegate(device.key(), 1_700_000_000_000, 1_000)));
        let slots = [Slot::Own(account.key()), inline, Slot::Digest(DelegationDigest([3; 32]))];
        let original = TransactionDigest([4; 32]);
        let kinds = [Kind::Whole, Kind::Chunk { index: 1, count: 3, original, length: 20 }];
        let data: [&'static [u8]; 2] = [b"\x02a message", b"\x03\x04chatmore"];
        slots.into_iter().zip(data.into_iter().cycle()).flat_map(move |(slot, data)| {
            kinds.map(|kind| Transaction {
                content: Content {
                    destination: KeySigner::fuzzing(3).key(),
                    tx_id: TxId([5; 16]),
                    incarnation: Incarnation::new(1_700_000_000_000, 7),
                    sequence: 12,
                    issued_at: 1_700_000_000_000,
                    ttl: 600_000,
                    kind,
                    data: Bytes::from_static(data),
                },
                proof: Proof { slot: slot.clone(), signature: Signature([6; 64]) },
            })
        })
    }

    pub(super) fn frames() -> impl Iterator<Item = Vec<u8>> {
        let mut proofs: Vec<_> = transactions().map(|transaction| transaction.proof).collect();
        proofs.rotate_left(3);
        transactions().zip(proofs).flat_map(|(transaction, proof)| {
            let next_hop = transaction.content.destination;
            let payload = Payload { transaction, next_hop, hop_budget: 8, proof };
            payload.encode(FRAME_LIMIT).map(Vec::from)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::identity::KeySigner;

    fn slot(of: u8) -> Slot {
        let (account, device) = (KeySigner::from_secret(&[1; 32]).unwrap(), KeySigner::from_secret(&[2; 32]).unwrap());
        match of {
            0 => Slot::Own(account.key()),
            1 => Slot::Inline(Arc::new(account.delegate(device.key(), 1, 2))),
            of => Slot::Digest(DelegationDigest([of; 32])),
        }
    }

    fn payload(hop: u8, origin: u8, chunk: bool, data: usize) -> Payload {
        let (key, original) = (KeySigner::from_secret(&[1; 32]).unwrap().key(), TransactionDigest([3; 32]));
        let kind = if chunk { Kind::Chunk { index: 1, count: 2, original, length: 9 } } else { Kind::Whole };
        let content = Content {
            destination: key,
            tx_id: TxId([0; 16]),
            incarnation: Incarnation(1),
            sequence: 1,
            issued_at: 1,
            ttl: 1,
            kind,
            data: vec![7; data].into(),
        };
        let proof = |of| Proof { slot: slot(of), signature: Signature([of; 64]) };
        let transaction = Transaction { content, proof: proof(origin) };
        Payload { transaction, next_hop: key, hop_budget: 0, proof: proof(hop) }
    }

    fn reference(slot: &Slot) -> Option<DelegationDigest> {
        match slot {
            Slot::Digest(digest) => Some(*digest),
            Slot::Own(_) | Slot::Inline(_) => None,
        }
    }

    proptest! {
        /// Law L4.5: what a look at a frame's slots finds is what decoding the frame finds, whatever was done to it, and
        /// looking at bytes that are no frame harms nobody.
        #[test]
        fn l4_5_references_are_found_where_decoding_finds_them(
            (hop, origin) in (0..5_u8, 0..5_u8),
            (chunk, data) in (any::<bool>(), 0..40_usize),
            flips in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<Index>()),
        ) {
            let payload = payload(hop, origin, chunk, data);
            let mut bytes = payload.encode(FRAME_LIMIT).unwrap().to_vec();
            let expected = [&payload.proof.slot, &payload.transaction.proof.slot].map(reference);
            prop_assert_eq!(Payload::references(&bytes), expected);
            for (place, byte) in flips {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let found = Payload::references(&bytes);
            if let Ok(decoded) = Payload::decode(bytes.into(), FRAME_LIMIT) {
                let expected = [&decoded.proof.slot, &decoded.transaction.proof.slot].map(reference);
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn any_bytes_are_looked_at_without_a_panic(mut bytes in prop::collection::vec(0..3_u8, 0..600)) {
            Payload::references(&bytes);
            let marked = bytes.len().min(MARKER.len());
            bytes[..marked].copy_from_slice(&MARKER[..marked]);
            Payload::references(&bytes);
        }
    }
}
