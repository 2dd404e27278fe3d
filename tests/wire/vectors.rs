//! Golden vectors: what stands in `vectors.json` is made again from secret keys and fields, and read back.
//!
//! The file is the format's contract with other implementations. A change of it breaks every node that runs.

use std::{path::PathBuf, sync::Arc};

use admit_one::{
    identity::{Check, Delegation, KeySigner, Proof, Signer as _, Slot},
    message::{
        Class, Content, FRAME_LIMIT, Incarnation, Kind, NetworkId, Payload, Transaction, TransactionDigest, TxId, cut,
    },
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::samples::signer;

/// The whole file. Byte strings are in hex, u64s in decimal within a string, since JSON has no 64-bit integers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct File {
    delegations: Vec<DelegationVector>,
    frames: Vec<FrameVector>,
    originals: Vec<OriginalVector>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DelegationVector {
    delegator_secret: String,
    delegatee_secret: String,
    issued_at: String,
    ttl: String,
    transcript: String,
    transcript_digest: String,
    encoding: String,
    digest: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct FrameVector {
    name: String,
    network: String,
    class: String,
    /// Of the key that signs as the origin.
    origin_secret: String,
    /// Of the key that signs as the hop.
    hop_secret: String,
    /// Who it is from: what a reference resolves to, where the slot is one.
    origin: String,
    destination: String,
    tx_id: String,
    incarnation: String,
    sequence: String,
    issued_at: String,
    ttl: String,
    kind: String,
    data: String,
    next_hop: String,
    hop_budget: u8,
    transcript: String,
    transaction_digest: String,
    hop_transcript: String,
    hop_digest: String,
    frame: String,
}

/// The transaction of a frame, as it is cut into chunks of its own origin.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OriginalVector {
    /// The frame's name.
    frame: String,
    head: usize,
    frame_limit: usize,
    /// Its self-contained encoding.
    encoding: String,
    chunks: Vec<ChunkVector>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ChunkVector {
    kind: String,
    data: String,
    transaction_digest: String,
}

/// How a vector's slots are written.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Own,
    Inline,
    Reference,
}

struct Case {
    name: &'static str,
    network: u64,
    class: Class,
    origin: Form,
    hop: Form,
    content: Content,
    hop_budget: u8,
    /// Sent by the origin to the destination, so that every key of the frame but one stands in it twice.
    direct: bool,
}

/// The origin's account and device, the relay's account and device, the destination, the next hop.
const ACCOUNT: u8 = 1;
const DEVICE: u8 = 2;
const RELAY_ACCOUNT: u8 = 3;
const RELAY_DEVICE: u8 = 4;
const DESTINATION: u8 = 5;
const NEXT_HOP: u8 = 6;

fn delegation(account: u8, device: u8) -> Delegation {
    signer(account).delegate(signer(device).key(), 1_700_000_000_000, 2_592_000_000)
}

fn content(sequence: u64, data: &[u8]) -> Content {
    Content {
        destination: signer(DESTINATION).key(),
        tx_id: TxId(std::array::from_fn(|index| u8::try_from(index).unwrap())),
        incarnation: Incarnation::new(1_700_000_000_123, 0xbeef),
        sequence,
        issued_at: 1_700_000_001_000,
        ttl: 600_000,
        kind: Kind::Whole,
        data: Bytes::copy_from_slice(data),
    }
}

fn cases() -> Vec<Case> {
    use Form::{Inline, Own, Reference};
    let case = |name, class, origin, hop, content| Case {
        name,
        network: 7,
        class,
        origin,
        hop,
        content,
        hop_budget: 3,
        direct: false,
    };
    let pattern: Vec<u8> = (0..1_100).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let original = TransactionDigest([0xa5; 32]);
    let first = Kind::Chunk { index: 0, count: 2, original, length: 40_000 };
    let greatest = Kind::Chunk { index: u32::MAX - 1, count: u32::MAX, original, length: u64::MAX };
    vec![
        case("own slots, control, sequence 0", Class::DhtControl, Own, Own, content(0, b"\0ping")),
        case("inline origin, storage, greatest sequence", Class::Storage, Inline, Own, content(u64::MAX, b"\x01block")),
        case("inline hop, end to end", Class::E2e, Own, Inline, content(1, b"\x02sealed")),
        case("inline slots, application", Class::Application, Inline, Inline, content(2, b"\x03\x04chathello")),
        Case {
            direct: true,
            ..case("straight from origin to destination", Class::E2e, Inline, Inline, content(8, b"\x02sealed"))
        },
        case("references, end to end", Class::E2e, Reference, Reference, content(3, b"\x02sealed")),
        case("no data", Class::E2e, Own, Own, content(4, b"")),
        case("data over one hash block", Class::Storage, Own, Own, content(5, &[&[1], pattern.as_slice()].concat())),
        case(
            "first chunk of two",
            Class::Application,
            Inline,
            Own,
            Content { kind: first, ..content(6, b"\x03\x04chatpart") },
        ),
        case("greatest chunk", Class::E2e, Own, Own, Content { kind: greatest, ..content(7, b"\x02part") }),
        Case {
            network: u64::MAX,
            hop_budget: 64,
            ..case(
                "greatest numbers",
                Class::E2e,
                Own,
                Own,
                Content {
                    tx_id: TxId([0xff; 16]),
                    incarnation: Incarnation(u64::MAX),
                    issued_at: u64::MAX,
                    ttl: u64::MAX,
                    ..content(u64::MAX, b"\x02sealed")
                },
            )
        },
        Case {
            network: 0,
            hop_budget: 0,
            ..case(
                "least numbers",
                Class::DhtControl,
                Own,
                Own,
                Content {
                    tx_id: TxId([0; 16]),
                    incarnation: Incarnation(0),
                    issued_at: 0,
                    ttl: 0,
                    ..content(0, b"\0")
                },
            )
        },
    ]
}

/// The key that signs for `account` in this form, and its slot on the wire.
fn speaker(form: Form, account: u8, device: u8) -> (KeySigner, u8, Slot) {
    let delegation = delegation(account, device);
    match form {
        Form::Own => (signer(account), account, Slot::Own(signer(account).key())),
        Form::Inline => {
            let signer = signer(device).with_delegation(delegation).unwrap();
            let slot = signer.slot();
            (signer, device, slot)
        }
        Form::Reference => (signer(device), device, Slot::Digest(delegation.digest())),
    }
}

/// The transcript as `docs/wire.md` lays it out, written down a second time.
fn transcript(network: u64, origin: &[u8; 32], class: u8, content: &Content) -> Vec<u8> {
    let kind = match content.kind {
        Kind::Whole => vec![0],
        Kind::Chunk { index, count, original, length } => {
            [&[1], &index.to_be_bytes()[..], &count.to_be_bytes(), &original.0, &length.to_be_bytes()].concat()
        }
    };
    [
        &network.to_be_bytes()[..],
        origin,
        content.destination.as_bytes(),
        &[class],
        &kind,
        &content.tx_id.0,
        &content.incarnation.0.to_be_bytes(),
        &content.sequence.to_be_bytes(),
        &content.issued_at.to_be_bytes(),
        &content.ttl.to_be_bytes(),
        &content.data,
    ]
    .concat()
}

fn make_frame(case: &Case) -> FrameVector {
    let (origin, origin_seed, slot) = speaker(case.origin, ACCOUNT, DEVICE);
    let content = &case.content;
    let account = signer(ACCOUNT).key();
    let (hop_account, hop_device, next_hop) = if case.direct {
        (ACCOUNT, DEVICE, content.destination)
    } else {
        (RELAY_ACCOUNT, RELAY_DEVICE, signer(NEXT_HOP).key())
    };
    let (hop, hop_seed, hop_slot) = speaker(case.hop, hop_account, hop_device);
    let digest = content.digest(NetworkId(case.network), &account, case.class);
    let hop_digest = Payload::hop_digest(&digest, &next_hop, case.hop_budget);
    let payload = Payload {
        transaction: Transaction {
            content: content.clone(),
            proof: Proof { slot, signature: origin.sign_now(&digest.0) },
        },
        next_hop,
        hop_budget: case.hop_budget,
        proof: Proof { slot: hop_slot, signature: hop.sign_now(&hop_digest) },
    };
    FrameVector {
        name: case.name.into(),
        network: case.network.to_string(),
        class: case.class.label().into(),
        origin_secret: hex::encode([origin_seed; 32]),
        hop_secret: hex::encode([hop_seed; 32]),
        origin: account.to_string(),
        destination: content.destination.to_string(),
        tx_id: hex::encode(content.tx_id.0),
        incarnation: content.incarnation.0.to_string(),
        sequence: content.sequence.to_string(),
        issued_at: content.issued_at.to_string(),
        ttl: content.ttl.to_string(),
        kind: kind(content),
        data: hex::encode(&content.data),
        next_hop: next_hop.to_string(),
        hop_budget: case.hop_budget,
        transcript: hex::encode(transcript(case.network, account.as_bytes(), case.class.lane(), content)),
        transaction_digest: digest.to_string(),
        hop_transcript: hex::encode([&digest.0[..], next_hop.as_bytes(), &[case.hop_budget]].concat()),
        hop_digest: hex::encode(hop_digest),
        frame: hex::encode(payload.encode(FRAME_LIMIT).unwrap()),
    }
}

fn kind(content: &Content) -> String {
    match content.kind {
        Kind::Whole => "whole".into(),
        Kind::Chunk { index, count, original, length } => format!("chunk {index} of {count} of {original}, {length}"),
    }
}

/// The transaction of the frame `name`, cut where a chunk's frame has room for `slice` bytes behind the head.
fn make_original(name: &str, head: usize, slice: usize) -> OriginalVector {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    let vector = make_frame(&case);
    let frame = hex::decode(vector.frame).unwrap();
    let payload = Payload::decode(frame.clone().into(), FRAME_LIMIT).unwrap();
    let (network, origin) = (NetworkId(case.network), signer(ACCOUNT).key());
    let digest = case.content.digest(network, &origin, case.class);
    let frame_limit = Payload::OVERHEAD + 48 + head + slice;
    let chunks = cut(&payload.transaction, digest, head, frame_limit).unwrap();
    // As `docs/wire.md` says: what the frame has from the destination on.
    let hop = if case.hop == Form::Inline { 209 } else { 97 };
    let encoding = hex::encode(&frame[41 + hop..]);
    let chunks: Vec<_> = chunks
        .map(|chunk| ChunkVector {
            kind: kind(&chunk),
            data: hex::encode(&chunk.data),
            transaction_digest: chunk.digest(network, &origin, case.class).to_string(),
        })
        .collect();
    OriginalVector { frame: name.into(), head, frame_limit, encoding, chunks }
}

fn make_delegation(delegator: u8, delegatee: u8, issued_at: u64, ttl: u64) -> DelegationVector {
    let delegation = signer(delegator).delegate(signer(delegatee).key(), issued_at, ttl);
    let keys = [*delegation.delegator().as_bytes(), *delegation.delegatee().as_bytes()].concat();
    let mut encoding = Vec::new();
    delegation.encode(&mut encoding);
    DelegationVector {
        delegator_secret: hex::encode([delegator; 32]),
        delegatee_secret: hex::encode([delegatee; 32]),
        issued_at: issued_at.to_string(),
        ttl: ttl.to_string(),
        transcript: hex::encode([&keys[..], &issued_at.to_be_bytes(), &ttl.to_be_bytes()].concat()),
        transcript_digest: hex::encode(delegation.check().message),
        encoding: hex::encode(encoding),
        digest: hex::encode(delegation.digest().0),
    }
}

fn make() -> File {
    File {
        delegations: vec![
            make_delegation(ACCOUNT, DEVICE, 1_700_000_000_000, 2_592_000_000),
            make_delegation(RELAY_ACCOUNT, RELAY_DEVICE, 1_700_000_000_000, 2_592_000_000),
            make_delegation(ACCOUNT, DEVICE, 0, u64::MAX),
        ],
        frames: cases().iter().map(make_frame).collect(),
        originals: vec![
            make_original("inline slots, application", 6, 150),
            make_original("data over one hash block", 1, 1_000),
        ],
    }
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "wire", "vectors.json"].iter().collect()
}

fn read() -> File {
    serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap()
}

fn derive(context: &str, transcript: &str) -> String {
    hex::encode(blake3::derive_key(context, &hex::decode(transcript).unwrap()))
}

/// The frames of the file, for other tests to mutate. The one whose data fills several hash blocks adds nothing.
pub fn frames() -> Vec<Vec<u8>> {
    read().frames.iter().map(|vector| hex::decode(&vector.frame).unwrap()).filter(|frame| frame.len() < 1_000).collect()
}

#[test]
fn l2_the_vectors_are_made_again_byte_for_byte() {
    let (made, kept) = (make(), read());
    for (made, kept) in made.delegations.iter().zip(&kept.delegations) {
        assert_eq!(made, kept);
    }
    for (made, kept) in made.frames.iter().zip(&kept.frames) {
        assert_eq!(made, kept, "{}", made.name);
    }
    for (made, kept) in made.originals.iter().zip(&kept.originals) {
        assert_eq!(made, kept);
    }
    assert_eq!(made.originals.len(), kept.originals.len());
    assert_eq!((made.frames.len(), made.delegations.len()), (kept.frames.len(), kept.delegations.len()));
}

#[test]
fn l2_the_vectors_frames_decode_to_their_fields_and_encode_again() {
    for (vector, case) in read().frames.iter().zip(cases()) {
        let frame = Bytes::from(hex::decode(&vector.frame).unwrap());
        let payload = Payload::decode(frame.clone(), FRAME_LIMIT).unwrap();
        assert_eq!(payload.transaction.content, case.content, "{}", vector.name);
        assert_eq!(payload.next_hop.to_string(), vector.next_hop);
        assert_eq!(payload.hop_budget, vector.hop_budget);
        assert_eq!(payload.encode(FRAME_LIMIT).unwrap(), frame);

        let origin = vector.origin.parse().unwrap();
        assert_eq!(payload.transaction.origin(), (case.origin != Form::Reference).then_some(origin));
        let digest = payload.transaction.content.digest(NetworkId(case.network), &origin, case.class);
        assert_eq!(digest.to_string(), vector.transaction_digest);
        let hop_digest = Payload::hop_digest(&digest, &payload.next_hop, payload.hop_budget);
        assert_eq!(hex::encode(hop_digest), vector.hop_digest);

        let secret = |text: &str| KeySigner::from_secret(&hex::decode(text).unwrap().try_into().unwrap()).unwrap();
        let signed = [
            (&vector.origin_secret, digest.0, payload.transaction.proof.signature),
            (&vector.hop_secret, hop_digest, payload.proof.signature),
        ];
        for (key, message, signature) in signed {
            assert_eq!(Check { key: secret(key).key(), message, signature }.verify(), Ok(()));
        }
    }
}

#[test]
fn l2_2_the_digests_are_blake3_keys_derived_from_the_transcripts() {
    let file = read();
    for vector in &file.frames {
        let digest = derive("admit-one transaction transcript", &vector.transcript);
        assert_eq!(digest, vector.transaction_digest, "{}", vector.name);
        assert_eq!(derive("admit-one hop transcript", &vector.hop_transcript), vector.hop_digest);
        assert!(vector.hop_transcript.starts_with(&digest));
    }
    for vector in &file.delegations {
        assert_eq!(derive("admit-one delegation transcript", &vector.transcript), vector.transcript_digest);
        assert_eq!(hex::encode(blake3::hash(&hex::decode(&vector.encoding).unwrap()).as_bytes()), vector.digest);
    }
}

#[test]
fn l1_2_the_vectors_delegations_decode_verify_and_are_the_ones_in_the_frames() {
    let file = read();
    for vector in &file.delegations {
        let bytes = hex::decode(&vector.encoding).unwrap();
        let delegation = Delegation::decode(&mut bytes.as_slice()).unwrap();
        assert_eq!(delegation.verify(), Ok(()));
        assert_eq!(
            (delegation.issued_at().to_string(), delegation.ttl().to_string()),
            (vector.issued_at.clone(), vector.ttl.clone())
        );
    }
    let inline: Vec<_> =
        file.frames.iter().filter(|vector| vector.frame.contains(&file.delegations[0].encoding)).collect();
    let referenced: Vec<_> =
        file.frames.iter().filter(|vector| vector.frame.contains(&file.delegations[0].digest)).collect();
    assert_eq!((inline.len(), referenced.len()), (4, 1));
    let payload = Payload::decode(hex::decode(&inline[0].frame).unwrap().into(), FRAME_LIMIT).unwrap();
    assert_eq!(payload.transaction.proof.slot, Slot::Inline(Arc::new(delegation(ACCOUNT, DEVICE))));
}

#[test]
fn l2_8_the_vectors_chunks_begin_with_the_head_and_join_to_the_originals_encoding() {
    let file = read();
    for vector in &file.originals {
        let frame = file.frames.iter().find(|frame| frame.name == vector.frame).unwrap();
        assert!(frame.frame.ends_with(&vector.encoding) && vector.encoding.starts_with(&frame.destination));
        let (head, length) = (&frame.data[..2 * vector.head], vector.encoding.len() / 2);
        let size = length.div_ceil(vector.chunks.len());
        let mut joined = String::new();
        for (index, chunk) in vector.chunks.iter().enumerate() {
            let slice = chunk.data.strip_prefix(head).unwrap();
            assert_eq!(slice.len() / 2, size.min(length - joined.len() / 2));
            joined += slice;
            let (count, original) = (vector.chunks.len(), &frame.transaction_digest);
            assert_eq!(chunk.kind, format!("chunk {index} of {count} of {original}, {length}"));
        }
        assert_eq!(joined, vector.encoding);
    }
}

/// Writes the file anew after a deliberate change of the format: `cargo test --test wire -- --ignored write`.
#[test]
#[ignore = "overwrites the golden file"]
fn write_the_vectors_anew() {
    std::fs::write(path(), serde_json::to_string_pretty(&make()).unwrap() + "\n").unwrap();
}
