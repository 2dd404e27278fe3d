//! The boundary and the leases over the real engines, whose directory is cut at every operation of a run: what was
//! released stands, nothing is admitted twice, no sequence is handed out twice.
//!
//! Every state that a crash may leave is opened and read. The boundary and the leases see of it no more than its records,
//! so that of the states of one cut with the same records one is put through them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;

use super::{Admission, Answer, BoundaryRefusal, SIGMA, START, carrier, config, stream};
use crate::{
    clock::{Clock, ManualClock},
    layer::{boundary::Request, window::WindowRefusal},
    message::{Class, Incarnation, StreamKey, TransactionDigest},
    storage::{
        commit::{CommitConfig, GroupCommit},
        crash_tests::{
            Image, Medium, Model, OnJournal, Operation, Simulated,
            cuts::{Depth, Tried, at_each_cut},
            engine::{Driven, Engine, held},
        },
        lease::{LEASE, LeaseConfig, Leases, Reservation},
    },
};

const ROUNDS: u64 = 320;
/// A quiet stream begins each so many rounds, and is not heard of again.
const QUIET_EVERY: u64 = 16;
/// When everything in the run was issued: past the birth mark.
const ISSUED: u64 = START + 2 * SIGMA + 1;

/// So many of the newest admissions are presented to every image, which is more than all windows hold.
const NEWEST: usize = 105;
/// Older ones, and full leases, take turns: each comes at one cut of so many.
const TURNS: usize = 10;

/// What one caller was told, and between which operations of the directory.
struct Told<T> {
    what: T,
    begun: usize,
    released: usize,
}

impl<T> Told<T> {
    fn in_flight(&self, cut: usize) -> bool {
        self.begun <= cut && cut < self.released
    }
}

struct Node {
    clock: Arc<ManualClock>,
    admission: Admission,
    leases: Leases,
}

impl Node {
    /// So long after the clock began.
    async fn open<E: Engine>(files: &Simulated, passed: u64, context: &str) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        clock.advance(Duration::from_millis(passed));
        let store = Driven::<E>::open(files).unwrap_or_else(|error| panic!("{context}: {error}"));
        let commit = GroupCommit::open(store, CommitConfig::new()).await.expect("group commit opens");
        assert_eq!(commit.health().unrestorable, [], "{context}");
        let admission = Admission::open(&commit, clock.clone(), config()).await.expect("the boundary opens");
        let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("the leases open");
        Self { clock, admission, leases }
    }

    async fn admit(&self, request: Request) -> Answer {
        self.admission.admit(request).await.expect("no fault is injected")
    }

    /// Staged together, so that one batch may carry them.
    async fn reserve(&self, stream: &StreamKey, count: u64) -> Vec<Reservation> {
        let tickets: Vec<_> = (0..count).map(|_| self.leases.reserve(stream, 900)).collect();
        let reserved = join_all(tickets).await.into_iter();
        reserved.map(|reserved| reserved.expect("no fault is injected").expect("there is room")).collect()
    }
}

fn request(stream: StreamKey, sequence: u64) -> Request {
    let digest = blake3::hash(&[&stream.to_bytes()[..], &sequence.to_be_bytes()].concat());
    Request {
        stream,
        incarnation: Incarnation::new(START, 1),
        sequence,
        digest: TransactionDigest(digest.into()),
        issued_at: ISSUED,
        ttl: 900,
        bytes: 0,
        application: None,
        carrier: carrier(1),
    }
}

/// Refused by the window, which remembers it; not by a mark or a clock, which would refuse anything.
fn remembered(answer: Answer) -> bool {
    matches!(answer, Err(BoundaryRefusal::Window(WindowRefusal::Replay | WindowRefusal::Stale { .. })))
}

#[derive(Default)]
struct Run {
    admissions: Vec<Told<Request>>,
    reservations: Vec<Told<(StreamKey, Reservation)>>,
    /// Presented again while the node ran.
    replays: usize,
    streams: Vec<StreamKey>,
    fresh: Vec<StreamKey>,
    operations: Vec<Operation>,
}

/// What a caller asks for in a round: an admission, and so many sequences.
struct Call {
    stream: StreamKey,
    sequence: u64,
    reservations: u64,
    /// Asks only when the batch of the others is in flight.
    later: bool,
}

fn calls(round: u64, busy: &[StreamKey], quiet: &[StreamKey]) -> Vec<Call> {
    // 3, 0, 1, 2 and so on: an advance over a gap, then what fills it.
    let sequence = round / 4 * 4 + [3, 0, 1, 2][(round % 4) as usize];
    // So many sequences that a round outruns a lease now and then.
    let call = |stream: &StreamKey, sequence, later| Call { stream: *stream, sequence, reservations: 9, later };
    let mut calls: Vec<_> = busy.iter().zip(0..).map(|(stream, at)| call(stream, sequence, at == 2)).collect();
    if round % QUIET_EVERY == QUIET_EVERY / 2
        && let Some(stream) = quiet.get((round / QUIET_EVERY) as usize)
    {
        calls.extend([(5, false), (4, true)].map(|(sequence, later)| call(stream, sequence, later)));
    }
    calls
}

/// Rounds of admissions and reservations that share batches, of which the next gathers while one is written.
async fn run<E: Engine>() -> Run {
    let files = Simulated::default();
    let node = Node::open::<E>(&files, 0, "a new store").await;
    node.clock.advance(Duration::from_millis(3 * SIGMA));
    let busy = [stream(1, Class::E2e), stream(1, Class::Storage), stream(2, Class::E2e)];
    let quiet: Vec<_> = (0..ROUNDS / QUIET_EVERY).map(|at| stream(10 + at as u8, Class::E2e)).collect();
    let mut run = Run { fresh: vec![stream(200, Class::E2e)], ..Run::default() };
    run.streams = busy.iter().chain(&quiet).copied().collect();
    for round in 0..ROUNDS {
        node.clock.advance(Duration::from_millis(1));
        let (files, node) = (&files, &node);
        let told = calls(round, &busy, &quiet).into_iter().map(|call| async move {
            if call.later {
                tokio::task::yield_now().await;
            }
            let begun = files.done();
            let admitted = async {
                let what = request(call.stream, call.sequence);
                node.admit(what).await.expect("it is presented first");
                Told { what, begun, released: files.done() }
            };
            let reserved = async {
                let reserved = node.reserve(&call.stream, call.reservations).await;
                let released = files.done();
                let told = |what| Told { what: (call.stream, what), begun, released };
                reserved.into_iter().map(told).collect::<Vec<_>>()
            };
            futures::join!(admitted, reserved)
        });
        for (admitted, reserved) in join_all(told).await {
            run.admissions.push(admitted);
            run.reservations.extend(reserved);
        }
        for told in run.admissions.iter().step_by(7).rev().take(3) {
            assert!(remembered(node.admit(told.what).await), "{:?} is admitted again", told.what);
            run.replays += 1;
        }
    }
    run.operations = files.operations();
    run
}

/// How often what was checked came about.
#[derive(Debug, Default)]
struct Seen {
    tried: Tried,
    /// Different sets of records, counted at each cut anew.
    images: usize,
    refused: usize,
    in_flight: usize,
    /// Of these, admitted by a node that found nothing of it.
    admitted: usize,
    /// Of these, refused by a node that found it though nobody was told.
    found: usize,
    /// Cuts at which two batches were not released: one being written, one gathering.
    overlapping: usize,
}

impl Run {
    async fn check<E: Engine>(&self, image: &Image, cut: usize, seen: &mut Seen, context: &str) {
        let node = Node::open::<E>(&Simulated::holding(image), 3 * SIGMA + ROUNDS, context).await;
        let turn = |at: usize| (at + cut).is_multiple_of(TURNS);
        let released: Vec<_> = self.admissions.iter().filter(|told| told.released <= cut).collect();
        for (at, told) in released.iter().enumerate() {
            if at + NEWEST < released.len() && !turn(at) {
                continue;
            }
            let again = node.admit(told.what).await;
            assert!(remembered(again), "{context}: {:?} was released, and presented again: {again:?}", told.what);
            seen.refused += 1;
        }
        for told in self.admissions.iter().filter(|told| told.in_flight(cut)) {
            let answers = [node.admit(told.what).await, node.admit(told.what).await];
            assert!(answers.iter().any(Result::is_err), "{context}: {:?} is admitted twice", told.what);
            seen.in_flight += 1;
            seen.admitted += usize::from(answers[0].is_ok());
            seen.found += usize::from(remembered(answers[0]));
        }
        let released = self.reservations.iter().filter(|told| told.released <= cut);
        let known: HashSet<_> = released.map(|told| told.what).collect();
        for (at, stream) in self.streams.iter().enumerate() {
            // Past the lease that the node begins with, for those whose turn it is.
            for next in node.reserve(stream, if turn(at) { LEASE + 6 } else { 1 }).await {
                assert!(!known.contains(&(*stream, next)), "{context}: {next:?} of {stream:?} is handed out twice");
            }
        }
        // It does not refuse everything, not even where its store was born only now.
        node.clock.advance(Duration::from_millis(2 * SIGMA + 1));
        for stream in self.fresh.iter().chain(&self.streams[..1]) {
            let fresh = Request { issued_at: node.clock.wall(), ..request(*stream, 4 * ROUNDS) };
            let answer = node.admit(fresh).await;
            assert!(answer.is_ok(), "{context}: what is new is refused: {answer:?}");
        }
        seen.images += 1;
    }

    /// Opens every state of a cut, and puts each set of records that is found through the boundary and the leases.
    fn cut<E: Engine>(&self, cut: usize, medium: &Medium) -> Seen {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (mut seen, mut models) = (Seen::default(), HashSet::<Model>::new());
        seen.tried = medium.each_state(Depth::first(), cut as u64, |crash, image| {
            let context = || format!("cut at {cut}, {crash:?}");
            let engine = E::open(&Simulated::holding(image)).unwrap_or_else(|error| panic!("{}: {error}", context()));
            if models.insert(held(&engine, &context)) {
                runtime.block_on(self.check::<E>(image, cut, &mut seen, &context()));
            }
        });
        let released = self.admissions.iter().filter(|told| told.in_flight(cut)).map(|told| told.released);
        seen.overlapping = usize::from(released.collect::<BTreeSet<_>>().len() > 1);
        seen
    }
}

impl Seen {
    fn add(mut self, other: Self) -> Self {
        self.tried += other.tried;
        self.images += other.images;
        self.refused += other.refused;
        self.in_flight += other.in_flight;
        self.admitted += other.admitted;
        self.found += other.found;
        self.overlapping += other.overlapping;
        self
    }
}

fn nothing_twice<E: Engine>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let run = runtime.block_on(run::<E>());
    let count = |wanted: fn(&Operation) -> bool| run.operations.iter().filter(|done| wanted(done)).count();
    let renames = count(|done| matches!(done, Operation::Rename { .. }));
    let removals = count(|done| matches!(done, Operation::Remove { .. }));
    assert!(renames > 10 && removals > 5, "{renames} renames, {removals} removals: the run has too few changes");
    assert!(run.replays > 900, "{}", run.replays);
    let seen = at_each_cut(&Medium::default(), &run.operations, |cut, medium| run.cut::<E>(cut, medium));
    let seen = seen.into_iter().fold(Seen::default(), Seen::add);
    println!("{}: {renames} renames, {removals} removals, {seen:?}", E::NAME);
    assert_eq!(seen.tried.points, run.operations.len() + 1);
    assert!(seen.images > seen.tried.points && seen.tried.states > 10 * seen.tried.points, "{seen:?}");
    assert!(seen.admitted > 1_000 && seen.found > 900 && seen.overlapping > 300, "{seen:?}");
}

#[test]
fn l5_5_and_l8_2_whatever_a_crash_leaves_of_the_journal_nothing_is_admitted_or_numbered_twice() {
    nothing_twice::<OnJournal>();
}
