//! The enumerator itself: what it lists, and that it misses nothing of what it should.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;

use crate::storage::directory::{
    Directory,
    enumerate::{EXHAUSTIVE, Medium},
    simulated::{Fail, Image, Operation, SECTOR, Simulated},
};

fn medium(files: &Simulated) -> Medium {
    let mut medium = Medium::default();
    files.operations().iter().for_each(|operation| medium.apply(operation));
    medium
}

fn images(medium: &Medium) -> BTreeSet<Image> {
    let states = medium.states(EXHAUSTIVE, 0, 0);
    assert!(states.all);
    let images: BTreeSet<_> = states.crashes.iter().map(|crash| medium.image(crash)).collect();
    assert_eq!(images.len(), states.crashes.len(), "no state comes twice");
    images
}

fn file(name: &str, content: &[u8]) -> Image {
    Image::from([(name.to_owned(), content.to_vec())])
}

/// A file of `sectors` sectors of `1`, durable under the name `a`.
fn durable(sectors: usize) -> (Simulated, usize) {
    let mut files = Simulated::default();
    let a = files.create("a").unwrap();
    files.write_at(&a, 0, &vec![1; sectors * SECTOR]).unwrap();
    files.sync_data(&a).unwrap();
    files.sync_dir().unwrap();
    (files, a)
}

#[test]
fn each_sector_that_was_written_over_is_old_or_new_by_itself() {
    let (mut files, a) = durable(3);
    assert_eq!(images(&medium(&files)), BTreeSet::from([file("a", &[1; 3 * SECTOR])]));
    files.write_at(&a, 0, &[2; 3 * SECTOR]).unwrap();
    let expected = (0..8).map(|bits| {
        let sector = |at: usize| [1 + (bits >> at & 1) as u8; SECTOR];
        file("a", &[sector(0), sector(1), sector(2)].concat())
    });
    assert_eq!(images(&medium(&files)), expected.collect());
    files.sync_data(&a).unwrap();
    assert_eq!(images(&medium(&files)), BTreeSet::from([file("a", &[2; 3 * SECTOR])]));
}

#[test]
fn two_writes_of_a_sector_leave_three_contents_and_never_the_second_without_the_first() {
    let (mut files, a) = durable(1);
    files.write_at(&a, 0, &[2; 10]).unwrap();
    files.write_at(&a, 20, &[3; 10]).unwrap();
    let mut first = [1; SECTOR];
    first[..10].fill(2);
    let mut second = first;
    second[20..30].fill(3);
    assert_eq!(images(&medium(&files)), [&[1; SECTOR], &first, &second].map(|content| file("a", content)).into());
}

#[test]
fn a_file_that_grew_has_any_length_between_and_its_new_sectors_may_be_zeros_or_stale() {
    let (mut files, a) = durable(1);
    files.write_at(&a, SECTOR as u64, &[2; 700]).unwrap();
    let found = images(&medium(&files));
    let lengths: BTreeSet<_> = found.iter().map(|image| image["a"].len()).collect();
    assert_eq!(lengths, BTreeSet::from([SECTOR, 2 * SECTOR, SECTOR + 700]));
    // The old length; one sector more as written, zeros or stale; two sectors more as each of these.
    assert_eq!(found.len(), 1 + 3 + 7);
    assert!(found.iter().all(|image| image["a"][..SECTOR] == [1; SECTOR]));
}

#[test]
fn a_file_that_was_cut_and_written_again_holds_the_old_or_the_new_or_nothing() {
    let (mut files, a) = durable(1);
    assert_eq!(files.create("a").unwrap(), a, "the same file");
    files.write_at(&a, 0, &[2; SECTOR]).unwrap();
    let contents: BTreeSet<_> = images(&medium(&files)).into_iter().map(|image| image["a"].clone()).collect();
    let full = [[1; SECTOR], [2; SECTOR], [0; SECTOR], [0xA5; SECTOR]].map(Vec::from);
    assert_eq!(contents, full.into_iter().chain([Vec::new()]).collect());
}

#[test]
fn each_entry_of_a_directory_that_was_not_flushed_survives_by_itself() {
    let (mut files, _) = durable(1);
    let b = files.create("b").unwrap();
    files.sync_data(&b).unwrap();
    files.rename("b", "a").unwrap();
    let (old, new) = (vec![1; SECTOR], Vec::new());
    let image = |entries: &[(&str, &Vec<u8>)]| -> Image {
        entries.iter().map(|(name, held)| ((*name).to_owned(), (*held).clone())).collect()
    };
    // Nothing; made; renamed as well; the new name beside the old one.
    let expected = [
        image(&[("a", &old)]),
        image(&[("a", &old), ("b", &new)]),
        image(&[("a", &new)]),
        image(&[("a", &new), ("b", &new)]),
    ];
    assert_eq!(images(&medium(&files)), expected.into());
    files.remove("a").unwrap();
    assert!(images(&medium(&files)).contains(&Image::new()));
    files.sync_dir().unwrap();
    assert_eq!(images(&medium(&files)), BTreeSet::from([Image::new()]));
}

#[test]
fn what_a_failed_flush_left_stays_unknown_until_it_is_written_again_and_reads_as_written_until_its_page_is_dropped() {
    let (mut files, a) = durable(2);
    files.write_at(&a, 0, &[2; 2 * SECTOR]).unwrap();
    files.fail(Fail::At(files.attempts()));
    files.sync_data(&a).unwrap_err();
    assert_eq!(images(&medium(&files)).len(), 4);
    files.sync_data(&a).unwrap();
    assert_eq!(images(&medium(&files)).len(), 4, "a flush that succeeds later says nothing of it");
    let mut dropped = medium(&files);
    assert_eq!(Simulated::running(&dropped).image(), file("a", &[2; 2 * SECTOR]));
    let read: HashSet<_> = (0..40)
        .map(|seed| {
            let mut dropped = dropped.clone();
            dropped.evict(seed);
            assert_eq!(images(&dropped), BTreeSet::from([Simulated::running(&dropped).image()]));
            Simulated::running(&dropped).image()
        })
        .collect();
    assert_eq!(read.len(), 4);
    dropped.apply(&Operation::Write { inode: a, offset: 0, bytes: Bytes::from(vec![3; SECTOR]) });
    dropped.apply(&Operation::Flush { inode: a });
    assert_eq!(images(&dropped).len(), 2, "the one that was written again is known");
}

#[test]
fn names_whose_flush_failed_stay_unknown_until_they_change_again() {
    let (mut files, _) = durable(1);
    files.create("b").unwrap();
    files.create("c").unwrap();
    files.fail(Fail::At(files.attempts()));
    files.sync_dir().unwrap_err();
    files.sync_dir().unwrap();
    assert_eq!(images(&medium(&files)).len(), 4);
    files.remove("b").unwrap();
    files.sync_dir().unwrap();
    assert_eq!(images(&medium(&files)).len(), 2);
}

#[test]
fn ten_sectors_are_tried_one_and_all_and_eleven_are_sampled_by_their_seed_with_the_corners_among_them() {
    let (mut files, a) = durable(11);
    files.write_at(&a, 0, &[2; 10 * SECTOR]).unwrap();
    assert_eq!(images(&medium(&files)).len(), EXHAUSTIVE);
    files.write_at(&a, 10 * SECTOR as u64, &[2; SECTOR]).unwrap();
    let medium = medium(&files);
    let states = medium.states(EXHAUSTIVE, 300, 7);
    assert!(!states.all);
    let images: BTreeSet<_> = states.crashes.iter().map(|crash| medium.image(crash)).collect();
    assert_eq!(images.len(), 300, "as many different ones as were asked for");
    for corner in [[1; 11 * SECTOR], [2; 11 * SECTOR]] {
        assert!(images.contains(&file("a", &corner)));
    }
    let again = medium.states(EXHAUSTIVE, 300, 7);
    assert_eq!(again.crashes, states.crashes);
    assert!(medium.states(EXHAUSTIVE, 300, 8).crashes != states.crashes);
}
