use libp2p::PeerId;

use crate::link::LinkId;

/// What a node would log, or score a peer by (law L13.3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The first lane of a link is open.
    Opened {
        /// The peer.
        peer: PeerId,
        /// The connection that all of the link's lanes are on.
        link: LinkId,
        /// Who sends on it.
        direction: Direction,
    },
    /// A link ended, its lanes with it. One follows each [`Event::Opened`].
    Closed {
        /// The peer.
        peer: PeerId,
        /// The connection.
        link: LinkId,
        /// Who sent on it.
        direction: Direction,
        /// Why.
        reason: LinkEnd,
    },
    /// A receiver has no slot for a connection, and refuses its lanes until it has (law L10.3). The connection stays. Said
    /// once for each connection by the receiver, and once for each link by the sender, who tries again with pauses.
    NoSlot {
        /// The peer.
        peer: PeerId,
        /// The connection.
        link: LinkId,
        /// Who wants to send on it.
        direction: Direction,
    },
    /// The peer does not speak the protocol; what was queued for it is lost as such.
    Unsupported {
        /// The peer.
        peer: PeerId,
        /// The connection that it said so on.
        link: LinkId,
    },
    /// A peer broke the protocol. Unless [`Violation::closes`] says otherwise, its connection is being closed.
    Violation {
        /// The peer.
        peer: PeerId,
        /// The connection.
        link: LinkId,
        /// What it did.
        violation: Violation,
    },
    /// Frames that a peer sent were refused: a sample, bounded in rate. Of each reason a link reports the first refusal
    /// at once, and then at most one event a second; all reasons together at most four a second.
    Refused {
        /// The peer that sent them, who need not be their origin.
        peer: PeerId,
        /// The connection that they came on.
        link: LinkId,
        /// The refusals' stable name, as metrics are labelled with.
        reason: &'static str,
        /// How many of this reason came since the last event of it, this one included.
        count: u64,
    },
}

/// Which way a link's frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this node to the peer.
    Outward,
    /// From the peer to this node.
    Inward,
}

/// Why a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkEnd {
    /// Its connection closed, or its opener closed its last channel.
    Closed,
    /// The peer does not speak the protocol any more.
    Unsupported,
    /// The opener has a link of a greater number.
    Superseded,
    /// The protocol was broken on its connection.
    Violation(Violation),
    /// Its connection answered nothing any more, and the peer has another.
    Silent,
    /// This node was shut down.
    Shutdown,
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It sent a frame past the credit of a channel (law L3.4).
    #[error("a frame on channel {channel} past its credit of {credit}")]
    CreditExceeded {
        /// The channel.
        channel: u8,
        /// What was advertised.
        credit: u8,
    },
    /// It sent a frame of no bytes.
    #[error("a frame of no bytes on channel {channel}")]
    EmptyFrame {
        /// The channel.
        channel: u8,
    },
    /// It opened a channel that its pool does not have, a pool of other than 1 to 4, or two pool sizes on one link.
    #[error("channel {index} of a pool of {pool} does not exist")]
    UnknownChannel {
        /// The channel.
        index: u8,
        /// The pool's size, as the opener says.
        pool: u8,
    },
    /// It opened a channel again before this node saw the earlier one end. The later one is refused.
    #[error("channel {channel} is open already")]
    AlreadyOpen {
        /// The channel.
        channel: u8,
    },
    /// It opened more substreams at once than a pool and its successor need.
    #[error("more than {bound} channels at once")]
    TooManyChannels {
        /// The most that one connection may have.
        bound: usize,
    },
    /// It credited more frames than this node wrote.
    #[error("a credit of {count} on channel {channel}, of which {written} frames were written")]
    CreditAhead {
        /// The channel.
        channel: u8,
        /// Its cumulative count.
        count: u64,
        /// What was written.
        written: u64,
    },
    /// It answered a hello with something else.
    #[error("an answer of kind {kind} with {value} on channel {channel}")]
    BadAnswer {
        /// The channel.
        channel: u8,
        /// The kind.
        kind: u8,
        /// What came with it.
        value: u64,
    },
    /// It said something on the control substream that is no control frame (law L4.7).
    #[error("a control frame of kind {kind}")]
    BadControl {
        /// The kind.
        kind: u8,
    },
    /// It sent more control frames than two for each frame that this node wrote on the link (law L4.7).
    #[error("{count} control frames on a link on which {written} frames were written")]
    ControlAhead {
        /// How many control frames it sent.
        count: u64,
        /// How many frames were written.
        written: u64,
    },
}

impl Violation {
    /// Whether the connection is closed for it.
    pub const fn closes(&self) -> bool {
        !matches!(self, Violation::AlreadyOpen { .. })
    }

    /// The name that metrics are labelled with.
    pub const fn label(&self) -> &'static str {
        match self {
            Violation::CreditExceeded { .. } => "credit_exceeded",
            Violation::EmptyFrame { .. } => "empty_frame",
            Violation::UnknownChannel { .. } => "unknown_channel",
            Violation::AlreadyOpen { .. } => "already_open",
            Violation::TooManyChannels { .. } => "too_many_channels",
            Violation::CreditAhead { .. } => "credit_ahead",
            Violation::BadAnswer { .. } => "bad_answer",
            Violation::BadControl { .. } => "bad_control",
            Violation::ControlAhead { .. } => "control_ahead",
        }
    }
}
