use std::{fmt, str::FromStr};

use ed25519_dalek::VerifyingKey;
use libp2p::{PeerId, identity::PublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An Ed25519 public key: who a node, an origin or a delegatee is (law L1.1).
///
/// Every value is a point in canonical encoding that is not of small order. It displays and parses as 64
/// lower-case hex digits, and serializes so for people and as 32 bytes for machines.
///
/// ```
/// use admit_one::identity::Did;
/// use libp2p::identity::Keypair;
///
/// let peer = Keypair::generate_ed25519().public().to_peer_id();
/// let did = Did::try_from(&peer)?;
/// assert_eq!(did.to_peer_id(), peer);
/// # Ok::<(), admit_one::identity::DidError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Did([u8; 32]);

/// Why bytes or a libp2p identity are no [`Did`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DidError {
    /// The bytes are no point of the curve, or not its canonical encoding.
    #[error("not an Ed25519 public key")]
    NotAKey,
    /// The key is of small order: signatures under it prove nothing.
    #[error("a weak Ed25519 key, of small order")]
    Weak,
    /// The libp2p identity is of another key type, or its peer id holds only a hash of the key.
    #[error("the peer's identity is not an Ed25519 key: give the node an Ed25519 identity")]
    NotEd25519,
    /// The text is not 64 hex digits.
    #[error("not 64 hex digits")]
    NotHex,
}

impl Did {
    /// Encoded length in bytes.
    pub const LEN: usize = 32;

    /// Takes the 32 bytes of a public key.
    ///
    /// # Errors
    /// [`DidError::NotAKey`] and [`DidError::Weak`].
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, DidError> {
        // y is below 2^255 - 19 in a canonical encoding; dalek reduces a greater one in silence, which would give
        // one key two names.
        let [first, middle @ .., last] = bytes;
        if last & 0x7f == 0x7f && *first >= 0xed && middle.iter().all(|byte| *byte == 0xff) {
            return Err(DidError::NotAKey);
        }
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| DidError::NotAKey)?;
        if key.is_weak() { Err(DidError::Weak) } else { Ok(Self(*bytes)) }
    }

    /// The 32 bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The peer id of the libp2p identity with this key.
    pub fn to_peer_id(&self) -> PeerId {
        // A peer id of an Ed25519 key is an identity multihash over the key's protobuf: field 1 (key type) is 1,
        // field 2 is the key. Built from its bytes, since every `Did` is a valid key and none of this can fail.
        const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];
        let mut bytes = [0; 38];
        bytes[..6].copy_from_slice(&PREFIX);
        bytes[6..].copy_from_slice(&self.0);
        PeerId::from_bytes(&bytes).unwrap_or_else(|_| unreachable!("an identity multihash of 36 bytes is a peer id"))
    }
}

impl TryFrom<&PeerId> for Did {
    type Error = DidError;

    fn try_from(peer: &PeerId) -> Result<Self, DidError> {
        let hash = peer.as_ref();
        if hash.code() != 0 {
            return Err(DidError::NotEd25519);
        }
        let key = PublicKey::try_decode_protobuf(hash.digest()).map_err(|_| DidError::NotEd25519)?;
        Self::try_from(&key)
    }
}

impl TryFrom<&PublicKey> for Did {
    type Error = DidError;

    fn try_from(key: &PublicKey) -> Result<Self, DidError> {
        let key = key.clone().try_into_ed25519().map_err(|_| DidError::NotEd25519)?;
        Self::from_bytes(&key.to_bytes())
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Did({self})")
    }
}

impl FromStr for Did {
    type Err = DidError;

    fn from_str(text: &str) -> Result<Self, DidError> {
        let mut bytes = [0; 32];
        let mut digits = text.chars();
        for byte in &mut bytes {
            let mut digit = || digits.next().and_then(|digit| digit.to_digit(16)).ok_or(DidError::NotHex);
            *byte = u8::try_from(digit()? << 4 | digit()?).map_err(|_| DidError::NotHex)?;
        }
        if digits.next().is_some() {
            return Err(DidError::NotHex);
        }
        Self::from_bytes(&bytes)
    }
}

impl Serialize for Did {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Did {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
        } else {
            Self::from_bytes(&<[u8; 32]>::deserialize(deserializer)?).map_err(D::Error::custom)
        }
    }
}
