//! A run of batches on an engine, and what a crash at any of its operations may leave of them.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::engine::{Engine, held};
use crate::storage::{
    Batch, Table, Write,
    directory::simulated::{Fail, Image, Model, Operation, Random, Simulated, apply},
};

const TABLES: [Table; 5] = [Table::Sender, Table::Receiver, Table::Clock, Table::Operation, Table::Nonce];

/// A batch, and between which operations it was in flight.
struct Call {
    batch: Batch,
    begun: usize,
    /// When it was released. A failed batch: when it was sure that nothing of it would ever be there.
    settled: usize,
    failed: bool,
    /// What is there before it.
    before: Arc<Model>,
    /// What is there once it is settled.
    after: Arc<Model>,
}

/// What a run did to the directory, and what it was told.
pub(super) struct Run {
    calls: Vec<Call>,
    pub(super) operations: Vec<Operation>,
    pub(super) failed: usize,
    pub(super) reopened: usize,
}

/// What a run is of.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) batches: usize,
    pub(super) fail: Fail,
}

impl Run {
    /// Runs batches with background work, seals and reopens between them.
    pub(super) fn of<E: Engine>(files: &Simulated, plan: Plan) -> Self {
        let mut random = Random(plan.seed);
        let mut engine = E::open(files).expect("an empty directory is a new store");
        let mut run = Self { calls: Vec::new(), operations: Vec::new(), failed: 0, reopened: 0 };
        files.fail(plan.fail);
        let mut model = Arc::new(Model::new());
        for number in 0..plan.batches {
            let (batch, begun) = (batch(&mut random), files.done());
            let mut after = Model::clone(&model);
            apply(&mut after, &batch);
            let after = Arc::new(after);
            let mut call =
                Call { batch: batch.clone(), begun, settled: 0, failed: false, before: Arc::clone(&model), after };
            if engine.commit(batch).is_err() {
                run.failed += 1;
                (call.failed, call.after) = (true, Arc::clone(&model));
                if engine.scan(Table::Clock).is_err() {
                    engine.reopen().expect("one operation fails, and it did");
                    run.reopened += 1;
                }
            }
            call.settled = files.done();
            model = Arc::clone(&call.after);
            run.calls.push(call);
            engine.tidy();
            match random.below(8) {
                0 => engine.seal(),
                1 | 2 => (0..random.below(6)).for_each(|_| engine.work()),
                _ => {}
            }
            // A failure of what no batch waits for may close the store too.
            if number % 97 == 96 || engine.scan(Table::Clock).is_err() {
                engine.reopen().expect("one operation fails, and it did");
                run.reopened += 1;
            }
            assert!(held(&engine, &|| format!("after batch {number}")) == *model, "{}: batch {number}", E::NAME);
        }
        run.operations = files.operations();
        run
    }

    /// What a crash after so many operations may leave.
    pub(super) fn expected(&self, cut: usize) -> Expected<'_> {
        let call = self.calls.iter().rfind(|call| call.begun < cut);
        match call {
            Some(call) if call.settled <= cut => Expected { before: Arc::clone(&call.after), in_flight: None },
            Some(call) => Expected { before: Arc::clone(&call.before), in_flight: Some(&call.batch) },
            None => Expected::default(),
        }
    }

    /// Between which operations the batches that failed were not settled.
    pub(super) fn failures(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.calls.iter().filter(|call| call.failed).map(|call| call.begun..call.settled)
    }
}

/// What is released, and what may be there beside it.
#[derive(Default)]
pub(super) struct Expected<'a> {
    before: Arc<Model>,
    in_flight: Option<&'a Batch>,
}

impl Expected<'_> {
    /// Opens what a crash left, and checks all of it. Whether there was any of the batch in flight.
    pub(super) fn check<E: Engine>(&self, image: &Image, context: &dyn Fn() -> String) -> bool {
        let files = Simulated::holding(image);
        let engine = E::open(&files).unwrap_or_else(|error| panic!("{}: {error}", context()));
        self.check_records::<E>(&held(&engine, context), context)
    }

    pub(super) fn check_records<E: Engine>(&self, found: &Model, context: &dyn Fn() -> String) -> bool {
        let nothing = Batch::default();
        let writes = &self.in_flight.unwrap_or(&nothing).writes;
        let of = |model: &Model, write: &Write| model.get(&place(write)).cloned();
        let new = |write: &Write| write.value.as_ref().map(|value| value.to_vec());
        // Every record that the batch does not write is as it was released.
        let rest = |model: &Model| {
            let mut rest = model.clone();
            writes.iter().for_each(|write| drop(rest.remove(&place(write))));
            rest
        };
        assert!(rest(found) == rest(&self.before), "{}: what was released is not there as it was", context());
        for write in writes {
            let value = of(found, write);
            let whole = value == of(&self.before, write) || value == new(write);
            assert!(whole, "{}: a record of {:?} is neither old nor new", context(), write.table);
        }
        // A write that changes nothing tells nothing.
        let telling = || writes.iter().filter(|write| of(&self.before, write) != new(write));
        let landed = |write: &&Write| of(found, write) == new(write);
        let any = telling().any(|write| landed(&write));
        let all = telling().all(|write| landed(&write));
        if E::WHOLE_BATCHES {
            assert!(all || !any, "{}: a part of a batch is there", context());
        } else {
            // Floors and marks land before anything that they stand for is removed or overwritten (law L9.2), and an
            // operation's own record before its marks' (law L12.2).
            let clocks = telling().filter(|write| write.table == Table::Clock).all(|write| landed(&write));
            let replaced = |write: &&Write| write.table != Table::Clock && of(&self.before, write).is_some();
            assert!(clocks || !telling().filter(replaced).any(|write| landed(&write)), "{}: order", context());
            let operations = telling().filter(|write| write.table == Table::Operation).all(|write| landed(&write));
            let marks = |write: &&Write| matches!(write.table, Table::Nonce | Table::Approval);
            assert!(operations || !telling().filter(marks).any(|write| landed(&write)), "{}: marks", context());
        }
        any
    }
}

fn place(write: &Write) -> (Table, Vec<u8>) {
    (write.table, write.key.to_vec())
}

/// Up to ten writes over a few keys a table, a fifth of them removals; every value is its own.
fn batch(random: &mut Random) -> Batch {
    let mut writes = BTreeMap::new();
    for _ in 0..1 + random.below(10) {
        let table = TABLES[random.below(TABLES.len())];
        let key = format!("key-{}", random.below(14));
        let mut value = vec![random.below(256) as u8; random.below(1_500)];
        value.extend_from_slice(&random.next().to_le_bytes());
        let value = (random.below(5) > 0).then(|| Bytes::from(value));
        writes.insert((table, key.clone()), Write { table, key: key.into(), value });
    }
    Batch { writes: writes.into_values().collect() }
}
