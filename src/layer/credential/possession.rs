use crate::{
    identity::{Check, Did, KeySigner, Proof, Signer as _, Slot},
    layer::single_use::{
        Call, Commitment, WireError,
        wire::{PROOF_MAX, Reader, check_span, put_instant, put_optional, put_proof},
    },
};

const MARKER: [u8; 4] = *b"A1PO";
const CONTEXT: &str = "admit-one possession transcript";

/// What the subject says when it calls: this call, now, under this authority (law L12.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Possession {
    /// The call, and who asks for it.
    pub commitment: Commitment,
    /// Its own name among those of its key, never used twice: 32 random bytes.
    pub nonce: [u8; 32],
    /// [`SignedNonce::digest`](super::SignedNonce::digest) of the signed nonce that it goes with, if it goes with one.
    pub authority: Option<[u8; 32]>,
    /// When it was signed, in unix seconds.
    pub issued_at: i64,
    /// The first instant at which it proves nothing any more, in unix seconds. It is signed, so that its mark is kept as
    /// long, whatever a receiver is configured to accept later.
    pub expires_at: i64,
}

/// A [`Possession`] under the subject's signature, or under that of a key that the subject delegated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossessionProof {
    /// What is said.
    pub possession: Possession,
    /// Who says it, and the signature over [`Possession::transcript`].
    pub proof: Proof,
}

impl Possession {
    /// Of `call` by `subject`, from `issued_at` until `expires_at` in unix seconds, together with a signed nonce of this
    /// digest or with none. Draws its own nonce.
    ///
    /// # Panics
    /// If the system has no random source.
    pub fn new(call: &Call, subject: &Did, authority: Option<[u8; 32]>, issued_at: i64, expires_at: i64) -> Self {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).unwrap_or_else(|error| panic!("no random source: {error}"));
        Self { commitment: Commitment::of(call, subject), nonce, authority, issued_at, expires_at }
    }

    /// What the subject's key signs: a domain-separated hash over every field.
    pub fn transcript(&self) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(CONTEXT).update(&self.written()).finalize().as_bytes()
    }

    /// Signs it, under the signer's delegation if it has one. For a key that lives elsewhere, sign
    /// [`Possession::transcript`] there.
    pub fn sign(self, signer: &KeySigner) -> PossessionProof {
        let proof = Proof { slot: signer.slot(), signature: signer.sign_now(&self.transcript()) };
        PossessionProof { possession: self, proof }
    }

    fn written(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PossessionProof::ENCODED_MAX);
        out.extend_from_slice(&MARKER);
        out.extend_from_slice(&self.commitment.0);
        out.extend_from_slice(&self.nonce);
        put_optional(&mut out, self.authority.as_ref(), |out, digest| out.extend_from_slice(digest));
        put_instant(&mut out, &self.issued_at);
        put_instant(&mut out, &self.expires_at);
        out
    }
}

impl PossessionProof {
    /// The most bytes of an encoded one.
    pub const ENCODED_MAX: usize = MARKER.len() + 32 + 32 + (1 + 32) + 2 * 8 + PROOF_MAX;

    /// Who is spoken for, and the key that signed. `None` where the proof only refers to a delegation.
    pub fn speaker(&self) -> Option<(Did, Did)> {
        self.proof.slot.speaker().zip(self.proof.slot.key())
    }

    /// What to verify: the signature over [`Possession::transcript`]. `None` where the proof only refers to a delegation.
    /// A delegation that it carries is to be verified beside it.
    pub fn check(&self) -> Option<Check> {
        let key = self.proof.slot.key()?;
        Some(Check { key, message: self.possession.transcript(), signature: self.proof.signature })
    }

    /// Says whether every field is within its bound and the proof stands for itself.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn check_shape(&self) -> Result<(), WireError> {
        check_span(self.possession.issued_at, self.possession.expires_at)?;
        match self.proof.slot {
            Slot::Own(_) | Slot::Inline(_) => Ok(()),
            Slot::Digest(_) => Err(WireError::Reference { field: "subject's slot" }),
        }
    }

    /// Encodes it: marker, commitment 32, its own nonce 32, the signed nonce's digest behind one byte that says whether it
    /// is there, issued-at, expiry, slot, signature 64.
    ///
    /// # Errors
    /// [`WireError`] where a field is over its bound, or the proof refers to a delegation that it does not carry.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.check_shape()?;
        let mut out = self.possession.written();
        put_proof(&mut out, &self.proof, "subject's slot")?;
        Ok(out)
    }

    /// Decodes a whole one. Total: any bytes give one within its bounds, or an error. No signature is verified.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, "proof of possession", MARKER, Self::ENCODED_MAX)?;
        let possession = Possession {
            commitment: Commitment(reader.array("commitment")?),
            nonce: reader.array("nonce")?,
            authority: reader.optional("signed nonce's digest", |reader| reader.array("signed nonce's digest"))?,
            issued_at: reader.instant("issued-at")?,
            expires_at: reader.instant("expiry")?,
        };
        let proof = reader.proof("subject's slot")?;
        reader.end()?;
        let decoded = Self { possession, proof };
        decoded.check_shape()?;
        Ok(decoded)
    }
}

/// The fuzz target of a proof of possession.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "possession",
    run: |data| {
        let Ok(decoded) = PossessionProof::decode(data) else { return false };
        assert!(data.len() <= PossessionProof::ENCODED_MAX);
        assert_eq!(decoded.encode().as_deref(), Ok(data), "a credential has two encodings");
        let _ = decoded.check();
        true
    },
    seeds: || {
        let (account, device) = (KeySigner::fuzzing(1), KeySigner::fuzzing(2));
        let delegation = account.delegate(device.key(), 1_700_000_000_000, 1_000);
        let device = device.with_delegation(delegation).unwrap_or_else(|error| panic!("{error}"));
        let [call, _] = crate::layer::single_use::fuzzing::calls();
        let said = |authority| Possession {
            nonce: [9; 32],
            ..Possession::new(&call, &account.key(), authority, 1, 1_700_000_600)
        };
        [said(None).sign(&account), said(Some([4; 32])).sign(&device)]
            .iter()
            .flat_map(PossessionProof::encode)
            .collect()
    },
};
