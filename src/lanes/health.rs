use super::{Outbound, shared::Shared};

/// How a node's lanes are doing outward (law L13.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanesHealth {
    /// Frames that hold room in a lane: queued, or about to be.
    pub queued: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// The bound on frames that hold room; past it, callers wait.
    pub queued_bound: usize,
    /// Sends that are not settled: accepted or waiting to be, queued or in flight.
    pub unsettled: usize,
    /// Peers that anything waits for.
    pub peers: usize,
    /// Links that write, or are about to.
    pub links: usize,
    /// Whether sends are still accepted; not after a shutdown, or without the swarm.
    pub accepts: bool,
}

impl Outbound {
    /// How the lanes are doing, without waiting.
    pub fn health(&self) -> LanesHealth {
        self.shared().health()
    }
}

impl Shared {
    pub(super) fn health(&self) -> LanesHealth {
        self.inspect(|queues, links, accepts| {
            let (queued, queued_bytes) = queues.held();
            LanesHealth {
                queued,
                queued_bytes,
                queued_bound: self.config.limits.all_items,
                unsettled: self.outstanding.count(),
                peers: queues.peer_count(),
                links,
                accepts,
            }
        })
    }
}
