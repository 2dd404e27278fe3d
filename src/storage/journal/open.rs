//! Opening a directory: what is there, whether it can be trusted, and the fresh copy that the log begins with.
//!
//! Nothing is changed before all of it was read and understood, but for the lock file.

use std::collections::BTreeMap;

use super::{
    JournalConfig,
    live::Live,
    log::{Log, Start, directory},
    recovery::{self, Recovery, Walk},
    sector::{SECTOR, SegmentKeys},
    segment::{self, End, FORMAT, HEAD_BYTES, HeadError, Kind, SegmentHead, WITNESS, WITNESS_SLOT, Witness},
};
use crate::storage::{
    OpenError,
    directory::{Attempt, Directory, lock},
};

/// The one name that a fresh file system may bring along.
const LOST_AND_FOUND: &str = "lost+found";

/// Opens the store in the directory, or makes one where there is nothing.
pub(super) fn open<F: Directory>(mut files: F, config: JournalConfig) -> Result<Log<F>, OpenError> {
    files.prepare().attempt("create", &files, "")?;
    let names = files.list().attempt("list", &files, "")?;
    if !names.iter().any(|name| matches!(segment::kind(name), Kind::Segment(_)))
        && let Some(foreign) = names.iter().find(|name| segment::kind(name) == Kind::Foreign && *name != LOST_AND_FOUND)
    {
        return Err(OpenError::NotAStore { path: directory(&files), reason: format!("it holds {foreign:?}") });
    }
    lock(&mut files, segment::LOCK)?;
    let start = read(&mut files)?;
    let (held, budget) = (start.live.held(), config.budget_bytes);
    if held > budget {
        return Err(OpenError::OverBudget { path: directory(&files), held, budget });
    }
    Ok(Log::begin(files, config, start)?)
}

fn read<F: Directory>(files: &mut F) -> Result<Start, OpenError> {
    // Listed again: before the lock, another process could still change it.
    let names = files.list().attempt("list", files, "")?;
    let numbers = names.iter().filter_map(|name| match segment::kind(name) {
        Kind::Segment(number) => Some(number),
        _ => None,
    });
    let witness = witness(files, names.iter().any(|name| name == WITNESS))?;
    let numbers: Vec<u64> = numbers.collect();
    let Some(newest) = numbers.iter().max().copied() else {
        return match witness {
            Seen::Nothing => fresh(files),
            Seen::Broken | Seen::Segment(_) => Err(damaged(files, "all its segments are missing")),
        };
    };
    let mut heads = BTreeMap::new();
    for number in numbers {
        match head(files, number) {
            Ok(head) => drop(heads.insert(number, head)),
            // Whether it is needed shows when the others are read.
            Err(OpenError::Damaged { reason, .. }) if number != newest => tracing::warn!(number, reason, "damage"),
            Err(error) => return Err(error),
        }
    }
    let store = heads.get(&newest).map(|head| head.store).unwrap_or_default();
    if heads.values().any(|head| head.store != store) {
        return Err(damaged(files, "it holds segments of two stores"));
    }
    match witness {
        Seen::Segment(witness) if witness.store != store => {
            return Err(damaged(files, "its witness belongs to another store"));
        }
        Seen::Segment(witness) if witness.segment > newest => {
            return Err(damaged(files, &format!("its newest segment, {}, is missing", witness.segment)));
        }
        Seen::Segment(_) => {}
        Seen::Broken | Seen::Nothing => {
            tracing::warn!(path = %directory(files).display(), "the journal has no readable witness of its newest segment");
        }
    }
    let (live, last) = recover(files, &heads, newest)?;
    let segment = newest.checked_add(1).ok_or_else(|| damaged(files, "its segment numbers are used up"))?;
    let batch = last.and_then(|last| last.checked_add(1)).ok_or_else(|| damaged(files, "it has no batches left"))?;
    Ok(Start { store, live, segment, batch })
}

/// Reads the newest segment and every one that it still needs.
fn recover<F: Directory>(
    files: &mut F,
    heads: &BTreeMap<u64, SegmentHead>,
    newest: u64,
) -> Result<(Live, Option<u64>), OpenError> {
    let (last_walk, last_keys, last_image) = load(files, heads, newest, None)?;
    if last_walk.torn() {
        tracing::info!(path = %directory(files).display(), "dropped a torn batch that was never released");
    }
    // The chain, newest first, down to the segment that needs none before it.
    let base = heads.get(&newest).map_or(0, |head| head.base).max(last_walk.base());
    let mut chain = Vec::new();
    let mut number = newest;
    while number > base {
        let Some(end) = heads.get(&number).and_then(|head| head.previous) else {
            return Err(damaged(files, &format!("segment {base}, which segment {newest} needs, is not linked to it")));
        };
        if end.segment >= number || end.segment < base || !heads.contains_key(&end.segment) {
            return Err(damaged(
                files,
                &format!("segment {}, which segment {number} needs, is missing or lost its head", end.segment),
            ));
        }
        chain.push(end);
        number = end.segment;
    }
    let mut recovery = Recovery::default();
    for end in chain.iter().rev() {
        let (walk, keys, image) = load(files, heads, end.segment, Some(end))?;
        recovery.push(walk, &keys, &image).map_err(|damage| damaged(files, &damage.0))?;
    }
    recovery.push(last_walk, &last_keys, &last_image).map_err(|damage| damaged(files, &damage.0))?;
    recovery.finish().map_err(|damage| damaged(files, &damage.0))
}

fn load<F: Directory>(
    files: &mut F,
    heads: &BTreeMap<u64, SegmentHead>,
    number: u64,
    end: Option<&End>,
) -> Result<(Walk, SegmentKeys, Vec<u8>), OpenError> {
    let name = segment::name(number);
    let head = heads.get(&number).ok_or_else(|| damaged(files, &format!("segment {number} is missing")))?;
    // One byte more than it should have, so that a longer file is seen without being read whole.
    let limit = usize::try_from(head.sectors).unwrap_or(usize::MAX).saturating_mul(SECTOR).saturating_add(1);
    let image = files.read(&name, limit).attempt("read", files, &name)?;
    let keys = SegmentKeys::of(&head.store, number);
    let walk = recovery::walk(head, &keys, &image, end).map_err(|damage| damaged(files, &damage.0))?;
    Ok((walk, keys, image))
}

fn head<F: Directory>(files: &mut F, number: u64) -> Result<SegmentHead, OpenError> {
    let name = segment::name(number);
    let image = files.read(&name, HEAD_BYTES).attempt("read", files, &name)?;
    match SegmentHead::decode(&image) {
        Ok(head) if head.number == number => Ok(head),
        Ok(head) => Err(damaged(files, &format!("the file of segment {number} is that of segment {}", head.number))),
        Err(HeadError::Newer(found)) => Err(newer(files, found)),
        Err(HeadError::Damaged) => Err(damaged(files, &format!("segment {number}: both copies of its head are lost"))),
    }
}

/// What the witness says.
enum Seen {
    Nothing,
    Broken,
    Segment(Witness),
}

fn witness<F: Directory>(files: &mut F, exists: bool) -> Result<Seen, OpenError> {
    if !exists {
        return Ok(Seen::Nothing);
    }
    let image = files.read(WITNESS, 2 * WITNESS_SLOT).attempt("read", files, WITNESS)?;
    match Witness::decode(&image) {
        Ok(witness) => Ok(Seen::Segment(witness)),
        Err(HeadError::Newer(found)) => Err(newer(files, found)),
        Err(HeadError::Damaged) => Ok(Seen::Broken),
    }
}

fn fresh<F: Directory>(files: &F) -> Result<Start, OpenError> {
    let mut store = [0; 16];
    getrandom::fill(&mut store).map_err(|error| OpenError::Io {
        action: "draw a store id for",
        path: directory(files),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(Start { store, live: Live::default(), segment: 1, batch: 1 })
}

fn damaged<F: Directory>(files: &F, reason: &str) -> OpenError {
    OpenError::Damaged { path: directory(files), reason: reason.to_owned() }
}

fn newer<F: Directory>(files: &F, found: u32) -> OpenError {
    OpenError::NewerFormat { path: directory(files), found, supported: FORMAT }
}
