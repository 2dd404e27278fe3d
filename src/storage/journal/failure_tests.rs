//! Writes and flushes that fail, one at a time and all at once.

use super::{
    log::Log,
    simulated::{self, Crash, Fail, Medium, Model, Random, Simulated, apply, held},
};
use crate::storage::{Batch, CommitError, Table, Write};

/// At each of these tests' many points: more are tried by `crash_tests`.
const STATES: usize = 8;

/// Some of the ways in which a crash could leave what was done until now, the corners among them.
fn crashes(files: &Simulated) -> impl Iterator<Item = (Crash, Model)> {
    let mut medium = Medium::default();
    let operations = files.operations();
    operations.iter().for_each(|operation| medium.apply(operation));
    medium.some_states(STATES, operations.len() as u64).into_iter().map(move |crash| {
        let log = simulated::open(&Simulated::holding(&medium.image(&crash))).expect("opens");
        let (model, bad) = held(&log);
        assert_eq!(bad, []);
        (crash, model)
    })
}

fn one(value: &str) -> Batch {
    let value = Some(value.to_owned().into());
    Batch { writes: vec![Write { table: Table::Receiver, key: "one".into(), value }] }
}

#[test]
fn l9_4_the_batch_of_a_failed_flush_is_not_there_for_any_k() {
    const BATCHES: usize = 40;
    for k in 0..BATCHES {
        let files = Simulated::default();
        let mut random = Random(k as u64);
        let mut log = simulated::open(&files).expect("opens");
        let mut model = Model::new();
        for number in 0..BATCHES {
            let batch = random.batch(10, 25);
            if number != k {
                apply(&mut model, &batch);
                log.commit(batch).expect("no fault");
                log.tidy();
                continue;
            }
            files.fail(Fail::NextFlush);
            assert!(matches!(log.commit(batch), Err(CommitError::Io { action: "flush", .. })), "{k}");
            assert!(held(&log).0 == model, "{k}: what failed is not in memory");
            for (crash, found) in crashes(&files) {
                assert!(found == model, "{k}, {crash:?}: right after the failure");
            }
        }
        for (crash, found) in crashes(&files) {
            assert!(found == model, "{k}, {crash:?}: after the later batches");
        }
        log.reopen().expect("no fault");
        assert!(held(&log).0 == model, "{k}: after a reopen");
    }
}

#[test]
fn l9_4_whatever_single_operation_fails_what_was_released_is_there_and_what_failed_is_not() {
    let run = |files: &Simulated, fail: Fail| {
        let mut random = Random(77);
        let mut log = simulated::open(files).expect("opens");
        let mut model = Model::new();
        files.fail(fail);
        let (mut failures, mut reopened) = (0, 0);
        for _ in 0..60 {
            let batch = random.batch(10, 25);
            match log.commit(batch.clone()) {
                Ok(()) => apply(&mut model, &batch),
                Err(CommitError::Io { .. }) => failures += 1,
                Err(CommitError::Closed { .. }) => {
                    log.reopen().expect("one operation failed, and it did");
                    reopened += 1;
                }
                Err(error) => panic!("{error}"),
            }
            log.tidy();
            if random.below(3) == 0 && log.has_work() {
                log.work();
            }
            log.seal();
        }
        (log, model, failures, reopened)
    };
    let files = Simulated::default();
    let first = {
        simulated::open(&files).expect("opens");
        files.attempts()
    };
    let files = Simulated::default();
    run(&files, Fail::Never);
    let attempts = files.attempts();
    let (mut failures, mut reopens) = (0, 0);
    for at in first..attempts {
        let files = Simulated::default();
        let (mut log, model, failed, reopened) = run(&files, Fail::At(at));
        (failures, reopens) = (failures + failed, reopens + reopened);
        for (crash, found) in crashes(&files) {
            assert!(found == model, "attempt {at}, {crash:?}");
        }
        if log.scan(Table::Clock).is_err() {
            log.reopen().expect("one operation failed, and it did");
        }
        assert!(held(&log).0 == model, "attempt {at}");
    }
    println!("{} single failures: {failures} batches failed, {reopens} reopens were needed", attempts - first);
    assert!(failures > 100 && reopens > 10, "{failures} {reopens}");
}

#[test]
fn l9_4_a_store_that_cannot_move_on_is_closed_until_it_is_reopened() {
    let files = Simulated::default();
    let mut log = simulated::open(&files).expect("opens");
    log.commit(one("released")).expect("no fault");
    files.fail(Fail::Always);
    assert!(matches!(log.commit(one("failed")), Err(CommitError::Io { .. })));
    assert!(matches!(log.commit(one("refused")), Err(CommitError::Closed { .. })));
    assert!(matches!(log.commit(Batch::default()), Err(CommitError::Closed { .. })));
    assert!(log.scan(Table::Receiver).is_err());
    assert!(!log.has_work() && !log.unsealed());
    assert!(log.reopen().is_err());
    files.fail(Fail::Never);
    assert!(matches!(log.commit(one("refused")), Err(CommitError::Closed { .. })), "the cause is gone, not the state");
    let value = |log: &Log<Simulated>| held(log).0.into_values().collect::<Vec<_>>();
    log.reopen().expect("the disk is back");
    assert_eq!(value(&log), [b"released"]);
    for (crash, found) in crashes(&files) {
        assert_eq!(found.into_values().collect::<Vec<_>>(), [b"released"], "{crash:?}");
    }
    log.commit(one("again")).expect("open");
    assert_eq!(value(&log), [b"again"]);
}

/// A full disk: what was tried before must not take the room that the operator frees for the next try.
#[test]
fn l9_4_a_reopen_that_fails_leaves_nothing_behind() {
    let files = Simulated::default();
    let mut log = simulated::open(&files).expect("opens");
    log.commit(one("released")).expect("no fault");
    let names = |files: &Simulated| files.image().into_keys().collect::<Vec<_>>();
    let before = names(&files);
    files.fail(Fail::Writes);
    assert!(matches!(log.commit(one("failed")), Err(CommitError::Io { .. })));
    assert_eq!(names(&files), before, "a segment that could not be made");
    for _ in 0..3 {
        assert!(log.reopen().is_err());
        assert_eq!(names(&files), before, "a copy that could not be made");
    }
    let at_rest = Simulated::holding(&files.image());
    at_rest.fail(Fail::Writes);
    assert!(simulated::open(&at_rest).is_err());
    assert_eq!(names(&at_rest), before, "nor one that opening makes");
    files.fail(Fail::Never);
    log.reopen().expect("the disk has room");
    assert_eq!(held(&log).0.into_values().collect::<Vec<_>>(), [b"released"]);
}

#[test]
fn l9_4_a_disk_that_dies_at_any_operation_leaves_every_released_batch_and_the_failed_one_whole_or_not_at_all() {
    let run = |files: &Simulated, fail: Fail| {
        let mut random = Random(78);
        let mut log = simulated::open(files).expect("opens");
        files.fail(fail);
        let (mut model, mut with_failed) = (Model::new(), None);
        for _ in 0..60 {
            let batch = random.batch(10, 25);
            match log.commit(batch.clone()) {
                Ok(()) => apply(&mut model, &batch),
                Err(CommitError::Io { .. }) => {
                    assert!(with_failed.is_none(), "only the first may reach the disk");
                    let mut model = model.clone();
                    apply(&mut model, &batch);
                    with_failed = Some(model);
                }
                Err(CommitError::Closed { .. }) => assert!(log.reopen().is_err()),
                Err(error) => panic!("{error}"),
            }
            log.tidy();
            log.seal();
        }
        (model, with_failed)
    };
    let files = Simulated::default();
    simulated::open(&files).expect("opens");
    let first = files.attempts();
    let files = Simulated::default();
    run(&files, Fail::Never);
    let (mut whole, mut states) = (0, 0);
    for at in first..files.attempts() {
        let files = Simulated::default();
        let (model, with_failed) = run(&files, Fail::From(at));
        for (crash, found) in crashes(&files) {
            states += 1;
            if found != model {
                assert!(Some(found) == with_failed, "attempt {at}, {crash:?}");
                whole += 1;
            }
        }
    }
    println!("{states} states of a disk that died; the failed batch was whole in {whole}");
    assert!(states > 2_000 && whole > 0, "{states} {whole}");
}

#[test]
fn a_spare_that_cannot_be_made_fails_no_batch() {
    let files = Simulated::default();
    let mut log = simulated::open(&files).expect("opens");
    let mut random = Random(1);
    let mut model = Model::new();
    let mut failed = 0;
    for _ in 0..60 {
        let batch = random.batch(10, 25);
        apply(&mut model, &batch);
        log.commit(batch).expect("only the spare fails");
        if log.has_work() {
            files.fail(Fail::Always);
            failed += 1;
        }
        log.tidy();
        files.fail(Fail::Never);
    }
    assert!(failed > 5, "{failed}");
    assert_eq!(held(&log).0, model);
}

#[test]
fn compaction_keeps_the_directory_within_its_bound() {
    let files = Simulated::default();
    let mut log = simulated::open(&files).expect("opens");
    let mut random = Random(5);
    let (mut most, mut live) = (0, 0);
    for _ in 0..1_500 {
        log.commit(random.batch(10, 25)).expect("no fault");
        log.tidy();
        most = most.max(files.bytes());
        live = live.max(held(&log).0.values().map(Vec::len).sum());
    }
    // The floor or twice the live set, then three live sets while a pass goes on, and a few small segments.
    let config = simulated::config();
    let bound = (config.compact_floor_bytes as usize).max(2 * live) + 3 * live + 5 * config.segment_bytes as usize;
    assert!(most < bound, "{most} bytes on disk, live {live}, bound {bound}");
}

/// Failures of any operation, often and one soon after another, with work between batches and crashes anywhere. Until
/// the store is open again a crash may find the batch that closed it, and nothing else that failed.
#[test]
fn l9_4_however_often_operations_fail_no_released_batch_is_lost_and_no_failed_one_comes_back() {
    let (mut failed, mut reopened, mut crashed) = (0, 0, 0);
    for seed in 0..60 {
        let files = Simulated::default();
        let mut random = Random(seed);
        let mut log = simulated::open(&files).expect("opens");
        let mut model = Model::new();
        let mut closing: Option<Model> = None;
        for step in 0..120 {
            if random.below(3) == 0 {
                files.fail(Fail::At(files.attempts() + random.below(12)));
            }
            match random.below(10) {
                0 => log.seal(),
                1..3 if log.has_work() => log.work(),
                _ => {
                    let batch = random.batch(10, 25);
                    let mut after = model.clone();
                    apply(&mut after, &batch);
                    match log.commit(batch) {
                        Ok(()) => model = after,
                        Err(CommitError::Closed { .. }) => {}
                        Err(_) => {
                            failed += 1;
                            closing = Some(after);
                        }
                    }
                    log.tidy();
                }
            }
            if log.scan(Table::Clock).is_ok() {
                closing = None;
                assert!(held(&log).0 == model, "seed {seed}, step {step}");
            }
            if random.below(4) == 0 {
                for (crash, found) in crashes(&files) {
                    crashed += 1;
                    let whole = closing.as_ref().is_some_and(|closing| *closing == found);
                    assert!(found == model || whole, "seed {seed}, step {step}, {crash:?}");
                }
            }
            if log.scan(Table::Clock).is_err() && random.below(2) == 0 && log.reopen().is_ok() {
                reopened += 1;
                closing = None;
            }
        }
    }
    println!("{failed} failed batches, {reopened} reopens, {crashed} crashes");
    assert!(failed > 200 && reopened > 100 && crashed > 5_000, "{failed} {reopened} {crashed}");
}
#[test]
fn l9_4_a_restart_after_a_failure_that_closed_the_store_finds_the_failed_batch_whole_or_not_at_all() {
    let mut random = Random(9);
    for round in 0..200 {
        let files = Simulated::default();
        let mut log = simulated::open(&files).expect("opens");
        let mut model = Model::new();
        for _ in 0..3 {
            let batch = random.batch(10, 25);
            apply(&mut model, &batch);
            log.commit(batch).expect("no fault");
        }
        let batch = random.batch(10, 25);
        let mut landed = model.clone();
        apply(&mut landed, &batch);
        files.fail(Fail::Always);
        log.commit(batch).expect_err("every operation fails");
        for (crash, found) in crashes(&files) {
            assert!(found == model || found == landed, "{round}, {crash:?}");
        }
    }
}
