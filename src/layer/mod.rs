//! In: the steps between a frame and an application's handler, as tower layers.
//!
//! ```text
//! Arrival → resolve → Resolved → verify → Verified → forward ─ for another node → Service<Frame>
//!                                                       └───── for this one → reassembly → admit → Admitted → the handler
//! ```
//!
//! Mail, which comes by no link, goes through [`inbox`] into the same boundary.
//!
//! [`AdmissionLayer`] is the whole way, a `tower::Layer` around a handler `Service<Admitted>`; each step is a layer of
//! its own, and what a step passes on can only be made by that step. Everything that must keep an order is done
//! inside `call`: whoever calls the service in arrival order, and keeps the futures in flight, gets admissions,
//! handler calls and forwards in that order, and shares flushes.
//!
//! An answer is an [`Outcome`], or an [`AdmissionError`]: a typed [`Refusal`], or the handler's own. Around all steps,
//! [`report`] says refusals back to the transport.
//!
//! Single-use authority has layers of its own, around any service, also one behind admission: [`nonce`] and [`approval`]
//! check what a call shows, [`effect`] or [`operation`] consumes it and calls the handler, over the ledger of
//! [`single_use`]; [`credential`] has what is shown, and where it is found.
//!
//! ```text
//! request → nonce → Presented → approval → Presented → operation or effect → Permitted → the handler
//! ```
//!
//! Metrics: `admit_one_refusals_total` by `reason` (see [`Refusal::label`]),
//! `admit_one_verdicts_total` by `class`, `verdict` and `window`, `admit_one_forwarded_total` by `class`,
//! `admit_one_credential_refusals_total` by `reason`, and those of [`reassembly`] and [`single_use`]. Spans:
//! `transaction`, at debug level, from verification to the handler's answer.

mod admission;
pub mod admit;
pub mod approval;
pub mod boundary;
pub mod charging;
pub mod credential;
pub mod custody;
mod dispatch;
pub mod effect;
pub mod forward;
pub mod inbox;
pub mod local;
pub mod nonce;
pub mod operation;
mod outcome;
pub mod quota;
pub mod reassembly;
mod refusal;
pub mod report;
pub mod resolve;
pub mod single_use;
pub mod verify;
pub mod window;

pub use admission::{AdmissionLayer, AdmissionLayerBuilder};
pub use admit::Admitted;
pub use outcome::{AdmissionError, Outcome};
pub use refusal::{Refusal, Signatory};
pub use resolve::Resolved;
pub use verify::Verified;
