//! The directory's state is cut at every operation of a run, in every way that an unflushed part can survive.

use super::simulated::{self, Crash, Image, Medium, Model, Random, Simulated, apply, held};

/// What a run must leave: from how many operations on this was released, and when its batch had begun.
struct Step {
    begun: usize,
    released: usize,
    model: Model,
}

/// A run of `batches` batches with work between them, as operations and steps.
fn run(files: &Simulated, batches: usize, keys: usize) -> Vec<Step> {
    let mut random = Random(0xAD417);
    let mut log = simulated::open(files).expect("opens");
    let mut model = Model::new();
    let mut steps = vec![Step { begun: 0, released: files.done(), model: model.clone() }];
    for number in 0..batches {
        let batch = random.batch(10, keys);
        apply(&mut model, &batch);
        let begun = files.done();
        log.commit(batch).expect("no fault is injected");
        steps.push(Step { begun, released: files.done(), model: model.clone() });
        log.tidy();
        match random.below(8) {
            0 => log.seal(),
            1 | 2 => {
                for _ in 0..random.below(6) {
                    if log.has_work() {
                        log.work();
                    }
                }
            }
            _ => {}
        }
        if number % 97 == 96 {
            log.reopen().expect("no fault is injected");
        }
    }
    steps
}

/// Opens what a crash left and checks that it is one of what it may be.
fn check(image: &Image, may_be: &[&Model], context: &str) {
    let files = Simulated::holding(image);
    let log = simulated::open(&files).unwrap_or_else(|error| panic!("{context}: {error}"));
    let (found, bad) = held(&log);
    assert_eq!(bad, [], "{context}");
    assert!(may_be.contains(&&found), "{context}: neither the last released batch nor the one in flight");
}

fn may_be(steps: &[Step], cut: usize) -> Vec<&Model> {
    let released = steps.iter().rposition(|step| step.released <= cut);
    let empty = released.is_none().then_some(&steps[0]);
    let first = released.unwrap_or(0);
    let allowed = steps[first..].iter().enumerate().take_while(|(index, step)| *index == 0 || step.begun < cut);
    allowed.map(|(_, step)| step).chain(empty).map(|step| &step.model).collect()
}

#[test]
fn l9_2_a_crash_at_any_operation_leaves_every_released_batch_and_each_batch_whole_or_not_at_all() {
    let files = Simulated::default();
    let steps = run(&files, 300, 25);
    let operations = files.operations();
    let segments = operations.iter().filter(|op| matches!(op, simulated::Operation::Rename { .. })).count();
    let removed = operations.iter().filter(|op| matches!(op, simulated::Operation::Remove { .. })).count();
    assert!(segments > 30 && removed > 20, "{segments} segments, {removed} removed: the run has too few changes");
    let mut medium = Medium::default();
    let mut states = 0;
    for cut in 0..=operations.len() {
        let allowed = may_be(&steps, cut);
        assert!(allowed.len() <= 2);
        for crash in Crash::ALL {
            check(&medium.crash(crash), &allowed, &format!("cut at {cut}, {crash:?}"));
            states += 1;
        }
        if let Some(operation) = operations.get(cut) {
            medium.apply(operation);
        }
    }
    println!("{states} crash states of {} operations, {segments} segments", operations.len());
    assert!(states > 8_000, "{states}");
}

#[test]
fn l9_4_a_crash_while_opening_after_a_crash_loses_nothing_either() {
    let files = Simulated::default();
    let steps = run(&files, 60, 25);
    let operations = files.operations();
    let mut medium = Medium::default();
    let mut states = 0;
    for (cut, operation) in operations.iter().enumerate() {
        if cut % 17 == 0 {
            let allowed = may_be(&steps, cut);
            for first in [Crash::Lost, Crash::Whole, Crash::Torn(9)] {
                let image = medium.crash(first);
                let files = Simulated::holding(&image);
                simulated::open(&files).expect("opens");
                let mut second = Medium::holding(&image);
                let opening = files.operations();
                for at in 0..=opening.len() {
                    for crash in Crash::ALL {
                        check(&second.crash(crash), &allowed, &format!("{cut}, {first:?}, then {at}, {crash:?}"));
                        states += 1;
                    }
                    if let Some(operation) = opening.get(at) {
                        second.apply(operation);
                    }
                }
            }
        }
        medium.apply(operation);
    }
    println!("{states} states of a crash while opening");
    assert!(states > 3_000, "{states}");
}
