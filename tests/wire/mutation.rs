//! What can be made of a valid frame on its way: nothing that panics, and nothing else under the same digest.

use admit_one::{
    identity::Did,
    message::{Class, Content, FRAME_LIMIT, NetworkId, Payload, TransactionDigest},
};
use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    samples::{any_edit, any_payload, signer},
    vectors::frames,
};

const NETWORK: NetworkId = NetworkId(7);

/// The origin as the frame says it; for a reference, the one that a link would have resolved it to.
fn digest(payload: &Payload, referenced: &Did) -> TransactionDigest {
    let origin = payload.transaction.origin().unwrap_or(*referenced);
    payload.transaction.content.digest(NETWORK, &origin, Class::E2e)
}

fn signed(payload: &Payload, referenced: &Did) -> (Content, Did) {
    (payload.transaction.content.clone(), payload.transaction.origin().unwrap_or(*referenced))
}

/// Decodes a mutated frame: an error, or a payload whose one encoding the frame is and whose digests are its own.
fn judge(original: &Payload, mutated: Vec<u8>) -> Result<bool, TestCaseError> {
    let referenced = signer(1).key();
    let Ok(decoded) = Payload::decode(Bytes::from(mutated.clone()), FRAME_LIMIT) else {
        return Ok(false);
    };
    prop_assert_eq!(decoded.encode(FRAME_LIMIT).unwrap(), mutated);
    let (before, after) = (digest(original, &referenced), digest(&decoded, &referenced));
    prop_assert_eq!(before == after, signed(original, &referenced) == signed(&decoded, &referenced));
    let hop = |payload: &Payload, digest| Payload::hop_digest(&digest, &payload.next_hop, payload.hop_budget);
    let same_hop =
        before == after && original.next_hop == decoded.next_hop && original.hop_budget == decoded.hop_budget;
    prop_assert_eq!(hop(original, before) == hop(&decoded, after), same_hop);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]
    #[test]
    fn l2_2_no_edit_of_a_frame_keeps_its_digest_over_other_content(
        payload in any_payload(0..128),
        other in any_payload(0..128),
        edits in prop::collection::vec(any_edit(), 1..4),
    ) {
        let mut frame = payload.encode(FRAME_LIMIT).unwrap().to_vec();
        let other = other.encode(FRAME_LIMIT).unwrap();
        edits.iter().for_each(|edit| edit.apply(&mut frame, &other));
        judge(&payload, frame)?;
    }
}

#[test]
fn l2_2_every_flip_of_one_bit_is_an_error_or_another_frame() {
    let (mut decoded, mut refused) = (0, 0);
    for frame in frames() {
        let original = Payload::decode(Bytes::from(frame.clone()), FRAME_LIMIT).unwrap();
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut mutated = frame.clone();
                mutated[at] ^= 1 << bit;
                *if judge(&original, mutated).unwrap() { &mut decoded } else { &mut refused } += 1;
            }
        }
    }
    assert!(decoded > 1_000 && refused > 1_000, "{decoded} decoded, {refused} refused");
}

#[test]
fn every_truncation_is_an_error() {
    for frame in frames() {
        for length in 0..frame.len() {
            assert!(Payload::decode(Bytes::from(frame[..length].to_vec()), FRAME_LIMIT).is_err(), "at {length}");
        }
    }
}

#[test]
fn every_insertion_and_removal_of_one_byte_is_an_error_or_another_frame() {
    for frame in frames() {
        let original = Payload::decode(Bytes::from(frame.clone()), FRAME_LIMIT).unwrap();
        for at in 0..=frame.len() {
            for byte in [0x00, 0x01, 0xff] {
                let mut mutated = frame.clone();
                mutated.insert(at, byte);
                judge(&original, mutated).unwrap();
            }
            let mut mutated = frame.clone();
            if at < mutated.len() {
                mutated.remove(at);
                judge(&original, mutated).unwrap();
            }
        }
    }
}

#[test]
fn every_splice_of_two_frames_is_an_error_or_another_frame() {
    let frames = frames();
    for (first, second) in frames.iter().zip(frames.iter().cycle().skip(1)) {
        let original = Payload::decode(Bytes::from(first.clone()), FRAME_LIMIT).unwrap();
        for at in 0..first.len().min(second.len()) {
            judge(&original, [&first[..at], &second[at..]].concat()).unwrap();
        }
    }
}
