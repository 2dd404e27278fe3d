//! The admission boundary: the one place where a receiver decides whether a transaction is admitted, and what it
//! remembers of that.
//!
//! **State** (`core::Boundary`, pure): the window of every stream, with the greatest expiry and instant of what it
//! admitted, and whom it is charged to (see [`charging`](super::charging)); which link has which slot, and its volatile
//! windows (law L6.2); the registered namespaces (law L6.4); mail in custody (law L10.6); the birth record (law L9.9); the
//! floors of removed streams (law L10.5); and how to undo what is not durable yet. The set of records that cannot be
//! restored belongs to group commit.
//!
//! **Transition**: `Boundary::admit` takes a [`Request`], the clocks' reading made under the lock, and a stage for
//! writes. Its checks, in their order, and why it is that one:
//!
//! 1. *A reading advances birth.* Before any check, and kept even if the request is refused: a clock that was seen to be
//!    right once must count, or an attacker would present when it counts least. It is the store's own instant; of the
//!    refused transaction nothing is stored.
//! 2. *Unavailable* (L11.2): the stream's record cannot be restored. First of the refusals, since none of the others
//!    would be true of a stream that nothing is known of.
//! 3. *CustodyDisabled, NotApplication*: what is no mail here whatever its instants are. *TtlTooLong*: everything after
//!    relies on expiries within the greatest ttl of the clock.
//! 4. *Expired, FromTheFuture* (L2.4): at the wall clock read inside; of mail, as of its hold instant, the four *Held*
//!    refusals. Before the marks, so that these speak only of what would otherwise live.
//! 5. *BeforeMark* (L9.9), *StreamCleared* (L11.5), 6. *OtherClassifier, NamespaceWithdrawn* (L6.4), 7. *BelowFloor* (L10.5): what a lost store, a
//!    cleared stream, a volatile window or a removed one may have admitted. Before the windows, which cannot know it. (Another classifier
//!    than the recorded one sets its mark before all checks, and that stays whatever becomes of the request. One that is
//!    another than this run's sets none: two that took turns would refuse each other's traffic for ever.)
//! 8. *IncarnationAhead* (L8.4): before the windows, which would follow it out of reach.
//! 9. *Is it link-local* (L6.1)? Refuses nothing. What is, and finds room, meets the volatile window and the quota in place
//!    of all that follows, and stages at most a moved horizon. It comes after 2 to 8, which hold for it too: a stream
//!    that nothing is known of may have admitted it durably before its namespace was registered.
//! 10. *Is it mail in custody* (L10.6)? Where it is not pending, and its window knows it, it is *Redelivered*: before the
//!     window's own answer, which would be Replay or Stale, and before all that follows, which it has passed when it was
//!     admitted; it costs nothing and stages nothing. After 2 to 8, which hold for it too.
//! 11. *The window* (L5.3): Replay, Fork, Stale.
//! 12. *Unavailable, RelayCustodyFull* (L11.1, L10.6): new mail, and its record is one that cannot be restored; or no place
//!     is left for it, what the same admission drops as spent counted out. After the window, since a copy needs no place;
//!     before the bounds of streams and quota, since it is the store's own and says nothing of the stream.
//! 13. *NoSlot, StreamCapacityExceeded* (L10.1 to L10.3): whether the introducer of a new stream may open it. Whether a
//!     stream exists is a look at the table, and the window of one that does not refuses nothing, so that this stands
//!     before or after 11 alike; here it is, since only a stream without a window is new. The introducer's own bound comes
//!     before the bound of all, which is not its doing. What the same admission removes counts out of both, and so does
//!     whatever is spent: where the bound is reached, as many spent streams go as make room. A known stream is charged
//!     already, and meets none of this, whatever its slot holds by now.
//! 14. *QuotaExceeded* (L7): after the window, since Replay, Fork and Stale cost nothing, and before anything is staged,
//!     since what it refuses leaves window and record as they were. A stream that is not opened needs no buckets, so that
//!     it comes after 13.
//! 15. *BudgetExhausted* (L9.7): the last that can refuse; what was staged is discarded, and the tables are as they were.
//!     (Where the clock table has no room for what 1 or another classifier stages, it refuses there, before all others.)
//!
//! An admission then stages its own stream's record, the floor record if it removes spent streams (at most
//! [`REMOVALS`] of them), mail's entry in custody, the removal of spent ones, and the birth record if the reading advanced
//! it, all in one batch.
//!
//! **Custody** (L10.6). Entries are durable, what is pending is not. Taking is a transition of its own: the entry must be
//! there, and no mark of its namespace refuse it; it is removed, and the mail shown once that is durable. See
//! [`custody`](super::custody).
//!
//! **Link-local** (L6). Which namespaces delegate their replay protection, and the marks that changes of that leave, are one
//! record; volatile windows belong to links that were announced and go with them. What a volatile window admitted is
//! undone with the batch that it waits for, and stays where it waits for none. Where a mark was set since, what was
//! admitted is judged by it once more when it is handed over. See [`local`](super::local).
//!
//! **Spent streams** (L10.5). A stream waits until the greatest ttl + σ that this store ever ran with have passed on the
//! monotonic clock since its last admission, or since it was loaded. Then it is looked at by the wall clock: σ after the
//! greatest expiry that it admitted it is spent, and the next admission removes it. Where custody is enabled, both instants
//! are 7 days later for streams of class `Application`.
//!
//! **Charges.** They are counted from the streams in memory with every change of them, and each record names whom its
//! stream is charged to: a removal gives a charge back, a failed batch restores what was, a restart finds what was
//! durable. Which link has which slot is volatile, and no batch's failure touches it.
//!
//! **Failures.** A batch that fails undoes every transition that is not durable, newest first (L9.2). A record of a
//! stream that cannot be restored makes its stream unavailable; one of birth, floor, cleared marks or namespaces that cannot be restored
//! refuses the whole store, since every stream relies on it. A store without a birth record is born when it is first opened.

pub(crate) mod cleared;
mod core;
mod custody;
mod inbox;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod inspection;
mod judge;
mod links;
mod local;
#[cfg(test)]
mod model;
mod record;
mod shell;
#[cfg(test)]
mod simulation;
mod table;
#[cfg(test)]
mod tests;

pub(in crate::layer) use self::{core::Staging, inbox::Pending};
pub use self::{
    record::STREAM_RECORD_MAX,
    shell::{Admission, AdmissionHealth},
};
use crate::{
    clock::{DEFAULT_SIGMA_MS, WallMs},
    layer::{
        charging::{Bound, Introducer, Shares},
        custody::MailRefusal,
        local::{NAMESPACES_MAX, Namespace},
        quota::{Bucket, FILL_MAX, Quotas},
        window::WindowRefusal,
    },
    link::{LinkId, NoSlot},
    message::{ClassifierId, DEFAULT_TTL_MS, GREATEST_TTL_MS, Incarnation, StreamKey, TransactionDigest},
    storage::{
        RecordName,
        commit::{BudgetExhausted, StoreFailed},
    },
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
    /// What each stream may bring in, by its class (law L7); none unless set. A bucket takes at most [`FILL_MAX`] to fill,
    /// and a spent stream is kept until the slowest has.
    pub quotas: Quotas,
    /// Whether mail is taken from an inbox and kept in custody until the application takes it (law L10.6). Streams of class
    /// `Application` are then spent 7 days later, and a store that has not settled with it takes birth anew: what was
    /// issued at or before the start that enables it is refused (law L9.9). Off by default.
    pub custody: bool,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            sigma: DEFAULT_SIGMA_MS,
            greatest_ttl: DEFAULT_TTL_MS,
            streams: STREAMS_MAX,
            shares: Shares::default(),
            birth_mark: true,
            quotas: Quotas::NONE,
            custody: false,
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
    /// A quota's bucket takes too long to fill, and spent streams would be kept as long.
    #[error("a quota fills in {seconds} s, over the bound of {} s: raise its rate or lower its burst", FILL_MAX.as_secs())]
    QuotaTooSlow {
        /// How long it takes, in seconds.
        seconds: u64,
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
         stop the node and run `admit-one store renew`, after which the store refuses what was issued before"
    )]
    Damaged {
        /// `birth`, `floor` or `namespaces`.
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
    /// More namespaces are to be registered than a store may know, those counted that were withdrawn a short while ago.
    #[error("more than {NAMESPACES_MAX} namespaces: register fewer, or start again once withdrawn ones are forgotten")]
    TooManyNamespaces,
    /// The birth record could not be made durable.
    #[error("the store's birth could not be recorded: {0}")]
    NotRecorded(String),
}

/// What brought a transaction: whom its stream is charged to, if it is a new one (law L10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// A link: its slot, or the one that links share which were not announced (see [`Links`](crate::link::Links)).
    Link(LinkId),
    /// The inbox, from which mail is drained: judged as of its hold instant, and kept in custody (law L10.6).
    Inbox {
        /// When its carrier took it in, in wall milliseconds.
        held_at: WallMs,
    },
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
    /// The length of the verified original's data: what it costs of its stream's quota (law L7.2).
    pub bytes: u64,
    /// What its namespace and its connection say, for class `Application` (law L6.1).
    pub application: Option<Application>,
}

/// What decides whether a transaction of class `Application` is link-local (law L6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Application {
    /// Who read the namespace.
    pub classifier: ClassifierId,
    /// Its namespace, unless that is too long to be registered.
    pub namespace: Option<Namespace>,
    /// The link that it came on, where that is the authenticated connection of its own origin; `None` for a relayed copy.
    pub own_link: Option<LinkId>,
}

/// Why a registration was not changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The store knows as many namespaces as it may.
    #[error("{NAMESPACES_MAX} namespaces are known: withdraw one; it is forgotten when nothing lives below its mark")]
    TooManyNamespaces,
    /// The clock table's budget is reached (law L9.7).
    #[error(transparent)]
    BudgetExhausted(#[from] BudgetExhausted),
    /// The store failed, and the registration is as it was.
    #[error(transparent)]
    StoreFailed(#[from] StoreFailed),
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
        "the stream {key:?} is unavailable: its record {record} cannot be restored; stop the node and run `admit-one store clear --record {record}`, which says what is lost"
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
    /// It was issued at or before the mark of its stream, which an operator cleared (law L11.5).
    #[error(
        "issued at or before {mark} ms, the mark under which its stream was cleared: send again what was issued since"
    )]
    StreamCleared {
        /// The mark, in wall milliseconds.
        mark: WallMs,
    },
    /// It was issued at or before its namespace's mark, where the namespace stopped to delegate its replay protection or
    /// another classifier began to read it (law L6.4).
    #[error("issued at or before {mark} ms, the mark of its namespace's withdrawal: send again what was issued since")]
    NamespaceWithdrawn {
        /// The mark, in wall milliseconds.
        mark: WallMs,
    },
    /// Namespaces are registered, and another classifier read it than the one that reads in this run (law L6.4).
    #[error("read by another classifier than this run's: give all layers over one boundary the same")]
    OtherClassifier,
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
    /// It is mail, and is refused as mail (laws L2.4 and L10.6).
    #[error(transparent)]
    Mail(#[from] MailRefusal),
    /// Its stream's quota is used up (law L7).
    #[error("the stream {key:?} is over its quota of {bucket:?}: send slower, or in smaller messages")]
    QuotaExceeded {
        /// The stream.
        key: StreamKey,
        /// Which of its buckets holds too little.
        bucket: Bucket,
        /// When it holds enough if nothing else comes, in milliseconds; `None` where the message is over the burst.
        after_ms: Option<u64>,
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
            Self::StreamCleared { .. } => "stream_cleared",
            Self::NamespaceWithdrawn { .. } => "namespace_withdrawn",
            Self::OtherClassifier => "other_classifier",
            Self::BelowFloor { .. } => "below_floor",
            Self::IncarnationAhead { .. } => "incarnation_ahead",
            Self::Window(WindowRefusal::Replay) => "replay",
            Self::Window(WindowRefusal::Fork { .. }) => "fork",
            Self::Window(WindowRefusal::Stale { .. }) => "stale",
            Self::StreamCapacityExceeded { .. } => "stream_capacity_exceeded",
            Self::Mail(refusal) => refusal.label(),
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::NoSlot(_) => "no_slot",
            Self::BudgetExhausted(_) => "budget_exhausted",
        }
    }
}

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 1] = [record::FUZZ];
