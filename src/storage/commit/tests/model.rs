//! Group commit against a naive model under random schedules, and a crash between any two records.

use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::storage::commit::fault::{Crash, Fault};

#[derive(Debug, Clone, Copy)]
enum Step {
    Add(u8),
    Remove(u8),
    Look(u8),
    DropTicket(usize),
    /// The engine finishes the commit that waits, if one does.
    Finish,
    /// The same, as a failure.
    Fail(bool),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_u8).prop_map(Step::Add),
        1 => (0..4_u8).prop_map(Step::Remove),
        2 => (0..4_u8).prop_map(Step::Look),
        1 => any::<usize>().prop_map(Step::DropTicket),
        4 => Just(Step::Finish),
        1 => any::<bool>().prop_map(Step::Fail),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Everything a reader of the laws would keep: the durable values, those in flight, those on top.
#[derive(Default)]
struct Model {
    durable: BTreeMap<u8, u64>,
    in_flight: Option<BTreeMap<u8, u64>>,
    gathering: Option<BTreeMap<u8, u64>>,
    closed: bool,
    failures: u64,
}

/// What a ticket must come to: its value, and the batch that it waits for, counted in the model.
struct Expected {
    ticket: Ticket<Option<u64>>,
    value: Option<u64>,
    outcome: Option<bool>,
    on_top: bool,
    in_flight: bool,
}

impl Model {
    fn now(&self) -> BTreeMap<u8, u64> {
        self.gathering.as_ref().or(self.in_flight.as_ref()).unwrap_or(&self.durable).clone()
    }

    fn write(&mut self, change: impl FnOnce(&mut BTreeMap<u8, u64>)) {
        let mut values = self.now();
        change(&mut values);
        self.gathering = Some(values);
    }
}

/// The writer takes what gathers as soon as nothing is in flight.
fn take(model: &mut Model, tickets: &mut [Expected]) {
    if model.in_flight.is_none() && model.gathering.is_some() {
        model.in_flight = model.gathering.take();
        for ticket in tickets.iter_mut().filter(|ticket| ticket.on_top) {
            (ticket.on_top, ticket.in_flight) = (false, true);
        }
    }
}

async fn run(steps: Vec<Step>) {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.stall();
    let mut model = Model::default();
    let mut tickets: Vec<Expected> = Vec::new();
    for step in steps {
        match step {
            Step::Add(key) | Step::Remove(key) | Step::Look(key) => {
                let ticket = member.transition(|counters, stage| match step {
                    Step::Add(_) => Some(counters.add(key, stage).unwrap()),
                    Step::Remove(_) => {
                        counters.remove(key, stage);
                        None
                    }
                    _ => counters.values.get(&key).copied(),
                });
                let mut expected = Expected { ticket, value: None, outcome: None, on_top: false, in_flight: false };
                if model.closed {
                    expected.outcome = Some(false);
                } else {
                    match step {
                        Step::Add(_) => model.write(|values| *values.entry(key).or_insert(0) += 1),
                        Step::Remove(_) => model.write(|values| {
                            values.remove(&key);
                        }),
                        _ => {}
                    }
                    expected.value = model.now().get(&key).copied();
                    expected.on_top = model.gathering.is_some();
                    expected.in_flight = !expected.on_top && model.in_flight.is_some();
                    expected.outcome = (!expected.on_top && !expected.in_flight).then_some(true);
                }
                tickets.push(expected);
            }
            Step::DropTicket(index) if !tickets.is_empty() => {
                let index = index % tickets.len();
                drop(tickets.swap_remove(index));
            }
            Step::DropTicket(_) => {}
            Step::Finish | Step::Fail(_) => {
                let fails = matches!(step, Step::Fail(_));
                if let Some(values) = model.in_flight.take() {
                    if let Step::Fail(closes) = step {
                        store.fail_at(store.begun(), if closes { Fault::Closed } else { Fault::Io });
                        model.closed = closes;
                        model.gathering = None;
                        model.failures += 1;
                    } else {
                        model.durable = values;
                    }
                    for ticket in &mut tickets {
                        if ticket.in_flight || fails && ticket.on_top {
                            ticket.outcome = Some(!fails);
                            (ticket.in_flight, ticket.on_top) = (false, false);
                        }
                    }
                    store.let_through(1);
                }
            }
            Step::Reopen => {
                // The writer does it between two commits: with one in flight, after it.
                if model.in_flight.is_none() {
                    commit.reopen().await.unwrap();
                    model.closed = false;
                }
            }
        }
        settle().await;
        take(&mut model, &mut tickets);
        assert_eq!(values(&member), model.now());
        assert_eq!(durable(&store.records()), model.durable);
        assert_eq!(commit.health().failures, model.failures);
        tickets.retain_mut(|expected| {
            let result = (&mut expected.ticket).now_or_never();
            assert_eq!(result.as_ref().map(|result| result.is_ok()), expected.outcome, "released exactly when durable");
            if let Some(Ok(value)) = result {
                assert_eq!(value, expected.value);
            }
            expected.outcome.is_none()
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn l9_2_every_schedule_of_transitions_and_failures_agrees_with_the_model(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(steps));
    }
}

#[tokio::test]
async fn l9_2_a_crash_between_any_two_records_loses_nothing_released() {
    const RECORDS: u64 = 60;
    for crash in [Crash::Whole, Crash::Torn, Crash::Landed] {
        for record in 0..RECORDS {
            let store = FaultStore::new();
            let (_commit, member) = open(&store).await;
            store.crash_before(record, crash);
            let mut released: BTreeMap<u8, u64> = BTreeMap::new();
            let mut crashed = false;
            for round in 0..RECORDS as usize {
                // One alone, then five that share a batch.
                let keys: Vec<u8> = if round % 2 == 0 { vec![0] } else { vec![1, 2, 3, 4, 5] };
                let tickets: Vec<_> = keys.iter().map(|key| (*key, add(&member, *key))).collect();
                for (key, ticket) in tickets {
                    match ticket.await {
                        Ok(value) => drop(released.insert(key, value)),
                        Err(_) => crashed = true,
                    }
                }
                if crashed {
                    break;
                }
            }
            assert!(crashed, "the run is long enough for every crash");
            let image = durable(&store.records());
            for (key, value) in &released {
                let found = image.get(key).copied().unwrap_or(0);
                assert!(found == *value || crash != Crash::Whole && found == value + 1, "{crash:?} at {record}");
            }
            // The process that starts on the image goes on from there.
            let (_commit, member) = open(&FaultStore::holding(store.records())).await;
            assert_eq!(add(&member, 0).await.unwrap(), image.get(&0).copied().unwrap_or(0) + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l9_2_across_threads_what_is_durable_is_exactly_what_was_released() {
    const TASKS: u16 = 64;
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    (5..400).step_by(7).for_each(|commit| store.fail_at(commit, Fault::Io));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let member = member.clone();
            tokio::spawn(async move {
                let mut released = BTreeMap::new();
                for turn in 0..200 {
                    let key = ((task + turn) % 8) as u8;
                    if add(&member, key).await.is_ok() {
                        *released.entry(key).or_insert(0_u64) += 1;
                    }
                }
                released
            })
        })
        .collect();
    let mut released = BTreeMap::new();
    for task in tasks {
        for (key, count) in task.await.unwrap() {
            *released.entry(key).or_insert(0) += count;
        }
    }
    commit.shutdown().await;
    assert!(commit.health().failures > 0, "the run must meet a failure");
    assert_eq!(durable(&store.records()), released);
    assert_eq!(values(&member), released);
}
