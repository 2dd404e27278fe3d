use std::{fmt, sync::Arc};

use ed25519_dalek::{Signer as _, SigningKey};

use super::{Delegation, DelegationDigest, Did};

/// An Ed25519 signature, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// Encoded length in bytes.
    pub const LEN: usize = 64;

    /// Signs `message` with `key`.
    pub(super) fn sign(key: &SigningKey, message: &[u8; 32]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeySigner;

    #[test]
    fn l1_3_a_slot_speaks_for_the_delegator_and_names_the_delegatees_key() {
        let (account, device) = (KeySigner::from_secret(&[1; 32]).unwrap(), KeySigner::from_secret(&[2; 32]).unwrap());
        let delegation = Arc::new(account.delegate(device.key(), 1, 2));
        let own = Slot::Own(device.key());
        assert_eq!((own.speaker(), own.key(), own.delegation()), (Some(device.key()), Some(device.key()), None));
        let inline = Slot::Inline(delegation.clone());
        assert_eq!((inline.speaker(), inline.key()), (Some(account.key()), Some(device.key())));
        assert_eq!(inline.delegation(), Some(&delegation));
        let reference = Slot::Digest(delegation.digest());
        assert_eq!((reference.speaker(), reference.key(), reference.delegation()), (None, None, None));
    }

    #[test]
    fn a_signature_is_shown_in_hex() {
        assert_eq!(format!("{:?}", Signature([0xab; 64])), format!("Signature({})", "ab".repeat(64)));
    }
}
