//! The ledger against a naive model, step by step, over a disk that loses, tears and lands batches at random.
//!
//! The model knows nothing of records, batches or owners' numbers. It counts which authority acted, and remembers what the
//! law says of each mark and operation when a step is durable at once.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{
    layer::{
        boundary::Staging,
        single_use::core::{Grant, Ledger, Presented, Scans, Standing},
    },
    storage::{
        Key, RecordName, Scan, Table,
        birth::Reading,
        commit::{BatchNumber, BudgetExhausted},
    },
};

/// A disk, and the batch on its way to it. Stands in for group commit.
#[derive(Debug, Default)]
struct Disk {
    durable: BTreeMap<(Table, Key), Bytes>,
    staged: BTreeMap<(Table, Key), Option<Bytes>>,
    transition: Vec<((Table, Key), Option<Bytes>)>,
    batch: BatchNumber,
}

impl Disk {
    fn scans(&self) -> Scans {
        let scan = |of: Table| {
            let records = self.durable.iter().filter(|((table, _), _)| *table == of);
            Scan { records: records.map(|((_, key), value)| (key.clone(), value.clone())).collect(), bad: Vec::new() }
        };
        Scans {
            nonce: scan(Table::Nonce),
            approval: scan(Table::Approval),
            operation: scan(Table::Operation),
            clock: scan(Table::Clock),
        }
    }

    /// The transition is over: what it staged is in the batch.
    fn stage(&mut self) {
        self.staged.extend(self.transition.drain(..));
    }

    /// Lands what `kept` keeps of the batch.
    fn land(&mut self, mut kept: impl FnMut(Table) -> bool) {
        for (place, value) in std::mem::take(&mut self.staged) {
            if kept(place.0) {
                match value {
                    Some(value) => drop(self.durable.insert(place, value)),
                    None => drop(self.durable.remove(&place)),
                }
            }
        }
        self.batch += 1;
    }
}

impl Staging for Disk {
    fn batch(&self) -> BatchNumber {
        self.batch
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        (!self.staged.is_empty()).then_some(self.batch)
    }

    fn put(&mut self, table: Table, key: Key, value: Bytes) -> Result<(), BudgetExhausted> {
        self.transition.push(((table, key), Some(value)));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: Key) {
        self.transition.push(((table, key), None));
    }

    fn rewind(&mut self) {
        self.transition.clear();
    }

    fn unavailable(&self, _: Table, _: &[u8]) -> Option<RecordName> {
        None
    }

    fn unrestorable(&self) -> usize {
        0
    }
}

/// What a model knows of a mark, or of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Reserved(usize),
    Begun(usize),
    Ended,
}

#[derive(Debug, Clone)]
enum Step {
    ReserveUntil { mark: u64 },
    Reserve { marks: [u64; 2] },
    Present { operation: u64, commitment: u64, mark: u64 },
    Begin { grant: prop::sample::Index },
    Finish { grant: prop::sample::Index },
    Rollback { grant: prop::sample::Index },
    Drop { grant: prop::sample::Index },
    Recover,
    Crash,
    Fail,
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<prop::sample::Index>;
    prop_oneof![
        1 => (0..4_u64).prop_map(|mark| Step::ReserveUntil { mark }),
        3 => [0..4_u64, 4..6].prop_map(|marks| Step::Reserve { marks }),
        6 => (0..3_u64, 0..2_u64, 0..6_u64)
            .prop_map(|(operation, commitment, mark)| Step::Present { operation, commitment, mark }),
        6 => any().prop_map(|grant| Step::Begin { grant }),
        4 => any().prop_map(|grant| Step::Finish { grant }),
        2 => any().prop_map(|grant| Step::Rollback { grant }),
        1 => any().prop_map(|grant| Step::Drop { grant }),
        1 => Just(Step::Recover),
        1 => Just(Step::Crash),
        1 => Just(Step::Fail),
    ]
}

const NOW: i64 = T0 + 61;

fn standing() -> Standing {
    let reading = Reading {
        wall: NOW as u64 * 1_000,
        monotonic: Duration::from_secs(61),
        boot: Some(crate::clock::BootId([1; 16])),
    };
    Standing::Live { reading, revoked: None }
}

fn boot(disk: &mut Disk, config: &SingleUseConfig) -> Ledger {
    let (mut ledger, bad) = Ledger::restore(config, Guards::default(), &disk.scans(), Duration::from_secs(61)).unwrap();
    assert!(bad.is_empty());
    let reading =
        Reading { wall: T0 as u64 * 1_000, monotonic: Duration::ZERO, boot: Some(crate::clock::BootId([1; 16])) };
    ledger.begin_epoch(&reading, disk).unwrap();
    disk.stage();
    disk.land(|_| true);
    ledger.released(disk.batch - 1);
    ledger
}

/// A step that is durable at once, as its caller waits for it.
fn durable<R>(ledger: &mut Ledger, disk: &mut Disk, step: impl FnOnce(&mut Ledger, &mut Disk) -> R) -> R {
    let result = step(ledger, disk);
    disk.stage();
    disk.land(|_| true);
    ledger.released(disk.batch - 1);
    result
}

#[derive(Debug, Default)]
struct Model {
    marks: BTreeMap<u64, (Known, Option<u64>)>,
    operations: BTreeMap<u64, (Known, u64, BTreeSet<u64>)>,
    /// Which grants are there: what each stands for.
    grants: BTreeMap<usize, (Option<u64>, Vec<u64>)>,
    next: usize,
    acted: BTreeMap<u64, usize>,
}

impl Model {
    /// Nobody who is there has it.
    fn free(&self, grant: usize) -> bool {
        !self.grants.contains_key(&grant)
    }

    fn reserve(&mut self, operation: Option<u64>, commitment: u64, marks: &[u64]) -> Result<usize, &'static str> {
        if let Some(operation) = operation {
            match self.operations.get(&operation) {
                Some((_, known, _)) if *known != commitment => return Err("conflict"),
                Some((Known::Begun(grant), ..)) => {
                    return Err(if self.free(*grant) { "outcome_unknown" } else { "wait" });
                }
                Some((Known::Ended, ..)) => return Err("recorded"),
                Some((Known::Reserved(_), ..)) | None => {}
            }
        }
        for mark in marks {
            match self.marks.get(mark) {
                None => {}
                Some((Known::Reserved(_), of)) if of.is_some() && *of == operation => {}
                Some((Known::Reserved(grant), of)) if self.free(*grant) && of.is_none() => {}
                Some((_, Some(of))) if operation.is_some_and(|operation| operation != *of) => {
                    return Err("request_binding_mismatch");
                }
                Some(_) => return Err("replayed"),
            }
        }
        self.next += 1;
        let grant = self.next;
        let mut all: BTreeSet<u64> = marks.iter().copied().collect();
        if let Some(operation) = operation {
            if let Some((_, _, held)) = self.operations.get(&operation) {
                all.extend(held);
            }
            self.operations.insert(operation, (Known::Reserved(grant), commitment, all.clone()));
        }
        for mark in &all {
            self.marks.insert(*mark, (Known::Reserved(grant), operation));
        }
        self.grants.insert(grant, (operation, marks.to_vec()));
        Ok(grant)
    }

    /// The marks of a grant that owns what it was given, and has come to `known`.
    fn owned(&self, grant: usize, known: fn(usize) -> Known) -> Option<Vec<u64>> {
        let (operation, marks) = self.grants.get(&grant)?;
        match operation {
            Some(operation) => {
                let (at, _, marks) = self.operations.get(operation)?;
                (*at == known(grant)).then(|| marks.iter().copied().collect())
            }
            None => {
                let at = |mark: &u64| self.marks.get(mark).is_some_and(|(at, _)| *at == known(grant));
                marks.iter().all(at).then(|| marks.clone())
            }
        }
    }

    fn set(&mut self, grant: usize, marks: &[u64], known: Option<Known>) {
        let operation = self.grants.get(&grant).and_then(|(operation, _)| *operation);
        match (operation, known) {
            (Some(operation), Some(known)) => {
                if let Some(entry) = self.operations.get_mut(&operation) {
                    entry.0 = known;
                }
            }
            (Some(operation), None) => drop(self.operations.remove(&operation)),
            (None, _) => {}
        }
        for mark in marks {
            match known {
                Some(known) => drop(self.marks.insert(*mark, (known, operation))),
                None => drop(self.marks.remove(mark)),
            }
        }
    }

    fn rollback(&mut self, grant: usize) {
        if let Some(marks) = self.owned(grant, Known::Reserved) {
            self.set(grant, &marks, None);
        }
        self.grants.remove(&grant);
    }

    fn recover(&mut self) {
        let free = self.operations.iter().filter_map(|(id, (known, _, marks))| match known {
            Known::Reserved(grant) if self.free(*grant) => Some((*id, marks.clone())),
            _ => None,
        });
        let free: Vec<_> = free.collect();
        for (id, marks) in free {
            self.operations.remove(&id);
            self.marks.retain(|mark, _| !marks.contains(mark));
        }
        let grants = &self.grants;
        self.marks.retain(|_, (known, of)| match known {
            Known::Reserved(grant) => of.is_some() || grants.contains_key(grant),
            _ => true,
        });
    }
}

fn mark(seed: u64) -> Mark {
    if seed.is_multiple_of(2) { nonce(seed, T0 + 600) } else { approval(seed, T0 + 600, T0 + 500) }
}

fn presented(seed: u64, commitment: u64) -> Operation {
    operation(seed, commitment, T0 + 500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn l12_2_l12_4_every_step_is_as_the_naive_model_says(steps in prop::collection::vec(steps(), 1..120)) {
        let mut config = SingleUseConfig::new();
        config.greatest_lifetime_s = LIFETIME as u64;
        let (mut disk, mut model) = (Disk::default(), Model::default());
        let mut ledger = boot(&mut disk, &config);
        let mut grants: BTreeMap<usize, Grant> = BTreeMap::new();
        for step in steps {
            let pick = |index: &prop::sample::Index| {
                let ids: Vec<usize> = grants.keys().copied().collect();
                (!ids.is_empty()).then(|| ids[index.index(ids.len())])
            };
            match step {
                Step::ReserveUntil { mark: seed } => {
                    let fresh = match model.marks.get(&seed) {
                        None => true,
                        Some((Known::Reserved(grant), None)) => model.free(*grant),
                        Some(_) => false,
                    };
                    let taken = durable(&mut ledger, &mut disk, |ledger, disk| {
                        ledger.reserve_until(&mark(seed), &standing(), disk)
                    });
                    prop_assert_eq!(taken, Ok(fresh));
                    if fresh {
                        *model.acted.entry(seed).or_default() += 1;
                        model.marks.insert(seed, (Known::Ended, None));
                    }
                }
                Step::Reserve { marks } => {
                    let expected = model.reserve(None, 0, &marks);
                    let granted = durable(&mut ledger, &mut disk, |ledger, disk| {
                        ledger.reserve(&marks.map(mark), &standing(), disk)
                    });
                    match (expected, granted) {
                        (Ok(grant), Ok(granted)) => drop(grants.insert(grant, granted)),
                        (expected, granted) => prop_assert_eq!(expected.err(), granted.err().map(|refusal| refusal.code())),
                    }
                }
                Step::Present { operation, commitment, mark: seed } => {
                    let expected = model.reserve(Some(operation), commitment, &[seed]);
                    let decided = durable(&mut ledger, &mut disk, |ledger, disk| {
                        ledger.present(&presented(operation, commitment), &[mark(seed)], &standing(), disk)
                    });
                    match (expected, decided) {
                        (Ok(grant), Ok(Presented::Run(granted))) => drop(grants.insert(grant, granted)),
                        (Err("wait"), Ok(Presented::Wait)) => {}
                        (Err("recorded"), Ok(Presented::Recorded(outcome))) => {
                            let bytes = Bytes::from(operation.to_be_bytes().to_vec());
                            prop_assert_eq!(outcome, Outcome { kind: OutcomeKind::Receipt, bytes });
                        }
                        (Err(expected), Err(refusal)) => prop_assert_eq!(expected, refusal.code()),
                        (expected, decided) => prop_assert!(false, "{expected:?}, {decided:?}"),
                    }
                }
                Step::Begin { grant } => {
                    let Some(grant) = pick(&grant) else { continue };
                    let expected = model.owned(grant, Known::Reserved);
                    let begun = durable(&mut ledger, &mut disk, |ledger, disk| {
                        ledger.begin(&grants[&grant], &standing(), disk)
                    });
                    prop_assert_eq!(begun.as_ref().err().map(Refusal::code), expected.is_none().then_some("superseded"));
                    if let Some(marks) = expected {
                        // The call is made.
                        model.set(grant, &marks, Some(Known::Begun(grant)));
                        marks.iter().for_each(|mark| *model.acted.entry(*mark).or_default() += 1);
                        if let Some((Some(operation), _)) = model.grants.get(&grant) {
                            *model.acted.entry(1_000 + operation).or_default() += 1;
                        }
                    }
                }
                Step::Finish { grant } => {
                    let Some(grant) = pick(&grant) else { continue };
                    let Some(marks) = model.owned(grant, Known::Begun) else { continue };
                    let seed = model.grants[&grant].0.unwrap_or(0);
                    let outcome =
                        Outcome { kind: OutcomeKind::Receipt, bytes: Bytes::from(seed.to_be_bytes().to_vec()) };
                    let granted = grants.remove(&grant).unwrap();
                    let finished = durable(&mut ledger, &mut disk, |ledger, disk| {
                        ledger.finish(&granted, Some(outcome), disk)
                    });
                    prop_assert!(finished.is_ok());
                    model.set(grant, &marks, Some(Known::Ended));
                    model.grants.remove(&grant);
                }
                Step::Rollback { grant } => {
                    let Some(grant) = pick(&grant) else { continue };
                    let owned = model.owned(grant, Known::Reserved).is_some();
                    let granted = grants.remove(&grant).unwrap();
                    let rolled_back = durable(&mut ledger, &mut disk, |ledger, disk| ledger.rollback(&granted, disk));
                    ledger.leave(granted.owner);
                    prop_assert_eq!(rolled_back, owned);
                    model.rollback(grant);
                }
                Step::Drop { grant } => {
                    // The store refuses, so that nothing is rolled back; the owner is gone all the same.
                    let Some(grant) = pick(&grant) else { continue };
                    ledger.leave(grants.remove(&grant).unwrap().owner);
                    model.grants.remove(&grant);
                }
                Step::Recover => {
                    durable(&mut ledger, &mut disk, |ledger, disk| {
                        let mut after = None;
                        loop {
                            let page = ledger.recover(after, 2, disk);
                            match page.next {
                                Some(next) => after = Some(next),
                                None => break,
                            }
                        }
                    });
                    model.recover();
                }
                Step::Crash => {
                    ledger = boot(&mut disk, &config);
                    grants.clear();
                    model.grants.clear();
                }
                Step::Fail => {
                    // A batch of everything that could be reserved, begun and rolled back, which fails.
                    let owners: Vec<_> = grants.values().cloned().collect();
                    for granted in &owners {
                        let _ = ledger.begin(granted, &standing(), &mut disk);
                        disk.stage();
                    }
                    for seed in 0..6 {
                        if let Ok(granted) = ledger.reserve(&[mark(seed)], &standing(), &mut disk) {
                            ledger.rollback(&granted, &mut disk);
                            ledger.leave(granted.owner);
                        }
                        disk.stage();
                    }
                    disk.staged.clear();
                    disk.batch += 1;
                    ledger.undo();
                }
            }
            for seed in 0..6 {
                let Mark { kind, id, .. } = mark(seed);
                let expected = match model.marks.get(&seed).map(|(known, _)| known) {
                    None => MarkState::Absent,
                    Some(Known::Reserved(_)) => MarkState::Reserved,
                    Some(Known::Begun(_)) => MarkState::Dispatching,
                    Some(Known::Ended) => MarkState::Committed,
                };
                prop_assert_eq!(ledger.state(kind, id), expected, "mark {}", seed);
            }
            prop_assert!(model.acted.values().all(|times| *times <= 1), "{:?}", model.acted);
            let [nonces, approvals, operations] = ledger.sizes();
            prop_assert_eq!((nonces + approvals, operations), (model.marks.len(), model.operations.len()));
        }
        // What is durable is what is in memory.
        let again = boot(&mut disk, &config);
        prop_assert_eq!(again.sizes(), ledger.sizes());
        for seed in 0..6 {
            let Mark { kind, id, .. } = mark(seed);
            prop_assert_eq!(again.state(kind, id), ledger.state(kind, id));
        }
    }
}
