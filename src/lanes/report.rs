//! What the tasks beside the swarm tell the behaviour. The queue is bounded; a task waits for room in it.

use libp2p::{PeerId, swarm::ConnectionId};

use super::event::{Event, Violation};

/// How many reports wait for the behaviour before the tasks do.
pub(crate) const REPORTS: usize = 64;

#[derive(Debug)]
pub(crate) enum Report {
    Event(Event),
    /// Break the connection off.
    Violation {
        peer: PeerId,
        connection: ConnectionId,
        violation: Violation,
    },
    /// The receiver took the link's first lane.
    LinkOpened {
        peer: PeerId,
        number: u64,
    },
    /// The link's connection does not answer any more.
    LinkSilent {
        peer: PeerId,
        number: u64,
    },
    /// The receiver has no slot for the link now.
    LinkRefused {
        peer: PeerId,
        number: u64,
    },
    /// The link's task is done; everything that was in flight on it is settled.
    LinkEnded {
        peer: PeerId,
        number: u64,
        end: WriterEnd,
    },
}

/// Why a link stopped writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterEnd {
    /// Its connection is gone.
    Closed,
    Unsupported,
    /// The receiver has a link of this peer with at least this number.
    Superseded {
        greatest: u64,
    },
    Violation(Violation),
    /// Its connection does not answer, and there is another.
    Silent,
    Shutdown,
}
