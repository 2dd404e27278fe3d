//! The effect boundary of calls without an operation: what was presented is consumed, durably, and the handler runs once
//! for it (law L12.2).
//!
//! [`DispatchLayer`] takes what [`NonceLayer`](crate::layer::nonce::NonceLayer), and
//! [`ApprovalLayer`](crate::layer::approval::ApprovalLayer) behind it, checked, and calls a `Service<Permitted<R>>`. For any
//! other handler put `tower::util::MapRequestLayer::new(Permitted::into_request)` between the two.
//!
//! | step | durable before the next | what a failure does |
//! | --- | --- | --- |
//! | 1 the handler is ready | | [`NotReady`](crate::layer::credential::CallError::NotReady); nothing was reserved |
//! | 2 all marks are reserved, in one transition | reserved | refused; none is reserved |
//! | 3 the dispatch begins | dispatching | refused: by stop, revocation or expiry, as read under the lock; rolled back |
//! | 4 the handler runs | | [`Handler`](crate::layer::credential::CallError::Handler); the marks are committed all the same |
//! | 5 the marks are committed | committed | [`OutcomeUnknown`](crate::layer::credential::CallError::OutcomeUnknown), with the answer withheld; the marks stay consumed |
//! | 6 stop and revocation are read, last | | refused as consumed; the answer is withheld |
//!
//! A caller that goes away before 3 began gives its marks back; from then on they stay consumed, as after a crash. A retry
//! is refused as [`Replayed`](crate::layer::single_use::Refusal::Replayed) either way: where it should be answered instead,
//! use [`operation`](crate::layer::operation).

mod layer;
mod service;

pub use layer::DispatchLayer;
pub use service::DispatchService;
pub(in crate::layer) use service::commit;
