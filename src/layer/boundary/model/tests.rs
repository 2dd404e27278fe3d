use std::collections::BTreeMap;

use super::{
    Fault, Habit, Without,
    world::{Tally, World},
};
use crate::storage::guard::Guard;

/// Steps of one world. Worlds are short and many, since each draws its weather anew.
const STEPS: u64 = 600;

/// Runs worlds of consecutive seeds up to the first fault.
fn run(without: Without, first_seed: u64, worlds: u64) -> (Tally, Option<(u64, Fault)>) {
    let mut total = Tally::default();
    for seed in first_seed..first_seed + worlds {
        let mut world = World::new(seed, without);
        world.compare = without == Without::Nothing;
        let result = world.run(STEPS);
        let tally = world.tally.clone();
        for (k, n) in tally.refused {
            *total.refused.entry(k).or_default() += n;
        }
        total.steps += tally.steps;
        total.presented += tally.presented;
        total.dispatched += tally.dispatched;
        total.removed += tally.removed;
        total.lost += tally.lost;
        total.excused += tally.excused;
        total.undone += tally.undone;
        if let Err(fault) = result {
            return (total, Some((seed, fault)));
        }
    }
    (total, None)
}

#[test]
fn probe() {
    let worlds: u64 = std::env::var("ADMIT_ONE_MODEL_WORLDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let (tally, fault) = run(Without::Nothing, 1, worlds);
    println!("{tally:?} {fault:?}");
    for guard in [
        Guard::Unavailable,
        Guard::TtlBound,
        Guard::Expired,
        Guard::FromTheFuture,
        Guard::BirthMark,
        Guard::BirthRaise,
        Guard::NewBoot,
        Guard::TtlRaise,
        Guard::GreatestSigma,
        Guard::GreatestAdmitted,
        Guard::Floor,
        Guard::FloorStaged,
        Guard::RemovalWait,
        Guard::Spent,
        Guard::SpentTolerance,
        Guard::IncarnationAhead,
        Guard::Window,
    ] {
        let mut faults = BTreeMap::new();
        let mut first = BTreeMap::new();
        for seed in 1..=worlds {
            if let (_, Some((seed, fault))) = run(Without::Guard(guard), seed, 1) {
                *faults.entry(format!("{fault:?}")).or_insert(0) += 1;
                first.entry(format!("{fault:?}")).or_insert(seed);
            }
        }
        println!("{guard:?}: {faults:?} first {first:?}");
    }
    for habit in [Habit::DispatchAfterDurable, Habit::UndoOnFailure, Habit::MarksLandFirst] {
        let mut faults = BTreeMap::new();
        for seed in 1..=worlds {
            if let (_, Some((_, fault))) = run(Without::Habit(habit), seed, 1) {
                *faults.entry(format!("{fault:?}")).or_insert(0) += 1;
            }
        }
        println!("{habit:?}: {faults:?}");
    }
}
