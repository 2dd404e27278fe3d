//! The files of a store, and the order in which a batch changes them. It knows no thread, channel or task.
//!
//! # State
//! In memory the newest content of every record, the names of those that cannot be restored with the reason, and whether
//! the engine is closed. On disk each record is a file, and a marker beside it that says that it is there.
//!
//! # A batch
//! Each new value goes to a file of its own under an unfinished name, which is flushed before it gets the record's name: a
//! record is whole at its old or at its new value after any crash. The steps, each with one flush of the directory behind
//! it where it changed anything:
//!
//! 1. values of the clock table: floors and marks stand before anything that they stand for is overwritten or gone;
//! 2. values of the operation table: an operation is dispatching no later than its marks (law L12.2);
//! 3. all other values;
//! 4. markers of records that are new;
//! 5. markers of records that go;
//! 6. the files of records that go. No value of the batch lands after a removal of it.
//!
//! A crash between two steps leaves a batch torn, in that order. What is durable of a batch that was not released is, for
//! each table, as if its transitions had happened and nobody had heard of it.
//!
//! # What a failure does
//! A write or flush that fails closes the engine: what reached the disk of that batch is unknown. The batch's names are
//! kept, and a reopen gives each of them its last durable value, or removes it, through fresh files (law L9.4); until
//! then everything is refused. A process that is started anew instead finds each record of the batch at its old or its new
//! value. A value is never written to a file that has a name, so a failed flush of a value leaves a file that nothing
//! reads, and it is never tried again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{format::StoreId, names};
use crate::storage::{
    BadRecord, Batch, CommitError, Key, OpenError, RecordName, Scan, Table, Write,
    directory::{Attempt, Directory, Failure},
    thread::Blocking,
};

/// See the module's docs.
#[derive(Debug)]
pub(crate) struct Records<D: Directory> {
    directory: D,
    store: StoreId,
    held: Held,
    /// Names of the batch that failed, whose files are in an unknown state.
    unknown: BTreeSet<RecordName>,
    /// The failure that closed the engine.
    closed: Option<String>,
}

/// What the files add up to.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) whole: BTreeMap<RecordName, (Key, Bytes)>,
    pub(super) bad: BTreeMap<RecordName, String>,
}

impl Held {
    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> u64 {
        self.whole.values().map(|(key, value)| u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX)).sum()
    }

    fn contains(&self, name: &RecordName) -> bool {
        self.whole.contains_key(name) || self.bad.contains_key(name)
    }

    fn scan(&self, table: Table) -> Scan {
        let first = RecordName { table, hash: [0; 32] };
        let whole = self.whole.range(first..).take_while(|(name, _)| name.table == table);
        let bad = self.bad.range(first..).take_while(|(name, _)| name.table == table);
        Scan {
            records: whole.map(|(_, record)| record.clone()).collect(),
            bad: bad.map(|(name, reason)| BadRecord { name: *name, reason: reason.clone() }).collect(),
        }
    }
}

/// What becomes of one record.
#[derive(Debug, Clone)]
struct Change {
    name: RecordName,
    /// Key and value, or `None` where it goes.
    content: Option<(Key, Bytes)>,
}

impl From<Write> for Change {
    fn from(write: Write) -> Self {
        let name = RecordName::of(write.table, &write.key);
        Self { name, content: write.value.map(|value| (write.key, value)) }
    }
}

/// In which step of a batch a table's values land.
const fn step(table: Table) -> u8 {
    match table {
        Table::Clock => 1,
        Table::Operation => 2,
        Table::Sender | Table::Receiver | Table::Custody | Table::Nonce | Table::Approval => 3,
    }
}

impl<D: Directory> Records<D> {
    pub(super) fn new(directory: D, store: StoreId, held: Held) -> Self {
        Self { directory, store, held, unknown: BTreeSet::new(), closed: None }
    }

    fn usable(&self) -> Result<(), CommitError> {
        self.closed.clone().map_or(Ok(()), |reason| Err(CommitError::Closed { reason }))
    }

    /// Makes the changes durable in the order of the module's docs, and takes them over.
    fn change(&mut self, changes: Vec<Change>) -> Result<(), CommitError> {
        if let Err(failure) = self.write(&changes, |held, name| !held.contains(name)) {
            tracing::error!(%failure, "the store is closed until it is reopened");
            metrics::counter!("admit_one_files_failures_total").increment(1);
            self.closed = Some(failure.to_string());
            self.unknown.extend(changes.iter().map(|change| change.name));
            return Err(failure.into());
        }
        for Change { name, content } in changes {
            self.held.bad.remove(&name);
            match content {
                Some(content) => self.held.whole.insert(name, content),
                None => self.held.whole.remove(&name),
            };
        }
        Ok(())
    }

    /// The steps of a batch. A record that is `new` gets a marker.
    fn write(&mut self, changes: &[Change], new: impl Fn(&Held, &RecordName) -> bool) -> Result<(), Failure> {
        let Self { directory, store, held, .. } = self;
        for now in 1..=3 {
            let values = changes.iter().filter(|change| step(change.name.table) == now);
            let mut named = false;
            for (name, (key, value)) in values.filter_map(|change| Some((change.name, change.content.as_ref()?))) {
                let (unfinished, finished) = (names::unfinished(&name), names::record(&name));
                let bytes = store.encode_record(name.table, key, value).ok_or(std::io::ErrorKind::InvalidInput.into());
                let bytes = bytes.attempt("encode", directory, &finished)?;
                let file = directory.create(&unfinished).attempt("create", directory, &unfinished)?;
                directory.write_at(&file, 0, &bytes).attempt("write to", directory, &unfinished)?;
                directory.sync_data(&file).attempt("flush", directory, &unfinished)?;
                directory.rename(&unfinished, &finished).attempt("rename", directory, &unfinished)?;
                named = true;
            }
            if named {
                directory.sync_dir().attempt("flush", directory, "")?;
            }
        }
        let made = changes.iter().filter(|change| change.content.is_some() && new(held, &change.name));
        each(directory, made.map(|change| names::marker(&change.name)), |directory, marker| {
            directory.create(marker).attempt("create", directory, marker).map(drop)
        })?;
        let gone = || changes.iter().filter(|change| change.content.is_none());
        // What another change of the directory left behind is looked for, so that what is not there needs no flush.
        let there: BTreeSet<_> = if gone().next().is_some() {
            directory.list().attempt("list", directory, "")?.into_iter().collect()
        } else {
            BTreeSet::new()
        };
        for ending in [names::marker, names::record] {
            let files = gone().map(|change| ending(&change.name)).filter(|file| there.contains(file));
            each(directory, files, |directory, file| directory.remove(file).attempt("remove", directory, file))?;
        }
        Ok(())
    }
}

/// Does `act` to each of `files`, and flushes the directory behind them.
fn each<D: Directory>(
    directory: &mut D,
    files: impl Iterator<Item = String>,
    mut act: impl FnMut(&mut D, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut any = false;
    for file in files {
        act(directory, &file)?;
        any = true;
    }
    if any { directory.sync_dir().attempt("flush", directory, "") } else { Ok(()) }
}

impl<D: Directory> Blocking for Records<D> {
    fn scan(&mut self, table: Table) -> Result<Scan, String> {
        match &self.closed {
            None => Ok(self.held.scan(table)),
            Some(reason) => Err(format!("the store is closed since an earlier failure ({reason})")),
        }
    }

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        self.usable()?;
        batch.check()?;
        self.change(batch.writes.into_iter().map(Change::from).collect())
    }

    fn discard(&mut self, name: RecordName) -> Result<bool, CommitError> {
        self.usable()?;
        if !self.held.contains(&name) {
            return Ok(false);
        }
        // A file of another letter case is the record's too.
        let names = self.directory.list().attempt("list", &self.directory, "")?;
        let other = names.into_iter().filter(|file| names::kind(file) == names::Kind::OtherCase(name));
        each(&mut self.directory, other, |directory, file| directory.remove(file).attempt("remove", directory, file))?;
        self.change(vec![Change { name, content: None }]).map(|()| true)
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        let restored = |name: &RecordName| Change { name: *name, content: self.held.whole.get(name).cloned() };
        // A record that could not be restored is what it was, or what the failed batch put over it: either way it is out of
        // service until it is written or discarded.
        let known = self.unknown.iter().filter(|name| !self.held.bad.contains_key(name));
        let changes: Vec<_> = known.map(restored).collect();
        self.directory.sync_dir().attempt("flush", &self.directory, "")?;
        if let Err(failure) = self.write(&changes, |_, _| true) {
            self.closed = Some(failure.to_string());
            return Err(failure.into());
        }
        self.unknown.clear();
        self.closed = None;
        Ok(())
    }
}
