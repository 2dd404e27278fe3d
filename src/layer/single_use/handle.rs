//! What a caller holds while it has authority: each step can only be made from the one before.

use super::{Capability, Outcome, OutcomeUnknown, Refusal, SingleUse};

/// Marks, and an operation if there is one, reserved durably for this holder. Dropping it rolls back, as by
/// [`rollback`](Self::rollback).
#[derive(Debug)]
#[must_use = "dropping a reservation rolls it back"]
pub struct Reservation {
    pub(super) single_use: SingleUse,
}

impl Reservation {
    /// Begins the call: returns once it is durable that it began, and succeeds once, for the owner alone. Stop,
    /// revocation and expiry are read under the store's lock; one that refuses rolls back (law L12.2).
    ///
    /// Dropping the future after it was polled leaves the outcome unknown.
    ///
    /// # Errors
    /// [`Refusal`], of which [`Refusal::Superseded`] says that an exact retry took the operation over meanwhile: see
    /// [`SingleUse::follow`]. The call must not be made.
    pub async fn begin(self, capabilities: &[Capability]) -> Result<Dispatching, Refusal> {
        let _ = capabilities;
        Err(self.single_use.not_built())
    }

    /// Gives everything back, which works while the clock is unusable too (law L12.2).
    ///
    /// # Errors
    /// [`Refusal::StoreFailed`]: what was reserved is free again in this process, and after a restart.
    pub async fn rollback(self) -> Result<(), Refusal> {
        Err(self.single_use.not_built())
    }
}

/// A call that began, durably: it may be made, once. Dropping it leaves its outcome unknown (law L12.4).
#[derive(Debug)]
#[must_use = "dropping it leaves the outcome unknown"]
pub struct Dispatching {
    pub(super) single_use: SingleUse,
}

impl Dispatching {
    /// Records how the operation ended, and returns once that is durable. From now on an exact retry is answered with
    /// `outcome`. Without an operation only the marks are committed, as by [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`OutcomeUnknown`]: authority stays consumed, and retries are refused.
    pub async fn finish(self, outcome: Outcome) -> Result<Recorded<Outcome>, OutcomeUnknown> {
        let _ = outcome;
        Err(OutcomeUnknown::NotRecorded { reason: self.single_use.not_built().to_string() })
    }

    /// Commits the marks of a call without an operation, and returns once that is durable. An operation's outcome is
    /// unknown from then on.
    ///
    /// # Errors
    /// [`OutcomeUnknown::NotRecorded`]: the marks stay consumed all the same (law L12.3).
    pub async fn commit<T>(self, answer: T) -> Result<Recorded<T>, OutcomeUnknown> {
        drop(answer);
        Err(OutcomeUnknown::NotRecorded { reason: self.single_use.not_built().to_string() })
    }
}

/// An answer that is durably recorded, and may not leave yet.
#[derive(Debug)]
#[must_use = "an answer leaves by being released"]
pub struct Recorded<T> {
    pub(super) single_use: SingleUse,
    pub(super) answer: T,
}

impl<T> Recorded<T> {
    /// Reads stop and revocation, last before the answer leaves (law L12.5).
    ///
    /// # Errors
    /// [`Refusal::Stopped`] or [`Refusal::Revoked`]. The answer stays recorded, and a retry under live authority gets it.
    pub fn release(self, capabilities: &[Capability]) -> Result<Released<T>, Refusal> {
        self.single_use.release(self.answer, capabilities)
    }
}

/// An answer that may leave: stop and revocation were read after it was durable (law L12.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released<T>(T);

impl<T> Released<T> {
    pub(super) const fn new(answer: T) -> Self {
        Self(answer)
    }

    /// The answer.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// The answer, to look at.
    pub const fn get(&self) -> &T {
        &self.0
    }
}

/// What became of a presented operation (law L12.4).
#[derive(Debug)]
#[must_use]
pub enum Presentation {
    /// It has not begun: run it.
    Run(Reservation),
    /// It ended before: this is its outcome, and nothing runs.
    Recorded(Recorded<Outcome>),
}
