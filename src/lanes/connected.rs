use std::{fmt, sync::Arc};

use super::shared::Shared;
use crate::{identity::Did, link::Router};

/// A router that carries to connected peers alone: a destination is its own next hop while this node's swarm is connected
/// to it, and there is no way otherwise. From [`Outbound::connected`](super::Outbound::connected).
///
/// For a relay among strangers: these name the destinations, and by the default router this node would dial whomever
/// they name.
#[derive(Clone)]
pub struct ConnectedRouter {
    shared: Arc<Shared>,
}

impl ConnectedRouter {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Router for ConnectedRouter {
    fn next_hop(&self, destination: &Did) -> Option<Did> {
        self.shared.is_connected(&destination.to_peer_id()).then_some(*destination)
    }
}

impl fmt::Debug for ConnectedRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedRouter").finish_non_exhaustive()
    }
}
