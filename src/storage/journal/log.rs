//! The writer's state: the segment being appended to, and what happens when it is full, fails, or holds too much that
//! is old. It runs on the writer thread alone and knows no thread, channel or task.
//!
//! # Transitions
//! - **append** (a batch, or an empty frame when the store goes idle): one write and one flush. Only after the flush
//!   does the live set change.
//! - **roll**: the segment is full. The next one gets its head, is flushed, gets its name, the directory is flushed,
//!   then the witness. From the moment the name may have been given, nothing more is written to the old one.
//! - **failure** of a write or flush: the segment ends at its last durable sector. The writer rolls at once, and the
//!   next segment's head says where the old one ended, so that what the failed batch left behind is never read. If
//!   that fails too the log is **closed** until a reopen.
//! - **reopen**: the live set, which is what the last successful append left, goes whole into a fresh, flushed
//!   segment that needs no other; then all others are removed.
//! - **pass** (compaction): when a roll finds more in the segments than the live set warrants, records whose newest
//!   content lies below the segment just begun are copied behind, a slice with each batch, or on their own while
//!   nothing is asked. When all are, the next frame states that older segments are not needed; once that is durable
//!   they are removed, one at a time. A pass never blocks a batch and a crash anywhere in it loses nothing, since a
//!   copy is an ordinary record.
//! - **spare**: once the segment is half full, the next one's file is filled and flushed in slices between batches.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    JournalConfig,
    frame::{self, Content, Manifest},
    live::{Live, Slice, wide},
    making::{FILL_SECTORS, Segment, abandon, fill, make, publish, sectors_of, write_base},
    sector::{self, SECTOR, SegmentKeys},
    segment::{self, DATA_START, End, SegmentHead, WITNESS, WITNESS_SLOT, Witness},
};
use crate::storage::{
    Batch, CommitError, OpenError, RecordName, Scan, Table, Write,
    directory::{Attempt, Directory, Failure},
};

/// Bytes that one slice of background work writes: copies of a pass, or fill of the spare (there more if batches are
/// larger). A batch waits for one such slice at most.
pub(super) const SLICE: usize = 256 * 1024;
/// Bytes of copies that go with a batch, unless the batch is more than twice as large. A pass then writes at most three
/// times what it copies, batches included.
const COPIES: usize = 64 * 1024;

/// A walk that copies what is below `target`.
#[derive(Debug)]
struct Pass {
    target: u64,
    after: Option<RecordName>,
}

/// What opening found, and the log begins with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) store: [u8; 16],
    pub(super) live: Live,
    /// The number of the first segment to be made: above every one that ever was.
    pub(super) segment: u64,
    /// The number of the first batch to be written.
    pub(super) batch: u64,
}

/// See the module's docs.
pub(super) struct Log<F: Directory> {
    files: F,
    config: JournalConfig,
    store: [u8; 16],
    live: Live,
    keys: SegmentKeys,
    head: Segment<F::File>,
    /// Every segment that is still needed but the head, and its sectors.
    older: BTreeMap<u64, u64>,
    next_segment: u64,
    next_batch: u64,
    /// The manifest of the last durable frame, to be repeated in the next.
    previous: Manifest,
    /// Segments below are not needed: the next frame says so.
    base: u64,
    /// What the last durable frame or head said of that: segments below may be removed.
    durable_base: u64,
    pass: Option<Pass>,
    spare: Option<Segment<F::File>>,
    spare_failed: bool,
    /// The failure that closed the log.
    closed: Option<String>,
    plain: Vec<u8>,
    sectors: Vec<u8>,
}

impl<F: Directory> std::fmt::Debug for Log<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("files", &self.files).field("head", &self.head).finish_non_exhaustive()
    }
}

impl<F: Directory> Log<F> {
    /// Copies everything into a fresh, flushed segment, and removes all other files.
    pub(super) fn begin(mut files: F, config: JournalConfig, start: Start) -> Result<Self, Failure> {
        let Start { store, mut live, segment, batch } = start;
        let base = write_base(&mut files, &config, &store, segment, batch, &live)
            .inspect_err(|_| abandon(&mut files, segment))?;
        live.settle(segment);
        let mut log = Self {
            files,
            config,
            store,
            live,
            keys: SegmentKeys::of(&store, segment),
            head: base.segment,
            older: BTreeMap::new(),
            next_segment: segment.saturating_add(1),
            next_batch: base.next_batch,
            previous: base.previous,
            base: segment,
            durable_base: segment,
            pass: None,
            spare: None,
            spare_failed: false,
            closed: None,
            plain: Vec::new(),
            sectors: Vec::new(),
        };
        log.witness()?;
        log.remove_others();
        Ok(log)
    }

    /// The records of a table, as of the last successful append; the reason where the log is closed.
    pub(super) fn scan(&self, table: Table) -> Result<Scan, String> {
        match &self.closed {
            None => Ok(self.live.scan(table)),
            Some(reason) => Err(format!("the store is closed since an earlier failure ({reason})")),
        }
    }

    /// Makes a batch durable. An empty one needs nothing.
    pub(super) fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        self.usable()?;
        batch.check()?;
        if batch.writes.is_empty() {
            return Ok(());
        }
        let writes: Vec<_> = batch.writes.into_iter().map(record).collect();
        let bytes: usize = writes.iter().map(|(_, content)| content.encoded_len()).sum();
        let slice = self.slice(self.at_most(COPIES).max(bytes / 2));
        self.append(slice, writes)
    }

    /// Removes the record of `name` durably, readable or not; whether there was one.
    pub(super) fn discard(&mut self, name: RecordName) -> Result<bool, CommitError> {
        self.usable()?;
        if !self.live.contains(&name) {
            return Ok(false);
        }
        self.append(None, vec![(name, Content::Discarded)]).map(|()| true)
    }

    /// Does a slice of what needs no batch beside it: removes an old segment, or fills some of the spare. Called
    /// after each batch.
    pub(super) fn tidy(&mut self) {
        if self.closed.is_some() {
            return;
        }
        if let Some(old) = self.older.first_entry().filter(|old| *old.key() < self.durable_base) {
            let name = segment::name(*old.key());
            old.remove();
            // What stays is ignored, and removed when the store is opened next.
            report(self.files.remove(&name).attempt("remove", &self.files, &name));
        } else if self.needs_spare()
            && let Err(failure) = self.grow_spare()
        {
            self.spare_failed = true;
            // The file is made anew, over what is left, when it is needed.
            self.spare = None;
            let name = segment::unfinished_name(self.next_segment);
            report(self.files.remove(&name).attempt("remove", &self.files, &name));
            report(Err(failure));
        }
    }

    /// Whether there is work to do while nothing is asked.
    pub(super) fn has_work(&self) -> bool {
        let removable = self.older.first_key_value().is_some_and(|(number, _)| *number < self.durable_base);
        self.closed.is_none() && (self.copies() || removable || self.needs_spare())
    }

    /// Does a slice of that work.
    pub(super) fn work(&mut self) {
        if self.closed.is_none() && self.copies() {
            let slice = self.slice(self.at_most(SLICE));
            // The failure is kept, if it closed the log, and met by the next batch; the copies are still to be made.
            if let Err(failure) = self.append(slice, Vec::new()) {
                tracing::error!(%failure, "a slice of the journal's compaction failed");
            }
        } else {
            self.tidy();
        }
    }

    /// Whether the last frame's records are named nowhere else yet, so that a [`Log::seal`] is worth it.
    pub(super) fn unsealed(&self) -> bool {
        self.closed.is_none() && !self.previous.entries.is_empty()
    }

    /// Repeats the last frame's manifest in an empty frame.
    pub(super) fn seal(&mut self) {
        if self.unsealed()
            && let Err(failure) = self.append(None, Vec::new())
        {
            tracing::error!(%failure, "sealing the journal's last batch failed");
        }
    }

    /// Writes the live set whole into a fresh segment and goes on there.
    pub(super) fn reopen(&mut self) -> Result<(), OpenError> {
        let number = self.take_number();
        let result = write_base(&mut self.files, &self.config, &self.store, number, self.next_batch, &self.live);
        let base = match result {
            Ok(base) => base,
            Err(failure) => {
                abandon(&mut self.files, number);
                return Err(open_error(self.close(failure)));
            }
        };
        self.live.settle(number);
        self.keys = SegmentKeys::of(&self.store, number);
        self.head = base.segment;
        self.older.clear();
        self.next_batch = base.next_batch;
        self.previous = base.previous;
        (self.base, self.durable_base) = (number, number);
        (self.pass, self.spare, self.spare_failed) = (None, None, false);
        if let Err(failure) = self.witness() {
            return Err(open_error(self.close(failure)));
        }
        self.remove_others();
        self.closed = None;
        Ok(())
    }

    fn usable(&self) -> Result<(), CommitError> {
        self.closed.clone().map_or(Ok(()), |reason| Err(CommitError::Closed { reason }))
    }

    fn close(&mut self, failure: Failure) -> Failure {
        self.closed = Some(failure.to_string());
        failure
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next_segment;
        self.next_segment = number.saturating_add(1);
        number
    }

    /// Whether a pass is on, or done and not stated yet.
    fn copies(&self) -> bool {
        self.pass.is_some() || self.durable_base != self.base
    }

    /// A slice of `bytes`, or of a quarter of a segment if that is less.
    fn at_most(&self, bytes: usize) -> usize {
        usize::try_from(self.config.segment_bytes / 4).unwrap_or(bytes).min(bytes)
    }

    /// The next records to copy, if a pass is on.
    fn slice(&self, bytes: usize) -> Option<Slice> {
        self.pass.as_ref().map(|pass| self.live.slice(pass.after, pass.target, bytes))
    }

    /// Writes and flushes one frame, and takes over what it says once it is durable.
    fn append(&mut self, slice: Option<Slice>, writes: Vec<(RecordName, Content)>) -> Result<(), CommitError> {
        let (copies, next) = slice.map(|slice| (slice.items, Some(slice.next))).unwrap_or_default();
        // Copies come first: a batch that writes the same record comes later and wins.
        let items = if copies.is_empty() { writes } else { copies.into_iter().chain(writes).collect() };
        let length = frame::length(&items, &self.previous);
        let Some(count) = sector::count(length) else {
            // Batches are bounded far below this.
            return Err(CommitError::OverBound { what: "frame", found: length, bound: usize::MAX });
        };
        if self.head.next + u64::from(count) > self.head.sectors {
            let failure = match self.roll(u64::from(count)) {
                Ok(()) => None,
                Err(failure) => Some(self.close(failure)),
            };
            if let Some(failure) = failure {
                return Err(commit_error(failure));
            }
        }
        let keys = &self.keys;
        let encoded =
            frame::encode(&keys.checksum, self.next_batch, self.base, count, &items, &self.previous, &mut self.plain);
        let Some(manifest) = encoded else {
            return Err(CommitError::OverBound { what: "frame", found: length, bound: usize::MAX });
        };
        sector::lay_out(keys, self.next_batch, self.head.next, count, &self.plain, &mut self.sectors);
        let name = segment::name(self.head.number);
        let written = (self.files)
            .write_at(&self.head.file, self.head.next * wide(SECTOR), &self.sectors)
            .attempt("write to", &self.files, &name)
            .and_then(|()| self.files.sync_data(&self.head.file).attempt("flush", &self.files, &name));
        if let Err(failure) = written {
            return Err(self.failed(failure));
        }
        self.head.next += u64::from(count);
        self.next_batch = self.next_batch.saturating_add(1);
        self.previous = manifest;
        self.durable_base = self.base;
        for (name, content) in items {
            self.live.apply(name, content, self.head.number);
        }
        if let (Some(next), Some(pass)) = (next, &mut self.pass) {
            match next {
                Some(_) => pass.after = next,
                None => {
                    self.base = pass.target;
                    self.pass = None;
                }
            }
        }
        Ok(())
    }

    /// Ends the segment where it was last durable and moves on, or closes the log.
    fn failed(&mut self, failure: Failure) -> CommitError {
        tracing::error!(%failure, segment = self.head.number, "the journal moves to a fresh segment");
        metrics::counter!("admit_one_journal_failures_total").increment(1);
        match self.roll(0) {
            // What the failed segment holds is copied out of it soon, so that it can be removed.
            Ok(()) => {
                self.pass.get_or_insert(Pass { target: self.head.number, after: None });
            }
            Err(second) => self.closed = Some(format!("{failure}; then {second}")),
        }
        commit_error(failure)
    }

    /// Makes the next segment, with room for a frame of `count` sectors, the one that is appended to.
    fn roll(&mut self, count: u64) -> Result<(), Failure> {
        let number = self.take_number();
        self.roll_to(number, count).inspect_err(|_| abandon(&mut self.files, number))
    }

    fn roll_to(&mut self, number: u64, count: u64) -> Result<(), Failure> {
        let keys = SegmentKeys::of(&self.store, number);
        let mut next = match self.spare.take().filter(|spare| spare.number == number) {
            Some(spare) => spare,
            None => make(&mut self.files, number)?,
        };
        let sectors = sectors_of(&self.config).max(DATA_START + count);
        fill(&mut self.files, &keys, &mut next, sectors)?;
        let end = End { segment: self.head.number, sector: self.head.next, batch: self.next_batch.saturating_sub(1) };
        let head = SegmentHead {
            store: self.store,
            number,
            sectors: next.sectors,
            first_batch: self.next_batch,
            base: self.base,
            previous: Some(end),
        };
        publish(&mut self.files, &keys, &next, &head)?;
        let old = std::mem::replace(&mut self.head, next);
        self.older.insert(old.number, old.next);
        self.keys = keys;
        self.durable_base = self.base;
        self.spare_failed = false;
        self.witness()?;
        let held = self.older.range(self.base..).map(|(_, sectors)| sectors).sum::<u64>().saturating_mul(wide(SECTOR));
        let warranted = self.live.encoded().saturating_mul(u64::from(self.config.compact_ratio.max(2)));
        if self.pass.is_none() && held > warranted.max(self.config.compact_floor_bytes) {
            self.pass = Some(Pass { target: number, after: None });
            metrics::counter!("admit_one_journal_compactions_total").increment(1);
        }
        Ok(())
    }

    fn witness(&mut self) -> Result<(), Failure> {
        let witness = Witness { store: self.store, segment: self.head.number };
        let slot = (self.head.number % 2) * wide(WITNESS_SLOT);
        let file = self.files.open(WITNESS).attempt("open", &self.files, WITNESS)?;
        self.files.write_at(&file, slot, &witness.encode()).attempt("write to", &self.files, WITNESS)?;
        self.files.sync_data(&file).attempt("flush", &self.files, WITNESS)
    }

    fn needs_spare(&self) -> bool {
        let ready = self.spare.as_ref().is_some_and(|spare| spare.sectors >= sectors_of(&self.config));
        !ready && !self.spare_failed && self.head.next > self.head.sectors / 2
    }

    fn grow_spare(&mut self) -> Result<(), Failure> {
        let number = self.next_segment;
        let keys = SegmentKeys::of(&self.store, number);
        let mut spare = match self.spare.take() {
            Some(spare) => spare,
            None => make(&mut self.files, number)?,
        };
        // Twice the last frame at least, so that the spare is ready before the second half of the segment is used.
        let some = FILL_SECTORS.max(2 * wide(self.sectors.len() / SECTOR));
        let sectors = sectors_of(&self.config).min(spare.sectors + some);
        let result = fill(&mut self.files, &keys, &mut spare, sectors).and_then(|()| {
            let name = segment::unfinished_name(number);
            self.files.sync_data(&spare.file).attempt("flush", &self.files, &name)
        });
        self.spare = Some(spare);
        result
    }

    /// Removes every file of this engine but the head, the witness and the lock. What cannot be removed is ignored
    /// by its number, and tried again when the store is opened next.
    fn remove_others(&mut self) {
        let names = match self.files.list().attempt("list", &self.files, "") {
            Ok(names) => names,
            Err(failure) => return report(Err(failure)),
        };
        for name in names {
            let remove = match segment::kind(&name) {
                segment::Kind::Segment(number) => number != self.head.number,
                segment::Kind::Unfinished => true,
                segment::Kind::Own | segment::Kind::Foreign => false,
            };
            if remove {
                report(self.files.remove(&name).attempt("remove", &self.files, &name));
            }
        }
        report(self.files.sync_dir().attempt("flush", &self.files, ""));
    }
}

fn record(write: Write) -> (RecordName, Content) {
    let name = RecordName::of(write.table, &write.key);
    let content = match write.value {
        Some(value) => Content::Put { key: write.key, value },
        None => Content::Removal { key: write.key },
    };
    (name, content)
}

fn commit_error(failure: Failure) -> CommitError {
    CommitError::Io { action: failure.action, path: failure.path, reason: failure.source.to_string() }
}

/// The same failure, met while opening.
pub(super) fn open_error(failure: Failure) -> OpenError {
    OpenError::Io { action: failure.action, path: failure.path, source: failure.source }
}

pub(super) fn report(result: Result<(), Failure>) {
    if let Err(failure) = result {
        tracing::warn!(%failure, "the journal goes on without it");
    }
}

/// The directory, for messages.
pub(super) fn directory<F: Directory>(files: &F) -> PathBuf {
    files.path("")
}
