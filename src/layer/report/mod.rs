//! Around all other steps: says each refusal to the transport that brought the frame (law L13.3).
//!
//! [`Report`] is a `tower::Service<Arrival>` around another. Where an arrival has a way back
//! ([`Arrival::feedback`](crate::link::Arrival::feedback)), the label of its refusal is told by it, once, whichever step
//! refused, at once or later; the lanes make events of a sample. It changes no answer. What is not a refusal, a handler's
//! own error included, is not told.

mod layer;
mod service;

pub use layer::ReportLayer;
pub use service::Report;
