//! What is refused before anything is spent.

use crate::{
    identity::Did,
    layer::single_use::{Consumed, WireError},
};

/// Why a request's credentials are refused. Nothing was consumed: each of these is decided before the store is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialRefusal {
    /// The request lacks something that it must have.
    #[error("the request has no {what}: send one with it")]
    Missing {
        /// What it lacks.
        what: &'static str,
    },
    /// The request has two of what it may have one of (law L12.8).
    #[error("the request has more than one {what}: send one")]
    Duplicate {
        /// What it has twice.
        what: &'static str,
    },
    /// Something in the request does not decode, or is over a bound (law L12.8).
    #[error("the {what} is malformed: {reason}")]
    Malformed {
        /// What does not decode.
        what: &'static str,
        /// Why.
        reason: Malformation,
    },
    /// Its time is over (law L12.1).
    #[error("the {what} expired at {expires_at}: get a fresh one, or set the clock that is wrong")]
    Expired {
        /// What expired.
        what: &'static str,
        /// The first instant at which it no longer held, in unix seconds.
        expires_at: i64,
    },
    /// Its time has not begun (law L12.6).
    #[error("the {what} was issued at {issued_at}, ahead of this node's clock: set the clock that is wrong")]
    NotYetValid {
        /// What was issued.
        what: &'static str,
        /// When, in unix seconds.
        issued_at: i64,
    },
    /// It holds for longer than this node would keep its mark (law L12.1).
    #[error("the {what} expires at {expires_at}, more than {greatest} s from now: issue it for a shorter time")]
    LifetimeTooLong {
        /// What expires too late.
        what: &'static str,
        /// When, in unix seconds.
        expires_at: i64,
        /// The most that is accepted, in seconds.
        greatest: i64,
    },
    /// The call has no deadline, and an approval is kept by it (law L12.4).
    #[error("the call has no deadline: state one, by which its approval is kept")]
    DeadlineMissing,
    /// The call's deadline has passed (law L12.4).
    #[error("the call's deadline {deadline} has passed: ask anew, under another request id")]
    DeadlinePassed {
        /// The deadline, in unix seconds.
        deadline: i64,
    },
    /// The authority is of an issuer or approver that this node does not trust.
    #[error("the {what} is by {signer}, whom this node does not trust for it")]
    Untrusted {
        /// What it signed.
        what: &'static str,
        /// Who signed.
        signer: Did,
    },
    /// The authority is for another call, or another caller (laws L12.1 and L12.4).
    #[error("the {what} is for another {field} than the request's: it stays good for what it was issued for")]
    BindingMismatch {
        /// Which credential.
        what: &'static str,
        /// What of it is another's.
        field: &'static str,
    },
    /// A signature does not hold.
    #[error("the signature of the {what} does not hold: forged, or altered on its way")]
    BadSignature {
        /// Whose.
        what: &'static str,
    },
}

/// Why something in a request does not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformation {
    /// Its bytes are none of its kind.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It is not base64 in the alphabet for URLs, without padding.
    #[error("it is not base64url without padding")]
    NotBase64,
    /// It is not visible ASCII.
    #[error("it is not visible ASCII")]
    NotAscii,
    /// It is not a decimal number.
    #[error("it is not a number of seconds")]
    NotANumber,
}

impl CredentialRefusal {
    /// The stable code: snake case.
    pub const fn code(&self) -> &'static str {
        match self {
            CredentialRefusal::Missing { .. } => "credential_missing",
            CredentialRefusal::Duplicate { .. } => "credential_duplicate",
            CredentialRefusal::Malformed { .. } => "credential_malformed",
            CredentialRefusal::Expired { .. } => "expired",
            CredentialRefusal::NotYetValid { .. } => "not_yet_valid",
            CredentialRefusal::LifetimeTooLong { .. } => "lifetime_too_long",
            CredentialRefusal::DeadlineMissing => "deadline_missing",
            CredentialRefusal::DeadlinePassed { .. } => "deadline_passed",
            CredentialRefusal::Untrusted { .. } => "untrusted",
            CredentialRefusal::BindingMismatch { .. } => "request_binding_mismatch",
            CredentialRefusal::BadSignature { .. } => "bad_signature",
        }
    }

    /// Whether authority was consumed: it never was.
    pub const fn consumed(&self) -> Consumed {
        Consumed::No
    }
}
