//! What passes between the rooms that send and the rooms that receive: frames of one connection generation.

mod arrival;
mod feedback;
mod frame;
mod links;
pub(crate) mod references;
mod router;

pub use arrival::{Arrival, Channel, CreditGuard, LinkId};
pub use feedback::Feedback;
pub(crate) use feedback::unless_superseded;
pub use frame::Frame;
pub use links::{LinkGuard, Links, NoSlot};
pub use references::{CONTROL_FRAMES, DELIVERY_BOUND, RECEIVER_BOUND, REFERENCE_LEASE, References, SENDER_BOUND};
pub use router::{DirectRouter, Router};
