//! The door between group commit and an engine.

use std::{fmt, path::PathBuf, str::FromStr};

use bytes::Bytes;

use crate::BoxFuture;

/// The tables of a store. A record belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Table {
    /// Sequence leases of this node's own streams, one record a stream (law L8).
    Sender = 1,
    /// Replay windows of the streams that this node receives, one record a stream (law L5).
    Receiver = 2,
    /// Instants that belong to the store as a whole: birth, floors and marks (laws L9.9 and L10.5).
    Clock = 3,
    /// Mail that was admitted and not taken yet, one record each (law L10.6).
    Custody = 4,
    /// Single-use nonces, one record each (law L12.1).
    Nonce = 5,
    /// Governed approvals, one record each (law L12.3).
    Approval = 6,
    /// Operations and their outcomes, one record each (law L12.4).
    Operation = 7,
}

impl Table {
    /// Every table, in the order of its tag.
    pub const ALL: [Table; 7] =
        [Table::Sender, Table::Receiver, Table::Clock, Table::Custody, Table::Nonce, Table::Approval, Table::Operation];

    /// The tag that stands for the table in an engine's records.
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// What an operator calls the table: the first word of its records' names.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Sender => "sender",
            Table::Receiver => "receiver",
            Table::Clock => "clock",
            Table::Custody => "custody",
            Table::Nonce => "nonce",
            Table::Approval => "approval",
            Table::Operation => "operation",
        }
    }

    /// The table of a tag, or `None` for a tag that no table has.
    pub const fn from_tag(tag: u8) -> Option<Table> {
        match tag {
            1 => Some(Table::Sender),
            2 => Some(Table::Receiver),
            3 => Some(Table::Clock),
            4 => Some(Table::Custody),
            5 => Some(Table::Nonce),
            6 => Some(Table::Approval),
            7 => Some(Table::Operation),
            _ => None,
        }
    }
}

/// A record's key within its table: at most [`KEY_MAX`] bytes.
pub type Key = Bytes;

/// The longest key that a record may have, in bytes.
pub const KEY_MAX: usize = 128;

/// The longest value that a record may have, in bytes.
pub const VALUE_MAX: usize = 8 * 1024;

/// What an operator calls a record: its table and a hash of its key, 33 bytes. Two records never share one.
///
/// Displays as `receiver-<64 hex digits>`, and parses from exactly that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordName {
    /// The table that the record is in.
    pub table: Table,
    /// BLAKE3 of the key.
    pub hash: [u8; 32],
}

impl RecordName {
    /// The name of the record of `key` in `table`.
    pub fn of(table: Table, key: &[u8]) -> Self {
        Self { table, hash: blake3::hash(key).into() }
    }
}

/// Why a text is no record's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record's name is its table, a hyphen and 64 lower-case hex digits, as an inspection shows it")]
pub struct NotARecordName;

impl FromStr for RecordName {
    type Err = NotARecordName;

    fn from_str(text: &str) -> Result<Self, NotARecordName> {
        let (table, digits) = text.split_once('-').ok_or(NotARecordName)?;
        let table = Table::ALL.into_iter().find(|known| known.name() == table).ok_or(NotARecordName)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotARecordName);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NotARecordName)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NotARecordName)?;
        }
        Ok(Self { table, hash })
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.table.name())?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One record's new value, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The table that the record is in.
    pub table: Table,
    /// The record's key.
    pub key: Key,
    /// The whole new value, or `None` to remove the record.
    pub value: Option<Bytes>,
}

/// Writes that become durable together. No two of them name the same record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The writes. Their order means nothing.
    pub writes: Vec<Write>,
}

/// The most bytes of keys and values that one batch may carry: more than the default budgets of all tables together.
pub const BATCH_MAX: usize = 96 * 1024 * 1024;

impl Batch {
    /// What every engine refuses, whatever it could store: a key, a value or a batch over its bound.
    pub(crate) fn check(&self) -> Result<(), CommitError> {
        let mut bytes = 0_usize;
        for Write { key, value, .. } in &self.writes {
            let value = value.as_ref().map_or(0, Bytes::len);
            if key.len() > KEY_MAX {
                return Err(CommitError::OverBound { what: "key", found: key.len(), bound: KEY_MAX });
            }
            if value > VALUE_MAX {
                return Err(CommitError::OverBound { what: "value", found: value, bound: VALUE_MAX });
            }
            bytes = bytes.saturating_add(key.len()).saturating_add(value);
        }
        if bytes > BATCH_MAX {
            return Err(CommitError::OverBound { what: "batch", found: bytes, bound: BATCH_MAX });
        }
        Ok(())
    }
}

/// A record that an engine holds and cannot give back whole (law L11.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The record's name.
    pub name: RecordName,
    /// Why it is not readable, for the log.
    pub reason: String,
}

/// All records of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The readable records, in no order.
    pub records: Vec<(Key, Bytes)>,
    /// The ones that are not. Their streams are unavailable; every other one runs as if they were not there.
    pub bad: Vec<BadRecord>,
}

/// A durable home of records. Object-safe; every engine passes one conformance suite.
///
/// An engine serves one caller at a time: group commit never starts a commit before the last one returned.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads every record of `table`.
    ///
    /// # Errors
    /// [`ScanError`] only when the table cannot be listed at all (law L11.3). A record that cannot be read is
    /// named in [`Scan::bad`].
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>>;

    /// Makes every write of `batch` durable, all of them or none, before it returns.
    ///
    /// # Errors
    /// [`CommitError`]: nothing is known of what reached the medium, and the engine has taken care that what did
    /// is never taken for released (law L9.4). A later commit may succeed if the engine could move to a fresh
    /// file; until then, and until [`Store::reopen`], every call fails.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>>;

    /// Removes the record of `name` durably, readable or not, and nothing else; whether there was one. It is an
    /// operator's last resort (law L11.5): what the record protected against is open again unless something else stands
    /// in its place. Group commit never calls it.
    ///
    /// # Errors
    /// [`CommitError`], as of [`Store::commit`]: the record is there or gone.
    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>>;

    /// Tries to make a store whose commits fail usable again (law L9.4), by reading back what is durable into a
    /// fresh, flushed file. The records are those of the last commit that succeeded.
    ///
    /// # Errors
    /// [`OpenError`] when that is not possible; the store still refuses.
    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>>;

    /// Whether a record survives the process. Where it does not, admission and reservation are for tests only.
    fn durable(&self) -> bool;
}

/// Why a store could not be opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another handle in this one, owns the store (law L9.8).
    #[error("{} is in use by another process: stop it, or give this node a store of its own", path.display())]
    Locked {
        /// The store's path.
        path: PathBuf,
    },
    /// The path holds something, and it is not a store of this engine.
    #[error("{} is not a store: {reason}; give an empty or missing directory, or the right path", path.display())]
    NotAStore {
        /// The path.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// A store written by a later release.
    #[error("{} has format {found}, newer than {supported}: run the release that wrote it, or a later one", path.display())]
    NewerFormat {
        /// The store's path.
        path: PathBuf,
        /// The format on disk.
        found: u32,
        /// The newest format that this release reads.
        supported: u32,
    },
    /// Damage that no record can be named for, so that the whole store is refused.
    #[error("{} is damaged where no record can be named ({reason}): restore a backup and run `admit-one store renew` on it, or start on an empty store; both refuse what was issued before", path.display())]
    Damaged {
        /// The store's path.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The store holds more than its budget (law L9.7).
    #[error("{} holds {held} bytes, over its budget of {budget}: raise the budget to at least that", path.display())]
    OverBudget {
        /// The store's path.
        path: PathBuf,
        /// Bytes of live records.
        held: u64,
        /// The budget, in bytes.
        budget: u64,
    },
    /// The system refused a file operation: permissions, a read-only or full disk, a broken device.
    #[error("cannot {action} {}: {source}; {}", path.display(), cure(source))]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// What an operator can do about a file operation that the system refused.
fn cure(refused: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match refused.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on its disk, then open it again",
        ErrorKind::ReadOnlyFilesystem => "repair its file system and mount it writable, then open it again",
        ErrorKind::PermissionDenied => "let this user write there, then open it again",
        ErrorKind::NotFound | ErrorKind::NotADirectory => "give a path where a directory can be made",
        _ => "repair the disk, or what the system names, then open it again",
    }
}

/// Why a table could not be listed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot list table {table:?}: {reason}")]
pub struct ScanError {
    /// The table.
    pub table: Table,
    /// The engine's reason.
    pub reason: String,
}

/// Why a batch is not durable. Cloned to every caller that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The system refused a write or a flush.
    #[error("cannot {action} {}: {reason}; free space or repair the disk, then reopen the store", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        reason: String,
    },
    /// An earlier failure closed the store, and it was not reopened since.
    #[error("the store is closed since an earlier failure ({reason}): repair its cause, then reopen it")]
    Closed {
        /// The earlier failure.
        reason: String,
    },
    /// The batch breaks a bound of this door. Nothing of it was written, and the store goes on as if it had not
    /// been asked.
    #[error("a {what} of {found} bytes is over the bound of {bound}: nothing was written")]
    OverBound {
        /// What is too long: a key, a value or the whole batch.
        what: &'static str,
        /// Its length, in bytes.
        found: usize,
        /// The bound, in bytes.
        bound: usize,
    },
}

/// The fuzz target of a record's name, as an operator gives it.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "record_name",
    run: |data| {
        let Ok(text) = std::str::from_utf8(data) else { return false };
        let Ok(name) = text.parse::<RecordName>() else { return false };
        assert_eq!(name.to_string(), text, "a record has two names");
        assert_eq!(Table::from_tag(name.table.tag()), Some(name.table));
        true
    },
    seeds: || {
        let mut seeds: Vec<_> = Table::ALL.map(|table| RecordName::of(table, b"key").to_string().into_bytes()).into();
        seeds.push(b"receiver-AB".to_vec());
        seeds
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_name_is_read_back_from_what_it_displays_as_and_from_nothing_else() {
        for table in Table::ALL {
            let name = RecordName::of(table, b"key");
            let text = name.to_string();
            assert_eq!(text.parse(), Ok(name));
            for other in [text.to_uppercase(), text[1..].to_owned(), text[..text.len() - 1].to_owned(), text + "0"] {
                assert_eq!(other.parse::<RecordName>(), Err(NotARecordName), "{other}");
            }
        }
        assert_eq!(format!("sender-{}", "+f".repeat(32)).parse::<RecordName>(), Err(NotARecordName));
    }
}
