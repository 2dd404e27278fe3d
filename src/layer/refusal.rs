//! What the layer refuses, and why.
//!
//! A refusal stores nothing and dispatches nothing. Each is counted once, in
//! `admit_one_refusals_total{reason="<label>"}` with its [`Refusal::label`]: the boundary counts its own where it
//! decides, the layer all others. (Where the batch of a decision then fails, what is answered is `store_failed`, and
//! that is counted beside the decision.)

use std::fmt;

use libp2p::PeerId;

use crate::{
    clock::WallMs,
    identity::{DelegationDigest, Did, DidError, SignError},
    layer::{
        boundary::BoundaryRefusal,
        charging::{Bound, Introducer},
        custody::MailRefusal,
        quota::Bucket,
        reassembly::ChunkRefusal,
        window::{ForkEvidence, WindowRefusal},
    },
    link::{Channel, NoSlot},
    message::{Class, ClassifyError, DecodeError, Incarnation, StreamKey, TransactionDigest},
    storage::{
        RecordName,
        commit::{BudgetExhausted, StoreFailed},
    },
};

/// Which of a payload's two proofs is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signatory {
    /// The node that sent this copy.
    Hop,
    /// Who the transaction is from.
    Origin,
}

impl fmt::Display for Signatory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signatory::Hop => "hop",
            Signatory::Origin => "origin",
        })
    }
}

/// Why a frame was refused: what, why, and what the sender or the operator can do.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are no frame of this protocol (law L2.7).
    #[error("no frame of this protocol: {0}; the sender speaks another protocol or release, or is faulty")]
    Frame(#[from] DecodeError),
    /// The connection's identity is not an Ed25519 key, so it has no [`Did`] (law L1.1).
    #[error("the peer {peer} cannot send here: give it an Ed25519 identity")]
    PeerNotEd25519 {
        /// The peer.
        peer: PeerId,
    },
    /// The copy is for another node (law L2.5).
    #[error("this copy is for {next_hop}, another node: the sender's route is wrong, or it replays another's copy")]
    NotNextHop {
        /// Whom it names.
        next_hop: Did,
    },
    /// A proof names its key by a reference that this link does not hold (law L4.6).
    #[error("the {whose}'s delegation {digest:?} is not known on this link: the sender must carry it inline")]
    UnresolvedReference {
        /// Whose.
        whose: Signatory,
        /// The reference.
        digest: DelegationDigest,
    },
    /// A proof names its key by a reference on a transport that carries none (law L4.8).
    #[error("the {whose}'s delegation {digest:?} is named by a reference where nothing resolves any: carry it inline")]
    ReferenceOutsideLink {
        /// Whose.
        whose: Signatory,
        /// The reference.
        digest: DelegationDigest,
    },
    /// Neither the hop's key nor its delegator is the key of the connection (law L2.5).
    #[error("the hop {hop} is not the connection's peer {peer}: a node may send only under its own name")]
    HopNotPeer {
        /// The key that signed as the hop.
        hop: Did,
        /// The key that the connection authenticated.
        peer: Did,
    },
    /// A chunk of a larger transaction, or what its chunks joined to (law L2.8).
    #[error("a chunk of a larger transaction: {0}")]
    Chunk(#[from] ChunkRefusal),
    /// Mail, refused as mail (laws L2.4, L4.8 and L10.6); it stays where it is.
    #[error("mail: {0}")]
    Mail(#[from] MailRefusal),
    /// The data names no class (law L2.6).
    #[error("the data has no class: {0}; the sender's classifier is not this node's, or it is faulty")]
    Unclassified(#[from] ClassifyError),
    /// The class's lane is not pinned to the channel that the frame came on (law L2.6).
    #[error("class {class:?} does not travel on channel {} of {}: the sender's lanes are faulty", channel.index, channel.pool)]
    WrongLane {
        /// The class.
        class: Class,
        /// The channel.
        channel: Channel,
    },
    /// Issued further ahead of this node's clock than the tolerance (law L2.4).
    #[error("issued at {issued_at}, more than {sigma} ms ahead of this node's clock: set the clock that is wrong")]
    FromTheFuture {
        /// When it says it was issued.
        issued_at: WallMs,
        /// The tolerance in milliseconds.
        sigma: u64,
    },
    /// Its life is over (law L2.4).
    #[error("expired at {expires_at}: sign it anew, or set the clock that is wrong")]
    Expired {
        /// The first instant at which it no longer lived.
        expires_at: WallMs,
    },
    /// It asks for a longer life than this node accepts (law L2.4).
    #[error("a time to live of {ttl} ms is over the {greatest} ms that this node accepts: sign it with a shorter one")]
    TtlTooLong {
        /// What it asks for, in milliseconds.
        ttl: u64,
        /// What this node accepts, in milliseconds.
        greatest: u64,
    },
    /// A delegation's time is over (law L1.2).
    #[error("the {whose}'s delegation by {delegator} expired at {expired_at}, before {judged_at}: renew it")]
    DelegationExpired {
        /// Whose.
        whose: Signatory,
        /// Who had delegated.
        delegator: Did,
        /// When it ended.
        expired_at: WallMs,
        /// The instant that it had to be valid at.
        judged_at: WallMs,
    },
    /// A delegation's time has not begun (law L1.2).
    #[error("the {whose}'s delegation by {delegator} begins at {issued_at}, after {judged_at}: sign under it later")]
    DelegationNotYetValid {
        /// Whose.
        whose: Signatory,
        /// Who delegates.
        delegator: Did,
        /// When it begins.
        issued_at: WallMs,
        /// The instant that it had to be valid at.
        judged_at: WallMs,
    },
    /// A delegation is not signed by its delegator.
    #[error("the {whose}'s delegation is not signed by {delegator}: forged, or altered on its way")]
    DelegationSignature {
        /// Whose.
        whose: Signatory,
        /// Who is said to have delegated.
        delegator: Did,
    },
    /// The origin's signature does not hold over what this node read.
    ///
    /// The network, the class and the origin are hashed and never travel (laws L1.4, L2.2), so a transaction of
    /// another network, of another classifier or with a swapped delegation cannot be told from an altered one.
    #[error(
        "the origin's signature by {key} does not hold: altered on its way, of another network or classifier, or \
         under another's delegation"
    )]
    OriginSignature {
        /// The key that should have signed.
        key: Did,
    },
    /// The hop's signature does not hold over this transaction, next hop and hop budget.
    #[error("the hop's signature by {key} does not hold: altered on its way, or copied from another hop's")]
    HopSignature {
        /// The key that should have signed.
        key: Did,
    },
    /// The stream's record cannot be restored (law L11.2).
    #[error(
        "the stream {key:?} is unavailable: its record {record} cannot be restored; stop the node and run `admit-one store clear --record {record}`, which says what is lost"
    )]
    StreamUnavailable {
        /// The stream.
        key: Box<StreamKey>,
        /// Its record.
        record: RecordName,
    },
    /// Issued at or before the mark where this store began (law L9.9).
    #[error("issued at or before {mark}, where this store began: sign it anew")]
    BeforeMark {
        /// The mark.
        mark: WallMs,
    },
    /// Issued at or before the mark of its stream, which an operator cleared (law L11.5).
    #[error("issued at or before {mark}, the mark under which its stream was cleared: sign it anew")]
    StreamCleared {
        /// The mark.
        mark: WallMs,
    },
    /// Issued at or before its namespace's mark, where the namespace stopped to delegate its replay protection or another
    /// classifier began to read it (law L6.4).
    #[error("issued at or before {mark}, where its namespace was withdrawn: sign it anew")]
    NamespaceWithdrawn {
        /// The mark.
        mark: WallMs,
    },
    /// Namespaces are registered, and another classifier read it than the one that reads in this run (law L6.4).
    #[error("read by another classifier than this run's: give all layers over one boundary the same")]
    OtherClassifier,
    /// It expires at or below its class's floor, where removed streams may have admitted it (law L10.5).
    #[error("expires at or before {floor}, up to which spent streams of its class were removed: sign it anew")]
    BelowFloor {
        /// The floor.
        floor: WallMs,
    },
    /// Its incarnation lies further ahead of this node's clock than the tolerance (law L8.4).
    #[error("incarnation {:#x} is more than {sigma} ms ahead of this node's clock: set the clock that is wrong", incarnation.0)]
    IncarnationAhead {
        /// The incarnation.
        incarnation: Incarnation,
        /// The tolerance in milliseconds.
        sigma: u64,
    },
    /// The same transaction was admitted before (law L5.3).
    #[error("already admitted: a replay, or the same transaction by a second way")]
    Replay,
    /// Another transaction was admitted at its sequence (law L5.3).
    #[error("{kept} was admitted at the sequence of {refused}: does the origin run on two copies of its record?")]
    Fork {
        /// What was admitted.
        kept: TransactionDigest,
        /// What was refused.
        refused: TransactionDigest,
        /// Both, signed by this node, where it was given a signer for evidence.
        evidence: Option<Box<ForkEvidence>>,
    },
    /// Below its stream's window, or of an older incarnation (law L5.3).
    #[error("older than sequence {lowest} of incarnation {:#x}, the oldest that is kept: overtaken on its way", incarnation.0)]
    Stale {
        /// The incarnation that is kept.
        incarnation: Incarnation,
        /// The lowest sequence that its window covers.
        lowest: u64,
    },
    /// A new stream, and its introducer may not open one more (laws L10.1 and L10.3).
    #[error("a new stream, and {introducer} has reached {bound}: there is room when one of its streams is spent")]
    StreamCapacityExceeded {
        /// Whom it would be charged to.
        introducer: Introducer,
        /// The bound that is reached.
        bound: Bound,
    },
    /// Its stream's quota is used up (law L7).
    #[error("the stream {key:?} is over its quota of {bucket:?}: send slower, or in smaller messages")]
    QuotaExceeded {
        /// The stream.
        key: Box<StreamKey>,
        /// Which of its buckets holds too little.
        bucket: Bucket,
        /// When it holds enough if nothing else comes, in milliseconds; `None` where the message is over the burst.
        after_ms: Option<u64>,
    },
    /// A new stream by a link that nobody announced, and no slot is free for such links (law L10.3).
    #[error("a new stream by a link that was not announced, which share one slot: {0}")]
    NoSlot(NoSlot),
    /// A table's budget is reached (law L9.7).
    #[error("{0}: raise the budget, or wait until streams are spent")]
    BudgetExhausted(BudgetExhausted),
    /// The store failed; the transaction was not admitted, and may be later (law L9.2).
    #[error("{0}; present it again once the store works")]
    StoreFailed(#[from] StoreFailed),
    /// More transactions of one channel, or in all, wait for their handlers than the bound allows.
    #[error("{held} transactions wait for a handler already, the bound: the handler is too slow for its callers")]
    DispatchFull {
        /// How many wait.
        held: usize,
    },
    /// A later link of its peer, or the same channel opened again, came before it was admitted (law L3.8). Its sender
    /// knows it as lost.
    #[error("a later link of its peer took over before it was admitted: its sender may send it anew")]
    Superseded,
    /// It is for another node, and this one knows no way on that is not back.
    #[error("for {destination}, and this node has no way on to it: send it another way, or configure forwarding")]
    NoRoute {
        /// Whom it is for.
        destination: Did,
    },
    /// It is for another node, and may not be forwarded once more (law L2.5).
    #[error("for {destination}, and its hop budget is spent: send it with a greater one, or a shorter way")]
    HopBudgetSpent {
        /// Whom it is for.
        destination: Did,
    },
    /// One link hands over more to be forwarded than a link may (law L3.9).
    #[error("more than {per_second} frames a second of this link are to be forwarded: send slower")]
    ForwardRateExceeded {
        /// The rate that a link may keep up.
        per_second: u32,
    },
    /// A forward could not be handed to its next hop within the delivery bound (law L3.9).
    #[error("the next hop {next_hop} took no more frames for {waited_ms} ms: it is overloaded")]
    ForwardQueueFull {
        /// The next hop.
        next_hop: Did,
        /// How long it was tried, in milliseconds.
        waited_ms: u64,
    },
    /// A forward was refused by what sends on.
    #[error("cannot forward to {next_hop}: {reason}")]
    ForwardFailed {
        /// The next hop.
        next_hop: Did,
        /// What the outbound side says.
        reason: String,
    },
    /// This node could not prove its own hop.
    #[error("cannot sign as a hop: {0}")]
    HopSigning(#[from] SignError),
}

impl Refusal {
    /// Counts and logs a refusal of the layer's own.
    pub(in crate::layer) fn counted(self) -> Self {
        metrics::counter!("admit_one_refusals_total", "reason" => self.label()).increment(1);
        self.logged()
    }

    /// Logs a refusal that the boundary has counted.
    pub(in crate::layer) fn logged(self) -> Self {
        tracing::debug!(reason = self.label(), refusal = %self, "refused");
        self
    }

    /// The stable name that metrics are labelled with: snake case, one a reason.
    pub const fn label(&self) -> &'static str {
        match self {
            Refusal::Frame(error) => match error {
                DecodeError::WrongMarker => "wrong_marker",
                DecodeError::Oversize { .. } => "oversize",
                DecodeError::Truncated { .. } => "truncated",
                DecodeError::TrailingBytes { .. } => "trailing_bytes",
                DecodeError::UnknownTag { .. } => "unknown_tag",
                DecodeError::HopBudget(_) => "hop_budget_too_great",
                DecodeError::Key { reason: DidError::Weak, .. } => "weak_key",
                DecodeError::Key { .. } => "malformed_key",
                DecodeError::Nested => "nested_chunk",
                DecodeError::Reference => "original_reference",
            },
            Refusal::PeerNotEd25519 { .. } => "peer_not_ed25519",
            Refusal::NotNextHop { .. } => "not_next_hop",
            Refusal::UnresolvedReference { .. } => "unresolved_reference",
            Refusal::ReferenceOutsideLink { .. } => "reference_outside_link",
            Refusal::HopNotPeer { .. } => "hop_not_peer",
            Refusal::Chunk(refusal) => refusal.label(),
            Refusal::Mail(refusal) => refusal.label(),
            Refusal::Unclassified(_) => "unclassified",
            Refusal::WrongLane { .. } => "wrong_lane",
            Refusal::FromTheFuture { .. } => "from_the_future",
            Refusal::Expired { .. } => "expired",
            Refusal::TtlTooLong { .. } => "ttl_too_long",
            Refusal::DelegationExpired { .. } => "delegation_expired",
            Refusal::DelegationNotYetValid { .. } => "delegation_not_yet_valid",
            Refusal::DelegationSignature { .. } => "delegation_signature",
            Refusal::OriginSignature { .. } => "origin_signature",
            Refusal::HopSignature { .. } => "hop_signature",
            Refusal::StreamUnavailable { .. } => "stream_unavailable",
            Refusal::BeforeMark { .. } => "before_mark",
            Refusal::StreamCleared { .. } => "stream_cleared",
            Refusal::NamespaceWithdrawn { .. } => "namespace_withdrawn",
            Refusal::OtherClassifier => "other_classifier",
            Refusal::BelowFloor { .. } => "below_floor",
            Refusal::IncarnationAhead { .. } => "incarnation_ahead",
            Refusal::Replay => "replay",
            Refusal::Fork { .. } => "fork",
            Refusal::Stale { .. } => "stale",
            Refusal::StreamCapacityExceeded { .. } => "stream_capacity_exceeded",
            Refusal::QuotaExceeded { .. } => "quota_exceeded",
            Refusal::NoSlot(_) => "no_slot",
            Refusal::BudgetExhausted(_) => "budget_exhausted",
            Refusal::StoreFailed(_) => "store_failed",
            Refusal::DispatchFull { .. } => "dispatch_full",
            Refusal::Superseded => "superseded",
            Refusal::NoRoute { .. } => "no_route",
            Refusal::HopBudgetSpent { .. } => "hop_budget_spent",
            Refusal::ForwardRateExceeded { .. } => "forward_rate_exceeded",
            Refusal::ForwardQueueFull { .. } => "forward_queue_full",
            Refusal::ForwardFailed { .. } => "forward_failed",
            Refusal::HopSigning(_) => "hop_signing",
        }
    }
}

impl From<BoundaryRefusal> for Refusal {
    fn from(refusal: BoundaryRefusal) -> Self {
        match refusal {
            BoundaryRefusal::StreamUnavailable { key, record } => {
                Refusal::StreamUnavailable { key: Box::new(key), record }
            }
            BoundaryRefusal::TtlTooLong { ttl, greatest } => Refusal::TtlTooLong { ttl, greatest },
            BoundaryRefusal::Expired { expired } => Refusal::Expired { expires_at: expired },
            BoundaryRefusal::FromTheFuture { issued_at, sigma } => Refusal::FromTheFuture { issued_at, sigma },
            BoundaryRefusal::BeforeMark { mark } => Refusal::BeforeMark { mark },
            BoundaryRefusal::StreamCleared { mark } => Refusal::StreamCleared { mark },
            BoundaryRefusal::NamespaceWithdrawn { mark } => Refusal::NamespaceWithdrawn { mark },
            BoundaryRefusal::OtherClassifier => Refusal::OtherClassifier,
            BoundaryRefusal::BelowFloor { floor } => Refusal::BelowFloor { floor },
            BoundaryRefusal::IncarnationAhead { incarnation, sigma } => {
                Refusal::IncarnationAhead { incarnation, sigma }
            }
            BoundaryRefusal::Window(WindowRefusal::Replay) => Refusal::Replay,
            BoundaryRefusal::Window(WindowRefusal::Fork { kept, refused }) => {
                Refusal::Fork { kept, refused, evidence: None }
            }
            BoundaryRefusal::Window(WindowRefusal::Stale { incarnation, lowest }) => {
                Refusal::Stale { incarnation, lowest }
            }
            BoundaryRefusal::QuotaExceeded { key, bucket, after_ms } => {
                Refusal::QuotaExceeded { key: Box::new(key), bucket, after_ms }
            }
            BoundaryRefusal::StreamCapacityExceeded { introducer, bound } => {
                Refusal::StreamCapacityExceeded { introducer, bound }
            }
            BoundaryRefusal::Mail(refusal) => Refusal::Mail(refusal),
            BoundaryRefusal::NoSlot(error) => Refusal::NoSlot(error),
            BoundaryRefusal::BudgetExhausted(exhausted) => Refusal::BudgetExhausted(exhausted),
        }
    }
}
