//! Decoding allocates no more than the frame that it is given, whatever that holds (law L2.7).
//!
//! A test target of its own, since it counts through the global allocator.

#[path = "../allocation/counting.rs"]
#[expect(dead_code, reason = "shared with targets that measure otherwise")]
mod allocation;
#[path = "../wire/samples.rs"]
mod samples;

use admit_one::message::{DecodeError, FRAME_LIMIT, MARKER, Payload};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use allocation::asked;
use samples::{any_edit, any_payload, signer};

/// Decodes `frame` and says how many bytes were asked for, all of them counted, freed ones too.
fn decode(frame: Bytes) -> (Result<Payload, DecodeError>, usize) {
    let before = asked();
    let decoded = Payload::decode(frame, FRAME_LIMIT);
    (decoded, asked() - before)
}

/// The same bytes as the three kinds of buffer that a transport may hand over.
fn buffers(frame: &[u8]) -> [Bytes; 3] {
    let mut roomy = Vec::with_capacity(frame.len() + 100);
    roomy.extend(frame);
    let mut stream = BytesMut::from([frame, b"the next frame"].concat().as_slice());
    [Bytes::copy_from_slice(frame), roomy.into(), stream.split_to(frame.len()).freeze()]
}

#[test]
fn the_counter_counts() {
    let before = asked();
    let buffer = Vec::<u8>::with_capacity(1_000);
    assert_eq!(asked() - before, buffer.capacity());
}

#[test]
fn l2_7_a_refused_marker_or_length_allocates_nothing() {
    for frame in [vec![0; 4_096], vec![0xff; FRAME_LIMIT + 1], Vec::new(), MARKER.to_vec()] {
        for buffer in buffers(&frame) {
            let (decoded, asked) = decode(buffer);
            assert!(decoded.is_err());
            assert_eq!(asked, 0);
        }
    }
}

#[test]
fn l2_7_lengths_that_lie_allocate_nothing_for_themselves() {
    // An own slot twice, and a data length of 4 GiB - 1 at its end.
    let key = signer(1).key();
    let proof = [&[0], key.as_bytes().as_slice(), &[0; 64]].concat();
    let fixed = [MARKER.as_slice(), key.as_bytes(), &[0], &proof, key.as_bytes(), &[0; 49], &proof].concat();
    let frame = [fixed.as_slice(), &u32::MAX.to_be_bytes(), b"data"].concat();
    let (decoded, asked) = decode(Bytes::from(frame));
    assert_eq!(decoded, Err(DecodeError::Truncated { field: "data" }));
    assert_eq!(asked, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]
    #[test]
    fn l2_7_a_valid_frame_allocates_no_more_than_itself(payload in any_payload(0..512)) {
        let frame = payload.encode(FRAME_LIMIT).unwrap();
        for buffer in buffers(&frame) {
            let (decoded, asked) = decode(buffer);
            prop_assert!(decoded.is_ok());
            prop_assert!(asked <= frame.len(), "{} bytes for a frame of {}", asked, frame.len());
        }
    }

    #[test]
    fn l2_7_an_edited_frame_allocates_no_more_than_itself(
        payload in any_payload(0..128),
        other in any_payload(0..128),
        edits in prop::collection::vec(any_edit(), 1..4),
    ) {
        let mut frame = payload.encode(FRAME_LIMIT).unwrap().to_vec();
        let other = other.encode(FRAME_LIMIT).unwrap();
        edits.iter().for_each(|edit| edit.apply(&mut frame, &other));
        for buffer in buffers(&frame) {
            let (_, asked) = decode(buffer);
            prop_assert!(asked <= frame.len(), "{} bytes for a frame of {}", asked, frame.len());
        }
    }

    #[test]
    fn l2_7_garbage_allocates_no_more_than_itself(bytes in prop::collection::vec(any::<u8>(), 0..1_024)) {
        for frame in [bytes.clone(), [MARKER.as_slice(), &bytes].concat()] {
            let (_, asked) = decode(Bytes::from(frame.clone()));
            prop_assert!(asked <= frame.len());
        }
    }
}
