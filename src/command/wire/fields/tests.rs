use std::sync::Arc;

use admit_one::{
    identity::{KeySigner, Proof, Signature, Slot},
    message::{Content, DecodeError, FRAME_LIMIT, Kind, Payload, Transaction, TransactionDigest, TxId},
};
use bytes::Bytes;

use super::*;

fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).expect("a key")
}

/// A frame of each form that a slot and a kind can have.
fn frames() -> Vec<Bytes> {
    let delegation = Arc::new(signer(1).delegate(signer(2).key(), 3, 4));
    let slots = [Slot::Own(signer(1).key()), Slot::Inline(delegation.clone()), Slot::Digest(delegation.digest())];
    let kinds = [Kind::Whole, Kind::Chunk { index: 1, count: 2, original: TransactionDigest([9; 32]), length: 10 }];
    let mut frames = Vec::new();
    for hop in &slots {
        for origin in &slots {
            for kind in kinds {
                let proof = |slot: &Slot| Proof { slot: slot.clone(), signature: Signature([7; 64]) };
                let content = Content {
                    destination: signer(3).key(),
                    tx_id: TxId([5; 16]),
                    incarnation: Incarnation(6),
                    sequence: 7,
                    issued_at: 8,
                    ttl: 9,
                    kind,
                    data: Bytes::from_static(&[2; 40]),
                };
                let payload = Payload {
                    transaction: Transaction { content, proof: proof(origin) },
                    next_hop: signer(4).key(),
                    hop_budget: 64,
                    proof: proof(hop),
                };
                frames.push(payload.encode(FRAME_LIMIT).expect("a small frame"));
            }
        }
    }
    frames
}

fn whole(fields: &[Field]) -> Vec<u8> {
    let mut at = 0;
    for field in fields {
        assert_eq!(field.offset, at);
        at += field.bytes.len();
    }
    fields.iter().flat_map(|field| field.bytes.clone()).collect()
}

#[test]
fn the_fields_of_a_frame_that_decodes_are_all_of_it() {
    for frame in frames() {
        assert!(Payload::decode(frame.clone(), FRAME_LIMIT).is_ok());
        assert_eq!(whole(&of_frame(&frame)), frame);
    }
}

#[test]
fn where_a_frame_ends_early_the_field_after_the_last_is_the_one_that_the_decoder_names() {
    for frame in frames() {
        let all = of_frame(&frame);
        for length in MARKER.len()..frame.len() {
            let cut = frame.slice(..length);
            let fields = of_frame(&cut);
            assert!(cut.starts_with(&whole(&fields)));
            let next = &all[fields.len()];
            match Payload::decode(cut, FRAME_LIMIT) {
                Err(DecodeError::Truncated { field }) => {
                    assert!(next.name.contains(field), "{} at {length}: the decoder says {field}", next.name);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn any_change_of_any_byte_gives_fields_that_stand_in_the_frame() {
    for frame in frames() {
        for place in 0..frame.len() {
            let mut changed = frame.to_vec();
            changed[place] ^= 0x81;
            let fields = of_frame(&changed);
            assert!(changed.starts_with(&whole(&fields)));
            // What the decoder takes has no byte outside a field.
            if Payload::decode(changed.clone().into(), FRAME_LIMIT).is_ok() {
                assert_eq!(whole(&fields), changed);
            }
        }
    }
}

#[test]
fn long_bytes_are_cut_for_people() {
    assert_eq!(short(&[1, 2, 3], 3), "010203");
    assert_eq!(short(&[1, 2, 3], 2), "0102… and 1 more");
    assert_eq!(short(&[], 2), "");
}
