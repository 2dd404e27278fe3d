//! What passes between the rooms that send and the rooms that receive: frames of one connection generation.

mod arrival;
mod feedback;
mod frame;
mod router;

pub use arrival::{Arrival, Channel, CreditGuard, LinkId};
pub use feedback::Feedback;
pub(crate) use feedback::unless_superseded;
pub use frame::Frame;
pub use router::{DirectRouter, Router};
