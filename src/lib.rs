//! Each signed transaction is admitted once, by the node it is addressed to, across crashes, restarts,
//! relays and reconnects.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod clock;
pub mod identity;
pub mod lanes;
pub mod layer;
pub mod link;
pub mod message;
pub mod storage;
mod task;

pub use task::BoxFuture;
