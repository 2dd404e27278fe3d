//! What a removed stream admitted is refused at every later instant, and no stream is removed early (law L10.5).

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::{
    layer::boundary::core::{Boundary, Scans, Staging},
    storage::{
        Key, RecordName, Scan, Table,
        birth::Reading,
        commit::{BatchNumber, BudgetExhausted},
        guard::Guards,
    },
};

const TOLERANCE: u64 = 3;
const GREATEST: u64 = 20;
const HOLD: u64 = 25;

/// A disk where every transition lands at once.
#[derive(Debug, Default)]
struct Disk {
    batch: BatchNumber,
    staged: Vec<((Table, Key), Option<bytes::Bytes>)>,
    records: BTreeMap<(Table, Key), bytes::Bytes>,
}

impl Disk {
    fn land(&mut self) {
        for (place, value) in self.staged.drain(..) {
            match value {
                Some(value) => drop(self.records.insert(place, value)),
                None => drop(self.records.remove(&place)),
            }
        }
        self.batch += 1;
    }

    fn scans(&self) -> Scans {
        let [receiver, clock, custody] = [Table::Receiver, Table::Clock, Table::Custody].map(|table| {
            let of_table = self.records.iter().filter(|((of, _), _)| *of == table);
            Scan { records: of_table.map(|((_, key), value)| (key.clone(), value.clone())).collect(), bad: Vec::new() }
        });
        Scans { receiver, clock, custody }
    }
}

impl Staging for Disk {
    fn batch(&self) -> BatchNumber {
        self.batch
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        Some(self.batch)
    }

    fn put(&mut self, table: Table, key: Key, value: bytes::Bytes) -> Result<(), BudgetExhausted> {
        self.staged.push(((table, key), Some(value)));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: Key) {
        self.staged.push(((table, key), None));
    }

    fn rewind(&mut self) {
        self.staged.clear();
    }

    fn unavailable(&self, _: Table, _: &[u8]) -> Option<RecordName> {
        None
    }

    fn unrestorable(&self) -> usize {
        0
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Origin, whether it is of class Application, whether it is mail, time to live, issued how far from now.
    Admit(u8, bool, bool, u64, i64),
    Pass(u64),
    Step(i64),
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let admit = (0..3_u8, any::<bool>(), any::<bool>(), 1..=GREATEST, -5..=3_i64)
        .prop_map(|(origin, application, mail, ttl, ago)| Event::Admit(origin, application, mail, ttl, ago));
    let event = prop_oneof![
        8 => admit,
        4 => (0..30_u64).prop_map(Event::Pass),
        2 => (-60..60_i64).prop_map(Event::Step),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..60)
}

/// A boundary in virtual time, and what each of its streams admitted.
struct Receiver {
    boundary: Boundary,
    disk: Disk,
    hold: u64,
    wall: u64,
    monotonic: u64,
    sequence: u64,
    /// Of each stream that is kept: what it admitted, and the monotonic instant of its last admission or loading.
    kept: BTreeMap<StreamKey, (Vec<Request>, u64)>,
    retired: Vec<Request>,
}

impl Receiver {
    fn new(hold: u64) -> Self {
        let boundary = Self::restore(&Disk::default(), hold, 0);
        let (kept, retired) = (BTreeMap::new(), Vec::new());
        Self { boundary, disk: Disk::default(), hold, wall: 1_000, monotonic: 0, sequence: 0, kept, retired }
    }

    /// Without the birth mark, so that liveness and the floor are what refuses.
    fn restore(disk: &Disk, hold: u64, monotonic: u64) -> Boundary {
        let config = AdmissionConfig {
            sigma: TOLERANCE,
            greatest_ttl: GREATEST,
            birth_mark: false,
            ..AdmissionConfig::default()
        };
        let now = Duration::from_millis(monotonic);
        Boundary::restore(&config, Guards::default(), &disk.scans(), hold, now).unwrap().0
    }

    fn reading(&self) -> Reading {
        Reading { wall: self.wall, monotonic: Duration::from_millis(self.monotonic), boot: None }
    }

    fn admit(&mut self, stream: StreamKey, mail: bool, ttl: u64, issued_at: u64) {
        self.sequence += 1;
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.sequence.to_be_bytes());
        let carrier = if mail { Carrier::Inbox { held_at: issued_at } } else { Carrier::Own };
        let request = Request {
            stream,
            incarnation: Incarnation(0),
            sequence: self.sequence,
            digest: TransactionDigest(digest),
            issued_at,
            ttl,
            carrier,
            bytes: 0,
            application: None,
        };
        let reading = self.reading();
        if self.boundary.admit(&request, &reading, &mut self.disk).is_ok() {
            let (admitted, last) = self.kept.entry(stream).or_default();
            admitted.push(request);
            *last = self.monotonic;
            if mail {
                self.boundary.take(&request, &mut self.disk).unwrap();
            }
        }
        self.disk.land();
        self.boundary.released(self.disk.batch);
        self.notice_removals();
    }

    /// A removal is never early.
    fn notice_removals(&mut self) {
        let (wall, monotonic, hold) = (self.wall, self.monotonic, self.hold);
        let gone: Vec<_> = self.kept.keys().filter(|key| self.boundary.streams.get(key).is_none()).copied().collect();
        for key in gone {
            let (admitted, last) = self.kept.remove(&key).unwrap();
            let hold = if key.class == Class::Application { hold } else { 0 };
            let expiry = admitted.iter().map(Request::expires_at).max().unwrap();
            assert!(wall >= expiry + TOLERANCE + hold, "{expiry} was removed at {wall}");
            assert!(monotonic - last >= GREATEST + TOLERANCE + hold, "{last} was removed at {monotonic}");
            self.retired.extend(admitted);
        }
    }

    fn run(&mut self, event: &Event) {
        match *event {
            Event::Admit(origin, application, mail, ttl, ago) => {
                let class = if application { Class::Application } else { Class::E2e };
                let issued_at = self.wall.saturating_add_signed(ago);
                self.admit(key(origin, class), mail && application && self.hold > 0, ttl, issued_at);
            }
            Event::Pass(ms) => (self.wall, self.monotonic) = (self.wall + ms, self.monotonic + ms),
            Event::Step(by) => self.wall = self.wall.saturating_add_signed(by).max(500),
            Event::Restart => {
                self.boundary = Self::restore(&self.disk, self.hold, self.monotonic);
                self.kept.values_mut().for_each(|(_, last)| *last = self.monotonic);
            }
        }
    }

    /// Nothing that was retired is accepted at any instant, by a link or as mail held at any instant that may matter.
    fn try_everything_again(&self) -> Result<usize, TestCaseError> {
        let end = self.retired.iter().map(Request::expires_at).max().unwrap_or(0) + self.hold + 3 * TOLERANCE;
        let first = self.retired.iter().map(|request| request.issued_at).min().unwrap_or(end) - 2 * TOLERANCE;
        let mut tried = 0;
        for request in &self.retired {
            for wall in first..=end {
                let reading = Reading { wall, ..self.reading() };
                let held = [request.issued_at, request.expires_at() - 1, wall, (wall + 1).saturating_sub(self.hold)];
                let mail = held.map(|held_at| Carrier::Inbox { held_at });
                for carrier in mail.into_iter().chain([Carrier::Own, carrier(1)]) {
                    let again = Request { carrier, ..*request };
                    let Err(refusal) = self.boundary.judge(&again, &reading, &self.disk) else {
                        return Err(TestCaseError::fail(format!("{again:?} is accepted at {wall}")));
                    };
                    prop_assert!(
                        !matches!(refusal, BoundaryRefusal::Window(_)) || self.kept.contains_key(&again.stream)
                    );
                    tried += 1;
                }
            }
        }
        Ok(tried)
    }
}

fn key(origin: u8, class: Class) -> StreamKey {
    use std::sync::LazyLock;
    static ORIGINS: LazyLock<[StreamKey; 4]> = LazyLock::new(|| [1, 2, 3, 9].map(|origin| stream(origin, Class::E2e)));
    StreamKey { class, ..ORIGINS[usize::from(origin)] }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn l10_5_what_a_removed_stream_admitted_is_refused_at_every_instant(
        events in events(), custody in any::<bool>(), rest in prop::collection::vec(events(), 1..3)
    ) {
        let mut receiver = Receiver::new(if custody { HOLD } else { 0 });
        let mut removed = HashSet::new();
        for events in [&events].into_iter().chain(&rest) {
            events.iter().for_each(|event| receiver.run(event));
            // Long enough for every stream to be spent; another one's admissions remove them, a few each.
            let far = GREATEST + TOLERANCE + HOLD;
            let ahead = receiver.kept.values().flat_map(|(admitted, _)| admitted).map(Request::expires_at).max();
            receiver.run(&Event::Pass(far + ahead.unwrap_or(0).saturating_sub(receiver.wall)));
            for _ in 0..6 {
                receiver.admit(key(3, Class::Storage), false, 1, receiver.wall);
            }
            prop_assert_eq!(receiver.kept.len(), 1, "all but the one that goes on are spent");
            receiver.try_everything_again()?;
            removed.extend(receiver.retired.iter().map(|request| request.stream));
            // However the clock stands from here on.
            receiver.run(&Event::Restart);
            receiver.run(&Event::Step(-50));
            receiver.try_everything_again()?;
        }
    }
}

#[tokio::test]
async fn l10_5_with_custody_an_application_stream_is_spent_7_days_later_and_no_other_is() {
    let hold = crate::message::MAIL_HOLD_MS;
    let node = Node::new(AdmissionConfig { custody: true, ..config() }).await;
    for class in Class::ALL {
        assert_eq!(node.answer(node.fresh(stream(1, class), 1)).await, Ok(Verdict::First));
    }
    let mut sequence = 0;
    let mut held_after = async |ms| {
        node.pass(ms);
        sequence += 1;
        assert!(node.answer(node.fresh(stream(2, Class::E2e), sequence)).await.is_ok());
        node.admission.health().streams
    };
    assert_eq!(held_after(TTL + SIGMA).await, 2, "Application's, and the one that goes on");
    assert_eq!(held_after(hold - 1).await, 2, "one millisecond short");
    assert_eq!(held_after(1).await, 1);
    // Without custody it is spent with the others.
    let node = Node::new(config()).await;
    assert_eq!(node.answer(node.fresh(stream(1, Class::Application), 1)).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 1);
}

#[tokio::test]
async fn l10_5_a_step_of_a_week_ahead_removes_no_stream_that_mail_may_come_for() {
    let hold = crate::message::MAIL_HOLD_MS;
    let node = Node::new(AdmissionConfig { custody: true, ..config() }).await;
    assert_eq!(node.answer(node.fresh(stream(1, Class::Application), 1)).await, Ok(Verdict::First));
    node.pass(TTL + SIGMA);
    let right = node.clock.wall();
    node.clock.step_wall_to(right + 2 * hold);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().streams, 2);
}

#[tokio::test]
async fn l7_2_a_stream_is_not_removed_before_its_buckets_are_full_though_it_is_spent() {
    use crate::layer::quota::{Quota, Quotas, Rate};
    let slow = Quota { messages: Rate::new(1, 10).unwrap(), bytes: Rate::new(100, 100).unwrap() };
    let quotas = Quotas::NONE.with(Class::Application, slow);
    for (custody, hold) in [(false, 0), (true, crate::message::MAIL_HOLD_MS)] {
        let node = Node::new(AdmissionConfig { quotas, custody, ..config() }).await;
        assert_eq!(node.answer(node.fresh(stream(1, Class::Application), 1)).await, Ok(Verdict::First));
        node.pass(10_000 + hold - 1);
        assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
        assert_eq!(node.admission.health().streams, 2, "ten seconds to fill");
        node.pass(1);
        assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 2)).await, Ok(Verdict::Advance));
        assert_eq!(node.admission.health().streams, 1);
    }
}
