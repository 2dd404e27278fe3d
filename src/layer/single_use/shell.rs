//! Single-use authority over group commit.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Capability, Consumed, Mark, MarkId, MarkKind, MarkState, Operation, Outcome, Presentation, Recorded, Recovery,
    Refusal, Released, Reservation, ResumeError, SingleUseConfig, SingleUseHealth, SingleUseOpenError, StopNotRecorded,
};
use crate::{
    clock::Clock,
    storage::{Table, commit::GroupCommit},
};

/// Single-use authority over one store (law section 12). Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct SingleUse {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    config: SingleUseConfig,
    stopped: AtomicBool,
}

impl SingleUse {
    /// Restores what the store holds and begins an epoch. Returns once that is durable.
    ///
    /// # Errors
    /// [`SingleUseOpenError`]; the store is as it was.
    pub async fn open(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: SingleUseConfig,
    ) -> Result<Self, SingleUseOpenError> {
        let _ = commit;
        Ok(Self { inner: Arc::new(Inner { clock, config, stopped: AtomicBool::new(false) }) })
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
        self.inner.stopped.load(Ordering::SeqCst) || self.inner.config.authority.stopped()
    }

    /// Turns the emergency stop on: from the first instruction on in this process, and for good once this returns
    /// (law L12.5).
    ///
    /// # Errors
    /// [`StopNotRecorded`]; it is on in this process all the same.
    pub async fn stop(&self) -> Result<(), StopNotRecorded> {
        self.inner.stopped.store(true, Ordering::SeqCst);
        Err(StopNotRecorded { reason: self.not_built().to_string() })
    }

    /// Turns the emergency stop off, once that is durable.
    ///
    /// # Errors
    /// [`ResumeError`]; it is still on.
    pub async fn resume(&self) -> Result<(), ResumeError> {
        Err(ResumeError::NotRecorded { reason: self.not_built().to_string() })
    }

    /// Consumes a mark at once, without a reservation: `true` exactly once, and `false` ever after, until the mark has
    /// expired; durable when it returns. A later expiry than the recorded one is recorded in its place (law L12.1).
    ///
    /// # Errors
    /// [`Refusal`], never [`Refusal::Replayed`] and never [`Refusal::RecordDamaged`]: these are `false`.
    pub async fn reserve_until(&self, mark: &Mark) -> Result<bool, Refusal> {
        let _ = mark;
        Err(self.not_built())
    }

    /// Reserves all of `marks`, or none, for a call without an operation (law L12.2).
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn reserve(&self, marks: &[Mark], capabilities: &[Capability]) -> Result<Reservation, Refusal> {
        let _ = (marks, capabilities);
        Err(self.not_built())
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
        let _ = (operation, marks, capabilities);
        Err(self.not_built())
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
        let _ = (operation, capabilities);
        Err(self.not_built())
    }

    /// Lets an answer out that no operation keeps, reading stop and revocation last (law L12.5).
    ///
    /// # Errors
    /// [`Refusal::Stopped`] or [`Refusal::Revoked`].
    pub fn release<T>(&self, answer: T, capabilities: &[Capability]) -> Result<Released<T>, Refusal> {
        if self.stopped() {
            return Err(Refusal::Stopped { consumed: Consumed::Yes });
        }
        match capabilities.iter().find(|capability| self.inner.config.authority.revoked(capability)) {
            Some(capability) => Err(Refusal::Revoked { capability: *capability, consumed: Consumed::Yes }),
            None => Ok(Released::new(answer)),
        }
    }

    /// How far a mark has come, as of now, without waiting (law L12.2).
    pub fn state(&self, mark: &MarkId, kind: MarkKind) -> MarkState {
        let _ = (mark, kind);
        MarkState::Consumed
    }

    /// Visits every operation that is not finished, in pages: releases what earlier runs reserved and did not begin, and
    /// counts what stays unknown. A damaged record is counted and passed over (law L12.4).
    pub async fn recover(&self) -> Recovery {
        Recovery { failed: Some(self.not_built()), ..Recovery::default() }
    }

    /// How it is doing, without waiting.
    pub fn health(&self) -> SingleUseHealth {
        SingleUseHealth { stopped: self.stopped(), ..SingleUseHealth::default() }
    }

    /// The refusal of what this build does not do yet.
    pub(super) fn not_built(&self) -> Refusal {
        Refusal::Unavailable { table: Table::Operation, reason: "this build has no single-use ledger yet".into() }
    }
}

impl fmt::Debug for SingleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleUse").field("health", &self.health()).finish_non_exhaustive()
    }
}
