//! What a node does with damaged files.

use std::{sync::Arc, time::Duration};

use super::{
    history::{CONFIG, Node, TTL},
    *,
};
use crate::{
    clock::ManualClock,
    layer::{
        boundary::{
            Admission, AdmissionOpenError, BoundaryRefusal, Request,
            tests::{SIGMA, START, stream},
        },
        custody,
        window::Verdict,
    },
    message::{Class, StreamKey},
    storage::{
        Key, OpenError, Table,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, LeaseRefused, Leases},
        simulated::Simulated,
    },
};

pub(super) struct Found {
    pub(super) outcome: Outcome,
    pub(super) violations: Vec<(Violation, String)>,
}

impl Found {
    fn expect(&mut self, holds: bool, violation: Violation, detail: impl FnOnce() -> String) {
        if !holds {
            self.violations.push((violation, detail()));
        }
    }
}

fn record(table: Table, stream: &StreamKey) -> RecordName {
    RecordName::of(table, &stream.to_bytes())
}

/// Opens `image`, and asks everything of it.
pub(super) async fn check(engine: &Engine, broken: Broken, guards: Guards, history: &History, image: &Image) -> Found {
    let mut found = Found { outcome: Outcome::Restored, violations: Vec::new() };
    let hit = hit(&history.words, &history.image, image);
    let store = match (engine.open)(&Simulated::holding(image)) {
        Ok(store) => broken.over(store, history),
        Err(OpenError::Damaged { reason, .. } | OpenError::NotAStore { reason, .. }) => {
            assert!(!reason.is_empty());
            return Found { outcome: Outcome::RefusedByEngine, ..found };
        }
        Err(error) => panic!("no reason to refuse a store: {error}"),
    };
    let clock = Arc::new(ManualClock::new(START));
    clock.advance(history.passed);
    let commit = GroupCommit::open(store, CommitConfig::new()).await.expect("its tables can be listed");
    let admission = match Admission::open_guarded(&commit, clock.clone(), CONFIG(), &[], guards).await {
        Ok(admission) => admission,
        Err(AdmissionOpenError::Damaged { record, reason, .. }) => {
            found.expect(hit.contains(&record), Violation::NotExactly, || format!("{record} refuses: {reason}"));
            return Found { outcome: Outcome::RefusedByBoundary, ..found };
        }
        Err(error) => panic!("no reason to refuse a store: {error}"),
    };
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig { sigma: SIGMA, streams: 32 }).expect("it is free");
    let node = Node { clock, commit, admission, leases };

    let bad: BTreeSet<_> = node.commit.health().unrestorable.into_iter().map(|(name, _)| name).collect();
    // Of a record that is gone, what says so may not be needed any more. A store that is lost whole has nothing that is hit.
    let live: BTreeSet<_> = history.records.keys().map(|(table, key)| RecordName::of(*table, key)).collect();
    let exactly = bad.is_subset(&hit) && hit.intersection(&live).all(|name| bad.contains(name));
    found.expect(exactly || image.is_empty(), Violation::NotExactly, || format!("unavailable: {bad:?}, hit: {hit:?}"));
    found.outcome = if bad.is_empty() { Outcome::Restored } else { Outcome::Unavailable };
    found.receivers(&node, history, &bad).await;
    found.mail(&node, history, &bad).await;
    found.senders(&node, history, &bad).await;
    found.new_streams(&node, history, &bad).await;
    // Last, since it is the clock that goes back: what was removed is refused however it steps.
    node.clock.step_wall_to(history.removed[0].issued_at + 1);
    for request in &history.removed {
        let answer = node.admission.admit(*request).await.expect("no fault is injected");
        found.expect(answer.is_err(), Violation::AdmittedAgain, || format!("removed: {request:?}"));
    }
    node.commit.shutdown().await;
    found
}

impl Found {
    async fn receivers(&mut self, node: &Node, history: &History, bad: &BTreeSet<RecordName>) {
        for request in &history.withdrawn {
            let answer = node.admission.admit(*request).await.expect("no fault is injected");
            self.expect(answer.is_err(), Violation::MarkLost, || format!("withdrawn: {request:?}"));
        }
        let mut streams = BTreeMap::<StreamKey, Request>::new();
        for request in &history.admitted {
            let name = record(Table::Receiver, &request.stream);
            let answer = node.admission.admit(*request).await.expect("no fault is injected");
            self.expect(answer.is_err(), Violation::AdmittedAgain, || format!("{request:?}: {answer:?}"));
            let told = answer == Err(BoundaryRefusal::StreamUnavailable { key: request.stream, record: name });
            self.expect(told == bad.contains(&name), Violation::NotExactly, || format!("{name}: {answer:?}"));
            let greatest = streams.entry(request.stream).or_insert(*request);
            greatest.sequence = greatest.sequence.max(request.sequence);
        }
        for (stream, Request { sequence, .. }) in streams {
            if !bad.contains(&record(Table::Receiver, &stream)) {
                let answer = node.admission.admit(node.request(stream, sequence + 2)).await;
                let answer = answer.expect("no fault is injected");
                self.expect(answer == Ok(Verdict::Advance), Violation::DoesNotRun, || {
                    format!("{stream:?}: {answer:?}")
                });
            }
        }
    }

    async fn mail(&mut self, node: &Node, history: &History, bad: &BTreeSet<RecordName>) {
        for mail in &history.taken {
            let (ticket, _pending) = node.admission.offer(*mail);
            let answer = ticket.await.expect("no fault is injected");
            self.expect(answer.is_err(), Violation::ShownAgain, || format!("{mail:?}: {answer:?}"));
        }
        for mail in &history.kept {
            let names =
                [RecordName::of(Table::Custody, &custody::key(&mail.digest)), record(Table::Receiver, &mail.stream)];
            let whole = !names.iter().any(|name| bad.contains(name));
            let (ticket, pending) = node.admission.offer(*mail);
            let answer = ticket.await.expect("no fault is injected");
            if whole {
                let redelivered = answer == Ok(Verdict::Redelivered);
                self.expect(redelivered, Violation::DoesNotRun, || format!("{mail:?}: {answer:?}"));
                let taken = node.admission.take(mail).await.expect("no fault is injected");
                self.expect(taken.is_ok(), Violation::DoesNotRun, || format!("{mail:?}: {taken:?}"));
            } else {
                self.expect(answer.is_err(), Violation::AdmittedAgain, || format!("{mail:?}: {answer:?}"));
            }
            drop(pending);
            let again = node.admission.admit(*mail).await.expect("no fault is injected");
            self.expect(!whole || again.is_err(), Violation::ShownAgain, || format!("{mail:?}: {again:?}"));
        }
    }

    async fn senders(&mut self, node: &Node, history: &History, bad: &BTreeSet<RecordName>) {
        let mut reserved = history.reserved.clone();
        // Of what was retired, on which a fresh stream relies.
        let removed = RecordName::of(Table::Clock, b"sender");
        for stream in &history.senders {
            let name = record(Table::Sender, stream);
            let fresh = !history.records.contains_key(&(Table::Sender, Key::copy_from_slice(&stream.to_bytes())));
            let relies_on = if fresh { [name, removed] } else { [name; 2] };
            let refuses = relies_on.into_iter().find(|name| bad.contains(name));
            for _ in 0..3 {
                let answer = node.leases.reserve(stream, TTL).await.expect("no fault is injected");
                match refuses {
                    Some(record) => {
                        let told = answer == Err(LeaseRefused::Unavailable { record });
                        self.expect(told, Violation::NotExactly, || format!("{stream:?}: {answer:?}"));
                    }
                    None => self.expect(answer.is_ok(), Violation::DoesNotRun, || format!("{stream:?}: {answer:?}")),
                }
                if let Ok(next) = answer {
                    self.expect(reserved.insert((*stream, next)), Violation::Reused, || {
                        format!("{stream:?}: {next:?}")
                    });
                }
            }
        }
    }

    /// A damaged record is no stream's that never was, and takes one place.
    async fn new_streams(&mut self, node: &Node, history: &History, bad: &BTreeSet<RecordName>) {
        // Past the birth mark where the store is a new one.
        node.clock.advance(Duration::from_millis(2 * SIGMA + 1));
        for class in Class::ALL {
            let fresh = stream(200, class);
            let answer = node.admission.admit(node.request(fresh, 9)).await.expect("no fault is injected");
            self.expect(answer == Ok(Verdict::First), Violation::DoesNotRun, || format!("a new stream: {answer:?}"));
        }
        let health = node.admission.health();
        let held = history.records.keys().filter(|(table, _)| *table == Table::Receiver).count();
        if bad.is_empty() && health.streams > held + 8 {
            self.violations.push((Violation::NotExactly, format!("{} streams of {held}", health.streams)));
        }
    }
}
