use std::{
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use libp2p::PeerId;

use super::{Feedback, References};

/// One connection generation of a peer, told apart from every other of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u64);

impl LinkId {
    /// The link of a connection, named by whatever its transport tells connections apart by: for libp2p, the
    /// `ConnectionId`. Equal names give equal links.
    pub fn of(connection: impl Hash) -> Self {
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one(connection))
    }
}

/// Holds one frame's place in its lane's credit, and gives it back when dropped (law L3.4).
pub struct CreditGuard {
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl CreditGuard {
    /// A guard that calls `release` when it is dropped. `release` must not block.
    pub fn new(release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { release: Some(Box::new(release)) }
    }
}

impl Drop for CreditGuard {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for CreditGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CreditGuard")
    }
}

/// One frame as it came off a connection, nothing of it decoded.
#[derive(Debug)]
pub struct Arrival {
    /// The peer that the connection authenticated.
    pub peer: PeerId,
    /// The connection generation.
    pub link: LinkId,
    /// The channel that it came on and how many channels the opener has; `None` on a transport without lanes.
    pub channel: Option<Channel>,
    /// The frame, marker included.
    pub bytes: Bytes,
    /// When the frame was read, on the injected clock's monotonic time; `None` where the transport does not say.
    pub read_at: Option<Duration>,
    /// The frame's place in its lane's credit, if the transport has credit.
    pub credit: Option<CreditGuard>,
    /// What its slots referred to when it was read; `None` on a transport that carries no references.
    pub references: Option<References>,
    /// Where what becomes of it is told, if the transport asks.
    pub feedback: Option<Arc<dyn Feedback>>,
}

/// One of a link's channels (law L3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel {
    /// Its place in the opener's pool.
    pub index: u8,
    /// How many channels the opener's pool has, 1 to 4.
    pub pool: u8,
}

impl Channel {
    /// Whether `lane` is pinned to this channel: `index = lane mod pool`.
    pub const fn carries(self, lane: u8) -> bool {
        match lane.checked_rem(self.pool) {
            Some(index) => index == self.index,
            None => false,
        }
    }
}

impl Arrival {
    /// A frame from any transport that authenticates its peers: no lanes, no credit, no feedback, and no references
    /// (law L4.8).
    pub fn from_parts(peer: PeerId, link: LinkId, bytes: Bytes) -> Self {
        Self { peer, link, channel: None, bytes, read_at: None, credit: None, references: None, feedback: None }
    }
}
