use std::sync::Arc;

use proptest::prelude::*;

use super::check::{APPROVAL, Rules, check};
use crate::{
    identity::{KeySigner, Signature},
    layer::{
        credential::{Approval, CredentialRefusal, SignedApproval},
        single_use::{Call, Capability, MarkKind},
    },
};

const NOW: u64 = 1_000_000;
const GREATEST: i64 = 600;

fn signer(seed: u8) -> KeySigner {
    KeySigner::from_secret(&[seed; 32]).unwrap()
}

fn rules() -> Rules {
    Rules { approvers: Arc::new([signer(1).key(), signer(6).key()]), sigma: 3_000, greatest_lifetime: GREATEST }
}

fn call() -> Call {
    Call {
        tenant: "acme".into(),
        request_id: "review-1".into(),
        method: "append".into(),
        arguments: [1; 32],
        intent: Some("append a note".into()),
        issued_at: Some(990),
        deadline: Some(1_500),
    }
}

fn approval() -> Approval {
    Approval::new(signer(1).key(), &call(), signer(2).key(), 995, 1_100).unwrap()
}

fn judge(
    call: &Call,
    signed: &SignedApproval,
) -> Result<(crate::layer::single_use::Mark, [Capability; 2]), CredentialRefusal> {
    check(&rules(), call, signer(2).key(), Some(signed), NOW)
}

#[test]
fn l12_3_the_mark_is_one_for_subject_request_and_intent_and_is_kept_by_the_calls_deadline() {
    let signed = approval().sign(&signer(1));
    let (mark, capabilities) = judge(&call(), &signed).unwrap();
    assert_eq!((mark.kind, mark.subject), (MarkKind::Approval, signer(2).key()));
    assert_eq!((mark.issued_at, mark.valid_until, mark.expires_at), (Some(990), 1_100, 1_500));
    assert_eq!(capabilities, [Capability(*signer(1).key().as_bytes()), Capability(signed.digest())]);

    // Approved again, by another, for another time, and called with other arguments: still the one mark.
    let again = Approval { approver: signer(6).key(), issued_at: 999, expires_at: 1_200, ..approval() };
    let (same, _) = judge(&Call { arguments: [2; 32], ..call() }, &again.sign(&signer(6))).unwrap();
    assert_eq!((same.id, same.expires_at), (mark.id, mark.expires_at));

    // Of the three each is another's.
    let renamed = |tenant: &str, request_id: &str, intent: &str| {
        let call = Call { tenant: tenant.into(), request_id: request_id.into(), intent: Some(intent.into()), ..call() };
        let approval = Approval::new(signer(1).key(), &call, signer(2).key(), 995, 1_100).unwrap();
        judge(&call, &approval.sign(&signer(1))).unwrap().0.id
    };
    let ids = [
        mark.id,
        renamed("acmer", "eview-1", "append a note"),
        renamed("acme", "review-2", "append a note"),
        renamed("acme", "review-1a", "ppend a note"),
        renamed("acme", "review-1", "remove a note"),
    ];
    assert_eq!(std::collections::HashSet::from(ids).len(), ids.len());
}

#[test]
fn l12_6_the_mark_is_as_old_as_the_older_of_the_approval_and_the_call() {
    let of = |call_issued, approval_issued| {
        let call = Call { issued_at: call_issued, ..call() };
        judge(&call, &Approval { issued_at: approval_issued, ..approval() }.sign(&signer(1))).unwrap().0.issued_at
    };
    assert_eq!(of(Some(990), 995), Some(990));
    assert_eq!(of(Some(999), 995), Some(995));
    assert_eq!(of(None, 995), None, "a call that names no instant is judged by its deadline");
}

#[test]
fn l12_3_what_a_call_needs_for_approval_is_named() {
    let signed = approval().sign(&signer(1));
    let no_intent = judge(&Call { intent: None, ..call() }, &signed).unwrap_err();
    assert_eq!(no_intent, CredentialRefusal::Missing { what: "intent" });
    let no_deadline = judge(&Call { deadline: None, ..call() }, &signed).unwrap_err();
    assert_eq!(no_deadline.code(), "deadline_missing");
    let none = check(&rules(), &call(), signer(2).key(), None, NOW).unwrap_err();
    assert_eq!(none, CredentialRefusal::Missing { what: APPROVAL });
}

/// What can be wrong, in the order that it is to be refused in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Shape,
    Ahead,
    Over,
    TooLong,
    Untrusted,
    Subject,
    Tenant,
    Request,
    Intent,
    Forged,
}

use Fault::*;

const FAULTS: [Fault; 10] = [Shape, Ahead, Over, TooLong, Untrusted, Subject, Tenant, Request, Intent, Forged];

fn faulty(faults: &[Fault]) -> SignedApproval {
    let has = |fault| faults.contains(&fault);
    let mut approval = approval();
    if has(Untrusted) {
        approval.approver = signer(7).key();
    }
    if has(Subject) {
        approval.subject = signer(8).key();
    }
    if has(Tenant) {
        approval.tenant = "other".into();
    }
    if has(Request) {
        approval.request_id = "other".into();
    }
    if has(Intent) {
        approval.intent = "other".into();
    }
    if has(Shape) {
        approval.tenant = String::new();
    }
    // The first of the times that is asked for.
    (approval.issued_at, approval.expires_at) = match () {
        () if has(Ahead) => (1_004, 1_100),
        () if has(Over) => (900, 1_000),
        () if has(TooLong) => (900, 1_001 + GREATEST),
        () => (approval.issued_at, approval.expires_at),
    };
    let mut signed = approval.sign(&signer(if has(Untrusted) { 7 } else { 1 }));
    if has(Forged) {
        signed.signature = Signature([1; 64]);
    }
    signed
}

fn said(fault: Fault) -> CredentialRefusal {
    let mismatch = |field| CredentialRefusal::BindingMismatch { what: APPROVAL, field };
    match fault {
        Shape => {
            let empty = crate::layer::single_use::WireError::Empty { field: "tenant" };
            CredentialRefusal::Malformed { what: APPROVAL, reason: empty.into() }
        }
        Ahead => CredentialRefusal::NotYetValid { what: APPROVAL, issued_at: 1_004 },
        Over => CredentialRefusal::Expired { what: APPROVAL, expires_at: 1_000 },
        TooLong => {
            CredentialRefusal::LifetimeTooLong { what: APPROVAL, expires_at: 1_001 + GREATEST, greatest: GREATEST }
        }
        Untrusted => CredentialRefusal::Untrusted { what: APPROVAL, signer: signer(7).key() },
        Subject => mismatch("subject"),
        Tenant => mismatch("tenant"),
        Request => mismatch("request id"),
        Intent => mismatch("intent"),
        Forged => CredentialRefusal::BadSignature { what: APPROVAL },
    }
}

proptest! {
    /// Whatever is wrong at once, what is refused is the first of it in the order of the law.
    #[test]
    fn l12_1_an_approvals_checks_are_in_the_order_of_the_law(faults in prop::sample::subsequence(&FAULTS, 0..=10)) {
        match (judge(&call(), &faulty(&faults)), faults.iter().min()) {
            (found, None) => prop_assert!(found.is_ok(), "{:?}", found),
            (found, Some(first)) => prop_assert_eq!(found.unwrap_err(), said(*first)),
        }
    }
}
