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
        Self::from_bytes_after(bytes, None)
    }

    /// The same, for one of many: a key that `last` has in the same place is not decoded again, which is what most of the
    /// time of reading a table goes into.
    pub(crate) fn from_bytes_after(bytes: &[u8], last: Option<&Self>) -> Option<Self> {
        let did = |bytes: &[u8; 32], last: Option<&Did>| match last {
            Some(last) if last.as_bytes() == bytes => Some(*last),
            _ => Did::from_bytes(bytes).ok(),
        };
        let (network, rest) = bytes.split_first_chunk::<8>()?;
        let (origin, rest) = rest.split_first_chunk::<32>()?;
        let (destination, rest) = rest.split_first_chunk::<32>()?;
        let &[lane] = rest else { return None };
        Some(Self {
            network: NetworkId(u64::from_be_bytes(*network)),
            origin: did(origin, last.map(|last| &last.origin))?,
            destination: did(destination, last.map(|last| &last.destination))?,
            class: Class::from_lane(lane)?,
        })
    }
}

/// The fuzz target of a stream's key.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "stream_key",
    run: |data| {
        let Some(key) = StreamKey::from_bytes(data) else { return false };
        assert_eq!(key.to_bytes(), data, "a stream has two keys");
        let other = StreamKey { origin: key.destination, destination: key.origin, ..key };
        assert_eq!(StreamKey::from_bytes_after(data, Some(&key)), Some(key));
        assert_eq!(StreamKey::from_bytes_after(data, Some(&other)), Some(key));
        true
    },
    seeds: || {
        let did = |seed| crate::identity::KeySigner::fuzzing(seed).key();
        let key = |class| StreamKey { network: NetworkId(7), origin: did(1), destination: did(2), class };
        Class::ALL.map(|class| key(class).to_bytes().to_vec()).into()
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeySigner;

    fn did(seed: u8) -> Did {
        KeySigner::from_secret(&[seed; 32]).unwrap().key()
    }

    #[test]
    fn l5_1_a_key_reads_back_and_each_part_tells_streams_apart() {
        let key = StreamKey { network: NetworkId(1), origin: did(1), destination: did(2), class: Class::E2e };
        let others = [
            StreamKey { network: NetworkId(2), ..key },
            StreamKey { origin: did(3), ..key },
            StreamKey { destination: did(3), ..key },
            StreamKey { class: Class::Storage, ..key },
            StreamKey { origin: did(2), destination: did(1), ..key },
        ];
        for other in others {
            assert_ne!(other.to_bytes(), key.to_bytes());
            assert_eq!(StreamKey::from_bytes(&other.to_bytes()), Some(other));
            assert_eq!(StreamKey::from_bytes_after(&other.to_bytes(), Some(&key)), Some(other));
        }
        let bytes = key.to_bytes();
        assert_eq!(bytes[..8], 1_u64.to_be_bytes());
        assert_eq!((&bytes[8..40], &bytes[40..72], bytes[72]), (&did(1).as_bytes()[..], &did(2).as_bytes()[..], 2));
    }

    #[test]
    fn l11_1_bytes_that_are_no_streams_key_are_told() {
        let key = StreamKey { network: NetworkId(1), origin: did(1), destination: did(2), class: Class::E2e };
        let bytes = key.to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(StreamKey::from_bytes(&bytes[..length]), None);
        }
        assert_eq!(StreamKey::from_bytes(&[bytes.as_slice(), &[0]].concat()), None);
        let mut class = bytes;
        class[72] = 4;
        assert_eq!(StreamKey::from_bytes(&class), None);
        let mut weak = bytes;
        weak[8..40].fill(0);
        assert_eq!(StreamKey::from_bytes(&weak), None);
    }
}
