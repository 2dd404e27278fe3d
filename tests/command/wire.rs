//! `wire decode`: real frames, whole and changed.

use std::{iter, sync::Arc};

use admit_one::{
    NetworkId,
    identity::{DEFAULT_DELEGATION_TTL_MS, KeySigner, Proof, Signer as _, Slot},
    message::{Class, Content, FRAME_LIMIT, Incarnation, Kind, MARKER, Payload, TagClassifier, Transaction, TxId, cut},
};
use bytes::Bytes;
use serde_json::Value;

use crate::running::{admit_one, both, code, document};

const NETWORK: &str = "7";
const ISSUED: u64 = 1_700_000_000_000;

fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).expect("a key")
}

/// A chat message from an account's device, carried by a relay, all of it signed.
fn frame() -> Vec<u8> {
    let (account, device, hop, destination) = (signer(1), signer(2), signer(3), signer(4).key());
    let delegation = account.delegate(device.key(), ISSUED - 1, DEFAULT_DELEGATION_TTL_MS);
    let content = Content {
        destination,
        tx_id: TxId([5; 16]),
        incarnation: Incarnation::new(ISSUED, 6),
        sequence: 42,
        issued_at: ISSUED,
        ttl: 600_000,
        kind: Kind::Whole,
        data: TagClassifier::application("chat", b"hello").expect("a short name").into(),
    };
    let digest = content.digest(NetworkId(7), &account.key(), Class::Application);
    let proof = Proof { slot: Slot::Inline(Arc::new(delegation)), signature: device.sign_now(&digest.0) };
    let signature = hop.sign_now(&Payload::hop_digest(&digest, &destination, 3));
    let payload = Payload {
        transaction: Transaction { content, proof },
        next_hop: destination,
        hop_budget: 3,
        proof: Proof { slot: hop.slot(), signature },
    };
    payload.encode(FRAME_LIMIT).expect("a small frame").into()
}

fn verdict<'a>(document: &'a Value, check: &str) -> &'a str {
    let checks = document["checks"].as_array().expect("a list");
    let found = checks.iter().find(|found| found["check"] == check).unwrap_or_else(|| panic!("{check}: {document:#}"));
    found["verdict"].as_str().expect("text")
}

fn field<'a>(document: &'a Value, name: &str) -> &'a Value {
    let fields = document["fields"].as_array().expect("a list");
    fields.iter().find(|field| field["name"] == name).unwrap_or_else(|| panic!("{name}: {document:#}"))
}

fn decode(frame: &[u8], more: &[&str], expected: i32) -> (String, Value) {
    let digits = hex::encode(frame);
    both(&[&["wire", "decode", "--hex", &digits], more].concat(), expected)
}

#[test]
fn a_frame_that_holds_passes_every_check_and_shows_every_field() {
    let (frame, node, at) = (frame(), signer(4).key().to_string(), (ISSUED + 1).to_string());
    let (text, document) = decode(&frame, &["--network", NETWORK, "--node", &node, "--at", &at], 0);
    let checks = [
        "length",
        "marker",
        "fields",
        "next hop",
        "class",
        "chunk",
        "lifetime",
        "hop's delegation",
        "origin's delegation",
        "origin's signature",
        "hop's signature",
    ];
    for check in checks {
        assert_eq!(verdict(&document, check), "passed", "{check}");
        assert!(text.contains(check), "{text}");
    }
    assert_eq!(document["checks"].as_array().map(Vec::len), Some(checks.len()));
    assert_eq!((&document["refused_by"], &document["unread"]), (&Value::Null, &"".into()));
    assert_eq!(field(&document, "sequence")["value"], "42");
    assert_eq!(field(&document, "hop budget")["value"], "3");
    assert_eq!(field(&document, "origin's slot, delegator")["value"], signer(1).key().to_string());
    assert_eq!(field(&document, "data")["hex"], hex::encode(b"\x03\x04chathello"));
    let all = document["fields"].as_array().expect("a list").iter().map(|field| field["hex"].as_str().expect("text"));
    assert_eq!(all.collect::<String>(), hex::encode(&frame));
    assert!(text.contains("namespace \"chat\""), "{text}");
}

#[test]
fn the_check_that_refuses_is_named() {
    let good = frame();
    let change = |place: usize, to: u8| {
        let mut frame = good.clone();
        frame[place] = to;
        frame
    };
    let other = signer(9).key().to_string();
    let cases: [(Vec<u8>, &[&str], &str); 13] = [
        (change(0, b'a'), &[], "marker"),
        (good[..MARKER.len() - 1].to_vec(), &[], "marker"),
        (good[..200].to_vec(), &[], "fields"),
        ([&good[..], b"more"].concat(), &[], "fields"),
        // The hop budget, the hop's slot, and the key of the next hop.
        (change(40, 65), &[], "fields"),
        (change(41, 3), &[], "fields"),
        ([&good[..8], &[0; 32], &good[40..]].concat(), &[], "fields"),
        (good.clone(), &["--limit", "100"], "length"),
        (good.clone(), &["--node", &other], "next hop"),
        (good.clone(), &["--at", "1700000600000"], "lifetime"),
        (good.clone(), &["--network", "8"], "origin's signature"),
        // The sequence, and the hop's signature.
        (change(201, 1), &["--network", NETWORK], "origin's signature"),
        (change(80, 0xff), &["--network", NETWORK], "hop's signature"),
    ];
    for (frame, more, check) in cases {
        let (text, document) = decode(&frame, more, 1);
        assert_eq!(document["refused_by"], check, "{text}");
        assert_eq!(verdict(&document, check), "failed");
        assert!(text.contains("FAILED"), "{text}");
    }
}

#[test]
fn what_the_receiver_alone_knows_is_not_checked_unless_it_is_given() {
    let (text, document) = decode(&frame(), &[], 0);
    for check in ["next hop", "lifetime", "origin's signature", "hop's signature"] {
        assert_eq!(verdict(&document, check), "not_checked");
    }
    for option in ["--node", "--at", "--network"] {
        assert!(text.contains(option), "{text}");
    }
}

#[test]
fn a_frame_is_read_from_a_file_from_digits_in_a_file_and_from_standard_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let (raw, digits) = (directory.path().join("raw"), directory.path().join("digits"));
    let spaced = hex::encode(frame()).as_bytes().chunks(32).map(|line| [line, b"\n"].concat()).collect::<Vec<_>>();
    std::fs::write(&raw, frame()).expect("written");
    std::fs::write(&digits, spaced.concat()).expect("written");
    let (text, document_) = decode(&frame(), &[], 0);
    for arguments in [vec![raw.to_str().expect("text")], vec![digits.to_str().expect("text"), "--text"]] {
        assert_eq!(both(&[&["wire", "decode"][..], &arguments].concat(), 0), (text.clone(), document_.clone()));
    }
    let output = admit_one(&["wire", "decode", "-", "--json"]).write_stdin(frame()).output().expect("it runs");
    assert_eq!((code(&output), document(&output)), (0, document_));
    both(&["wire", "decode", "/nowhere/at/all"], 4);
    let (_, document) = both(&["wire", "decode", "--hex", "4x"], 2);
    assert_eq!(document["error"]["kind"], "hex");
}

#[test]
fn an_original_of_chunks_is_read_without_a_hop() {
    let frame = frame();
    let payload = Payload::decode(Bytes::from(frame.clone()), FRAME_LIMIT).expect("a frame");
    assert!(matches!(payload.proof.slot, Slot::Own(_)));
    // What its frame has from the destination on.
    let encoded = &frame[41 + 97..];
    let (_, document) = decode(encoded, &["--original", "--network", NETWORK], 0);
    assert_eq!(verdict(&document, "origin's signature"), "passed");
    assert_eq!(field(&document, "destination")["offset"], 0);
    let (_, document) = decode(&frame, &["--original"], 1);
    assert_eq!(document["refused_by"], "fields");
}

#[test]
fn a_chunk_must_fit_its_place() {
    let signer = signer(1);
    let content = Content {
        destination: signer.key(),
        tx_id: TxId([5; 16]),
        incarnation: Incarnation(6),
        sequence: 1,
        issued_at: ISSUED,
        ttl: 600_000,
        kind: Kind::Whole,
        data: iter::once(2).chain([9; 2_000]).collect(),
    };
    let signed = |content: Content| {
        let digest = content.digest(NetworkId(7), &signer.key(), Class::E2e);
        let proof = Proof { slot: signer.slot(), signature: signer.sign_now(&digest.0) };
        (digest, Transaction { content, proof })
    };
    let (digest, original) = signed(content);
    let chunks = cut(&original, digest, 1, 1_000).expect("it can be cut").collect::<Vec<_>>();
    assert!(chunks.len() > 2);
    let frame = |content: Content| {
        let (digest, transaction) = signed(content);
        let signature = signer.sign_now(&Payload::hop_digest(&digest, &signer.key(), 0));
        let proof = Proof { slot: signer.slot(), signature };
        let payload = Payload { transaction, next_hop: signer.key(), hop_budget: 0, proof };
        payload.encode(FRAME_LIMIT).expect("a small frame")
    };
    for chunk in &chunks {
        let (text, document) = decode(&frame(chunk.clone()), &["--network", NETWORK], 0);
        assert_eq!(verdict(&document, "chunk"), "passed", "{text}");
    }
    let first = &chunks[0];
    let Kind::Chunk { count, original, length, .. } = first.kind else { panic!("a chunk") };
    let refused = [
        Content { data: first.data.slice(..first.data.len() - 1), ..first.clone() },
        Content { kind: Kind::Chunk { index: count, count, original, length }, ..first.clone() },
        Content { kind: Kind::Chunk { index: 0, count: 0, original, length }, ..first.clone() },
        Content { kind: Kind::Chunk { index: 0, count, original, length: 60_000_001 }, ..first.clone() },
    ];
    for content in refused {
        let (text, document) = decode(&frame(content), &["--network", NETWORK], 1);
        assert_eq!(document["refused_by"], "chunk", "{text}");
    }
}
