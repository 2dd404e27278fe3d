//! Single-use authority over group commit.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use super::{
    Capability, Consumed, Mark, MarkId, MarkKind, MarkState, Operation, Outcome, OutcomeUnknown, Presentation,
    Recorded, Recovery, Refusal, Released, Reservation, ResumeError, SingleUseConfig, SingleUseHealth,
    SingleUseOpenError, StopNotRecorded,
    core::{Grant, Ledger, Presented, Scans, Standing},
    guard::{Guard, Guards},
    handle::Held,
    latch::Latch,
    waiting::{Place, Waiting, Woken},
};
use crate::{
    clock::Clock,
    storage::{
        Table,
        birth::Reading,
        commit::{BatchNumber, GroupCommit, Member, Participant, Stage, Ticket},
    },
};

/// How many unfinished records [`SingleUse::recover`] visits under one lock.
pub const RECOVERY_PAGE: usize = 64;

/// Single-use authority over one store (law section 12). Cheap to clone; all clones are one.
///
/// Metrics: `admit_one_single_use_decisions_total` (by `decision`) and `admit_one_single_use_refusals_total` (by `reason`,
/// a [`Refusal::code`]), counted when they are decided; a store that then fails takes its decisions back and counts that
/// itself. `admit_one_single_use_unknown_total`: calls whose end was not recorded. Gauges
/// `admit_one_single_use_records` (by `table`) and `admit_one_single_use_waiters`.
#[derive(Clone)]
pub struct SingleUse {
    inner: Arc<Inner>,
}

struct Inner {
    member: Member<Tables>,
    clock: Arc<dyn Clock>,
    config: SingleUseConfig,
    latch: Latch,
    guards: Guards,
}

/// What is under the lock.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) ledger: Ledger,
    waiting: Waiting,
}

impl Participant for Tables {
    fn released(&mut self, batch: BatchNumber) {
        self.ledger.released(batch);
    }

    fn undo(&mut self) {
        self.ledger.undo();
        count_records(self.ledger.sizes());
    }
}

impl SingleUse {
    /// Restores what the store holds and begins an epoch, whose owners are none of an earlier one's. Returns once that is
    /// durable. It opens with a clock that is behind too, and refuses until that is mended.
    ///
    /// # Errors
    /// [`SingleUseOpenError`]; the store is as it was.
    pub async fn open(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: SingleUseConfig,
    ) -> Result<Self, SingleUseOpenError> {
        Self::open_guarded(commit, clock, config, Guards::default()).await
    }

    /// The same, without what a test took away.
    pub(in crate::layer) async fn open_guarded(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: SingleUseConfig,
        guards: Guards,
    ) -> Result<Self, SingleUseOpenError> {
        let nonce = commit.take_scan(Table::Nonce).ok_or(SingleUseOpenError::Taken)?;
        let take = |table| commit.take_scan(table).unwrap_or_default();
        let scans = Scans {
            nonce,
            approval: take(Table::Approval),
            operation: take(Table::Operation),
            clock: take(Table::Clock),
        };
        let (ledger, bad) = match Ledger::restore(&config, guards, &scans, clock.monotonic()) {
            Ok(restored) => restored,
            Err(error) => {
                // Nothing was restored from it, so another attempt may be.
                commit.give_back_scan(Table::Nonce, scans.nonce);
                commit.give_back_scan(Table::Approval, scans.approval);
                commit.give_back_scan(Table::Operation, scans.operation);
                return Err(error);
            }
        };
        for (record, reason) in bad {
            commit.set_unrestorable(record, reason);
        }
        let latch = Latch::new(ledger.stop_recorded());
        let waiting = Waiting::new(config.waiters_per_operation, config.waiters);
        let member = commit.join(Tables { ledger, waiting });
        let single_use = Self { inner: Arc::new(Inner { member, clock, config, latch, guards }) };
        let begun = single_use.inner.member.transition(|tables, stage| {
            count_records(tables.ledger.sizes());
            tables.ledger.begin_epoch(&Reading::of(&*single_use.inner.clock), stage)
        });
        match begun.await {
            Ok(Ok(())) => Ok(single_use),
            Ok(Err(exhausted)) => Err(SingleUseOpenError::NotRecorded { reason: exhausted.to_string() }),
            Err(failed) => Err(SingleUseOpenError::NotRecorded { reason: failed.to_string() }),
        }
    }

    /// The clock that it judges by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// What it was opened with.
    pub fn config(&self) -> &SingleUseConfig {
        &self.inner.config
    }

    /// Whether the emergency stop is on: this store's, or its [`Authority`](super::Authority)'s. Reads no clock (law L12.5).
    pub fn stopped(&self) -> bool {
        self.inner.latch.stopped() || self.asked(|| self.inner.config.authority.stopped())
    }

    /// Turns the emergency stop on: from the first instruction on in this process, and for good once this returns
    /// (law L12.5).
    ///
    /// # Errors
    /// [`StopNotRecorded`]; it is on in this process all the same.
    pub async fn stop(&self) -> Result<(), StopNotRecorded> {
        // Before anything else, and whatever becomes of the rest.
        self.inner.latch.stop();
        tracing::warn!("the emergency stop is on");
        let recorded = self.inner.member.transition(|tables, stage| tables.ledger.record_stop(true, stage));
        match recorded.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(exhausted)) => Err(StopNotRecorded { reason: exhausted.to_string() }),
            Err(failed) => Err(StopNotRecorded { reason: failed.to_string() }),
        }
    }

    /// Turns the emergency stop off, once that is durable.
    ///
    /// # Errors
    /// [`ResumeError`]; it is still on.
    pub async fn resume(&self) -> Result<(), ResumeError> {
        let latch = &self.inner.latch;
        let seen = latch.seen();
        let recorded = self.inner.member.transition(|tables, stage| {
            // A stop that came since has latched, and may have been recorded already.
            if latch.seen() != seen {
                return Err(ResumeError::StoppedAgain);
            }
            let recorded = tables.ledger.record_stop(false, stage);
            recorded.map_err(|exhausted| ResumeError::NotRecorded { reason: exhausted.to_string() })
        });
        recorded.await.map_err(|failed| ResumeError::NotRecorded { reason: failed.to_string() })??;
        if latch.resume(seen) { Ok(()) } else { Err(ResumeError::StoppedAgain) }
    }

    /// Consumes a mark at once, without a reservation: `true` exactly once, and `false` ever after, until the mark has
    /// expired; durable when it returns. A later expiry than the recorded one is recorded in its place (law L12.1).
    ///
    /// # Errors
    /// [`Refusal`], never [`Refusal::Replayed`] and never [`Refusal::RecordDamaged`]: these are `false`.
    pub async fn reserve_until(&self, mark: &Mark) -> Result<bool, Refusal> {
        let decided =
            self.decide(false, &[], |tables, standing, stage| tables.ledger.reserve_until(mark, standing, stage));
        let fresh = decided.await??;
        count_decision(if fresh { "consumed" } else { "replayed" });
        Ok(fresh)
    }

    /// Reserves all of `marks`, or none, for a call without an operation (law L12.2).
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn reserve(&self, marks: &[Mark], capabilities: &[Capability]) -> Result<Reservation, Refusal> {
        let mut held = None;
        let decided = self.decide(false, capabilities, |tables, standing, stage| {
            held = Some(tables.ledger.reserve(marks, standing, stage)?);
            Ok(())
        });
        // From here on, whoever drops this future rolls back.
        let held = held.map(|grant| self.hold(grant));
        decided.await??;
        count_decision("reserved");
        held.map(|held| Reservation { held }).ok_or(Refusal::Superseded)
    }

    /// Presents an operation with its marks, and decides in one transition (law L12.4):
    ///
    /// - first: it is reserved with its marks;
    /// - exact, and reserved: the caller takes it over, with the marks that it has;
    /// - exact, and running in this process: waits for it to end;
    /// - exact, and finished: its outcome. `marks` are not looked at;
    /// - anything else is refused, and what was there is intact.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn present(
        &self,
        operation: &Operation,
        marks: &[Mark],
        capabilities: &[Capability],
    ) -> Result<Presentation, Refusal> {
        self.present_as(operation, capabilities, |ledger, standing, stage| {
            ledger.present(operation, marks, standing, stage)
        })
        .await
    }

    /// Waits for whoever has an operation, and never takes it over: for a caller whose
    /// [`begin`](Reservation::begin) was [`Refusal::Superseded`].
    ///
    /// # Errors
    /// [`Refusal`], of which [`Refusal::Abandoned`] says that nobody has it any more: present it again.
    pub async fn follow(
        &self,
        operation: &Operation,
        capabilities: &[Capability],
    ) -> Result<Recorded<Outcome>, Refusal> {
        let followed = self
            .present_as(operation, capabilities, |ledger, standing, stage| ledger.follow(operation, standing, stage));
        match followed.await? {
            Presentation::Recorded(recorded) => Ok(recorded),
            Presentation::Run(_) => Err(Refusal::Abandoned),
        }
    }

    async fn present_as(
        &self,
        operation: &Operation,
        capabilities: &[Capability],
        present: impl Fn(&mut Ledger, &Standing, &mut Stage<'_>) -> Result<Presented, Refusal>,
    ) -> Result<Presentation, Refusal> {
        loop {
            let (mut held, mut waiter) = (None, None);
            let decided = self.decide(false, capabilities, |tables, standing, stage| {
                match present(&mut tables.ledger, standing, stage)? {
                    Presented::Recorded(outcome) => Ok(Some(outcome)),
                    Presented::Run(grant) => {
                        held = Some(grant);
                        Ok(None)
                    }
                    Presented::Wait => {
                        let place = tables.waiting.join(operation.id);
                        waiter = Some(place.map_err(|bound| Refusal::TooManyWaiters { bound })?);
                        count_waiters(tables.waiting.count());
                        Ok(None)
                    }
                }
            });
            // From here on, whoever drops this future rolls back, or gives its place back.
            let held = held.map(|grant| self.hold(grant));
            if let Some(place) = waiter {
                drop(decided);
                Waiter { single_use: self, place }.wait(operation).await;
                continue;
            }
            let outcome = decided.await??;
            return match (outcome, held) {
                (Some(outcome), _) => {
                    count_decision("recorded");
                    Ok(Presentation::Recorded(Recorded { single_use: self.clone(), answer: outcome }))
                }
                (None, Some(held)) => {
                    count_decision("reserved");
                    Ok(Presentation::Run(Reservation { held }))
                }
                (None, None) => Err(Refusal::Superseded),
            };
        }
    }

    pub(super) async fn begin(&self, held: &mut Held, capabilities: &[Capability]) -> Result<(), Refusal> {
        let mut woken = Woken::default();
        let grant = held.grant.clone();
        let decided = self.decide(true, capabilities, |tables, standing, stage| {
            let begun = tables.ledger.begin(&grant, standing, stage);
            if let Err(refusal) = &begun
                && !matches!(refusal, Refusal::Superseded | Refusal::Capacity(_))
                && let Some(operation) = &grant.operation
            {
                woken = tables.waiting.end(operation.id);
            }
            begun
        });
        woken.wake();
        decided.await??;
        count_decision("begun");
        Ok(())
    }

    pub(super) async fn rollback(&self, held: &mut Held) -> Result<(), Refusal> {
        let mut woken = Woken::default();
        let mut ran = false;
        let rolled_back = self.inner.member.transition(|tables, stage| {
            ran = true;
            let rolled_back = tables.ledger.rollback(&held.grant, stage);
            woken = leave(tables, &held.grant);
            rolled_back
        });
        held.ended = ran;
        woken.wake();
        if rolled_back.await? {
            count_decision("rolled_back");
        }
        Ok(())
    }

    pub(super) async fn finish(&self, held: &mut Held, outcome: Option<Outcome>) -> Result<(), OutcomeUnknown> {
        let mut woken = Woken::default();
        let mut ran = false;
        let finished = self.inner.member.transition(|tables, stage| {
            ran = true;
            let finished = tables.ledger.finish(&held.grant, outcome, stage);
            woken = leave(tables, &held.grant);
            finished
        });
        held.ended = ran;
        woken.wake();
        let finished = match finished.await {
            Ok(finished) => finished,
            Err(failed) => Err(OutcomeUnknown::NotRecorded { reason: failed.to_string() }),
        };
        match &finished {
            Ok(()) => count_decision("finished"),
            Err(unknown) => {
                tracing::error!(%unknown, "a call ended, and its end is not recorded");
                metrics::counter!("admit_one_single_use_unknown_total").increment(1);
            }
        }
        finished
    }

    /// The caller went away: what it did not begin is rolled back, and what it began is unknown.
    pub(super) fn abandon(&self, grant: &Grant) {
        // Not waited for: a rollback that fails leaves a reservation that nobody holds, and that is free all the same.
        drop(self.inner.member.transition(|tables, stage| tables.ledger.rollback(grant, stage)));
        let (woken, waiters) = self.inner.member.arrange(|tables| (leave(tables, grant), tables.waiting.count()));
        woken.wake();
        count_waiters(waiters);
    }

    /// Lets an answer out that no operation keeps, reading stop and revocation last (law L12.5).
    ///
    /// # Errors
    /// [`Refusal::Stopped`] or [`Refusal::Revoked`].
    pub fn release<T>(&self, answer: T, capabilities: &[Capability]) -> Result<Released<T>, Refusal> {
        let guards = self.inner.guards;
        if self.stopped() && guards.keep(Guard::StopAtRelease) {
            return Err(counted(Refusal::Stopped { consumed: Consumed::Yes }));
        }
        match self.revoked(capabilities) {
            Some(capability) if guards.keep(Guard::RevocationAtRelease) => {
                Err(counted(Refusal::Revoked { capability, consumed: Consumed::Yes }))
            }
            _ => Ok(Released::new(answer)),
        }
    }

    /// How far a mark has come, as of now, without waiting (law L12.2).
    pub fn state(&self, mark: &MarkId, kind: MarkKind) -> MarkState {
        self.inner.member.inspect(|tables| tables.ledger.state(kind, *mark))
    }

    /// Visits everything that is not finished, in pages: releases what earlier runs reserved and did not begin, and counts
    /// what stays unknown. A damaged record is counted and passed over (law L12.4).
    pub async fn recover(&self) -> Recovery {
        let mut recovery = Recovery::default();
        let mut after = None;
        loop {
            let page = self.inner.member.transition(|tables, stage| {
                let page = tables.ledger.recover(after, RECOVERY_PAGE, stage);
                (page, tables.ledger.damaged(), tables.ledger.sizes())
            });
            let (page, damaged, sizes) = match page.await {
                Ok(page) => page,
                Err(failed) => {
                    recovery.failed = Some(failed.into());
                    return recovery;
                }
            };
            recovery.visited += page.visited;
            recovery.released += page.released;
            recovery.unknown += page.unknown;
            recovery.running += page.running;
            recovery.damaged = damaged;
            count_records(sizes);
            match page.next {
                Some(next) => after = Some(next),
                None => return recovery,
            }
        }
    }

    /// How it is doing, without waiting.
    pub fn health(&self) -> SingleUseHealth {
        let wall = self.inner.clock.wall();
        let stopped = self.stopped();
        self.inner.member.inspect(|Tables { ledger, waiting }| {
            let [nonces, approvals, operations] = ledger.sizes();
            SingleUseHealth {
                stopped,
                nonces,
                approvals,
                operations,
                damaged: ledger.damaged(),
                waiters: waiting.count(),
                high_water: ledger.high_water(),
                clock_regressed: ledger.regressed(wall),
                birth_mark: ledger.mark(),
                birth_settled: ledger.settled(),
            }
        })
    }

    fn hold(&self, grant: Grant) -> Held {
        Held { single_use: self.clone(), grant, ended: false }
    }

    /// Runs a transition under what stands now, read under the lock, and counts what it refuses.
    fn decide<R>(
        &self,
        begins: bool,
        capabilities: &[Capability],
        transition: impl FnOnce(&mut Tables, &Standing, &mut Stage<'_>) -> Result<R, Refusal>,
    ) -> Ticket<Result<R, Refusal>> {
        let mut refused = None;
        let mut sizes = None;
        let ticket = self.inner.member.transition(|tables, stage| {
            let reading = || Reading::of(&*self.inner.clock);
            let revoked = || self.revoked(capabilities);
            let standing = Standing::of(self.inner.guards, begins, self.stopped(), reading, revoked);
            let decided = transition(tables, &standing, stage);
            refused = decided.as_ref().err().map(Refusal::code);
            sizes = Some(tables.ledger.sizes());
            decided
        });
        if let Some(code) = refused {
            metrics::counter!("admit_one_single_use_refusals_total", "reason" => code).increment(1);
        }
        if let Some(sizes) = sizes {
            count_records(sizes);
        }
        ticket
    }

    fn revoked(&self, capabilities: &[Capability]) -> Option<Capability> {
        let authority = &self.inner.config.authority;
        capabilities.iter().find(|capability| self.asked(|| authority.revoked(capability))).copied()
    }

    /// What an authority answers; one that panics withdraws what it was asked about.
    fn asked(&self, ask: impl FnOnce() -> bool) -> bool {
        catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
            tracing::error!("the authority panicked: that counts as a stop or a revocation");
            true
        })
    }
}

impl fmt::Debug for SingleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleUse").field("stopped", &self.stopped()).finish_non_exhaustive()
    }
}

/// A caller that waits for a running operation. Its place is given back when it goes away.
struct Waiter<'a> {
    single_use: &'a SingleUse,
    place: Place,
}

impl Waiter<'_> {
    /// Until the operation ends, or its deadline passes.
    async fn wait(mut self, operation: &Operation) {
        let deadline = u64::try_from(operation.deadline).unwrap_or(0).saturating_mul(1_000);
        let left = deadline.saturating_sub(self.single_use.inner.clock.wall()).max(1);
        // A place whose operation ended was woken by that, or its sender is gone with it.
        let _ = crate::task::within(Duration::from_millis(left), &mut self.place.ended).await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let waiters = self.single_use.inner.member.arrange(|tables| {
            tables.waiting.leave(&self.place);
            tables.waiting.count()
        });
        count_waiters(waiters);
    }
}

fn leave(tables: &mut Tables, grant: &Grant) -> Woken {
    tables.ledger.leave(grant.owner);
    grant.operation.map(|operation| tables.waiting.end(operation.id)).unwrap_or_default()
}

fn counted(refusal: Refusal) -> Refusal {
    metrics::counter!("admit_one_single_use_refusals_total", "reason" => refusal.code()).increment(1);
    refusal
}

fn count_decision(decision: &'static str) {
    metrics::counter!("admit_one_single_use_decisions_total", "decision" => decision).increment(1);
}

fn count_records([nonces, approvals, operations]: [usize; 3]) {
    metrics::gauge!("admit_one_single_use_records", "table" => "nonce").set(nonces as f64);
    metrics::gauge!("admit_one_single_use_records", "table" => "approval").set(approvals as f64);
    metrics::gauge!("admit_one_single_use_records", "table" => "operation").set(operations as f64);
}

fn count_waiters(waiters: usize) {
    metrics::gauge!("admit_one_single_use_waiters").set(waiters as f64);
}
