//! Single-use authority: nonces, approvals and operations that act once (law section 12).
//!
//! A *mark* is a nonce or an approval, named by a hash; an *operation* is a call with an identity, whose outcome is kept.
//! Either is held from its first presentation until it expires, in its own table, through the same group commit as
//! everything else: a call costs three transitions (reserved, begun, finished), which share their flushes with all others.
//!
//! **State** (`core::Ledger`, pure): every mark and operation with its owner; places by subject; the order in which they
//! were written, for pruning; the clock record (high-water mark, floors by table, epoch); the store's birth; which owners
//! are there; and how to undo what is not durable yet.
//!
//! **Transitions**, each under one lock, with the stop read first, then the clocks, then revocation:
//!
//! | transition | mark or operation is | does | else |
//! | --- | --- | --- | --- |
//! | `reserve_until` | absent | committed: `true` | `false` |
//! | `reserve`, `present` | absent | reserved by a fresh owner | |
//! | `reserve`, `present` | reserved by nobody who is there | reserved by a fresh owner | *replayed* |
//! | `present` | operation reserved, same commitment | it and its marks pass to a fresh owner | |
//! | `present` | operation running, same commitment | waits for its end | |
//! | `present` | operation finished, same commitment | its outcome; nothing runs, no mark is looked at | |
//! | `present` | operation with an unknown outcome | | *outcome unknown*, until its deadline |
//! | `present` | operation of another commitment | | *conflict* |
//! | `present` | mark of another operation | | *request binding mismatch* |
//! | `begin` | reserved by this owner | dispatching, durably before the call | *superseded* |
//! | `begin`, refused | reserved by this owner | absent, in the same transition | |
//! | `rollback` | reserved by this owner | absent; reads no clock | nothing |
//! | `finish` | dispatching, of this owner | finished with its outcome, marks committed; reads no clock | *outcome unknown* |
//! | `recover` | reserved by nobody who is there | absent | passed over |
//! | pruning | expired, and waited | absent, and the table's floor is raised | kept |
//!
//! *Nobody who is there*: the owner is of an earlier epoch, or its handle was dropped in this one. An epoch is one opening
//! of the store; its number is durable before anything is reserved in it. A reservation that is dropped rolls back; what
//! began and is dropped has an unknown outcome. A refused presentation of a mark extends it, if it says that it expires
//! later; nothing shortens one.
//!
//! **Checks of a presentation**, in their order: stop; clock; revocation; table closed; the operation's deadline, damage,
//! commitment and state; then, of what would be reserved: lifetime, issue against the birth mark and the clock, floor;
//! expiry, lifetime, issue and floor of each mark; whether the mark was presented before; room. So an exact retry is
//! answered before its nonce is looked at, and what is refused burns nothing. `begin` reads stop, clock, revocation,
//! deadline and all instants again.
//!
//! **Time** (law L12.6). Now is the greater of the wall clock and the high-water mark; a clock that is behind that by more
//! than σ refuses. The mark is staged with every decision made at it, and is never lowered here. What is removed leaves a
//! floor, in the same batch, at its expiry: nothing of its table that expires at or below that is taken. A record is pruned
//! once it expired and the greatest lifetime + σ have passed on the monotonic clock since it was written or loaded, so that
//! a clock that was ahead for a moment closes nothing. The birth mark is that of [`storage`](crate::storage), with a record
//! of its own.
//!
//! **Room.** Each table has a bound in all and a bound a subject, and operations one in bytes, of which an unfinished one
//! takes what it may come to need. At a bound a fresh presentation is refused; nothing that lives is evicted. A presentation
//! looks at the few oldest records of its subjects and of all, and prunes what it may.
//!
//! **Failures.**
//!
//! - A batch that fails undoes every transition that is not durable, newest first (law L9.2). Who is there, who waits, the
//!   stop's latch and the high-water mark in memory are not undone.
//! - `begin` that fails to become durable is undone and rolled back. Where its future is dropped instead, the call counts as
//!   begun.
//! - `finish` that fails leaves its call begun: [`OutcomeUnknown`], and retries are refused. So does an outcome over its
//!   bound, and one that the store has no room for.
//! - A record that cannot be restored counts as consumed (law L11.2). One that no id can be told of closes its table. A clock
//!   or birth record that cannot be restored, or a clock record that is missing beside others, refuses the store; a stop
//!   record that cannot be restored is a stop.
//! - After a torn batch, an operation and its marks may tell of different moments: the later one counts.
//! - A panic of the [`Authority`] is a stop, or a revocation. A panic of the clock stops group commit.

mod call;
mod config;
mod consumed;
mod core;
mod guard;
mod handle;
mod health;
mod latch;
mod mark;
mod operation;
pub(crate) mod record;
mod refusal;
mod shell;
#[cfg(test)]
mod tests;
mod waiting;
pub(in crate::layer) mod wire;

pub use self::{
    call::{Call, Commitment, INTENT_MAX, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX},
    config::{DEFAULT_LIFETIME_S, LIFETIME_MAX_S, Places, SingleUseConfig, SingleUseOpenError},
    consumed::Consumed,
    handle::{Dispatching, Presentation, Recorded, Released, Reservation},
    health::{Recovery, SingleUseHealth},
    mark::{Authority, Capability, Mark, MarkId, MarkKind, MarkState, NothingRevoked},
    operation::{OUTCOME_MAX, Operation, OperationId, Outcome, OutcomeKind},
    refusal::{Capacity, OutcomeUnknown, Refusal, ResumeError, StopNotRecorded},
    shell::{RECOVERY_PAGE, SingleUse},
    wire::{INSTANT_MAX, WireError},
};

/// The most marks that one presentation may bring.
pub const MARKS_MAX: usize = 4;

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 1] = [call::FUZZ];
#[cfg(any(test, fuzzing))]
pub(in crate::layer) use call::fuzzing;
