use crate::{
    identity::{Check, Did, KeySigner, Signature},
    layer::single_use::{
        Call, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX, WireError,
        wire::{Reader, check_span, check_text, put_instant, put_text},
    },
};

const MARKER: [u8; 4] = *b"A1NO";
const CONTEXT: &str = "admit-one nonce transcript";
const DIGEST_CONTEXT: &str = "admit-one signed nonce digest";

/// What an issuer allows: one dispatch of one call, by one subject, who proves one key (law L12.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce {
    /// Who allows it.
    pub issuer: Did,
    /// Its name among those of its issuer, which never gives one twice: 32 random bytes.
    pub id: [u8; 32],
    /// Who may call.
    pub subject: Did,
    /// The tenant of the operation: at most [`TENANT_MAX`] bytes.
    pub tenant: String,
    /// The request id of the operation: at most [`REQUEST_ID_MAX`] bytes.
    pub request_id: String,
    /// What may be called: at most [`METHOD_MAX`] bytes.
    pub method: String,
    /// [`Call::hash_arguments`] of the arguments that it may be called with.
    pub arguments: [u8; 32],
    /// The key that proves itself in the call: the subject's, or one that the subject delegated to.
    pub key: Did,
    /// When it was issued, in unix seconds.
    pub issued_at: i64,
    /// The first instant at which it allows nothing any more, in unix seconds.
    pub expires_at: i64,
}

/// A [`Nonce`] under its issuer's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNonce {
    /// What is allowed.
    pub nonce: Nonce,
    /// The issuer's signature over [`Nonce::transcript`].
    pub signature: Signature,
}

impl Nonce {
    /// For one dispatch of `call` by `subject`, who proves `key`, from `issued_at` until `expires_at`, in unix seconds.
    /// Draws the id.
    ///
    /// # Panics
    /// If the system has no random source.
    pub fn new(issuer: Did, call: &Call, subject: Did, key: Did, issued_at: i64, expires_at: i64) -> Self {
        let mut id = [0; 32];
        getrandom::fill(&mut id).unwrap_or_else(|error| panic!("no random source: {error}"));
        Self {
            issuer,
            id,
            subject,
            tenant: call.tenant.clone(),
            request_id: call.request_id.clone(),
            method: call.method.clone(),
            arguments: call.arguments,
            key,
            issued_at,
            expires_at,
        }
    }

    /// What the issuer signs: a domain-separated hash over every field.
    pub fn transcript(&self) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(CONTEXT).update(&self.written()).finalize().as_bytes()
    }

    /// Signs it with the issuer's key. For a key that lives elsewhere, sign [`Nonce::transcript`] there.
    pub fn sign(self, issuer: &KeySigner) -> SignedNonce {
        let signature = issuer.sign_now(&self.transcript());
        SignedNonce { nonce: self, signature }
    }

    /// Says whether every field is within its bound and it ends after it begins.
    ///
    /// # Errors
    /// [`WireError`] naming the first field that is not.
    pub fn check_shape(&self) -> Result<(), WireError> {
        check_text(&self.tenant, "tenant", TENANT_MAX)?;
        check_text(&self.request_id, "request id", REQUEST_ID_MAX)?;
        check_text(&self.method, "method", METHOD_MAX)?;
        check_span(self.issued_at, self.expires_at)
    }

    fn written(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SignedNonce::ENCODED_MAX);
        out.extend_from_slice(&MARKER);
        out.extend_from_slice(self.issuer.as_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(self.subject.as_bytes());
        put_text(&mut out, &self.tenant);
        put_text(&mut out, &self.request_id);
        put_text(&mut out, &self.method);
        out.extend_from_slice(&self.arguments);
        out.extend_from_slice(self.key.as_bytes());
        put_instant(&mut out, &self.issued_at);
        put_instant(&mut out, &self.expires_at);
        out
    }
}

impl SignedNonce {
    /// The most bytes of an encoded one.
    pub const ENCODED_MAX: usize = MARKER.len()
        + 3 * 32
        + (4 + TENANT_MAX)
        + (4 + REQUEST_ID_MAX)
        + (4 + METHOD_MAX)
        + 2 * 32
        + 2 * 8
        + Signature::LEN;

    /// What to verify: the issuer's signature.
    pub fn check(&self) -> Check {
        Check { key: self.nonce.issuer, message: self.nonce.transcript(), signature: self.signature }
    }

    /// Its name: a hash over every field but the signature, so that one that is signed anew is the same authority.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(DIGEST_CONTEXT).update(&self.nonce.written()).finalize().as_bytes()
    }

    /// Encodes it: marker, issuer, id and subject 32 each, tenant, request id, method, arguments' hash and key 32 each,
    /// issued-at, expiry, signature 64.
    ///
    /// # Errors
    /// [`WireError`] where a field is over its bound.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.nonce.check_shape()?;
        let mut out = self.nonce.written();
        out.extend_from_slice(self.signature.as_bytes());
        Ok(out)
    }

    /// Decodes a whole one. Total: any bytes give one within its bounds, or an error. The signature is not verified.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, "signed nonce", MARKER, Self::ENCODED_MAX)?;
        let nonce = Nonce {
            issuer: reader.key("issuer")?,
            id: reader.array("nonce id")?,
            subject: reader.key("subject")?,
            tenant: reader.text("tenant", TENANT_MAX)?,
            request_id: reader.text("request id", REQUEST_ID_MAX)?,
            method: reader.text("method", METHOD_MAX)?,
            arguments: reader.array("arguments' hash")?,
            key: reader.key("key")?,
            issued_at: reader.instant("issued-at")?,
            expires_at: reader.instant("expiry")?,
        };
        let signature = reader.signature()?;
        reader.end()?;
        nonce.check_shape()?;
        Ok(Self { nonce, signature })
    }
}

/// The fuzz target of a signed nonce.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "signed_nonce",
    run: |data| {
        let Ok(decoded) = SignedNonce::decode(data) else { return false };
        assert!(data.len() <= SignedNonce::ENCODED_MAX);
        assert_eq!(decoded.encode().as_deref(), Ok(data), "a credential has two encodings");
        let _ = decoded.check();
        true
    },
    seeds: || {
        let (issuer, subject) = (KeySigner::fuzzing(1), KeySigner::fuzzing(2).key());
        let calls = crate::layer::single_use::fuzzing::calls();
        let nonce = |call| Nonce { id: [9; 32], ..Nonce::new(issuer.key(), call, subject, subject, 1, 1_700_000_600) };
        calls.iter().flat_map(|call| nonce(call).sign(&issuer).encode()).collect()
    },
};
