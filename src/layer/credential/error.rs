//! Why a call brought no answer.

use super::CredentialRefusal;
use crate::layer::single_use::{Consumed, OutcomeUnknown, Refusal};

/// Why a call was refused; the handler was not called for it, or its answer is withheld. Each has a stable code and says
/// whether authority was consumed (law L12.7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefusal {
    /// What it shows is refused, before the store was asked.
    #[error(transparent)]
    Credential(#[from] CredentialRefusal),
    /// The store refuses it.
    #[error(transparent)]
    Authority(#[from] Refusal),
}

impl CallRefusal {
    /// The stable code: snake case.
    pub const fn code(&self) -> &'static str {
        match self {
            CallRefusal::Credential(refusal) => refusal.code(),
            CallRefusal::Authority(refusal) => refusal.code(),
        }
    }

    /// Whether the authority that was shown is spent.
    pub const fn consumed(&self) -> Consumed {
        match self {
            CallRefusal::Credential(refusal) => refusal.consumed(),
            CallRefusal::Authority(refusal) => refusal.consumed(),
        }
    }

    /// Logs it, and counts it where the store has not done so.
    fn counted(self) -> Self {
        if let CallRefusal::Credential(refusal) = &self {
            metrics::counter!("admit_one_credential_refusals_total", "reason" => refusal.code()).increment(1);
        }
        tracing::debug!(reason = self.code(), consumed = %self.consumed(), refusal = %self, "call refused");
        self
    }
}

/// Why a call brought no answer. `E` is the handler's own error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError<E> {
    /// It was refused.
    #[error("refused: {0}")]
    Refused(CallRefusal),
    /// The handler was not ready. It was not called, and nothing was consumed.
    #[error("the handler is not ready: {0}")]
    NotReady(E),
    /// The handler was called, and failed. What was shown is consumed, and what the handler did is for it to say: of an
    /// operation the outcome is unknown.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The handler was called, and how it ended is not recorded: never a plain refusal (law L12.8).
    #[error(transparent)]
    OutcomeUnknown(OutcomeUnknown),
}

impl<E> CallError<E> {
    /// Counts and logs a refusal by credentials, and logs one by the store.
    pub(in crate::layer) fn refuse(refusal: impl Into<CallRefusal>) -> Self {
        CallError::Refused(refusal.into().counted())
    }

    /// A refusal under the emergency stop, before the store was asked (law L12.5).
    pub(in crate::layer) fn stopped() -> Self {
        metrics::counter!("admit_one_credential_refusals_total", "reason" => "stopped").increment(1);
        Self::refuse(Refusal::Stopped { consumed: Consumed::No })
    }

    /// Logs an end that is not recorded.
    pub(in crate::layer) fn unknown(unknown: OutcomeUnknown) -> Self {
        tracing::warn!(%unknown, "the end of a call is not recorded");
        CallError::OutcomeUnknown(unknown)
    }

    /// The stable code: snake case.
    pub const fn code(&self) -> &'static str {
        match self {
            CallError::Refused(refusal) => refusal.code(),
            CallError::NotReady(_) => "handler_not_ready",
            CallError::Handler(_) => "handler_failed",
            CallError::OutcomeUnknown(unknown) => unknown.code(),
        }
    }

    /// Whether the authority that was shown is spent (law L12.7).
    pub const fn consumed(&self) -> Consumed {
        match self {
            CallError::Refused(refusal) => refusal.consumed(),
            CallError::NotReady(_) => Consumed::No,
            CallError::Handler(_) | CallError::OutcomeUnknown(_) => Consumed::Yes,
        }
    }

    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&CallRefusal> {
        match self {
            CallError::Refused(refusal) => Some(refusal),
            CallError::NotReady(_) | CallError::Handler(_) | CallError::OutcomeUnknown(_) => None,
        }
    }
}
