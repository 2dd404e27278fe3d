use std::fmt::Debug;

use crate::identity::Did;

/// Chooses the next node on the way to a destination (law L13.1).
pub trait Router: Debug + Send + Sync + 'static {
    /// The node to send to next so that it reaches `destination`, or `None` where no way is known.
    ///
    /// An answer may change from call to call. A frame for a new next hop waits until those of its stream with the old
    /// one settled (law L3.9).
    fn next_hop(&self, destination: &Did) -> Option<Did>;
}

/// The default: every destination is its own next hop, so that only peers that this node can connect to are reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectRouter;

impl Router for DirectRouter {
    fn next_hop(&self, destination: &Did) -> Option<Did> {
        Some(*destination)
    }
}
