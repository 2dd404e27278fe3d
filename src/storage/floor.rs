//! What is kept of streams that were removed: per class, an instant at or below which nothing may expire (law L10.5).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::seal::{SEAL_LEN, seal, unseal};
use crate::{clock::WallMs, message::Class};

/// The key of the floor record in the clock table.
pub(crate) const FLOOR_KEY: &[u8] = b"floor";

const KIND: &str = "admit-one floor record 1";

/// Length of a floor record in bytes: a floor 8 for each class, greatest instant 8, checksum.
pub(crate) const FLOOR_LEN: usize = 8 * Class::ALL.len() + 8 + SEAL_LEN;

/// The floors of all classes. All zero in a store that never removed a stream.
///
/// A removal raises its class's floor to the greatest expiry that the stream ever admitted, durably in the same batch:
/// whatever the removed window knew expires at or below it, and is refused however the clock steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Floors {
    expiry: [WallMs; Class::ALL.len()],
    admitted: WallMs,
}

impl Floors {
    /// What expires at or below this instant is refused.
    pub(crate) const fn of(&self, class: Class) -> WallMs {
        self.expiry[class as usize]
    }

    /// The greatest instant at which a stream that was removed admitted anything.
    pub(crate) const fn admitted(&self) -> WallMs {
        self.admitted
    }

    /// Notes the removal of a stream of `class`, with the greatest expiry and instant of what it admitted.
    pub(crate) fn remove(&mut self, class: Class, expiry: WallMs, admitted: WallMs) {
        let floor = &mut self.expiry[class as usize];
        *floor = expiry.max(*floor);
        self.admitted = self.admitted.max(admitted);
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FLOOR_LEN);
        self.expiry.iter().for_each(|floor| out.put_u64(*floor));
        out.put_u64(self.admitted);
        seal(KIND, out)
    }

    /// Reads [`Floors::encode`] back; `None` where the bytes are no floor record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = unseal(KIND, bytes)?;
        let mut floors = Self::default();
        for floor in &mut floors.expiry {
            *floor = record.try_get_u64().ok()?;
        }
        floors.admitted = record.try_get_u64().ok()?;
        record.is_empty().then_some(floors)
    }
}

/// The fuzz target of a floor record.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "floor",
    run: |data| super::seal::fuzz(KIND, true, data, Floors::decode, Floors::encode),
    seeds: || {
        let mut floors = Floors::default();
        let none = floors.encode().to_vec();
        floors.remove(Class::E2e, 1_700_000_000_000, 1_699_999_999_000);
        vec![none, floors.encode().to_vec()]
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l10_5_a_removal_raises_its_own_class_and_nothing_lowers_a_floor() {
        let mut floors = Floors::default();
        floors.remove(Class::E2e, 500, 400);
        floors.remove(Class::E2e, 300, 450);
        assert_eq!(Class::ALL.map(|class| floors.of(class)), [0, 0, 500, 0]);
        assert_eq!(floors.admitted(), 450);
    }

    #[test]
    fn l9_1_a_floor_record_is_read_back_whole_or_not_at_all() {
        let mut floors = Floors::default();
        Class::ALL.into_iter().for_each(|class| floors.remove(class, 100 + u64::from(class.lane()), 7));
        let bytes = floors.encode();
        assert_eq!(bytes.len(), FLOOR_LEN);
        assert_eq!(Floors::decode(&bytes), Some(floors));
        for place in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[place] ^= 0x80;
            assert_eq!(Floors::decode(&damaged), None);
            assert_eq!(Floors::decode(&bytes[..place]), None);
        }
    }
}
