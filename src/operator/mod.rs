//! What an operator does to a store whose node is stopped: look into it, check it, clear one stream, renew it after a
//! restore, and move it between engines (laws L9.9, L11.5 and L13.6). The command `admit-one` is made of these.
//!
//! All of it works on an opened [`Store`], whose lock its opener holds; no group commit may run over it.
//!
//! | function | changes | what a crash on the way leaves |
//! | --- | --- | --- |
//! | [`inspect`], [`verify`], [`cost_of_clearing`], [`compare`] | nothing | |
//! | [`clear`] | the mark first, then the record goes | the mark, and the record as it was: clear it again |
//! | [`renew`] | one batch; then records that cannot be read go | a renewed store, or the old one: renew it again |
//! | [`migrate`] | the target, batch by batch, under a record that it is none yet | an unfinished target that no node opens: migrate again |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use admit_one::{StoreUrl, operator};
//!
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("journal:{}", directory.path().join("store").display());
//! let store = url.parse::<StoreUrl>()?.open().await?;
//! let verified = operator::verify(&*store, |_| ()).await?;
//! assert!(verified.bad.is_empty());
//! # Ok(()) }
//! ```

mod clear;
mod inspect;
mod migrate;
mod records;
mod renew;
mod single_use;
#[cfg(test)]
mod tests;
mod verify;

use serde::{Serialize, Serializer};

pub use self::{
    clear::{ClearError, Cleared, ClearingCost, Lost, clear, cost_of_clearing},
    inspect::{Inspection, ReceiverStream, SenderStream, TableSize, Unavailable, inspect},
    migrate::{CompareError, MigrateError, Migrated, compare, migrate},
    renew::{RenewError, Renewed, renew},
    single_use::{ClockError, ClockReport, clock_recover, clock_show},
    verify::{Bad, Verification, verify},
};
#[cfg(doc)]
use crate::storage::Store;
use crate::storage::{RecordName, Table};

/// How far a long work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The table that is being worked on.
    pub table: Table,
    /// Records of it that are done.
    pub done: u64,
    /// Records that it has.
    pub of: u64,
}

/// As every engine tells it.
fn by_name<S: Serializer>(name: &RecordName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}

fn by_table<S: Serializer>(table: &Table, serializer: S) -> Result<S::Ok, S::Error> {
    table.name().serialize(serializer)
}
