//! What an operator asks of single-use authority.

use super::Refusal;
use crate::clock::WallMs;

/// How single-use authority is doing. Counts are of records held, damaged ones included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SingleUseHealth {
    /// Whether the emergency stop is on.
    pub stopped: bool,
    /// Nonces.
    pub nonces: usize,
    /// Approvals.
    pub approvals: usize,
    /// Operations.
    pub operations: usize,
    /// Damaged records, which count as consumed.
    pub damaged: usize,
    /// Callers that wait for running operations.
    pub waiters: usize,
    /// The greatest reading of the wall clock.
    pub high_water: WallMs,
    /// Whether the clock is behind that by more than the tolerance, so that everything is refused (law L12.6).
    pub clock_regressed: bool,
    /// What was issued at or before this wall instant is refused (law L9.9). `None` where that guard is disabled.
    pub birth_mark: Option<WallMs>,
    /// Whether birth has settled, so that the mark is not raised any more.
    pub birth_settled: bool,
}

/// What a recovery found (law L12.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Operations and marks that were not finished.
    pub visited: usize,
    /// Those that were released, since they had not begun.
    pub released: usize,
    /// Operations whose outcome is not known, and stays so until their deadlines.
    pub unknown: usize,
    /// Operations that belong to callers of this process.
    pub running: usize,
    /// Damaged records, which count as consumed.
    pub damaged: usize,
    /// Why it ended early.
    pub failed: Option<Refusal>,
}
