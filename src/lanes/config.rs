use std::{sync::Arc, time::Duration};

use libp2p::StreamProtocol;

use super::{
    credit::{GREATEST_CREDIT, GREATEST_WINDOW},
    queue::Limits,
    scheduler::LANES,
};
use crate::{link::Links, message::FRAME_LIMIT};

/// The protocol's name unless told otherwise.
pub const DEFAULT_PROTOCOL: StreamProtocol = StreamProtocol::new("/admit-one/lanes/1");

/// How many unsettled transactions a channel may have unless told otherwise (law L3.3).
pub const OUTBOUND_LANE_WINDOW: u8 = 8;

/// How many frames a receiver advertises a channel unless told otherwise (law L3.3).
pub const DEFAULT_CREDIT: u8 = 16;

/// The settings of a node's lanes, both ways. The default is what two nodes that say nothing agree on.
///
/// ```
/// use admit_one::lanes::Config;
/// use libp2p::StreamProtocol;
///
/// let config = Config::default().protocol(StreamProtocol::new("/my-overlay/lanes/1")).pool(2);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Config {
    pub(crate) protocol: StreamProtocol,
    pub(crate) pool: u8,
    pub(crate) window: u8,
    pub(crate) credit: u8,
    pub(crate) frame_limit: usize,
    pub(crate) limits: Limits,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) silence: Duration,
    pub(crate) links: Option<Arc<dyn Links>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: DEFAULT_PROTOCOL,
            pool: LANES as u8,
            window: OUTBOUND_LANE_WINDOW,
            credit: DEFAULT_CREDIT,
            frame_limit: FRAME_LIMIT,
            limits: Limits {
                lane_items: 256,
                lane_bytes: 2 * 1024 * 1024,
                all_items: 64 * 1024,
                all_bytes: 64 * 1024 * 1024,
                peers: 4_096,
            },
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            links: None,
        }
    }
}

impl Config {
    /// The protocol's name, so that two overlays do not meet by accident (law L13.2).
    pub fn protocol(mut self, protocol: StreamProtocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// How many channels the four lanes are pinned to, 1 to 4 (law L3.1). Lanes that share one share its window and
    /// credit.
    ///
    /// # Panics
    /// Outside that range.
    pub fn pool(mut self, channels: u8) -> Self {
        assert!((1..=LANES as u8).contains(&channels), "a pool has 1 to 4 channels");
        self.pool = channels;
        self
    }

    /// How many unsettled transactions a channel may have, 1 to 31 (law L3.3).
    ///
    /// # Panics
    /// Outside that range.
    pub fn window(mut self, transactions: u8) -> Self {
        assert!((1..=GREATEST_WINDOW).contains(&transactions), "a window has 1 to 31 transactions");
        self.window = transactions;
        self
    }

    /// How many unsettled frames a peer may have in a channel to this node, 1 to 32 (law L3.3). At most this many
    /// frames of the frame limit are held for each of its channels.
    ///
    /// # Panics
    /// Outside that range.
    pub fn credit(mut self, frames: u8) -> Self {
        assert!((1..=GREATEST_CREDIT).contains(&frames), "a credit has 1 to 32 frames");
        self.credit = frames;
        self
    }

    /// The most bytes that a frame may have, either way, at most 1 MiB (law L2.7). Every node of an overlay should have
    /// the same. Past an eighth of yamux's first window of 256 KiB, a full lane waits for that window too.
    ///
    /// # Panics
    /// Over 1 MiB.
    pub fn frame_limit(mut self, bytes: usize) -> Self {
        assert!(bytes <= 1024 * 1024, "a frame has at most 1 MiB");
        self.frame_limit = bytes;
        self
    }

    /// How many frames, and how many bytes of frames, wait in each lane to a peer before callers wait (law L3.7).
    pub fn lane_bound(mut self, frames: usize, bytes: usize) -> Self {
        (self.limits.lane_items, self.limits.lane_bytes) = (frames, bytes);
        self
    }

    /// How many frames, and how many bytes of frames, wait in all before callers wait (law L3.7). A lane with nothing
    /// in it takes one frame all the same.
    pub fn common_bound(mut self, frames: usize, bytes: usize) -> Self {
        (self.limits.all_items, self.limits.all_bytes) = (frames, bytes);
        self
    }

    /// How many peers may have frames waiting at once; a send to one more is refused. A forward to a peer that is not
    /// connected is refused past half as many, so that strangers, who have frames forwarded wherever they say, shut out
    /// neither what this node sends itself nor what it forwards to the peers that it is connected to.
    pub fn peer_bound(mut self, peers: usize) -> Self {
        self.limits.peers = peers;
        self
    }

    /// Tells `links` of each connection's first lane to this node, and refuses the lanes of one that it has no slot for
    /// (law L10.3). A node that admits gives here what its admission charges new streams by; without it, whoever is
    /// connected shares one slot for them.
    pub fn links(mut self, links: Arc<dyn Links>) -> Self {
        self.links = Some(links);
        self
    }

    /// The first and the longest pause between two attempts to dial a peer, or to open a lane (law L13.2).
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest);
        self
    }

    /// How long a link that has work may be without a word until its connection is asked whether it still answers, and
    /// how long that and every substream may take. A connection that does not answer loses its link to another one of
    /// the same peer; without another, the peer is dialled again. A receiver that is slow is no silence.
    pub fn silence(mut self, time: Duration) -> Self {
        self.silence = time;
        self
    }
}
