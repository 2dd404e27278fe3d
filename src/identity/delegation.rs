use std::fmt;

use bytes::{Buf, BufMut};
use ed25519_dalek::SigningKey;

use super::{
    Did, DidError,
    check::{BadSignature, Check},
    proof::Signature,
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

    /// Whether it is valid at `instant`: `issued − σ ≤ instant < issued + ttl`, where `sigma` is the tolerance in
    /// milliseconds for a delegator whose clock is ahead. An end past the last instant of `u64` stands at that instant.
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
        let mut bytes = [0; Self::LEN];
        self.encode(&mut bytes.as_mut_slice());
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
        Self::decode_with(bytes, Did::from_bytes)
    }

    /// [`Delegation::decode`] for a caller that knows some keys already.
    pub(crate) fn decode_with(
        bytes: &mut impl Buf,
        mut key: impl FnMut(&[u8; Did::LEN]) -> Result<Did, DidError>,
    ) -> Result<Self, DelegationError> {
        let (delegator, delegatee) = (take::<32>(bytes)?, take::<32>(bytes)?);
        let issued_at = bytes.try_get_u64().map_err(|_| DelegationError::Truncated)?;
        let ttl = bytes.try_get_u64().map_err(|_| DelegationError::Truncated)?;
        let signature = Signature(take::<64>(bytes)?);
        Ok(Self { delegator: key(&delegator)?, delegatee: key(&delegatee)?, issued_at, ttl, signature })
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

/// The fuzz target of a delegation.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "delegation",
    run: |data| {
        let mut rest = data;
        let Ok(delegation) = Delegation::decode(&mut rest) else { return false };
        assert_eq!(data.len() - rest.len(), Delegation::LEN);
        let mut encoded = Vec::new();
        delegation.encode(&mut encoded);
        assert_eq!(encoded, data[..Delegation::LEN]);
        assert_eq!(delegation.digest().0, *blake3::hash(&encoded).as_bytes());
        let _ = delegation.valid_at(delegation.issued_at(), u64::MAX);
        true
    },
    seeds: || {
        let mut encoded = Vec::new();
        let (account, device) = (super::KeySigner::fuzzing(1), super::KeySigner::fuzzing(2));
        account.delegate(device.key(), 1_700_000_000_000, DEFAULT_DELEGATION_TTL_MS).encode(&mut encoded);
        vec![encoded.clone(), [encoded.as_slice(), b"more"].concat()]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeySigner;

    fn signer(seed: u8) -> KeySigner {
        KeySigner::from_secret(&[seed; 32]).unwrap()
    }

    fn encoded(delegation: &Delegation) -> Vec<u8> {
        let mut bytes = Vec::new();
        delegation.encode(&mut bytes);
        bytes
    }

    #[test]
    fn l1_2_the_delegators_signature_covers_every_field() {
        let delegation = signer(1).delegate(signer(2).key(), 1_000, 500);
        assert_eq!(delegation.verify(), Ok(()));
        assert_eq!(delegation.check().key, signer(1).key());
        let (other, third) = (signer(3).key(), signer(4).key());
        let changed = [
            Delegation { delegator: other, ..delegation.clone() },
            Delegation { delegatee: third, ..delegation.clone() },
            Delegation { issued_at: 1_001, ..delegation.clone() },
            Delegation { ttl: 501, ..delegation.clone() },
            Delegation { signature: signer(2).sign_now(&[0; 32]), ..delegation.clone() },
        ];
        for changed in changed {
            assert_eq!(changed.verify(), Err(BadSignature), "{changed:?}");
            assert_ne!(changed.digest(), delegation.digest());
        }
    }

    #[test]
    fn l1_2_the_fields_of_the_transcript_do_not_run_into_each_other() {
        let (first, second) = (signer(1).key(), signer(2).key());
        let base = transcript(&first, &second, 1, 2);
        assert_ne!(base, transcript(&second, &first, 1, 2));
        assert_ne!(base, transcript(&first, &second, 2, 1));
        assert_ne!(base, transcript(&first, &second, 1 << 8, 2 >> 8));
    }

    #[test]
    fn l1_2_the_digest_is_blake3_over_the_whole_encoding() {
        let delegation = signer(1).delegate(signer(2).key(), 1_000, DEFAULT_DELEGATION_TTL_MS);
        let bytes = encoded(&delegation);
        assert_eq!(bytes.len(), Delegation::LEN);
        assert_eq!(delegation.digest().0, *blake3::hash(&bytes).as_bytes());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            if let Ok(changed) = Delegation::decode(&mut changed.as_slice()) {
                assert_ne!(changed.digest(), delegation.digest(), "byte {at}");
            }
        }
    }

    #[test]
    fn l1_2_one_key_carries_several_delegations_with_digests_of_their_own() {
        let device = signer(9).key();
        let digests: std::collections::HashSet<_> = [
            signer(1).delegate(device, 1_000, 500),
            signer(2).delegate(device, 1_000, 500),
            signer(1).delegate(device, 1_000, 501),
            signer(1).delegate(device, 1_001, 500),
        ]
        .iter()
        .map(Delegation::digest)
        .collect();
        assert_eq!(digests.len(), 4);
    }

    #[test]
    fn l1_2_valid_from_sigma_before_its_issue_until_just_before_its_end() {
        let delegation = signer(1).delegate(signer(2).key(), 10_000, 500);
        let valid = |instant| delegation.valid_at(instant, 30);
        assert!(!valid(9_969) && valid(9_970) && valid(10_000) && valid(10_499));
        assert!(!valid(10_500), "no tolerance at its end");
        assert!(!delegation.valid_at(9_999, 0) && delegation.valid_at(10_000, 0));
    }

    #[test]
    fn l1_2_validity_saturates_at_both_ends_of_time() {
        let first = signer(1).delegate(signer(2).key(), 10, 5);
        assert!(first.valid_at(0, 30) && first.valid_at(0, u64::MAX), "σ reaches past the epoch");
        assert!(!first.valid_at(15, u64::MAX), "σ never lengthens it");
        let endless = signer(1).delegate(signer(2).key(), 10, u64::MAX);
        assert!(endless.valid_at(u64::MAX - 1, 0) && !endless.valid_at(u64::MAX, 0));
        let last = signer(1).delegate(signer(2).key(), u64::MAX, u64::MAX);
        assert!(last.valid_at(u64::MAX - 3, 3) && !last.valid_at(u64::MAX - 4, 3) && !last.valid_at(u64::MAX, 3));
        let empty = signer(1).delegate(signer(2).key(), 10, 0);
        assert!(!empty.valid_at(10, 0) && !empty.valid_at(9, 0), "a ttl of nothing is never valid without σ");
    }

    #[test]
    fn decodes_what_it_encodes_and_leaves_what_follows() {
        let delegation = signer(1).delegate(signer(2).key(), 0, u64::MAX);
        let bytes = [encoded(&delegation), vec![1, 2, 3]].concat();
        let mut rest = bytes.as_slice();
        let decoded = Delegation::decode(&mut rest).unwrap();
        assert_eq!((&decoded, rest), (&delegation, [1, 2, 3].as_slice()));
        assert_eq!(decoded.verify(), Ok(()));
        assert_eq!((decoded.delegator(), decoded.delegatee()), (signer(1).key(), signer(2).key()));
        assert_eq!((decoded.issued_at(), decoded.ttl()), (0, u64::MAX));
    }

    #[test]
    fn every_prefix_is_truncated_and_weak_keys_are_refused() {
        let bytes = encoded(&signer(1).delegate(signer(2).key(), 1, 2));
        for length in 0..bytes.len() {
            assert_eq!(Delegation::decode(&mut &bytes[..length]), Err(DelegationError::Truncated));
        }
        for key in [0..32, 32..64] {
            let mut weak = bytes.clone();
            weak[key].fill(0);
            assert_eq!(Delegation::decode(&mut weak.as_slice()), Err(DelegationError::Key(DidError::Weak)));
        }
    }
}
