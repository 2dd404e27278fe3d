//! One world: its nodes, what is on the way between them, and its steps.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use super::{
    Violation, Without,
    disk::settle,
    dispatches::namespace,
    receiver::Receiver,
    sender::{Draft, Sender},
    weather::{Action, Weather},
};
use crate::{
    identity::{Did, KeySigner},
    layer::{
        boundary::{AdmissionConfig, Application, BoundaryRefusal, Carrier, Request, model::Draw},
        charging::Shares,
        quota::{Quota, Quotas, Rate},
    },
    link::LinkId,
    message::{Class, ClassifierId, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        commit::fault::Fault,
        lease::{LeaseConfig, LeaseRefused},
    },
};

const SIGMA: u64 = 50;
const START: u64 = 1_000_000_000;
const CLASSES: [Class; 2] = [Class::E2e, Class::Application];
/// Honest origins: machines 0 and 1, with an identity each.
const HONEST: usize = 2;
/// The attacker's machine, with all other identities, and the relay, which has none.
const ATTACKER: usize = 2;
const MACHINES: u64 = 4;
const IDENTITIES: usize = 8;
/// How far a clock is ever off, in milliseconds.
const OFF: u64 = 30_000;

static DIDS: LazyLock<Vec<Did>> =
    LazyLock::new(|| (1..=10).map(|secret| KeySigner::from_secret(&[secret; 32]).unwrap().key()).collect());

/// Three messages at once and two a second; 1,000 bytes at once and as many a second.
const QUOTA: Quota = match (Rate::new(2, 3), Rate::new(1_000, 1_000)) {
    (Some(messages), Some(bytes)) => Quota { messages, bytes },
    _ => unreachable!(),
};

/// What a world has been through, for the figures.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) steps: u64,
    pub(super) signed: u64,
    pub(super) presented: u64,
    pub(super) dispatched: u64,
    pub(super) link_local: u64,
    pub(super) promised: u64,
    pub(super) excused: u64,
    pub(super) lost: u64,
    pub(super) crashed: u64,
    pub(super) failed: u64,
    pub(super) links_refused: u64,
    pub(super) heard: u64,
    pub(super) unheard: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// A hash of all that happened, in its order.
    pub(super) trace: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.signed += other.signed;
        self.presented += other.presented;
        self.dispatched += other.dispatched;
        self.link_local += other.link_local;
        self.promised += other.promised;
        self.excused += other.excused;
        self.lost += other.lost;
        self.crashed += other.crashed;
        self.failed += other.failed;
        self.links_refused += other.links_refused;
        self.heard += other.heard;
        self.unheard += other.unheard;
        self.trace ^= other.trace;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
    }
}

pub(super) struct World {
    draw: Draw,
    weather: Weather,
    without: Without,
    real: u64,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// Everything that was ever signed, by its destination.
    signed: [Vec<Request>; 2],
    /// Which of two classifiers each destination runs; the second takes one namespace for the other.
    classifiers: [usize; 2],
    greatest_ttl: u64,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let mut draw = Draw(seed);
        let weather = Weather::draw(&mut draw);
        let greatest_ttl = *draw.pick(&[500, 2_000, 4_000]).unwrap();
        let quotas = match draw.below(3) {
            0 => Quotas::NONE,
            1 => Quotas::NONE.with(Class::E2e, QUOTA),
            _ => Quotas::NONE.with(Class::E2e, QUOTA).with(Class::Application, QUOTA),
        };
        let receivers = (0..2).map(|_| {
            let small = Shares { slots: 3, floor: 1, pool: 2, inbox: 1, own: 1 };
            let shares = if draw.one_in(2) { small } else { Shares { slots: 4, ..Shares::default() } };
            let streams = 6 + draw.below(12) as usize;
            let config =
                AdmissionConfig { sigma: SIGMA, greatest_ttl, streams, shares, quotas, ..AdmissionConfig::default() };
            Receiver::new(START, config, without)
        });
        let receivers = receivers.collect();
        let streams = *draw.pick(&[3, 8]).unwrap();
        let senders = (0..HONEST).map(|_| Sender::new(START, LeaseConfig { sigma: SIGMA, streams })).collect();
        Self {
            draw,
            weather,
            without,
            real: START,
            senders,
            receivers,
            signed: [Vec::new(), Vec::new()],
            classifiers: [0; 2],
            greatest_ttl,
            tally: Tally::default(),
        }
    }

    /// Runs `steps` steps and what comes after them, or up to the first violation.
    pub(super) async fn run(&mut self, steps: u64) -> Result<(), Violation> {
        let mut result = Ok(());
        for _ in 0..steps {
            self.tally.steps += 1;
            result = self.step().await;
            if result.is_err() {
                break;
            }
        }
        if result.is_ok() {
            result = self.at_last().await;
        }
        for receiver in &self.receivers {
            let dispatches = &receiver.dispatches;
            self.tally.dispatched += dispatches.total;
            self.tally.link_local += dispatches.link_local;
            self.tally.promised += dispatches.promised;
            self.tally.excused += dispatches.excused;
            self.tally.lost += dispatches.lost;
            self.tally.links_refused += receiver.links_refused;
            for (reason, count) in &receiver.refused {
                *self.tally.refused.entry(reason).or_default() += count;
            }
        }
        result
    }

    async fn step(&mut self) -> Result<(), Violation> {
        let action = self.weather.next(&mut self.draw);
        self.note(action as u64);
        let (at, from) = (self.draw.below(2) as usize, self.draw.below(HONEST as u64) as usize);
        if !self.receivers[at].runs() {
            self.start(at).await;
            return Ok(());
        }
        match action {
            Action::Pass => {
                let ms = self.draw.below(60);
                self.pass(ms);
            }
            Action::PassLong => {
                let ms = self.draw.below(6_000);
                self.pass(ms);
            }
            Action::StepClock => self.step_clock(at),
            Action::RightClock => self.receivers[at].clock.step_wall_to(self.real),
            Action::Reserve => {
                let draft = self.draft(from, at);
                self.senders[from].reserve(draft).await?;
            }
            Action::SenderLands => self.senders[from].land().await,
            Action::SenderFails => self.senders[from].fail(Fault::Io).await,
            Action::SenderCrashes | Action::SenderLoses | Action::SenderDamage => {
                self.senders[from].crash(&mut self.draw, self.without).await;
                match action {
                    Action::SenderLoses => self.senders[from].lose(),
                    Action::SenderDamage => self.senders[from].damage(&mut self.draw),
                    _ => {}
                }
            }
            Action::SenderClock => {
                let off = self.draw.below(2_001);
                self.senders[from].clock.step_wall_to(self.real + off - 1_000);
            }
            Action::Forge => self.forge(at),
            Action::Deliver => self.deliver(at)?,
            Action::Land => self.receivers[at].land().await?,
            Action::Fail => {
                let fault = *self.draw.pick(&[Fault::Io, Fault::Closed]).unwrap();
                self.tally.failed += u64::from(self.receivers[at].fail(fault).await?);
            }
            Action::Crash | Action::Reboot | Action::Lose | Action::Damage => self.crash(at, action).await,
            Action::OpenLink => {
                let machine = self.draw.below(MACHINES) as usize;
                self.receivers[at].open_link(machine)?;
            }
            Action::CloseLink => self.receivers[at].close_link(&mut self.draw),
            Action::Register | Action::Withdraw => {
                let name = namespace(self.draw.below(2) as usize);
                self.receivers[at].change(name, action == Action::Register);
            }
            Action::HandOver => self.hand_over(at)?,
        }
        settle().await;
        self.receivers[at].collect()?;
        self.collect(from)
    }

    /// Passes true time, which every clock follows.
    fn pass(&mut self, ms: u64) {
        self.real += ms;
        let time = Duration::from_millis(ms);
        self.senders.iter().for_each(|sender| sender.clock.advance(time));
        self.receivers.iter().for_each(|receiver| receiver.clock.advance(time));
    }

    /// Steps a destination's wall clock: near, far, or to where something that was dispatched lives again.
    fn step_clock(&mut self, at: usize) {
        let receiver = &self.receivers[at];
        let wall = match self.draw.pick(&receiver.dispatches.recent) {
            Some(request) if self.draw.one_in(2) => request.issued_at + self.draw.below(request.ttl + 3 * SIGMA),
            _ => {
                let by = *self.draw.pick(&[2 * SIGMA, 2 * SIGMA, 1_000, 1_000, 6_000, OFF]).unwrap();
                self.real + self.draw.below(2 * by + 1) - by
            }
        };
        receiver.clock.step_wall_to(wall.clamp(self.real - OFF, self.real + OFF));
    }

    async fn crash(&mut self, at: usize, action: Action) {
        self.tally.crashed += 1;
        self.receivers[at].crash(&mut self.draw).await;
        match action {
            Action::Damage => self.receivers[at].damage(&mut self.draw),
            Action::Lose => self.receivers[at].lose(self.real),
            _ => {}
        }
        if action == Action::Reboot || (action == Action::Lose && self.draw.one_in(2)) {
            let off = self.draw.below(300);
            self.pass(off);
            self.receivers[at].clock.reboot();
            if self.draw.one_in(2) {
                self.step_clock(at);
            }
        }
    }

    async fn start(&mut self, at: usize) {
        let recorded = self.receivers[at].recorded();
        // Mostly as it was.
        let mut named = Vec::new();
        for number in 0..2 {
            if recorded.contains(&namespace(number)) != self.draw.one_in(5) {
                named.push(namespace(number));
            }
        }
        if self.draw.one_in(6) {
            self.classifiers[at] = 1 - self.classifiers[at];
        }
        self.receivers[at].start(&named, self.real).await;
    }

    fn stream(&self, identity: usize, to: usize, class: Class) -> StreamKey {
        StreamKey { network: NetworkId(7), origin: DIDS[identity], destination: DIDS[IDENTITIES + to], class }
    }

    fn draft(&mut self, from: usize, to: usize) -> Draft {
        let class = *self.draw.pick(&CLASSES).unwrap();
        Draft {
            stream: self.stream(from, to, class),
            issued_at: self.senders[from].wall(),
            ttl: if self.draw.one_in(3) { 1 + self.draw.below(self.greatest_ttl) } else { self.greatest_ttl },
            bytes: self.draw.below(400),
        }
    }

    /// What an honest origin signed is on its way.
    fn collect(&mut self, from: usize) -> Result<(), Violation> {
        for (draft, reservation) in self.senders[from].collect()? {
            let request = self.sign(draft, reservation.incarnation, reservation.sequence);
            self.put(request);
        }
        Ok(())
    }

    /// The digest is drawn: nobody signs two transactions alike.
    fn sign(&mut self, draft: Draft, incarnation: Incarnation, sequence: u64) -> Request {
        self.tally.signed += 1;
        let Draft { stream, issued_at, ttl, bytes } = draft;
        let mut digest = TransactionDigest([0; 32]);
        digest.0[..8].copy_from_slice(&self.draw.next().to_be_bytes());
        Request {
            stream,
            incarnation,
            sequence,
            digest,
            issued_at,
            ttl,
            bytes,
            carrier: Carrier::Own,
            application: None,
        }
    }

    fn put(&mut self, request: Request) {
        let to = usize::from(request.stream.destination != DIDS[IDENTITIES]);
        self.signed[to].push(request);
    }

    /// The attacker signs what it likes, under any of its identities.
    fn forge(&mut self, to: usize) {
        let identity = HONEST + self.draw.below((IDENTITIES - HONEST) as u64) as usize;
        let class = *self.draw.pick(&CLASSES).unwrap();
        let wall = if self.draw.one_in(3) { self.real } else { self.receivers[to].wall() };
        let near = |draw: &mut Draw, by: u64| wall + draw.below(2 * by + 1) - by;
        let by = *self.draw.pick(&[SIGMA, SIGMA, SIGMA, SIGMA, 1_000, OFF]).unwrap();
        let issued_at = near(&mut self.draw, by);
        let incarnation = match self.draw.below(4) {
            0 => Incarnation::new(near(&mut self.draw, 2_000), self.draw.next() as u16),
            _ => Incarnation::new(START, 1),
        };
        let sequence = match self.draw.below(20) {
            0 => u64::MAX - self.draw.below(3),
            1..=9 => self.draw.below(6),
            _ => self.draw.below(80),
        };
        let ttl = if self.draw.one_in(6) { 1 + self.draw.below(2 * self.greatest_ttl) } else { self.greatest_ttl };
        let bytes = self.draw.below(1_200);
        let draft = Draft { stream: self.stream(identity, to, class), issued_at, ttl, bytes };
        let request = self.sign(draft, incarnation, sequence);
        self.put(request);
    }

    /// Anything ever signed arrives, mostly something of late, on any link.
    fn deliver(&mut self, at: usize) -> Result<(), Violation> {
        let Some(request) = self.choose(at) else { return Ok(()) };
        let request = self.carry(at, request);
        self.tally.presented += 1;
        self.note(u64::from_be_bytes(*request.digest.0.first_chunk().unwrap()));
        self.receivers[at].present(request, self.real)
    }

    fn choose(&mut self, at: usize) -> Option<Request> {
        let (wall, dispatches, signed) = (self.receivers[at].wall(), &self.receivers[at].dispatches, &self.signed[at]);
        for _ in 0..5 {
            let from = match self.draw.below(10) {
                0 => signed,
                7.. if !dispatches.before_loss.is_empty() => &dispatches.before_loss,
                1..=4 => &signed[signed.len().saturating_sub(10)..],
                _ => &dispatches.recent[..],
            };
            let chosen = self.draw.pick(from).copied();
            let lives = |request: &Request| request.issued_at <= wall + SIGMA && wall < request.expires_at();
            if chosen.is_some_and(|chosen| lives(&chosen) || self.draw.one_in(12)) {
                return chosen;
            }
        }
        self.forge(at);
        self.signed[at].last().copied()
    }

    /// On a link, by this node itself, or on a link that nobody announced.
    fn carry(&mut self, at: usize, request: Request) -> Request {
        let link = self.receivers[at].link(&mut self.draw);
        let carrier = match (self.draw.below(16), link) {
            (0 | 1, _) => Carrier::Own,
            (2, _) | (_, None) => Carrier::Link(LinkId::of("nobody announced it")),
            (_, Some((link, _))) => Carrier::Link(link),
        };
        self.carried(at, request, carrier, link)
    }

    fn carried(&self, at: usize, request: Request, carrier: Carrier, link: Option<(LinkId, usize)>) -> Request {
        let identity = DIDS.iter().position(|did| *did == request.stream.origin).unwrap();
        let machine = if identity < HONEST { identity } else { ATTACKER };
        let own_link = link.filter(|(link, of)| *of == machine && carrier == Carrier::Link(*link));
        let application = Application {
            classifier: ClassifierId::of(["first", "second"][self.classifiers[at]]),
            namespace: Some(namespace((usize::from(request.digest.0[0]) + self.classifiers[at]) % 2)),
            own_link: own_link.map(|(link, _)| link),
        };
        let application = (request.stream.class == Class::Application).then_some(application);
        Request { carrier, application, ..request }
    }

    fn hand_over(&mut self, at: usize) -> Result<(), Violation> {
        let receiver = &mut self.receivers[at];
        let Some(ready) = receiver.hand_over()? else { return Ok(()) };
        let place = self.draw.below(10) as usize;
        receiver.dispatches.dispatch(&ready.request, ready.effect, (ready.at, SIGMA), place)?;
        self.note(1 + u64::from_be_bytes(*ready.request.digest.0.first_chunk().unwrap()));
        Ok(())
    }

    fn note(&mut self, what: u64) {
        self.tally.trace = Draw(self.tally.trace ^ what).next();
    }

    /// Clocks come right and everything is repaired. After a while every honest origin is heard.
    async fn at_last(&mut self) -> Result<(), Violation> {
        for at in 0..2 {
            while !self.receivers[at].runs() {
                self.start(at).await;
            }
            self.receivers[at].clock.step_wall_to(self.real);
            self.receivers[at].close_links();
            self.receivers[at].repair().await?;
        }
        for from in 0..HONEST {
            self.senders[from].land().await;
            self.senders[from].clock.step_wall_to(self.real);
            self.collect(from)?;
        }
        // Longer than any clock was off, and than anything lives or is waited for.
        self.pass(2 * OFF + 4 * self.greatest_ttl);
        for (from, at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for class in CLASSES {
                self.hear(from, at, class).await?;
            }
        }
        Ok(())
    }

    async fn hear(&mut self, from: usize, at: usize, class: Class) -> Result<(), Violation> {
        while self.receivers[at].waits_for_handler() {
            self.hand_over(at)?;
        }
        let stream = self.stream(from, at, class);
        let draft = Draft { stream, issued_at: self.senders[from].wall(), ttl: self.greatest_ttl, bytes: 1 };
        let reservation = match self.senders[from].at_last(draft).await? {
            Ok(reservation) => reservation,
            Err(LeaseRefused::Unavailable { .. } | LeaseRefused::StreamCapacityExceeded { .. }) => {
                self.tally.unheard += 1;
                return Ok(());
            }
            Err(_) => return Err(Violation::NotHeard),
        };
        let request = self.sign(draft, reservation.incarnation, reservation.sequence);
        self.receivers[at].close_links();
        self.receivers[at].open_link(from)?;
        let link = self.receivers[at].link(&mut self.draw);
        let carrier = link.map_or(Carrier::Own, |(link, _)| Carrier::Link(link));
        let request = self.carried(at, request, carrier, link);
        let mut refusal = self.receivers[at].at_last(request, self.real).await;
        if let Some(BoundaryRefusal::NamespaceWithdrawn { .. }) = refusal {
            // The first that another classifier reads sets a mark, and is sent again once the clock passed it.
            self.pass(3 * SIGMA);
            let request = Request { issued_at: self.senders[from].wall(), ..request };
            refusal = self.receivers[at].at_last(request, self.real).await;
        }
        if let Some(refusal) = refusal {
            self.tally.unheard += 1;
            // A bad record has no stream; bad records take places; and who lost its store while its clock was behind
            // began again below what is kept.
            return match refusal.label() {
                "stream_unavailable" | "stream_capacity_exceeded" => Ok(()),
                "stale" if self.senders[from].lost => Ok(()),
                _ => Err(Violation::NotHeard),
            };
        }
        let before = self.receivers[at].dispatches.total;
        while self.receivers[at].waits_for_handler() {
            self.hand_over(at)?;
        }
        let heard = self.receivers[at].dispatches.total > before;
        self.tally.heard += u64::from(heard);
        if heard { Ok(()) } else { Err(Violation::NotHeard) }
    }
}
