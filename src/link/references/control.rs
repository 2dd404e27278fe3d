//! Control frames: what a receiver says back about delegations, and their encoding.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 1 | kind | 0 grant, 1 disclaimer |
//! | 32 | digest | of the delegation |
//! | 1 | channel | grants only: of the frame that carried it inline |
//! | 8 | number | grants only: of that frame among its channel's, from 0 |
//!
//! **State.** [`Controls`] holds the bytes of one unfinished frame. **Failures.** An unknown kind, after which nothing
//! can be found any more. Memory: one frame of 42 bytes.

use bytes::BufMut;

use super::FrameName;
use crate::identity::DelegationDigest;

const GRANT: u8 = 0;
const DISCLAIM: u8 = 1;

/// What a receiver says of a delegation. Unsigned, idempotent, and without meaning on any other link (law L4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Control {
    /// The sender may refer to it, for the time of a lease from just before it began to write `frame`.
    Grant { digest: DelegationDigest, frame: FrameName },
    /// The receiver does not hold it.
    Disclaim { digest: DelegationDigest },
}

/// A control frame of an unknown kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadControl {
    pub(crate) kind: u8,
}

impl Control {
    const GRANT_LEN: usize = 1 + 32 + 1 + 8;
    const DISCLAIM_LEN: usize = 1 + 32;

    /// The most bytes that one has.
    pub(crate) const MAX_LEN: usize = Self::GRANT_LEN;

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        match self {
            Control::Grant { digest, frame } => {
                out.put_u8(GRANT);
                out.put_slice(&digest.0);
                out.put_u8(frame.channel);
                out.put_u64(frame.number);
            }
            Control::Disclaim { digest } => {
                out.put_u8(DISCLAIM);
                out.put_slice(&digest.0);
            }
        }
    }
}

/// Finds control frames in bytes that come cut anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Controls {
    bytes: [u8; Control::MAX_LEN],
    have: usize,
}

impl Controls {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; Control::MAX_LEN], have: 0 }
    }

    /// Takes bytes off the head of `input` until it has one control frame or none are left.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Result<Control, BadControl>> {
        loop {
            let (&byte, rest) = input.split_first()?;
            *input = rest;
            if let Some(place) = self.bytes.get_mut(self.have) {
                *place = byte;
            }
            self.have += 1;
            let [kind, rest @ ..] = self.bytes;
            let length = match kind {
                GRANT => Control::GRANT_LEN,
                DISCLAIM => Control::DISCLAIM_LEN,
                kind => {
                    self.have = 0;
                    return Some(Err(BadControl { kind }));
                }
            };
            if self.have < length {
                continue;
            }
            self.have = 0;
            let mut digest = [0; 32];
            let mut number = [0; 8];
            digest.iter_mut().zip(rest).for_each(|(place, byte)| *place = byte);
            let [.., channel, a, b, c, d, e, f, g, h] = rest;
            number.iter_mut().zip([a, b, c, d, e, f, g, h]).for_each(|(place, byte)| *place = byte);
            let digest = DelegationDigest(digest);
            return Some(Ok(match kind {
                GRANT => Control::Grant { digest, frame: FrameName { channel, number: u64::from_be_bytes(number) } },
                _ => Control::Disclaim { digest },
            }));
        }
    }
}

/// The fuzz target of the control frames of a link.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "control",
    run: |data| {
        let found = crate::fuzzing::cut_anywhere(data, Controls::new, Controls::next);
        let bytes = data.get(8..).unwrap_or(data);
        let mut written = Vec::new();
        // Whoever reads ends the link at the first that is bad.
        for control in found.iter().map_while(|control| control.ok()) {
            control.encode(&mut written);
        }
        assert!(bytes.starts_with(&written), "a control frame has two encodings");
        found.first().is_some_and(Result::is_ok)
    },
    seeds: || {
        let mut bytes = vec![1, 40, 3, 33, 0, 60, 2, 9];
        let digest = DelegationDigest([1; 32]);
        Control::Grant { digest, frame: FrameName { channel: 2, number: 77 } }.encode(&mut bytes);
        Control::Disclaim { digest }.encode(&mut bytes);
        vec![bytes.clone(), [bytes.as_slice(), &[2]].concat()]
    },
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_control() -> impl Strategy<Value = Control> {
        let grant = (any::<[u8; 32]>(), any::<u8>(), any::<u64>()).prop_map(|(digest, channel, number)| {
            Control::Grant { digest: DelegationDigest(digest), frame: FrameName { channel, number } }
        });
        let disclaim = any::<[u8; 32]>().prop_map(|digest| Control::Disclaim { digest: DelegationDigest(digest) });
        prop_oneof![grant, disclaim]
    }

    fn read(bytes: &[u8], cuts: &[usize]) -> Vec<Result<Control, BadControl>> {
        let (mut controls, mut found, mut rest) = (Controls::new(), Vec::new(), bytes);
        for cut in cuts.iter().copied().chain([usize::MAX]) {
            let (mut piece, after) = rest.split_at(cut.min(rest.len()));
            rest = after;
            while let Some(one) = controls.next(&mut piece) {
                found.push(one);
            }
            assert!(piece.is_empty());
        }
        found
    }

    #[test]
    fn a_grant_has_42_bytes_and_a_disclaimer_33() {
        let digest = DelegationDigest([0xd1; 32]);
        let frame = FrameName { channel: 2, number: 0x0102_0304_0506_0708 };
        let mut bytes = Vec::new();
        Control::Grant { digest, frame }.encode(&mut bytes);
        assert_eq!(bytes, [[0].as_slice(), &[0xd1; 32], &[2, 1, 2, 3, 4, 5, 6, 7, 8]].concat());
        bytes.clear();
        Control::Disclaim { digest }.encode(&mut bytes);
        assert_eq!(bytes, [[1].as_slice(), &[0xd1; 32]].concat());
    }

    #[test]
    fn an_unknown_kind_is_bad() {
        assert_eq!(read(&[2], &[]), [Err(BadControl { kind: 2 })]);
    }

    proptest! {
        #[test]
        fn control_frames_are_found_however_the_bytes_are_cut(
            controls in prop::collection::vec(any_control(), 0..20),
            cuts in prop::collection::vec(0..60_usize, 0..40),
        ) {
            let mut bytes = Vec::new();
            controls.iter().for_each(|control| control.encode(&mut bytes));
            let expected: Vec<_> = controls.into_iter().map(Ok).collect();
            prop_assert_eq!(read(&bytes, &cuts), expected);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..500),
            cuts in prop::collection::vec(0..60_usize, 0..20),
        ) {
            let found = read(&bytes, &cuts);
            prop_assert!(found.len() <= bytes.len());
        }
    }
}
