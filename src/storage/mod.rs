//! What must survive: the [`Store`] trait that every engine implements, the engines, and group commit on top.

pub mod commit;
pub mod lease;
mod store;

pub use store::{
    BadRecord, Batch, CommitError, KEY_MAX, Key, OpenError, RecordName, Scan, ScanError, Store, Table, VALUE_MAX, Write,
};
