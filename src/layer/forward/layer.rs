use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use tower::Layer;

use super::{DEFAULT_FORWARD_BURST, DEFAULT_FORWARDS_PER_SECOND, Forward, rate::Rates};
use crate::{
    clock::Clock,
    identity::{Did, Signer},
    layer::dispatch::Turns,
    link::{DELIVERY_BOUND, DirectRouter, Router},
};

/// How this node carries transactions of others on: whom to, under whose hop proof, and through what.
///
/// `F` is a `tower::Service<Frame> + Clone`, for instance `lanes::Outbound`. It takes a frame's place in its own order
/// inside `call`, since the next frame is handed over while the future waits. What it answers is not looked at: the frame
/// carries the inbound copy's credit, which is given back when the frame is dropped.
#[derive(Clone)]
#[must_use]
pub struct Forwarding<F> {
    pub(super) signer: Arc<dyn Signer>,
    pub(super) outbound: F,
    pub(super) router: Arc<dyn Router>,
    per_second: NonZeroU32,
    burst: NonZeroU32,
    pub(super) within: Duration,
}

impl<F> Forwarding<F> {
    /// Forwards every destination's straight to it, under `signer`'s hop proof. Its key, or the one that it speaks for,
    /// must be the one of this node's libp2p identity, else the next hop refuses (law L2.5).
    ///
    /// So a stranger who names a destination makes this node dial it (law L13.2), where an address of it is known, for
    /// the delivery bound: at most one destination for each frame of the stranger's credit at a time, and half of
    /// `lanes::Config::peer_bound` in all. A router that says no way says otherwise; `lanes::Outbound::connected` is one.
    pub fn new(signer: Arc<dyn Signer>, outbound: F) -> Self {
        Self {
            signer,
            outbound,
            router: Arc::new(DirectRouter),
            per_second: DEFAULT_FORWARDS_PER_SECOND,
            burst: DEFAULT_FORWARD_BURST,
            within: DELIVERY_BOUND,
        }
    }

    /// Chooses next hops by `router`.
    pub fn router(mut self, router: Arc<dyn Router>) -> Self {
        self.router = router;
        self
    }

    /// Bounds what one inbound link may have forwarded: `burst` frames at once, `per_second` frames a second.
    pub const fn rate(mut self, per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        (self.per_second, self.burst) = (per_second, burst);
        self
    }

    /// Drops what is not written `within` this time of its arrival; default [`DELIVERY_BOUND`].
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }
}

impl<F> fmt::Debug for Forwarding<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarding")
            .field("signer", &self.signer)
            .field("router", &self.router)
            .field("per_second", &self.per_second)
            .field("burst", &self.burst)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

/// Puts [`Forward`] in front of a `Service<Verified>`. All its services share the rates and the order.
#[derive(Debug)]
pub struct ForwardLayer<F> {
    pub(super) shared: Arc<Shared<F>>,
}

#[derive(Debug)]
pub(super) struct Shared<F> {
    pub(super) local: Did,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) forwarding: Option<Way<F>>,
}

/// A way on, with what is kept about it.
#[derive(Debug)]
pub(super) struct Way<F> {
    /// The template that every call clones its service from. Behind a lock since a service need not be `Sync`.
    pub(super) forwarding: Mutex<Forwarding<F>>,
    pub(super) rates: Mutex<Rates>,
    pub(super) per_second: NonZeroU32,
    pub(super) turns: Turns,
}

impl<F> ForwardLayer<F> {
    /// Of a node where `slots` connections may have lanes.
    pub(in crate::layer) fn new(
        local: Did,
        clock: Arc<dyn Clock>,
        slots: u16,
        forwarding: Option<Forwarding<F>>,
    ) -> Self {
        let forwarding = forwarding.map(|forwarding| Way {
            rates: Mutex::new(Rates::new(forwarding.per_second, forwarding.burst)),
            per_second: forwarding.per_second,
            // One at a time, so that frames of one channel are queued in the order that they arrived (law L3.9).
            turns: Turns::new(std::num::NonZeroUsize::MIN, slots),
            forwarding: Mutex::new(forwarding),
        });
        Self { shared: Arc::new(Shared { local, clock, forwarding }) }
    }
}

impl<F> Clone for ForwardLayer<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S, F> Layer<S> for ForwardLayer<F> {
    type Service = Forward<S, F>;

    fn layer(&self, inner: S) -> Forward<S, F> {
        Forward::new(self.clone(), inner)
    }
}
