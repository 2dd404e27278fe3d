use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    identity::{Delegation, DelegationDigest, KeySigner, Slot},
    layer::single_use::{Call, INTENT_MAX, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX, WireError},
};

fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).unwrap()
}

fn call(text: usize) -> Call {
    Call {
        tenant: "t".repeat(text.min(TENANT_MAX)),
        request_id: "r".repeat(text.min(REQUEST_ID_MAX)),
        method: "m".repeat(text.min(METHOD_MAX)),
        arguments: Call::hash_arguments(b"arguments"),
        intent: Some("i".repeat(text.min(INTENT_MAX))),
        issued_at: Some(1_000),
        deadline: Some(2_000),
    }
}

fn nonce(text: usize) -> SignedNonce {
    let (issuer, subject) = (signer(1), signer(2).key());
    Nonce::new(issuer.key(), &call(text), subject, subject, 1_000, 1_060).sign(&issuer)
}

fn proof(text: usize, delegated: bool) -> PossessionProof {
    let (account, device) = (signer(2), signer(3));
    let delegation = account.delegate(device.key(), 1, 2);
    let signer = if delegated { device.with_delegation(delegation).unwrap() } else { account.clone() };
    Possession::new(&call(text), &account.key(), Some(nonce(text).digest()), 1_000, 1_060).sign(&signer)
}

fn approval(text: usize) -> SignedApproval {
    let approver = signer(4);
    Approval::new(approver.key(), &call(text), signer(2).key(), 1_000, 1_060).unwrap().sign(&approver)
}

fn envelope(text: usize, arguments: usize) -> Envelope {
    let bare = Envelope::new(call(text), vec![7; arguments].into());
    bare.proof(proof(text, true)).nonce(nonce(text)).approval(approval(text))
}

/// The encoding of each kind, its bound, and what decoding and encoding again gives.
type Again = fn(&[u8]) -> Result<Vec<u8>, WireError>;

fn kinds(text: usize) -> [(Vec<u8>, usize, Again); 5] {
    let envelope_limit = Envelope::OVERHEAD + 9;
    [
        (nonce(text).encode().unwrap(), SignedNonce::ENCODED_MAX, |bytes| SignedNonce::decode(bytes)?.encode()),
        (proof(text, true).encode().unwrap(), PossessionProof::ENCODED_MAX, |bytes| {
            PossessionProof::decode(bytes)?.encode()
        }),
        (approval(text).encode().unwrap(), SignedApproval::ENCODED_MAX, |bytes| {
            SignedApproval::decode(bytes)?.encode()
        }),
        (envelope(text, 9).encode().unwrap(), envelope_limit, |bytes| {
            Envelope::decode(&Bytes::copy_from_slice(bytes), Envelope::OVERHEAD + 9)?.encode()
        }),
        (call(text).encode().unwrap(), Call::ENCODED_MAX, |bytes| Call::decode(bytes)?.encode()),
    ]
}

#[test]
fn each_bound_is_reached_and_one_byte_more_is_refused() {
    for (mut bytes, bound, again) in kinds(usize::MAX) {
        assert_eq!(bytes.len(), bound);
        assert_eq!(again(&bytes).as_ref(), Ok(&bytes));
        bytes.push(0);
        assert!(matches!(again(&bytes), Err(WireError::Oversize { .. })));
    }
}

#[test]
fn a_field_over_its_bound_is_neither_written_nor_read() {
    let long = Call { tenant: "t".repeat(TENANT_MAX + 1), ..call(4) };
    let (issuer, subject) = (signer(1), signer(2).key());
    let nonce = Nonce::new(issuer.key(), &long, subject, subject, 1, 2).sign(&issuer);
    let too_long = WireError::TooLong { field: "tenant", length: TENANT_MAX + 1, bound: TENANT_MAX };
    assert_eq!(nonce.encode(), Err(too_long));
    let approval = Approval::new(issuer.key(), &long, subject, 1, 2).unwrap().sign(&issuer);
    assert_eq!(approval.encode(), Err(too_long));
    assert_eq!(Envelope::new(long, Bytes::new()).encode(), Err(too_long));
    let reversed = Nonce::new(issuer.key(), &call(4), subject, subject, 2, 2).sign(&issuer);
    assert_eq!(reversed.encode(), Err(WireError::Reversed { begin: 2, end: 2 }));
    let mut reference = proof(4, false);
    reference.proof.slot = Slot::Digest(DelegationDigest([1; 32]));
    assert_eq!(reference.encode(), Err(WireError::Reference { field: "subject's slot" }));
}

#[test]
fn l12_1_each_signature_covers_every_field() {
    let base = nonce(4);
    assert_eq!(base.check().verify(), Ok(()));
    let other = signer(9).key();
    let of = |nonce: Nonce| SignedNonce { nonce, signature: base.signature };
    let changed = [
        Nonce { issuer: other, ..base.nonce.clone() },
        Nonce { id: [0; 32], ..base.nonce.clone() },
        Nonce { subject: other, ..base.nonce.clone() },
        Nonce { tenant: "tttr".into(), request_id: "rrr".into(), ..base.nonce.clone() },
        Nonce { request_id: "other".into(), ..base.nonce.clone() },
        Nonce { method: "other".into(), ..base.nonce.clone() },
        Nonce { arguments: [0; 32], ..base.nonce.clone() },
        Nonce { key: other, ..base.nonce.clone() },
        Nonce { issued_at: 999, ..base.nonce.clone() },
        Nonce { expires_at: 1_061, ..base.nonce.clone() },
    ];
    for nonce in changed {
        assert_ne!(of(nonce.clone()).digest(), base.digest());
        assert!(of(nonce).check().verify().is_err());
    }

    let base = approval(4);
    assert_eq!(base.check().verify(), Ok(()));
    let of = |approval: Approval| SignedApproval { approval, signature: base.signature };
    let changed = [
        Approval { approver: other, ..base.approval.clone() },
        Approval { subject: other, ..base.approval.clone() },
        Approval { tenant: "tttr".into(), request_id: "rrr".into(), ..base.approval.clone() },
        Approval { request_id: "other".into(), ..base.approval.clone() },
        Approval { intent: "other".into(), ..base.approval.clone() },
        Approval { issued_at: 999, ..base.approval.clone() },
        Approval { expires_at: 1_061, ..base.approval.clone() },
    ];
    for approval in changed {
        assert_ne!(of(approval.clone()).digest(), base.digest());
        assert!(of(approval).check().verify().is_err());
    }

    let base = proof(4, false);
    assert_eq!(base.check().unwrap().verify(), Ok(()));
    let of = |possession: Possession| PossessionProof { possession, proof: base.proof.clone() };
    let commitment = crate::layer::single_use::Commitment([0; 32]);
    let changed = [
        Possession { commitment, ..base.possession.clone() },
        Possession { nonce: [0; 32], ..base.possession.clone() },
        Possession { authority: None, ..base.possession.clone() },
        Possession { authority: Some([0; 32]), ..base.possession.clone() },
        Possession { issued_at: 999, ..base.possession.clone() },
        Possession { expires_at: 1_061, ..base.possession.clone() },
    ];
    for possession in changed {
        assert!(of(possession).check().unwrap().verify().is_err());
    }
}

#[test]
fn no_credential_reads_as_another() {
    for (place, (bytes, _, _)) in kinds(4).iter().enumerate() {
        for (other, (_, _, again)) in kinds(4).iter().enumerate() {
            assert_eq!(again(bytes).is_ok(), place == other);
        }
    }
}

#[test]
fn a_drawn_nonce_is_drawn_anew() {
    assert_ne!(nonce(4).nonce.id, nonce(4).nonce.id);
    assert_ne!(proof(4, false).possession.nonce, proof(4, false).possession.nonce);
    assert_eq!(proof(4, true).speaker(), Some((signer(2).key(), signer(3).key())));
    assert_eq!(PossessionProof::ENCODED_MAX - proof(4, false).encode().unwrap().len(), Delegation::LEN - 32);
}

#[test]
fn an_envelope_shows_what_it_carries_and_its_arguments_are_hashed_as_they_came() {
    let bytes = Bytes::from(envelope(4, 9).encode().unwrap());
    let credentials = EnvelopeExtractor::new().extract(&bytes).unwrap();
    assert_eq!(credentials.call, Call { arguments: Call::hash_arguments(&[7; 9]), ..call(4) });
    assert_eq!(credentials.arguments, Bytes::from(vec![7; 9]));
    assert_eq!(credentials.nonce.unwrap().nonce.tenant, "tttt");
    assert_eq!(credentials.approval.unwrap().approval.intent, "iiii");
    assert!(matches!(credentials.presenter, Presenter::Proof(_)));

    let bare = Bytes::from(Envelope::new(call(4), Bytes::new()).encode().unwrap());
    let refusal = EnvelopeExtractor::new().extract(&bare).unwrap_err();
    assert_eq!(refusal.code(), "credential_missing");
    let refusal = EnvelopeExtractor::new().limit(bytes.len() - 1).extract(&bytes).unwrap_err();
    assert_eq!(refusal.code(), "credential_malformed");
    assert!(EnvelopeExtractor::default().limit(bytes.len()).extract(&bytes).is_ok());
}

/// Ed25519 signs deterministically, so that these bytes never change unless the format does.
#[test]
fn credentials_are_written_and_signed_as_they_always_were() {
    let (issuer, subject, approver) = (signer(1), signer(2), signer(4));
    let call = call(4);
    let nonce = Nonce { id: [5; 32], ..Nonce::new(issuer.key(), &call, subject.key(), subject.key(), 1_000, 1_060) };
    let nonce = nonce.sign(&issuer);
    let possession =
        Possession { nonce: [6; 32], ..Possession::new(&call, &subject.key(), Some(nonce.digest()), 1_000, 1_060) };
    let proof = possession.sign(&subject);
    let approval = Approval::new(approver.key(), &call, subject.key(), 1_000, 1_060).unwrap().sign(&approver);
    let envelope = Envelope::new(call.clone(), Bytes::from_static(b"arguments"));
    let envelope = envelope.proof(proof.clone()).nonce(nonce.clone()).approval(approval.clone());
    let name = |bytes: Vec<u8>| hex::encode(blake3::hash(&bytes).as_bytes())[..16].to_owned();
    let written = [call.encode(), nonce.encode(), proof.encode(), approval.encode(), envelope.encode()];
    let names = written.map(|bytes| name(bytes.unwrap()));
    // The proof has the nonce's digest in it.
    let expected = ["6d437795cbb077fc", "6860f79339084375", "b86dad24ac509ed4", "e7a20b3d233ca88e", "f7719cfdbb2a143d"];
    assert_eq!(names, expected);
}

proptest! {
    /// Whatever is done to a credential's bytes, reading them ends, and what is read is written as it was read.
    #[test]
    fn any_bytes_give_an_error_or_what_is_written_as_it_was_read(
        (kind, text) in (0..5_usize, 1..9_usize),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut bytes, _, again) = kinds(text)[kind].clone();
        for (place, byte) in flips {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let marked = [&bytes[..4], &noise].concat();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        for bytes in [bytes, marked, noise] {
            if let Ok(written) = again(&bytes) {
                prop_assert_eq!(written, bytes);
            }
        }
    }
}

#[cfg(feature = "http")]
mod headers {
    use ::http::{HeaderMap, HeaderName, HeaderValue, Request};

    use super::*;
    use crate::layer::credential::http::{
        APPROVAL, DEADLINE, INTENT, ISSUED_AT, NONCE, PROOF, REQUEST_ID, TENANT, to_headers,
    };

    fn request(headers: HeaderMap) -> Request<Bytes> {
        let mut request = Request::post("/notes?draft=1").body(Bytes::from_static(b"a note")).unwrap();
        *request.headers_mut() = headers;
        request
    }

    fn refusal(change: impl FnOnce(&mut HeaderMap)) -> CredentialRefusal {
        let mut headers = to_headers(&envelope(4, 9)).unwrap();
        change(&mut headers);
        HttpExtractor::new().extract(&request(headers)).unwrap_err()
    }

    #[test]
    fn what_is_written_to_headers_is_found_in_them() {
        let found = HttpExtractor::new().extract(&request(to_headers(&envelope(4, 9)).unwrap())).unwrap();
        let method = "POST /notes?draft=1".to_owned();
        let sent = envelope(4, 9);
        assert_eq!(found.call, Call { method, arguments: Call::hash_arguments(b"a note"), ..call(4) });
        assert_eq!(found.arguments, Bytes::from_static(b"a note"));
        assert_eq!(found.approval, sent.approval);
        assert!(matches!(found.presenter, Presenter::Proof(_)) && found.nonce.is_some());
        let named = HttpExtractor::default().method(|request| request.uri().path().to_owned());
        let found = named.extract(&request(to_headers(&envelope(4, 9)).unwrap())).unwrap();
        assert_eq!(found.call.method, "/notes");
    }

    #[test]
    fn l12_8_every_duplicate_header_is_refused_though_both_say_the_same() {
        for name in [TENANT, REQUEST_ID, INTENT, ISSUED_AT, DEADLINE, PROOF, NONCE, APPROVAL] {
            let duplicate = |headers: &mut HeaderMap| {
                let value = headers.get(&name).unwrap().clone();
                headers.append(name.clone(), value);
            };
            let refusal = refusal(duplicate);
            assert_eq!(refusal.code(), "credential_duplicate", "{name}");
            assert_eq!(refusal.consumed(), crate::layer::single_use::Consumed::No);
        }
    }

    #[test]
    fn l12_8_what_does_not_decode_is_refused_and_never_passed_over() {
        let set = |name: HeaderName, value: &'static [u8]| {
            refusal(move |headers| drop(headers.insert(name, HeaderValue::from_bytes(value).unwrap())))
        };
        for name in [PROOF, NONCE, APPROVAL] {
            for value in [&b"*"[..], b"AAAA", b"A1PO=", b"", b"\xff"] {
                assert_eq!(set(name.clone(), value).code(), "credential_malformed", "{name}");
            }
        }
        for name in [ISSUED_AT, DEADLINE] {
            for value in [&b"-1"[..], b"+1", b"01", b"1.5", b"", b" 1", b"99999999999999999999"] {
                assert_eq!(set(name.clone(), value).code(), "credential_malformed", "{name} {value:?}");
            }
        }
        for name in [TENANT, REQUEST_ID, INTENT] {
            assert_eq!(set(name.clone(), "é".as_bytes()).code(), "credential_malformed", "{name}");
        }
    }

    #[test]
    fn what_must_be_there_and_is_not_is_named() {
        for (name, what) in [(TENANT, "tenant"), (REQUEST_ID, "request id"), (PROOF, "proof of possession")] {
            let refusal = refusal(|headers| drop(headers.remove(&name)));
            assert_eq!(refusal, CredentialRefusal::Missing { what });
        }
    }

    #[test]
    fn a_header_longer_than_any_credential_is_refused_before_it_is_decoded() {
        let long = |bytes: usize| HeaderValue::from_str(&"A".repeat(bytes.div_ceil(3) * 4 + 1)).unwrap();
        for (name, bound) in [
            (PROOF, PossessionProof::ENCODED_MAX),
            (NONCE, SignedNonce::ENCODED_MAX),
            (APPROVAL, SignedApproval::ENCODED_MAX),
        ] {
            let refusal = refusal(|headers| drop(headers.insert(name, long(bound))));
            let CredentialRefusal::Malformed { reason: Malformation::Wire(WireError::Oversize { .. }), .. } = refusal
            else {
                panic!("{refusal}")
            };
        }
        // The greatest of each fits.
        assert!(HttpExtractor::new().extract(&request(to_headers(&envelope(usize::MAX, 9)).unwrap())).is_ok());
    }

    #[test]
    fn what_a_header_cannot_say_is_not_written() {
        let named = Envelope::new(Call { tenant: "é".into(), ..call(4) }, Bytes::new());
        assert_eq!(to_headers(&named), Err(Malformation::NotAscii));
    }
}
