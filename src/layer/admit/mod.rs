//! The last step: what is verified and for this node is admitted once, durably, and handled in order.
//!
//! [`Admit`] is a `tower::Service<Verified>` around the application's `Service<Admitted>`. On its way a transaction
//!
//! 1. is **staged** inside `call`: one short critical section decides, and takes its place in its channel's line of
//!    turns at the same instant. So the order of calls, of admissions and of turns is one (law L5.6);
//! 2. waits until its batch is **durable** (law L5.5). Many wait for the same flush;
//! 3. waits for its **turn**: per channel (per link, on a transport without channels) handlers are called in
//!    admission order, and at most `concurrency` run at once;
//! 4. is **dispatched**: a clone of the handler is polled ready, then called.
//!
//! What each failure does. A refusal of the boundary or a failed batch leaves the line, and the next goes on; after
//! a failed batch the same transaction can be admitted later. A caller that drops the future leaves the line from
//! wherever it is: before 1 nothing has happened; from then on the transaction stays admitted (law L9.3) and will
//! not be dispatched, as after a crash. A handler that fails, or that is not ready and says so, answers
//! [`AdmissionError::Handler`](crate::layer::AdmissionError): its transaction is admitted and spent. More places
//! than the bounds of `dispatch` are refused before anything is staged.

mod admitted;
mod layer;
mod service;

pub use admitted::Admitted;
pub use layer::AdmitLayer;
pub use service::Admit;
