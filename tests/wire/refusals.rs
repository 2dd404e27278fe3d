//! Each way to be no frame has its own error (law L2.7 and the bounds of L2.5).

use std::sync::Arc;

use admit_one::{
    identity::{DidError, Proof, Slot},
    message::{
        Content, DecodeError, FRAME_LIMIT, FrameTooLarge, Incarnation, Kind, MARKER, MAX_HOP_BUDGET, Payload,
        Transaction, TransactionDigest, TxId,
    },
};
use bytes::Bytes;

use crate::samples::signer;

/// Where the fields of [`payload`]'s frame begin: an inline hop slot, an own slot of the origin, a chunk.
const NEXT_HOP: usize = 8;
const HOP_BUDGET: usize = 40;
const HOP_SLOT: usize = 41;
const DESTINATION: usize = 250;
const KIND: usize = 330;
const ORIGIN_SLOT: usize = 379;
const DATA_LENGTH: usize = 476;
const DATA: usize = 480;

fn payload() -> Payload {
    let (account, device) = (signer(1), signer(2));
    let delegation = Arc::new(account.delegate(device.key(), 1, 2));
    let signature = device.sign_now(&[0; 32]);
    Payload {
        transaction: Transaction {
            content: Content {
                destination: signer(3).key(),
                tx_id: TxId([4; 16]),
                incarnation: Incarnation(5),
                sequence: 6,
                issued_at: 7,
                ttl: 8,
                kind: Kind::Chunk { index: 0, count: 2, original: TransactionDigest([9; 32]), length: 10 },
                data: Bytes::from_static(b"data"),
            },
            proof: Proof { slot: Slot::Own(signer(1).key()), signature },
        },
        next_hop: signer(4).key(),
        hop_budget: 11,
        proof: Proof { slot: Slot::Inline(delegation), signature },
    }
}

fn frame() -> Vec<u8> {
    payload().encode(FRAME_LIMIT).unwrap().to_vec()
}

fn decode(frame: Vec<u8>) -> DecodeError {
    Payload::decode(Bytes::from(frame), FRAME_LIMIT).unwrap_err()
}

fn with(at: usize, bytes: &[u8]) -> DecodeError {
    let mut frame = frame();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    decode(frame)
}

#[test]
fn l2_7_a_frame_without_the_marker_is_refused_whatever_follows() {
    for at in 0..MARKER.len() {
        let mut frame = frame();
        frame[at] ^= 1;
        assert_eq!(decode(frame), DecodeError::WrongMarker);
    }
    assert_eq!(decode(Vec::new()), DecodeError::WrongMarker);
    assert_eq!(decode(MARKER[..7].to_vec()), DecodeError::WrongMarker);
    assert_eq!(decode(vec![0xff; FRAME_LIMIT]), DecodeError::WrongMarker);
}

#[test]
fn l2_7_a_frame_over_the_limit_is_refused_whatever_it_holds() {
    let error = DecodeError::Oversize { length: FRAME_LIMIT + 1, limit: FRAME_LIMIT };
    assert_eq!(decode(vec![0; FRAME_LIMIT + 1]), error);
    let mut frame = frame();
    frame.resize(FRAME_LIMIT + 1, 0);
    assert_eq!(decode(frame), error);
}

#[test]
fn l2_7_a_whole_transaction_over_the_limit_is_refused_with_its_size_and_the_limit() {
    let mut payload = payload();
    let room = FRAME_LIMIT - payload.encoded_len() + payload.transaction.content.data.len();
    payload.transaction.content.data = vec![0; room].into();
    assert_eq!(payload.encode(FRAME_LIMIT).unwrap().len(), FRAME_LIMIT);
    payload.transaction.content.data = vec![0; room + 1].into();
    let error = payload.encode(FRAME_LIMIT).unwrap_err();
    assert_eq!(error, FrameTooLarge { length: FRAME_LIMIT + 1, limit: FRAME_LIMIT });
    assert!(error.to_string().contains("32769") && error.to_string().contains("32768"), "{error}");
}

#[test]
fn a_frame_that_ends_early_is_truncated_and_names_the_field() {
    let fields = [
        (NEXT_HOP, "next hop"),
        (HOP_BUDGET, "hop budget"),
        (HOP_SLOT, "hop's slot"),
        (HOP_SLOT + 1, "hop's slot"),
        (HOP_SLOT + 145, "signature"),
        (DESTINATION, "destination"),
        (DESTINATION + 32, "tx_id"),
        (DESTINATION + 48, "incarnation"),
        (DESTINATION + 56, "sequence"),
        (DESTINATION + 64, "issued-at"),
        (DESTINATION + 72, "ttl"),
        (KIND, "kind"),
        (KIND + 1, "chunk index"),
        (KIND + 5, "chunk count"),
        (KIND + 9, "original's digest"),
        (KIND + 41, "original's length"),
        (ORIGIN_SLOT, "origin's slot"),
        (ORIGIN_SLOT + 1, "origin's slot"),
        (ORIGIN_SLOT + 33, "signature"),
        (DATA_LENGTH, "data length"),
        (DATA, "data"),
    ];
    let frame = frame();
    assert_eq!(frame.len(), DATA + 4);
    let ends = fields.iter().skip(1).map(|(begin, _)| *begin).chain([frame.len()]);
    for ((begin, field), end) in fields.iter().zip(ends) {
        for length in *begin..end {
            assert_eq!(decode(frame[..length].to_vec()), DecodeError::Truncated { field }, "at {length}");
        }
    }
}

#[test]
fn a_data_length_beyond_the_frame_is_truncated() {
    for length in [5, 1_000, i32::MAX as u32, u32::MAX] {
        assert_eq!(with(DATA_LENGTH, &length.to_be_bytes()), DecodeError::Truncated { field: "data" });
    }
}

#[test]
fn bytes_behind_the_last_field_are_refused() {
    for count in [1, 2, 1_000] {
        let mut frame = frame();
        frame.resize(frame.len() + count, 0);
        assert_eq!(decode(frame), DecodeError::TrailingBytes { count });
    }
    assert_eq!(with(DATA_LENGTH, &3_u32.to_be_bytes()), DecodeError::TrailingBytes { count: 1 });
}

#[test]
fn tags_that_the_format_does_not_have_are_refused() {
    for tag in 3..=u8::MAX {
        assert_eq!(with(HOP_SLOT, &[tag]), DecodeError::UnknownTag { field: "hop's slot", tag });
        assert_eq!(with(ORIGIN_SLOT, &[tag]), DecodeError::UnknownTag { field: "origin's slot", tag });
    }
    for tag in 2..=u8::MAX {
        assert_eq!(with(KIND, &[tag]), DecodeError::UnknownTag { field: "kind", tag });
    }
}

#[test]
fn l2_5_a_hop_budget_over_64_is_refused() {
    for budget in MAX_HOP_BUDGET + 1..=u8::MAX {
        assert_eq!(with(HOP_BUDGET, &[budget]), DecodeError::HopBudget(budget));
    }
    for hop_budget in [0, MAX_HOP_BUDGET] {
        let payload = Payload { hop_budget, ..payload() };
        assert_eq!(Payload::decode(payload.encode(FRAME_LIMIT).unwrap(), FRAME_LIMIT), Ok(payload));
    }
}

#[test]
fn l1_1_weak_and_broken_keys_are_refused_and_name_their_field() {
    let places = [
        (NEXT_HOP, "next hop"),
        (HOP_SLOT + 1, "hop's slot"),
        (HOP_SLOT + 33, "hop's slot"),
        (DESTINATION, "destination"),
        (ORIGIN_SLOT + 1, "origin's slot"),
    ];
    for (at, field) in places {
        assert_eq!(with(at, &[0; 32]), DecodeError::Key { field, reason: DidError::Weak });
        assert_eq!(with(at, &[0xff; 32]), DecodeError::Key { field, reason: DidError::NotAKey });
    }
}

#[test]
fn every_error_says_what_was_refused() {
    for (error, says) in [
        (DecodeError::WrongMarker, "marker"),
        (DecodeError::Oversize { length: 40_000, limit: 32_768 }, "40000 bytes is over the limit of 32768"),
        (DecodeError::Truncated { field: "ttl" }, "ttl"),
        (DecodeError::TrailingBytes { count: 3 }, "3 bytes follow"),
        (DecodeError::UnknownTag { field: "kind", tag: 9 }, "kind has tag 9"),
        (DecodeError::HopBudget(65), "65 is over 64"),
        (DecodeError::Key { field: "next hop", reason: DidError::Weak }, "next hop is refused: a weak"),
    ] {
        assert!(error.to_string().contains(says), "{error}");
    }
}
