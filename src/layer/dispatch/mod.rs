//! Whose turn it is: per channel, handlers are called in admission order, and at most `concurrency` of them run at
//! once (law L5.6).
//!
//! `queue` is the core, one channel's line. `turns` is the shell: the lines of all channels under two bounds, and
//! the wakers of those who wait.

mod queue;
mod turns;

pub(in crate::layer) use turns::{Turn, Turns};
