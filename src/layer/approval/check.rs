//! The pure core of an approval's checks: who is trusted, the call, the approval and the time in; the mark to consume, or a
//! refusal, out.

use std::sync::Arc;

use crate::{
    clock::WallMs,
    identity::Did,
    layer::{
        credential::{Approval, CredentialRefusal, SignedApproval},
        nonce::{Times, all_bound},
        single_use::{Call, Capability, Mark, MarkId, MarkKind},
    },
};

const CONTEXT: &str = "admit-one approval mark";
pub(super) const APPROVAL: &str = "signed approval";

/// What a node checks by.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// Whose approvals are trusted.
    pub(super) approvers: Arc<[Did]>,
    /// The clock tolerance in milliseconds.
    pub(super) sigma: u64,
    /// How far ahead an approval may expire, in seconds.
    pub(super) greatest_lifetime: i64,
}

/// Checks the approval of `call` by `subject` at wall clock `now`: shape, then time, then binding, then signature.
pub(super) fn check(
    rules: &Rules,
    call: &Call,
    subject: Did,
    signed: Option<&SignedApproval>,
    now: WallMs,
) -> Result<(Mark, [Capability; 2]), CredentialRefusal> {
    let intent = call.intent.as_ref().ok_or(CredentialRefusal::Missing { what: "intent" })?;
    let deadline = call.deadline.ok_or(CredentialRefusal::DeadlineMissing)?;
    let signed = signed.ok_or(CredentialRefusal::Missing { what: APPROVAL })?;
    let SignedApproval { approval, .. } = signed;
    approval.check_shape().map_err(|error| CredentialRefusal::Malformed { what: APPROVAL, reason: error.into() })?;

    let times = Times { now, sigma: rules.sigma };
    times.hold(APPROVAL, approval.issued_at, approval.expires_at, rules.greatest_lifetime)?;

    if !rules.approvers.contains(&approval.approver) {
        return Err(CredentialRefusal::Untrusted { what: APPROVAL, signer: approval.approver });
    }
    let bound = [
        ("subject", approval.subject == subject),
        ("tenant", approval.tenant == call.tenant),
        ("request id", approval.request_id == call.request_id),
        ("intent", approval.intent == *intent),
    ];
    all_bound(APPROVAL, &bound)?;

    signed.check().verify().map_err(|_| CredentialRefusal::BadSignature { what: APPROVAL })?;
    let capabilities = [Capability(*approval.approver.as_bytes()), Capability(signed.digest())];
    Ok((mark(approval, call, deadline), capabilities))
}

/// One for (subject, request, intent), whoever approves and however often. It is kept by the call's deadline, and stands
/// where the approval or the call was issued first.
fn mark(approval: &Approval, call: &Call, deadline: i64) -> Mark {
    let mut id = blake3::Hasher::new_derive_key(CONTEXT);
    id.update(approval.subject.as_bytes());
    for text in [&approval.tenant, &approval.request_id, &approval.intent] {
        // No text is as long as a u64 can say.
        id.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        id.update(text.as_bytes());
    }
    Mark {
        kind: MarkKind::Approval,
        id: MarkId(*id.finalize().as_bytes()),
        subject: approval.subject,
        issued_at: call.issued_at.map(|issued_at| issued_at.min(approval.issued_at)),
        valid_until: approval.expires_at.min(deadline),
        expires_at: deadline,
    }
}
