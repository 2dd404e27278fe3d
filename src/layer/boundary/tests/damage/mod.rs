//! Random bytes over every region of a store's files, through the whole of what stands on them: engine, group commit,
//! boundary and leases (laws L9.1 and L11).
//!
//! A node runs over a real engine on a directory in memory, and leaves streams of every class, some removed, leases, some
//! retired, mail, some taken, a withdrawn namespace, and floors (`history`). Then its files are damaged, and another node
//! opens them. Whatever was hit, the outcome is one of three: everything is restored; exactly the streams of the records
//! that were hit are unavailable, and every other one runs; or the store is refused whole, with the reason. Nothing that
//! was admitted is admitted again, no mail that was taken is shown again, no sequence is handed out twice (`check`).
//!
//! That the check sees what it is for is shown by taking away what it rests on: the guard of unavailable streams, and an
//! engine that forgets what it cannot read, or gives an older value for it.

mod check;
mod engine;
mod history;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use self::{
    check::{Found, check},
    engine::{Broken, ENGINES, Engine},
    history::History,
};
use crate::storage::{
    RecordName,
    guard::{Guard, Guards},
    simulated::{Image, Random},
};

/// What became of a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Everything is there.
    Restored,
    /// What was hit is unavailable, and all else runs.
    Unavailable,
    /// The engine refuses the store.
    RefusedByEngine,
    /// The boundary refuses it, since a record that every stream relies on is hit.
    RefusedByBoundary,
}

/// What must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Violation {
    /// What was admitted is admitted again.
    AdmittedAgain,
    /// Mail that was taken is shown again.
    ShownAgain,
    /// A sequence is handed out twice.
    Reused,
    /// What a mark or a floor refuses is admitted.
    MarkLost,
    /// Other streams are unavailable than those whose records were hit.
    NotExactly,
    /// A stream that was not hit does not run.
    DoesNotRun,
}

/// A piece of a file, and what it is to its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    region: &'static str,
    file: String,
    start: usize,
    end: usize,
}

/// Damages a place at random, and says how.
fn damage(random: &mut Random, image: &mut Image, places: &[Place], at: usize) -> String {
    let place = &places[at];
    // Not fill, which in its own file says that nothing was written: what that is worth, `journal` says.
    let others: Vec<_> = places.iter().filter(|place| place.region != "tail").collect();
    let other = others[random.below(others.len())];
    let image_of_other = image[&other.file].clone();
    let elsewhere = image_of_other[other.start..other.end].to_vec();
    let file = image.get_mut(&place.file).expect("it is there");
    // Within the place where it begins; it may go on past its end.
    let start = place.start + random.below((place.end - place.start).max(1));
    let length = match random.below(4) {
        0 => 1,
        1 => 1 + random.below(64),
        2 => 1 + random.below(1_024),
        _ => 1 + random.below(8_192),
    };
    let end = file.len().min(start + length);
    let kind = random.below(14);
    match kind {
        0 | 1 if start < end => file[start] ^= 1 << random.below(8),
        2 if start < end => file[start..end].fill(0),
        3 if start < end => file[start..end].fill(0xFF),
        // What stands elsewhere, in its own place there or in this one's.
        4 if start < end => file.iter_mut().skip(place.start).zip(elsewhere).for_each(|(byte, other)| *byte = other),
        5 => file.truncate(start),
        6 => file.extend((0..length).map(|_| random.next() as u8)),
        7 => drop(image.remove(&place.file)),
        // Two files that have each other's names, and one in another letter case.
        8 => {
            let swapped = std::mem::replace(file, image_of_other);
            image.insert(other.file.clone(), swapped);
        }
        9 => {
            let file = image.remove(&place.file).expect("it is there");
            image.insert(place.file.to_uppercase(), file);
        }
        _ => file[start..end].iter_mut().for_each(|byte| *byte = random.next() as u8),
    }
    format!("{} of {}, kind {kind} at {start}, {length} bytes", place.region, place.file)
}

/// Counts of outcomes, by region.
type Counts = BTreeMap<&'static str, BTreeMap<Outcome, usize>>;

/// Damages the history's files in `cases` ways and looks at what comes of each: at one region after the other, so that
/// small ones are hit as often as large ones.
async fn run(
    engine: &Engine,
    broken: Broken,
    guards: Guards,
    cases: usize,
) -> (Counts, BTreeMap<Violation, (usize, String)>) {
    let (mut counts, mut violations) = (Counts::new(), BTreeMap::new());
    let mut random = Random(0xDA4A6E);
    for history in [History::new(engine, false).await, History::new(engine, true).await] {
        let places = &history.places;
        let regions: BTreeSet<_> = places.iter().map(|place| place.region).collect();
        let regions: Vec<_> = regions.into_iter().collect();
        for case in 0..cases / 2 {
            let region = regions[case % regions.len()];
            let mut image = history.image.clone();
            let of_region: Vec<_> = (0..places.len()).filter(|at| places[*at].region == region).collect();
            let at = of_region[random.below(of_region.len())];
            let mut context = damage(&mut random, &mut image, places, at);
            // A second place now and then; where files have gone or have other lengths there is one alone.
            let lengths =
                |image: &Image| image.iter().map(|(name, file)| (name.clone(), file.len())).collect::<Vec<_>>();
            if random.below(4) == 0 && lengths(&image) == lengths(&history.image) {
                let mut twice = image.clone();
                let at = random.below(places.len());
                let also = damage(&mut random, &mut twice, places, at);
                if lengths(&twice) == lengths(&image) {
                    (image, context) = (twice, format!("{context}; {also}"));
                }
            }
            let context = format!("{} case {case}: {context}", engine.name);
            let _named = Named(&context);
            let found = check(engine, broken, guards, &history, &image).await;
            let outcome = found.outcome;
            for (violation, detail) in found.violations {
                let seen = violations.entry(violation).or_insert((0, format!("{context}: {detail}")));
                seen.0 += 1;
            }
            *counts.entry(region).or_default().entry(outcome).or_default() += 1;
        }
    }
    (counts, violations)
}

/// Names the case in which something panics.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// Every region of every engine's files.
async fn damaged_everywhere(engine: &Engine) {
    let (counts, violations) = run(engine, Broken::Not, Guards::default(), engine.cases).await;
    let mut all = BTreeMap::<Outcome, usize>::new();
    for (region, outcomes) in &counts {
        println!("{}, {region}: {outcomes:?}", engine.name);
        outcomes.iter().for_each(|(outcome, count)| *all.entry(*outcome).or_default() += count);
    }
    println!("{}, all of {}: {all:?}", engine.name, all.values().sum::<usize>());
    assert!(violations.is_empty(), "{violations:#?}");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), engine.regions, "a region was never hit");
    let least = engine.cases / 40;
    for outcome in [Outcome::Restored, Outcome::Unavailable, Outcome::RefusedByEngine, Outcome::RefusedByBoundary] {
        assert!(all.get(&outcome).is_some_and(|count| *count > least), "{outcome:?}: {all:?}");
    }
}

/// What the check says where something that it rests on is gone.
async fn seen(engine: &Engine, broken: Broken, guards: Guards, expected: &[Violation]) {
    let (_, violations) = run(engine, broken, guards, engine.cases / 5).await;
    for (violation, (count, first)) in &violations {
        println!("{}, {broken:?}, {guards:?}: {violation:?} {count} times, first: {first}", engine.name);
    }
    for violation in expected {
        assert!(violations.contains_key(violation), "{violation:?} was not seen: {violations:#?}");
    }
}

#[tokio::test]
async fn l11_damage_is_restored_or_confined_to_what_it_hit_or_refuses_the_store() {
    for engine in ENGINES {
        damaged_everywhere(engine).await;
    }
}

#[tokio::test]
async fn l11_2_without_unavailability_damage_is_seen_to_admit_again() {
    let without = Guards { without: Some(Guard::Unavailable) };
    for engine in ENGINES {
        seen(engine, Broken::Not, without, &[Violation::AdmittedAgain]).await;
    }
}

#[tokio::test]
async fn l11_1_an_engine_that_forgets_what_it_cannot_read_is_seen() {
    for engine in ENGINES {
        let expected = [Violation::AdmittedAgain, Violation::MarkLost, Violation::NotExactly];
        seen(engine, Broken::Forgets, Guards::default(), &expected).await;
    }
}

#[tokio::test]
async fn l9_1_an_engine_that_gives_older_values_for_what_it_cannot_read_is_seen() {
    for engine in ENGINES {
        let expected = [Violation::AdmittedAgain, Violation::ShownAgain, Violation::Reused, Violation::NotExactly];
        seen(engine, Broken::Older, Guards::default(), &expected).await;
    }
}

/// All files gone: a store lost whole is a new one, whose birth refuses what the old one admitted (law L9.9).
#[tokio::test]
async fn l9_9_a_store_whose_files_are_all_gone_admits_nothing_again() {
    for engine in ENGINES {
        let history = History::new(engine, false).await;
        let found: Found = check(engine, Broken::Not, Guards::default(), &history, &Image::new()).await;
        let again = [Violation::AdmittedAgain, Violation::ShownAgain, Violation::Reused];
        let seen: Vec<_> = found.violations.iter().filter(|(violation, _)| again.contains(violation)).collect();
        assert!(seen.is_empty(), "{}: {seen:?}", engine.name);
        assert_eq!(found.outcome, Outcome::Restored);
    }
}

/// The records whose bytes at `places` are not what they were.
fn hit(places: &[(RecordName, Place)], before: &Image, after: &Image) -> BTreeSet<RecordName> {
    let differs = |place: &Place| {
        let (was, is, range) = (&before[&place.file], after.get(&place.file), place.start..place.end);
        match range == (0..was.len()) {
            true => is != Some(was),
            false => is.and_then(|file| file.get(range.clone())) != Some(&was[range]),
        }
    };
    places.iter().filter(|(_, place)| differs(place)).map(|(name, _)| *name).collect()
}
