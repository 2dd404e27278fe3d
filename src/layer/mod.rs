//! In: the steps between a frame and an application's handler, as tower layers.

mod dispatch;
pub mod forward;
mod outcome;
mod refusal;
pub mod verify;
pub mod window;

pub use outcome::{AdmissionError, Outcome};
pub use refusal::{Refusal, Signatory};
pub use verify::Verified;
