//! Single-use authority as tower layers, over the ledger and a store: what each refusal is and consumes, what a retry gets,
//! and what is known to go wrong elsewhere.

mod admitted;
mod approvals;
mod boundary;
#[path = "../layer/engine.rs"]
mod engine;
mod failings;
#[cfg(feature = "http")]
mod headers;
mod operations;
mod refusals;
mod release;
mod tool;
mod world;
