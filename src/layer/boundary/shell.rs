//! The boundary over group commit.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use libp2p::PeerId;
use tokio::sync::RwLock;

use super::{
    AdmissionConfig, AdmissionOpenError, BoundaryRefusal, RegistrationError, Request,
    core::{Accepted, Boundary, Scans, Sizes, Staging},
    inbox::Pending,
    local::Unregistered,
};
use crate::{
    clock::{Clock, WallMs},
    layer::{
        local::{NAMESPACES_MAX, Namespace},
        window::Verdict,
    },
    link::{LinkGuard, LinkId, Links, NoSlot},
    message::{Class, MAIL_HOLD_MS},
    storage::{
        Key, RecordName, Table,
        birth::{Birth, Reading},
        commit::{BatchNumber, BudgetExhausted, GroupCommit, Member, Participant, Stage, Ticket},
        guard::Guards,
    },
};

impl Participant for Boundary {
    fn released(&mut self, batch: BatchNumber) {
        Boundary::released(self, batch);
    }

    fn undo(&mut self) {
        Boundary::undo(self);
        count_sizes(self.sizes());
    }
}

impl Staging for Stage<'_> {
    fn batch(&self) -> BatchNumber {
        Stage::batch(self)
    }

    fn waits_for(&self) -> Option<BatchNumber> {
        Stage::waits_for(self)
    }

    fn put(&mut self, table: Table, key: Key, value: Bytes) -> Result<(), BudgetExhausted> {
        Stage::put(self, table, key, value)
    }

    fn remove(&mut self, table: Table, key: Key) {
        Stage::remove(self, table, key);
    }

    fn rewind(&mut self) {
        Stage::rewind(self);
    }

    fn unavailable(&self, table: Table, key: &[u8]) -> Option<RecordName> {
        Stage::unavailable(self, table, key)
    }

    fn unrestorable(&self) -> usize {
        Stage::unrestorable(self)
    }
}

/// The receiver's boundary over one store. Cheap to clone; all clones are one boundary.
///
/// Metrics: `admit_one_verdicts_total` (by `class`, `verdict`, and `window`: `durable` or `link_local`) and
/// `admit_one_refusals_total` (by `reason`), counted when the boundary decides; a store that then fails takes its
/// admissions back and counts that
/// itself; `admit_one_charge_refusals_total` (by `bound`): new streams refused for their introducer, also counted by
/// reason; `admit_one_slot_refusals_total`: links that found every slot taken; `admit_one_unavailable_calls_total` (by
/// `table`): what was refused for a record that cannot be restored (law L11.2), counted by reason too. Gauges `admit_one_receiver_streams`,
/// `admit_one_link_local_windows`, `admit_one_slots` (by `state`, `taken` or `free`) and `admit_one_pool_streams` (what
/// slots hold past their floors), and `admit_one_custody` (mail in custody).
///
/// It is a [`Links`]: given to the lanes' configuration, each connection with lanes has a slot of its own (law L10.3), and
/// its origin's transactions may be link-local (law L6.2).
#[derive(Clone)]
pub struct Admission {
    pub(super) member: Member<Boundary>,
    handing: Arc<Handing>,
    clock: Arc<dyn Clock>,
    config: AdmissionConfig,
}

/// How those who hand over, and those who withdraw a namespace, keep out of each other's way.
#[derive(Debug, Default)]
struct Handing {
    /// How often a mark was set, as of the last transition.
    marks: AtomicU64,
    /// Held shared from the look at the marks until the handler was called.
    gate: RwLock<()>,
}

/// What an operator asks of a receiver first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionHealth {
    /// Streams kept.
    pub streams: usize,
    /// The most that may be, unrestorable records included.
    pub bound: usize,
    /// What was issued at or before this wall instant is refused (law L9.9). `None` where that guard is disabled.
    pub birth_mark: Option<WallMs>,
    /// While the wall clock is not past the mark, fresh messages are refused too: until which instant.
    pub refuses_fresh_until: Option<WallMs>,
    /// How many slots there are for links, and how many of them are taken (law L10.3).
    pub slots: usize,
    /// See `slots`.
    pub slots_taken: usize,
    /// How many streams slots hold past their floors.
    pub pool: usize,
    /// Whether birth has settled, so that the mark is not raised any more.
    pub birth_settled: bool,
    /// How many volatile windows links have (law L6.2).
    pub link_local_windows: usize,
    /// How many namespaces delegate their replay protection.
    pub delegating: usize,
    /// How many mails are in custody, records that cannot be restored included (law L10.6).
    pub custody: usize,
}

impl Admission {
    /// Restores the boundary from the store, and records the birth of a store that has none. Returns once that is
    /// durable.
    ///
    /// # Errors
    /// [`AdmissionOpenError`]; the store is as it was.
    pub async fn open(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: AdmissionConfig,
    ) -> Result<Self, AdmissionOpenError> {
        Self::open_delegating(commit, clock, config, &[]).await
    }

    /// The same, with the namespaces that delegate their replay protection in this run, of which each **promises to act on
    /// each payload at most once by a key of its own, across connections and restarts** (law L6.3): the same transaction
    /// may be handed to it again on every link of its origin.
    ///
    /// A namespace that was registered before goes on with its registration. Any other begins one, as by
    /// [`register`](Self::register). One that the store has recorded as registered and that is not named is withdrawn,
    /// as by [`withdraw`](Self::withdraw), and whatever it may have admitted link-locally is refused: for up to
    /// [`HORIZON_AHEAD_MS`](crate::layer::local::HORIZON_AHEAD_MS) that is fresh traffic of the namespace, too.
    ///
    /// # Errors
    /// [`AdmissionOpenError`]; the store is as it was.
    pub async fn open_delegating(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: AdmissionConfig,
        namespaces: &[Namespace],
    ) -> Result<Self, AdmissionOpenError> {
        Self::open_guarded(commit, clock, config, namespaces, Guards::default()).await
    }

    /// The same, without what a test took away.
    pub(super) async fn open_guarded(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: AdmissionConfig,
        namespaces: &[Namespace],
        guards: Guards,
    ) -> Result<Self, AdmissionOpenError> {
        if namespaces.len() > NAMESPACES_MAX {
            return Err(AdmissionOpenError::TooManyNamespaces);
        }
        let receiver = commit.take_scan(Table::Receiver).ok_or(AdmissionOpenError::Taken)?;
        let shared = commit.take_scan(Table::Clock).unwrap_or_default();
        let custody = commit.take_scan(Table::Custody).unwrap_or_default();
        let scans = Scans { receiver, clock: shared, custody };
        let hold = if config.custody { MAIL_HOLD_MS } else { 0 };
        let restored = Boundary::restore(&config, guards, &scans, hold, clock.monotonic());
        let (boundary, bad) = match restored {
            Ok(restored) => restored,
            Err(error) => {
                // Nothing was restored from it, so another attempt may be.
                commit.give_back_scan(Table::Receiver, scans.receiver);
                commit.give_back_scan(Table::Custody, scans.custody);
                return Err(error);
            }
        };
        for (record, reason) in bad {
            commit.set_unrestorable(record, reason);
        }
        let admission = Self { member: commit.join(boundary), handing: Arc::default(), clock, config };
        match admission.change(|boundary, reading, stage| boundary.begin(namespaces, reading, stage)).await {
            Ok(()) => {
                let (sizes, slots) = admission.member.inspect(|boundary| (boundary.sizes(), boundary.slots()));
                count_sizes(sizes);
                count_slots(slots);
                Ok(admission)
            }
            Err(RegistrationError::TooManyNamespaces) => Err(AdmissionOpenError::TooManyNamespaces),
            Err(error) => Err(AdmissionOpenError::NotRecorded(error.to_string())),
        }
    }

    /// Registers a namespace as delegating its replay protection, and returns once that is durable. From here on it
    /// **promises to act on each payload at most once by a key of its own, across connections and restarts** (law L6.3).
    ///
    /// What was issued up to a mark, some 2σ ahead of the clock, still uses the durable window (law L6.4). Nothing changes
    /// where it is registered already.
    ///
    /// # Errors
    /// [`RegistrationError`]; nothing changed.
    pub async fn register(&self, namespace: Namespace) -> Result<(), RegistrationError> {
        self.change(|boundary, reading, stage| boundary.register(namespace, reading, stage)).await
    }

    /// Ends a namespace's registration, and returns once that is durable and no handler is being called that does not know
    /// of it: from then on the namespace may forget what it acted on.
    ///
    /// Its transactions issued at or before a mark, some 2σ ahead of the clock, are refused from now on, and dropped where
    /// they wait for their handler (law L6.4). Nothing changes where it is not registered.
    ///
    /// # Errors
    /// [`RegistrationError`]; it is still registered, though some of its transactions may have been dropped.
    pub async fn withdraw(&self, namespace: Namespace) -> Result<(), RegistrationError> {
        self.change(|boundary, reading, stage| boundary.withdraw(&namespace, reading, stage)).await?;
        // Whoever holds it shared may have looked before the mark was there.
        drop(self.handing.gate.write().await);
        Ok(())
    }

    /// The namespaces that are registered, as of now.
    pub fn delegating(&self) -> Vec<Namespace> {
        self.member.inspect(|boundary| boundary.delegating().copied().collect())
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut Boundary, &Reading, &mut Stage<'_>) -> Result<(), Unregistered>,
    ) -> Result<(), RegistrationError> {
        let changed = self.member.transition(|boundary, stage| {
            let changed = change(boundary, &Reading::of(&*self.clock), stage);
            self.handing.marks.store(boundary.marks(), Ordering::SeqCst);
            changed
        });
        match changed.await? {
            Ok(()) => Ok(()),
            Err(Unregistered::TooMany) => Err(RegistrationError::TooManyNamespaces),
            Err(Unregistered::Budget(exhausted)) => Err(exhausted.into()),
        }
    }

    /// How often a mark was set, to be given to [`hand_over`](Self::hand_over) by who asked before it admitted.
    pub(in crate::layer) fn marks(&self) -> u64 {
        self.handing.marks.load(Ordering::SeqCst)
    }

    /// Runs `call`, unless a namespace's mark was set since `seen` that refuses the request (law L6.4). A withdrawal waits
    /// for the end of `call`, which must not block.
    pub(in crate::layer) async fn hand_over<R>(
        &self,
        request: &Request,
        seen: u64,
        call: impl FnOnce() -> R,
    ) -> Result<R, BoundaryRefusal> {
        if request.stream.class != Class::Application {
            return Ok(call());
        }
        let _shared = self.handing.gate.read().await;
        if self.marks() != seen {
            self.member.inspect(|boundary| boundary.hand_over(request)).inspect_err(count_refusal)?;
        }
        Ok(call())
    }

    /// Judges a verified transaction. It is decided, and staged, when this returns, so that calling in an order is
    /// admitting in it; the ticket gives the answer once that is durable (law L5.5).
    ///
    /// Mail is in custody once it is admitted; [`take`](Self::take) takes it out.
    ///
    /// What was admitted and waits for a handler while its namespace is withdrawn is dropped by the layer (law L6.4). Who
    /// calls this without the layer has to hand over at once, or register no namespaces.
    pub fn admit(&self, request: Request) -> Ticket<Result<Verdict, BoundaryRefusal>> {
        self.decide(request).0
    }

    /// The same; and of mail that is accepted, the offer of it, which keeps it pending.
    pub(super) fn decide(&self, request: Request) -> (Ticket<Result<Verdict, BoundaryRefusal>>, Option<Pending>) {
        let mut answer = None;
        let ticket = self.member.transition(|boundary, stage| {
            // Read under the lock, so that readings come in the order of the decisions made by them.
            let reading = Reading::of(&*self.clock);
            let decided = boundary.admit(&request, &reading, stage);
            answer = Some((decided, boundary.sizes()));
            self.handing.marks.store(boundary.marks(), Ordering::SeqCst);
            decided.map(|accepted| accepted.verdict)
        });
        if let Some((decided, sizes)) = answer {
            count(request.stream.class, decided, sizes);
            let offer = decided.ok().and_then(|accepted| accepted.offer);
            return (ticket, offer.map(|offer| Pending::new(self.member.clone(), offer)));
        }
        (ticket, None)
    }

    /// Reaches into the tables as they stand.
    #[cfg(test)]
    pub(super) fn arrange<R>(&self, change: impl FnOnce(&mut Boundary) -> R) -> R {
        self.member.arrange(change)
    }

    /// What it was opened with.
    pub const fn config(&self) -> &AdmissionConfig {
        &self.config
    }

    /// The clock that it judges by.
    pub const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// How the receiver is doing, without waiting. It speaks of changes that are not durable yet, too.
    pub fn health(&self) -> AdmissionHealth {
        let (sizes, slots, (mark, settled, delegating)) = self.member.inspect(|boundary| {
            let settled = boundary.birth().is_some_and(Birth::settled);
            (boundary.sizes(), boundary.slots(), (boundary.mark(), settled, boundary.delegating().count()))
        });
        let wall = self.clock.wall();
        AdmissionHealth {
            streams: sizes.streams,
            bound: self.config.streams,
            birth_mark: mark,
            refuses_fresh_until: mark.filter(|mark| wall <= *mark),
            slots: slots.0,
            slots_taken: slots.1,
            pool: usize::try_from(sizes.pool).unwrap_or(usize::MAX),
            birth_settled: settled,
            link_local_windows: sizes.windows,
            delegating,
            custody: sizes.custody,
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl Links for Admission {
    fn open(&self, peer: PeerId, link: LinkId) -> Result<LinkGuard, NoSlot> {
        let (opened, slots) = self.member.arrange(|boundary| (boundary.open_link(link), boundary.slots()));
        match opened {
            Ok(slot) => {
                tracing::debug!(%peer, slot, "a link took a slot");
                count_slots(slots);
                let member = self.member.clone();
                Ok(LinkGuard::new(move || {
                    let (sizes, slots) = member.arrange(|boundary| {
                        boundary.retire_link(&link);
                        (boundary.sizes(), boundary.slots())
                    });
                    count_sizes(sizes);
                    count_slots(slots);
                }))
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "a link's lanes are refused");
                metrics::counter!("admit_one_slot_refusals_total").increment(1);
                Err(error)
            }
        }
    }
}

fn count_slots((slots, taken): (usize, usize)) {
    metrics::gauge!("admit_one_slots", "state" => "taken").set(taken as f64);
    metrics::gauge!("admit_one_slots", "state" => "free").set(slots.saturating_sub(taken) as f64);
}

fn count_sizes(Sizes { streams, pool, windows, custody }: Sizes) {
    metrics::gauge!("admit_one_receiver_streams").set(streams as f64);
    metrics::gauge!("admit_one_pool_streams").set(f64::from(pool));
    metrics::gauge!("admit_one_link_local_windows").set(windows as f64);
    metrics::gauge!("admit_one_custody").set(custody as f64);
}

fn count(class: Class, decided: Result<Accepted, BoundaryRefusal>, sizes: Sizes) {
    match decided {
        Ok(accepted) => {
            let window = if accepted.link_local { "link_local" } else { "durable" };
            let verdict = match accepted.verdict {
                Verdict::First => "first",
                Verdict::Advance => "advance",
                Verdict::Late => "late",
                Verdict::Redelivered => "redelivered",
            };
            let class = class.label();
            metrics::counter!("admit_one_verdicts_total", "class" => class, "verdict" => verdict, "window" => window)
                .increment(1);
            count_sizes(sizes);
        }
        Err(refusal) => {
            if let BoundaryRefusal::StreamCapacityExceeded { bound, .. } = &refusal {
                metrics::counter!("admit_one_charge_refusals_total", "bound" => bound.label()).increment(1);
            }
            if let BoundaryRefusal::StreamUnavailable { record, .. } = &refusal {
                tracing::debug!(%record, "a stream that is unavailable was called");
                metrics::counter!("admit_one_unavailable_calls_total", "table" => "receiver").increment(1);
            }
            count_refusal(&refusal);
        }
    }
}

pub(super) fn count_refusal(refusal: &BoundaryRefusal) {
    metrics::counter!("admit_one_refusals_total", "reason" => refusal.label()).increment(1);
}
