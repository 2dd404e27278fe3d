//! Leases against a naive model that remembers everything ever exposed, under crashes, failures, clock steps,
//! retirement and store loss.

use std::collections::{BTreeMap, HashSet};

use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::storage::commit::{
    Ticket,
    fault::{Crash, Fault},
};

#[derive(Debug, Clone, Copy)]
enum Step {
    Reserve {
        stream: u64,
        count: u8,
        ttl: u64,
    },
    /// The engine finishes the commits that wait.
    Finish,
    Fail,
    /// The process dies before the record-th write from here, in the middle of a batch.
    CrashBefore(u64, Crash),
    /// It dies between two calls.
    CrashNow,
    MoveWall(i64),
    Pass(u64),
    LoseStore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wall = prop_oneof![-10_000_i64..10_000, -100_000_i64..100_000, -5_i64..5, Just(-(TOLERANCE as i64) - 1)];
    let crash = prop_oneof![Just(Crash::Whole), Just(Crash::Torn), Just(Crash::Landed)];
    let step = prop_oneof![
        10 => (0..5_u64, prop_oneof![4 => Just(1), 1 => 1..80_u8], 0..20_000_u64)
            .prop_map(|(stream, count, ttl)| Step::Reserve { stream, count, ttl }),
        6 => Just(Step::Finish),
        1 => Just(Step::Fail),
        1 => (0..6_u64, crash).prop_map(|(record, crash)| Step::CrashBefore(record, crash)),
        1 => Just(Step::CrashNow),
        2 => wall.prop_map(Step::MoveWall),
        2 => (0..40_000_u64).prop_map(Step::Pass),
        1 => Just(Step::LoseStore),
    ];
    prop::collection::vec(step, 1..120)
}

/// Fewer than the streams of a run, so that idle ones are retired.
const STREAMS: usize = 3;

#[derive(Default)]
struct Seen {
    exposed: HashSet<(u64, Reservation)>,
    /// The last exposed of each stream, while its store is the same.
    last: BTreeMap<u64, Reservation>,
    /// How often the stream's process ended or its batch failed since then: each may leave a gap.
    gaps: BTreeMap<u64, u64>,
    waiting: Vec<(u64, Ticket<Result<Reservation, LeaseRefused>>)>,
}

impl Seen {
    /// Takes what is ready: the test's signatures are exposed here.
    fn collect(&mut self) {
        for (stream, mut ticket) in std::mem::take(&mut self.waiting) {
            match (&mut ticket).now_or_never() {
                None => self.waiting.push((stream, ticket)),
                Some(Ok(Ok(reservation))) => self.expose(stream, reservation),
                Some(Ok(Err(LeaseRefused::StreamCapacityExceeded { bound: STREAMS }))) => {}
                Some(Ok(Err(refused))) => panic!("refused: {refused}"),
                Some(Err(_)) => *self.gaps.entry(stream).or_default() += 1,
            }
        }
    }

    fn expose(&mut self, stream: u64, reservation: Reservation) {
        assert!(self.exposed.insert((stream, reservation)), "{reservation:?} of stream {stream} was handed out twice");
        let gaps = self.gaps.insert(stream, 0).unwrap_or(0);
        if let Some(last) = self.last.insert(stream, reservation)
            && last.incarnation == reservation.incarnation
        {
            assert!(reservation.sequence > last.sequence, "in order within an incarnation");
            // Each failed or dropped reservation is a sequence of its own; each crash costs a lease at most.
            assert!(reservation.sequence - last.sequence - 1 <= gaps * LEASE, "the gap is too wide");
        }
    }

    /// The process ended: what was waiting was never exposed.
    fn crash(&mut self) {
        self.waiting.clear();
        for gaps in self.gaps.values_mut() {
            *gaps += 1;
        }
    }
}

async fn restart(node: Node, records: Records, seen: &mut Seen) -> Node {
    seen.crash();
    let node = Node::start(records, node.clock, STREAMS).await;
    node.store.stall();
    node
}

async fn run(steps: Vec<Step>) -> usize {
    let mut seen = Seen::default();
    let mut node = Node::start(Records::new(), Arc::new(ManualClock::new(START)), STREAMS).await;
    node.store.stall();
    for step in steps {
        match step {
            Step::Reserve { stream: number, count, ttl } => {
                for _ in 0..count {
                    seen.waiting.push((number, node.leases.reserve(&stream(number), ttl)));
                }
            }
            Step::Finish | Step::Fail => {
                if matches!(step, Step::Fail) {
                    node.store.fail_at(node.store.begun(), Fault::Io);
                }
                settle().await;
                node.store.let_through(2);
                settle().await;
                node.store.stall();
            }
            Step::CrashBefore(record, crash) => {
                node.store.crash_before(record, crash);
                node.store.resume();
                settle().await;
                seen.collect();
                let records = node.store.records();
                node = restart(node, records, &mut seen).await;
            }
            Step::CrashNow => {
                let records = node.store.records();
                node = restart(node, records, &mut seen).await;
            }
            Step::MoveWall(by) => node.clock.step_wall_to(node.clock.wall().saturating_add_signed(by)),
            Step::Pass(ms) => node.advance(ms),
            Step::LoseStore => {
                node = restart(node, Records::new(), &mut seen).await;
                seen.last.clear();
            }
        }
        settle().await;
        seen.collect();
        assert!(node.leases.streams() <= STREAMS);
    }
    seen.exposed.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn l8_2_no_sequence_is_exposed_twice_whatever_crashes_steps_or_is_lost(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(steps));
    }
}

#[tokio::test]
async fn l8_2_gaps_of_single_reservations_are_at_most_64_at_every_crash_point() {
    // A run of single reservations over two streams writes a lease now and then. Crash before each record, with each
    // outcome of the batch that it is in, and go on.
    for crash in [Crash::Whole, Crash::Torn, Crash::Landed] {
        for record in 0..8 {
            let node = Node::fresh().await;
            node.store.crash_before(record, crash);
            let mut last: BTreeMap<u64, Reservation> = BTreeMap::new();
            'life: loop {
                for number in [1, 2] {
                    match node.leases.reserve(&stream(number), TTL).await {
                        Ok(reservation) => drop(last.insert(number, reservation.unwrap())),
                        Err(_) => break 'life,
                    }
                }
            }
            assert_eq!(node.store.begun(), record + 1, "a record a batch here");
            let node = node.restart().await;
            for (number, last) in last {
                let next = node.reserve(&stream(number)).await.unwrap();
                assert_eq!(next.incarnation, last.incarnation);
                assert!(next.sequence > last.sequence, "{crash:?} before record {record}");
                assert!(next.sequence - last.sequence - 1 <= LEASE, "{crash:?} before record {record}");
            }
        }
    }
}
