//! What a sequence of segment images means: pure, and total over any bytes.
//!
//! Segments are pushed oldest first. Each is walked frame by frame; batch numbers must follow on without a gap.
//!
//! - A frame whose head is whole is read by it. A frame whose head is not is read by the copy of its manifest in the
//!   next frame; if that is lost too, no record can be named and the store is refused ([`Damage`]).
//! - A record that is not whole in its frame is *unreadable*, by name, until a later frame says otherwise: the last
//!   writer wins.
//! - In a segment that has a successor nothing is torn: all batches up to the recorded end were released, and what
//!   lies behind that end was not.
//! - In the newest segment the last frame is *torn*, and dropped, iff it is incomplete, each of its sectors is either
//!   whole for it or still fill, but for one that its write may have stopped in, and all behind it is fill. A frame that
//!   has a successor was released.
//!
//! What this cannot tell: a last frame that the medium turned back, in part or whole, into the exact fill that was
//! there before looks torn, or never written. The empty frame that is written when the store goes idle ends that
//! for the frame before it, since batch numbers then have a gap and the names are known.

use std::{
    collections::BTreeMap,
    ops::{
        Bound::{Excluded, Unbounded},
        Range,
    },
};

use super::{
    frame::{self, Head, Manifest},
    live::Live,
    sector::{self, Found, PAYLOAD, SECTOR, SegmentKeys},
    segment::{DATA_START, End, SegmentHead},
};

/// Damage for which no record can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage(pub(super) String);

/// A frame in an image.
struct Frame {
    batch: u64,
    /// Its sectors.
    place: Range<u64>,
    head: Option<Head>,
}

/// The frames of one segment.
pub(super) struct Walk {
    frames: Vec<Frame>,
    number: u64,
    first_batch: u64,
    torn: bool,
}

impl Walk {
    /// The greatest base that a frame states; 0 where none does.
    pub(super) fn base(&self) -> u64 {
        self.frames.iter().filter_map(|frame| frame.head.as_ref()).map(|head| head.base).max().unwrap_or(0)
    }

    /// Where frames are, and what is in them.
    #[cfg(test)]
    pub(super) fn manifests(&self) -> impl Iterator<Item = (Range<u64>, &Manifest)> {
        let of = |frame: &'_ Frame| frame.place.clone();
        self.frames.iter().filter_map(move |frame| Some((of(frame), &frame.head.as_ref()?.own)))
    }

    /// Whether a torn frame was dropped.
    pub(super) fn torn(&self) -> bool {
        self.torn
    }
}

/// Finds the frames of a segment. `end` is what its successor says; without one it is the newest segment.
pub(super) fn walk(head: &SegmentHead, keys: &SegmentKeys, image: &[u8], end: Option<&End>) -> Result<Walk, Damage> {
    let damage = |what: &str| Damage(format!("segment {}: {what}", head.number));
    if u64::try_from(image.len() / SECTOR).ok() != Some(head.sectors) || !image.len().is_multiple_of(SECTOR) {
        return Err(damage("its file does not have the length that it was given"));
    }
    if let Some(end) = end
        && (end.sector < DATA_START || end.sector > head.sectors || end.batch.checked_add(1) < Some(head.first_batch))
    {
        return Err(damage("its successor gives it an end that it cannot have"));
    }
    let limit = end.map_or(head.sectors, |end| end.sector);
    let states = classify(keys, image, limit);
    let used = match end {
        Some(end) => end.sector,
        None => states.iter().rposition(|state| *state != Found::Fill).map_or(DATA_START, |last| at(last) + 1),
    };
    let anchors = anchors(&states, limit).ok_or_else(|| damage("its sectors contradict each other"))?;

    let (mut frames, mut torn) = (Vec::new(), false);
    let (mut position, mut batch) = (DATA_START, head.first_batch);
    while position < used {
        if end.is_none() && only_cut(&states, position) {
            torn = true;
            break;
        }
        let frame_head = read_head(keys, image, position).filter(|head| head.own.batch == batch);
        let count = frame_head.as_ref().map(|head| u64::from(head.sectors));
        let anchor = anchors.get(&batch).filter(|anchor| anchor.start == position).map(|anchor| anchor.count);
        let stop = match (count.or(anchor), anchors.range((Excluded(batch), Unbounded)).next(), end) {
            (Some(count), _, _) => position + count,
            (None, Some((next, anchor)), _) if *next - batch == 1 && anchor.start > position => anchor.start,
            (None, None, Some(end)) if end.batch == batch => end.sector,
            _ => return Err(damage(&format!("no frame can be made out at sector {position}"))),
        };
        if stop > limit || stop == position {
            return Err(damage("a frame goes past its end"));
        }
        frames.push(Frame { batch, place: position..stop, head: frame_head });
        position = stop;
        batch = batch.checked_add(1).ok_or_else(|| damage("its batch numbers are used up"))?;
    }
    if let Some(end) = end
        && (batch.checked_sub(1) != Some(end.batch) || position != end.sector)
    {
        return Err(damage("its batches do not end where its successor says"));
    }
    if end.is_none()
        && !torn
        && let Some(last) = frames.last()
        && is_torn(keys, image, last, &states)
    {
        frames.pop();
        torn = true;
    }
    Ok(Walk { frames, number: head.number, first_batch: head.first_batch, torn })
}

/// Where whole sectors say that a batch is.
struct Anchor {
    start: u64,
    count: u64,
}

/// The place of a state in [`classify`]'s answer.
fn at(index: usize) -> u64 {
    DATA_START + super::live::wide(index)
}

fn classify(keys: &SegmentKeys, image: &[u8], limit: u64) -> Vec<Found> {
    let sectors = image.chunks(SECTOR).zip(0..limit).skip(usize::try_from(DATA_START).unwrap_or(usize::MAX));
    sectors.map(|(sector, number)| sector::classify(keys, number, sector)).collect()
}

fn anchors(states: &[Found], limit: u64) -> Option<BTreeMap<u64, Anchor>> {
    let mut anchors = BTreeMap::<u64, Anchor>::new();
    for (index, state) in states.iter().enumerate() {
        let Found::Whole(place) = state else { continue };
        let start = at(index).checked_sub(u64::from(place.index)).filter(|start| *start >= DATA_START)?;
        let count = u64::from(place.count);
        let anchor = anchors.entry(place.batch).or_insert(Anchor { start, count });
        if anchor.start != start || anchor.count != count || start + count > limit {
            return None;
        }
    }
    Some(anchors)
}

/// Whether all that there is from `position` on is one sector that a write stopped in.
fn only_cut(states: &[Found], position: u64) -> bool {
    let rest = states.iter().enumerate().filter(|(index, state)| at(*index) >= position && **state != Found::Fill);
    rest.map(|(_, state)| *state).eq([Found::Cut])
}

fn is_torn(keys: &SegmentKeys, image: &[u8], frame: &Frame, states: &[Found]) -> bool {
    let of_frame = states.iter().enumerate().filter(|(index, _)| frame.place.contains(&at(*index)));
    let (mut fill, mut cut) = (false, false);
    for (_, state) in of_frame {
        match state {
            Found::Fill => fill = true,
            Found::Cut if !cut => (fill, cut) = (true, true),
            Found::Whole(place) if place.batch == frame.batch => {}
            _ => return false,
        }
    }
    // A sector that is fill holds none of the frame, so the frame cannot be complete. One that is cut may lack no more
    // than what fills up the last sector.
    let complete = frame
        .head
        .as_ref()
        .is_some_and(|head| frame::decode_records(&keys.checksum, &head.own, &payload(image, &frame.place)).1);
    fill && !complete
}

fn payload(image: &[u8], place: &Range<u64>) -> Vec<u8> {
    let byte = |sector: u64| usize::try_from(sector).ok().and_then(|sector| sector.checked_mul(SECTOR));
    let bytes = byte(place.start).zip(byte(place.end)).and_then(|(start, end)| image.get(start..end));
    sector::payloads(bytes.unwrap_or(&[]))
}

fn read_head(keys: &SegmentKeys, image: &[u8], position: u64) -> Option<Head> {
    let length = frame::head_length(&payload(image, &(position..position + 1)))?;
    let sectors = u64::try_from(length.div_ceil(PAYLOAD)).ok()?;
    let end = position.checked_add(sectors)?;
    frame::decode_head(&keys.checksum, &payload(image, &(position..end)))
}

/// The records that the pushed segments add up to.
#[derive(Default)]
pub(super) struct Recovery {
    live: Live,
    /// The last batch; its successor must come next.
    last: Option<u64>,
    /// The payload of the last frame, if its head is lost: the next frame must name its records.
    unnamed: Option<Unnamed>,
}

struct Unnamed {
    batch: u64,
    segment: u64,
    checksum: [u8; 32],
    payload: Vec<u8>,
}

impl Recovery {
    /// Takes the frames of the next segment.
    pub(super) fn push(&mut self, walk: Walk, keys: &SegmentKeys, image: &[u8]) -> Result<(), Damage> {
        let Walk { frames, number, first_batch, .. } = walk;
        if self.last.is_some_and(|last| last.checked_add(1) != Some(first_batch)) {
            return Err(Damage(format!("segment {number}: its batches do not follow those before it")));
        }
        self.last = first_batch.checked_sub(1);
        for frame in frames {
            let payload = payload(image, &frame.place);
            self.name_lost(frame.head.as_ref().map(|head| &head.previous))?;
            self.last = Some(frame.batch);
            match frame.head {
                Some(head) => self.apply(&head.own, &keys.checksum, &payload, number),
                None => {
                    let (batch, checksum) = (frame.batch, keys.checksum);
                    self.unnamed = Some(Unnamed { batch, segment: number, checksum, payload });
                }
            }
        }
        Ok(())
    }

    /// The live set and the last batch. With `None` nothing was ever pushed.
    pub(super) fn finish(mut self) -> Result<(Live, Option<u64>), Damage> {
        self.name_lost(None)?;
        Ok((self.live, self.last))
    }

    fn name_lost(&mut self, names: Option<&Manifest>) -> Result<(), Damage> {
        let Some(lost) = self.unnamed.take() else { return Ok(()) };
        let manifest = names.filter(|manifest| manifest.batch == lost.batch).ok_or_else(|| {
            Damage(format!("segment {}: both lists of what batch {} holds are lost", lost.segment, lost.batch))
        })?;
        self.apply(manifest, &lost.checksum, &lost.payload, lost.segment);
        Ok(())
    }

    fn apply(&mut self, manifest: &Manifest, checksum: &[u8; 32], payload: &[u8], segment: u64) {
        let (records, _) = frame::decode_records(checksum, manifest, payload);
        records.into_iter().for_each(|(name, content)| self.live.apply(name, content, segment));
    }
}

/// The fuzz target of the newest segment's sectors, of one that has a successor, and of both in a row. Tags and checksums
/// of zeros are put right first.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "journal_segment",
    run: |data| {
        let (keys, image, sectors) = fuzzing::image(data);
        let of =
            |number, first_batch| SegmentHead { store: [7; 16], number, sectors, first_batch, base: 1, previous: None };
        let head = of(3, 1);
        let newest = walk(&head, &keys, &image, None);
        let restored = newest.and_then(|walk| {
            assert!(walk.frames.iter().is_sorted_by(|one, next| one.place.end <= next.place.start));
            assert!(walk.frames.iter().all(|frame| frame.place.start >= DATA_START && frame.place.end <= sectors));
            // As a segment that another follows it holds the same.
            let last = walk.frames.last().filter(|_| !walk.torn);
            let end = last.map(|last| End { segment: 3, sector: last.place.end, batch: last.batch });
            if let Some(Ok(followed)) = end.map(|end| self::walk(&head, &keys, &image, Some(&end))) {
                assert_eq!(fuzzing::places(&followed), fuzzing::places(&walk));
            }
            let mut recovery = Recovery::default();
            recovery.push(walk, &keys, &image)?;
            recovery.finish()
        });
        // With an end that nobody wrote, which is damage or is not, and never a panic.
        let end = End { segment: 3, sector: u64::from(data.first().copied().unwrap_or(0)) + DATA_START, batch: 2 };
        if let Ok(walk) = walk(&head, &keys, &image, Some(&end)) {
            let mut recovery = Recovery::default();
            let _ = recovery.push(walk, &keys, &image).and_then(|()| recovery.finish());
        }
        let Ok((live, last)) = restored else { return false };
        // A name takes some 40 bytes, and an unreadable record is explained in at most 128.
        assert!(live.held() <= 5 * super::live::wide(image.len()));
        last.is_some_and(|last| last > 0)
    },
    seeds: fuzzing::seeds,
};

#[cfg(any(test, fuzzing))]
mod fuzzing {
    use super::*;

    /// The most sectors after the head's that an input stands for.
    const SECTORS: usize = 64;

    pub(super) fn places(walk: &Walk) -> Vec<(u64, Range<u64>)> {
        walk.frames.iter().map(|frame| (frame.batch, frame.place.clone())).collect()
    }

    /// A segment's file that has `data` from its first frame on, and fill behind it.
    pub(super) fn image(data: &[u8]) -> (SegmentKeys, Vec<u8>, u64) {
        let keys = SegmentKeys::of(&[7; 16], 3);
        let data = data.get(..SECTORS * SECTOR).unwrap_or(data);
        let start = usize::try_from(DATA_START).unwrap_or(0) * SECTOR;
        let mut image = keys.fill.repeat(start / SECTOR + data.len().div_ceil(SECTOR) + 2);
        image[start..start + data.len()].copy_from_slice(data);
        sector::fuzzing::mend(&keys, &mut image[start..], DATA_START);
        mend_frames(&keys, &mut image);
        let sectors = image.len() / SECTOR;
        (keys, image, super::super::live::wide(sectors))
    }

    /// Puts the checksums right that are zeros, of frames whose sectors say where they are.
    fn mend_frames(keys: &SegmentKeys, image: &mut [u8]) {
        let limit = super::super::live::wide(image.len() / SECTOR);
        for (batch, anchor) in anchors(&classify(keys, image, limit), limit).unwrap_or_default() {
            let place = anchor.start..anchor.start + anchor.count;
            let mut payload = payload(image, &place);
            frame::fuzzing::mend(&keys.checksum, &mut payload);
            let mut out = Vec::new();
            let count = sector::count(payload.len()).unwrap_or(0);
            sector::lay_out(keys, batch, anchor.start, count, &payload, &mut out);
            let start = usize::try_from(anchor.start).unwrap_or(0) * SECTOR;
            // What was not whole stays as it is.
            let sectors = image[start..].chunks_mut(SECTOR).zip(out.chunks(SECTOR)).zip(place);
            for ((sector, mended), number) in sectors {
                if matches!(sector::classify(keys, number, sector), Found::Whole(_)) {
                    sector.copy_from_slice(mended);
                }
            }
        }
    }

    /// Two frames; the same with tags and checksums of zeros; with one torn; with a head lost.
    pub(super) fn seeds() -> Vec<Vec<u8>> {
        let keys = SegmentKeys::of(&[7; 16], 3);
        let laid_out = |frames: [Vec<u8>; 2]| {
            let (mut whole, mut place) = (Vec::new(), DATA_START);
            for (batch, frame) in (1..).zip(frames) {
                let count = sector::count(frame.len()).unwrap_or(0);
                let mut out = Vec::new();
                sector::lay_out(&keys, batch, place, count, &frame, &mut out);
                place += u64::from(count);
                whole.extend_from_slice(&out);
            }
            whole
        };
        let frames = frame::fuzzing::frames(&keys.checksum);
        let mut mending = laid_out(frames.clone().map(frame::fuzzing::unchecked));
        mending.chunks_mut(SECTOR).for_each(|sector| sector[..16].fill(0));
        let whole = laid_out(frames);
        let torn = whole[..whole.len() - 100].to_vec();
        let mut headless = whole.clone();
        headless[40] ^= 1;
        vec![whole, mending, torn, headless]
    }
}
