use std::{fmt, sync::Arc};

use ed25519_dalek::SigningKey;

use super::{
    Delegation, Did, DidError,
    proof::{Signature, Slot},
};
use crate::{BoxFuture, clock::WallMs};

/// A key that did not sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the signing key cannot be used: {reason}")]
pub struct SignError {
    /// What its holder says.
    pub reason: String,
}

/// A key that signs, wherever it lives: in this process, an agent or a hardware module (law L13.1).
///
/// One signer is one key speaking for one `Did`, for as long as it lives: its delegation may be renewed, but another
/// key or another delegator is another signer. Who it speaks for is hashed into what it is then asked to sign.
pub trait Signer: fmt::Debug + Send + Sync + 'static {
    /// The slot for proofs made with this key now: its own, or the delegation that it signs under.
    fn slot(&self) -> Slot;

    /// Signs a digest.
    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>>;
}

/// A signing key in this process's memory, for itself or under a delegation. Dropping it wipes its copy of the key.
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
    /// [`SignError`] for a delegation to another key, or one that its delegator did not sign: every receiver would
    /// refuse what is signed under it.
    pub fn with_delegation(mut self, delegation: Delegation) -> Result<Self, SignError> {
        if delegation.delegatee() != self.key() {
            return Err(SignError { reason: format!("the delegation is for {}", delegation.delegatee()) });
        }
        delegation.verify().map_err(|_| SignError {
            reason: format!("the delegation is not signed by its delegator, {}", delegation.delegator()),
        })?;
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

#[cfg(any(test, fuzzing))]
impl KeySigner {
    /// A key for the seeds of fuzz targets.
    pub(crate) fn fuzzing(seed: u8) -> Self {
        Self::from_secret(&[seed; 32]).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use futures::FutureExt as _;

    use super::*;
    use crate::identity::Check;

    fn signer(seed: u8) -> KeySigner {
        KeySigner::from_secret(&[seed; 32]).unwrap()
    }

    #[test]
    fn signs_alike_at_once_and_through_the_trait() {
        let signer = signer(1);
        let message = *blake3::hash(b"message").as_bytes();
        let signature = signer.sign(message).now_or_never().unwrap().unwrap();
        assert_eq!(signature, signer.sign_now(&message));
        assert_eq!(Check { key: signer.key(), message, signature }.verify(), Ok(()));
        assert_eq!(signer.slot(), Slot::Own(signer.key()));
    }

    #[test]
    fn l1_2_signs_under_a_delegation_to_its_key_and_under_no_other() {
        let (account, device) = (signer(1), signer(2));
        let delegation = account.delegate(device.key(), 1, 2);
        let under = device.clone().with_delegation(delegation.clone()).unwrap();
        assert_eq!(under.slot(), Slot::Inline(Arc::new(delegation.clone())));
        assert_eq!(under.key(), device.key());

        let error = signer(3).with_delegation(delegation.clone()).unwrap_err();
        assert!(error.to_string().contains(&device.key().to_string()), "{error}");

        let mut bytes = Vec::new();
        delegation.encode(&mut bytes);
        bytes.truncate(Delegation::LEN - 64);
        bytes.put_slice(device.sign_now(&[0; 32]).as_bytes());
        let forged = Delegation::decode(&mut bytes.as_slice()).unwrap();
        let error = device.with_delegation(forged).unwrap_err();
        assert!(error.to_string().contains(&account.key().to_string()), "{error}");
    }

    #[test]
    fn drawn_keys_differ_and_no_secret_is_shown() {
        assert_ne!(KeySigner::generate().key(), KeySigner::generate().key());
        let secret = [0x5a; 32];
        let shown = format!("{:?}", KeySigner::from_secret(&secret).unwrap());
        assert!(!shown.contains("5a5a5a5a") && !shown.contains("90, 90"), "{shown}");
    }
}
