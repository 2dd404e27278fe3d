//! A destination: its processes one after another, what each admits, and what that may change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures::FutureExt;
use libp2p::PeerId;

use super::{Habit, Violation, Without, disk::Disk, dispatches::Dispatches};
use crate::{
    clock::{Clock, ManualClock},
    layer::{
        boundary::{
            Admission, AdmissionConfig, AdmissionOpenError, BoundaryRefusal, RegistrationError, Request,
            core::Boundary, model::Draw, record::StreamRecord,
        },
        charging::{Charges, Introducer},
        local::{LINK_WINDOWS, Namespace, Room, Volatile},
        quota::{Buckets, Quota, Quotas},
        window::Verdict,
    },
    link::{LinkGuard, LinkId, Links},
    message::{StreamKey, TransactionDigest},
    storage::{
        Key, Table,
        commit::{CommitConfig, GroupCommit, StoreState, Ticket, fault::Fault},
        floor::Floors,
    },
};

/// How far a namespace's horizon is moved past what moves it, in milliseconds; minutes where it ships.
const AHEAD: u64 = 1_000;

/// A link, and whose connection it is.
struct Link {
    id: LinkId,
    machine: usize,
    _guard: LinkGuard,
}

/// True time, and how far the wall clock is ahead of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instant {
    pub(super) real: u64,
    pub(super) offset: i64,
}

/// What an admission changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    Nothing,
    Durable,
    LinkLocal,
}

struct Waiting {
    request: Request,
    at: Instant,
    seen: u64,
    effect: Effect,
    /// Whether its stream's quota has no room for it.
    lacks: bool,
    ticket: Ticket<Result<Verdict, BoundaryRefusal>>,
}

/// What may be handed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) request: Request,
    pub(super) effect: Effect,
    pub(super) at: Instant,
    seen: u64,
}

/// What a message took of its stream's quota.
#[derive(Debug, Clone, Copy)]
struct Taken {
    at: Duration,
    bytes: u64,
    digest: TransactionDigest,
}

/// Whether buckets that were full at any of these instants gave less than was taken since, by plain arithmetic.
fn over(quota: &Quota, taken: &[Taken], now: Duration) -> bool {
    let (mut messages, mut bytes) = (0, 0);
    taken.iter().rev().any(|Taken { at, bytes: cost, .. }| {
        (messages, bytes) = (messages + 1, bytes + u128::from(*cost));
        let passed = (now - *at).as_millis();
        [(messages, quota.messages), (bytes, quota.bytes)].into_iter().any(|(used, rate)| {
            used * 1_000 > u128::from(rate.burst.get()) * 1_000 + u128::from(rate.per_second.get()) * passed
        })
    })
}

type Registering = Pin<Box<dyn Future<Output = Result<(), RegistrationError>>>>;

struct Process {
    commit: GroupCommit,
    admission: Admission,
    unrestorable: usize,
    /// What the pool, the inbox and this node held when it started.
    found: [u32; 3],
    links: Vec<Link>,
    waiting: VecDeque<Waiting>,
    ready: VecDeque<Ready>,
    registering: Vec<Registering>,
    /// What each stream brought in, by the kind of its window: when, and how many bytes.
    taken: HashMap<(StreamKey, Effect), Vec<Taken>>,
}

pub(super) struct Receiver {
    pub(super) clock: Arc<ManualClock>,
    pub(super) config: AdmissionConfig,
    pub(super) dispatches: Dispatches,
    pub(super) refused: BTreeMap<&'static str, u64>,
    pub(super) links_refused: u64,
    without: Without,
    disk: Disk,
    process: Option<Process>,
    links_opened: u64,
}

/// Everything that a refusal leaves as it was.
#[derive(Debug, PartialEq)]
struct Footprint {
    streams: BTreeMap<StreamKey, (StreamRecord, Duration, Option<Buckets>)>,
    floors: Floors,
    charges: Charges,
    slots: (usize, usize),
    /// How many windows there are, the request's own, and what is left of its stream's quota.
    windows: (usize, usize),
    window: Option<Volatile>,
    account: Option<Buckets>,
}

impl Footprint {
    fn of(boundary: &Boundary, request: &Request) -> Self {
        let stream = |(key, stream): (&StreamKey, &super::super::table::Stream)| {
            (*key, (stream.record.clone(), stream.last, stream.buckets))
        };
        let windows = &boundary.local.windows;
        let own_link = request.application.and_then(|application| application.own_link);
        let window = own_link.and_then(|link| match windows.room(&link, &request.stream, false) {
            Room::Window(window) => Some(window.clone()),
            Room::Free | Room::None => None,
        });
        Self {
            streams: boundary.streams.iter().map(stream).collect(),
            floors: boundary.floors,
            charges: boundary.charges().clone(),
            slots: boundary.slots(),
            windows: windows.held(),
            window,
            account: windows.buckets(&request.stream).copied(),
        }
    }

    /// What an admission of `request` between this and `after` changed: its own stream, and what it removed.
    fn effect(mut self, after: &Self, request: &Request) -> Result<Effect, Violation> {
        let own = request.stream;
        if after.account.is_none() {
            // A look forgets accounts that are full again, which changes nothing.
            self.account = None;
        }
        let others = |footprint: &Self| -> Vec<_> {
            footprint
                .streams
                .iter()
                .filter(|(key, _)| **key != own)
                .map(|(key, stream)| (*key, stream.clone()))
                .collect()
        };
        if self == *after {
            return Ok(Effect::Nothing);
        }
        if self.streams.get(&own) == after.streams.get(&own) {
            let only_window = self.streams == after.streams && self.floors == after.floors && self.slots == after.slots;
            return if only_window { Ok(Effect::LinkLocal) } else { Err(Violation::RefusalCosts) };
        }
        let before = others(&self);
        match others(after).iter().all(|other| before.contains(other)) && self.window == after.window {
            true => Ok(Effect::Durable),
            false => Err(Violation::RefusalCosts),
        }
    }
}

/// What the pool, the inbox and this node hold.
fn shared(charges: &Charges) -> [u32; 3] {
    [charges.pool(), charges.held(Introducer::Inbox), charges.held(Introducer::Own)]
}

impl Receiver {
    pub(super) fn new(wall: u64, config: AdmissionConfig, without: Without) -> Self {
        Self {
            clock: Arc::new(ManualClock::new(wall)),
            config,
            dispatches: Dispatches::default(),
            refused: BTreeMap::new(),
            links_refused: 0,
            without,
            disk: Disk::new(),
            process: None,
            links_opened: 0,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Starts a process with `named`; what it finds may make its operator raise the bound, or give up the store.
    pub(super) async fn start(&mut self, named: &[Namespace], real: u64) {
        let mut config = self.config;
        if !self.without.keeps(Habit::Quotas) {
            config.quotas = Quotas::NONE;
        }
        if !self.without.keeps(Habit::Shares) {
            config.shares = AdmissionConfig::default().shares;
        }
        let commit = GroupCommit::open(self.disk.store.arc(), CommitConfig::new()).await.unwrap();
        let (clock, guards) = (self.clock.clone(), self.without.guards());
        let admission = match Admission::open_guarded(&commit, clock, config, named, guards).await {
            Ok(admission) => admission,
            Err(AdmissionOpenError::Damaged { .. }) => return self.lose(real),
            Err(AdmissionOpenError::OverCapacity { held, .. }) => {
                // A torn batch whose removals did not land, and whose new stream did. The operator does what it says.
                self.config.streams = held;
                commit.shutdown().await;
                return;
            }
            Err(error) => unreachable!("{error}"),
        };
        self.disk.started();
        let found = admission.arrange(|boundary| {
            boundary.local.ahead = AHEAD;
            shared(boundary.charges())
        });
        let unrestorable = commit.health().unrestorable.len();
        self.process = Some(Process {
            commit,
            admission,
            unrestorable,
            found,
            links: Vec::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            registering: Vec::new(),
            taken: HashMap::new(),
        });
        self.dispatches.watch(&self.disk.store.records());
    }

    /// The namespaces that the store has recorded.
    pub(super) fn recorded(&self) -> BTreeSet<Namespace> {
        self.dispatches.registered(&self.disk.store.records())
    }

    /// A link of `machine` takes a slot, if there is one.
    pub(super) fn open_link(&mut self, machine: usize) -> Result<(), Violation> {
        let Some(process) = &mut self.process else { return Ok(()) };
        self.links_opened += 1;
        let id = LinkId::of(self.links_opened);
        match process.admission.open(PeerId::random(), id) {
            Ok(guard) => process.links.push(Link { id, machine, _guard: guard }),
            Err(_) => self.links_refused += 1,
        }
        let health = process.admission.health();
        let slots = usize::from(self.config.shares.slots);
        let over = process.links.len() > health.slots_taken || health.slots_taken > slots;
        if over && self.without.keeps(Habit::Shares) { Err(Violation::OverBound) } else { Ok(()) }
    }

    pub(super) fn close_link(&mut self, draw: &mut Draw) {
        if let Some(process) = &mut self.process
            && !process.links.is_empty()
        {
            let place = draw.below(process.links.len() as u64) as usize;
            process.links.swap_remove(place);
        }
    }

    pub(super) fn close_links(&mut self) {
        if let Some(process) = &mut self.process {
            process.links.clear();
        }
    }

    /// One of its links, and whose it is.
    pub(super) fn link(&self, draw: &mut Draw) -> Option<(LinkId, usize)> {
        let links = &self.process.as_ref()?.links;
        draw.pick(links).map(|link| (link.id, link.machine))
    }

    /// Registers a namespace, or withdraws it; the answer comes with a later batch.
    pub(super) fn change(&mut self, namespace: Namespace, register: bool) {
        let Some(process) = &mut self.process else { return };
        let admission = process.admission.clone();
        let mut change: Registering = Box::pin(async move {
            match register {
                true => admission.register(namespace).await,
                false => admission.withdraw(namespace).await,
            }
        });
        if (&mut change).now_or_never().is_none() {
            process.registering.push(change);
        }
    }

    /// Presents a request to the boundary.
    pub(super) fn present(&mut self, request: Request, real: u64) -> Result<(), Violation> {
        let Some(process) = &self.process else { return Ok(()) };
        let admission = &process.admission;
        let at = Instant { real, offset: self.clock.wall() as i64 - real as i64 };
        let lacks = self.lacks(&request);
        let before = admission.arrange(|boundary| Footprint::of(boundary, &request));
        let seen = admission.marks();
        let ticket = admission.admit(request);
        if !self.without.keeps(Habit::RefusalsTouchNothing) {
            let now = self.clock.monotonic();
            admission.arrange(|boundary| {
                if let Some(mut stream) = boundary.streams.get(&request.stream).cloned() {
                    stream.last = now;
                    boundary.streams.set(request.stream, Some(stream));
                }
            });
        }
        let (after, links) =
            admission.arrange(|boundary| (Footprint::of(boundary, &request), boundary.local.windows.held().0));
        let held = before.streams.len();
        let effect = before.effect(&after, &request)?;
        if after.streams.len() > held && after.streams.len() + process.unrestorable > self.config.streams {
            return Err(Violation::OverBound);
        }
        if after.windows.1 > links * LINK_WINDOWS {
            return Err(Violation::OverBound);
        }
        let shares = self.config.shares;
        let bounds = [shares.pool, shares.inbox, shares.own];
        let within = shared(&after.charges).into_iter().zip(bounds.into_iter().zip(process.found));
        if !within.into_iter().all(|(held, (bound, found))| held <= bound.max(found)) {
            return Err(Violation::OverShare);
        }
        if effect != Effect::Nothing {
            self.take(&request, effect)?;
        }
        if !self.without.keeps(Habit::DispatchAfterDurable) && effect != Effect::Nothing {
            self.check_durable(&request, effect)?;
        }
        self.process.as_mut().unwrap().waiting.push_back(Waiting { request, at, seen, effect, lacks, ticket });
        Ok(())
    }

    /// No stream brings in more than its quota gives.
    fn take(&mut self, request: &Request, effect: Effect) -> Result<(), Violation> {
        let Some(quota) = self.config.quotas.of(request.stream.class) else { return Ok(()) };
        let now = self.clock.monotonic();
        let taken = self.process.as_mut().unwrap().taken.entry((request.stream, effect)).or_default();
        taken.push(Taken { at: now, bytes: request.bytes, digest: request.digest });
        if over(quota, taken, now) { Err(Violation::OverQuota) } else { Ok(()) }
    }

    /// Whether one of the stream's quotas has no room for the request.
    fn lacks(&self, request: &Request) -> bool {
        let Some(quota) = self.config.quotas.of(request.stream.class) else { return false };
        let now = self.clock.monotonic();
        let taken = &self.process.as_ref().unwrap().taken;
        [Effect::Durable, Effect::LinkLocal].into_iter().any(|effect| {
            let mut taken = taken.get(&(request.stream, effect)).cloned().unwrap_or_default();
            taken.push(Taken { at: now, bytes: request.bytes, digest: request.digest });
            over(quota, &taken, now)
        })
    }

    /// Takes what was answered: what was admitted may be handed over, in order. Gives the streams of durable admissions.
    pub(super) fn collect(&mut self) -> Result<BTreeSet<Key>, Violation> {
        let mut admitted = BTreeSet::new();
        let Some(process) = &mut self.process else { return Ok(admitted) };
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        process.registering.retain_mut(|change| change.as_mut().poll(&mut context).is_pending());
        for mut waiting in std::mem::take(&mut process.waiting) {
            let Waiting { request, at, seen, effect, lacks, .. } = waiting;
            let answer = match Pin::new(&mut waiting.ticket).poll(&mut context) {
                Poll::Pending => {
                    process.waiting.push_back(waiting);
                    continue;
                }
                Poll::Ready(answer) => answer,
            };
            match answer {
                Ok(Ok(_)) if effect == Effect::Nothing => return Err(Violation::NotDurable),
                Ok(Ok(_)) => {
                    if effect == Effect::Durable {
                        admitted.insert(Key::copy_from_slice(&request.stream.to_bytes()));
                    }
                    process.ready.push_back(Ready { request, effect, at, seen });
                }
                Ok(Err(_)) if effect != Effect::Nothing => return Err(Violation::RefusalCosts),
                // Something cost that is free, or was not given back.
                Ok(Err(BoundaryRefusal::QuotaExceeded { .. })) if !lacks => return Err(Violation::RefusalCosts),
                Ok(Err(refusal)) => *self.refused.entry(refusal.label()).or_default() += 1,
                Err(_) => {
                    // Undone, and what it took of the quota is given back.
                    if let Some(taken) = process.taken.get_mut(&(request.stream, effect))
                        && let Some(place) = taken.iter().rposition(|taken| taken.digest == request.digest)
                    {
                        taken.remove(place);
                    }
                }
            }
        }
        Ok(admitted)
    }

    /// The batch in flight lands: it holds the streams of what it admitted, and no other.
    pub(super) async fn land(&mut self) -> Result<(), Violation> {
        let Some(process) = &self.process else { return Ok(()) };
        if matches!(process.commit.health().state, StoreState::Closed(_)) {
            process.commit.reopen().await.unwrap();
        }
        self.collect()?;
        if !self.disk.land().await {
            return Ok(());
        }
        self.dispatches.watch(&self.disk.store.records());
        let admitted = self.collect()?;
        let batch = self.disk.store.newest().unwrap_or_default();
        let streams = batch.writes.iter().filter(|write| write.table == Table::Receiver);
        let (put, removed): (Vec<_>, Vec<_>) = streams.partition(|write| write.value.is_some());
        let put: BTreeSet<_> = put.into_iter().map(|write| write.key.clone()).collect();
        // What was admitted and spent while the batch gathered is removed by the same batch.
        let gone = |key: &Key| removed.iter().any(|write| write.key == *key);
        let all = put.is_subset(&admitted) && admitted.difference(&put).all(gone);
        if all { Ok(()) } else { Err(Violation::WroteAnother) }
    }

    pub(super) async fn fail(&mut self, fault: Fault) -> Result<bool, Violation> {
        if !self.runs() {
            return Ok(false);
        }
        self.collect()?;
        let failed = self.disk.fail(fault).await;
        self.collect()?;
        Ok(failed)
    }

    pub(super) async fn crash(&mut self, draw: &mut Draw) {
        let honest = self.without.keeps(Habit::HonestDisk);
        if self.process.is_some() {
            self.disk.crash(draw, honest).await;
        }
        self.process = None;
        self.dispatches.watch(&self.disk.store.records());
    }

    pub(super) fn lose(&mut self, real: u64) {
        self.disk.lose();
        self.dispatches.lose(real);
    }

    pub(super) fn damage(&mut self, draw: &mut Draw) {
        let table = if draw.one_in(8) { Table::Clock } else { Table::Receiver };
        self.disk.damage(table, draw);
    }

    /// Hands the first that waits for its handler over, unless a namespace's mark came between.
    pub(super) fn hand_over(&mut self) -> Result<Option<Ready>, Violation> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let Some(ready) = process.ready.pop_front() else { return Ok(None) };
        let handed = process.admission.hand_over(&ready.request, ready.seen, || ()).now_or_never();
        match handed {
            // A withdrawal waits for those who hand over now, and there are none.
            None => process.ready.push_front(ready),
            Some(Err(_)) => *self.refused.entry("dropped").or_default() += 1,
            Some(Ok(())) => {
                self.check_durable(&ready.request, ready.effect)?;
                return Ok(Some(ready));
            }
        }
        Ok(None)
    }

    /// Whether something waits for its handler.
    pub(super) fn waits_for_handler(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.ready.is_empty())
    }

    fn check_durable(&self, request: &Request, effect: Effect) -> Result<(), Violation> {
        match self.dispatches.known(&self.disk.store.records(), request, effect) {
            true => Ok(()),
            false => Err(Violation::NotDurable),
        }
    }

    pub(super) fn wall(&self) -> u64 {
        self.clock.wall()
    }

    /// Everything is repaired: what is staged lands, and from now on whatever comes.
    pub(super) async fn repair(&mut self) -> Result<(), Violation> {
        self.land().await?;
        while self.disk.land().await {}
        self.disk.store.resume();
        super::disk::settle().await;
        self.collect().map(drop)
    }

    /// Presents one more, after the repair.
    pub(super) async fn at_last(&mut self, request: Request, real: u64) -> Option<BoundaryRefusal> {
        let at = Instant { real, offset: self.clock.wall() as i64 - real as i64 };
        let process = self.process.as_mut()?;
        let admission = &process.admission;
        let before = admission.arrange(|boundary| Footprint::of(boundary, &request));
        let seen = admission.marks();
        let answer = admission.admit(request).await;
        let after = admission.arrange(|boundary| Footprint::of(boundary, &request));
        let effect = before.effect(&after, &request).unwrap_or(Effect::Nothing);
        match answer {
            Ok(Ok(_)) => {
                process.ready.push_back(Ready { request, effect, at, seen });
                None
            }
            Ok(Err(refusal)) => Some(refusal),
            Err(error) => unreachable!("{error}"),
        }
    }
}
