//! Execution nonces (law L12.1): whoever calls shows what allows it, and what allows it is spent once.
//!
//! [`NonceLayer`] is a tower layer around a `Service<Presented<R>>`, for any request `R` that an
//! [`Extractor`](crate::layer::credential::Extractor) reads. It checks, and consumes nothing: the mark of the nonce goes on
//! with the request, and whoever dispatches consumes it last, at the effect boundary
//! ([`effect`](crate::layer::effect)), or with an operation in one transition ([`operation`](crate::layer::operation)). So
//! a wrong binding burns nothing, and an exact retry is answered and not refused by its own nonce.
//!
//! The emergency stop is read first, before the clock and before the request (law L12.5). The checks are pure; each refuses
//! by name, in this order, and consumes nothing:
//!
//! | step | of the call | of the signed nonce | of the proof of possession |
//! | --- | --- | --- | --- |
//! | 1 shape | fields within their bounds | the same; there is one, where issuers are trusted | the same |
//! | 2 time | issued by now, its deadline ahead | issued by now, not expired, expires within the greatest lifetime | the same, within its own; its delegation valid when it was signed and now |
//! | 3 binding | | a trusted issuer; subject, tenant, request id, method, arguments, key | this call by this subject, with this nonce |
//! | 4 signature | | the issuer's | the delegator's where there is a delegation, and the key's |
//!
//! An admitted transaction needs no proof of possession: its origin signed it, and it was admitted once. What is read here
//! of the clock is read again under the store's lock, so that what expires in between is refused there.
//!
//! | state of a nonce | presented | dispatched | caller gone or refused before dispatch | crash |
//! | --- | --- | --- | --- | --- |
//! | absent | checked here; reserved by who dispatches | | | |
//! | reserved | `replayed`, or continued with its operation | dispatching | absent | absent in a later epoch |
//! | dispatching | `replayed` | | | dispatching, for good |
//! | committed | `replayed` until it expires | | | committed |

mod check;
mod layer;
mod service;
#[cfg(test)]
mod tests;

pub(in crate::layer) use check::{Times, all_bound};
pub use layer::{DEFAULT_POSSESSION_LIFETIME_S, NonceLayer};
pub use service::{NonceFuture, NonceService};
