//! The operator's command, as a process of its own.

mod bench;
mod generated;
mod node;
mod operations;
mod running;
mod store;
mod terminal;
mod wire;
