use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    identity::{Delegation, Did, KeySigner, Proof, Signature},
    message::{Class, Classifier, FRAME_LIMIT, Incarnation, MAX_HOP_BUDGET, NetworkId, TagClassifier, TxId},
};

const NETWORK: NetworkId = NetworkId(7);

fn did(seed: u8) -> Did {
    KeySigner::from_secret(&[seed; 32]).unwrap().key()
}

fn inline() -> Slot {
    Slot::Inline(Arc::new(KeySigner::from_secret(&[1; 32]).unwrap().delegate(did(2), 5, 6)))
}

fn original(slot: Slot, data: impl Into<Bytes>) -> Transaction {
    let content = Content {
        destination: did(3),
        tx_id: TxId([4; 16]),
        incarnation: Incarnation(5),
        sequence: 6,
        issued_at: 7,
        ttl: 8,
        kind: Kind::Whole,
        data: data.into(),
    };
    Transaction { content, proof: Proof { slot, signature: Signature([9; 64]) } }
}

fn digest_of(transaction: &Transaction) -> TransactionDigest {
    transaction.content.digest(NETWORK, &transaction.origin().unwrap(), Class::E2e)
}

fn cut_at(transaction: &Transaction, head: usize, frame_limit: usize) -> Result<Chunks, CutError> {
    cut(transaction, digest_of(transaction), head, frame_limit)
}

/// The chunk's frame, as long as a hop can make it.
fn longest_frame(content: Content) -> usize {
    let proof = Proof { slot: inline(), signature: Signature([9; 64]) };
    let transaction = Transaction { content, proof: proof.clone() };
    Payload { transaction, next_hop: did(4), hop_budget: MAX_HOP_BUDGET, proof }.encoded_len()
}

fn joined(chunks: impl Iterator<Item = Content>, head: usize) -> Bytes {
    let mut encoded = BytesMut::new();
    chunks.for_each(|chunk| encoded.put_slice(&chunk.data[head..]));
    encoded.freeze()
}

/// Data of the greatest original under `slot`.
fn greatest_data(slot: &Slot) -> usize {
    MESSAGE_LIMIT - original(slot.clone(), Bytes::new()).encoded_len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn l2_8_chunks_carry_the_original_and_fit_every_hop(
        own: bool,
        class in 0_u8..4,
        namespace in "[a-z]{0,40}",
        body in proptest::collection::vec(any::<u8>(), 0..6_000),
        spare in 1_usize..3_000,
    ) {
        let data = match class {
            3 => TagClassifier::application(&namespace, &body).unwrap(),
            tag => [&[tag], body.as_slice()].concat(),
        };
        let original = original(if own { Slot::Own(did(1)) } else { inline() }, data.clone());
        let classified = TagClassifier.classify(&data).unwrap();
        let head = classified.head;
        let frame_limit = Payload::OVERHEAD + CHUNK_FIELDS + head + spare;
        let chunks = cut_at(&original, head, frame_limit).unwrap();
        prop_assert_eq!(chunks.len(), original.encoded_len().div_ceil(spare));

        let (count, length) = (chunks.count, chunks.length);
        for (index, chunk) in (0..).zip(chunks.clone()) {
            prop_assert_eq!(TagClassifier.classify(&chunk.data), Ok(classified.clone()));
            let kind = Kind::Chunk { index, count, original: digest_of(&original), length };
            prop_assert_eq!(&chunk, &Content { kind, data: chunk.data.clone(), ..original.content.clone() });
            let slice = slice_range(index, count, length).unwrap();
            prop_assert!(!slice.is_empty());
            prop_assert_eq!(slice.len(), chunk.data.len() - head);
            prop_assert!(longest_frame(chunk) <= frame_limit);
        }
        let encoded = joined(chunks.clone(), head);
        prop_assert_eq!(u64::try_from(encoded.len()).unwrap(), length);
        prop_assert_eq!(Transaction::decode_self_contained(encoded).unwrap(), original);
        let mut done = chunks;
        prop_assert_eq!(done.by_ref().count(), usize::try_from(count).unwrap());
        prop_assert_eq!((done.next(), done.len()), (None, 0));
    }

    #[test]
    fn l2_8_slices_cover_the_encoding_without_overlap_or_there_are_none(count in 0_u32..200, length in 0_u64..400) {
        let ranges: Vec<_> = (0..count).map_while(|index| slice_range(index, count, length)).collect();
        let whole = usize::try_from(count).unwrap();
        prop_assert!(ranges.is_empty() || ranges.len() == whole, "each chunk of a cut alike, or none");
        if !ranges.is_empty() {
            let covered: Vec<_> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(covered, (0..usize::try_from(length).unwrap()).collect::<Vec<_>>());
            prop_assert!(ranges.iter().all(|range| !range.is_empty()));
        }
        prop_assert_eq!(slice_range(count, count, length), None);
    }

    #[test]
    fn l2_8_any_bytes_decode_to_a_transaction_that_encodes_to_them_or_are_refused(
        at in 0_usize..400,
        byte: u8,
        cut_off in 0_usize..400,
        own: bool,
    ) {
        let slot = if own { Slot::Own(did(1)) } else { inline() };
        let mut bytes = original(slot, &b"\x02hello"[..]).encode_self_contained().unwrap().to_vec();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut_off.saturating_sub(200)));
        if let Ok(decoded) = Transaction::decode_self_contained(bytes.clone().into()) {
            prop_assert_eq!(decoded.encode_self_contained().unwrap(), bytes);
        }
    }
}

#[test]
fn l2_8_the_least_and_the_greatest_numbers_make_no_range_that_is_not_there() {
    for (index, count, length) in
        [(0, 0, 0), (0, 0, 9), (0, 1, 0), (1, 1, 1), (0, u32::MAX, 5), (u32::MAX, u32::MAX, u64::MAX)]
    {
        assert_eq!(slice_range(index, count, length), None, "{index} of {count}, {length} bytes");
    }
    assert_eq!(slice_range(0, 1, 1), Some(0..1));
    assert_eq!(slice_range(0, 1, u64::MAX), Some(0..usize::MAX));
}

#[test]
fn l2_8_sixty_megabytes_are_cut_and_one_byte_more_is_refused() {
    let slot = inline();
    let data = Bytes::from([vec![2], vec![7; greatest_data(&slot)]].concat());
    let whole = original(slot.clone(), data.slice(1..));
    let mut chunks = cut_at(&whole, 1, FRAME_LIMIT).unwrap();
    assert_eq!(chunks.length, 60_000_000);
    let count = chunks.len();
    assert_eq!(count, MESSAGE_LIMIT.div_ceil(FRAME_LIMIT - Payload::OVERHEAD - CHUNK_FIELDS - 1));
    let longest = chunks.next().unwrap();
    assert!(longest_frame(longest) <= FRAME_LIMIT);
    assert_eq!(
        chunks.last().map(|chunk| chunk.kind),
        Some(Kind::Chunk {
            index: u32::try_from(count - 1).unwrap(),
            count: u32::try_from(count).unwrap(),
            original: digest_of(&whole),
            length: 60_000_000,
        })
    );

    let over = cut_at(&original(slot, data), 1, FRAME_LIMIT).map(drop);
    assert_eq!(over, Err(CutError::MessageTooLarge { length: MESSAGE_LIMIT + 1 }));
    let over = Transaction::decode_self_contained(vec![0; MESSAGE_LIMIT + 1].into());
    assert_eq!(over, Err(DecodeError::Oversize { length: MESSAGE_LIMIT + 1, limit: MESSAGE_LIMIT }));
}

#[test]
fn l2_8_what_is_over_one_frame_as_a_whole_is_at_least_two_chunks() {
    let least = |slot: Slot| {
        let data = vec![2; FRAME_LIMIT - Payload::OVERHEAD + if slot == inline() { 1 } else { 225 }];
        cut_at(&original(slot, data), 1, FRAME_LIMIT).unwrap().len()
    };
    assert_eq!((least(inline()), least(Slot::Own(did(1)))), (2, 2));
}

#[test]
fn l2_8_a_head_that_fills_a_frame_or_runs_past_the_data_is_refused() {
    let whole = original(Slot::Own(did(1)), vec![2; 500]);
    let overhead = Payload::OVERHEAD + CHUNK_FIELDS;
    let refused = |head, frame_limit| cut_at(&whole, head, frame_limit).map(drop).unwrap_err();
    for (head, frame_limit) in [(0, 0), (0, overhead), (100, overhead + 100), (usize::MAX, FRAME_LIMIT)] {
        assert_eq!(refused(head, frame_limit), CutError::HeadFillsFrame { head, frame_limit });
    }
    assert_eq!(refused(501, FRAME_LIMIT), CutError::HeadPastData { head: 501, data: 500 });
    let chunks = cut_at(&whole, 500, overhead + 501).unwrap();
    assert_eq!(chunks.len(), whole.encoded_len(), "one byte of the encoding each");
    assert!(chunks.clone().all(|chunk| longest_frame(chunk) == overhead + 501));
    assert_eq!(Transaction::decode_self_contained(joined(chunks, 500)), Ok(whole.clone()));
    assert_eq!(cut_at(&whole, 0, FRAME_LIMIT).unwrap().len(), 1, "and what fits one frame is one chunk");
}

#[test]
fn l2_8_a_nested_chunk_and_a_reference_are_neither_cut_nor_read() {
    let mut nested = original(inline(), vec![2; 50]);
    nested.content.kind = Kind::Chunk { index: 0, count: 1, original: TransactionDigest([1; 32]), length: 3 };
    assert_eq!(cut(&nested, TransactionDigest([1; 32]), 1, FRAME_LIMIT).map(drop), Err(CutError::Nested));
    let delegation: Delegation = inline().delegation().unwrap().as_ref().clone();
    let reference = original(Slot::Digest(delegation.digest()), vec![2; 50]);
    assert_eq!(cut(&reference, TransactionDigest([1; 32]), 1, FRAME_LIMIT).map(drop), Err(CutError::Reference));

    for (transaction, refused) in [(nested, DecodeError::Nested), (reference, DecodeError::Reference)] {
        let mut bytes = BytesMut::new();
        transaction.encode(&mut bytes, 50);
        assert_eq!(Transaction::decode_self_contained(bytes.freeze()), Err(refused));
    }
}

#[test]
fn l2_8_an_original_ends_with_its_data_and_no_prefix_of_one_is_read() {
    let bytes = original(inline(), &b"\x02hello"[..]).encode_self_contained().unwrap();
    for length in 0..bytes.len() {
        let error = Transaction::decode_self_contained(bytes.slice(..length)).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { .. }), "{length}: {error}");
    }
    let longer = Bytes::from([&bytes[..], &[0]].concat());
    assert_eq!(Transaction::decode_self_contained(longer), Err(DecodeError::TrailingBytes { count: 1 }));
}

#[test]
fn l2_8_what_is_checked_before_a_sequence_is_taken_is_what_cutting_refuses() {
    let overhead = Content::FIXED_LEN + Proof::MAX_LEN + 4;
    assert_eq!(original(inline(), vec![2; 9]).encoded_len(), overhead + 9);
    assert_eq!(check_cut(MESSAGE_LIMIT - overhead, 1, FRAME_LIMIT), Ok(()));
    let too_large = CutError::MessageTooLarge { length: MESSAGE_LIMIT + 1 };
    assert_eq!(check_cut(MESSAGE_LIMIT - overhead + 1, 1, FRAME_LIMIT), Err(too_large));
    assert_eq!(check_cut(9, 10, FRAME_LIMIT), Err(CutError::HeadPastData { head: 10, data: 9 }));
    let room = Payload::OVERHEAD + CHUNK_FIELDS;
    assert_eq!(check_cut(9, 5, room + 5), Err(CutError::HeadFillsFrame { head: 5, frame_limit: room + 5 }));
    assert_eq!(check_cut(9, 5, room + 6), Ok(()));
}

#[test]
fn l2_8_chunks_do_not_keep_the_originals_data() {
    let data = Bytes::from(vec![2; 100_000]);
    let whole = original(inline(), data.clone());
    let chunks = cut_at(&whole, 1, FRAME_LIMIT).unwrap();
    drop(whole);
    assert!(data.is_unique(), "the encoding is all that is held of it");
    assert!(chunks.len() > 1);
}
