use std::sync::Arc;

use bytes::Bytes;

use super::{
    KnownDelegations, Verified,
    judge::{Rules, judge},
};
use crate::{
    clock::WallMs,
    identity::{Did, KeySigner, Proof, Signer},
    layer::{Refusal, Signatory, resolve::resolve},
    link::{Arrival, Channel, LinkId},
    message::{
        Class, Classifier, Content, FRAME_LIMIT, Incarnation, Kind, NetworkId, Payload, TagClassifier, Transaction,
        TxId,
    },
};

const NOW: WallMs = 1_700_000_000_000;
const SIGMA: u64 = 3_000;
const TTL: u64 = 600_000;
const NETWORK: NetworkId = NetworkId(7);

/// An origin that sends to its destination itself.
struct Pair {
    origin: KeySigner,
    hop: KeySigner,
    peer: Did,
    destination: Did,
    known: KnownDelegations,
    rules: Rules,
}

impl Pair {
    fn new() -> Self {
        let origin = KeySigner::generate();
        let destination = KeySigner::generate().key();
        let classifier = Arc::new(TagClassifier);
        let rules = Rules { network: NETWORK, local: destination, classifier, sigma: SIGMA, greatest_ttl: TTL };
        let (hop, peer) = (origin.clone(), origin.key());
        Self { origin, hop, peer, destination, known: KnownDelegations::new(8), rules }
    }

    /// The origin's key is a delegatee from `issued_at` for `ttl`, and the connection is its own.
    fn delegated(issued_at: WallMs, ttl: u64) -> Self {
        let mut pair = Self::new();
        let account = KeySigner::generate();
        let delegation = account.delegate(pair.origin.key(), issued_at, ttl);
        pair.origin = pair.origin.with_delegation(delegation).expect("for this key");
        pair.hop = pair.origin.clone();
        pair
    }

    fn content(&self) -> Content {
        Content {
            destination: self.destination,
            tx_id: TxId([9; 16]),
            incarnation: Incarnation::new(NOW, 1),
            sequence: 0,
            issued_at: NOW,
            ttl: TTL,
            kind: Kind::Whole,
            data: Bytes::from_static(b"\x02hello"),
        }
    }

    fn payload(&self, content: Content) -> Payload {
        let slot = self.origin.slot();
        let origin = slot.speaker().expect("not a reference");
        let class = TagClassifier.classify(&content.data).map_or(Class::E2e, |classified| classified.class);
        let digest = content.digest(NETWORK, &origin, class);
        let signature = self.origin.sign_now(&digest.0);
        let transaction = Transaction { content, proof: Proof { slot, signature } };
        let signature = self.hop.sign_now(&Payload::hop_digest(&digest, &self.destination, 0));
        let proof = Proof { slot: self.hop.slot(), signature };
        Payload { transaction, next_hop: self.destination, hop_budget: 0, proof }
    }

    fn judge_bytes(&self, bytes: Bytes, now: WallMs) -> Result<Verified, Refusal> {
        let arrival = Arrival::from_parts(self.peer.to_peer_id(), LinkId::of(1), bytes);
        judge(&self.rules, &self.known, resolve(arrival, FRAME_LIMIT)?, now)
    }

    fn judge(&self, payload: &Payload, now: WallMs) -> Result<Verified, Refusal> {
        self.judge_bytes(payload.encode(usize::MAX).expect("no limit"), now)
    }

    fn judge_content(&self, content: Content, now: WallMs) -> Result<Verified, Refusal> {
        self.judge(&self.payload(content), now)
    }
}

#[test]
fn l1_3_what_is_verified_is_from_the_delegator_and_says_what_was_signed() {
    let pair = Pair::delegated(NOW, 1_000);
    let verified = pair.judge_content(pair.content(), NOW).expect("verifies");
    let delegation = verified.delegation().expect("signed under one");
    assert_eq!((verified.origin(), verified.peer_did()), (delegation.delegator(), pair.origin.key()));
    assert_eq!((verified.class(), verified.data().as_ref(), verified.hop_budget()), (Class::E2e, &b"\x02hello"[..], 0));
    assert_eq!(verified.stream().destination, pair.destination);
    assert_eq!(verified.digest(), pair.content().digest(NETWORK, &verified.origin(), Class::E2e));
}

#[test]
fn l2_2_no_bit_of_a_frame_can_be_flipped() {
    let pair = Pair::delegated(NOW, 1_000_000);
    let frame = pair.payload(pair.content()).encode(FRAME_LIMIT).expect("fits");
    assert!(pair.judge_bytes(frame.clone(), NOW).is_ok());
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let verdict = pair.judge_bytes(flipped.into(), NOW);
        assert!(verdict.is_err(), "bit {bit} of {} was flipped, and the frame verified", frame.len() * 8);
    }
    let known = pair.known.contains(&pair.origin.slot().delegation().expect("has one").digest());
    assert!(known, "and the forged delegations among them pushed nothing out");
}

#[test]
fn l2_4_liveness_at_its_edges() {
    let pair = Pair::new();
    let at = |now| pair.judge_content(pair.content(), now).map(drop).map_err(|refusal| refusal.label());
    assert_eq!(at(NOW - SIGMA - 1), Err("from_the_future"));
    assert_eq!(at(NOW - SIGMA), Ok(()));
    assert_eq!(at(NOW + TTL - 1), Ok(()));
    assert_eq!(at(NOW + TTL), Err("expired"));
    let long = Content { ttl: TTL + 1, ..pair.content() };
    let refusal = pair.judge_content(long, NOW).expect_err("too long a life");
    assert!(matches!(refusal, Refusal::TtlTooLong { ttl: 600_001, greatest: TTL }), "{refusal}");
}

#[test]
fn l1_2_the_origins_delegation_is_valid_at_issued_at_and_now() {
    let expires_soon = Pair::delegated(NOW, 1_000);
    assert!(expires_soon.judge_content(expires_soon.content(), NOW + 999).is_ok());
    let refusal = expires_soon.judge_content(expires_soon.content(), NOW + 1_000).expect_err("expired by now");
    assert_eq!(refusal.label(), "delegation_expired");

    // Under another's hop, so that nothing but the origin's own delegation is judged.
    let relay = KeySigner::generate();
    let relayed = Pair { peer: relay.key(), hop: relay, ..Pair::delegated(NOW, 1_000) };
    assert!(relayed.judge_content(relayed.content(), NOW + 999).is_ok());
    let refusal = relayed.judge_content(relayed.content(), NOW + 1_000).expect_err("expired by now");
    assert!(matches!(refusal, Refusal::DelegationExpired { whose: Signatory::Origin, .. }), "{refusal}");

    let began_later = Pair::delegated(NOW + SIGMA + 1, TTL);
    let own_hop = Pair { hop: began_later.origin.clone(), ..began_later };
    let refusal = own_hop.judge_content(own_hop.content(), NOW + SIGMA + 2).expect_err("not valid at issued-at");
    let whose = Signatory::Origin;
    assert!(
        matches!(refusal, Refusal::DelegationNotYetValid { whose: w, judged_at: NOW, .. } if w == whose),
        "{refusal}"
    );
}

#[test]
fn l1_2_a_hop_that_renewed_its_delegation_since_the_origin_signed_is_heard() {
    let mut pair = Pair::new();
    let (account, device) = (KeySigner::generate(), KeySigner::generate());
    let delegation = account.delegate(device.key(), NOW + 60_000, TTL);
    pair.peer = device.key();
    pair.hop = device.with_delegation(delegation).expect("for this key");
    assert!(pair.judge_content(pair.content(), NOW + 60_000).is_ok());
    let refusal = pair.judge_content(pair.content(), NOW + 50_000).expect_err("not valid yet");
    assert!(matches!(refusal, Refusal::DelegationNotYetValid { whose: Signatory::Hop, .. }), "{refusal}");
}

#[test]
fn l2_5_the_hops_delegator_may_be_the_connections_key() {
    let mut pair = Pair::delegated(NOW, 1_000);
    pair.peer = pair.origin.slot().speaker().expect("not a reference");
    assert!(pair.judge_content(pair.content(), NOW).is_ok());
    pair.peer = KeySigner::generate().key();
    let refusal = pair.judge_content(pair.content(), NOW).expect_err("neither");
    assert!(matches!(refusal, Refusal::HopNotPeer { peer, .. } if peer == pair.peer), "{refusal}");
}

#[test]
fn a_delegation_is_remembered_once_it_verified_and_a_forged_one_never() {
    let pair = Pair::delegated(NOW, 1_000);
    let mut payload = pair.payload(pair.content());
    let digest = pair.origin.slot().delegation().expect("has one").digest();
    payload.proof.signature.0[0] ^= 1;
    assert_eq!(pair.judge(&payload, NOW).map(drop).map_err(|refusal| refusal.label()), Err("hop_signature"));
    assert!(!pair.known.contains(&digest), "not before all of its payload's signatures hold");
    assert!(pair.judge_content(pair.content(), NOW).is_ok());
    assert!(pair.known.contains(&digest));
    assert!(pair.judge_content(pair.content(), NOW).is_ok(), "and it is good from memory");
}

#[test]
fn each_check_comes_before_the_dearer_ones() {
    let mut pair = Pair::new();
    let channel = Some(Channel { index: 3, pool: 4 });
    let mut payload = pair.payload(Content { ttl: TTL + 1, ..pair.content() });
    payload.proof.signature.0[0] ^= 1;
    payload.next_hop = KeySigner::generate().key();
    let label = |pair: &Pair, payload: &Payload, channel| {
        let bytes = payload.encode(usize::MAX).expect("no limit");
        let arrival = Arrival { channel, ..Arrival::from_parts(pair.peer.to_peer_id(), LinkId::of(1), bytes) };
        let resolved = resolve(arrival, FRAME_LIMIT).expect("no references");
        judge(&pair.rules, &pair.known, resolved, NOW).map(drop).map_err(|refusal| refusal.label())
    };
    let peer = std::mem::replace(&mut pair.peer, KeySigner::generate().key());
    assert_eq!(label(&pair, &payload, channel), Err("not_next_hop"));
    payload.next_hop = pair.destination;
    assert_eq!(label(&pair, &payload, channel), Err("hop_not_peer"));
    pair.peer = peer;
    assert_eq!(label(&pair, &payload, channel), Err("wrong_lane"));
    assert_eq!(label(&pair, &payload, None), Err("ttl_too_long"));
    payload.transaction.content.ttl = TTL;
    assert_eq!(label(&pair, &payload, None), Err("origin_signature"));
    let mut honest = pair.payload(pair.content());
    honest.proof.signature.0[0] ^= 1;
    assert_eq!(label(&pair, &honest, None), Err("hop_signature"));
}
