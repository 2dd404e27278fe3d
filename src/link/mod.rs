//! What passes between the rooms that send and the rooms that receive: frames of one connection generation.

mod arrival;
mod frame;
mod links;
mod router;

pub use arrival::{Arrival, Channel, CreditGuard, LinkId};
pub use frame::Frame;
pub use links::{LinkGuard, Links, NoSlot};
pub use router::{DirectRouter, Router};
