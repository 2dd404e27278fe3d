//! The engine on real files: faults of SQLite and of the disk, and damage.

mod damage;
mod failure;

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;

use super::{engine::Engine, open};
use crate::storage::{Batch, OpenError, RecordName, Table, Write};

/// Every record by name: its value, or `None` where it is unreadable.
type Content = BTreeMap<RecordName, Option<Bytes>>;

fn open_at(path: &Path) -> Result<Engine, OpenError> {
    open::open(path, u64::MAX)
}

fn put(table: Table, key: &str, value: impl Into<Bytes>) -> Write {
    Write { table, key: key.to_owned().into(), value: Some(value.into()) }
}

fn batch(key: &str, value: &str) -> Batch {
    Batch { writes: vec![put(Table::Receiver, key, value.to_owned())] }
}

fn content(engine: &Engine) -> Content {
    let mut content = Content::new();
    for table in Table::ALL {
        let scan = engine.scan(table).expect("scans");
        let whole = scan.records.into_iter().map(|(key, value)| (RecordName::of(table, &key), Some(value)));
        for (name, value) in whole.chain(scan.bad.into_iter().map(|bad| (bad.name, None))) {
            assert_eq!(content.insert(name, value), None, "a record shows twice");
        }
    }
    content
}

fn of(records: &[(&str, &str)]) -> Content {
    let name = |key: &str| RecordName::of(Table::Receiver, key.as_bytes());
    records.iter().map(|(key, value)| (name(key), Some(Bytes::from((*value).to_owned())))).collect()
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("lists");
    entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
}
