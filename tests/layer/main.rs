//! The way in, end to end over `Arrival::from_parts`: real keys and signatures, a real boundary over group commit.

mod bad_input;
mod dispatch;
mod durable;
mod engine;
mod fixture;
mod forward;
mod handler;
mod inbox;
mod joining;
mod lanes;
mod link_end;
mod local;
mod metrics;
mod originals;
mod reassembly;
mod references;
mod replay;
