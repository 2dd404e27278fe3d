//! What a receiver can show of a fork.

use crate::{
    identity::{BadSignature, Check, Proof, SignError, Signer, Slot},
    message::{StreamKey, Transaction, TransactionDigest},
};

const CONTEXT: &str = "admit-one fork evidence transcript";

/// Two transactions at one sequence of one incarnation of a stream, as a receiver saw them (law L5.3).
///
/// It holds the digest that the window kept, the whole refused transaction under its origin's proof, and the
/// receiver's own signature over both. It proves that the origin signed the refused one, and that the receiver
/// states to have admitted the other; a window keeps digests, so the kept one's signature is not in it. The
/// crate draws no consequence from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkEvidence {
    /// The stream.
    pub stream: StreamKey,
    /// The digest admitted at the sequence before.
    pub kept: TransactionDigest,
    /// The transaction that was refused, its proof as the origin made it.
    pub refused: Transaction,
    /// The receiver's proof over [`ForkEvidence::transcript`].
    pub witness: Proof,
}

/// Why evidence shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The refused transaction is the kept one.
    #[error("both digests are the same: that is a replay, not a fork")]
    SameDigest,
    /// The refused transaction is not from the stream's origin, or not for its destination.
    #[error("the refused transaction is not of the stream that the evidence names")]
    AnotherStream,
    /// A slot refers to a delegation that only a link knows.
    #[error("the {whose} slot is a reference: evidence is self-contained")]
    Unresolved {
        /// `origin's` or `witness's`.
        whose: &'static str,
    },
    /// The witness's proof does not speak for the destination.
    #[error("the witness does not speak for the stream's destination")]
    NotTheDestination,
    /// The origin's delegation was not valid when the refused transaction was issued.
    #[error("the origin's delegation was not valid when the transaction was issued")]
    DelegationNotValid,
    /// A signature does not hold.
    #[error("the {whose} signature does not hold")]
    BadSignature {
        /// `origin's` or `witness's`.
        whose: &'static str,
    },
}

impl ForkEvidence {
    /// Signs evidence with this node's key. Signing may wait for a key elsewhere, so it never happens inside the
    /// boundary.
    ///
    /// # Errors
    /// [`SignError`] when the key cannot be used.
    pub async fn sign(
        stream: StreamKey,
        kept: TransactionDigest,
        refused: Transaction,
        signer: &dyn Signer,
    ) -> Result<Self, SignError> {
        let slot = signer.slot();
        let signature = signer.sign(transcript(&stream, &kept, &refused)).await?;
        Ok(Self { stream, kept, refused, witness: Proof { slot, signature } })
    }

    /// The digest of the refused transaction.
    pub fn refused_digest(&self) -> TransactionDigest {
        refused_digest(&self.stream, &self.refused)
    }

    /// What the witness signs: a domain-separated hash over network, origin, destination, class, incarnation,
    /// sequence and both digests. The refused transaction is bound by its digest.
    pub fn transcript(&self) -> [u8; 32] {
        transcript(&self.stream, &self.kept, &self.refused)
    }

    /// Verifies that it is what it says, with `sigma` milliseconds of tolerance for the origin's delegation.
    ///
    /// # Errors
    /// [`EvidenceError`]: it shows nothing.
    pub fn verify(&self, sigma: u64) -> Result<(), EvidenceError> {
        let origin = &self.refused.proof;
        if self.refused_digest() == self.kept {
            return Err(EvidenceError::SameDigest);
        }
        let speaker = origin.slot.speaker().ok_or(EvidenceError::Unresolved { whose: "origin's" })?;
        if speaker != self.stream.origin || self.refused.content.destination != self.stream.destination {
            return Err(EvidenceError::AnotherStream);
        }
        let witness = self.witness.slot.speaker().ok_or(EvidenceError::Unresolved { whose: "witness's" })?;
        if witness != self.stream.destination {
            return Err(EvidenceError::NotTheDestination);
        }
        if origin.slot.delegation().is_some_and(|given| !given.valid_at(self.refused.content.issued_at, sigma)) {
            return Err(EvidenceError::DelegationNotValid);
        }
        verify(origin, self.refused_digest().0).map_err(|_| EvidenceError::BadSignature { whose: "origin's" })?;
        verify(&self.witness, self.transcript()).map_err(|_| EvidenceError::BadSignature { whose: "witness's" })
    }
}

fn refused_digest(stream: &StreamKey, refused: &Transaction) -> TransactionDigest {
    refused.content.digest(stream.network, &stream.origin, stream.class)
}

fn transcript(stream: &StreamKey, kept: &TransactionDigest, refused: &Transaction) -> [u8; 32] {
    blake3::Hasher::new_derive_key(CONTEXT)
        .update(&stream.to_bytes())
        .update(&refused.content.incarnation.0.to_be_bytes())
        .update(&refused.content.sequence.to_be_bytes())
        .update(&kept.0)
        .update(&refused_digest(stream, refused).0)
        .finalize()
        .into()
}

fn verify(proof: &Proof, message: [u8; 32]) -> Result<(), BadSignature> {
    let key = match &proof.slot {
        Slot::Own(key) => *key,
        Slot::Inline(delegation) => {
            delegation.verify()?;
            delegation.delegatee()
        }
        Slot::Digest(_) => return Err(BadSignature),
    };
    Check { key, message, signature: proof.signature }.verify()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::executor::block_on;

    use super::*;
    use crate::{
        identity::KeySigner,
        message::{Class, Content, Incarnation, Kind, NetworkId, TxId},
    };

    fn refused(stream: &StreamKey, signer: &KeySigner) -> Transaction {
        let content = Content {
            destination: stream.destination,
            tx_id: TxId([4; 16]),
            incarnation: Incarnation::new(1_000, 7),
            sequence: 12,
            issued_at: 1_000,
            ttl: 50,
            kind: Kind::Whole,
            data: Bytes::from_static(b"\x02second"),
        };
        let digest = content.digest(stream.network, &stream.origin, stream.class);
        Transaction { proof: Proof { slot: signer.slot(), signature: signer.sign_now(&digest.0) }, content }
    }

    fn evidence() -> (ForkEvidence, KeySigner, KeySigner) {
        let (account, device, node) = (KeySigner::generate(), KeySigner::generate(), KeySigner::generate());
        let delegation = account.delegate(device.key(), 900, 1_000);
        let device = device.with_delegation(delegation).unwrap();
        let stream =
            StreamKey { network: NetworkId(1), origin: account.key(), destination: node.key(), class: Class::E2e };
        let refused = refused(&stream, &device);
        let kept = TransactionDigest([1; 32]);
        (block_on(ForkEvidence::sign(stream, kept, refused, &node)).unwrap(), device, node)
    }

    #[test]
    fn l5_3_fork_evidence_verifies_and_nothing_in_it_can_be_changed() {
        let (evidence, ..) = evidence();
        assert_eq!(evidence.verify(0), Ok(()));

        let origin = EvidenceError::BadSignature { whose: "origin's" };
        let witness = EvidenceError::BadSignature { whose: "witness's" };
        type Change = fn(&mut ForkEvidence);
        let changes: [(Change, EvidenceError); 8] = [
            (|it| it.kept = TransactionDigest([2; 32]), witness),
            (|it| it.kept = it.refused_digest(), EvidenceError::SameDigest),
            (|it| it.refused.content.sequence += 1, origin),
            (|it| it.refused.content.data = Bytes::from_static(b"\x02third"), origin),
            (|it| it.stream.network = NetworkId(2), origin),
            (|it| it.stream.origin = it.stream.destination, EvidenceError::AnotherStream),
            (|it| it.witness.slot = it.refused.proof.slot.clone(), EvidenceError::NotTheDestination),
            (|it| it.witness.signature.0[3] ^= 1, witness),
        ];
        for (place, (change, expected)) in changes.into_iter().enumerate() {
            let mut changed = evidence.clone();
            change(&mut changed);
            assert_eq!(changed.verify(0), Err(expected), "change {place}");
        }
    }

    #[test]
    fn l5_3_fork_evidence_needs_a_delegation_that_held_when_the_transaction_was_issued() {
        let (evidence, device, node) = evidence();
        let mut early = evidence.refused.clone();
        early.content.issued_at = 880;
        let digest = early.content.digest(NetworkId(1), &evidence.stream.origin, Class::E2e);
        early.proof.signature = device.sign_now(&digest.0);
        let early = block_on(ForkEvidence::sign(evidence.stream, evidence.kept, early, &node)).unwrap();
        assert_eq!(early.verify(0), Err(EvidenceError::DelegationNotValid));
        assert_eq!(early.verify(20), Ok(()));
    }
}
