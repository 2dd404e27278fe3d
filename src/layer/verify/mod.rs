//! The second step: a payload and the facts of its link in, a transaction whose proofs hold out.
//!
//! [`Verify`] is a `tower::Service<Resolved>` around a `Service<Verified>`. It verifies inside `call`, on the
//! caller's task (a channel's, never a swarm's `poll`), so that transactions reach the next step in the order that
//! their frames were handed in. What it refuses never reaches the next step, its frame's credit is given back, and
//! it is counted as described in [`Refusal`](crate::layer::Refusal). The network, the class and the next hop are
//! this node's own (laws L2.2, L2.5 and L2.6): none of them is believed from the wire.
//!
//! What a frame carried inline may be referred to on its link from when the frame has verified (law L4.3).
//!
//! One memory of verified delegations is shared by all clones and bounded; at its bound it forgets the oldest,
//! which is then verified again.

mod delegations;
mod future;
mod judge;
mod layer;
mod original;
mod service;
mod verified;

#[cfg(test)]
mod tests;

pub(crate) use delegations::{KNOWN_DELEGATIONS, KnownDelegations};
pub use future::VerifyFuture;
pub(in crate::layer) use judge::Rules;
pub use layer::VerifyLayer;
pub use service::Verify;
pub use verified::Verified;
