//! Governed approvals (law L12.3): (subject, request, intent) is approved for one dispatch attempt.
//!
//! [`ApprovalLayer`] stands behind [`NonceLayer`](crate::layer::nonce::NonceLayer), which proved the subject, and in front
//! of whoever dispatches, who consumes the approval's mark in one transition with all others. Like the nonce's, its checks
//! are pure, and consume nothing:
//!
//! | step | of the call | of the signed approval |
//! | --- | --- | --- |
//! | 1 shape | states an intent and a deadline | there is one; fields within their bounds |
//! | 2 time | | issued by now, not expired, expires within the greatest lifetime |
//! | 3 binding | | a trusted approver; subject, tenant, request id, intent |
//! | 4 signature | | the approver's |
//!
//! | state of an approval | presented | dispatched | caller gone or refused before dispatch | crash |
//! | --- | --- | --- | --- | --- |
//! | absent | checked here; reserved by who dispatches | | | |
//! | reserved | `replayed`, or continued with its operation | dispatching | absent | absent in a later epoch |
//! | dispatching | `replayed`; a commit that fails after the effect leaves it so | | | dispatching, for good |
//! | committed | `replayed` until the call's deadline | | | committed |
//!
//! The mark is one for the three, whoever approved them and however often; it is kept, pruned and compared with the floor by
//! the call's deadline, never by an approval's own expiry (law L12.4), which is only read again under the store's lock.

mod check;
mod layer;
mod service;
#[cfg(test)]
mod tests;

pub use layer::ApprovalLayer;
pub use service::ApprovalService;
