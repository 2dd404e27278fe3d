use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::check::{CALL, DELEGATION, NONCE, POSSESSION, Rules, check};
use crate::{
    identity::{DelegationDigest, KeySigner, Signature, Slot},
    layer::{
        credential::{CredentialRefusal, Credentials, Nonce, Possession, Presenter, SignedNonce},
        single_use::{Call, Capability, Commitment, MarkKind},
    },
};

/// When everything here is judged: second 1,000, and σ is 3 s.
const NOW: u64 = 1_000_000;
const GREATEST: i64 = 600;
const POSSESSION_LIFETIME: i64 = 60;

fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).unwrap()
}

fn rules() -> Rules {
    let issuers = Arc::new([signer(1).key()]);
    Rules { issuers, possession_lifetime: POSSESSION_LIFETIME, sigma: 3_000, greatest_lifetime: GREATEST }
}

fn call() -> Call {
    Call {
        tenant: "acme".into(),
        request_id: "review-1".into(),
        method: "append".into(),
        arguments: Call::hash_arguments(b"a note"),
        intent: None,
        issued_at: Some(990),
        deadline: Some(1_500),
    }
}

fn nonce() -> Nonce {
    let subject = signer(2).key();
    Nonce::new(signer(1).key(), &call(), subject, subject, 995, 1_100)
}

/// What the subject shows for `call` at second 999, with this nonce.
fn shown(call: Call, nonce: Option<SignedNonce>) -> Credentials {
    let subject = signer(2);
    let authority = nonce.as_ref().map(SignedNonce::digest);
    let proof = Possession::new(&call, &subject.key(), authority, 999, 1_050).sign(&subject);
    Credentials::new(call, Bytes::from_static(b"a note"), Presenter::Proof(proof)).nonce(nonce)
}

fn good() -> Credentials {
    shown(call(), Some(nonce().sign(&signer(1))))
}

fn refusal(credentials: &Credentials) -> CredentialRefusal {
    check(&rules(), credentials, NOW).unwrap_err()
}

#[test]
fn l12_1_what_holds_is_one_mark_of_the_nonce_until_its_signed_expiry() {
    let nonce = nonce();
    let checked = check(&rules(), &shown(call(), Some(nonce.clone().sign(&signer(1)))), NOW).unwrap();
    let subject = signer(2).key();
    assert_eq!((checked.subject, checked.key), (subject, subject));
    assert_eq!(checked.commitment, Commitment::of(&call(), &subject));
    let mark = checked.mark.unwrap();
    assert_eq!(
        (mark.kind, mark.subject, mark.issued_at, mark.expires_at),
        (MarkKind::Nonce, subject, Some(995), 1_100)
    );
    assert_eq!(mark.valid_until, 1_050, "the proof ends before the nonce");
    let digest = nonce.clone().sign(&signer(1)).digest();
    let capabilities = [*subject.as_bytes(), *signer(1).key().as_bytes(), digest].map(Capability);
    assert_eq!(checked.capabilities, capabilities);

    // Signed anew with another time it is the same nonce, and another issuer's of that id is another.
    let mut rules = rules();
    rules.issuers = Arc::new([signer(1).key(), signer(5).key()]);
    let mark_of = |nonce: Nonce, issuer: u8| {
        let nonce = Nonce { issuer: signer(issuer).key(), ..nonce };
        check(&rules, &shown(call(), Some(nonce.sign(&signer(issuer)))), NOW).unwrap().mark.unwrap().id
    };
    assert_eq!(mark_of(Nonce { expires_at: 1_200, ..nonce.clone() }, 1), mark.id);
    assert_ne!(mark_of(nonce.clone(), 5), mark.id);
    assert_ne!(mark_of(Nonce { id: [0; 32], ..nonce }, 1), mark.id);
}

#[test]
fn l12_1_without_trusted_issuers_the_proofs_own_nonce_is_the_mark() {
    let rules = Rules { issuers: Arc::new([]), ..rules() };
    let shown = |call| shown(call, None);
    let first = shown(call());
    let mark = check(&rules, &first, NOW).unwrap().mark.unwrap();
    assert_eq!((mark.kind, mark.issued_at, mark.expires_at), (MarkKind::Nonce, Some(999), 1_050));
    assert_eq!(mark.valid_until, 1_050);
    assert_eq!(check(&rules, &first, NOW).unwrap().mark.unwrap(), mark);
    assert_ne!(check(&rules, &shown(call()), NOW).unwrap().mark.unwrap().id, mark.id);
    // Nobody is trusted, so nobody's nonce is of use.
    assert_eq!(check(&rules, &good(), NOW).unwrap_err().code(), "untrusted");
}

#[test]
fn l12_1_each_field_that_a_nonce_binds_is_refused_by_its_name() {
    let other = signer(9).key();
    let mismatch = |field| CredentialRefusal::BindingMismatch { what: NONCE, field };
    let cases = [
        (Nonce { subject: other, ..nonce() }, mismatch("subject")),
        (Nonce { tenant: "other".into(), ..nonce() }, mismatch("tenant")),
        (Nonce { request_id: "other".into(), ..nonce() }, mismatch("request id")),
        (Nonce { method: "other".into(), ..nonce() }, mismatch("method")),
        (Nonce { arguments: [0; 32], ..nonce() }, mismatch("arguments")),
        (Nonce { key: other, ..nonce() }, mismatch("key")),
        (Nonce { issuer: other, ..nonce() }, CredentialRefusal::Untrusted { what: NONCE, signer: other }),
    ];
    for (nonce, expected) in cases {
        assert_eq!(refusal(&shown(call(), Some(nonce.sign(&signer(1))))), expected);
    }
}

#[test]
fn l12_4_a_changed_operation_key_over_the_same_authority_is_a_binding_mismatch() {
    let nonce = nonce().sign(&signer(1));
    for renamed in
        [Call { request_id: "reused-authority".into(), ..call() }, Call { tenant: "elsewhere".into(), ..call() }]
    {
        // Whether the subject signs the new name or not.
        let anew = shown(renamed.clone(), Some(nonce.clone()));
        let mut kept = shown(call(), Some(nonce.clone()));
        kept.call = renamed;
        for credentials in [anew, kept] {
            assert_eq!(refusal(&credentials).code(), "request_binding_mismatch");
        }
    }
}

#[test]
fn l12_4_a_proof_is_for_its_call_and_its_nonce_alone() {
    let (mut swapped, mut bare) = (good(), good());
    swapped.nonce = Some(nonce().sign(&signer(1)));
    assert_eq!(refusal(&swapped), CredentialRefusal::BindingMismatch { what: POSSESSION, field: NONCE });
    bare.nonce = None;
    let rules = Rules { issuers: Arc::new([]), ..rules() };
    let mismatch = CredentialRefusal::BindingMismatch { what: POSSESSION, field: NONCE };
    assert_eq!(check(&rules, &bare, NOW).unwrap_err(), mismatch, "a proof that goes with a nonce is none without");
    let mut changed = shown(call(), None);
    changed.call.intent = Some("more".into());
    let mismatch = CredentialRefusal::BindingMismatch { what: POSSESSION, field: CALL };
    assert_eq!(check(&rules, &changed, NOW).unwrap_err(), mismatch);
    assert_eq!(refusal(&shown(call(), None)), CredentialRefusal::Missing { what: NONCE });
}

#[test]
fn l12_1_another_key_proves_nothing_whether_it_names_itself_or_not() {
    let nonce = nonce().sign(&signer(1));
    let proof = Possession::new(&call(), &signer(2).key(), Some(nonce.digest()), 999, 1_050);
    let show = |proof| {
        let presenter = Presenter::Proof(proof);
        Credentials::new(call(), Bytes::from_static(b"a note"), presenter).nonce(Some(nonce.clone()))
    };
    let itself = proof.clone().sign(&signer(3));
    assert_eq!(refusal(&show(itself.clone())), CredentialRefusal::BindingMismatch { what: NONCE, field: "subject" });
    let mut pretending = itself;
    pretending.proof.slot = Slot::Own(signer(2).key());
    assert_eq!(refusal(&show(pretending)), CredentialRefusal::BadSignature { what: POSSESSION });
}

#[test]
fn l1_2_a_delegated_key_speaks_while_its_delegation_is_valid_when_it_signed_and_now() {
    let (account, device) = (signer(2), signer(3));
    let with = |issued_at, ttl| {
        let nonce = Nonce { key: device.key(), ..nonce() }.sign(&signer(1));
        let delegation = account.delegate(device.key(), issued_at, ttl);
        let signer = device.clone().with_delegation(delegation.clone()).unwrap();
        let proof = Possession::new(&call(), &account.key(), Some(nonce.digest()), 990, 1_050).sign(&signer);
        let presenter = Presenter::Proof(proof);
        (Credentials::new(call(), Bytes::from_static(b"a note"), presenter).nonce(Some(nonce)), delegation)
    };
    let (credentials, delegation) = with(900_000, 200_000);
    let checked = check(&rules(), &credentials, NOW).unwrap();
    assert_eq!((checked.subject, checked.key), (account.key(), device.key()));
    assert_eq!(checked.mark.unwrap().valid_until, 1_050);
    let (short, _) = with(900_000, 120_999);
    assert_eq!(check(&rules(), &short, NOW).unwrap().mark.unwrap().valid_until, 1_020, "the delegation ends first");
    assert!(checked.capabilities.contains(&Capability(delegation.digest().0)));
    assert!(checked.capabilities.contains(&Capability(*device.key().as_bytes())));

    let expired = CredentialRefusal::Expired { what: DELEGATION, expires_at: 1_000 };
    assert_eq!(refusal(&with(900_000, 100_000).0), expired, "over now");
    let early = CredentialRefusal::NotYetValid { what: DELEGATION, issued_at: 994 };
    assert_eq!(refusal(&with(994_000, 100_000).0), early, "not begun when the proof was signed");
    assert!(check(&rules(), &with(993_000, 100_000).0, NOW).is_ok(), "begun, within the tolerance");

    let (mut forged, _) = with(900_000, 200_000);
    let Presenter::Proof(proof) = &mut forged.presenter else { panic!("a proof") };
    proof.proof.slot = Slot::Inline(Arc::new(signer(4).delegate(device.key(), 900_000, 200_000)));
    assert_eq!(refusal(&forged), CredentialRefusal::BindingMismatch { what: NONCE, field: "subject" });
    let Presenter::Proof(proof) = &mut forged.presenter else { panic!("a proof") };
    proof.proof.slot = Slot::Digest(DelegationDigest([1; 32]));
    assert_eq!(refusal(&forged).code(), "credential_malformed");
}

#[test]
fn l12_6_instants_are_judged_at_their_edges() {
    let of = |issued_at, expires_at| {
        let nonce = Nonce { issued_at, expires_at, ..nonce() }.sign(&signer(1));
        check(&rules(), &shown(call(), Some(nonce)), NOW).map(drop)
    };
    assert_eq!(of(1_003, 1_100), Ok(()), "ahead by the tolerance");
    assert_eq!(of(1_004, 1_100), Err(CredentialRefusal::NotYetValid { what: NONCE, issued_at: 1_004 }));
    assert_eq!(of(900, 1_001), Ok(()));
    assert_eq!(of(900, 1_000), Err(CredentialRefusal::Expired { what: NONCE, expires_at: 1_000 }));
    assert_eq!(of(900, 1_000 + GREATEST), Ok(()), "the greatest lifetime itself");
    let too_long = CredentialRefusal::LifetimeTooLong { what: NONCE, expires_at: 1_001 + GREATEST, greatest: GREATEST };
    assert_eq!(of(900, 1_001 + GREATEST), Err(too_long));
    assert_eq!(of(0, 1_100), Ok(()), "how long ago it was issued is the expiry's to say");

    let deadline = |deadline| {
        check(
            &rules(),
            &{
                let call = Call { deadline: Some(deadline), ..call() };
                shown(call, Some(nonce().sign(&signer(1))))
            },
            NOW,
        )
    };
    assert_eq!(deadline(1_000).unwrap_err(), CredentialRefusal::DeadlinePassed { deadline: 1_000 });
    assert!(deadline(1_001).is_ok());
}

/// What can be wrong, in the order that it is to be refused in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    CallShape,
    NonceShape,
    ProofShape,
    CallAhead,
    CallOver,
    NonceAhead,
    NonceOver,
    NonceTooLong,
    ProofAhead,
    ProofOver,
    ProofTooLong,
    NonceUntrusted,
    NonceSubject,
    NonceTenant,
    NonceRequest,
    NonceMethod,
    NonceArguments,
    NonceKey,
    ProofCall,
    ProofNonce,
    NonceForged,
    ProofForged,
}

use Fault::*;

const FAULTS: [Fault; 22] = [
    CallShape,
    NonceShape,
    ProofShape,
    CallAhead,
    CallOver,
    NonceAhead,
    NonceOver,
    NonceTooLong,
    ProofAhead,
    ProofOver,
    ProofTooLong,
    NonceUntrusted,
    NonceSubject,
    NonceTenant,
    NonceRequest,
    NonceMethod,
    NonceArguments,
    NonceKey,
    ProofCall,
    ProofNonce,
    NonceForged,
    ProofForged,
];

impl Fault {
    /// What the law says of it.
    fn said(self) -> (&'static str, &'static str) {
        match self {
            CallShape => ("credential_malformed", CALL),
            NonceShape => ("credential_malformed", NONCE),
            ProofShape => ("credential_malformed", POSSESSION),
            CallAhead => ("not_yet_valid", CALL),
            CallOver => ("deadline_passed", CALL),
            NonceAhead => ("not_yet_valid", NONCE),
            NonceOver => ("expired", NONCE),
            NonceTooLong => ("lifetime_too_long", NONCE),
            ProofAhead => ("not_yet_valid", POSSESSION),
            ProofOver => ("expired", POSSESSION),
            ProofTooLong => ("lifetime_too_long", POSSESSION),
            NonceUntrusted => ("untrusted", NONCE),
            NonceSubject | NonceTenant | NonceRequest | NonceMethod | NonceArguments | NonceKey => {
                ("request_binding_mismatch", NONCE)
            }
            ProofCall | ProofNonce => ("request_binding_mismatch", POSSESSION),
            NonceForged => ("bad_signature", NONCE),
            ProofForged => ("bad_signature", POSSESSION),
        }
    }
}

fn what(refusal: &CredentialRefusal) -> &'static str {
    match refusal {
        CredentialRefusal::Missing { what }
        | CredentialRefusal::Duplicate { what }
        | CredentialRefusal::Malformed { what, .. }
        | CredentialRefusal::Expired { what, .. }
        | CredentialRefusal::NotYetValid { what, .. }
        | CredentialRefusal::LifetimeTooLong { what, .. }
        | CredentialRefusal::Untrusted { what, .. }
        | CredentialRefusal::BindingMismatch { what, .. }
        | CredentialRefusal::BadSignature { what } => what,
        CredentialRefusal::DeadlineMissing | CredentialRefusal::DeadlinePassed { .. } => CALL,
    }
}

/// Credentials with these faults and, but for the forged ones, signatures that hold over them.
fn faulty(faults: &[Fault]) -> Credentials {
    let has = |fault| faults.contains(&fault);
    let mut call = call();
    let mut nonce = nonce();
    if has(CallShape) {
        call.intent = Some(String::new());
    }
    if has(CallAhead) {
        call.issued_at = Some(1_004);
    }
    if has(CallOver) {
        call.deadline = Some(999);
    }
    if has(NonceUntrusted) {
        nonce.issuer = signer(7).key();
    }
    if has(NonceSubject) {
        nonce.subject = signer(8).key();
    }
    if has(NonceTenant) {
        nonce.tenant = "other".into();
    }
    if has(NonceRequest) {
        nonce.request_id = "other".into();
    }
    if has(NonceMethod) {
        nonce.method = "other".into();
    }
    if has(NonceArguments) {
        nonce.arguments = [0; 32];
    }
    if has(NonceKey) {
        nonce.key = signer(8).key();
    }
    if has(NonceShape) {
        nonce.tenant = String::new();
    }
    // Each time can have one fault at once: the first that is asked for.
    (nonce.issued_at, nonce.expires_at) = match () {
        () if has(NonceAhead) => (1_004, 1_100),
        () if has(NonceOver) => (900, 1_000),
        () if has(NonceTooLong) => (900, 1_001 + GREATEST),
        () => (nonce.issued_at, nonce.expires_at),
    };
    let issuer = if nonce.issuer == signer(7).key() { signer(7) } else { signer(1) };
    let mut nonce = nonce.sign(&issuer);
    if has(NonceForged) {
        nonce.signature = Signature([1; 64]);
    }
    let subject = signer(2);
    let (issued_at, expires_at) = match () {
        () if has(ProofShape) => (999, 999),
        () if has(ProofAhead) => (1_004, 1_050),
        () if has(ProofOver) => (900, 1_000),
        () if has(ProofTooLong) => (999, 1_001 + POSSESSION_LIFETIME),
        () => (999, 1_050),
    };
    let mut possession = Possession::new(&call, &subject.key(), Some(nonce.digest()), issued_at, expires_at);
    if has(ProofCall) {
        possession.commitment = Commitment([0; 32]);
    }
    if has(ProofNonce) {
        possession.authority = Some([0; 32]);
    }
    let mut proof = possession.sign(&subject);
    if has(ProofForged) {
        proof.proof.signature = Signature([1; 64]);
    }
    Credentials::new(call, Bytes::from_static(b"a note"), Presenter::Proof(proof)).nonce(Some(nonce))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Law L12.1: whatever is wrong at once, what is refused is the first of it in the order of the law.
    #[test]
    fn l12_1_the_checks_are_in_the_order_of_the_law(faults in prop::sample::subsequence(&FAULTS, 0..=4)) {
        let found = check(&rules(), &faulty(&faults), NOW);
        match faults.iter().min() {
            None => prop_assert!(found.is_ok(), "{:?}", found),
            Some(first) => {
                let refusal = found.unwrap_err();
                prop_assert_eq!((refusal.code(), what(&refusal)), first.said());
            }
        }
    }
}

#[test]
fn l12_1_each_fault_alone_is_refused_by_its_own_name() {
    assert!(check(&rules(), &faulty(&[]), NOW).is_ok());
    assert!(FAULTS.is_sorted());
    for fault in FAULTS {
        let refusal = refusal(&faulty(&[fault]));
        assert_eq!((refusal.code(), what(&refusal)), fault.said());
    }
}
