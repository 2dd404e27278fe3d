//! The guards against a second use, by name, so that a test can take one away and show what it is for.

use crate::storage::guard;

/// One guard. Outside tests every guard is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(test), allow(dead_code))]
pub(in crate::layer) enum Guard {
    /// A stop refuses a presentation (law L12.5).
    Stop,
    /// A stop refuses the start of a call (law L12.2).
    StopAtBegin,
    /// A stop withholds an answer (law L12.5).
    StopAtRelease,
    /// A stop outlives the process (law L12.5).
    StopRecorded,
    /// A revocation refuses a presentation.
    Revocation,
    /// A revocation refuses the start of a call (law L12.2).
    RevocationAtBegin,
    /// A revocation withholds an answer (law L12.5).
    RevocationAtRelease,
    /// A clock behind the high-water mark by more than the tolerance refuses (law L12.6).
    Regressed,
    /// A smaller step back uses the high-water mark (law L12.6).
    HighWater,
    /// The high-water mark is staged with what was decided at it (law L12.6).
    HighWaterStaged,
    /// What expired is refused.
    Expired,
    /// Expiry is read again at the start of a call (law L12.2).
    ExpiredAtBegin,
    /// An operation past its deadline is refused (law L12.4).
    Deadline,
    /// What expires further ahead than the greatest lifetime is refused (law L12.1).
    Lifetime,
    /// What was issued more than the tolerance ahead is refused (law L12.6).
    NotYetValid,
    /// What was issued at or before the birth mark is refused (laws L9.9 and L12.6).
    BirthMark,
    /// What carries no issued instant meets a floor at the birth mark (law L12.6).
    BirthFloor,
    /// What expires at or below its table's floor is refused (law L12.6).
    Floor,
    /// A raised floor is staged with the removal that raises it (law L9.2).
    FloorStaged,
    /// Nothing is pruned before it has waited in monotonic time (law L12.6).
    PruneWait,
    /// Only what expired is pruned (law L12.1).
    PruneExpired,
    /// What belongs to a live caller is not pruned.
    PruneHeld,
    /// A refused presentation with a later expiry extends the mark (law L12.1).
    Extended,
    /// A mark that is there refuses (law L12.1).
    Replay,
    /// A damaged record counts as consumed (law L11.2).
    Damaged,
    /// Damage that cannot be named closes its table (law L11.2).
    Closed,
    /// Another request under an operation's identity is refused (law L12.4).
    Conflict,
    /// An operation that began is not run again (law L12.4).
    Began,
    /// Who continues an operation becomes its owner (law L12.4).
    TakenOver,
    /// Only the owner begins (law L12.2).
    BeginOwner,
    /// A reservation begins once (law L12.2).
    BeginOnce,
    /// The start of a call is staged before it (law L12.2).
    BeginStaged,
    /// Only the owner rolls back (law L12.2).
    RollbackOwner,
    /// Only what is reserved is rolled back (law L12.2).
    RollbackReserved,
    /// Only what is reserved, and belongs to no live caller, is released (law L12.2).
    ReleaseAbandoned,
    /// An epoch's owners are none of another epoch's (law L12.2).
    Epoch,
    /// An outcome is staged with the end of the call (law L12.4).
    OutcomeStaged,
}

/// Which guard a test took away. Empty outside tests.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::layer) struct Guards {
    #[cfg(test)]
    pub(in crate::layer) without: Option<Guard>,
    /// Those of birth.
    pub(in crate::layer) birth: guard::Guards,
}

impl Guards {
    /// Whether `guard` is there.
    #[cfg(test)]
    pub(super) fn keep(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// Whether `guard` is there: always.
    #[cfg(not(test))]
    #[inline(always)]
    pub(super) const fn keep(self, _: Guard) -> bool {
        true
    }
}
