//! The live set and the database that it is committed to.

use std::{collections::BTreeMap, fs::File};

use bytes::Bytes;
use rusqlite::Connection;

use super::{
    database::{self, Fault, RecordRow},
    layout::{self, FRESH, Kind},
    row::{Record, SLOT_BYTES, Seal, Standing, slot, toggle},
    settle::Settled,
};
use crate::storage::{
    BadRecord, Batch, CommitError, Key, OpenError, RecordName, Scan, Table, Write,
    directory::{Attempt, Directory, Disk, Failure},
};

/// The write-ahead log is emptied after the commit that takes it past this many pages.
pub(super) const WAL_PAGES: u64 = 4096;

/// A page, and its head in the write-ahead log, in bytes.
const WAL_PAGE_BYTES: u64 = 4096 + 24;

/// A record in the live set.
#[derive(Debug, Clone)]
struct Held {
    /// Its rows' id.
    id: i64,
    seal: Seal,
    /// Key and value, or why they cannot be read.
    content: Result<(Key, Bytes), String>,
}

/// What a commit and a checkpoint write to.
#[derive(Debug)]
struct Open {
    connection: Connection,
    witness: File,
}

/// A store's live set, and its database.
#[derive(Debug)]
pub(super) struct Engine {
    files: Disk,
    live: BTreeMap<RecordName, Held>,
    /// The greatest number that a file in the directory may have.
    number: u64,
    standing: Standing,
    next_id: i64,
    open: Option<Open>,
    /// Why nothing is possible until a reopen.
    closed: Option<String>,
}

impl Engine {
    /// Writes what was settled into the database behind `number`, and goes on there.
    pub(super) fn begin(files: Disk, settled: Settled, number: u64) -> Result<Self, OpenError> {
        let mut live = BTreeMap::new();
        for Record { name, key, value, seal } in settled.records {
            live.insert(name, Held { id: 0, seal, content: Ok((key, value)) });
        }
        for (name, (seal, reason)) in settled.bad {
            tracing::warn!(record = %name, reason, "a record is unreadable");
            live.insert(name, Held { id: 0, seal, content: Err(reason) });
        }
        let standing = Standing { database: number, batch: settled.batch, sum: [0; 32] };
        let mut engine = Self { files, live, number, standing, next_id: 1, open: None, closed: None };
        engine.move_on()?;
        Ok(engine)
    }

    /// The connection, for tests to ask and to limit.
    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.open.as_ref().expect("open").connection
    }

    /// Puts another file in the place of the witness: a fault, for tests alone.
    #[cfg(test)]
    pub(super) fn replace_witness(&mut self, file: File) {
        self.open.as_mut().expect("open").witness = file;
    }

    /// The records of a table.
    pub(super) fn scan(&self, table: Table) -> Result<Scan, String> {
        if let Some(reason) = &self.closed {
            return Err(format!("the store is closed since an earlier failure ({reason})"));
        }
        let mut scan = Scan::default();
        for (name, held) in self.live.iter().filter(|(name, _)| name.table == table) {
            match &held.content {
                Ok((key, value)) => scan.records.push((key.clone(), value.clone())),
                Err(reason) => scan.bad.push(BadRecord { name: *name, reason: reason.clone() }),
            }
        }
        Ok(scan)
    }

    /// Makes a batch durable.
    pub(super) fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        self.usable()?;
        batch.check()?;
        let mut changes = BTreeMap::new();
        for Write { table, key, value } in batch.writes {
            match value {
                Some(value) => {
                    let Record { name, key, value, seal } = Record::new(table, key, value);
                    changes.insert(name, Some((seal, key, value)));
                }
                None => drop(changes.insert(RecordName::of(table, &key), None)),
            }
        }
        self.apply(changes)
    }

    /// Removes a record, readable or not; whether there was one.
    pub(super) fn discard(&mut self, name: RecordName) -> Result<bool, CommitError> {
        self.usable()?;
        let known = self.live.contains_key(&name);
        self.apply(BTreeMap::from([(name, None)]))?;
        Ok(known)
    }

    /// Moves to a fresh database (law L9.4). What the last one holds beyond the live set was never released.
    pub(super) fn reopen(&mut self) -> Result<(), OpenError> {
        if let Some(Open { connection, .. }) = self.open.take()
            && let Err(error) = database::leave_alone(&connection)
        {
            tracing::warn!(%error, "a database may be written once more while it is closed");
        }
        let result = self.move_on();
        match &result {
            Ok(()) => self.closed = None,
            Err(error) => self.closed = Some(error.to_string()),
        }
        result
    }

    /// What is due between two calls.
    pub(super) fn tidy(&mut self) {
        let Some(Open { connection, .. }) = &self.open else { return };
        if self.closed.is_some() {
            return;
        }
        let log = self.files.path(&(layout::database(self.standing.database) + "-wal"));
        let pages = std::fs::metadata(&log).map_or(0, |file| file.len() / WAL_PAGE_BYTES);
        if pages > WAL_PAGES
            && let Err(fault) = database::checkpoint(connection)
        {
            // Every batch is still in the write-ahead log, but which pages of the database reached the medium is unknown.
            self.close("empty the write-ahead log of", &fault.to_string());
        }
    }

    fn usable(&self) -> Result<(), CommitError> {
        match &self.closed {
            None => Ok(()),
            Some(reason) => Err(CommitError::Closed { reason: reason.clone() }),
        }
    }

    fn close(&mut self, action: &'static str, reason: &str) -> CommitError {
        let path = self.files.path(&layout::database(self.standing.database));
        tracing::error!(path = %path.display(), reason, "cannot {action} the database: the store is closed");
        metrics::counter!("admit_one_sqlite_failures_total").increment(1);
        self.closed = Some(format!("cannot {action} {}: {reason}", path.display()));
        if let Some(Open { connection, .. }) = &self.open
            && let Err(error) = database::leave_alone(connection)
        {
            tracing::warn!(%error, "a database may be written once more while it is closed");
        }
        CommitError::Io { action, path, reason: reason.to_owned() }
    }

    fn apply(&mut self, changes: BTreeMap<RecordName, Option<(Seal, Key, Bytes)>>) -> Result<(), CommitError> {
        let mut after = Standing { batch: self.standing.batch.saturating_add(1), ..self.standing };
        let mut next_id = self.next_id;
        let mut staged = Vec::with_capacity(changes.len());
        for (name, change) in changes {
            let before = self.live.get(&name);
            if let Some(before) = before {
                toggle(&mut after.sum, &name, &before.seal);
            }
            let held = change.map(|(seal, key, value)| {
                toggle(&mut after.sum, &name, &seal);
                let id = before.map_or(next_id, |before| before.id);
                Held { id, seal, content: Ok((key, value)) }
            });
            match (&held, before) {
                (None, None) => continue,
                (Some(_), None) => next_id = next_id.saturating_add(1),
                (_, Some(_)) => {}
            }
            staged.push((name, before.map(|before| before.id), held));
        }
        if staged.is_empty() {
            return Ok(());
        }
        let Some(open) = &mut self.open else {
            return Err(CommitError::Closed { reason: "it has no database".to_owned() });
        };
        let written = write(&mut open.connection, &staged, &after);
        if let Err(fault) = written {
            return Err(self.close("commit to", &fault.to_string()));
        }
        if let Err(failure) = witness(&mut self.files, &open.witness, &after) {
            return Err(self.close("witness", &failure.to_string()));
        }
        self.standing = after;
        self.next_id = next_id;
        for (name, _, held) in staged {
            match held {
                Some(held) => self.live.insert(name, held),
                None => self.live.remove(&name),
            };
        }
        Ok(())
    }

    /// Writes the live set into a fresh, flushed database of the next number, goes on there, and removes the others.
    fn move_on(&mut self) -> Result<(), OpenError> {
        let exhausted = || OpenError::Damaged {
            path: self.files.path(""),
            reason: "its databases' numbers are used up".to_owned(),
        };
        // Taken whatever comes, so that no name is used for two databases.
        let number = self.number.checked_add(1).ok_or_else(exhausted)?;
        self.number = number;
        let mut sum = [0; 32];
        for ((name, held), id) in self.live.iter_mut().zip(1..) {
            toggle(&mut sum, name, &held.seal);
            held.id = id;
        }
        let next_id = i64::try_from(self.live.len()).unwrap_or(i64::MAX).saturating_add(1);
        // A batch that failed may be in the last database under the number that would follow.
        let standing = Standing { database: number, batch: self.standing.batch, sum };
        let rows = self.live.iter().map(|(name, held)| {
            let content = match &held.content {
                Ok((key, value)) => Ok((&**key, &**value)),
                Err(reason) => Err(reason.as_str()),
            };
            (held.id, RecordRow { name: *name, seal: held.seal, content })
        });
        clear(&mut self.files, |kind| kind == Kind::Fresh).map_err(open_error)?;
        let path = self.files.path(FRESH);
        database::write_fresh(&path, &standing, rows).map_err(|fault| fault.into_open_error("write", &path))?;
        let file = name_fresh(&mut self.files, &standing).map_err(open_error)?;
        let path = self.files.path(&layout::database(number));
        let connection = database::connect_to_write(&path).map_err(|fault| fault.into_open_error("open", &path))?;
        let older = |kind| match kind {
            Kind::Database(of) | Kind::Beside(of) | Kind::Witness(of) => of != number,
            Kind::Fresh => true,
            Kind::Expected | Kind::Foreign => false,
        };
        // One that stayed could be taken for the newest, were that lost.
        clear(&mut self.files, older).map_err(open_error)?;
        self.open = Some(Open { connection, witness: file });
        self.standing = standing;
        self.next_id = next_id;
        Ok(())
    }
}

fn write(
    connection: &mut Connection,
    staged: &[(RecordName, Option<i64>, Option<Held>)],
    after: &Standing,
) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for (name, before, held) in staged {
        match (held, before) {
            (Some(Held { id, seal, content: Ok((key, value)) }), _) => {
                database::put(&transaction, *id, &RecordRow { name: *name, seal: *seal, content: Ok((key, value)) })?;
            }
            (_, Some(id)) => database::remove(&transaction, *id)?,
            (_, None) => {}
        }
    }
    database::stand(&transaction, after)?;
    Ok(transaction.commit()?)
}

fn witness(files: &mut Disk, file: &File, standing: &Standing) -> Result<(), Failure> {
    let name = layout::witness(standing.database);
    files.write_at(file, slot(standing.batch), &standing.encode()).attempt("write to", files, &name)?;
    files.sync_data(file).attempt("flush", files, &name)
}

/// Flushes the fresh database and its witness, and gives the database its number.
fn name_fresh(files: &mut Disk, standing: &Standing) -> Result<File, Failure> {
    let database = files.open(FRESH).attempt("open", files, FRESH)?;
    files.sync_data(&database).attempt("flush", files, FRESH)?;
    drop(database);
    let name = layout::witness(standing.database);
    let witness = files.create(&name).attempt("create", files, &name)?;
    // In both slots: damage to the one that the next batch leaves alone must not hide where the database stands.
    let mut image = vec![0; usize::try_from(SLOT_BYTES).unwrap_or_default()];
    let encoded = standing.encode();
    image.iter_mut().zip(&encoded).for_each(|(byte, of)| *byte = *of);
    image.extend_from_slice(&encoded);
    files.write_at(&witness, 0, &image).attempt("write to", files, &name)?;
    files.sync_data(&witness).attempt("flush", files, &name)?;
    files.sync_dir().attempt("flush", files, "")?;
    files.rename(FRESH, &layout::database(standing.database)).attempt("rename", files, FRESH)?;
    files.sync_dir().attempt("flush", files, "")?;
    Ok(witness)
}

/// Removes the files of some kinds.
fn clear(files: &mut Disk, of: impl Fn(Kind) -> bool) -> Result<(), Failure> {
    for name in files.list().attempt("list", files, "")? {
        if of(layout::kind(&name)) {
            files.remove(&name).attempt("remove", files, &name)?;
        }
    }
    Ok(())
}

pub(super) fn open_error(failure: Failure) -> OpenError {
    let Failure { action, path, source } = failure;
    OpenError::Io { action, path, source }
}
