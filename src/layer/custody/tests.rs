use super::*;
use crate::{
    identity::KeySigner,
    message::{Class, Incarnation, NetworkId, StreamKey, TransactionDigest},
};

const SIGMA: u64 = 10;
const HOLD: u64 = 500;

fn held(held_at: WallMs) -> Held {
    Held { issued_at: 1_000, expires_at: 1_100, held_at }
}

fn entry(expiry: WallMs) -> Entry {
    let key = |secret: u8| KeySigner::from_secret(&[secret; 32]).unwrap().key();
    let stream = StreamKey { network: NetworkId(7), origin: key(1), destination: key(2), class: Class::Application };
    Entry { stream, incarnation: Incarnation(5), sequence: 6, expiry }
}

fn digest(name: u8) -> TransactionDigest {
    TransactionDigest([name; 32])
}

#[test]
fn l2_4_mail_lives_as_of_its_hold_instant_at_every_edge() {
    let judge = |held_at, wall| live(held(held_at), wall, SIGMA, HOLD);
    // Held from σ before its issue until just before its expiry.
    assert_eq!(judge(989, 1_000), Err(MailRefusal::HeldBeforeIssue { held_at: 989, issued_at: 1_000 }));
    assert_eq!(judge(990, 1_000), Ok(()));
    assert_eq!(judge(1_099, 1_200), Ok(()));
    assert_eq!(judge(1_100, 1_200), Err(MailRefusal::HeldAfterExpiry { held_at: 1_100, expires_at: 1_100 }));
    // Held no more than σ ahead of this node's clock.
    assert_eq!(judge(1_050, 1_040), Ok(()));
    assert_eq!(judge(1_050, 1_039), Err(MailRefusal::HeldInTheFuture { held_at: 1_050, sigma: SIGMA }));
    // Held for less than the bound.
    assert_eq!(judge(1_050, 1_549), Ok(()));
    assert_eq!(judge(1_050, 1_550), Err(MailRefusal::HeldTooLong { held_at: 1_050, hold: HOLD }));
}

#[test]
fn l2_4_no_hold_instant_lengthens_a_life_past_its_expiry_and_the_bound() {
    let ends = 1_100 + HOLD;
    for wall in [ends, ends + 1, ends + SIGMA, u64::MAX] {
        for held_at in (0..3_000).chain([u64::MAX, u64::MAX - 1]) {
            assert!(live(held(held_at), wall, SIGMA, HOLD).is_err(), "held at {held_at}, judged at {wall}");
        }
    }
    assert_eq!(live(held(1_099), ends - 2, SIGMA, HOLD), Ok(()));
}

#[test]
fn l10_6_an_older_offer_ends_no_newer_one() {
    let mut custody = Custody::new(0);
    let first = custody.offer(digest(1));
    let second = custody.offer(digest(1));
    custody.end(first);
    assert!(custody.pending(&digest(1)));
    custody.end(second);
    assert!(!custody.pending(&digest(1)));
}

#[test]
fn l10_6_there_are_64_places_and_damaged_records_take_some() {
    let mut custody = Custody::new(1);
    custody.add_damaged();
    for name in 0..62 {
        assert!(custody.has_room(0), "{name}");
        assert_eq!(custody.set(digest(name), Some(entry(u64::from(name)))), None);
    }
    assert_eq!(custody.held(), CUSTODY_MAX);
    assert!(!custody.has_room(0));
    assert!(custody.has_room(1));
    assert_eq!(custody.spent(Some(3)), [0, 1, 2, 3].map(digest));
    assert_eq!(custody.spent(None), []);
    assert_eq!(custody.set(digest(0), None), Some(entry(0)));
    assert!(custody.has_room(0));
}

#[test]
fn l9_1_a_custody_record_is_read_back_whole_under_its_own_digest_or_not_at_all() {
    let bytes = encode(&digest(3), &entry(77));
    assert_eq!(bytes.len(), CUSTODY_RECORD_LEN);
    assert_eq!(decode(&digest(3).0, &bytes), Ok((digest(3), entry(77))));
    assert!(decode(&digest(4).0, &bytes).is_err());
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[place] ^= 1 << bit;
            assert!(decode(&digest(3).0, &damaged).is_err(), "bit {bit} of byte {place}");
        }
        assert!(decode(&digest(3).0, &bytes[..place]).is_err(), "cut at {place}");
    }
}
