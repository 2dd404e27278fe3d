//! One database file: its connection and what is set on it, its tables, what is written and how it is read.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, config::DbConfig, params, types::ToSql};

use super::{
    row::{Presence, Record, Seal, Standing, decode_name, encode_name},
    settle::Found,
};
use crate::storage::{OpenError, RecordName};

/// Marks the file as a store of this crate: "A1st".
pub(super) const APPLICATION: i64 = 0x4131_7374;
/// The format that this release writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;

const TABLES: &str = "
    CREATE TABLE record (id INTEGER PRIMARY KEY, name BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, \
                         seal BLOB NOT NULL);
    CREATE TABLE presence (id INTEGER PRIMARY KEY, name BLOB NOT NULL, seal BLOB NOT NULL, reason TEXT);
    CREATE TABLE standing (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
";

/// Why SQLite did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// It answered, and not with what was set.
    #[error("SQLite runs with {pragma}={found} where {wanted} was set")]
    NotTaken { pragma: &'static str, wanted: String, found: String },
    /// A checkpoint could not empty the write-ahead log.
    #[error("the write-ahead log is held by another reader")]
    NotEmptied,
}

impl Fault {
    /// What an open that met it says.
    pub(super) fn into_open_error(self, action: &'static str, path: &Path) -> OpenError {
        let path = path.to_owned();
        let code = match &self {
            Fault::Sqlite(error) => error.sqlite_error_code(),
            Fault::NotTaken { .. } | Fault::NotEmptied => return io_error(action, path, self),
        };
        match code {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked { path },
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::OperationInterrupted,
            ) => io_error(action, path, self),
            _ => OpenError::Damaged { path, reason: self.to_string() },
        }
    }
}

fn io_error(action: &'static str, path: PathBuf, fault: Fault) -> OpenError {
    OpenError::Io { action, path, source: io::Error::other(fault.to_string()) }
}

/// Opens a database and sets on the connection what every connection has, and reads it back.
pub(super) fn connect(path: &Path, create: bool) -> Result<Connection, Fault> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let connection = Connection::open_with_flags(path, flags)?;
    // One owner (law L9.8), and no index of the write-ahead log in memory that others share.
    set(&connection, "locking_mode", "EXCLUSIVE", "exclusive")?;
    set(&connection, "synchronous", "FULL", "2")?;
    // Where a flush stops at the drive's cache, ask for more.
    set(&connection, "fullfsync", "ON", "1")?;
    set(&connection, "checkpoint_fullfsync", "ON", "1")?;
    set(&connection, "cell_size_check", "ON", "1")?;
    set(&connection, "trusted_schema", "OFF", "0")?;
    connection.busy_timeout(std::time::Duration::ZERO)?;
    Ok(connection)
}

/// Sets a pragma and refuses to go on where it did not take.
fn set(connection: &Connection, pragma: &'static str, value: &str, wanted: &str) -> Result<(), Fault> {
    // Some answer with the new value, some with nothing.
    connection.pragma_update(None, pragma, value)?;
    let found = read_back(connection, pragma)?;
    if found == wanted {
        return Ok(());
    }
    Err(Fault::NotTaken { pragma, wanted: wanted.to_owned(), found })
}

/// What a pragma stands at.
pub(super) fn read_back(connection: &Connection, pragma: &str) -> Result<String, rusqlite::Error> {
    connection.pragma_query_value(None, pragma, |row| {
        Ok(match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            other => other.as_str().unwrap_or("nothing").to_owned(),
        })
    })
}

/// Opens a finished database to commit to.
pub(super) fn connect_to_write(path: &Path) -> Result<Connection, Fault> {
    let connection = connect(path, false)?;
    set(&connection, "journal_mode", "WAL", "wal")?;
    // SQLite's own checkpoints pass over a failed flush, and flush the same file again (law L9.4).
    set(&connection, "wal_autocheckpoint", "0", "0")?;
    Ok(connection)
}

/// Nothing is written any more, not even to close it: what is in the write-ahead log stays there (law L9.4).
pub(super) fn leave_alone(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}

/// Moves the write-ahead log into the database and empties it.
pub(super) fn checkpoint(connection: &Connection) -> Result<(), Fault> {
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy == 0 { Ok(()) } else { Err(Fault::NotEmptied) }
}

/// Writes a new database and closes it. It is not flushed: no name leads to it yet.
pub(super) fn write_fresh<'a>(
    path: &Path,
    standing: &Standing,
    records: impl Iterator<Item = (i64, RecordRow<'a>)>,
) -> Result<(), Fault> {
    let mut connection = connect(path, true)?;
    // What a crash leaves of it is thrown away whole.
    set(&connection, "journal_mode", "OFF", "off")?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", FORMAT)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    for (id, row) in records {
        put(&transaction, id, &row)?;
    }
    stand(&transaction, standing)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error.into())
}

/// One record as rows carry it.
#[derive(Debug)]
pub(super) struct RecordRow<'a> {
    pub(super) name: RecordName,
    pub(super) seal: Seal,
    /// Key and value, or why they cannot be read.
    pub(super) content: Result<(&'a [u8], &'a [u8]), &'a str>,
}

pub(super) fn put(transaction: &Transaction<'_>, id: i64, row: &RecordRow<'_>) -> rusqlite::Result<()> {
    let (name, reason) = (encode_name(&row.name), row.content.err());
    if let Ok((key, value)) = row.content {
        run(
            transaction,
            "INSERT OR REPLACE INTO record (id, name, key, value, seal) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id, name, key, value, row.seal],
        )?;
    }
    run(
        transaction,
        "INSERT OR REPLACE INTO presence (id, name, seal, reason) VALUES (?1, ?2, ?3, ?4)",
        params![id, name, row.seal, reason],
    )
}

pub(super) fn remove(transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<()> {
    run(transaction, "DELETE FROM record WHERE id = ?1", params![id])?;
    run(transaction, "DELETE FROM presence WHERE id = ?1", params![id])
}

pub(super) fn stand(transaction: &Transaction<'_>, standing: &Standing) -> rusqlite::Result<()> {
    let body = standing.encode();
    run(transaction, "INSERT OR REPLACE INTO standing (id, body) VALUES (1, ?1)", params![&*body])
}

fn run(transaction: &Transaction<'_>, sql: &str, params: &[&dyn ToSql]) -> rusqlite::Result<()> {
    transaction.prepare_cached(sql)?.execute(params).map(drop)
}

/// Reads a database for what it is and holds, and changes nothing in it.
pub(super) fn read(path: &Path) -> Result<Found, OpenError> {
    let fault = |fault: Fault| fault.into_open_error("read", path);
    let connection = connect(path, false).map_err(fault)?;
    leave_alone(&connection).map_err(|error| fault(error.into()))?;
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = number("application_id").map_err(|error| fault(error.into()))?;
    if application != APPLICATION {
        let reason = format!("the database is another application's (id {application:#x})");
        return Err(OpenError::NotAStore { path: path.to_owned(), reason });
    }
    let format = number("user_version").map_err(|error| fault(error.into()))?;
    match u32::try_from(format) {
        Ok(FORMAT) => {}
        Ok(found) if found > FORMAT => {
            return Err(OpenError::NewerFormat { path: path.to_owned(), found, supported: FORMAT });
        }
        _ => {
            let reason = format!("its format is {format}, which no release wrote");
            return Err(OpenError::Damaged { path: path.to_owned(), reason });
        }
    }
    rows(&connection).map_err(|error| fault(error.into()))
}

/// An error of the device or of memory may be gone the next time, and must not make a record unreadable for good;
/// every other one while reading rows is damage.
fn damage(error: rusqlite::Error) -> rusqlite::Result<String> {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OperationInterrupted,
        ) => Err(error),
        _ => Ok(error.to_string()),
    }
}

fn rows(connection: &Connection) -> rusqlite::Result<Found> {
    let mut found = Found::default();
    let standing = connection.query_row("SELECT body FROM standing WHERE id = 1", [], |row| {
        Ok(row.get_ref(0)?.as_blob().ok().and_then(Standing::decode))
    });
    match standing {
        Ok(standing) => found.standing = standing,
        Err(error) => drop(damage(error)?),
    }
    let mut unnamed = None;
    let broken =
        each(connection, "SELECT id, name, seal, reason FROM presence ORDER BY id", |id, row| {
            match presence(id, row) {
                Ok(presence) => found.presences.push(presence),
                Err(reason) => unnamed = Some(format!("presence {id} is not whole: {reason}")),
            }
        })?;
    found.broken = broken.or(unnamed);
    let broken =
        each(connection, "SELECT id, name, key, value, seal FROM record ORDER BY id", |id, row| match record(row) {
            Ok(record) => found.records.push(record),
            Err(reason) => drop(found.faults.insert(id, reason)),
        })?;
    if broken.is_some() {
        one_by_one(connection, &mut found)?;
    }
    Ok(found)
}

/// Asks for every present record by its id, since listing them broke off.
fn one_by_one(connection: &Connection, found: &mut Found) -> rusqlite::Result<()> {
    found.records.clear();
    found.faults.clear();
    let mut statement = match connection.prepare("SELECT id, name, key, value, seal FROM record WHERE id = ?1") {
        Ok(statement) => statement,
        Err(error) => return damage(error).map(drop),
    };
    for Presence { id, reason, .. } in &found.presences {
        if reason.is_some() {
            continue;
        }
        let read = statement.query_row([id], |row| Ok(record(row)));
        match read {
            Ok(Ok(record)) => found.records.push(record),
            Ok(Err(reason)) => drop(found.faults.insert(*id, reason)),
            Err(rusqlite::Error::QueryReturnedNoRows) => {}
            Err(error) => drop(found.faults.insert(*id, damage(error)?)),
        }
    }
    Ok(())
}

/// Gives every row to `take`, by its id; why there may be more, if the listing broke off.
fn each(connection: &Connection, sql: &str, mut take: impl FnMut(i64, &Row<'_>)) -> rusqlite::Result<Option<String>> {
    let mut statement = match connection.prepare(sql) {
        Ok(statement) => statement,
        Err(error) => return damage(error).map(Some),
    };
    let mut rows = statement.query([])?;
    let mut last = None;
    loop {
        match rows.next() {
            Ok(None) => return Ok(None),
            Ok(Some(row)) => {
                let id: i64 = match row.get(0) {
                    Ok(id) => id,
                    Err(error) => return damage(error).map(Some),
                };
                // A damaged tree may lead round in circles.
                if last.is_some_and(|last| id <= last) {
                    return Ok(Some(format!("row {id} stands behind row {}", last.unwrap_or_default())));
                }
                last = Some(id);
                take(id, row);
            }
            Err(error) => return damage(error).map(Some),
        }
    }
}

fn blob<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8], String> {
    let value = row.get_ref(column).map_err(|error| error.to_string())?;
    value.as_blob().map_err(|_| format!("column {column} is not bytes"))
}

fn record(row: &Row<'_>) -> Result<Record, String> {
    let (name, key, value, seal) = (blob(row, 1)?, blob(row, 2)?, blob(row, 3)?, blob(row, 4)?);
    Record::of_columns(name, key, value, seal).map_err(str::to_owned)
}

fn presence(id: i64, row: &Row<'_>) -> Result<Presence, String> {
    let name = decode_name(blob(row, 1)?).ok_or("its name is damaged")?;
    let seal = blob(row, 2)?.try_into().map_err(|_| "its checksum is damaged")?;
    let reason = row.get_ref(3).map_err(|error| error.to_string())?;
    let reason = match reason.as_str_or_null() {
        Ok(reason) => reason.map(str::to_owned),
        // Damage, but only of what to tell: the record stays unreadable.
        Err(_) => Some("it was unreadable before, and the reason is damaged".to_owned()),
    };
    Ok(Presence { id, name, seal, reason })
}
