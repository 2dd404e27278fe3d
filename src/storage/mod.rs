//! What must survive: the [`Store`] trait that every engine implements, the engines, and group commit on top.

pub(crate) mod birth;
pub mod commit;
#[cfg(all(test, not(target_family = "wasm")))]
pub(crate) mod crash_tests;
#[cfg(not(target_family = "wasm"))]
mod directory;
#[cfg(all(feature = "files", not(target_family = "wasm")))]
mod files;
pub(crate) mod floor;
pub(crate) mod guard;
#[cfg(not(target_family = "wasm"))]
mod journal;
pub mod lease;
mod memory;
pub(crate) mod seal;
pub(crate) mod service;
#[cfg(all(feature = "sqlite", not(target_family = "wasm")))]
mod sqlite;
mod store;
#[cfg(not(target_family = "wasm"))]
mod thread;
#[cfg(not(target_family = "wasm"))]
mod url;

#[cfg(all(feature = "files", not(target_family = "wasm")))]
pub use files::{Files, FilesConfig};
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

/// The room's fuzz targets, those of engines and of where a store is aside.
#[cfg(any(test, fuzzing))]
pub(crate) const FUZZ: [crate::fuzzing::Target; 5] = {
    let [lease, removed] = lease::FUZZ;
    [birth::FUZZ, floor::FUZZ, lease, removed, store::FUZZ]
};

/// The journal's fuzz targets.
#[cfg(all(any(test, fuzzing), not(target_family = "wasm")))]
pub(crate) const JOURNAL_FUZZ: &[crate::fuzzing::Target] = &journal::FUZZ;

/// The fuzz target of where a store is.
#[cfg(all(any(test, fuzzing), not(target_family = "wasm")))]
pub(crate) const URL_FUZZ: &[crate::fuzzing::Target] = &[url::FUZZ];
