//! What an operator does with a store that no node has open: the library behind the command.
//!
//! Whoever calls these has opened the store, and so holds its lock; no group commit may run over it meanwhile.

mod single_use;

pub use single_use::{ClockError, ClockReport, clock_recover, clock_show};
