//! What a caller holds while it has authority: each step can only be made from the one before.

use super::{Capability, Outcome, OutcomeUnknown, Refusal, SingleUse, core::Grant};

/// A grant whose caller is there. When it goes away without having ended, what was not begun is rolled back, and what was
/// begun has an unknown outcome.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) single_use: SingleUse,
    pub(super) grant: Grant,
    /// The ledger knows that this caller left.
    pub(super) ended: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ended {
            self.single_use.abandon(&self.grant);
        }
    }
}

/// Marks, and an operation if there is one, reserved durably for this holder. Dropping it rolls back, as by
/// [`rollback`](Self::rollback).
#[derive(Debug)]
#[must_use = "dropping a reservation rolls it back"]
pub struct Reservation {
    pub(super) held: Held,
}

impl Reservation {
    /// Begins the call: returns once it is durable that it began, and succeeds once, for the owner alone. Stop, the clock,
    /// revocation, expiry and deadline are read under the store's lock; what refuses it rolls it back (law L12.2).
    ///
    /// Dropping the future after it was polled leaves the outcome unknown.
    ///
    /// # Errors
    /// [`Refusal`], of which [`Refusal::Superseded`] says that an exact retry took the operation over meanwhile: see
    /// [`SingleUse::follow`]. The call must not be made.
    pub async fn begin(mut self, capabilities: &[Capability]) -> Result<Dispatching, Refusal> {
        let single_use = self.held.single_use.clone();
        single_use.begin(&mut self.held, capabilities).await?;
        Ok(Dispatching { held: self.held })
    }

    /// Gives everything back, which works while the clock is unusable too (law L12.2). Nothing is given back where an exact
    /// retry took the operation over.
    ///
    /// # Errors
    /// [`Refusal::StoreFailed`]: nobody holds it any more, and the next presentation finds it free.
    pub async fn rollback(mut self) -> Result<(), Refusal> {
        let single_use = self.held.single_use.clone();
        single_use.rollback(&mut self.held).await
    }
}

/// A call that began, durably: it may be made, once. Dropping it leaves its outcome unknown (law L12.4).
#[derive(Debug)]
#[must_use = "dropping it leaves the outcome unknown"]
pub struct Dispatching {
    held: Held,
}

impl Dispatching {
    /// Records how the operation ended, and returns once that is durable. From now on an exact retry is answered with
    /// `outcome`. Without an operation only the marks are committed, as by [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`OutcomeUnknown`]: authority stays consumed, and retries are refused.
    pub async fn finish(mut self, outcome: Outcome) -> Result<Recorded<Outcome>, OutcomeUnknown> {
        let single_use = self.held.single_use.clone();
        single_use.finish(&mut self.held, Some(outcome.clone())).await?;
        Ok(Recorded { single_use, answer: outcome })
    }

    /// Commits the marks of a call without an operation, and returns once that is durable. An operation's outcome is
    /// unknown from then on.
    ///
    /// # Errors
    /// [`OutcomeUnknown::NotRecorded`]: the marks stay consumed all the same (law L12.3).
    pub async fn commit<T>(mut self, answer: T) -> Result<Recorded<T>, OutcomeUnknown> {
        let single_use = self.held.single_use.clone();
        single_use.finish(&mut self.held, None).await?;
        Ok(Recorded { single_use, answer })
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
