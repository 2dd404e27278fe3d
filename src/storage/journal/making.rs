//! Making a segment file: under its unfinished name until all of it is flushed, fill and head included.

use super::{
    JournalConfig,
    frame::{self, Manifest},
    live::{Live, wide},
    log::{SLICE, report},
    sector::{self, SECTOR, SegmentKeys},
    segment::{self, DATA_START, HEAD_BYTES, SegmentHead},
};
use crate::storage::directory::{Attempt, Directory, Failure};

/// Sectors of fill written at once.
pub(super) const FILL_SECTORS: u64 = 512;

/// A segment file being made or appended to.
#[derive(Debug)]
pub(super) struct Segment<File> {
    pub(super) number: u64,
    pub(super) file: File,
    /// The next sector to write.
    pub(super) next: u64,
    /// How many sectors the file has; for a spare, how many are filled so far.
    pub(super) sectors: u64,
}

/// A fresh segment that holds everything.
pub(super) struct Base<File> {
    pub(super) segment: Segment<File>,
    pub(super) previous: Manifest,
    pub(super) next_batch: u64,
}

/// Writes the live set as segment `number`, with an empty frame last, so that every frame's manifest stands twice.
pub(super) fn write_base<F: Directory>(
    files: &mut F,
    config: &JournalConfig,
    store: &[u8; 16],
    number: u64,
    first_batch: u64,
    live: &Live,
) -> Result<Base<F::File>, Failure> {
    let name = segment::unfinished_name(number);
    let keys = SegmentKeys::of(store, number);
    let mut segment = make(files, number)?;
    let (mut plain, mut sectors) = (Vec::new(), Vec::new());
    let (mut previous, mut batch) = (Manifest::default(), first_batch);
    let mut records = live.iter().peekable();
    loop {
        let mut items = Vec::new();
        let mut room = SLICE;
        while room > 0
            && let Some((name, content)) = records.next()
        {
            room = room.saturating_sub(content.encoded_len());
            items.push((*name, content.clone()));
        }
        // A slice and one record are far below what a frame can count.
        let count = sector::count(frame::length(&items, &previous)).unwrap_or(u32::MAX);
        let manifest = frame::encode(&keys.checksum, batch, number, count, &items, &previous, &mut plain);
        previous = manifest.ok_or(std::io::ErrorKind::InvalidInput.into()).attempt("encode", files, &name)?;
        sector::lay_out(&keys, batch, segment.next, count, &plain, &mut sectors);
        files.write_at(&segment.file, segment.next * wide(SECTOR), &sectors).attempt("write to", files, &name)?;
        segment.next += u64::from(count);
        batch = batch.saturating_add(1);
        if items.is_empty() {
            break;
        }
    }
    segment.sectors = segment.next;
    let sectors = segment.next + sectors_of(config);
    fill(files, &keys, &mut segment, sectors)?;
    let head = SegmentHead { store: *store, number, sectors, first_batch, base: number, previous: None };
    publish(files, &keys, &segment, &head)?;
    Ok(Base { segment, previous, next_batch: batch })
}

pub(super) fn make<F: Directory>(files: &mut F, number: u64) -> Result<Segment<F::File>, Failure> {
    let name = segment::unfinished_name(number);
    let file = files.create(&name).attempt("create", files, &name)?;
    Ok(Segment { number, file, next: DATA_START, sectors: DATA_START })
}

/// Fills a segment that is being made up to `sectors`.
pub(super) fn fill<F: Directory>(
    files: &mut F,
    keys: &SegmentKeys,
    segment: &mut Segment<F::File>,
    sectors: u64,
) -> Result<(), Failure> {
    let name = segment::unfinished_name(segment.number);
    let room = sectors.saturating_sub(segment.sectors).min(FILL_SECTORS);
    let bytes = keys.fill.repeat(usize::try_from(room).unwrap_or(0));
    while segment.sectors < sectors {
        let some = (sectors - segment.sectors).min(room);
        let part = usize::try_from(some).ok().and_then(|some| bytes.get(..some * SECTOR)).unwrap_or(&bytes);
        files.write_at(&segment.file, segment.sectors * wide(SECTOR), part).attempt("write to", files, &name)?;
        segment.sectors += some;
    }
    Ok(())
}

/// Gives a segment its head and, once all of it is flushed, its name.
pub(super) fn publish<F: Directory>(
    files: &mut F,
    keys: &SegmentKeys,
    segment: &Segment<F::File>,
    head: &SegmentHead,
) -> Result<(), Failure> {
    let (unfinished, name) = (segment::unfinished_name(segment.number), segment::name(segment.number));
    let bytes = head.encode(keys);
    debug_assert_eq!(bytes.len(), HEAD_BYTES);
    files.write_at(&segment.file, 0, &bytes).attempt("write to", files, &unfinished)?;
    files.sync_data(&segment.file).attempt("flush", files, &unfinished)?;
    files.rename(&unfinished, &name).attempt("rename", files, &unfinished)?;
    files.sync_dir().attempt("flush", files, "")
}

pub(super) fn sectors_of(config: &JournalConfig) -> u64 {
    (config.segment_bytes.max(JournalConfig::SEGMENT_MIN) / wide(SECTOR)).max(DATA_START + 1)
}

/// Removes what there is of a segment that could not be made, if it has no name yet: on a full disk it takes the room that
/// the next attempt needs.
pub(super) fn abandon<F: Directory>(files: &mut F, number: u64) {
    let name = segment::unfinished_name(number);
    match files.list() {
        Ok(names) if !names.contains(&name) => {}
        _ => report(files.remove(&name).attempt("remove", files, &name)),
    }
}
