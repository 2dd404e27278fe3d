//! The second step: what is for another node goes on, and what is for this one goes to the next step.
//!
//! [`Forward`] is a `tower::Service<Verified>` around another. A transaction for this node passes untouched. One for
//! another node spends one of its hop budget, is proved for its own hop by this node, and is handed to any
//! `tower::Service<Frame>` as [`Outcome::Forwarded`](crate::layer::Outcome); the replay window is neither read nor
//! advanced (law L5.4). In order of what can go wrong, each its own refusal:
//!
//! - a spent hop budget (law L2.5); no forwarding configured, no route, or a route that leads back to the peer it
//!   came from or to this node itself;
//! - more of one link than its rate (law L3.9), a token bucket per inbound link;
//! - the hop proof cannot be signed;
//! - it is not handed over within the delivery bound D of its arrival, signing and queueing included, or within
//!   its life (law L3.9); what the outbound side is told to write it within is the rest of both;
//! - the outbound side refuses it.
//!
//! Frames of one inbound channel are handed over one at a time in the order that they came (law L3.9), and a caller
//! that goes away takes its frame with it. One that is handed over and waits for room at its next hop holds up nobody
//! behind it; nor does a slow handler of the same channel, since handlers have an order of their own.
//!
//! The inbound copy's credit goes with the frame, so that a relay takes no more than it gets rid of (law L3.4). Whatever
//! the next hop does, it is given back within the delivery bound: a channel's credits are counted in order, so one that
//! stayed with a next hop that takes nothing over would hold up every other way of that channel.

mod future;
mod layer;
mod none;
mod rate;
mod service;

pub use future::ForwardFuture;
pub use layer::{ForwardLayer, Forwarding};

pub use crate::link::DELIVERY_BOUND;
pub use none::NoForward;
pub(crate) use rate::FORWARD_LINKS;
pub use rate::{DEFAULT_FORWARD_BURST, DEFAULT_FORWARDS_PER_SECOND};
pub use service::Forward;
