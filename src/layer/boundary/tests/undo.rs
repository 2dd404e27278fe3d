//! Charges, quota, volatile windows, registrations and removals under batches that are late and fail: whatever was done in
//! whatever order, undoing brings back what was released, and a refusal changes nothing that it may not.

use std::collections::BTreeMap;

use super::*;
use crate::{
    layer::{
        boundary::{
            Application,
            core::{Boundary, Scans, Staging},
            record::StreamRecord,
        },
        charging::{Charges, Shares},
        local::{Namespace, Room},
        quota::{Buckets, Quota, Quotas, Rate, TooLittle},
        window::Window,
    },
    message::ClassifierId,
    storage::{
        Key, RecordName, Scan, Table,
        birth::{Birth, Reading},
        commit::{BatchNumber, BudgetExhausted, Limit},
        floor::Floors,
        guard::Guards,
    },
};

/// Counts what is staged, and may have no room for it.
struct Staged {
    batch: BatchNumber,
    unreleased: Option<BatchNumber>,
    writes: usize,
    /// How many more writes fit.
    room: usize,
}

impl Staging for Staged {
    fn batch(&self) -> BatchNumber {
        self.batch
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        if self.writes > 0 { Some(self.batch) } else { self.unreleased }
    }

    fn put(&mut self, table: Table, _: Key, _: bytes::Bytes) -> Result<(), BudgetExhausted> {
        self.room = self.room.checked_sub(1).ok_or(BudgetExhausted { table, limit: Limit::Records(0) })?;
        self.writes += 1;
        Ok(())
    }

    fn remove(&mut self, _: Table, _: Key) {
        self.writes += 1;
    }

    fn rewind(&mut self) {
        self.writes = 0;
    }

    fn unavailable(&self, _: Table, _: &[u8]) -> Option<RecordName> {
        None
    }

    fn unrestorable(&self) -> usize {
        0
    }
}

type Levels = BTreeMap<StreamKey, Option<Buckets>>;

/// All that a failed batch may touch.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    streams: BTreeMap<StreamKey, StreamRecord>,
    charges: Charges,
    windows: BTreeMap<(u64, StreamKey), Window>,
    /// As it is written: what was reached in memory may stay, and only makes a mark later.
    registry: bytes::Bytes,
    floors: Floors,
    birth: Option<Birth>,
}

/// The same, and what quotas have left.
type Whole = (Held, Levels, Levels);

const LINKS: u64 = 5;
const QUOTA: Quota = match (Rate::new(10, 3), Rate::new(1_000, 100)) {
    (Some(messages), Some(bytes)) => Quota { messages, bytes },
    _ => unreachable!(),
};

struct World {
    boundary: Boundary,
    draw: u64,
    wall: u64,
    monotonic: u64,
    keys: Vec<StreamKey>,
    flying: Option<(BatchNumber, Whole)>,
    gathering: (BatchNumber, Option<Whole>),
    released: Whole,
    open: BTreeMap<u64, usize>,
    sequences: u64,
    happened: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = AdmissionConfig {
            streams: 7,
            shares: Shares { slots: 4, floor: 1, pool: 2, inbox: 1, own: 1 },
            quotas: Quotas::NONE.with(Class::Application, QUOTA).with(Class::E2e, QUOTA),
            ..config()
        };
        let none = Scans { receiver: Scan::default(), clock: Scan::default(), custody: Scan::default() };
        let (boundary, _) = Boundary::restore(&config, Guards::default(), &none, 0, Duration::ZERO).unwrap();
        let application = (1..=6).map(|origin| stream(origin, Class::Application));
        let keys = application.chain([stream(1, Class::E2e), stream(2, Class::E2e), stream(1, Class::Storage)]);
        let keys: Vec<_> = keys.collect();
        let mut world = Self {
            released: whole(&boundary, &keys),
            boundary,
            draw: seed,
            wall: START,
            monotonic: 0,
            keys,
            flying: None,
            gathering: (1, None),
            open: BTreeMap::new(),
            sequences: 10,
            happened: BTreeMap::new(),
        };
        for _ in 0..8 {
            world.below(2);
        }
        world
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) % end
    }

    fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    fn reading(&self) -> Reading {
        Reading { wall: self.wall, monotonic: Duration::from_millis(self.monotonic), boot: None }
    }

    /// What group commit does around a transition.
    fn transition<R>(&mut self, run: impl FnOnce(&mut Boundary, &Reading, &mut Staged) -> R) -> R {
        let gathers = self.gathering.1.as_ref().map(|_| self.gathering.0);
        let unreleased = gathers.or(self.flying.as_ref().map(|(batch, _)| *batch));
        let room = if self.below(12) == 0 { usize::try_from(self.below(3)).unwrap() } else { usize::MAX };
        let mut stage = Staged { batch: self.gathering.0, unreleased, writes: 0, room };
        let reading = self.reading();
        let result = run(&mut self.boundary, &reading, &mut stage);
        let now = whole(&self.boundary, &self.keys);
        match stage.waits_for() {
            None => self.released = now,
            Some(batch) if batch == self.gathering.0 => self.gathering.1 = Some(now),
            Some(_) => self.flying.as_mut().unwrap().1 = now,
        }
        result
    }

    fn request(&mut self) -> Request {
        let place = usize::try_from(self.below(9)).unwrap();
        let stream = self.keys[place];
        let link = self.below(LINKS);
        let carrier = match self.below(12) {
            0 | 1 => Carrier::Own,
            _ => carrier(link),
        };
        let own = matches!(carrier, Carrier::Link(_)) && self.below(3) > 0;
        let names = ["chat", "other", "never"];
        let namespace = Some(Namespace::new(names[usize::try_from(self.below(3)).unwrap()]).unwrap());
        let classifier = ClassifierId::of(if self.below(60) == 0 { "two" } else { "one" });
        let application = Application { classifier, namespace, own_link: own.then(|| LinkId::of(link)) };
        self.sequences += 1;
        let sequence = self.sequences - self.below(4);
        Request {
            stream,
            incarnation: Incarnation::new(START, 1),
            sequence,
            digest: TransactionDigest([u8::try_from(self.below(2)).unwrap(); 32]),
            issued_at: (self.wall + SIGMA).saturating_sub(self.below(3 * SIGMA)),
            ttl: 1 + self.below(TTL),
            bytes: self.below(60),
            carrier,
            application: (stream.class == Class::Application).then_some(application),
        }
    }

    fn admit(&mut self) {
        let request = self.request();
        let before = whole(&self.boundary, &self.keys);
        match self.transition(|boundary, reading, stage| boundary.admit(&request, reading, stage)) {
            Ok(accepted) => self.count(if accepted.link_local { "link-local" } else { "durable" }),
            Err(refusal) => {
                // Birth, and the classifier that read it, count whatever becomes of the request.
                let mut but = before;
                if !matches!(refusal, BoundaryRefusal::BudgetExhausted(_)) {
                    let now = whole(&self.boundary, &self.keys).0;
                    (but.0.registry, but.0.birth) = (now.registry, now.birth);
                }
                self.is(&but);
                self.count(refusal.label());
            }
        }
    }

    fn change(&mut self) {
        let namespace = Namespace::new(["chat", "other"][usize::try_from(self.below(2)).unwrap()]).unwrap();
        let before = whole(&self.boundary, &self.keys);
        let register = self.below(3) > 0;
        let changed = self.transition(|boundary, reading, stage| match register {
            true => boundary.register(namespace, reading, stage),
            false => boundary.withdraw(&namespace, reading, stage),
        });
        if changed.is_err() {
            self.is(&before);
        }
    }

    fn link(&mut self) {
        let link = self.below(LINKS);
        if self.below(2) == 0 {
            if self.boundary.open_link(LinkId::of(link)).is_ok() {
                *self.open.entry(link).or_default() += 1;
            }
            return;
        }
        let Some(guards) = self.open.get_mut(&link).filter(|guards| **guards > 0) else { return };
        *guards -= 1;
        self.boundary.retire_link(&LinkId::of(link));
        if *guards == 0 {
            // Gone for good, from whatever an undo brings back, too.
            let gathers = self.gathering.1.as_mut();
            let states = [&mut self.released].into_iter().chain(self.flying.as_mut().map(|(_, whole)| whole));
            for (held, ..) in states.chain(gathers) {
                held.windows.retain(|(of, _), _| *of != link);
            }
            self.count("retired");
        }
    }

    fn take(&mut self) {
        if self.flying.is_none()
            && let Some(whole) = self.gathering.1.take()
        {
            self.flying = Some((self.gathering.0, whole));
            self.gathering.0 += 1;
        }
    }

    fn land(&mut self) {
        self.take();
        if let Some((batch, whole)) = self.flying.take() {
            self.boundary.released(batch);
            self.released = whole;
        }
    }

    fn fail(&mut self) {
        self.take();
        if self.flying.take().is_none() {
            return;
        }
        self.gathering = (self.gathering.0 + 1, None);
        self.boundary.undo();
        self.count("failed");
        self.is(&self.released);
    }

    /// All is as it was `then`, but that quotas filled since.
    fn is(&self, then: &Whole) {
        let now = whole(&self.boundary, &self.keys);
        assert_eq!(now.0, then.0);
        for (now, then) in [(&now.1, &then.1), (&now.2, &then.2)] {
            assert_eq!(self.levels(now), self.levels(then));
        }
    }

    /// What quotas hold by now.
    fn levels(&self, levels: &Levels) -> BTreeMap<StreamKey, Result<Buckets, TooLittle>> {
        let now = self.boundary.steady.now();
        levels.iter().map(|(key, held)| (*key, QUOTA.charge(held.as_ref(), 0, now))).collect()
    }

    fn step(&mut self) {
        match self.below(40) {
            0..=23 => self.admit(),
            24 | 25 => self.change(),
            26..=28 => self.link(),
            29 | 30 => self.take(),
            31..=34 => self.land(),
            35 => self.fail(),
            _ => {
                let passes = if self.below(12) == 0 { 2 * TTL } else { self.below(40) };
                self.monotonic += passes;
                // The wall clock goes its own way at times.
                self.wall = (self.wall + passes + self.below(3)).saturating_sub(self.below(3));
            }
        }
    }
}

fn whole(boundary: &Boundary, keys: &[StreamKey]) -> Whole {
    let streams = boundary.streams.iter().map(|(key, stream)| (*key, stream.record.clone())).collect();
    let windows = (0..LINKS).flat_map(|link| keys.iter().map(move |key| (link, *key)));
    let windows = windows.filter_map(|(link, key)| match boundary.local.windows.room(&LinkId::of(link), &key, false) {
        Room::Window(volatile) => Some(((link, key), volatile.window.clone())),
        Room::Free | Room::None => None,
    });
    let held = Held {
        streams,
        charges: boundary.charges().clone(),
        windows: windows.collect(),
        registry: boundary.local.registry.encode(),
        floors: boundary.floors,
        birth: boundary.birth().cloned(),
    };
    let durable = keys.iter().map(|key| (*key, boundary.streams.get(key).and_then(|stream| stream.buckets))).collect();
    let local = keys.iter().map(|key| (*key, boundary.local.windows.buckets(key).copied())).collect();
    (held, durable, local)
}

#[test]
fn l9_2_undoing_brings_back_exactly_what_was_released_of_charges_quotas_windows_and_registrations() {
    let mut happened = BTreeMap::new();
    for seed in 0..300 {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step());
        world.land();
        // Nothing is left of links that are gone, once their quotas are full.
        for (link, guards) in std::mem::take(&mut world.open) {
            (0..guards).for_each(|_| world.boundary.retire_link(&LinkId::of(link)));
        }
        assert_eq!(world.boundary.local.windows.held(), (0, 0), "seed {seed}");
        world.monotonic += 10_000;
        for _ in 0..9 {
            world.admit();
        }
        world.land();
        assert_eq!(world.boundary.local.windows.accounts(), 0, "seed {seed}");
        assert_eq!(world.boundary.undo.len(), 0, "seed {seed}");
        world.happened.into_iter().for_each(|(what, count)| *happened.entry(what).or_insert(0) += count);
    }
    println!("{happened:?}");
    let reasons = ["replay", "fork", "quota_exceeded", "stream_capacity_exceeded", "budget_exhausted"];
    for what in reasons.into_iter().chain(["link-local", "durable", "retired", "failed", "namespace_withdrawn"]) {
        assert!(happened.get(what).is_some_and(|count| *count > 300), "{what}: {happened:?}");
    }
}
