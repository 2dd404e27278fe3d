//! What must survive: the [`Store`] trait that every engine implements, the engines, and group commit on top.

pub(crate) mod birth;
pub mod commit;
#[cfg(all(test, not(target_family = "wasm")))]
pub(crate) mod crash_tests;
#[cfg(not(target_family = "wasm"))]
mod directory;
pub(crate) mod floor;
pub(crate) mod guard;
#[cfg(not(target_family = "wasm"))]
mod journal;
pub mod lease;
mod memory;
pub(crate) mod seal;
#[cfg(all(feature = "sqlite", not(target_family = "wasm")))]
mod sqlite;
mod store;
#[cfg(not(target_family = "wasm"))]
mod url;

#[cfg(all(test, not(target_family = "wasm")))]
pub(crate) use journal::simulated;
#[cfg(not(target_family = "wasm"))]
pub use journal::{Journal, JournalConfig};
pub use memory::Memory;
#[cfg(all(feature = "sqlite", not(target_family = "wasm")))]
pub use sqlite::{Sqlite, SqliteConfig};
pub use store::{
    BATCH_MAX, BadRecord, Batch, CommitError, KEY_MAX, Key, NotARecordName, OpenError, RecordName, Scan, ScanError,
    Store, Table, VALUE_MAX, Write,
};
#[cfg(not(target_family = "wasm"))]
pub use url::{StoreUrl, StoreUrlError};
