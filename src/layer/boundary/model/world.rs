//! One world: its clocks, its store, its senders, its adversary, and what must hold in it.

mod adversary;
mod local;
mod mail;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
    time::Duration,
};

use self::{
    local::{Locality, Registration},
    mail::Post,
};
use super::{
    Fault, Habit, Without,
    disk::{Disk, Draw, Gathering, ModelStage},
    weather::{ACTIONS, Action, Weather},
};
use crate::{
    clock::BootId,
    identity::KeySigner,
    layer::{
        boundary::{
            AdmissionConfig, AdmissionOpenError, BoundaryRefusal, Request,
            core::{Boundary, Scans},
        },
        charging::{Introducer, Shares},
        custody::Offer,
        window::{Verdict, WindowRefusal},
    },
    message::{Class, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        RecordName, Table,
        birth::{BIRTH_KEY, Birth, Reading},
        guard::Guards,
    },
};

/// Two streams of one class and one of another.
static STREAMS: LazyLock<[StreamKey; 3]> = LazyLock::new(|| {
    let key = |secret: u8| KeySigner::from_secret(&[secret; 32]).unwrap().key();
    [(1, Class::E2e), (2, Class::E2e), (1, Class::Storage)].map(|(origin, class)| StreamKey {
        network: NetworkId(7),
        origin: key(origin),
        destination: key(9),
        class,
    })
});

#[derive(Debug)]
struct Sender {
    incarnation: Incarnation,
    next: u64,
    offset: i64,
}

#[derive(Debug, Clone, Copy)]
struct Admitted {
    request: Request,
    link_local: bool,
    /// It is mail, and offered.
    offer: Option<Offer>,
    /// It is mail, and taken.
    taken: bool,
    real: u64,
    offset: i64,
    noticed: Option<i64>,
    sigma: u64,
}

#[derive(Debug, Clone, Copy)]
struct Dispatch {
    store: u64,
    real: u64,
    offset: i64,
    /// Under which registration of its namespace, in a world with registrations.
    registration: Option<Registration>,
}

#[derive(Debug)]
struct Process {
    boundary: Boundary,
    bad: BTreeSet<RecordName>,
    /// What the pool, the inbox and this node held when it started.
    found: [u32; 3],
    flying: Option<Gathering<Admitted>>,
    gathering: Gathering<Admitted>,
    /// What may be handed over, in a world where that takes a while.
    ready: Vec<Admitted>,
    /// Mail that the application may take.
    offered: Vec<Admitted>,
}

/// What a world has been through, for the figures.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    pub(super) steps: u64,
    pub(super) presented: u64,
    pub(super) dispatched: u64,
    pub(super) removed: u64,
    pub(super) lost: u64,
    pub(super) excused: u64,
    pub(super) undone: u64,
    pub(super) link_local: u64,
    pub(super) delegated: u64,
    pub(super) redelivered: u64,
    pub(super) taken: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.presented += other.presented;
        self.dispatched += other.dispatched;
        self.removed += other.removed;
        self.lost += other.lost;
        self.excused += other.excused;
        self.undone += other.undone;
        self.link_local += other.link_local;
        self.delegated += other.delegated;
        self.redelivered += other.redelivered;
        self.taken += other.taken;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
    }
}

pub(super) struct World {
    draw: Draw,
    without: Without,
    weather: Weather,
    real: u64,
    offset: i64,
    boot: u128,
    /// Monotonic time is true time less this.
    boot_started: u64,
    config: AdmissionConfig,
    /// For how long mail may be held in this run; 0 without custody.
    hold: u64,
    streams: &'static [StreamKey; 3],
    /// Links and registrations, in worlds that have them.
    local: Option<Locality>,
    /// Mail, in worlds that have it.
    post: Option<Post>,
    disk: Disk,
    process: Option<Process>,
    /// Stores are numbered; a loss begins the next.
    store: u64,
    lost_at: u64,
    /// The greatest offset that the store on the disk has noticed durably while settling.
    noticed: Option<i64>,
    greatest_sigma: u64,
    greatest_wall: u64,
    /// Of each stream, the greatest expiry admitted at readings of a clock that was ahead, and whether it was removed.
    ahead: [(u64, bool); 3],
    senders: Vec<Sender>,
    signed: Vec<Request>,
    dispatched: HashMap<TransactionDigest, Vec<Dispatch>>,
    recent: Vec<Request>,
    /// What `recent` was when the last store was lost.
    before_loss: Vec<Request>,
    /// Draws what brings each request, apart from all else, so that a world is the same with and without it.
    carriers: Option<Draw>,
    /// Whether memory is compared with the disk.
    pub(super) compare: bool,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let mut draw = Draw(seed);
        let weather = Weather::draw(&mut draw);
        let config = AdmissionConfig { streams: 2 + draw.below(2) as usize, ..AdmissionConfig::default() };
        let mut world = Self {
            without,
            weather,
            real: 10_000,
            offset: 0,
            boot: 1,
            boot_started: 10_000 - draw.below(50),
            config,
            hold: 0,
            streams: &STREAMS,
            local: None,
            post: None,
            disk: Disk::default(),
            process: None,
            store: 0,
            lost_at: 0,
            noticed: None,
            greatest_sigma: 0,
            greatest_wall: 0,
            ahead: [(0, false); 3],
            senders: Vec::new(),
            signed: Vec::new(),
            dispatched: HashMap::new(),
            recent: Vec::new(),
            before_loss: Vec::new(),
            carriers: None,
            compare: true,
            tally: Tally::default(),
            draw,
        };
        for _ in STREAMS.iter() {
            let offset = if world.draw.one_in(3) { world.draw.below(5) as i64 - 2 } else { 0 };
            let incarnation = Incarnation::new(world.real.wrapping_add_signed(offset), 0);
            world.senders.push(Sender { incarnation, next: 0, offset });
        }
        world
    }

    /// Makes shares so small that each is reached.
    pub(super) fn charge(&mut self, seed: u64) {
        let mut draw = Draw(!seed);
        self.config.shares = Shares { slots: 3, floor: draw.below(2) as u32, pool: 1, inbox: 1, own: 1 };
        self.carriers = Some(draw);
    }

    /// Runs `steps` steps, or up to the first fault.
    pub(super) fn run(&mut self, steps: u64) -> Result<(), Fault> {
        for _ in 0..steps {
            self.tally.steps += 1;
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        if self.process.is_none() {
            return self.start();
        }
        if self.local.is_some() && self.draw.one_in(3) {
            return self.step_local();
        }
        if self.post.is_some() && self.draw.one_in(4) {
            return self.step_mail();
        }
        if self.weather.removals_meet_trouble && self.removal_on_its_way() && self.draw.one_in(3) {
            let action = *self.draw.pick(&[Action::Flush, Action::Fail, Action::Crash]).unwrap();
            return self.act(action);
        }
        let total = self.weather.steps.iter().sum();
        let mut at = self.draw.below(total);
        for action in ACTIONS {
            let weight = self.weather.steps[action as usize];
            if at < weight {
                return self.act(action);
            }
            at -= weight;
        }
        Ok(())
    }

    fn removal_on_its_way(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let batches = process.flying.iter().chain([&process.gathering]);
        batches.flat_map(|batch| batch.writes.values()).any(Option::is_none)
    }

    fn act(&mut self, action: Action) -> Result<(), Fault> {
        match action {
            Action::Pass => self.real += self.draw.below(3),
            Action::PassLong => self.real += self.draw.below(30),
            Action::StepClock => self.step_clock(),
            Action::RightClock => self.offset = 0,
            Action::Sign => self.sign(),
            Action::Present => return self.present(),
            Action::Flush => return self.flush(),
            Action::Fail => return self.fail(),
            Action::Crash => self.crash(),
            Action::Reboot => {
                self.crash();
                self.reboot();
            }
            Action::Lose => {
                self.crash();
                self.lose();
                match self.draw.below(3) {
                    _ if self.weather.losses => self.offset -= (self.draw.below(3) * self.draw.below(15)) as i64,
                    0 => self.reboot(),
                    1 => self.step_clock(),
                    _ => {}
                }
            }
            Action::Damage => {
                self.crash();
                let table = match self.draw.one_in(8) {
                    true => Table::Clock,
                    false if self.post.is_some() && self.draw.one_in(2) => Table::Custody,
                    false => Table::Receiver,
                };
                self.disk.damage(table, &mut self.draw);
            }
        }
        Ok(())
    }

    fn reading(&self) -> Reading {
        Reading {
            wall: self.real.saturating_add_signed(self.offset),
            monotonic: Duration::from_millis(self.real - self.boot_started),
            boot: Some(BootId(self.boot.to_be_bytes())),
        }
    }

    fn keeps(&self, habit: Habit) -> bool {
        self.without != Without::Habit(habit)
    }

    /// Starts a process: it restores, and its first reading advances birth.
    fn start(&mut self) -> Result<(), Fault> {
        self.real += self.draw.below(4);
        self.config.sigma = *self.draw.pick(&self.weather.sigmas).unwrap();
        self.config.greatest_ttl = *self.draw.pick(&self.weather.ttls).unwrap();
        if let Some(draw) = &mut self.carriers {
            self.config.shares.slots = draw.below(4) as u16;
        }
        if !self.disk.holds(Table::Clock, BIRTH_KEY) {
            self.config.sigma = self.config.sigma.max(self.greatest_sigma);
        }
        self.greatest_sigma = self.greatest_sigma.max(self.config.sigma);
        self.start_mail();
        let (boundary, bad) = match self.restore() {
            Ok(restored) => restored,
            Err(AdmissionOpenError::Damaged { .. }) => {
                // The operator gives up the store.
                self.lose();
                return Ok(());
            }
            Err(AdmissionOpenError::OverCapacity { held, .. }) => {
                // A torn batch whose removals did not land, and whose new stream did. The operator does what it says.
                self.config.streams = held;
                return Ok(());
            }
            Err(error) => unreachable!("{error}"),
        };
        let (found, ready, offered) = (shared(&boundary), Vec::new(), Vec::new());
        let gathering = Gathering::new(1);
        self.process = Some(Process { boundary, bad, found, flying: None, gathering, ready, offered });
        self.started_mail();
        let named = self.start_local();
        self.transition(|boundary, reading, stage| boundary.begin(&named, reading, stage)).1.unwrap();
        self.check()
    }

    fn restore(&self) -> Result<(Boundary, BTreeSet<RecordName>), AdmissionOpenError> {
        let guards = Guards {
            without: match self.without {
                Without::Guard(guard) => Some(guard),
                Without::Nothing | Without::Habit(_) => None,
            },
        };
        let [receiver, clock, custody] =
            [Table::Receiver, Table::Clock, Table::Custody].map(|table| self.disk.scan(table));
        let mut bad: BTreeSet<_> = receiver.bad.iter().chain(&custody.bad).map(|bad| bad.name).collect();
        let scans = Scans { receiver, clock, custody };
        let now = self.reading().monotonic;
        let (mut boundary, more) = Boundary::restore(&self.config, guards, &scans, self.hold, now)?;
        boundary.local.ahead = local::AHEAD;
        bad.extend(more.into_iter().map(|(name, _)| name));
        Ok((boundary, bad))
    }

    /// Runs a transition and stages its writes; also gives the reading that it was judged by.
    fn transition<R>(
        &mut self,
        transition: impl FnOnce(&mut Boundary, &Reading, &mut ModelStage<'_>) -> R,
    ) -> (Reading, R) {
        let reading = self.reading();
        self.greatest_wall = self.greatest_wall.max(reading.wall);
        let process = self.process.as_mut().unwrap();
        let Process { flying, gathering, .. } = &process;
        let unreleased = (!gathering.writes.is_empty()).then_some(gathering.number);
        let unreleased = unreleased.or(flying.as_ref().map(|flying| flying.number));
        let number = gathering.number;
        let mut stage = ModelStage { number, unreleased, bad: &process.bad, staged: Vec::new() };
        let result = transition(&mut process.boundary, &reading, &mut stage);
        let staged = stage.staged;
        for ((_, key), _) in staged.iter().filter(|((table, _), value)| *table == Table::Receiver && value.is_none()) {
            self.tally.removed += 1;
            let place = self.streams.iter().position(|stream| stream.to_bytes()[..] == key[..]).unwrap();
            self.ahead[place].1 = true;
        }
        process.gathering.writes.extend(staged);
        if process.boundary.birth().is_some_and(|birth| !Birth::settled(birth)) {
            process.gathering.noticed = process.gathering.noticed.max(Some(self.offset));
        }
        (reading, result)
    }

    /// The adversary presents anything ever signed; often something fresh, or something dispatched before.
    fn present(&mut self) -> Result<(), Fault> {
        let Some(request) = self.choose() else { return Ok(()) };
        let mut request = Request { carrier: self.carrier(), ..request };
        self.tally.presented += 1;
        self.carry(&mut request);
        self.post(&mut request);
        let all = self.mark_of_all();
        let (reading, decided) = self.transition(|boundary, reading, stage| boundary.admit(&request, reading, stage));
        if self.mark_of_all() != all {
            self.process.as_mut().unwrap().gathering.ended = [true; 2];
        }
        let at_once = !self.keeps(Habit::DispatchAfterDurable);
        // What streams of the class that were removed had admitted by a clock that was ahead.
        let of_class = self.streams.iter().zip(&self.ahead).filter(|(stream, _)| stream.class == request.stream.class);
        let raised_ahead = of_class.filter(|(_, (_, removed))| *removed).map(|(_, (expiry, _))| *expiry).max();
        let raised_ahead = raised_ahead.unwrap_or(0);
        let floor_excused = self.floor_excused(&request);
        let process = self.process.as_mut().unwrap();
        match decided {
            Ok(accepted) => {
                let redelivered = accepted.verdict == Verdict::Redelivered;
                self.tally.redelivered += u64::from(redelivered);
                if self.offset > 0 && !accepted.link_local {
                    let place = self.streams.iter().position(|stream| *stream == request.stream).unwrap();
                    self.ahead[place].0 = self.ahead[place].0.max(request.expires_at());
                }
                let pending = process.flying.as_ref().and_then(|batch| batch.noticed);
                let admitted = Admitted {
                    request,
                    link_local: accepted.link_local,
                    offer: accepted.offer,
                    taken: false,
                    real: self.real,
                    offset: self.offset,
                    noticed: self.noticed.max(pending).max(process.gathering.noticed),
                    sigma: process.boundary.birth().map_or(0, Birth::greatest_sigma),
                };
                self.tally.link_local += u64::from(admitted.link_local);
                self.check_offer(&admitted)?;
                let process = self.process.as_mut().unwrap();
                match &mut process.flying {
                    // It staged something, or what it saw gathers.
                    _ if !(admitted.link_local || redelivered) || !process.gathering.writes.is_empty() => {
                        process.gathering.admitted.push(admitted);
                    }
                    Some(flying) => flying.admitted.push(admitted),
                    None if redelivered => process.offered.push(admitted),
                    None => process.ready.push(admitted),
                }
                if at_once && admitted.offer.is_none() {
                    return self.dispatch(admitted);
                }
            }
            Err(BoundaryRefusal::BelowFloor { floor })
                if !floor_excused && (floor > self.greatest_wall || (self.offset >= 0 && floor > raised_ahead)) =>
            {
                return Err(Fault::FloorTooHigh);
            }
            Err(BoundaryRefusal::Window(WindowRefusal::Stale { incarnation, .. }))
                if incarnation.wall() > self.greatest_wall.max(reading.wall) + self.greatest_sigma =>
            {
                return Err(Fault::OutOfReach);
            }
            Err(refusal) => *self.tally.refused.entry(refusal.label()).or_default() += 1,
        }
        let process = self.process.as_ref().unwrap();
        if process.boundary.streams() + process.bad.len() - process.boundary.custody.damaged() > self.config.streams {
            return Err(Fault::OverBound);
        }
        self.check_custody()?;
        self.check_shares()
    }

    /// The batch in flight lands, or the gathering one takes off.
    fn flush(&mut self) -> Result<(), Fault> {
        let process = self.process.as_mut().unwrap();
        let Some(landed) = process.flying.take() else {
            let next = Gathering::new(process.gathering.number + 1);
            process.flying = Some(std::mem::replace(&mut process.gathering, next));
            return Ok(());
        };
        process.boundary.released(landed.number);
        self.disk.land(landed.writes);
        self.noticed = self.noticed.max(landed.noticed);
        self.end(landed.ended);
        if self.local.is_some() {
            self.process.as_mut().unwrap().ready.extend(landed.admitted);
        } else {
            for admitted in landed.admitted {
                match admitted.offer.is_some() && !admitted.taken {
                    true => {
                        self.process.as_mut().unwrap().offered.push(admitted);
                        self.remember_mail(&admitted);
                    }
                    false if self.keeps(Habit::DispatchAfterDurable) => self.dispatch(admitted)?,
                    false => {}
                }
            }
        }
        self.check()
    }

    /// The batch in flight fails, and the one gathering on top with it.
    fn fail(&mut self) -> Result<(), Fault> {
        let undo = self.keeps(Habit::UndoOnFailure);
        let process = self.process.as_mut().unwrap();
        let Some(failed) = process.flying.take() else { return Ok(()) };
        self.tally.undone += 1;
        let next = Gathering::new(process.gathering.number + 1);
        let on_top = std::mem::replace(&mut process.gathering, next);
        if undo {
            process.boundary.undo();
        }
        process.end_offers(failed.admitted.into_iter().chain(on_top.admitted));
        self.check()
    }

    /// The process is gone: what gathered is lost, and what was in flight is lost, whole or torn.
    fn crash(&mut self) {
        let Some(process) = self.process.take() else { return };
        let Some(flying) = process.flying else { return };
        flying.admitted.iter().for_each(|admitted| self.remember_mail(admitted));
        match self.draw.below(3) {
            0 => return,
            1 => self.disk.land(flying.writes),
            _ => {
                let marks_first = self.keeps(Habit::MarksLandFirst);
                self.disk.land_torn(flying.writes, marks_first, &mut self.draw);
                if !marks_first {
                    return;
                }
            }
        }
        self.end(flying.ended);
        self.noticed = self.noticed.max(flying.noticed);
    }

    fn reboot(&mut self) {
        self.boot += 1;
        // The machine was off for a while, and the process starts some time after it.
        self.real += self.draw.below(6);
        self.boot_started = self.real - self.draw.below(60);
        match self.draw.below(3) {
            0 if !self.weather.losses => self.step_clock(),
            1 => self.offset = 0,
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.tally.lost += 1;
        self.disk = Disk::default();
        self.store += 1;
        self.lost_at = self.real;
        self.noticed = None;
        self.end([true; 2]);
        self.lose_mail();
        self.before_loss.clone_from(&self.recent);
    }

    fn dispatch(&mut self, admitted: Admitted) -> Result<(), Fault> {
        self.tally.dispatched += 1;
        let registration = self.registration(&admitted.request);
        self.dispatch_on_link(&admitted)?;
        let dispatches = self.dispatched.entry(admitted.request.digest).or_default();
        for first in dispatches.iter() {
            if registration.is_some() && first.registration == registration {
                // The namespace has promised to know it.
                self.tally.delegated += 1;
                continue;
            }
            if first.store == self.store {
                return Err(Fault::TwiceInOneStore);
            }
            // See the module's docs: what is not to be had.
            let gap = i64::try_from(self.lost_at - first.real).unwrap();
            let behind = |offset: i64| offset < first.offset - i64::try_from(admitted.sigma).unwrap() - gap;
            if admitted.noticed.is_some_and(|offset| !behind(offset)) || !behind(admitted.offset) {
                return Err(Fault::TwiceAcrossLoss);
            }
            self.tally.excused += 1;
        }
        dispatches.push(Dispatch { store: self.store, real: admitted.real, offset: admitted.offset, registration });
        self.remember(admitted.request);
        Ok(())
    }

    /// What was dispatched lately is presented most.
    fn remember(&mut self, request: Request) {
        let place = self.draw.below(10) as usize;
        match self.recent.get_mut(place) {
            Some(recent) => *recent = request,
            None => self.recent.push(request),
        }
    }

    /// No share is passed, except by what a restart found: of a torn batch, a new stream may have landed and the removal
    /// that made room for it not.
    fn check_shares(&self) -> Result<(), Fault> {
        let Some(process) = &self.process else { return Ok(()) };
        let Shares { pool, inbox, own, .. } = self.config.shares;
        let bounds = [pool, inbox, own].into_iter().zip(process.found).map(|(share, found)| share.max(found));
        let within = shared(&process.boundary).into_iter().zip(bounds).all(|(held, bound)| held <= bound);
        if within { Ok(()) } else { Err(Fault::OverShare) }
    }

    /// Where nothing is unreleased, memory is what a restart would restore.
    fn check(&self) -> Result<(), Fault> {
        let Some(process) = &self.process else { return Ok(()) };
        if !self.compare || process.flying.is_some() || !process.gathering.writes.is_empty() {
            return Ok(());
        }
        match self.restore() {
            Ok((restored, bad))
                if restored.durable() == process.boundary.durable()
                    && restored.charges() == process.boundary.charges()
                    && bad == process.bad =>
            {
                Ok(())
            }
            Ok(_) | Err(_) => Err(Fault::MemoryIsNotDisk),
        }
    }
}

/// What the pool, the inbox and this node hold.
fn shared(boundary: &Boundary) -> [u32; 3] {
    let charges = boundary.charges();
    [charges.pool(), charges.held(Introducer::Inbox), charges.held(Introducer::Own)]
}
