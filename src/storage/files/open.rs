//! Opening a directory of record files: what is there, and whether it can be trusted.
//!
//! Every record whose file decodes whole under its own name is restored. One that is marked present and has no file, one
//! whose file is damaged, unreadable, filed under another's name, or named in another letter case is unreadable, by name,
//! and its file is left as it is (law L11). Whole records without a marker are those that a crash left between two steps
//! of a batch; they get one. Unfinished files are what a crash left, and are removed.
//!
//! A record's file was flushed before it got its name, and is never written again, so nothing read here exists in memory
//! only but the names themselves: the directory is flushed before the first transition (law L9.4).

use std::collections::BTreeSet;

use super::{
    FilesConfig,
    format::{FORMAT, RECORD_MAX, STORE_LEN, StoreError, StoreId},
    names::{self, Kind, LOCK, STORE, STORE_UNFINISHED},
    records::{Held, Records},
};
use crate::storage::{
    OpenError, RecordName,
    directory::{Attempt, Directory, lock},
};

/// The one name that a fresh file system may bring along.
const LOST_AND_FOUND: &str = "lost+found";

/// Opens the store in the directory, or makes one where there is nothing.
pub(crate) fn open<D: Directory>(mut directory: D, config: &FilesConfig) -> Result<Records<D>, OpenError> {
    directory.prepare().attempt("create", &directory, "")?;
    let names = directory.list().attempt("list", &directory, "")?;
    if !names.iter().any(|name| matches!(names::kind(name), Kind::Own | Kind::Record(_) | Kind::Marker(_)))
        && let Some(foreign) = names.iter().find(|name| names::kind(name) == Kind::Foreign && *name != LOST_AND_FOUND)
    {
        return Err(OpenError::NotAStore { path: directory.path(""), reason: format!("it holds {foreign:?}") });
    }
    lock(&mut directory, LOCK)?;
    // Listed again: before the lock, another process could still change it.
    let names = directory.list().attempt("list", &directory, "")?;
    let store = identify(&mut directory, &names)?;
    let (held, unmarked) = read(&mut directory, &store, &names)?;
    let (bytes, budget) = (held.bytes(), config.budget_bytes);
    if bytes > budget {
        return Err(OpenError::OverBudget { path: directory.path(""), held: bytes, budget });
    }
    let names = directory.list().attempt("list", &directory, "")?;
    for name in names.iter().filter(|name| names::kind(name) == Kind::Unfinished) {
        directory.remove(name).attempt("remove", &directory, name)?;
    }
    for name in unmarked {
        let marker = names::marker(&name);
        directory.create(&marker).attempt("create", &directory, &marker)?;
    }
    directory.sync_dir().attempt("flush", &directory, "")?;
    Ok(Records::new(directory, store, held))
}

/// Whose directory it is; a fresh one becomes a store.
fn identify<D: Directory>(directory: &mut D, names: &[String]) -> Result<StoreId, OpenError> {
    let damaged =
        |directory: &D, reason: &str| OpenError::Damaged { path: directory.path(""), reason: reason.to_owned() };
    if names.iter().any(|name| name == STORE) {
        let bytes = directory.read(STORE, STORE_LEN + 1).attempt("read", directory, STORE)?;
        return StoreId::decode(&bytes).map_err(|error| match error {
            StoreError::Damaged if !of_records(names) => OpenError::NotAStore {
                path: directory.path(""),
                reason: "its file \"store\" is not of this engine, and it holds no records".to_owned(),
            },
            StoreError::Damaged => damaged(directory, "its file \"store\" is not whole"),
            StoreError::Newer(found) => OpenError::NewerFormat { path: directory.path(""), found, supported: FORMAT },
        });
    }
    if of_records(names) {
        return Err(damaged(directory, "its file \"store\" is missing"));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| OpenError::Io {
        action: "draw a store id for",
        path: directory.path(""),
        source: std::io::Error::other(error.to_string()),
    })?;
    let store = StoreId::new(id);
    let file = directory.create(STORE_UNFINISHED).attempt("create", directory, STORE_UNFINISHED)?;
    directory.write_at(&file, 0, &store.encode()).attempt("write to", directory, STORE_UNFINISHED)?;
    directory.sync_data(&file).attempt("flush", directory, STORE_UNFINISHED)?;
    directory.rename(STORE_UNFINISHED, STORE).attempt("rename", directory, STORE_UNFINISHED)?;
    directory.sync_dir().attempt("flush", directory, "")?;
    Ok(store)
}

/// Whether records or markers are among the files.
fn of_records(names: &[String]) -> bool {
    names.iter().any(|name| matches!(names::kind(name), Kind::Record(_) | Kind::Marker(_) | Kind::OtherCase(_)))
}

/// What the files add up to, and which records lack their marker.
fn read<D: Directory>(
    directory: &mut D,
    store: &StoreId,
    names: &[String],
) -> Result<(Held, Vec<RecordName>), OpenError> {
    let mut held = Held::default();
    let mut marked = BTreeSet::new();
    for file in names {
        match names::kind(file) {
            Kind::Record(name) => {
                // One byte more than it may have, so that a longer file is seen without being read whole.
                let content = match directory.read(file, RECORD_MAX + 1) {
                    Ok(bytes) => store.decode_record(&name, &bytes).map_err(str::to_owned),
                    Err(error) => Err(format!("its file cannot be read: {error}")),
                };
                match content {
                    Ok(content) => drop(held.whole.insert(name, content)),
                    Err(reason) => drop(held.bad.insert(name, reason)),
                }
            }
            Kind::Marker(name) => drop(marked.insert(name)),
            Kind::OtherCase(name) => {
                held.bad.insert(name, format!("there is a file of its name in another letter case, {file:?}"));
            }
            Kind::Foreign if file != LOST_AND_FOUND => tracing::warn!(file, "a foreign file in the store's directory"),
            Kind::Own | Kind::Unfinished | Kind::Foreign => {}
        }
    }
    held.whole.retain(|name, _| !held.bad.contains_key(name));
    for name in &marked {
        if !held.whole.contains_key(name) {
            held.bad.entry(*name).or_insert_with(|| "its file is missing, though it is marked present".to_owned());
        }
    }
    let unmarked = held.whole.keys().filter(|name| !marked.contains(name)).copied().collect();
    Ok((held, unmarked))
}
