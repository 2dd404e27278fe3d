//! Bad input: each its own typed refusal with a counter; nothing stored, nothing dispatched, the link kept.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admit_one::{
    identity::{Delegation, DelegationDigest, Did, KeySigner, Slot},
    layer::Outcome,
    link::{Arrival, Channel},
    message::{Content, FRAME_LIMIT, Kind, NetworkId, Payload, TransactionDigest},
    storage::Table,
};
use bytes::Bytes;
use libp2p::PeerId;
use tower::{Service, ServiceBuilder, service_fn};

use crate::fixture::{Calls, Counters, NETWORK, Node, Sender, accept, refused};

const DATA: &[u8] = b"\x02hello";

/// Offsets in a frame that begins with an `Own` hop slot: marker 8, next hop 32, hop budget 1, slot tag 1.
const NEXT_HOP: std::ops::Range<usize> = 8..40;
const HOP_BUDGET: usize = 40;
const HOP_SLOT: usize = 41;

/// What is presented, and the label of its refusal.
type Case = fn(&mut Sender, &Node) -> Arrival;

const CASES: &[(&str, &str, Case)] = &[
    ("another protocol's marker", "wrong_marker", |from, to| altered(from, to, |frame| frame[0] ^= 1)),
    ("nothing at all", "wrong_marker", |from, _| from.raw(Bytes::new())),
    ("a frame over the limit", "oversize", |from, to| altered(from, to, |frame| frame.resize(FRAME_LIMIT + 1, 0))),
    ("a frame cut short", "truncated", |from, to| altered(from, to, |frame| frame.truncate(frame.len() - 1))),
    ("a frame with more behind it", "trailing_bytes", |from, to| altered(from, to, |frame| frame.push(0))),
    ("a slot of no known tag", "unknown_tag", |from, to| altered(from, to, |frame| frame[HOP_SLOT] = 9)),
    ("a hop budget over 64", "hop_budget_too_great", |from, to| altered(from, to, |frame| frame[HOP_BUDGET] = 65)),
    ("a weak key", "weak_key", |from, to| altered(from, to, |frame| frame[NEXT_HOP].fill(0))),
    ("a key that is none", "malformed_key", |from, to| altered(from, to, |frame| frame[NEXT_HOP].fill(0xff))),
    ("a peer without an Ed25519 identity", "peer_not_ed25519", |from, to| Arrival {
        peer: PeerId::random(),
        ..good(from, to)
    }),
    ("a copy for another hop", "not_next_hop", |from, to| {
        let content = from.content(to.did(), DATA);
        from.arrival(&from.sign(content, KeySigner::generate().key(), 0))
    }),
    ("a hop that is not the connection's peer", "hop_not_peer", |from, to| Arrival {
        peer: KeySigner::generate().key().to_peer_id(),
        ..good(from, to)
    }),
    ("a reference as the hop's slot", "reference_outside_link", |from, to| {
        let mut payload = from.next(to.did(), DATA);
        payload.proof.slot = Slot::Digest(DelegationDigest([1; 32]));
        from.arrival(&payload)
    }),
    ("a reference as the origin's slot", "reference_outside_link", |from, to| {
        let mut payload = from.next(to.did(), DATA);
        payload.transaction.proof.slot = Slot::Digest(DelegationDigest([1; 32]));
        from.arrival(&payload)
    }),
    ("a chunk past the last", "no_such_chunk", |from, to| chunk(from, to, 2, 2, 9)),
    ("a chunk of none", "no_such_chunk", |from, to| chunk(from, to, 0, 0, 9)),
    ("a chunk that is too short", "chunk_size", |from, to| chunk(from, to, 0, 2, 11)),
    ("a last chunk that is too long", "chunk_size", |from, to| chunk(from, to, 1, 2, 9)),
    ("more chunks than bytes", "chunk_size", |from, to| chunk(from, to, 0, u32::MAX, 9)),
    ("a chunk of nothing", "chunk_size", |from, to| chunk(from, to, 0, 1, 0)),
    ("a chunk of more than 60 MB", "message_too_large", |from, to| chunk(from, to, 0, 2, 60_000_001)),
    ("a chunk of more than there can be", "message_too_large", |from, to| chunk(from, to, 0, 2, u64::MAX)),
    ("data of no class", "unclassified", |from, to| {
        signed(from, to, |content| content.data = Bytes::from_static(b"\x09"))
    }),
    ("no data", "unclassified", |from, to| signed(from, to, |content| content.data = Bytes::new())),
    ("a class on another class's channel", "wrong_lane", |from, to| Arrival {
        channel: Some(Channel { index: 1, pool: 4 }),
        ..good(from, to)
    }),
    ("an expired one", "expired", |from, to| signed(from, to, |content| content.issued_at -= content.ttl)),
    ("one from the future", "from_the_future", |from, to| signed(from, to, |content| content.issued_at += 3_001)),
    ("one that would live too long", "ttl_too_long", |from, to| signed(from, to, |content| content.ttl += 1)),
    ("an expired delegation", "delegation_expired", |from, to| {
        let now = from.content(to.did(), DATA).issued_at;
        delegated(from, to, now - 1_000, 1_000)
    }),
    ("a delegation that has not begun", "delegation_not_yet_valid", |from, to| {
        let now = from.content(to.did(), DATA).issued_at;
        delegated(from, to, now + 3_001, 1_000)
    }),
    ("a forged delegation", "delegation_signature", |from, to| {
        let mut payload = from.next(to.did(), DATA);
        let mut bytes = Vec::new();
        KeySigner::generate()
            .delegate(from.signer.key(), payload.transaction.content.issued_at, 1_000)
            .encode(&mut bytes);
        bytes[..32].copy_from_slice(KeySigner::generate().key().as_bytes());
        let forged = Delegation::decode(&mut bytes.as_slice()).expect("well-formed");
        payload.transaction.proof.slot = Slot::Inline(Arc::new(forged));
        from.arrival(&payload)
    }),
    ("a delegation for another key", "origin_signature", |from, to| {
        let (account, other) = (KeySigner::generate(), KeySigner::generate());
        redelegated(from, to, &account, other.key())
    }),
    ("another's delegation over the same key", "origin_signature", |from, to| {
        redelegated(from, to, &KeySigner::generate(), from.signer.key())
    }),
    ("one of another network", "origin_signature", |from, to| {
        let content = from.content(to.did(), DATA);
        from.arrival(&from.sign_for(NetworkId(NETWORK.0 + 1), content, to.did(), 0))
    }),
    ("a flipped bit of its data", "origin_signature", |from, to| {
        altered(from, to, |frame| *frame.last_mut().expect("not empty") ^= 1)
    }),
    ("an altered hop budget", "hop_signature", |from, to| altered(from, to, |frame| frame[HOP_BUDGET] += 1)),
    ("one for another node, and no way on", "no_route", |from, to| {
        let content = from.content(KeySigner::generate().key(), DATA);
        from.arrival(&from.sign(content, to.did(), 9))
    }),
];

/// A chunk of five bytes.
fn chunk(from: &mut Sender, to: &Node, index: u32, count: u32, length: u64) -> Arrival {
    let kind = Kind::Chunk { index, count, original: TransactionDigest([1; 32]), length };
    signed(from, to, |content| content.kind = kind)
}

fn good(from: &mut Sender, to: &Node) -> Arrival {
    let payload = from.next(to.did(), DATA);
    from.arrival(&payload)
}

fn altered(from: &mut Sender, to: &Node, change: impl FnOnce(&mut Vec<u8>)) -> Arrival {
    let mut frame = good(from, to).bytes.to_vec();
    change(&mut frame);
    from.raw(frame.into())
}

/// Changed before it is signed, so that nothing but the change is wrong.
fn signed(from: &mut Sender, to: &Node, change: impl FnOnce(&mut Content)) -> Arrival {
    let mut content = from.content(to.did(), DATA);
    change(&mut content);
    from.arrival(&from.sign(content, to.did(), 0))
}

fn delegated(from: &mut Sender, to: &Node, issued_at: u64, ttl: u64) -> Arrival {
    let plain = from.signer.clone();
    let delegation = KeySigner::generate().delegate(plain.key(), issued_at, ttl);
    from.signer = plain.clone().with_delegation(delegation).expect("for this key");
    let arrival = good(from, to);
    from.signer = plain;
    arrival
}

/// A good payload whose origin's slot is swapped for a delegation of `account` to `delegatee`.
fn redelegated(from: &mut Sender, to: &Node, account: &KeySigner, delegatee: Did) -> Arrival {
    let mut payload: Payload = from.next(to.did(), DATA);
    let delegation = account.delegate(delegatee, payload.transaction.content.issued_at, 1_000);
    payload.transaction.proof.slot = Slot::Inline(Arc::new(delegation));
    from.arrival(&payload)
}

#[tokio::test]
async fn every_bad_input_is_its_own_counted_refusal_and_leaves_nothing_behind() {
    let counters = Counters::record();
    let node = Node::start().await;
    let calls = Calls::default();
    let noted = calls.clone();
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(move |admitted| {
        noted.note(&admitted);
        std::future::ready(Ok(()))
    }));
    let mut sender = Sender::new(&node.clock);
    let (stored, marks) = (node.engine.count(Table::Receiver), node.engine.count(Table::Clock));

    for (what, label, case) in CASES {
        let arrival = case(&mut sender, &node);
        let refusal = refused(service.call(arrival).await);
        assert_eq!(refusal.label(), *label, "{what}: {refusal}");
        assert_eq!(counters.refusals(), HashMap::from([(String::from(*label), 1)]), "{what} is counted once");
        assert_eq!((node.streams(), calls.sequences()), (0, vec![]), "{what} leaves nothing behind");
    }
    assert_eq!((node.engine.count(Table::Receiver), node.engine.count(Table::Clock)), (stored, marks));

    node.clock.advance(Duration::from_secs(1));
    let arrival = good(&mut sender, &node);
    assert_eq!(service.call(arrival).await.expect("the link is kept"), Outcome::Dispatched(()));
    assert_eq!((node.streams(), calls.origins()), (1, vec![sender.origin()]));
    assert_eq!(counters.refusals(), HashMap::new());
}

#[tokio::test]
async fn l2_5_a_hop_budget_of_zero_is_valid_at_the_destination() {
    let node = Node::start().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let mut sender = Sender::new(&node.clock);
    let payload = sender.next(node.did(), DATA);
    assert_eq!(payload.hop_budget, 0);
    assert_eq!(service.call(sender.arrival(&payload)).await.expect("admitted"), Outcome::Dispatched(()));
}
