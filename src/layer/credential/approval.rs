use crate::{
    identity::{Check, Did, KeySigner, Signature},
    layer::single_use::{
        Call, INTENT_MAX, REQUEST_ID_MAX, TENANT_MAX, WireError,
        wire::{Reader, check_span, check_text, put_instant, put_text},
    },
};

const MARKER: [u8; 4] = *b"A1AP";
const CONTEXT: &str = "admit-one approval transcript";
const DIGEST_CONTEXT: &str = "admit-one signed approval digest";

/// What an approver allows: one dispatch attempt of one subject's request with one intent (law L12.3).
///
/// It says nothing of the arguments: the intent does, in whatever way approver and handler agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Who approves.
    pub approver: Did,
    /// Whose request it is.
    pub subject: Did,
    /// The tenant of the request: at most [`TENANT_MAX`] bytes.
    pub tenant: String,
    /// The request's id: at most [`REQUEST_ID_MAX`] bytes.
    pub request_id: String,
    /// What is approved, as the call states it: at most [`INTENT_MAX`] bytes.
    pub intent: String,
    /// When it was signed, in unix seconds.
    pub issued_at: i64,
    /// The first instant at which it allows nothing any more, in unix seconds. How long its mark is kept is the call's
    /// deadline's to say.
    pub expires_at: i64,
}

/// An [`Approval`] under its approver's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedApproval {
    /// What is approved.
    pub approval: Approval,
    /// The approver's signature over [`Approval::transcript`].
    pub signature: Signature,
}

impl Approval {
    /// Of `call` by `subject`, from `issued_at` until `expires_at`, in unix seconds. `None` where the call states no intent.
    pub fn new(approver: Did, call: &Call, subject: Did, issued_at: i64, expires_at: i64) -> Option<Self> {
        let (tenant, request_id) = (call.tenant.clone(), call.request_id.clone());
        Some(Self { approver, subject, tenant, request_id, intent: call.intent.clone()?, issued_at, expires_at })
    }

    /// What the approver signs: a domain-separated hash over every field.
    pub fn transcript(&self) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(CONTEXT).update(&self.written()).finalize().as_bytes()
    }

    /// Signs it with the approver's key. For a key that lives elsewhere, sign [`Approval::transcript`] there.
    pub fn sign(self, approver: &KeySigner) -> SignedApproval {
        let signature = approver.sign_now(&self.transcript());
        SignedApproval { approval: self, signature }
    }

    /// Says whether every field is within its bound and it ends after it begins.
    ///
    /// # Errors
    /// [`WireError`] naming the first field that is not.
    pub fn check_shape(&self) -> Result<(), WireError> {
        check_text(&self.tenant, "tenant", TENANT_MAX)?;
        check_text(&self.request_id, "request id", REQUEST_ID_MAX)?;
        check_text(&self.intent, "intent", INTENT_MAX)?;
        check_span(self.issued_at, self.expires_at)
    }

    fn written(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SignedApproval::ENCODED_MAX);
        out.extend_from_slice(&MARKER);
        out.extend_from_slice(self.approver.as_bytes());
        out.extend_from_slice(self.subject.as_bytes());
        put_text(&mut out, &self.tenant);
        put_text(&mut out, &self.request_id);
        put_text(&mut out, &self.intent);
        put_instant(&mut out, &self.issued_at);
        put_instant(&mut out, &self.expires_at);
        out
    }
}

impl SignedApproval {
    /// The most bytes of an encoded one.
    pub const ENCODED_MAX: usize =
        MARKER.len() + 2 * 32 + (4 + TENANT_MAX) + (4 + REQUEST_ID_MAX) + (4 + INTENT_MAX) + 2 * 8 + Signature::LEN;

    /// What to verify: the approver's signature.
    pub fn check(&self) -> Check {
        Check { key: self.approval.approver, message: self.approval.transcript(), signature: self.signature }
    }

    /// Its name: a hash over every field but the signature, so that one that is signed anew is the same authority.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(DIGEST_CONTEXT).update(&self.approval.written()).finalize().as_bytes()
    }

    /// Encodes it: marker, approver and subject 32 each, tenant, request id, intent, issued-at, expiry, signature 64.
    ///
    /// # Errors
    /// [`WireError`] where a field is over its bound.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.approval.check_shape()?;
        let mut out = self.approval.written();
        out.extend_from_slice(self.signature.as_bytes());
        Ok(out)
    }

    /// Decodes a whole one. Total: any bytes give one within its bounds, or an error. The signature is not verified.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, "signed approval", MARKER, Self::ENCODED_MAX)?;
        let approval = Approval {
            approver: reader.key("approver")?,
            subject: reader.key("subject")?,
            tenant: reader.text("tenant", TENANT_MAX)?,
            request_id: reader.text("request id", REQUEST_ID_MAX)?,
            intent: reader.text("intent", INTENT_MAX)?,
            issued_at: reader.instant("issued-at")?,
            expires_at: reader.instant("expiry")?,
        };
        let signature = reader.signature()?;
        reader.end()?;
        approval.check_shape()?;
        Ok(Self { approval, signature })
    }
}

/// The fuzz target of a signed approval.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "signed_approval",
    run: |data| {
        let Ok(decoded) = SignedApproval::decode(data) else { return false };
        assert!(data.len() <= SignedApproval::ENCODED_MAX);
        assert_eq!(decoded.encode().as_deref(), Ok(data), "a credential has two encodings");
        let _ = decoded.check();
        true
    },
    seeds: || {
        let (approver, subject) = (KeySigner::fuzzing(1), KeySigner::fuzzing(2).key());
        let calls = crate::layer::single_use::fuzzing::calls().into_iter();
        let approvals =
            calls.flat_map(|call| Approval::new(approver.key(), &call, subject, 1_700_000_000, 1_700_000_600));
        approvals.flat_map(|approval| approval.sign(&approver).encode()).collect()
    },
};
