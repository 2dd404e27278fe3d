//! The laws, on each engine.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    cuts::{Depth, Tried, at_each_cut, sum},
    engine::{Engine, held},
    run::{Plan, Run},
};
use crate::storage::{
    directory::{
        enumerate::Medium,
        simulated::{Fail, Operation, Simulated},
    },
    journal::simulated::OnJournal,
};

/// The whole run, cut everywhere.
fn every_cut<E: Engine>() {
    let files = Simulated::default();
    let run = Run::of::<E>(&files, Plan { seed: 0xAD417, batches: 300, fail: Fail::Never });
    let count = |wanted: fn(&Operation) -> bool| run.operations.iter().filter(|done| wanted(done)).count();
    let renames = count(|done| matches!(done, Operation::Rename { .. }));
    let removals = count(|done| matches!(done, Operation::Remove { .. }));
    assert!(renames > 30 && removals > 20, "{renames} renames, {removals} removals: the run has too few changes");
    let landed = AtomicUsize::new(0);
    let tried = sum(at_each_cut(&Medium::default(), &run.operations, |cut, medium| {
        let expected = run.expected(cut);
        medium.each_state(Depth::first(), cut as u64, |crash, image| {
            let any = expected.check::<E>(image, &|| format!("cut at {cut}, {crash:?}"));
            landed.fetch_add(usize::from(any), Ordering::Relaxed);
        })
    }));
    let landed = landed.into_inner();
    println!(
        "{}: every cut: {tried:?}, {landed} with some of the batch in flight; {renames} renames, {removals} removals",
        E::NAME
    );
    assert_eq!(tried.points, run.operations.len() + 1);
    assert!(tried.states > 10 * tried.points && landed > tried.points / 10, "{tried:?}, {landed}");
}

/// A crash, then another while the store opens.
fn while_opening<E: Engine>() {
    let files = Simulated::default();
    let run = Run::of::<E>(&files, Plan { seed: 0xAD418, batches: 60, fail: Fail::Never });
    let tried = sum(at_each_cut(&Medium::default(), &run.operations, |cut, medium| {
        let mut tried = Tried::default();
        if cut % 7 != 0 {
            return tried;
        }
        let expected = run.expected(cut);
        // One state of each crash point here is as good as another: all of them are opened above.
        let states = medium.some_states(4, cut as u64);
        let first = &states[cut / 7 % states.len()];
        let image = medium.image(first);
        let files = Simulated::holding(&image);
        let found = held(&E::open(&files).expect("as above"), &|| format!("{cut}, {first:?}"));
        let opening = files.operations();
        let mut second = Medium::holding(&image);
        for at in 0..=opening.len() {
            tried += second.each_state(Depth::second(), (cut + at) as u64, |crash, image| {
                let context = || format!("{cut}, {first:?}, then {at}, {crash:?}");
                expected.check::<E>(image, &context);
                // What was opened and read before the second crash is there after it.
                if at == opening.len() {
                    let again = E::open(&Simulated::holding(image)).expect("opens");
                    assert!(held(&again, &context) == found, "{}: what was read is gone", context());
                }
            });
            if let Some(operation) = opening.get(at) {
                second.apply(operation);
            }
        }
        tried
    }));
    println!("{}: while opening after a crash: {tried:?}", E::NAME);
    assert!(tried.states > 2_000, "{tried:?}");
}

/// The process dies, not the machine: the next one reads what was never flushed. Then the machine stops as well.
fn after_a_kill<E: Engine>() {
    let files = Simulated::default();
    let run = Run::of::<E>(&files, Plan { seed: 0xAD419, batches: 60, fail: Fail::Never });
    let tried = sum(at_each_cut(&Medium::default(), &run.operations, |cut, medium| {
        if cut % 3 == 0 { killed::<E>(&run, cut, medium) } else { Tried::default() }
    }));
    println!("{}: after a kill: {tried:?}", E::NAME);
    assert!(tried.states > 2_000, "{tried:?}");
}

/// Kills the process after so many operations; then the machine stops while the store is opened, and once it is open.
fn killed<E: Engine>(run: &Run, cut: usize, medium: &Medium) -> Tried {
    let (mut medium, mut tried) = (medium.clone(), Tried::default());
    let files = Simulated::running(&medium);
    let context = || format!("killed at {cut}");
    let found = held(&E::open(&files).unwrap_or_else(|error| panic!("{}: {error}", context())), &context);
    let expected = run.expected(cut);
    expected.check_records::<E>(&found, &context);
    let opening = files.operations();
    for at in 0..=opening.len() {
        tried += medium.each_state(Depth::second(), (cut + at) as u64, |crash, image| {
            let context = || format!("killed at {cut}, then stopped at {at}, {crash:?}");
            if at < opening.len() {
                expected.check::<E>(image, &context);
            } else {
                let again =
                    E::open(&Simulated::holding(image)).unwrap_or_else(|error| panic!("{}: {error}", context()));
                assert!(held(&again, &context) == found, "{}: what was read is gone", context());
            }
        });
        if let Some(operation) = opening.get(at) {
            medium.apply(operation);
        }
    }
    tried
}

/// Each operation of a run fails, one at a time: crashes and kills from the failure on, and again at the end.
fn after_a_failure<E: Engine>() {
    const AFTER: usize = 12;
    let plan = |fail| Plan { seed: 0xAD41A, batches: 14, fail };
    let files = Simulated::default();
    Run::of::<E>(&files, plan(Fail::Never));
    let last = files.attempts();
    let fresh = Simulated::default();
    E::open(&fresh).expect("opens");
    let (mut crashes, mut kills, mut failed, mut reopened) = (Tried::default(), Tried::default(), 0, 0);
    for attempt in fresh.attempts()..last {
        let run = Run::of::<E>(&Simulated::default(), plan(Fail::At(attempt)));
        (failed, reopened) = (failed + run.failed, reopened + run.reopened);
        let cuts: Vec<_> = run.failures().flat_map(|failure| failure.start..failure.end + AFTER).collect();
        let tried = at_each_cut(&Medium::default(), &run.operations, |cut, medium| {
            let (mut crashes, mut kills) = (Tried::default(), Tried::default());
            if !cuts.contains(&cut) && cut < run.operations.len() {
                return (crashes, kills);
            }
            let expected = run.expected(cut);
            crashes += medium.each_state(Depth::second(), (attempt + cut) as u64, |crash, image| {
                expected.check::<E>(image, &|| format!("attempt {attempt} failed, cut at {cut}, {crash:?}"));
            });
            // The pages of a failed flush stay in memory, or are dropped.
            if (attempt + cut).is_multiple_of(12) {
                let mut medium = medium.clone();
                if (attempt + cut).is_multiple_of(24) {
                    medium.evict(cut as u64);
                }
                kills += killed::<E>(&run, cut, &medium);
            }
            (crashes, kills)
        });
        for (crashed, killed) in tried {
            crashes += crashed;
            kills += killed;
        }
    }
    println!("{}: {failed} failed batches, {reopened} reopens: crashes {crashes:?}, kills {kills:?}", E::NAME);
    assert!(failed > 40 && reopened > 3 && crashes.states > 2_000 && kills.states > 2_000);
}

macro_rules! on_each_engine {
    ($($engine:ident: $type:ty),*) => {
        $(mod $engine {
            use super::*;

            #[test]
            fn l9_2_a_crash_at_any_operation_leaves_what_was_released_and_every_record_old_or_new() {
                every_cut::<$type>();
            }

            #[test]
            fn l9_4_a_crash_while_opening_after_a_crash_loses_nothing_either() {
                while_opening::<$type>();
            }

            #[test]
            fn l9_4_what_a_process_read_after_a_kill_outlives_the_machine() {
                after_a_kill::<$type>();
            }

            #[test]
            fn l9_4_a_crash_after_any_failed_operation_leaves_what_was_released() {
                after_a_failure::<$type>();
            }
        })*
    };
}

on_each_engine!(journal: OnJournal);
