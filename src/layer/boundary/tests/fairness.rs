//! The shares at their full size, on the real boundary in virtual time: the published figure, floors under bad records,
//! and an hour of attackers.

use std::collections::BTreeMap;

use super::*;
use crate::{
    layer::{
        boundary::core::{Boundary, Scans, Staging},
        charging::{Bound, Introducer, Shares},
    },
    link::NoSlot,
    message::DEFAULT_TTL_MS,
    storage::{
        Key, RecordName, Table,
        birth::Reading,
        commit::{BatchNumber, BudgetExhausted},
        guard::Guards,
    },
};

/// A store where every write lands at once, with some bad records of other streams.
struct Landed {
    batch: BatchNumber,
    bad: usize,
}

impl Staging for Landed {
    fn batch(&self) -> BatchNumber {
        self.batch
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        Some(self.batch)
    }

    fn put(&mut self, _: Table, _: Key, _: bytes::Bytes) -> Result<(), BudgetExhausted> {
        Ok(())
    }

    fn remove(&mut self, _: Table, _: Key) {}

    fn rewind(&mut self) {}

    fn unavailable(&self, _: Table, _: &[u8]) -> Option<RecordName> {
        None
    }

    fn unrestorable(&self) -> usize {
        self.bad
    }
}

/// A boundary of the default settings and its clock.
struct Receiver {
    boundary: Boundary,
    config: AdmissionConfig,
    stage: Landed,
    /// In ms since the start.
    now: u64,
    /// By how much the wall clock is behind.
    back: u64,
    keys: Vec<crate::identity::Did>,
    fresh: u64,
}

impl Receiver {
    fn new(slots: u16, bad: usize) -> Self {
        let config = AdmissionConfig { shares: Shares { slots, ..Shares::default() }, ..AdmissionConfig::default() };
        let (none, now) = (Scans::default(), Duration::ZERO);
        let (boundary, _) = Boundary::restore(&config, Guards::default(), &none, 1, now).unwrap();
        let keys = (0..64).map(|secret| KeySigner::from_secret(&[secret; 32]).unwrap().key()).collect();
        let mut receiver = Self { boundary, config, stage: Landed { batch: 1, bad }, now: 0, back: 0, keys, fresh: 0 };
        let reading = receiver.reading();
        receiver.boundary.read(&reading, &mut receiver.stage).unwrap();
        receiver.now = 2 * config.sigma + 1;
        receiver
    }

    fn reading(&self) -> Reading {
        Reading { wall: START + self.now - self.back, monotonic: Duration::from_millis(self.now), boot: None }
    }

    /// A stream that nobody has heard of. Keys take long to make, so that a number of the network stands for a fresh
    /// origin: the boundary tells streams apart by all of their key.
    fn mint(&mut self) -> StreamKey {
        self.fresh += 1;
        let key = |number: u64| self.keys[usize::try_from(number % 64).unwrap()];
        StreamKey {
            network: NetworkId(self.fresh / 4_096),
            origin: key(self.fresh),
            destination: key(self.fresh / 64),
            class: Class::E2e,
        }
    }

    fn send(&mut self, stream: StreamKey, sequence: u64, carrier: Carrier) -> Answer {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&sequence.to_be_bytes());
        let request = Request {
            stream,
            incarnation: Incarnation::new(START, 1),
            sequence,
            digest: TransactionDigest(digest),
            issued_at: START + self.now - self.back,
            ttl: DEFAULT_TTL_MS,
            carrier,
            bytes: 0,
            application: None,
        };
        let reading = self.reading();
        let answer = self.boundary.admit(&request, &reading, &mut self.stage);
        self.boundary.released(self.stage.batch);
        self.stage.batch += 1;
        if let (Ok(_), Carrier::Inbox { .. }) = (&answer, carrier) {
            self.boundary.take(&request, &mut self.stage).unwrap();
        }
        answer.map(|accepted| accepted.verdict)
    }

    fn opens(&mut self, carrier: Carrier) -> Answer {
        let stream = self.mint();
        let class = if matches!(carrier, Carrier::Inbox { .. }) { Class::Application } else { stream.class };
        self.send(StreamKey { class, ..stream }, 1, carrier)
    }

    /// Opens streams until one is refused: how many, and the refusal.
    fn fill(&mut self, carrier: Carrier) -> (usize, BoundaryRefusal) {
        for count in 0.. {
            if let Err(refusal) = self.opens(carrier) {
                return (count, refusal);
            }
        }
        unreachable!("every introducer has a bound")
    }

    /// Mail that is held now.
    fn inbox(&self) -> Carrier {
        Carrier::Inbox { held_at: START + self.now }
    }

    fn link(&mut self, name: u64) -> Result<u16, NoSlot> {
        self.boundary.open_link(LinkId::of(name))
    }
}

fn over(introducer: Introducer, bound: Bound) -> BoundaryRefusal {
    BoundaryRefusal::StreamCapacityExceeded { introducer, bound }
}

#[test]
fn l10_3_introducers_hold_15_616_streams_at_three_successors_and_no_more() {
    let shares = Shares::default();
    let mut receiver = Receiver::new(shares.slots, 0);
    for link in 0..328 {
        assert_eq!(receiver.link(link), Ok(u16::try_from(link).unwrap()));
        for _ in 0..32 {
            assert_eq!(receiver.opens(carrier(link)), Ok(Verdict::First));
        }
    }
    assert_eq!(receiver.link(328), Err(NoSlot { slots: 328 }));
    // Then all of them in turn, one stream at a time.
    let mut grown = BTreeMap::new();
    loop {
        let opened: Vec<_> = (0..328).filter(|link| receiver.opens(carrier(*link)).is_ok()).collect();
        if opened.is_empty() {
            break;
        }
        opened.into_iter().for_each(|link| *grown.entry(link).or_insert(0) += 1);
    }
    assert_eq!(grown.values().sum::<u32>(), 3_328);
    assert!(grown.values().all(|count| [10, 11].contains(count)), "claims are of 11: {grown:?}");
    let inbox = receiver.inbox();
    assert_eq!(receiver.fill(inbox), (768, over(Introducer::Inbox, Bound::Share { share: 768 })));
    assert_eq!(receiver.fill(Carrier::Own), (1_024, over(Introducer::Own, Bound::Share { share: 1_024 })));
    assert_eq!(receiver.boundary.streams(), 15_616);
    for link in 0..328 {
        assert!(matches!(receiver.opens(carrier(link)), Err(BoundaryRefusal::StreamCapacityExceeded { .. })));
    }
    println!("{} streams", receiver.boundary.streams());
}

/// Everything but floors takes what it can get first; then every floor is asked for.
fn floors(slots: u16, bad: usize) -> (usize, Vec<BoundaryRefusal>) {
    let mut receiver = Receiver::new(slots, bad);
    receiver.link(0).unwrap();
    assert_eq!(receiver.fill(carrier(0)).0, 32 + 3_328);
    let inbox = receiver.inbox();
    receiver.fill(inbox);
    receiver.fill(Carrier::Own);
    let mut refused = Vec::new();
    for link in 1..u64::from(slots) {
        receiver.link(link).unwrap();
        refused.extend((0..32).filter_map(|_| receiver.opens(carrier(link)).err()));
    }
    (receiver.boundary.streams(), refused)
}

#[test]
fn l10_3_floors_hold_while_unrestorable_records_are_within_the_slack() {
    assert_eq!(floors(328, 768), (15_616, vec![]));
    let store = over(Introducer::Slot(327), Bound::Store { streams: STREAMS });
    assert_eq!(floors(328, 769), (15_615, vec![store]));
}

const STREAMS: usize = crate::layer::boundary::STREAMS_MAX;

#[test]
fn l10_3_up_to_15_successors_shares_fit_and_past_them_the_hard_capacity_refuses_first() {
    assert_eq!(floors(2 * (160 + 15 + 1), 0), (STREAMS, vec![]));
    let (held, refused) = floors(2 * (160 + 16 + 1), 0);
    assert_eq!((held, refused.len()), (STREAMS, 64));
    let by_store = |refusal: &BoundaryRefusal| {
        matches!(refusal, BoundaryRefusal::StreamCapacityExceeded { bound: Bound::Store { .. }, .. })
    };
    assert!(refused.iter().all(by_store), "{refused:?}");
}

/// How long after its last transaction a stream is spent at the latest: issued σ ahead, and σ after its expiry.
const SPENT: u64 = DEFAULT_TTL_MS + 2 * crate::clock::DEFAULT_SIGMA_MS;

/// An attacker fills every slot that is free, and leaves: a newcomer has the cleanest, and that is full.
fn newcomer_after_rotation() -> (Receiver, Vec<StreamKey>, u16) {
    let mut receiver = Receiver::new(328, 0);
    let mut minted = Vec::new();
    for link in 0..328 {
        receiver.link(link).unwrap();
        for _ in 0..32 {
            let stream = receiver.mint();
            receiver.send(stream, 1, carrier(link)).unwrap();
            minted.push(stream);
        }
    }
    receiver.fill(carrier(0));
    (0..328_u64).for_each(|link| receiver.boundary.retire_link(&LinkId::of(link)));
    receiver.link(0).unwrap();
    let slot = receiver.link(1_000).unwrap();
    (receiver, minted, slot)
}

#[test]
fn l10_3_the_rotation_residual_ends_when_leftovers_are_spent() {
    let (mut receiver, _, slot) = newcomer_after_rotation();
    let refused = over(Introducer::Slot(slot), Bound::Pool { floor: 32, pool: 3_328 });
    assert_eq!(receiver.opens(carrier(1_000)), Err(refused));
    receiver.now += SPENT - 2 * receiver.config.sigma;
    assert_eq!(receiver.opens(carrier(1_000)), Err(refused), "its leftovers may still be delivered");
    receiver.now += 2 * receiver.config.sigma;
    for _ in 0..32 {
        assert_eq!(receiver.opens(carrier(1_000)), Ok(Verdict::First), "its floor is its own again");
    }
}

#[test]
fn l10_3_leftovers_that_their_party_keeps_sending_on_elsewhere_are_not_spent() {
    // What is not promised: the party holds one connection, and with it keeps what it left in another slot.
    let (mut receiver, minted, slot) = newcomer_after_rotation();
    let leftovers = &minted[usize::from(slot) * 32..][..32];
    for sequence in 2..12 {
        receiver.now += DEFAULT_TTL_MS;
        for stream in leftovers {
            assert_eq!(receiver.send(*stream, sequence, carrier(0)), Ok(Verdict::Advance));
        }
    }
    let floor = receiver.boundary.charges().held(Introducer::Slot(slot));
    assert_eq!(floor, 32, "the newcomer opened none, and has its fair claim alone");
}

/// A connection as the hour knows it.
struct Connection {
    link: u64,
    slot: u16,
    /// When it took its slot, and for an attacker until when it stays.
    since: u64,
    until: u64,
    /// The streams that it opened and when each of them was last sent on.
    streams: Vec<(StreamKey, u64, u64)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    opened: u64,
    refused: u64,
    sent: u64,
}

/// An hour on one receiver. All of `attackers` try to be connected at all times; each stays for a while, opens as many
/// streams as it can on the slot that it has, and makes place for another. `honest` connections are there from the start
/// and stay; `late` ones come some time within the hour, among the attackers, and stay from then on.
struct Hour {
    receiver: Receiver,
    draw: u64,
    links: u64,
    honest: Vec<Connection>,
    late: Vec<Connection>,
    attackers: Vec<Connection>,
    by: BTreeMap<&'static str, Count>,
    tenures: u64,
    without_slot: u64,
    most: usize,
    /// The longest after taking its slot that a late connection was refused.
    longest_refused: u64,
}

impl Hour {
    const SECONDS: u64 = 3_600;
    const ATTACKERS: u64 = 1_000;
    const HONEST: usize = 100;
    const LATE: usize = 20;

    fn below(&mut self, end: u64) -> u64 {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) % end
    }

    fn connect(&mut self, stays: u64) -> Option<Connection> {
        self.links += 1;
        let (link, since) = (self.links, self.receiver.now);
        match self.receiver.link(link) {
            Ok(slot) => Some(Connection { link, slot, since, until: since + stays, streams: Vec::new() }),
            Err(NoSlot { .. }) => {
                self.without_slot += 1;
                None
            }
        }
    }

    /// An honest connection: what is spent makes place for new streams, up to 32. It goes on sending on the eight oldest,
    /// and the others are quiet after their first.
    fn honestly(&mut self, who: &'static str, connection: &mut Connection) {
        let (now, own) = (self.receiver.now, carrier(connection.link));
        let spent = DEFAULT_TTL_MS + self.receiver.config.sigma;
        connection.streams.retain(|(_, last, _)| now - last < spent);
        while connection.streams.len() < 32 {
            let stream = self.receiver.mint();
            let answer = self.receiver.send(stream, 1, own);
            let count = self.by.entry(who).or_default();
            match answer {
                Ok(_) => {
                    count.opened += 1;
                    connection.streams.push((stream, now, 1));
                }
                Err(refusal) => {
                    count.refused += 1;
                    assert!(matches!(refusal, BoundaryRefusal::StreamCapacityExceeded { .. }), "{refusal:?}");
                    if who == "late" {
                        self.longest_refused = self.longest_refused.max(now - connection.since);
                    }
                    break;
                }
            }
        }
        let place = usize::try_from(self.below(160)).unwrap();
        if let Some((stream, last, sequence)) = connection.streams.get_mut(place).filter(|_| place < 8) {
            (*last, *sequence) = (now, *sequence + 1);
            let (stream, sequence) = (*stream, *sequence);
            assert_eq!(self.receiver.send(stream, sequence, own), Ok(Verdict::Advance), "a known stream goes on");
            self.by.entry(who).or_default().sent += 1;
        }
    }

    fn attack(&mut self, connection: &Connection, honest: &[bool]) {
        let slot = Introducer::Slot(connection.slot);
        loop {
            let answer = self.receiver.opens(carrier(connection.link));
            let count = self.by.entry("attackers").or_default();
            match answer {
                Ok(_) => count.opened += 1,
                Err(BoundaryRefusal::StreamCapacityExceeded { introducer, bound }) => {
                    count.refused += 1;
                    assert!(!matches!(bound, Bound::Store { .. }), "shares refuse before the store does");
                    assert_eq!(introducer, slot, "on its own slot alone");
                    assert!(!honest[usize::from(connection.slot)]);
                    return;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn run(seed: u64) -> Self {
        let mut hour = Self {
            receiver: Receiver::new(328, 0),
            draw: seed,
            links: 0,
            honest: Vec::new(),
            late: Vec::new(),
            attackers: Vec::new(),
            by: BTreeMap::new(),
            tenures: 0,
            without_slot: 0,
            most: 0,
            longest_refused: 0,
        };
        let began = hour.receiver.now;
        let mut held = vec![false; 328];
        for _ in 0..Self::HONEST {
            let connection = hour.connect(u64::MAX / 2).expect("a free slot");
            held[usize::from(connection.slot)] = true;
            hour.honest.push(connection);
        }
        let mut comes: Vec<u64> = (0..Self::LATE).map(|_| began + 1_000 * hour.below(Self::SECONDS)).collect();
        for second in 0..Self::SECONDS {
            hour.receiver.now = began + 1_000 * second;
            let now = hour.receiver.now;
            let (stay, leave): (Vec<_>, Vec<_>) =
                std::mem::take(&mut hour.attackers).into_iter().partition(|connection| now < connection.until);
            hour.attackers = stay;
            leave.iter().for_each(|left| hour.receiver.boundary.retire_link(&LinkId::of(left.link)));
            // Whoever comes late waits for a slot like the attackers that are not connected.
            for place in (0..comes.len()).rev().filter(|place| comes[*place] <= now).collect::<Vec<_>>() {
                if let Some(connection) = hour.connect(u64::MAX / 2) {
                    comes.swap_remove(place);
                    held[usize::from(connection.slot)] = true;
                    hour.late.push(connection);
                }
            }
            // All the other attackers ask as long as there is a slot, and one of them once in vain.
            while hour.attackers.len() < usize::try_from(Self::ATTACKERS).unwrap() {
                let stays = 1_000 * (5 + hour.below(116));
                let Some(connection) = hour.connect(stays) else { break };
                hour.tenures += 1;
                hour.attackers.push(connection);
            }
            let (mut honest, mut late) = (std::mem::take(&mut hour.honest), std::mem::take(&mut hour.late));
            let attackers = std::mem::take(&mut hour.attackers);
            // Attackers first or last, by chance.
            let attackers_first = hour.below(2) == 0;
            for turn in 0..2 {
                if attackers_first == (turn == 0) {
                    for connection in &attackers {
                        if connection.since == now || hour.below(10) == 0 {
                            hour.attack(connection, &held);
                        }
                    }
                } else {
                    honest.iter_mut().for_each(|connection| hour.honestly("honest", connection));
                    late.iter_mut().for_each(|connection| hour.honestly("late", connection));
                }
            }
            (hour.honest, hour.late, hour.attackers) = (honest, late, attackers);
            hour.most = hour.most.max(hour.receiver.boundary.streams());
        }
        hour
    }
}

#[test]
fn l10_3_an_hour_of_1_000_rotating_attackers_refuses_none_of_100_honest_connections() {
    // More of them by `ADMIT_ONE_HOURS`.
    let hours = std::env::var("ADMIT_ONE_HOURS").ok().and_then(|hours| hours.parse().ok()).unwrap_or(1);
    for seed in 1..=hours {
        let began = std::time::Instant::now();
        let hour = Hour::run(seed);
        println!(
            "hour {seed}: attackers' connections had slots {} times and were without {} times; at most {} streams; new \
             streams and other transactions, opened, refused and sent: {:?}; late connections were refused for {} s at \
             most; took {:?}",
            hour.tenures,
            hour.without_slot,
            hour.most,
            hour.by,
            hour.longest_refused / 1_000,
            began.elapsed(),
        );
        assert_eq!(hour.by["honest"].refused, 0, "hour {seed}");
        assert!(hour.by["honest"].opened > 3 * 100 * 32 && hour.by["attackers"].opened > 10_000);
        assert!(hour.by["attackers"].refused > 50_000 && hour.tenures > 10_000);
        // Who comes late inherits what attackers left in its slot, until that is spent.
        assert!(hour.by["late"].refused > 0 && hour.by["late"].opened > 0);
        assert!(hour.longest_refused < SPENT, "hour {seed}: {} s", hour.longest_refused / 1_000);
        assert!(hour.most <= 15_616);
    }
}

#[test]
fn l10_3_what_waited_and_is_not_spent_costs_no_refusal_a_search_and_makes_room_once_the_clock_is_right() {
    let mut receiver = Receiver::new(328, 0);
    for link in 0..328 {
        receiver.link(link).unwrap();
        for _ in 0..42 {
            // Claims shrink, and the last find less.
            let _ = receiver.opens(carrier(link));
        }
    }
    receiver.fill(carrier(3));
    for waited in [false, true] {
        let began = std::time::Instant::now();
        for _ in 0..200 {
            assert!(receiver.opens(carrier(3)).is_err());
        }
        println!("refused in {:?}, the others having waited: {waited}", began.elapsed() / 200);
        // The wall clock steps back by as much, so that nothing is spent.
        let passes = DEFAULT_TTL_MS + receiver.config.sigma + 1;
        receiver.now += passes;
        receiver.back += passes;
    }
    receiver.now += 2 * receiver.config.sigma;
    assert!(receiver.opens(carrier(3)).is_err());
    receiver.back = 0;
    assert_eq!(receiver.opens(carrier(3)), Ok(Verdict::First));
}
