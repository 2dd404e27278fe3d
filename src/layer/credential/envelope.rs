use bytes::Bytes;

use super::{CredentialRefusal, Credentials, Extractor, PossessionProof, Presenter, SignedApproval, SignedNonce};
use crate::layer::single_use::{
    Call, INTENT_MAX, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX, WireError,
    wire::{Reader, put_bytes, put_instant, put_optional, put_text},
};

/// The most bytes that an envelope may have unless told otherwise: 1 MiB.
pub const ENVELOPE_LIMIT: usize = 1024 * 1024;

const MARKER: [u8; 4] = *b"A1EN";

/// A call, its arguments and its credentials in one piece of bytes, for transports that have no headers: a libp2p request,
/// or the data of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    call: Call,
    arguments: Bytes,
    pub(super) proof: Option<PossessionProof>,
    pub(super) nonce: Option<SignedNonce>,
    pub(super) approval: Option<SignedApproval>,
}

impl Envelope {
    /// The most bytes that an envelope has beside its arguments.
    pub const OVERHEAD: usize = Call::ENCODED_MAX - 32
        + (1 + 4 + PossessionProof::ENCODED_MAX)
        + (1 + 4 + SignedNonce::ENCODED_MAX)
        + (1 + 4 + SignedApproval::ENCODED_MAX)
        + 4;

    /// A call with these arguments, whose hash it takes, and no credentials yet.
    pub fn new(call: Call, arguments: Bytes) -> Self {
        let call = Call { arguments: Call::hash_arguments(&arguments), ..call };
        Self { call, arguments, proof: None, nonce: None, approval: None }
    }

    /// With the subject's proof. A transaction that this node admits needs none: its origin has signed it.
    #[must_use]
    pub fn proof(mut self, proof: PossessionProof) -> Self {
        self.proof = Some(proof);
        self
    }

    /// With an issuer's nonce for the call.
    #[must_use]
    pub fn nonce(mut self, nonce: SignedNonce) -> Self {
        self.nonce = Some(nonce);
        self
    }

    /// With an approver's approval of the call.
    #[must_use]
    pub fn approval(mut self, approval: SignedApproval) -> Self {
        self.approval = Some(approval);
        self
    }

    /// The call, with the hash of the arguments.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The arguments.
    pub const fn arguments(&self) -> &Bytes {
        &self.arguments
    }

    /// Encodes it: marker, the fields of the call but the arguments' hash, proof, nonce and approval, each behind one byte
    /// that says whether it is there and a length of four, and the arguments behind a length of four.
    ///
    /// # Errors
    /// [`WireError`] where a field is over its bound. Whether the whole is over a receiver's limit is the receiver's to say.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.call.check()?;
        let proof = self.proof.as_ref().map(PossessionProof::encode).transpose()?;
        let nonce = self.nonce.as_ref().map(SignedNonce::encode).transpose()?;
        let approval = self.approval.as_ref().map(SignedApproval::encode).transpose()?;
        let Call { tenant, request_id, method, arguments: _, intent, issued_at, deadline } = &self.call;
        let mut out = Vec::with_capacity(Self::OVERHEAD.saturating_add(self.arguments.len()));
        out.extend_from_slice(&MARKER);
        put_text(&mut out, tenant);
        put_text(&mut out, request_id);
        put_text(&mut out, method);
        put_optional(&mut out, intent.as_deref(), put_text);
        put_optional(&mut out, issued_at.as_ref(), put_instant);
        put_optional(&mut out, deadline.as_ref(), put_instant);
        for credential in [proof, nonce, approval] {
            put_optional(&mut out, credential.as_deref(), put_bytes);
        }
        put_bytes(&mut out, &self.arguments);
        Ok(out)
    }

    /// Decodes a whole one of at most `limit` bytes. Total: any bytes give one within its bounds, or an error. The arguments
    /// are a slice of `bytes`, not a copy. No signature is verified.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &Bytes, limit: usize) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, "request", MARKER, limit)?;
        let call = Call {
            tenant: reader.text("tenant", TENANT_MAX)?,
            request_id: reader.text("request id", REQUEST_ID_MAX)?,
            method: reader.text("method", METHOD_MAX)?,
            arguments: [0; 32],
            intent: reader.optional("intent", |reader| reader.text("intent", INTENT_MAX))?,
            issued_at: reader.optional("issued-at", |reader| reader.instant("issued-at"))?,
            deadline: reader.optional("deadline", |reader| reader.instant("deadline"))?,
        };
        let proof = reader.optional("proof", |reader| PossessionProof::decode(reader.bytes("proof")?))?;
        let nonce = reader.optional("nonce", |reader| SignedNonce::decode(reader.bytes("nonce")?))?;
        let approval = reader.optional("approval", |reader| SignedApproval::decode(reader.bytes("approval")?))?;
        let arguments = bytes.slice_ref(reader.bytes("arguments")?);
        reader.end()?;
        Ok(Self { proof, nonce, approval, ..Self::new(call, arguments) })
    }

    /// What it shows, by the word of `presenter` where it carries no proof of its own.
    pub(super) fn present(self, presenter: Option<Presenter>) -> Result<Credentials, CredentialRefusal> {
        let Self { call, arguments, proof, nonce, approval } = self;
        let missing = CredentialRefusal::Missing { what: "proof of possession" };
        let presenter = proof.map(Presenter::Proof).or(presenter).ok_or(missing)?;
        Ok(Credentials { call, arguments, presenter, nonce, approval })
    }
}

/// Finds credentials in an [`Envelope`]: the bytes of a libp2p request, as request-response brings them.
#[derive(Debug, Clone, Copy)]
pub struct EnvelopeExtractor {
    limit: usize,
}

impl EnvelopeExtractor {
    /// Takes envelopes of at most [`ENVELOPE_LIMIT`] bytes.
    pub const fn new() -> Self {
        Self { limit: ENVELOPE_LIMIT }
    }

    /// Takes envelopes of at most `limit` bytes.
    #[must_use]
    pub const fn limit(self, limit: usize) -> Self {
        Self { limit }
    }

    pub(super) fn decode(self, bytes: &Bytes) -> Result<Envelope, CredentialRefusal> {
        Envelope::decode(bytes, self.limit)
            .map_err(|reason| CredentialRefusal::Malformed { what: "request", reason: reason.into() })
    }
}

impl Default for EnvelopeExtractor {
    fn default() -> Self {
        Self::new()
    }
}

impl Extractor<Bytes> for EnvelopeExtractor {
    fn extract(&self, request: &Bytes) -> Result<Credentials, CredentialRefusal> {
        self.decode(request)?.present(None)
    }
}

/// The fuzz target of an envelope.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "envelope",
    run: |data| {
        let bytes = Bytes::copy_from_slice(data);
        let Ok(envelope) = Envelope::decode(&bytes, ENVELOPE_LIMIT) else { return false };
        assert!(data.len() <= ENVELOPE_LIMIT && data.len() <= Envelope::OVERHEAD + envelope.arguments.len());
        assert_eq!(envelope.call.arguments, Call::hash_arguments(&envelope.arguments));
        assert_eq!(envelope.encode().as_deref(), Ok(data), "an envelope has two encodings");
        assert!(Envelope::decode(&bytes, data.len() - 1).is_err());
        true
    },
    seeds: || fuzzing::envelopes().iter().flat_map(Envelope::encode).collect(),
};

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing {
    use super::*;

    /// One that carries nothing, and one that carries everything.
    pub(in crate::layer::credential) fn envelopes() -> [Envelope; 2] {
        let [least, full] = crate::layer::single_use::fuzzing::calls();
        let mut whole = Envelope::new(full, Bytes::from_static(b"a note"));
        let seed = |target: crate::fuzzing::Target| (target.seeds)().pop().unwrap_or_default();
        whole.proof = PossessionProof::decode(&seed(super::super::possession::FUZZ)).ok();
        whole.nonce = SignedNonce::decode(&seed(super::super::signed_nonce::FUZZ)).ok();
        whole.approval = SignedApproval::decode(&seed(super::super::approval::FUZZ)).ok();
        [Envelope::new(least, Bytes::new()), whole]
    }
}
