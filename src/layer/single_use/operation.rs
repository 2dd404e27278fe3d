//! One operation, and what is recorded of its end.

use std::fmt;

use bytes::Bytes;

use super::{Call, Commitment, Refusal};
use crate::identity::Did;

/// The most bytes that a recorded outcome may have: with the rest of its record it fits in one value of a store.
pub const OUTCOME_MAX: usize = 7 * 1_024;

const ID_CONTEXT: &str = "admit-one operation identity";

/// Names an operation: a hash of tenant and request id (law L12.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub [u8; 32]);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({self})")
    }
}

/// One operation, as it is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Its identity.
    pub id: OperationId,
    /// What makes a retry exact.
    pub commitment: Commitment,
    /// Who asks, and whom its place is accounted to.
    pub subject: Did,
    /// When it was first asked for, in unix seconds, where the call says it.
    pub issued_at: Option<i64>,
    /// The first instant at which it is refused, in unix seconds. It is kept until then.
    pub deadline: i64,
}

impl Operation {
    /// The operation that `call` is, asked for by `subject`.
    ///
    /// # Errors
    /// [`Refusal::DeadlineMissing`]: an operation is kept until its deadline, so it needs one.
    pub fn of(call: &Call, subject: Did) -> Result<Self, Refusal> {
        let deadline = call.deadline.ok_or(Refusal::DeadlineMissing)?;
        // The first length tells where the second text begins. No text is as long as a u64 can say.
        let mut id = blake3::Hasher::new_derive_key(ID_CONTEXT);
        id.update(&u64::try_from(call.tenant.len()).unwrap_or(u64::MAX).to_be_bytes());
        id.update(call.tenant.as_bytes());
        id.update(call.request_id.as_bytes());
        Ok(Self {
            id: OperationId(id.finalize().into()),
            commitment: Commitment::of(call, &subject),
            subject,
            issued_at: call.issued_at,
            deadline,
        })
    }
}

/// What an outcome is (law L12.4). A refusal is none of them, and never becomes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The call ended, and this is its answer.
    Receipt,
    /// The call ended badly, and this says how.
    Incident,
    /// The call moved value, and this says which.
    EconomicMutation,
}

/// How an operation ended, byte for byte as its call said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it is.
    pub kind: OutcomeKind,
    /// Its bytes: at most [`SingleUseConfig::outcome_max`](super::SingleUseConfig) of them can be recorded.
    pub bytes: Bytes,
}
