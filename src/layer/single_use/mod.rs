//! Single-use authority.

mod call;
mod consumed;
mod mark;
pub(in crate::layer) mod wire;

pub use call::{Call, Commitment, INTENT_MAX, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX};
pub use consumed::Consumed;
pub use mark::{Capability, Mark, MarkId, MarkKind};
pub use wire::{INSTANT_MAX, WireError};
