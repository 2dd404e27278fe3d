//! The journal's unit of truth: a sector of 512 bytes that says by itself whether it is whole.
//!
//! A disk may keep any subset of the sectors of one unflushed write. So each sector carries a tag over its content and
//! its place, and says to which batch it belongs, at which index, and how many sectors that batch has. The tag's key
//! is of one segment of one store: a sector of another file, or at another place, is never whole here.
//!
//! The tag is NH (the universal hash inside UMAC) on 64-bit words: for a key drawn at random, two given contents share
//! a tag with a chance of at most 2^-64. It guards against accident. It costs some 30 ns a sector where BLAKE3 costs
//! 600, and what a sector carries has a BLAKE3 checksum of its own besides.

use super::frame::Reader;

/// Bytes in a sector.
pub(super) const SECTOR: usize = 512;
/// Bytes of a frame that a sector carries, after its tag (16) and place (16).
pub(super) const PAYLOAD: usize = SECTOR - TAG - PLACE;
const TAG: usize = 16;
const PLACE: usize = 16;
/// Bytes of fill that tell a sector that a write stopped in from damage, which ends so with a chance of 2^-128.
const CUT_TAIL: usize = 16;

/// What binds data to one segment of one store.
pub(super) struct SegmentKeys {
    /// The key of the checksums of frames and records.
    pub(super) checksum: [u8; 32],
    /// What a sector of this segment holds before it is written. Not zeros, so that a medium that zeroes a sector
    /// does not make it look unwritten.
    pub(super) fill: [u8; SECTOR],
    /// A word for each word under the tag: the place and payload, the sector's number, and one zero.
    tag: [u64; (SECTOR - TAG) / 8 + 2],
}

impl SegmentKeys {
    /// The keys of segment `number` of `store`.
    pub(super) fn of(store: &[u8; 16], number: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("admit-one 2026 journal format 1 segment keys");
        hasher.update(store).update(&number.to_le_bytes());
        let mut output = hasher.finalize_xof();
        let mut keys = Self { checksum: [0; 32], fill: [0; SECTOR], tag: [0; (SECTOR - TAG) / 8 + 2] };
        output.fill(&mut keys.checksum);
        output.fill(&mut keys.fill);
        for word in &mut keys.tag {
            let mut bytes = [0; 8];
            output.fill(&mut bytes);
            *word = u64::from_le_bytes(bytes);
        }
        keys
    }

    /// The tag of a sector's place and payload (496 bytes) at sector `number` of the segment.
    fn tag(&self, content: &[u8], number: u64) -> [u8; TAG] {
        let (key, _) = self.tag.as_chunks::<2>();
        let (words, _) = content.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let mut sum = 0_u128;
        for ([low, high], [first, second]) in pairs.iter().zip(key) {
            let low = u64::from_le_bytes(*low).wrapping_add(*first);
            let high = u64::from_le_bytes(*high).wrapping_add(*second);
            sum = sum.wrapping_add(u128::from(low).wrapping_mul(u128::from(high)));
        }
        if let Some([first, second]) = key.last() {
            sum = sum.wrapping_add(u128::from(number.wrapping_add(*first)).wrapping_mul(u128::from(*second)));
        }
        sum.to_le_bytes()
    }
}

/// Where a sector belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of its batch.
    pub(super) batch: u64,
    /// Its index among the batch's sectors.
    pub(super) index: u32,
    /// How many sectors the batch has.
    pub(super) count: u32,
}

/// What a sector turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// As it was before anything was written there.
    Fill,
    /// As it was written, for this place.
    Whole(Place),
    /// Not whole, and still fill at its end: a write stopped inside it.
    Cut,
    /// None of these: damage.
    Damaged,
}

/// Reads one sector, which stands at `number` in its segment. A slice of another length is damage.
pub(super) fn classify(keys: &SegmentKeys, number: u64, bytes: &[u8]) -> Found {
    let Some((tag, content)) = bytes.split_first_chunk::<TAG>() else { return Found::Damaged };
    let Some((place, payload)) = content.split_first_chunk::<PLACE>() else { return Found::Damaged };
    if payload.len() != PAYLOAD {
        return Found::Damaged;
    }
    if bytes == keys.fill {
        return Found::Fill;
    }
    let mut place = Reader(place);
    match (place.u64(), place.u32(), place.u32()) {
        (Some(batch), Some(index), Some(count)) if index < count && *tag == keys.tag(content, number) => {
            Found::Whole(Place { batch, index, count })
        }
        _ if bytes.last_chunk::<CUT_TAIL>() == keys.fill.last_chunk() => Found::Cut,
        _ => Found::Damaged,
    }
}

/// How many sectors `bytes` bytes of a frame take; `None` where a batch could not count them.
pub(super) fn count(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.div_ceil(PAYLOAD)).ok()
}

/// Lays `frame`, whose sectors begin at `first`, out as sectors into `out`, which is overwritten.
pub(super) fn lay_out(keys: &SegmentKeys, batch: u64, first: u64, count: u32, frame: &[u8], out: &mut Vec<u8>) {
    let (payloads, rest) = frame.as_chunks::<PAYLOAD>();
    let mut last = [0; PAYLOAD];
    let last = last
        .get_mut(..rest.len())
        .filter(|last| !last.is_empty())
        .map(|part| part.copy_from_slice(rest))
        .map(|()| last);
    out.resize((payloads.len() + usize::from(last.is_some())) * SECTOR, 0);
    let (sectors, _) = out.as_chunks_mut::<SECTOR>();
    for ((sector, payload), index) in sectors.iter_mut().zip(payloads.iter().chain(&last)).zip(0_u32..) {
        let (tag, content) = sector.split_at_mut(TAG);
        let (place, room) = content.split_at_mut(PLACE);
        let word = u128::from(batch) | u128::from(index) << 64 | u128::from(count) << 96;
        place.copy_from_slice(&word.to_le_bytes());
        room.copy_from_slice(payload);
        tag.copy_from_slice(&keys.tag(content, first + u64::from(index)));
    }
}

/// The payloads of the sectors in `image`, one after the other, whole or not.
pub(super) fn payloads(image: &[u8]) -> Vec<u8> {
    let (sectors, _) = image.as_chunks::<SECTOR>();
    let mut out = Vec::with_capacity(sectors.len() * PAYLOAD);
    sectors.iter().for_each(|sector| out.extend_from_slice(&sector[TAG + PLACE..]));
    out
}

/// The fuzz target of one sector.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "journal_sector",
    run: |data| {
        let keys = SegmentKeys::of(&[7; 16], 3);
        let mut bytes = data.to_vec();
        fuzzing::mend(&keys, &mut bytes, 40);
        let Found::Whole(place) = classify(&keys, 40, &bytes) else { return false };
        assert!(place.index < place.count && bytes.len() == SECTOR);
        assert_ne!(classify(&keys, 41, &bytes), Found::Whole(place), "it is whole at another place too");
        if place.index == 0 {
            let mut out = Vec::new();
            lay_out(&keys, place.batch, 40, place.count, &payloads(&bytes), &mut out);
            assert_eq!(out, bytes, "a sector has two encodings");
        }
        true
    },
    seeds: || {
        let keys = SegmentKeys::of(&[7; 16], 3);
        let mut out = Vec::new();
        lay_out(&keys, 1, 40, 1, b"content", &mut out);
        let mut untagged = out.clone();
        untagged[..TAG].fill(0);
        let mut cut = keys.fill;
        cut[..100].copy_from_slice(&out[..100]);
        vec![out, untagged, keys.fill.to_vec(), cut.to_vec()]
    },
};

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing {
    use super::*;

    /// Puts tags of zeros right, of sectors from `number` on.
    pub(in crate::storage::journal) fn mend(keys: &SegmentKeys, image: &mut [u8], number: u64) {
        let (sectors, _) = image.as_chunks_mut::<SECTOR>();
        for (sector, number) in sectors.iter_mut().zip(number..) {
            let (tag, content) = sector.split_at_mut(TAG);
            if tag == [0; TAG] {
                tag.copy_from_slice(&keys.tag(content, number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> SegmentKeys {
        SegmentKeys::of(&[7; 16], 3)
    }

    #[test]
    fn what_is_laid_out_reads_back_and_each_sector_knows_its_place() {
        let keys = keys();
        for length in [1, 479, 480, 481, 960, 5_000] {
            let frame: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let count = count(frame.len()).expect("small");
            let mut out = vec![9; 3];
            lay_out(&keys, 12, 40, count, &frame, &mut out);
            assert_eq!(out.len(), count as usize * SECTOR);
            for (index, sector) in out.chunks(SECTOR).enumerate() {
                let place = Place { batch: 12, index: index as u32, count };
                assert_eq!(classify(&keys, 40 + index as u64, sector), Found::Whole(place));
            }
            let back = payloads(&out);
            assert_eq!(back[..length], frame);
            assert!(back[length..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_flipped_bit_another_place_or_another_segment_is_damage() {
        let keys = keys();
        let mut out = Vec::new();
        lay_out(&keys, 1, 16, 1, b"content", &mut out);
        for bit in 0..SECTOR * 8 {
            let mut changed = out.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(classify(&keys, 16, &changed), Found::Damaged, "bit {bit}");
        }
        assert_eq!(classify(&keys, 17, &out), Found::Damaged);
        assert_eq!(classify(&SegmentKeys::of(&[7; 16], 4), 16, &out), Found::Damaged);
        assert_eq!(classify(&SegmentKeys::of(&[8; 16], 3), 16, &out), Found::Damaged);
        assert_eq!(classify(&keys, 16, &out[..500]), Found::Damaged);
    }

    #[test]
    fn a_sector_that_a_write_stopped_in_is_told_from_damage() {
        let keys = keys();
        let mut out = Vec::new();
        lay_out(&keys, 1, 16, 1, &[7; PAYLOAD], &mut out);
        for stop in 0..=SECTOR {
            let mut cut = keys.fill;
            cut[..stop].copy_from_slice(&out[..stop]);
            let found = classify(&keys, 16, &cut);
            match stop {
                0 => assert_eq!(found, Found::Fill),
                SECTOR => assert!(matches!(found, Found::Whole(_))),
                1..=496 => assert_eq!(found, Found::Cut, "{stop}"),
                // So close to its end it cannot be told.
                _ => assert_eq!(found, Found::Damaged, "{stop}"),
            }
        }
    }

    #[test]
    fn only_the_segments_own_fill_is_fill() {
        let keys = keys();
        assert_eq!(classify(&keys, 99, &keys.fill), Found::Fill);
        assert_eq!(classify(&keys, 99, &[0; SECTOR]), Found::Damaged);
        assert_eq!(classify(&SegmentKeys::of(&[7; 16], 4), 99, &keys.fill), Found::Damaged);
    }
}
