//! Every record of a store copied into another, of any engine.
//!
//! The target is marked first, durably, as one that no node may open; then records are copied in batches; then what the
//! target holds and the source does not is removed; then both are compared, and the mark is removed. A migration that was
//! cut off is begun again and writes only what differs. The source is left as it is: **two nodes, one on each, would each
//! admit.**

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use serde::Serialize;

use super::{Progress, by_name, verify::count};
use crate::storage::{
    Batch, CommitError, Key, RecordName, ScanError, Store, Table, Write,
    service::{self, MIGRATION_KEY},
};

/// The most records that one batch copies.
const BATCH: usize = 256;

/// What [`migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    /// Records that the target holds.
    pub records: u64,
    /// How many of them this run copied; the others were there from a run before.
    pub copied: u64,
    /// Records of the target that the source does not have, and are gone.
    pub removed: u64,
}

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records, {} of them copied now", self.records, self.copied)
    }
}

/// Why a migration did not end. The source is as it was.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// Records of the source cannot be read, and streams would run without them as if they were new.
    #[error(
        "{count} records of the source cannot be read, the first is {first}: clear them, or renew the store, then \
         migrate again"
    )]
    Unreadable {
        /// How many.
        count: u64,
        /// One of them.
        first: RecordName,
    },
    /// The source is itself the target of a migration that has not ended.
    #[error("a migration into the source has not ended: end that first")]
    SourceMigrating,
    /// The target holds records, and not from a migration that was cut off.
    #[error("the target holds records of its own: give an empty or missing directory")]
    TargetInUse,
    /// A table cannot be listed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The target failed. Migrate again once it works.
    #[error("{0}; then migrate again, which goes on where this ended")]
    Commit(#[from] CommitError),
    /// What was written does not read back.
    #[error(
        "what was copied does not read back: {0}; the target is not to be trusted: take another, and migrate again"
    )]
    Differs(#[from] CompareError),
}

/// How two stores differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A record is in one of them only, differs, or cannot be read in one of them.
    #[error("{record} is not the same in both")]
    Record {
        /// Its name.
        #[serde(serialize_with = "by_name")]
        record: RecordName,
    },
    /// A table cannot be listed.
    #[error("{0}")]
    Scan(String),
}

impl From<ScanError> for CompareError {
    fn from(error: ScanError) -> Self {
        CompareError::Scan(error.to_string())
    }
}

type Records = BTreeMap<Key, Bytes>;

/// A table's records, without a migration's own.
async fn records(store: &dyn Store, table: Table) -> Result<(Records, Vec<RecordName>), ScanError> {
    let scan = store.scan(table).await?;
    let own = RecordName::of(Table::Clock, MIGRATION_KEY);
    let records = scan.records.into_iter().filter(|(key, _)| RecordName::of(table, key) != own).collect();
    Ok((records, scan.bad.into_iter().map(|bad| bad.name).filter(|name| *name != own).collect()))
}

/// Copies every record of `from` into `to`, and compares them. `progress` is called after each batch. A target that an
/// earlier call began is gone on with.
///
/// # Errors
/// [`MigrateError`]; no node opens the target until a later call ended.
pub async fn migrate(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Migrated, MigrateError> {
    if service::is_unfinished(&from.scan(Table::Clock).await?) {
        return Err(MigrateError::SourceMigrating);
    }
    let mut unreadable = Vec::new();
    let mut sizes = 0;
    for table in Table::ALL {
        unreadable.extend(records(from, table).await?.1);
        let (held, bad) = records(to, table).await?;
        sizes += held.len() + bad.len();
    }
    if let Some(first) = unreadable.first().copied() {
        return Err(MigrateError::Unreadable { count: count(unreadable.len()), first });
    }
    if !service::is_unfinished(&to.scan(Table::Clock).await?) {
        if sizes > 0 {
            return Err(MigrateError::TargetInUse);
        }
        let key = Key::from_static(MIGRATION_KEY);
        let value = Some(service::unfinished());
        to.commit(Batch { writes: vec![Write { table: Table::Clock, key, value }] }).await?;
    }
    let mut migrated = Migrated { records: 0, copied: 0, removed: 0 };
    for table in Table::ALL {
        let (source, _) = records(from, table).await?;
        let (target, bad) = records(to, table).await?;
        for name in bad {
            to.discard(name).await?;
        }
        let surplus = target.keys().filter(|key| !source.contains_key(*key));
        let surplus: Vec<_> = surplus.map(|key| Write { table, key: key.clone(), value: None }).collect();
        let of = count(source.len());
        migrated.records += of;
        migrated.removed += count(surplus.len());
        let differing = source.iter().filter(|(key, value)| target.get(*key) != Some(*value));
        let puts = differing.map(|(key, value)| Write { table, key: key.clone(), value: Some(value.clone()) });
        let writes: Vec<_> = puts.chain(surplus).collect();
        let mut done = of.saturating_sub(count(writes.len()));
        progress(Progress { table, done, of });
        for batch in writes.chunks(BATCH) {
            to.commit(Batch { writes: batch.to_vec() }).await?;
            migrated.copied += count(batch.iter().filter(|write| write.value.is_some()).count());
            done = done.saturating_add(count(batch.len())).min(of);
            progress(Progress { table, done, of });
        }
    }
    compare(from, to, |_| ()).await?;
    let end = Write { table: Table::Clock, key: Key::from_static(MIGRATION_KEY), value: None };
    to.commit(Batch { writes: vec![end] }).await?;
    Ok(migrated)
}

/// Reads both stores and compares every record. `progress` is called once a table, before and after it.
///
/// # Errors
/// [`CompareError`]: the first difference.
pub async fn compare(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<(), CompareError> {
    for table in Table::ALL {
        let (source, bad_source) = records(from, table).await?;
        let (target, bad_target) = records(to, table).await?;
        let of = count(source.len());
        progress(Progress { table, done: 0, of });
        let differing = source.iter().find(|(key, value)| target.get(*key) != Some(*value)).map(|(key, _)| key);
        let surplus = || target.keys().find(|key| !source.contains_key(*key));
        let named = differing.or_else(surplus).map(|key| RecordName::of(table, key));
        if let Some(record) = named.or_else(|| bad_source.first().copied()).or_else(|| bad_target.first().copied()) {
            return Err(CompareError::Record { record });
        }
        progress(Progress { table, done: of, of });
    }
    Ok(())
}
