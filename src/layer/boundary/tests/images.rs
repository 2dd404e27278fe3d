//! The boundary and the leases over the real journal, whose directory is cut at every operation of a run: what was
//! released stands, nothing is admitted twice, no sequence is handed out twice.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join_all;

use super::{Admission, SIGMA, START, config};
use crate::{
    clock::ManualClock,
    identity::KeySigner,
    layer::boundary::Request,
    message::{Class, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases, Reservation},
        simulated::{Crash, Image, Medium, OnSimulated, Operation, Simulated},
    },
};

/// What one caller was told, and between which operations of the directory.
struct Told<T> {
    what: T,
    begun: usize,
    released: usize,
}

struct Node {
    clock: Arc<ManualClock>,
    admission: Admission,
    leases: Leases,
}

impl Node {
    async fn open(files: &Simulated, context: &str) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store = OnSimulated::open(files).unwrap_or_else(|error| panic!("{context}: {error}"));
        let commit = GroupCommit::open(store, CommitConfig::new()).await.expect("group commit opens");
        assert_eq!(commit.health().unrestorable, [], "{context}");
        let admission = Admission::open(&commit, clock.clone(), config()).await.expect("the boundary opens");
        let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("the leases open");
        Self { clock, admission, leases }
    }
}

fn streams() -> Vec<StreamKey> {
    let did = |seed| KeySigner::from_secret(&[seed; 32]).unwrap().key();
    let stream = |seed, class| StreamKey { network: NetworkId(1), origin: did(seed), destination: did(9), class };
    vec![stream(1, Class::E2e), stream(1, Class::Storage), stream(2, Class::E2e)]
}

fn request(stream: StreamKey, sequence: u64) -> Request {
    let digest = blake3::hash(&[&stream.to_bytes()[..], &sequence.to_be_bytes()].concat());
    Request {
        stream,
        incarnation: Incarnation::new(START, 1),
        sequence,
        digest: TransactionDigest(digest.into()),
        issued_at: START + 2 * SIGMA + 1,
        ttl: 900,
    }
}

struct Run {
    admissions: Vec<Told<Request>>,
    reservations: Vec<Told<Reservation>>,
    operations: Vec<Operation>,
}

/// Rounds of admissions and reservations that share batches, with gaps that are filled late.
async fn run(rounds: u64) -> Run {
    let files = Simulated::default();
    let node = Node::open(&files, "a new store").await;
    node.clock.advance(Duration::from_millis(3 * SIGMA));
    let (mut admissions, mut reservations) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // 3, 0, 1, 2 and so on: an advance over a gap, then what fills it.
        let sequence = round / 4 * 4 + [3, 0, 1, 2][(round % 4) as usize];
        let (files, node) = (&files, &node);
        let admitted = streams().into_iter().map(|stream| async move {
            let (what, begun) = (request(stream, sequence), files.done());
            node.admission.admit(what).await.unwrap().expect("each is presented once");
            Told { what, begun, released: files.done() }
        });
        let reserved = streams().into_iter().map(|stream| async move {
            let begun = files.done();
            // So many that a round outruns a lease now and then.
            let tickets: Vec<_> = (0..9).map(|_| node.leases.reserve(&stream, 900)).collect();
            let told = join_all(tickets).await.into_iter();
            told.map(|what| Told { what: what.unwrap().unwrap(), begun, released: files.done() }).collect::<Vec<_>>()
        });
        let (admitted, reserved) = futures::join!(join_all(admitted), join_all(reserved));
        admissions.extend(admitted);
        reservations.extend(reserved.into_iter().flatten());
    }
    Run { admissions, reservations, operations: files.operations() }
}

impl Run {
    async fn check(&self, image: &Image, cut: usize, context: &str) -> usize {
        let node = Node::open(&Simulated::holding(image), context).await;
        node.clock.advance(Duration::from_millis(3 * SIGMA));
        // Older ones are further below the windows than these.
        let released = self.admissions.iter().filter(|told| told.released <= cut).rev().take(3 * 40);
        for told in released {
            let again = node.admission.admit(told.what).await.unwrap();
            assert!(again.is_err(), "{context}: {:?} was released, and is admitted again", told.what);
        }
        let mut in_flight = 0;
        for told in self.admissions.iter().filter(|told| told.begun <= cut && cut < told.released) {
            let first = node.admission.admit(told.what).await.unwrap();
            let second = node.admission.admit(told.what).await.unwrap();
            assert!(first.is_err() || second.is_err(), "{context}: {:?} is admitted twice", told.what);
            in_flight += 1;
        }
        let told = self.reservations.iter().filter(|told| told.released <= cut);
        let known: HashSet<Reservation> = told.map(|told| told.what).collect();
        for stream in streams() {
            for _ in 0..3 {
                let next = node.leases.reserve(&stream, 900).await.unwrap().unwrap();
                assert!(!known.contains(&next), "{context}: {next:?} is handed out twice");
            }
        }
        in_flight
    }
}

#[tokio::test]
async fn l5_5_and_l8_2_whatever_a_crash_leaves_of_the_journal_nothing_is_admitted_or_numbered_twice() {
    let run = run(320).await;
    let renames = run.operations.iter().filter(|operation| matches!(operation, Operation::Rename { .. })).count();
    let removals = run.operations.iter().filter(|operation| matches!(operation, Operation::Remove { .. })).count();
    assert!(renames > 10 && removals > 5, "{renames} new segments, {removals} removed: the run has too few changes");
    let (mut medium, mut images, mut in_flight) = (Medium::default(), 0, 0);
    for cut in 0..=run.operations.len() {
        for crash in [Crash::Lost, Crash::Whole, Crash::Torn(cut as u64)] {
            in_flight += run.check(&medium.crash(crash), cut, &format!("cut at {cut}, {crash:?}")).await;
            images += 1;
        }
        if let Some(operation) = run.operations.get(cut) {
            medium.apply(operation);
        }
    }
    println!("{images} images of {} operations, {in_flight} admissions in flight at a cut", run.operations.len());
    assert!(images > 2_000 && in_flight > 1_000, "{images} images, {in_flight} in flight");
}
