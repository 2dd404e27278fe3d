//! Faults of the real thing: a full disk, a file system that turns read-only under a node, files that may not be changed,
//! and a flush that fails. Whatever was released before is there after, nothing is admitted twice, and the error says
//! what to do.
//!
//! Mounting and the immutable flag need root and a kernel that has them; a test that cannot have its fault prints why and
//! tries nothing.
#![cfg(target_os = "linux")]

mod disk;
mod flush;
mod node;
mod system;
