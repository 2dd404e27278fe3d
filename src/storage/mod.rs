//! What must survive: the [`Store`] trait that every engine implements, the engines, and group commit on top.

pub(crate) mod birth;
pub mod commit;
pub(crate) mod floor;
pub(crate) mod guard;
pub mod lease;
pub(crate) mod seal;
mod store;

pub use store::{
    BadRecord, Batch, CommitError, KEY_MAX, Key, OpenError, RecordName, Scan, ScanError, Store, Table, VALUE_MAX, Write,
};
