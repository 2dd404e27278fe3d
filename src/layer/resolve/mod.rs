//! The first step: a frame's bytes in, a payload whose slots name their keys out.
//!
//! [`Resolve`] is a `tower::Service<Arrival>` around a `Service<Resolved>`. It decodes the frame, which judges its limit
//! and its marker before anything else (law L2.7), and puts the delegations that its references stood for when it was
//! read in their places (law L4.5), however long it has waited since. A reference that missed then refuses the frame at
//! once: it is never held, and its sender was told when it was read (law L4.6). Where the transport carries no
//! references, any is refused (law L4.8).

mod layer;
mod resolved;
mod service;

#[cfg(test)]
mod tests;

pub use layer::ResolveLayer;
pub use resolved::Resolved;
pub(in crate::layer) use resolved::resolve;
pub use service::Resolve;
