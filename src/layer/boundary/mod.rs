//! The admission boundary: the one place where a receiver decides whether a transaction is admitted, and what it
//! remembers of that.
//!
//! **State** (`core::Boundary`, pure): the window of every stream, with the greatest expiry and instant of what it
//! admitted, and whom it is charged to (see [`charging`](super::charging)); which link has which slot; the birth record (law L9.9); the floors of removed streams (law L10.5); and how to undo what is not durable
//! yet. The set of records that cannot be restored belongs to group commit.
//!
//! **Transition**: `Boundary::admit` takes a [`Request`], the clocks' reading made under the lock, and a stage for
//! writes. Its checks, in their order, and why it is that one:
//!
//! 1. *A reading advances birth.* Before any check, and kept even if the request is refused: a clock that was seen to be
//!    right once must count, or an attacker would present when it counts least. It is the store's own instant; of the
//!    refused transaction nothing is stored.
//! 2. *Unavailable* (L11.2): the stream's record cannot be restored. First of the refusals, since none of the others
//!    would be true of a stream that nothing is known of.
//! 3. *TtlTooLong*: everything after relies on expiries within the greatest ttl of the clock.
//! 4. *Expired, FromTheFuture* (L2.4): at the wall clock read inside. Before the marks, so that these speak only of what
//!    would otherwise live.
//! 5. *BeforeMark* (L9.9), 6. *BelowFloor* (L10.5): what a lost store or a removed window may have admitted. Before the
//!    window, which cannot know it.
//! 7. *IncarnationAhead* (L8.4): before the window, which would follow it out of reach.
//! 8. *The window* (L5.3): Replay, Fork, Stale.
//! 9. *NoSlot, StreamCapacityExceeded* (L10.1 to L10.3): whether the introducer of a new stream may open it. Whether a
//!    stream exists is a look at the table, and the window of one that does not refuses nothing, so that this stands
//!    before or after 8 alike; here it is, since only a stream without a window is new. The introducer's own bound comes
//!    before the bound of all, which is not its doing. What the same admission removes counts out of both, and so does
//!    whatever is spent: where the bound is reached, as many spent streams go as make room. A known stream is charged
//!    already, and meets none of this, whatever its slot holds by now.
//! 10. *BudgetExhausted* (L9.7): the last that can refuse; what was staged is discarded, and the tables are as they were.
//!
//! An admission then stages its own stream's record, the floor record if it removes spent streams (at most
//! [`REMOVALS`] of them), and the birth record if the reading advanced it, all in one batch. A check on mail in custody
//! would come before 8, a quota after 9; a link-local window replaces 5 to 9.
//!
//! **Spent streams** (L10.5). A stream waits until the greatest ttl + σ that this store ever ran with have passed on the
//! monotonic clock since its last admission, or since it was loaded. Then it is looked at by the wall clock: σ after the
//! greatest expiry that it admitted it is spent, and the next admission removes it.
//!
//! **Charges.** They are counted from the streams in memory with every change of them, and each record names whom its
//! stream is charged to: a removal gives a charge back, a failed batch restores what was, a restart finds what was
//! durable. Which link has which slot is volatile, and no batch's failure touches it.
//!
//! **Failures.** A batch that fails undoes every transition that is not durable, newest first (L9.2). A record of a
//! stream that cannot be restored makes its stream unavailable; one of birth or floor that cannot be restored refuses
//! the whole store, since every stream relies on it. A store without a birth record is born when it is first opened.

mod core;
#[cfg(test)]
mod model;
mod record;
mod shell;
mod table;
#[cfg(test)]
mod tests;

pub use self::{
    record::STREAM_RECORD_MAX,
    shell::{Admission, AdmissionHealth},
};
use crate::{
    clock::{DEFAULT_SIGMA_MS, WallMs},
    layer::{
        charging::{Bound, Introducer, Shares},
        window::WindowRefusal,
    },
    link::{LinkId, NoSlot},
    message::{DEFAULT_TTL_MS, GREATEST_TTL_MS, Incarnation, StreamKey, TransactionDigest},
    storage::{RecordName, commit::BudgetExhausted},
};

/// The most streams that a receiver keeps (law L10.1): every class of 4,096 pairs.
pub const STREAMS_MAX: usize = 16_384;

/// The most spent streams that one admission removes; more only where a new stream needs it to have a place: where bad
/// records take so many, or its introducer's bound is reached by so many.
pub const REMOVALS: usize = 4;

/// How a receiver admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// The clock tolerance σ, in milliseconds. Lowering it together with the loss of a store reopens replay.
    pub sigma: u64,
    /// The greatest time to live accepted, in milliseconds; at most [`GREATEST_TTL_MS`].
    pub greatest_ttl: u64,
    /// The most streams kept, unrestorable records included; at most [`STREAMS_MAX`].
    pub streams: usize,
    /// How the places for new streams are shared between those who introduce them (law L10.3).
    pub shares: Shares,
    /// Whether the birth mark refuses (law L9.9). Without it, a store that was lost admits again what its predecessor
    /// admitted and still lives. Birth is kept in either case, so that the guard can be enabled later.
    pub birth_mark: bool,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            sigma: DEFAULT_SIGMA_MS,
            greatest_ttl: DEFAULT_TTL_MS,
            streams: STREAMS_MAX,
            shares: Shares::default(),
            birth_mark: true,
        }
    }
}

/// Why a boundary did not open. The store is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionOpenError {
    /// The configured ttl is over the bound.
    #[error("a greatest ttl of {configured} ms is over the bound of {GREATEST_TTL_MS} ms")]
    TtlOverBound {
        /// What was configured, in milliseconds.
        configured: u64,
    },
    /// More streams are configured than a table may hold.
    #[error("{configured} streams are over the bound of {STREAMS_MAX}")]
    StreamsOverBound {
        /// What was configured.
        configured: usize,
    },
    /// The store holds more streams than configured (law L9.7).
    #[error("the store holds {held} streams, over the configured {bound}: raise the bound to at least that")]
    OverCapacity {
        /// Streams held, those whose record cannot be restored included.
        held: usize,
        /// The configured bound.
        bound: usize,
    },
    /// A record that every stream relies on cannot be restored.
    #[error(
        "the {what} record {record} cannot be restored ({reason}), and without it no stream is safe from replay: \
         start on an empty store, which refuses what was issued before it began"
    )]
    Damaged {
        /// `birth` or `floor`.
        what: &'static str,
        /// The record's name.
        record: RecordName,
        /// What is wrong with it.
        reason: String,
    },
    /// Another boundary runs over the same group commit, or one began to open on it and did not end.
    #[error(
        "this group commit's receiver table is taken: one boundary serves a store, and after one whose opening was not \
         recorded or was abandoned, group commit must be opened anew"
    )]
    Taken,
    /// The birth record could not be made durable.
    #[error("the store's birth could not be recorded: {0}")]
    NotRecorded(String),
}

/// What brought a transaction: whom its stream is charged to, if it is a new one (law L10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// A link: its slot, or the one that links share which were not announced (see [`Links`](crate::link::Links)).
    Link(LinkId),
    /// The inbox, from which mail is drained.
    Inbox,
    /// This node itself, by signaling out of band.
    Own,
}

/// What a verified transaction asks of the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The stream.
    pub stream: StreamKey,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The sequence.
    pub sequence: u64,
    /// What was signed.
    pub digest: TransactionDigest,
    /// When it was issued, in wall milliseconds.
    pub issued_at: WallMs,
    /// How long it lives from then, in milliseconds.
    pub ttl: u64,
    /// What brought it.
    pub carrier: Carrier,
}

impl Request {
    /// The first instant at which it no longer lives.
    pub(crate) const fn expires_at(&self) -> WallMs {
        self.issued_at.saturating_add(self.ttl)
    }
}

/// Why the boundary refused. Nothing of the transaction was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundaryRefusal {
    /// The stream's record cannot be restored (law L11.2).
    #[error(
        "the stream {key:?} is unavailable: its record {record} cannot be restored; it stays so as long as this store is used"
    )]
    StreamUnavailable {
        /// The stream.
        key: StreamKey,
        /// Its record.
        record: RecordName,
    },
    /// The time to live is over the greatest accepted (law L2.4).
    #[error("a ttl of {ttl} ms is over the greatest accepted, {greatest} ms")]
    TtlTooLong {
        /// The transaction's, in milliseconds.
        ttl: u64,
        /// The greatest accepted, in milliseconds.
        greatest: u64,
    },
    /// It no longer lives (law L2.4).
    #[error("expired at {expired} ms")]
    Expired {
        /// Its expiry, in wall milliseconds.
        expired: WallMs,
    },
    /// It was issued more than the tolerance ahead of this node's clock (law L2.4).
    #[error("issued at {issued_at} ms, more than {sigma} ms ahead of this node's clock")]
    FromTheFuture {
        /// When it was issued, in wall milliseconds.
        issued_at: WallMs,
        /// The tolerance, in milliseconds.
        sigma: u64,
    },
    /// It was issued at or before the store's birth mark (law L9.9).
    #[error("issued at or before {mark} ms, where this store began: send again what was issued since")]
    BeforeMark {
        /// The mark, in wall milliseconds.
        mark: WallMs,
    },
    /// It expires at or below its class's floor, where removed streams may have admitted it (law L10.5).
    #[error("expires at or below {floor} ms, up to which streams of this class were removed")]
    BelowFloor {
        /// The floor, in wall milliseconds.
        floor: WallMs,
    },
    /// Its incarnation lies more than the tolerance ahead of this node's clock (law L8.4).
    #[error("incarnation {:#x} is more than {sigma} ms ahead of this node's clock", incarnation.0)]
    IncarnationAhead {
        /// The incarnation.
        incarnation: Incarnation,
        /// The tolerance, in milliseconds.
        sigma: u64,
    },
    /// The stream's window refused it (law L5.3).
    #[error(transparent)]
    Window(#[from] WindowRefusal),
    /// A new stream, and its introducer may not open one more (laws L10.1 and L10.3).
    #[error("a new stream, and {introducer} has reached {bound}; there is room when one of its streams is spent")]
    StreamCapacityExceeded {
        /// Whom it would be charged to.
        introducer: Introducer,
        /// The bound that is reached.
        bound: Bound,
    },
    /// A new stream by a link that nobody announced, and no slot is free for such links (law L10.3).
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// A table's budget is reached (law L9.7).
    #[error(transparent)]
    BudgetExhausted(#[from] BudgetExhausted),
}

impl BoundaryRefusal {
    /// The name that metrics are labelled with.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::StreamUnavailable { .. } => "stream_unavailable",
            Self::TtlTooLong { .. } => "ttl_too_long",
            Self::Expired { .. } => "expired",
            Self::FromTheFuture { .. } => "from_the_future",
            Self::BeforeMark { .. } => "before_mark",
            Self::BelowFloor { .. } => "below_floor",
            Self::IncarnationAhead { .. } => "incarnation_ahead",
            Self::Window(WindowRefusal::Replay) => "replay",
            Self::Window(WindowRefusal::Fork { .. }) => "fork",
            Self::Window(WindowRefusal::Stale { .. }) => "stale",
            Self::StreamCapacityExceeded { .. } => "stream_capacity_exceeded",
            Self::NoSlot(_) => "no_slot",
            Self::BudgetExhausted(_) => "budget_exhausted",
        }
    }
}
