use crate::layer::single_use::Outcome;

/// An operation's outcome, on its way to a caller: stop and revocation were read after it was durable (law L12.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    outcome: Outcome,
    replayed: bool,
}

impl Answer {
    pub(super) const fn new(outcome: Outcome, replayed: bool) -> Self {
        Self { outcome, replayed }
    }

    /// The outcome, byte for byte as the handler gave it.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether it was recorded before, or by another caller, so that nothing ran for this one.
    pub const fn replayed(&self) -> bool {
        self.replayed
    }

    /// The outcome.
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }
}
