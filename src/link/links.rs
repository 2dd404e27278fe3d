use std::fmt::{self, Debug};

use libp2p::PeerId;

use super::LinkId;

/// Told of each inbound link's first lane and of its retirement (laws L10.2, L10.3).
///
/// [`Admission`](crate::layer::boundary::Admission) is one: a link takes one of its slots, to which the streams that the
/// link introduces are charged. Links that are not announced to it share one slot.
pub trait Links: Debug + Send + Sync + 'static {
    /// A link of `peer` has its first lane. It is retired when the guard is dropped, which must be no earlier than the
    /// last of its frames was taken over.
    ///
    /// # Errors
    /// [`NoSlot`]: its lanes are to be refused, and it may ask again.
    fn open(&self, peer: PeerId, link: LinkId) -> Result<LinkGuard, NoSlot>;
}

/// Every slot is taken by another link (law L10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all {slots} slots are taken by other links: one is free when a link is retired, or configure more")]
pub struct NoSlot {
    /// How many there are.
    pub slots: u16,
}

/// Keeps a link's slot, and retires the link when dropped.
#[must_use = "dropping it retires the link"]
pub struct LinkGuard {
    retire: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl LinkGuard {
    /// A guard that calls `retire` when it is dropped. `retire` must not block.
    pub fn new(retire: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { retire: Some(Box::new(retire)) }
    }
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        if let Some(retire) = self.retire.take() {
            retire();
        }
    }
}

impl Debug for LinkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkGuard")
    }
}
