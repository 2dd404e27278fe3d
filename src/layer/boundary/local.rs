//! The boundary's link-local side: which requests a volatile window judges, and what changes of registrations leave
//! (law L6). Why this opens no gap is argued in [`layer::local`](crate::layer::local).

use super::{
    AdmissionOpenError, BoundaryRefusal, Request,
    core::{Boundary, Staging, Undo, shared},
};
use crate::{
    clock::WallMs,
    layer::{
        local::{HORIZON_AHEAD_MS, NAMESPACES_KEY, Namespace, Registry, Room, TooManyNamespaces, Volatile, Windows},
        quota::{Buckets, Moment},
        window::{Verdict, Window, observe},
    },
    link::LinkId,
    message::{Class, ClassifierId, StreamKey},
    storage::{
        Key, Scan, Table,
        birth::Reading,
        commit::BudgetExhausted,
        guard::{Guard, Guards},
    },
};

/// Volatile windows, and the registrations that they rest on.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) registry: Registry,
    pub(super) windows: Windows,
    /// Who reads in this run: whoever did first since a namespace is known.
    reader: Option<ClassifierId>,
    /// How often a mark was set, so that who hands over sees whether one may concern it.
    pub(super) marks: u64,
    /// How far a horizon is moved past what moves it.
    pub(super) ahead: u64,
}

/// What a request changes that a volatile window accepts.
pub(super) struct LocalAdmission {
    pub(super) verdict: Verdict,
    link: LinkId,
    namespace: Namespace,
    window: Window,
    buckets: Option<Buckets>,
    /// The registry with the horizon moved, where the request lies past it.
    extended: Option<Registry>,
}

/// A value before a change.
#[derive(Debug)]
pub(super) enum LocalUndo {
    Registry(Box<Registry>),
    Window(Box<WindowUndo>),
}

#[derive(Debug)]
pub(super) struct WindowUndo {
    link: LinkId,
    stream: StreamKey,
    window: Option<Volatile>,
    buckets: Option<Buckets>,
}

/// Why a registration did not change. Nothing of it was staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unregistered {
    TooMany,
    Budget(BudgetExhausted),
}

impl Local {
    pub(super) fn restore(clock: &Scan) -> Result<Self, AdmissionOpenError> {
        let registry = shared(clock, "namespaces", NAMESPACES_KEY, Registry::decode)?.unwrap_or_default();
        Ok(Self { registry, windows: Windows::default(), reader: None, marks: 0, ahead: HORIZON_AHEAD_MS })
    }

    pub(super) fn undo(&mut self, undo: LocalUndo, now: Moment) {
        match undo {
            LocalUndo::Registry(before) => self.registry = *before,
            LocalUndo::Window(before) => {
                let WindowUndo { link, stream, window, buckets } = *before;
                self.windows.restore(&link, stream, window, buckets, now);
            }
        }
    }
}

impl Boundary {
    /// What a mark set at `wall` is: 2σ after the greater of the clock and the greatest instant of an admission.
    fn mark_at(&self, wall: WallMs) -> WallMs {
        let start = match self.tolerance.guards.keep(Guard::GreatestAdmitted) {
            true => wall.max(self.admitted),
            false => wall,
        };
        start.saturating_add(self.greatest().0.saturating_mul(2))
    }

    /// Nothing lives at `wall` that was issued at or before this.
    fn dead_at(&self, wall: WallMs) -> WallMs {
        let (sigma, ttl) = self.greatest();
        wall.saturating_sub(ttl.saturating_add(sigma).saturating_add(self.tolerance.hold))
    }

    fn set_registry(&mut self, next: Registry, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        if next != self.local.registry {
            stage.put(Table::Clock, Key::from_static(NAMESPACES_KEY), next.encode())?;
            let before = std::mem::replace(&mut self.local.registry, next);
            self.undo.push_back((stage.batch(), Undo::Local(LocalUndo::Registry(Box::new(before)))));
            self.local.marks += 1;
        }
        Ok(())
    }

    /// A link is open, and its end will be told.
    pub(super) fn open_windows(&mut self, link: LinkId) {
        self.local.windows.open(link);
    }

    /// A link is retired: its volatile windows are gone.
    pub(super) fn retire_windows(&mut self, link: &LinkId) {
        self.local.windows.retire(link, self.steady.now());
    }

    /// Begins a run that registers `named`: what else was registered is withdrawn.
    pub(super) fn begin(
        &mut self,
        named: &[Namespace],
        reading: &Reading,
        stage: &mut impl Staging,
    ) -> Result<(), Unregistered> {
        self.change(reading, stage, |registry, mark, dead, guards| registry.started(named, mark, dead, guards))
    }

    /// Takes a reading of the clocks, which counts for birth as any other (law L9.9), and changes the registry by it.
    fn change(
        &mut self,
        reading: &Reading,
        stage: &mut impl Staging,
        change: impl FnOnce(&Registry, WallMs, WallMs, Guards) -> Result<Registry, TooManyNamespaces>,
    ) -> Result<(), Unregistered> {
        let before = self.undo.len();
        self.read(reading, stage).map_err(Unregistered::Budget)?;
        let (mark, dead, guards) = (self.mark_at(reading.wall), self.dead_at(reading.wall), self.tolerance.guards);
        let changed = match change(&self.local.registry, mark, dead, guards) {
            Ok(next) => self.set_registry(next, stage).map_err(Unregistered::Budget),
            Err(error) => Err(error.into()),
        };
        changed.inspect_err(|_| self.take_back(before, stage))
    }

    /// The namespaces that are registered.
    pub(super) fn delegating(&self) -> impl Iterator<Item = &Namespace> {
        self.local.registry.names()
    }

    /// How often a mark was set.
    pub(super) const fn marks(&self) -> u64 {
        self.local.marks
    }

    /// How many volatile windows links have.
    pub(super) fn windows(&self) -> usize {
        self.local.windows.held().1
    }

    /// Registers a namespace.
    pub(super) fn register(
        &mut self,
        namespace: Namespace,
        reading: &Reading,
        stage: &mut impl Staging,
    ) -> Result<(), Unregistered> {
        self.change(reading, stage, |registry, mark, dead, guards| registry.registered(namespace, mark, dead, guards))
    }

    /// Withdraws a namespace, if it is registered.
    pub(super) fn withdraw(
        &mut self,
        namespace: &Namespace,
        reading: &Reading,
        stage: &mut impl Staging,
    ) -> Result<(), Unregistered> {
        self.change(reading, stage, |registry, mark, _, guards| Ok(registry.withdrawn(namespace, mark, guards)))
    }

    /// Notes the classifier that read a request. Another one than in earlier runs sets a mark; another one than this run's
    /// notes nothing, since each of two that took turns would refuse what the other reads.
    pub(super) fn read_by(
        &mut self,
        request: &Request,
        reading: &Reading,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        let Some(application) = &request.application else { return Ok(()) };
        if self.local.registry.is_empty() || self.read_by_another(request) {
            return Ok(());
        }
        let mark = self.mark_at(reading.wall);
        if let Some(next) = self.local.registry.read_by(application.classifier, mark, self.tolerance.guards) {
            self.set_registry(next, stage)?;
        }
        self.local.reader = Some(application.classifier);
        Ok(())
    }

    /// Whether another classifier than this run's read the request.
    pub(super) fn read_by_another(&self, request: &Request) -> bool {
        let read = request.application.map(|application| application.classifier);
        self.local.reader.zip(read).is_some_and(|(reader, read)| reader != read)
    }

    /// Whether a namespace's mark refuses the request (law L6.4).
    pub(super) fn not_withdrawn(&self, request: &Request) -> Result<(), BoundaryRefusal> {
        if request.stream.class != Class::Application {
            return Ok(());
        }
        let mark = match &request.application {
            Some(application) => self.local.registry.mark(application.namespace.as_ref()),
            // Whatever it is.
            None => self.local.registry.greatest_mark(),
        };
        match request.issued_at <= mark && self.tolerance.guards.keep(Guard::WithdrawalMark) {
            true => Err(BoundaryRefusal::NamespaceWithdrawn { mark }),
            false => Ok(()),
        }
    }

    /// Whether what was admitted may still be handed over: no mark was set since that concerns it.
    pub(super) fn hand_over(&self, request: &Request) -> Result<(), BoundaryRefusal> {
        match self.tolerance.guards.keep(Guard::HandOver) {
            true => self.not_withdrawn(request),
            false => Ok(()),
        }
    }

    /// Judges a request by the volatile window of its stream on its link, if it is link-local and finds room.
    pub(super) fn judge_local(&self, request: &Request) -> Result<Option<LocalAdmission>, BoundaryRefusal> {
        let guards = self.tolerance.guards;
        let Some((link, namespace)) = self.link_local(request, guards) else { return Ok(None) };
        let quota = self.quotas.of(request.stream.class).is_some();
        let known = match self.local.windows.room(&link, &request.stream, quota) {
            Room::Window(volatile) => Some(&volatile.window).filter(|_| guards.keep(Guard::LocalWindow)),
            Room::Free => None,
            Room::None => return Ok(None),
        };
        let (verdict, window) = observe(known, request.incarnation, request.sequence, request.digest)?;
        let buckets = self.charge(request, self.local.windows.buckets(&request.stream))?;
        let registry = &self.local.registry;
        let past = registry.past_horizon(&namespace, request.issued_at);
        let extended = past.then(|| registry.extended(&namespace, request.issued_at, self.local.ahead));
        Ok(Some(LocalAdmission { verdict, link, namespace, window, buckets, extended }))
    }

    /// The three conditions (law L6.1), and the registration's mark.
    fn link_local(&self, request: &Request, guards: Guards) -> Option<(LinkId, Namespace)> {
        let application = request.application.filter(|_| request.stream.class == Class::Application)?;
        let (link, namespace) = (application.own_link?, application.namespace?);
        self.local.registry.delegates(&namespace, request.issued_at, guards).then_some((link, namespace))
    }

    pub(super) fn stage_local(
        &self,
        admission: &LocalAdmission,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        match &admission.extended {
            Some(extended) if self.tolerance.guards.keep(Guard::HorizonStaged) => {
                stage.put(Table::Clock, Key::from_static(NAMESPACES_KEY), extended.encode())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn apply_local(
        &mut self,
        request: &Request,
        admission: LocalAdmission,
        wall: WallMs,
        stage: &impl Staging,
    ) {
        self.admitted = self.admitted.max(wall);
        let LocalAdmission { link, namespace, window, buckets, extended, .. } = admission;
        if let Some(extended) = extended {
            let before = std::mem::replace(&mut self.local.registry, extended);
            self.undo.push_back((stage.batch(), Undo::Local(LocalUndo::Registry(Box::new(before)))));
        }
        self.local.registry.reach(&namespace, request.issued_at);
        let quota = buckets.is_some();
        let before = match self.local.windows.room(&link, &request.stream, quota) {
            Room::Window(volatile) => Some(volatile.clone()),
            Room::Free | Room::None => None,
        };
        // What nothing waits for is released already, and stays.
        let touched = stage.waits_for().unwrap_or(0);
        if touched != 0 && before.as_ref().is_none_or(|before| before.touched != touched) {
            let undo = WindowUndo {
                link,
                stream: request.stream,
                window: before,
                buckets: self.local.windows.buckets(&request.stream).copied(),
            };
            self.undo.push_back((touched, Undo::Local(LocalUndo::Window(Box::new(undo)))));
        }
        self.local.windows.put(&link, request.stream, Volatile { window, touched }, buckets);
    }
}

impl From<TooManyNamespaces> for Unregistered {
    fn from(_: TooManyNamespaces) -> Self {
        Self::TooMany
    }
}
