use std::fmt;

use bytes::{Buf, BufMut};
use ed25519_dalek::SigningKey;

use super::{
    Did, DidError,
    proof::{BadSignature, Check, Signature},
};
use crate::clock::WallMs;

/// How long a delegation lasts unless told otherwise: 30 days, in milliseconds (law L1.2).
pub const DEFAULT_DELEGATION_TTL_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

const CONTEXT: &str = "admit-one delegation transcript";

/// Lets the delegatee's key sign for the delegator, from `issued_at` for `ttl` (law L1.2).
///
/// Anyone can sign a delegation to a key that is not theirs, so it says only what its delegator allows.
///
/// ```
/// use admit_one::identity::{DEFAULT_DELEGATION_TTL_MS, KeySigner};
///
/// let (account, device) = (KeySigner::generate(), KeySigner::generate());
/// let delegation = account.delegate(device.key(), 1_700_000_000_000, DEFAULT_DELEGATION_TTL_MS);
/// assert!(delegation.verify().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Delegation {
    delegator: Did,
    delegatee: Did,
    issued_at: WallMs,
    ttl: u64,
    signature: Signature,
}

/// BLAKE3 over a delegation's whole encoding, 32 bytes: the content address that a link refers by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelegationDigest(pub [u8; 32]);

/// Why bytes are no delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// Fewer bytes than a delegation has.
    #[error("a delegation takes {} bytes", Delegation::LEN)]
    Truncated,
    /// One of its two keys is none.
    #[error("a delegation's key is refused: {0}")]
    Key(#[from] DidError),
}

impl Delegation {
    /// Encoded length in bytes.
    pub const LEN: usize = 2 * Did::LEN + 8 + 8 + Signature::LEN;

    /// Signs a delegation with the delegator's key.
    pub(super) fn sign(key: &SigningKey, delegator: Did, delegatee: Did, issued_at: WallMs, ttl: u64) -> Self {
        let signature = Signature::sign(key, &transcript(&delegator, &delegatee, issued_at, ttl));
        Self { delegator, delegatee, issued_at, ttl, signature }
    }

    /// Who lets the delegatee speak.
    pub const fn delegator(&self) -> Did {
        self.delegator
    }

    /// The key that may sign.
    pub const fn delegatee(&self) -> Did {
        self.delegatee
    }

    /// When it was signed, in wall milliseconds.
    pub const fn issued_at(&self) -> WallMs {
        self.issued_at
    }

    /// How long it lasts from then, in milliseconds.
    pub const fn ttl(&self) -> u64 {
        self.ttl
    }

    /// Whether it is valid at `instant`, with `sigma` milliseconds of tolerance for a delegator whose clock is ahead.
    pub const fn valid_at(&self, instant: WallMs, sigma: u64) -> bool {
        self.issued_at.saturating_sub(sigma) <= instant && instant < self.issued_at.saturating_add(self.ttl)
    }

    /// What to verify: the delegator's signature.
    pub fn check(&self) -> Check {
        Check {
            key: self.delegator,
            message: transcript(&self.delegator, &self.delegatee, self.issued_at, self.ttl),
            signature: self.signature,
        }
    }

    /// Verifies the delegator's signature.
    ///
    /// # Errors
    /// [`BadSignature`] when it is not the delegator's.
    pub fn verify(&self) -> Result<(), BadSignature> {
        self.check().verify()
    }

    /// The content address of this delegation, its signature included.
    pub fn digest(&self) -> DelegationDigest {
        let mut bytes = Vec::with_capacity(Self::LEN);
        self.encode(&mut bytes);
        DelegationDigest(blake3::hash(&bytes).into())
    }

    /// Appends the encoding: delegator 32, delegatee 32, issued-at 8, ttl 8, signature 64; integers big-endian.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(self.delegator.as_bytes());
        out.put_slice(self.delegatee.as_bytes());
        out.put_u64(self.issued_at);
        out.put_u64(self.ttl);
        out.put_slice(self.signature.as_bytes());
    }

    /// Reads one delegation off the head of `bytes`. Its signature is not verified.
    ///
    /// # Errors
    /// [`DelegationError`].
    pub fn decode(bytes: &mut impl Buf) -> Result<Self, DelegationError> {
        let (delegator, delegatee) = (take::<32>(bytes)?, take::<32>(bytes)?);
        let issued_at = bytes.try_get_u64().map_err(|_| DelegationError::Truncated)?;
        let ttl = bytes.try_get_u64().map_err(|_| DelegationError::Truncated)?;
        let signature = Signature(take::<64>(bytes)?);
        Ok(Self {
            delegator: Did::from_bytes(&delegator)?,
            delegatee: Did::from_bytes(&delegatee)?,
            issued_at,
            ttl,
            signature,
        })
    }
}

fn take<const N: usize>(bytes: &mut impl Buf) -> Result<[u8; N], DelegationError> {
    let mut field = [0; N];
    bytes.try_copy_to_slice(&mut field).map_err(|_| DelegationError::Truncated)?;
    Ok(field)
}

fn transcript(delegator: &Did, delegatee: &Did, issued_at: WallMs, ttl: u64) -> [u8; 32] {
    blake3::Hasher::new_derive_key(CONTEXT)
        .update(delegator.as_bytes())
        .update(delegatee.as_bytes())
        .update(&issued_at.to_be_bytes())
        .update(&ttl.to_be_bytes())
        .finalize()
        .into()
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("delegator", &self.delegator)
            .field("delegatee", &self.delegatee)
            .field("issued_at", &self.issued_at)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DelegationDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DelegationDigest(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
