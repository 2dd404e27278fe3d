use std::{fmt, sync::Arc};

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};

use super::{Delegation, DelegationDigest, Did, DidError};
use crate::{BoxFuture, clock::WallMs};

/// An Ed25519 signature, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// Encoded length in bytes.
    pub const LEN: usize = 64;

    /// Signs `message` with `key`.
    pub fn sign(key: &SigningKey, message: &[u8; 32]) -> Self {
        Self(key.sign(message).to_bytes())
    }

    /// The 64 bytes.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// How a proof names the key that signed it, and on whose behalf (law L4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// The key speaks for itself.
    Own(Did),
    /// The delegatee of this delegation speaks for its delegator.
    Inline(Arc<Delegation>),
    /// As `Inline`, with a delegation that the link's receiver already holds.
    Digest(DelegationDigest),
}

impl Slot {
    /// Who is spoken for: the key itself, or the delegator. `None` for a reference, which only a link resolves.
    pub fn speaker(&self) -> Option<Did> {
        match self {
            Slot::Own(did) => Some(*did),
            Slot::Inline(delegation) => Some(delegation.delegator()),
            Slot::Digest(_) => None,
        }
    }

    /// The key that signs. `None` for a reference, which only a link resolves.
    pub fn key(&self) -> Option<Did> {
        match self {
            Slot::Own(did) => Some(*did),
            Slot::Inline(delegation) => Some(delegation.delegatee()),
            Slot::Digest(_) => None,
        }
    }

    /// The delegation carried inline, if one is.
    pub fn delegation(&self) -> Option<&Arc<Delegation>> {
        match self {
            Slot::Inline(delegation) => Some(delegation),
            Slot::Own(_) | Slot::Digest(_) => None,
        }
    }
}

/// A slot and a signature by the key that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Who signed.
    pub slot: Slot,
    /// The signature.
    pub signature: Signature,
}

/// One signature to verify.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The key that should have signed.
    pub key: Did,
    /// What it should have signed: always a domain-separated digest.
    pub message: [u8; 32],
    /// The signature.
    pub signature: Signature,
}

/// A signature is not the named key's over the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not that key's")]
pub struct BadSignature;

impl Check {
    /// Verifies strictly: no small-order component, a reduced scalar, no cofactor (law L1.5).
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(&self) -> Result<(), BadSignature> {
        self.verifying_key()?
            .verify_strict(&self.message, &ed25519_dalek::Signature::from_bytes(&self.signature.0))
            .map_err(|_| BadSignature)
    }

    fn verifying_key(&self) -> Result<VerifyingKey, BadSignature> {
        VerifyingKey::from_bytes(self.key.as_bytes()).map_err(|_| BadSignature)
    }
}

/// Verifies several signatures at once, and one by one where they do not hold together (law L1.5).
///
/// What a batch may take and strict verification would not is a malformed signature by the key's own holder.
///
/// # Errors
/// The place of the first check that fails strictly.
pub fn verify_all(checks: &[Check]) -> Result<(), (usize, BadSignature)> {
    let strictly =
        || checks.iter().enumerate().try_for_each(|(place, check)| check.verify().map_err(|bad| (place, bad)));
    if checks.len() < 2 {
        return strictly();
    }
    let Ok(keys) = checks.iter().map(Check::verifying_key).collect::<Result<Vec<_>, _>>() else {
        return strictly();
    };
    let messages: Vec<&[u8]> = checks.iter().map(|check| check.message.as_slice()).collect();
    let signatures: Vec<_> =
        checks.iter().map(|check| ed25519_dalek::Signature::from_bytes(&check.signature.0)).collect();
    if ed25519_dalek::verify_batch(&messages, &signatures, &keys).is_ok() { Ok(()) } else { strictly() }
}

/// A key that did not sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the signing key cannot be used: {reason}")]
pub struct SignError {
    /// What its holder says.
    pub reason: String,
}

/// A key that signs, wherever it lives: in this process, an agent or a hardware module (law L13.1).
pub trait Signer: fmt::Debug + Send + Sync + 'static {
    /// The slot for proofs made with this key now: its own, or the delegation that it signs under.
    fn slot(&self) -> Slot;

    /// Signs a digest.
    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>>;
}

/// A signing key in this process's memory, for itself or under a delegation.
#[derive(Clone)]
pub struct KeySigner {
    key: SigningKey,
    did: Did,
    delegation: Option<Arc<Delegation>>,
}

impl KeySigner {
    /// Takes the 32 secret bytes of an Ed25519 key, as libp2p's `ed25519::SecretKey` holds them.
    ///
    /// # Errors
    /// [`DidError`] when its public key is refused, which no randomly drawn key is.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, DidError> {
        let key = SigningKey::from_bytes(secret);
        let did = Did::from_bytes(&key.verifying_key().to_bytes())?;
        Ok(Self { key, did, delegation: None })
    }

    /// Takes the key of a libp2p identity.
    ///
    /// # Errors
    /// [`DidError::NotEd25519`] for an identity of another key type.
    pub fn from_keypair(keypair: &libp2p::identity::Keypair) -> Result<Self, DidError> {
        let keypair = keypair.clone().try_into_ed25519().map_err(|_| DidError::NotEd25519)?;
        let secret = keypair.secret();
        Self::from_secret(secret.as_ref().try_into().map_err(|_| DidError::NotAKey)?)
    }

    /// Draws a key from the system's random source.
    ///
    /// # Panics
    /// If the system has no random source.
    pub fn generate() -> Self {
        loop {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).unwrap_or_else(|error| panic!("no random source: {error}"));
            if let Ok(signer) = Self::from_secret(&secret) {
                return signer;
            }
        }
    }

    /// Signs under `delegation` from now on, whose delegatee must be this key.
    ///
    /// # Errors
    /// [`SignError`] for a delegation to another key.
    pub fn with_delegation(mut self, delegation: Delegation) -> Result<Self, SignError> {
        if delegation.delegatee() != self.key() {
            return Err(SignError { reason: format!("the delegation is for {}", delegation.delegatee()) });
        }
        self.delegation = Some(Arc::new(delegation));
        Ok(self)
    }

    /// The public half of the key itself, whoever it speaks for.
    pub const fn key(&self) -> Did {
        self.did
    }

    /// Lets `delegatee` sign for this key from `issued_at`, for `ttl` milliseconds.
    pub fn delegate(&self, delegatee: Did, issued_at: WallMs, ttl: u64) -> Delegation {
        Delegation::sign(&self.key, self.key(), delegatee, issued_at, ttl)
    }

    /// Signs at once, for callers that hold the key themselves.
    pub fn sign_now(&self, message: &[u8; 32]) -> Signature {
        Signature::sign(&self.key, message)
    }
}

impl Signer for KeySigner {
    fn slot(&self) -> Slot {
        self.delegation.clone().map_or(Slot::Own(self.did), Slot::Inline)
    }

    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        Box::pin(std::future::ready(Ok(self.sign_now(&message))))
    }
}

impl fmt::Debug for KeySigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySigner")
            .field("key", &self.did)
            .field("delegation", &self.delegation)
            .finish_non_exhaustive()
    }
}
