use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Resolved, resolve};
use crate::{
    clock::ManualClock,
    identity::{Delegation, KeySigner, Proof, Signer, Slot},
    layer::{Refusal, Signatory},
    link::{
        Arrival, LinkId, RECEIVER_BOUND, REFERENCE_LEASE,
        references::{FrameName, ReceiverEnd},
    },
    message::{Content, FRAME_LIMIT, Incarnation, Kind, Payload, Transaction, TxId},
};

const LATEST: u64 = 1 << 60;

fn delegated(seed: u8) -> KeySigner {
    let account = KeySigner::from_secret(&[seed; 32]).unwrap();
    let device = KeySigner::from_secret(&[seed + 100; 32]).unwrap();
    let delegation = account.delegate(device.key(), 0, LATEST);
    device.with_delegation(delegation).unwrap()
}

fn delegation(signer: &KeySigner) -> Arc<Delegation> {
    Arc::clone(signer.slot().delegation().unwrap())
}

fn by_digest(signer: &KeySigner) -> Slot {
    Slot::Digest(delegation(signer).digest())
}

/// Resolving judges no signature.
fn payload(hop: Slot, origin: Slot) -> Payload {
    let signer = KeySigner::from_secret(&[9; 32]).unwrap();
    let proof = |slot| Proof { slot, signature: signer.sign_now(&[0; 32]) };
    let content = Content {
        destination: signer.key(),
        tx_id: TxId([0; 16]),
        incarnation: Incarnation(1),
        sequence: 0,
        issued_at: 0,
        ttl: 0,
        kind: Kind::Whole,
        data: Bytes::from_static(b"\x02"),
    };
    let transaction = Transaction { content, proof: proof(origin) };
    Payload { transaction, next_hop: signer.key(), hop_budget: 0, proof: proof(hop) }
}

/// The receiver's end of a link, with frames that are read from it.
struct Link {
    clock: Arc<ManualClock>,
    end: Arc<ReceiverEnd>,
    next: u64,
}

impl Link {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_000));
        Self { end: Arc::new(ReceiverEnd::new(clock.clone())), clock, next: 0 }
    }

    fn read(&mut self, hop: Slot, origin: Slot) -> Arrival {
        let bytes = payload(hop, origin).encode(FRAME_LIMIT).unwrap();
        let frame = FrameName { channel: 0, number: self.next };
        self.next += 1;
        let read_at = crate::clock::Clock::monotonic(&*self.clock);
        let references = Some(self.end.read(frame, &bytes, read_at));
        Arrival { references, read_at: Some(read_at), ..outside(bytes) }
    }

    fn verified(&mut self, hop: Slot, origin: Slot) {
        resolve(self.read(hop, origin), FRAME_LIMIT).unwrap().carried.verified();
    }

    /// How many control frames wait, each of `kind`.
    fn said(&self) -> Vec<u8> {
        let mut out = bytes::BytesMut::new();
        self.end.take(&mut out);
        let (mut controls, mut bytes, mut kinds) = (crate::link::references::Controls::new(), &*out, Vec::new());
        while let Some(control) = controls.next(&mut bytes) {
            kinds.push(match control.unwrap() {
                crate::link::references::Control::Grant { .. } => b'g',
                crate::link::references::Control::Disclaim { .. } => b'd',
            });
        }
        kinds
    }
}

fn outside(bytes: Bytes) -> Arrival {
    Arrival::from_parts(KeySigner::from_secret(&[9; 32]).unwrap().key().to_peer_id(), LinkId::of(1), bytes)
}

fn slots(resolved: &Resolved) -> [&Slot; 2] {
    [&resolved.payload.proof.slot, &resolved.payload.transaction.proof.slot]
}

#[test]
fn l4_5_a_reference_resolves_as_of_the_moment_its_frame_was_read_however_long_it_waits() {
    let (mut link, signer) = (Link::new(), delegated(1));
    let own = Slot::Own(signer.key());
    link.verified(own.clone(), signer.slot());
    let waiting = link.read(own.clone(), by_digest(&signer));
    link.clock.advance(100 * REFERENCE_LEASE);
    link.end.end();
    let resolved = resolve(waiting, FRAME_LIMIT).expect("it was there when the frame was read");
    assert_eq!(slots(&resolved), [&own, &signer.slot()]);
    let late = link.read(own, by_digest(&signer));
    assert!(matches!(resolve(late, FRAME_LIMIT), Err(Refusal::UnresolvedReference { .. })));
}

#[test]
fn l4_6_a_miss_in_either_slot_refuses_the_frame_and_is_disclaimed_when_it_is_read() {
    let (mut link, known, unknown) = (Link::new(), delegated(1), delegated(2));
    link.verified(known.slot(), known.slot());
    assert_eq!(link.said(), b"g");
    let digest = delegation(&unknown).digest();
    for (hop, origin, said) in [
        (by_digest(&unknown), by_digest(&known), "hop"),
        (by_digest(&known), by_digest(&unknown), "origin"),
        (by_digest(&unknown), by_digest(&unknown), "hop"),
    ] {
        let arrival = link.read(hop, origin);
        assert_eq!(link.said(), b"d", "at once, and once");
        match resolve(arrival, FRAME_LIMIT) {
            Err(Refusal::UnresolvedReference { whose, digest: missed }) => {
                assert_eq!((whose.to_string().as_str(), missed), (said, digest));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn l4_2_what_did_not_verify_is_not_referred_to() {
    let (mut link, signer) = (Link::new(), delegated(1));
    drop(resolve(link.read(signer.slot(), signer.slot()), FRAME_LIMIT).expect("decodes"));
    assert_eq!(link.said(), b"");
    assert!(resolve(link.read(by_digest(&signer), by_digest(&signer)), FRAME_LIMIT).is_err());
}

#[test]
fn l4_7_one_frame_causes_at_most_two_control_frames() {
    let mut link = Link::new();
    let (one, two, three) = (delegated(1), delegated(2), delegated(3));
    link.verified(one.slot(), two.slot());
    assert_eq!(link.said(), b"gg");
    let arrival = link.read(by_digest(&three), Slot::Digest(crate::identity::DelegationDigest([0; 32])));
    assert_eq!(link.said(), b"dd");
    assert!(resolve(arrival, FRAME_LIMIT).is_err());
    // Whoever holds the handle of a frame is listened to twice.
    let mut references = link.read(one.slot(), two.slot()).references.unwrap();
    (0..5).for_each(|_| references.verified(&delegation(&one)));
    assert_eq!(link.said(), b"gg");
}

#[test]
fn l4_7_at_most_128_control_frames_are_in_flight_and_further_ones_are_dropped() {
    let mut link = Link::new();
    let unknown = |seed: u8| Slot::Digest(crate::identity::DelegationDigest([seed; 32]));
    for frame in 0..100 {
        drop(link.read(unknown(2 * frame), unknown(2 * frame + 1)));
    }
    // Taken to be written, they are in flight still.
    assert_eq!(link.said().len(), crate::link::CONTROL_FRAMES);
    drop(link.read(unknown(0), unknown(1)));
    assert_eq!(link.said().len(), 0, "and what was taken is written by now");
    drop(link.read(unknown(0), unknown(1)));
    assert_eq!(link.said().len(), 2);
}

#[test]
fn l4_4_a_table_full_of_leased_delegations_grants_no_other() {
    let mut link = Link::new();
    let device = KeySigner::from_secret(&[201; 32]).unwrap();
    let minted = |of: u64| {
        let account = KeySigner::from_secret(&[7; 32]).unwrap();
        Slot::Inline(Arc::new(account.delegate(device.key(), of, LATEST)))
    };
    for of in 0..RECEIVER_BOUND as u64 {
        link.verified(Slot::Own(device.key()), minted(of));
    }
    assert_eq!(link.said().len(), RECEIVER_BOUND);
    link.verified(Slot::Own(device.key()), minted(1_000));
    assert_eq!(link.said(), b"");
    link.clock.advance(REFERENCE_LEASE + 2 * crate::link::DELIVERY_BOUND);
    link.verified(Slot::Own(device.key()), minted(1_000));
    assert_eq!(link.said(), b"g");
}

#[test]
fn l4_8_outside_a_link_any_reference_is_refused() {
    let signer = delegated(1);
    let own = Slot::Own(signer.key());
    for (hop, origin, expected) in
        [(by_digest(&signer), own.clone(), Signatory::Hop), (own, by_digest(&signer), Signatory::Origin)]
    {
        let bytes = payload(hop, origin).encode(FRAME_LIMIT).unwrap();
        match resolve(outside(bytes), FRAME_LIMIT) {
            Err(Refusal::ReferenceOutsideLink { whose, digest }) => {
                assert_eq!((whose, digest), (expected, delegation(&signer).digest()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn l4_7_who_can_say_nothing_grants_nothing_and_resolves_what_was_granted() {
    let (mut link, one, two) = (Link::new(), delegated(1), delegated(2));
    let own = Slot::Own(one.key());
    link.verified(own.clone(), one.slot());
    link.end.mute();
    link.verified(own.clone(), two.slot());
    assert!(resolve(link.read(own.clone(), by_digest(&one)), FRAME_LIMIT).is_ok());
    assert!(resolve(link.read(own, by_digest(&two)), FRAME_LIMIT).is_err());
    link.clock.advance(Duration::from_secs(1));
    assert_eq!(link.said(), b"");
}
