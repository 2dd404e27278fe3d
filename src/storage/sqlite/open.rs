//! Opening a directory: what is there, and whether it can be trusted.
//!
//! Nothing is changed before all of it was read and understood, but for the lock file.

use std::path::Path;

use super::{
    database,
    engine::{Engine, open_error},
    layout::{self, Kind, LOCK},
    row::{SLOT_BYTES, STANDING_LEN, Standing, newest},
    settle::{Settled, settle},
};
use crate::storage::{
    OpenError,
    directory::{Attempt, Directory, Disk},
};

/// Opens the store in the directory, an absolute path, or makes one where there is nothing.
pub(super) fn open(path: &Path, budget: u64) -> Result<Engine, OpenError> {
    if !path.is_dir() && std::fs::symlink_metadata(path).is_ok() {
        let reason = "it is not a directory, which a store of this engine has to itself".to_owned();
        return Err(OpenError::NotAStore { path: path.to_owned(), reason });
    }
    let mut files = Disk::new(path);
    files.prepare().attempt("create", &files, "").map_err(open_error)?;
    let names = files.list().attempt("list", &files, "").map_err(open_error)?;
    let ours = |name: &String| matches!(layout::kind(name), Kind::Database(_) | Kind::Witness(_));
    if !names.iter().any(ours)
        && let Some(foreign) = names.iter().find(|name| layout::kind(name) == Kind::Foreign)
    {
        return Err(OpenError::NotAStore { path: path.to_owned(), reason: format!("it holds {foreign:?}") });
    }
    files.lock(LOCK).map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked { path: path.to_owned() },
        _ => OpenError::Io { action: "lock", path: files.path(LOCK), source },
    })?;
    // Listed again: before the lock, another process could still change it.
    let names = files.list().attempt("list", &files, "").map_err(open_error)?;
    let kinds: Vec<_> = names.iter().map(|name| layout::kind(name)).collect();
    let numbers = |of: fn(&Kind) -> Option<u64>| kinds.iter().filter_map(of).max();
    let database = numbers(|kind| if let Kind::Database(number) = kind { Some(*number) } else { None });
    let greatest = numbers(|kind| match kind {
        Kind::Database(number) | Kind::Beside(number) | Kind::Witness(number) => Some(*number),
        Kind::Fresh | Kind::Expected | Kind::Foreign => None,
    });
    let settled = match (database, greatest) {
        (Some(number), _) => read(&mut files, number)?,
        (None, None) => Settled::default(),
        (None, Some(number)) => {
            // The very first database is witnessed before it gets its name, and a crash may fall between.
            match witness(&mut files, number)? {
                Some(standing) if standing.batch == 0 => Settled::default(),
                _ => return Err(damaged(&files, "its database is missing".to_owned())),
            }
        }
    };
    let length = |record: &super::row::Record| record.key.len().saturating_add(record.value.len());
    let held = settled.records.iter().map(length).fold(0, usize::saturating_add);
    let held = u64::try_from(held).unwrap_or(u64::MAX);
    if held > budget {
        return Err(OpenError::OverBudget { path: path.to_owned(), held, budget });
    }
    Engine::begin(files, settled, greatest.unwrap_or(0))
}

fn read(files: &mut Disk, number: u64) -> Result<Settled, OpenError> {
    let found = database::read(&files.path(&layout::database(number)))?;
    let witness = witness(files, number)?;
    settle(found, witness).map_err(|reason| damaged(files, reason))
}

/// What the witness of a database tells; `None` where it is missing or tells nothing.
fn witness(files: &mut Disk, number: u64) -> Result<Option<Standing>, OpenError> {
    let name = layout::witness(number);
    let limit = usize::try_from(SLOT_BYTES).unwrap_or(usize::MAX).saturating_add(STANDING_LEN);
    match files.read(&name, limit) {
        Ok(image) => Ok(newest(&image, number)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Io { action: "read", path: files.path(&name), source }),
    }
}

fn damaged(files: &Disk, reason: String) -> OpenError {
    OpenError::Damaged { path: files.path(""), reason }
}
