use serde::{Deserialize, Serialize};

use super::Class;
use crate::identity::Did;

/// Names an overlay. The receiver chooses it when it verifies; it never travels (law L2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkId(pub u64);

/// One stream of sequences: who sends to whom, in which class, on which network (law L5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamKey {
    /// The overlay.
    pub network: NetworkId,
    /// Who it is from: the delegator, or the key itself.
    pub origin: Did,
    /// Whom it is for.
    pub destination: Did,
    /// The class.
    pub class: Class,
}

impl StreamKey {
    /// Encoded length in bytes.
    pub const LEN: usize = 8 + 2 * Did::LEN + 1;

    /// The encoding that a record is filed under: network 8 (big-endian), origin 32, destination 32, lane 1.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.network.0.to_be_bytes());
        bytes[8..40].copy_from_slice(self.origin.as_bytes());
        bytes[40..72].copy_from_slice(self.destination.as_bytes());
        bytes[72] = self.class.lane();
        bytes
    }

    /// Reads [`StreamKey::to_bytes`] back; `None` where the bytes are no stream's key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (network, rest) = bytes.split_first_chunk::<8>()?;
        let (origin, rest) = rest.split_first_chunk::<32>()?;
        let (destination, rest) = rest.split_first_chunk::<32>()?;
        let &[lane] = rest else { return None };
        Some(Self {
            network: NetworkId(u64::from_be_bytes(*network)),
            origin: Did::from_bytes(origin).ok()?,
            destination: Did::from_bytes(destination).ok()?,
            class: Class::from_lane(lane)?,
        })
    }
}
