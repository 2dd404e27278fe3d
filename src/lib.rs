#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod clock;
pub mod identity;
pub mod lanes;
pub mod layer;
pub mod link;
pub mod memory;
pub mod message;
#[cfg(not(target_family = "wasm"))]
pub mod operator;
pub mod storage;
mod task;

#[cfg(not(target_family = "wasm"))]
pub use storage::{Journal, JournalConfig, StoreUrl};
#[cfg(all(feature = "sqlite", not(target_family = "wasm")))]
pub use storage::{Sqlite, SqliteConfig};
pub use {
    clock::SystemClock,
    identity::{Did, KeySigner},
    lanes::Origin,
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
    },
    message::NetworkId,
    storage::{
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
    task::BoxFuture,
};
