//! A payload has one encoding, and an encoding has one payload.

use admit_one::{
    identity::Slot,
    message::{DecodeError, FRAME_LIMIT, FrameTooLarge, Kind, MARKER, Payload},
};
use bytes::Bytes;
use proptest::prelude::*;

use crate::samples::any_payload;

proptest! {
    #[test]
    fn l2_1_a_payload_decodes_to_what_was_encoded(payload in any_payload(0..2_048)) {
        let frame = payload.encode(FRAME_LIMIT).unwrap();
        prop_assert!(frame.starts_with(&MARKER));
        prop_assert_eq!(Payload::decode(frame, FRAME_LIMIT).unwrap(), payload);
    }

    #[test]
    fn the_length_is_known_before_encoding_and_bounded_by_the_overhead(payload in any_payload(0..2_048)) {
        let length = payload.encode(FRAME_LIMIT).unwrap().len();
        prop_assert_eq!(payload.encoded_len(), length);
        let content = &payload.transaction.content;
        let chunk = if content.kind == Kind::Whole { 0 } else { 48 };
        let inline = |slot: &Slot| matches!(slot, Slot::Inline(_));
        let most = Payload::OVERHEAD + chunk + content.data.len();
        match (inline(&payload.proof.slot), inline(&payload.transaction.proof.slot)) {
            (true, true) => prop_assert_eq!(length, most),
            (false, false) => prop_assert_eq!(length, most - 2 * 112),
            _ => prop_assert_eq!(length, most - 112),
        }
    }

    #[test]
    fn l2_7_the_limit_holds_to_the_byte_both_ways(payload in any_payload(0..256)) {
        let length = payload.encoded_len();
        let frame = payload.encode(length).unwrap();
        prop_assert_eq!(payload.encode(length - 1), Err(FrameTooLarge { length, limit: length - 1 }));
        prop_assert!(Payload::decode(frame.clone(), length).is_ok());
        prop_assert_eq!(
            Payload::decode(frame, length - 1),
            Err(DecodeError::Oversize { length, limit: length - 1 })
        );
    }

    #[test]
    fn any_bytes_give_a_payload_with_that_one_encoding_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..1_024),
        marked: bool,
    ) {
        let bytes = if marked { [MARKER.as_slice(), &bytes].concat() } else { bytes };
        if let Ok(payload) = Payload::decode(Bytes::from(bytes.clone()), FRAME_LIMIT) {
            prop_assert_eq!(payload.encode(FRAME_LIMIT).unwrap(), bytes);
        }
    }

    #[test]
    fn the_data_is_a_slice_of_the_frame(payload in any_payload(1..64)) {
        let frame = payload.encode(FRAME_LIMIT).unwrap();
        let range = frame.as_ptr_range();
        let data = Payload::decode(frame.clone(), FRAME_LIMIT).unwrap().transaction.content.data;
        prop_assert_eq!(data.as_ptr_range().end, range.end);
        prop_assert!(range.contains(&data.as_ptr()));
    }
}
