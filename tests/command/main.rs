//! The operator's command, as a process of its own.

mod bench;
mod generated;
mod operations;
mod running;
mod terminal;
mod wire;
