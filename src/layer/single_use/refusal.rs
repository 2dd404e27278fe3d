//! What is refused, why, and whether authority was consumed.

use super::{Capability, Consumed, MARKS_MAX, MarkKind, MarkState, OperationId};
use crate::{
    clock::WallMs,
    storage::{
        RecordName, Table,
        commit::{BudgetExhausted, StoreFailed},
    },
};

/// Which bound of single-use authority is reached. Nothing is evicted to make room (law L12.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Capacity {
    /// The records of one subject in one table.
    #[error("{bound} records of one subject in table {table:?}")]
    PerSubject {
        /// The table.
        table: Table,
        /// The bound.
        bound: usize,
    },
    /// The records of all subjects in one table.
    #[error("{bound} records in table {table:?}")]
    InAll {
        /// The table.
        table: Table,
        /// The bound.
        bound: usize,
    },
    /// The bytes that operations hold or may come to hold with their outcomes.
    #[error("{bound} bytes of operations with their outcomes")]
    OperationBytes {
        /// The bound.
        bound: u64,
    },
    /// The table's budget in the store (law L9.7).
    #[error("{0}")]
    Budget(BudgetExhausted),
}

/// Why a presentation was refused. Nothing of it runs. Instants are unix seconds unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The emergency stop is on (law L12.5).
    #[error("the emergency stop is on: nothing runs and no answer leaves until the operator ends it")]
    Stopped {
        /// Whether the call ran before, so that only its answer is withheld.
        consumed: Consumed,
    },
    /// A capability that it rests on was revoked (law L12.5).
    #[error("{capability:?} was revoked: present other authority")]
    Revoked {
        /// The first of them that was.
        capability: Capability,
        /// Whether the call ran before, so that only its answer is withheld.
        consumed: Consumed,
    },
    /// The wall clock is behind the store's high-water mark by more than the tolerance (law L12.6).
    #[error(
        "the clock reads {wall_ms} ms, more than {sigma_ms} ms behind {high_water_ms} ms, which it has read before: \
         set the clock; if it had been ahead, move the mark back with the operator's command"
    )]
    ClockRegressed {
        /// What the clock reads, in milliseconds since the Unix epoch.
        wall_ms: WallMs,
        /// The greatest that it ever read, in milliseconds since the Unix epoch.
        high_water_ms: WallMs,
        /// The tolerance, in milliseconds.
        sigma_ms: u64,
    },
    /// The table is damaged where no record can be named, so that nothing in it can be told apart (law L11.2).
    #[error("table {table:?} is closed: {reason}; renew the store, or start on an empty one")]
    Unavailable {
        /// The table.
        table: Table,
        /// What is wrong with it.
        reason: String,
    },
    /// Its record cannot be restored, and counts as consumed (law L11.2).
    #[error("its record {record} cannot be restored and counts as consumed: ask for fresh authority")]
    RecordDamaged {
        /// The record.
        record: RecordName,
    },
    /// Its time is over.
    #[error("it expired at {expires_at}: ask for fresh authority")]
    Expired {
        /// The first instant at which it was not valid.
        expires_at: i64,
    },
    /// It was issued further ahead of this node's clock than the tolerance.
    #[error("issued at {issued_at}, more than {sigma_ms} ms ahead of this node's clock: set the clock that is wrong")]
    NotYetValid {
        /// When it says it was issued.
        issued_at: i64,
        /// The tolerance, in milliseconds.
        sigma_ms: u64,
    },
    /// It lives longer than this store keeps anything (law L12.1).
    #[error("it is valid until {expires_at}, more than {greatest_s} s ahead: ask for one with a shorter life")]
    LifetimeTooLong {
        /// Until when.
        expires_at: i64,
        /// The greatest lifetime, in seconds.
        greatest_s: u64,
    },
    /// It was issued at or before the mark where this store began (laws L9.9 and L12.6).
    #[error("issued at {issued_at}, not after {mark_ms} ms, where this store began: ask for fresh authority")]
    IssuedBeforeMark {
        /// When it was issued.
        issued_at: i64,
        /// The mark, in milliseconds since the Unix epoch.
        mark_ms: WallMs,
    },
    /// It expires at or below a floor, up to which records were removed or a lost store may have held some (law L12.6).
    #[error(
        "it expires at {expires_at}, not after {floor}, up to which nothing is known any more: ask for a later one"
    )]
    BelowFloor {
        /// When it expires.
        expires_at: i64,
        /// The floor.
        floor: i64,
    },
    /// The call has no deadline, and an operation needs one (law L12.4).
    #[error("the call names no deadline, up to which its outcome could be kept: give it one")]
    DeadlineMissing,
    /// The operation's own deadline has passed (law L12.4).
    #[error(
        "the deadline {deadline} has passed: ask for it as another operation, once it is known what became of this"
    )]
    DeadlinePassed {
        /// The deadline.
        deadline: i64,
        /// Whether something is recorded of it.
        consumed: Consumed,
    },
    /// The operation's identity belongs to another request (law L12.4). The original is intact.
    #[error("operation {operation} is another request: ask for this one under an identity of its own")]
    Conflict {
        /// The identity.
        operation: OperationId,
    },
    /// The same signed authority belongs to another operation (law L12.4). That one is intact.
    #[error("the {kind} belongs to operation {operation}: present it there, or ask for fresh authority")]
    RequestBindingMismatch {
        /// What kind of authority.
        kind: MarkKind,
        /// Where it belongs.
        operation: OperationId,
    },
    /// It was presented before (law L12.1).
    #[error("the {kind} was presented before and is {state}: ask for fresh authority")]
    Replayed {
        /// What kind of authority.
        kind: MarkKind,
        /// How far it has come.
        state: MarkState,
    },
    /// A bound is reached.
    #[error("{0} are reached: wait until some expire, or raise the bound")]
    Capacity(Capacity),
    /// More marks in one presentation than may be.
    #[error("{count} marks in one presentation are over the bound of {MARKS_MAX}")]
    TooManyMarks {
        /// How many.
        count: usize,
    },
    /// As many callers as may be wait for a running operation already.
    #[error("{bound} callers wait for running operations already: ask again later")]
    TooManyWaiters {
        /// The bound that is reached: of one operation, or of all.
        bound: usize,
    },
    /// The operation began, and it is not known how it ended (law L12.4). It is neither sent again nor refunded, and stays
    /// so until its deadline.
    #[error(
        "operation {operation} began and its outcome is not known: find out at its provider; it stays so until {deadline}"
    )]
    OutcomeUnknown {
        /// Which.
        operation: OperationId,
        /// Its deadline.
        deadline: i64,
    },
    /// Another caller continued the operation, or the reservation is gone. See [`SingleUse::follow`](super::SingleUse::follow).
    #[error("another caller took the operation over before it began: wait for that one")]
    Superseded,
    /// The caller that was waited for gave up before the call.
    #[error("the caller that had the operation gave it up before it began: present it again")]
    Abandoned,
    /// The store failed, so that what it was asked is not known to be durable (law L9.2).
    #[error("{reason}; present it again once the store works")]
    StoreFailed {
        /// The store's error.
        reason: String,
    },
}

impl Refusal {
    /// The stable code: snake case, one a reason (law L12.7).
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::Stopped { .. } => "stopped",
            Refusal::Revoked { .. } => "revoked",
            Refusal::ClockRegressed { .. } => "clock_regressed",
            Refusal::Unavailable { .. } => "unavailable",
            Refusal::RecordDamaged { .. } => "record_damaged",
            Refusal::Expired { .. } => "expired",
            Refusal::NotYetValid { .. } => "not_yet_valid",
            Refusal::LifetimeTooLong { .. } => "lifetime_too_long",
            Refusal::IssuedBeforeMark { .. } => "issued_before_mark",
            Refusal::BelowFloor { .. } => "below_floor",
            Refusal::DeadlineMissing => "deadline_missing",
            Refusal::DeadlinePassed { .. } => "deadline_passed",
            Refusal::Conflict { .. } => "conflict",
            Refusal::RequestBindingMismatch { .. } => "request_binding_mismatch",
            Refusal::Replayed { .. } => "replayed",
            Refusal::Capacity(_) => "capacity",
            Refusal::TooManyMarks { .. } => "too_many_marks",
            Refusal::TooManyWaiters { .. } => "too_many_waiters",
            Refusal::OutcomeUnknown { .. } => "outcome_unknown",
            Refusal::Superseded => "superseded",
            Refusal::Abandoned => "abandoned",
            Refusal::StoreFailed { .. } => "store_failed",
        }
    }

    /// Whether the authority that was presented is spent (law L12.7), as far as was looked: checks end at the first that
    /// refuses.
    pub const fn consumed(&self) -> Consumed {
        match self {
            Refusal::Stopped { consumed }
            | Refusal::Revoked { consumed, .. }
            | Refusal::DeadlinePassed { consumed, .. } => *consumed,
            Refusal::RecordDamaged { .. } | Refusal::OutcomeUnknown { .. } => Consumed::Yes,
            Refusal::Replayed { state, .. } => match state {
                MarkState::Absent => Consumed::No,
                // Its owner may yet roll it back.
                MarkState::Reserved => Consumed::Unknown,
                MarkState::Dispatching | MarkState::Committed | MarkState::Consumed => Consumed::Yes,
            },
            Refusal::Unavailable { .. }
            | Refusal::BelowFloor { .. }
            | Refusal::IssuedBeforeMark { .. }
            | Refusal::TooManyWaiters { .. }
            | Refusal::Superseded
            | Refusal::StoreFailed { .. } => Consumed::Unknown,
            Refusal::ClockRegressed { .. }
            | Refusal::Expired { .. }
            | Refusal::NotYetValid { .. }
            | Refusal::LifetimeTooLong { .. }
            | Refusal::DeadlineMissing
            | Refusal::Conflict { .. }
            | Refusal::RequestBindingMismatch { .. }
            | Refusal::Capacity(_)
            | Refusal::TooManyMarks { .. }
            | Refusal::Abandoned => Consumed::No,
        }
    }
}

impl From<BudgetExhausted> for Refusal {
    fn from(exhausted: BudgetExhausted) -> Self {
        Refusal::Capacity(Capacity::Budget(exhausted))
    }
}

impl From<StoreFailed> for Refusal {
    fn from(failed: StoreFailed) -> Self {
        Refusal::StoreFailed { reason: failed.to_string() }
    }
}

/// A call began, and its end is not recorded (laws L12.4 and L12.8): never a plain refusal. Its authority stays consumed,
/// and nothing of it is sent again or refunded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutcomeUnknown {
    /// The store failed.
    #[error("the call ended, and its end could not be recorded: {reason}; find out at its provider what became of it")]
    NotRecorded {
        /// The store's error.
        reason: String,
    },
    /// The outcome is over the bound.
    #[error("an outcome of {bytes} bytes is over the {bound} that are recorded: record a digest, or raise the bound")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
        /// The bound in bytes.
        bound: usize,
    },
    /// The store has no room for the outcome.
    #[error("no room for the outcome: {0}")]
    NoRoom(BudgetExhausted),
}

impl OutcomeUnknown {
    /// The stable code of all of them.
    pub const fn code(&self) -> &'static str {
        "outcome_unknown"
    }
}

/// Why the emergency stop was not recorded. It is on in this process all the same, and is off after a restart.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the stop is on, and will not outlive this process: {reason}; stop again once the store works")]
pub struct StopNotRecorded {
    /// What the store says.
    pub reason: String,
}

/// Why the emergency stop is still on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Its end could not be recorded.
    #[error("the stop is still on: {reason}; resume again once the store works")]
    NotRecorded {
        /// What the store says.
        reason: String,
    },
    /// Another stop came meanwhile.
    #[error("the stop is still on: it was ordered again meanwhile")]
    StoppedAgain,
}
