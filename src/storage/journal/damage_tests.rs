//! Damage to a small journal: it is told, by the names of exactly the records it hit or for the whole store, and never
//! shows as an older value.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    log::Log,
    recovery,
    sector::{PAYLOAD, SECTOR, SegmentKeys},
    segment::{self, Kind, SegmentHead},
    simulated::{self, Image, Model, Random, Simulated, apply, held},
};
use crate::storage::{OpenError, RecordName};

/// A journal of a few segments, and what it holds: sealed if the seed is odd, compacted if it is 2 or 3 modulo 4.
fn journal(seed: u64) -> (Image, Model) {
    let files = Simulated::default();
    let config = if seed % 4 < 2 { simulated::uncompacted() } else { simulated::config() };
    let mut log = super::open::open(files.clone(), config).expect("opens");
    let mut random = Random(seed);
    let mut model = Model::new();
    for _ in 0..25 {
        let batch = random.batch(6, 12);
        apply(&mut model, &batch);
        log.commit(batch).expect("no fault");
        log.tidy();
    }
    // What is left over after a compaction may be damaged without a loss: here it is removed.
    while log.has_work() {
        log.work();
    }
    let batch = random.batch(6, 12);
    apply(&mut model, &batch);
    log.commit(batch).expect("no fault");
    if seed % 2 == 1 {
        log.seal();
    }
    (files.image(), model)
}

/// Where the newest word on each record stands: its file, and its bytes there.
type Places = BTreeMap<RecordName, (String, Vec<Range<usize>>)>;

/// Where records stand, and the places of the last frame and the one before it.
fn places(image: &Image) -> (Places, Vec<(String, Range<usize>)>) {
    let mut places = Places::new();
    let mut frames = Vec::new();
    let heads: Vec<SegmentHead> = image
        .iter()
        .filter(|(name, _)| matches!(segment::kind(name), Kind::Segment(_)))
        .map(|(_, bytes)| SegmentHead::decode(bytes).expect("undamaged"))
        .collect();
    for (index, head) in heads.iter().enumerate() {
        let name = segment::name(head.number);
        let keys = SegmentKeys::of(&head.store, head.number);
        let end = heads.get(index + 1).and_then(|next| next.previous);
        let walk = recovery::walk(head, &keys, &image[&name], end.as_ref()).expect("undamaged");
        for (place, manifest) in walk.manifests() {
            let start = place.start as usize * SECTOR;
            frames.push((name.clone(), start..place.end as usize * SECTOR));
            let mut at = manifest.records_at as usize;
            for entry in &manifest.entries {
                let end = at + entry.length as usize;
                let mut bytes = Vec::new();
                while at < end {
                    let stop = end.min((at / PAYLOAD + 1) * PAYLOAD);
                    let first = start + at / PAYLOAD * SECTOR + (SECTOR - PAYLOAD) + at % PAYLOAD;
                    bytes.push(first..first + stop - at);
                    at = stop;
                }
                places.insert(entry.name, (name.clone(), bytes));
            }
        }
    }
    (places, frames)
}

/// The records whose newest word is not what it was.
fn touched(places: &Places, before: &Image, after: &Image) -> BTreeSet<RecordName> {
    let differs = |name: &String, range: &Range<usize>| {
        before[name][range.clone()] != *after.get(name).and_then(|file| file.get(range.clone())).unwrap_or(&[])
    };
    let touched = places.iter().filter(|(_, (name, ranges))| ranges.iter().any(|range| differs(name, range)));
    touched.map(|(name, _)| *name).collect()
}

/// Opens, and says which records are unreadable after checking that everything else is as it should be.
fn outcome(image: &Image, model: &Model, context: &str) -> Result<BTreeSet<RecordName>, OpenError> {
    let files = Simulated::holding(image);
    let mut log = simulated::open(&files)?;
    let (found, bad) = held(&log);
    let bad: BTreeSet<_> = bad.into_iter().collect();
    let name = |(table, key): &(_, Vec<u8>)| RecordName::of(*table, key);
    for (key, value) in &found {
        assert!(model.get(key) == Some(value), "{context}: an older value came back");
        assert!(!bad.contains(&name(key)), "{context}: readable and unreadable at once");
    }
    for key in model.keys() {
        assert!(found.contains_key(key) || bad.contains(&name(key)), "{context}: a record vanished");
    }
    // Unreadable records are carried along as they are.
    let again = |log: &Log<Simulated>| {
        let (same, still) = held(log);
        assert!(same == found && still.into_iter().collect::<BTreeSet<_>>() == bad, "{context}: changed by copying");
    };
    log.reopen().expect("no fault");
    again(&log);
    again(&simulated::open(&Simulated::holding(&files.image())).expect("the copy is undamaged"));
    Ok(bad)
}

#[test]
fn l11_1_damage_is_told_for_exactly_the_records_it_hit_or_for_the_whole_store() {
    let (mut exact, mut named, mut refused) = (0, 0, 0);
    let mut random = Random(0xDA4A6E);
    for seed in 0..4 {
        let (image, model) = journal(seed);
        let (places, _) = places(&image);
        let files: Vec<&String> = image.keys().filter(|name| *name != "lock").collect();
        let data: Vec<(&String, usize)> = files
            .iter()
            .filter(|name| matches!(segment::kind(name), Kind::Segment(_)))
            .flat_map(|name| (0..image[*name].len() / SECTOR).map(move |sector| (*name, sector)))
            .filter(|(name, sector)| {
                let head = SegmentHead::decode(&image[*name]).expect("undamaged");
                image[*name][sector * SECTOR..][..SECTOR] != SegmentKeys::of(&head.store, head.number).fill
            })
            .collect();
        for case in 0..1_500 {
            let mut damaged = image.clone();
            // Where there is data, mostly: fill is most of the bytes.
            let (name, sector) = data[random.below(data.len())];
            let (name, start) = match random.below(5) {
                0 => (files[random.below(files.len())], None),
                _ => (name, Some(sector * SECTOR + random.below(SECTOR))),
            };
            let file = damaged.get_mut(name).expect("listed");
            let start = start.unwrap_or_else(|| random.below(file.len()));
            let length = match random.below(4) {
                0 => 1,
                1 => 1 + random.below(64),
                2 => 1 + random.below(2 * SECTOR),
                _ => 1 + random.below(16 * SECTOR),
            };
            let length = length.min(file.len() - start);
            let kind = random.below(6);
            match kind {
                0 => file[start] ^= 1 << random.below(8),
                1 => file[start..start + length].fill(0),
                2 => file[start..start + length].fill(0xFF),
                // A sector that belongs elsewhere.
                3 => {
                    let (from, sector) = data[random.below(data.len())];
                    let start = start / SECTOR * SECTOR;
                    file[start..start + SECTOR].copy_from_slice(&image[from][sector * SECTOR..][..SECTOR]);
                }
                _ => file[start..start + length].iter_mut().for_each(|byte| *byte = random.next() as u8),
            }
            let context = format!("journal {seed}, case {case}: kind {kind} in {name} at {start}, {length} bytes");
            match outcome(&damaged, &model, &context) {
                Ok(bad) => {
                    assert_eq!(bad, touched(&places, &image, &damaged), "{context}");
                    if bad.is_empty() { exact += 1 } else { named += 1 }
                }
                Err(OpenError::Damaged { reason, .. }) => {
                    assert!(!reason.is_empty());
                    refused += 1;
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
    }
    println!("6,000 damages: {exact} restored exactly, {named} named, {refused} refused whole");
    assert!(exact > 300 && named > 1_000 && refused > 100, "{exact} {named} {refused}");
}

#[test]
fn l11_4_a_file_that_went_missing_or_was_cut_refuses_the_store() {
    let (image, model) = journal(1);
    let segments: Vec<&String> = image.keys().filter(|name| matches!(segment::kind(name), Kind::Segment(_))).collect();
    assert!(segments.len() > 2);
    for name in &segments {
        let mut less = image.clone();
        less.remove(*name);
        assert!(matches!(outcome(&less, &model, name), Err(OpenError::Damaged { .. })), "{name} removed");
        let mut cut = image.clone();
        let file = cut.get_mut(*name).expect("listed");
        file.truncate(file.len() - SECTOR);
        assert!(matches!(outcome(&cut, &model, name), Err(OpenError::Damaged { .. })), "{name} cut");
    }
    let mut none = image.clone();
    none.retain(|name, _| !segments.contains(&name));
    assert!(matches!(outcome(&none, &model, "all segments"), Err(OpenError::Damaged { .. })));
    // The witness alone holds nothing: without it all records are there.
    let mut unwitnessed = image.clone();
    unwitnessed.remove("store");
    assert_eq!(outcome(&unwitnessed, &model, "no witness").expect("opens"), BTreeSet::new());
    // Segments that have each other's names, or come from another store.
    let mut swapped = image.clone();
    swapped.insert(segments[0].clone(), image[segments[1]].clone());
    assert!(matches!(outcome(&swapped, &model, "swapped"), Err(OpenError::Damaged { .. })));
    let mut mixed = image.clone();
    mixed.insert(segments[0].clone(), journal(1).0[segments[0]].clone());
    assert!(matches!(outcome(&mixed, &model, "mixed"), Err(OpenError::Damaged { .. })));
}

/// What the format cannot tell, and no more than that: sectors turned back into the exact fill that was there before.
#[test]
fn what_turned_back_into_fill_is_told_unless_it_reaches_the_end_of_the_log() {
    let mut silent = 0;
    for seed in [0, 1, 4, 5] {
        let seal = seed % 2 == 1;
        let (image, model) = journal(seed);
        let (places, frames) = places(&image);
        let (last_name, last) = frames.last().expect("not empty").clone();
        let newest = SegmentHead::decode(&image[&last_name]).expect("undamaged");
        let fill = SegmentKeys::of(&newest.store, newest.number).fill;
        let first = frames.iter().find(|(name, _)| *name == last_name).expect("the last one").1.start;
        for start in (first..last.end).step_by(SECTOR) {
            for end in (start + SECTOR..=last.end).step_by(SECTOR) {
                let mut damaged = image.clone();
                let file = damaged.get_mut(&last_name).expect("listed");
                file[start..end].chunks_mut(SECTOR).for_each(|sector| sector.copy_from_slice(&fill));
                let files = Simulated::holding(&damaged);
                let context = format!("journal {seed}, {start}..{end}");
                let Ok(log) = simulated::open(&files) else { continue };
                let (found, bad) = held(&log);
                let bad: BTreeSet<_> = bad.into_iter().collect();
                let told = model.iter().filter(|((table, key), _)| !bad.contains(&RecordName::of(*table, key)));
                if found.iter().eq(told) && bad == touched(&places, &image, &damaged) {
                    continue;
                }
                // Not told. Then it hit the last frame, and what is behind it is fill too.
                assert!(end > last.start, "{context}: not in the last frame");
                silent += 1;
                if seal {
                    // The seal itself holds no record: to lose one silently all of the seal must be gone as well.
                    assert!(start < last.start && end == last.end, "{context}");
                }
            }
        }
    }
    println!("{silent} cases of a lost end that looks like one never written");
    assert!(silent > 0, "then the docs claim too little");
}

#[test]
fn a_frame_whose_head_is_lost_is_read_by_the_copy_in_the_next() {
    let (image, model) = journal(1);
    let (places, frames) = places(&image);
    let with_records = frames.len() - 1;
    for (name, place) in &frames[..with_records] {
        let mut damaged = image.clone();
        damaged.get_mut(name).expect("listed")[place.start..place.start + SECTOR].fill(0);
        let bad = outcome(&damaged, &model, name).expect("the next frame names them");
        assert_eq!(bad, touched(&places, &image, &damaged));
    }
    // A whole frame, between two others.
    for (name, place) in &frames[..with_records] {
        let mut damaged = image.clone();
        damaged.get_mut(name).expect("listed")[place.clone()].fill(0);
        let bad = outcome(&damaged, &model, name).expect("the next frame names them");
        assert_eq!(bad, touched(&places, &image, &damaged));
    }
    // Two in a row: the first one's records have no names any more.
    let inside = frames.windows(3).find(|three| three[0].0 == three[2].0 && three[0].1.len() > 3 * SECTOR);
    let [first, second, _] = inside.expect("three in one segment") else { unreachable!("windows of three") };
    let mut damaged = image.clone();
    damaged.get_mut(&first.0).expect("listed")[first.1.start..second.1.end].fill(0);
    assert!(matches!(outcome(&damaged, &model, "two frames"), Err(OpenError::Damaged { .. })));
}

/// A head may carry any number under a right checksum, whoever wrote it.
#[test]
fn l11_1_the_greatest_batch_number_is_damage_and_no_overflow() {
    let head = SegmentHead { store: [1; 16], number: 1, sectors: 20, first_batch: u64::MAX, base: 1, previous: None };
    let keys = SegmentKeys::of(&head.store, head.number);
    let mut image = head.encode(&keys);
    image.extend_from_slice(&keys.fill.repeat(4));
    assert!(recovery::walk(&head, &keys, &image, None).is_ok());
    image[17 * SECTOR - 1] ^= 1;
    assert!(recovery::walk(&head, &keys, &image, None).is_err());
}

#[test]
fn l11_5_an_unreadable_record_is_discarded_by_its_name_and_nothing_else_changes() {
    for seed in 0..8 {
        let (image, mut model) = journal(seed);
        let (places, _) = places(&image);
        let live = |name: &RecordName| model.keys().any(|(table, key)| RecordName::of(*table, key) == *name);
        let (name, (file, ranges)) = places.iter().find(|(name, _)| live(name)).expect("something lives");
        let mut damaged = image.clone();
        damaged.get_mut(file).expect("it is there")[ranges[0].start] ^= 1;
        let files = Simulated::holding(&damaged);
        let mut log = simulated::open(&files).expect("one record is damaged");
        assert_eq!(held(&log).1, [*name]);
        assert!(log.discard(*name).expect("no fault"));
        assert!(!log.discard(*name).expect("no fault"));
        model.retain(|(table, key), _| RecordName::of(*table, key) != *name);
        while log.has_work() {
            log.work();
        }
        drop(log);
        let log = simulated::open(&Simulated::holding(&files.image())).expect("opens");
        assert_eq!(held(&log), (model, Vec::new()), "seed {seed}");
    }
}
