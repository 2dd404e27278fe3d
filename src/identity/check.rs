use ed25519_dalek::VerifyingKey;

use super::{Did, proof::Signature};

/// One signature to verify.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The key that should have signed.
    pub key: Did,
    /// What it should have signed: always a domain-separated digest.
    pub message: [u8; 32],
    /// The signature.
    pub signature: Signature,
}

/// A signature is not the named key's over the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not that key's")]
pub struct BadSignature;

impl Check {
    /// Verifies strictly: neither the key nor the signature's point is of small order, both halves of the signature
    /// are in canonical encoding, and the equation holds without the cofactor (law L1.5).
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(&self) -> Result<(), BadSignature> {
        self.verifying_key()?
            .verify_strict(&self.message, &ed25519_dalek::Signature::from_bytes(&self.signature.0))
            .map_err(|_| BadSignature)
    }

    fn verifying_key(&self) -> Result<VerifyingKey, BadSignature> {
        VerifyingKey::from_bytes(self.key.as_bytes()).map_err(|_| BadSignature)
    }
}

/// Verifies several signatures at once, and one by one where they do not hold together (law L1.5).
///
/// What a batch may take and strict verification would not is a malformed signature by the key's own holder.
///
/// # Errors
/// The place of the first check that fails strictly.
pub fn verify_all(checks: &[Check]) -> Result<(), (usize, BadSignature)> {
    let strictly =
        || checks.iter().enumerate().try_for_each(|(place, check)| check.verify().map_err(|bad| (place, bad)));
    if checks.len() < 2 {
        return strictly();
    }
    let Ok(keys) = checks.iter().map(Check::verifying_key).collect::<Result<Vec<_>, _>>() else {
        return strictly();
    };
    let messages: Vec<&[u8]> = checks.iter().map(|check| check.message.as_slice()).collect();
    let signatures: Vec<_> =
        checks.iter().map(|check| ed25519_dalek::Signature::from_bytes(&check.signature.0)).collect();
    if ed25519_dalek::verify_batch(&messages, &signatures, &keys).is_ok() { Ok(()) } else { strictly() }
}

#[cfg(test)]
mod tests {
    use curve25519_dalek::{constants::EIGHT_TORSION, edwards::EdwardsPoint, scalar::Scalar};
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha512};

    use super::*;
    use crate::identity::KeySigner;

    /// The order of the base point, little-endian.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];

    fn good(seed: u8) -> Check {
        let signer = KeySigner::from_secret(&[seed; 32]).unwrap();
        let message = *blake3::hash(&[seed]).as_bytes();
        Check { key: signer.key(), message, signature: signer.sign_now(&message) }
    }

    /// What the holder of `secret` can make and nobody else: a signature under the key `secret·B + key_torsion` whose
    /// point is `nonce·B + point_torsion`.
    fn crafted(secret: u64, key_torsion: usize, nonce: u64, point_torsion: usize, message: [u8; 32]) -> Check {
        let (secret, nonce) = (Scalar::from(secret), Scalar::from(nonce));
        let key = (EdwardsPoint::mul_base(&secret) + EIGHT_TORSION[key_torsion]).compress();
        let point = (EdwardsPoint::mul_base(&nonce) + EIGHT_TORSION[point_torsion]).compress();
        let hash = Sha512::new().chain_update(point.0).chain_update(key.0).chain_update(message).finalize();
        let challenge = Scalar::from_bytes_mod_order_wide(&hash.into());
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&point.0);
        signature[32..].copy_from_slice((nonce + challenge * secret).as_bytes());
        Check { key: Did::from_bytes(&key.0).unwrap(), message, signature: Signature(signature) }
    }

    fn sum(left: &[u8], right: &[u8; 32]) -> [u8; 32] {
        let left: [u8; 32] = left.try_into().unwrap();
        let mut carry = 0_u16;
        let mut out = [0; 32];
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            carry += u16::from(left) + u16::from(*right);
            *out = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        out
    }

    #[test]
    fn l1_5_good_signatures_pass_alone_and_in_batches() {
        let checks: Vec<_> = (0..70).map(good).collect();
        for size in [0, 1, 2, 3, 8, 64, 70] {
            assert_eq!(verify_all(&checks[..size]), Ok(()));
        }
        assert!(checks.iter().all(|check| check.verify().is_ok()));
    }

    #[test]
    fn l1_5_a_failed_batch_names_the_first_bad_one_wherever_it_stands() {
        for size in 1..=9 {
            for place in 0..size {
                let mut checks: Vec<_> = (0..size).map(|seed| good(u8::try_from(seed).unwrap())).collect();
                checks[place].message[0] ^= 1;
                assert_eq!(verify_all(&checks), Err((place, BadSignature)));
                checks[size - 1].signature.0[40] ^= 1;
                assert_eq!(verify_all(&checks), Err((place, BadSignature)), "the first of two");
            }
        }
    }

    #[test]
    fn l1_5_signatures_of_two_keys_or_messages_do_not_stand_in_for_each_other() {
        let (first, second) = (good(1), good(2));
        let swapped = [Check { signature: second.signature, ..first }, Check { signature: first.signature, ..second }];
        assert_eq!(verify_all(&swapped), Err((0, BadSignature)));
        let renamed = [Check { key: second.key, ..first }, Check { key: first.key, ..second }];
        assert_eq!(verify_all(&renamed), Err((0, BadSignature)));
    }

    #[test]
    fn l1_5_errors_that_cancel_each_other_in_a_plain_sum_do_not_pass_a_batch() {
        // The sum of both equations still holds when one scalar grows by what the other loses.
        let (mut first, mut second) = (good(1), good(2));
        let shift = |check: &mut Check, by: Scalar| {
            let scalar = Scalar::from_canonical_bytes(check.signature.0[32..].try_into().unwrap()).unwrap();
            check.signature.0[32..].copy_from_slice((scalar + by).as_bytes());
        };
        shift(&mut first, Scalar::from(5_u64));
        shift(&mut second, -Scalar::from(5_u64));
        assert_eq!(verify_all(&[first, second]), Err((0, BadSignature)));
    }

    #[test]
    fn l1_5_a_scalar_that_is_not_reduced_is_refused_alone_and_in_a_batch() {
        let mut check = good(1);
        let unreduced = sum(&check.signature.0[32..], &ORDER);
        check.signature.0[32..].copy_from_slice(&unreduced);
        assert_eq!(check.verify(), Err(BadSignature));
        assert_eq!(verify_all(&[good(2), check]), Err((1, BadSignature)));
    }

    #[test]
    fn l1_5_a_point_of_small_order_in_a_signature_is_refused_strictly() {
        // Nonce zero and the neutral point: a valid equation, and a signature that gives its key away.
        let check = crafted(77, 0, 0, 0, [3; 32]);
        assert_eq!(check.verify(), Err(BadSignature));
        assert_eq!(verify_all(&[check]), Err((0, BadSignature)));
    }

    #[test]
    fn l1_5_a_batch_may_take_a_malformed_signature_of_the_keys_own_holder_and_only_that() {
        // The point carries the torsion point of order two, which a batch does not see when its random weight is even.
        let (mut taken, mut refused) = (0, 0);
        for nonce in 1..=64 {
            let malformed = crafted(77, 0, nonce, 4, [3; 32]);
            assert_eq!(malformed.verify(), Err(BadSignature), "strictly, it never passes");
            match verify_all(&[good(1), malformed]) {
                Ok(()) => taken += 1,
                Err(bad) => {
                    assert_eq!(bad, (1, BadSignature));
                    refused += 1;
                }
            }
            // The same for another message or another key is a forgery, and never passes.
            let forged = Check { message: [4; 32], ..malformed };
            assert_eq!(verify_all(&[good(1), forged]), Err((1, BadSignature)));
            let forged = Check { key: good(2).key, ..malformed };
            assert_eq!(verify_all(&[good(1), forged]), Err((1, BadSignature)));
        }
        assert!(taken > 10 && refused > 10, "{taken} taken, {refused} refused: about half each");
    }

    #[test]
    fn l1_5_a_batch_never_refuses_what_passes_strictly() {
        // Under a key with a torsion component a strict pass is a matter of the challenge, and a batch may then fail.
        let mut passed = 0;
        for nonce in 1..=64 {
            let mixed = crafted(77, 4, nonce, 0, [3; 32]);
            let strictly = mixed.verify();
            passed += usize::from(strictly.is_ok());
            if strictly.is_ok() {
                assert_eq!(verify_all(&[good(1), mixed, good(2)]), Ok(()));
            }
        }
        assert!(passed > 10, "{passed} of 64 passed strictly");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn l1_5_no_change_of_a_signature_or_message_passes(
            size in 1_u8..6,
            place in any::<prop::sample::Index>(),
            at in 0_usize..96,
            flip in 1_u8..,
        ) {
            let mut checks: Vec<_> = (0..size).map(good).collect();
            let place = place.index(checks.len());
            match at.checked_sub(64) {
                None => checks[place].signature.0[at] ^= flip,
                Some(at) => checks[place].message[at] ^= flip,
            }
            prop_assert_eq!(checks[place].verify(), Err(BadSignature));
            prop_assert_eq!(verify_all(&checks), Err((place, BadSignature)));
        }

        #[test]
        fn l1_5_random_signatures_never_pass(bytes in prop::array::uniform32(any::<[u8; 2]>()), message: [u8; 32]) {
            let signature = Signature(bytes.concat().try_into().unwrap());
            let forged = Check { signature, message, ..good(1) };
            prop_assert_eq!(verify_all(&[forged]), Err((0, BadSignature)));
            prop_assert_eq!(verify_all(&[good(2), forged]), Err((1, BadSignature)));
        }
    }
}
