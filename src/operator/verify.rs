//! Every record of a store read and decoded.

use serde::Serialize;

use super::{Progress, by_name, records::TableRecords};
use crate::storage::{RecordName, ScanError, Store, Table};

/// A record that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// Its name.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// What is wrong with it.
    pub reason: String,
}

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// How many records were read, bad ones included.
    pub records: u64,
    /// Those that cannot be restored.
    pub bad: Vec<Bad>,
}

/// Reads every record of every table, and decodes it as its owner would. `progress` is called once a table, before and
/// after it.
///
/// # Errors
/// [`ScanError`] when a table cannot be listed (law L11.3).
pub async fn verify(store: &dyn Store, mut progress: impl FnMut(Progress) + Send) -> Result<Verification, ScanError> {
    let mut verification = Verification { records: 0, bad: Vec::new() };
    for table in Table::ALL {
        let scan = store.scan(table).await?;
        let of = count(scan.records.len() + scan.bad.len());
        progress(Progress { table, done: 0, of });
        let records = TableRecords::of(table, scan);
        verification.records += of;
        verification.bad.extend(records.bad.into_iter().map(|bad| Bad { record: bad.name, reason: bad.reason }));
        progress(Progress { table, done: of, of });
    }
    Ok(verification)
}

/// A length as a `u64`, which every platform's `usize` fits.
pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
