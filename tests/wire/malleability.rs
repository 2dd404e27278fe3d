//! What a batch may take and strict verification would not changes nothing that a window recognises (laws L1.5, L2.3).

use admit_one::{
    identity::{Check, Did, Proof, Signature, Slot, verify_all},
    message::{Class, Content, FRAME_LIMIT, Incarnation, Kind, NetworkId, Payload, Transaction, TxId},
};
use bytes::Bytes;
use curve25519_dalek::{constants::EIGHT_TORSION, edwards::EdwardsPoint, scalar::Scalar};
use sha2::{Digest as _, Sha512};

use crate::samples::signer;

/// The holder of this scalar signs by hand, since no signing library makes malformed signatures.
const SECRET: u64 = 77;

fn holder() -> Did {
    Did::from_bytes(EdwardsPoint::mul_base(&Scalar::from(SECRET)).compress().as_bytes()).unwrap()
}

/// A signature over `message` whose point carries the torsion point of order two, if it is to be malformed.
fn sign(message: &[u8; 32], nonce: u64, malformed: bool) -> Signature {
    let torsion = EIGHT_TORSION[if malformed { 4 } else { 0 }];
    let point = (EdwardsPoint::mul_base(&Scalar::from(nonce)) + torsion).compress();
    let hash = Sha512::new().chain_update(point.0).chain_update(holder().as_bytes()).chain_update(message).finalize();
    let scalar = Scalar::from(nonce) + Scalar::from_bytes_mod_order_wide(&hash.into()) * Scalar::from(SECRET);
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&point.0);
    bytes[32..].copy_from_slice(scalar.as_bytes());
    Signature(bytes)
}

#[test]
fn l1_5_a_malformed_signature_that_a_batch_takes_is_on_the_same_transaction() {
    let (network, class, relay) = (NetworkId(7), Class::E2e, signer(3));
    let content = Content {
        destination: signer(2).key(),
        tx_id: TxId([1; 16]),
        incarnation: Incarnation(2),
        sequence: 3,
        issued_at: 4,
        ttl: 5,
        kind: Kind::Whole,
        data: Bytes::from_static(b"\x02data"),
    };
    let digest = content.digest(network, &holder(), class);
    let hop = Payload::hop_digest(&digest, &content.destination, 0);
    let payload = |signature| Payload {
        transaction: Transaction { content: content.clone(), proof: Proof { slot: Slot::Own(holder()), signature } },
        next_hop: content.destination,
        hop_budget: 0,
        proof: Proof { slot: Slot::Own(relay.key()), signature: relay.sign_now(&hop) },
    };
    let origins = |signature| Check { key: holder(), message: digest.0, signature };
    let hops = Check { key: relay.key(), message: hop, signature: relay.sign_now(&hop) };

    // Whether a batch sees the torsion hangs on a random weight that is derived from what is verified.
    let malformed = (1..64).map(|nonce| sign(&digest.0, nonce, true));
    let taken: Vec<_> = malformed.filter(|signature| verify_all(&[origins(*signature), hops]).is_ok()).collect();
    assert!(!taken.is_empty());

    let proper = sign(&digest.0, 1, false);
    assert_eq!(origins(proper).verify(), Ok(()));
    let proper = payload(proper).encode(FRAME_LIMIT).unwrap();
    for signature in taken {
        assert!(origins(signature).verify().is_err());
        let frame = payload(signature).encode(FRAME_LIMIT).unwrap();
        assert_ne!(frame, proper);
        let decoded = Payload::decode(frame, FRAME_LIMIT).unwrap().transaction;
        assert_eq!(decoded.content.digest(network, &decoded.origin().unwrap(), class), digest);
    }
}
