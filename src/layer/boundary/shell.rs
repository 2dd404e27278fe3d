//! The boundary over group commit.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use libp2p::PeerId;

use super::{
    AdmissionConfig, AdmissionOpenError, BoundaryRefusal, Request,
    core::{Boundary, Staging},
};
use crate::{
    clock::{Clock, WallMs},
    layer::window::Verdict,
    link::{LinkGuard, LinkId, Links, NoSlot},
    message::Class,
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
    }
}

impl Staging for Stage<'_> {
    fn batch(&self) -> BatchNumber {
        Stage::batch(self)
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
/// Metrics: `admit_one_verdicts_total` (by `class` and `verdict`) and `admit_one_refusals_total` (by `reason`),
/// counted when the boundary decides; a store that then fails takes its admissions back and counts that
/// itself; `admit_one_charge_refusals_total` (by `bound`): new streams refused for their introducer, also counted by
/// reason; `admit_one_slot_refusals_total`: links that found every slot taken. Gauges `admit_one_receiver_streams`,
/// `admit_one_slots` (by `state`, `taken` or `free`) and `admit_one_pool_streams` (what slots hold past their floors).
///
/// It is a [`Links`]: given to the lanes' configuration, each connection with lanes has a slot of its own (law L10.3).
#[derive(Clone)]
pub struct Admission {
    member: Member<Boundary>,
    clock: Arc<dyn Clock>,
    config: AdmissionConfig,
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
        let receiver = commit.take_scan(Table::Receiver).ok_or(AdmissionOpenError::Taken)?;
        let shared = commit.take_scan(Table::Clock).unwrap_or_default();
        let restored = Boundary::restore(&config, Guards::default(), &receiver, &shared, clock.monotonic());
        let (boundary, bad) = match restored {
            Ok(restored) => restored,
            Err(error) => {
                // Nothing was restored from it, so another attempt may be.
                commit.give_back_scan(Table::Receiver, receiver);
                return Err(error);
            }
        };
        for (record, reason) in bad {
            commit.set_unrestorable(record, reason);
        }
        let admission = Self { member: commit.join(boundary), clock, config };
        let born = admission.member.transition(|boundary, stage| {
            let reading = Reading::of(&*admission.clock);
            boundary.read(&reading, stage)
        });
        match born.await {
            Ok(Ok(_)) => Ok(admission),
            Ok(Err(error)) => Err(AdmissionOpenError::NotRecorded(error.to_string())),
            Err(error) => Err(AdmissionOpenError::NotRecorded(error.to_string())),
        }
    }

    /// Judges a verified transaction. It is decided, and staged, when this returns, so that calling in an order is
    /// admitting in it; the ticket gives the answer once that is durable (law L5.5).
    pub fn admit(&self, request: Request) -> Ticket<Result<Verdict, BoundaryRefusal>> {
        let mut answer = None;
        let ticket = self.member.transition(|boundary, stage| {
            // Read under the lock, so that readings come in the order of the decisions made by them.
            let reading = Reading::of(&*self.clock);
            let decided = boundary.admit(&request, &reading, stage);
            answer = Some((decided, boundary.streams(), boundary.pool()));
            decided
        });
        if let Some((decided, streams, pool)) = answer {
            count(request.stream.class, decided, streams, pool);
        }
        ticket
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
        let ((streams, mark, settled), (slots, slots_taken), pool) = self.member.inspect(|boundary| {
            let settled = boundary.birth().is_some_and(Birth::settled);
            ((boundary.streams(), boundary.mark(), settled), boundary.slots(), boundary.pool())
        });
        let wall = self.clock.wall();
        AdmissionHealth {
            streams,
            bound: self.config.streams,
            birth_mark: mark,
            refuses_fresh_until: mark.filter(|mark| wall <= *mark),
            slots,
            slots_taken,
            pool: usize::try_from(pool).unwrap_or(usize::MAX),
            birth_settled: settled,
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
                    count_slots(member.arrange(|boundary| {
                        boundary.retire_link(&link);
                        boundary.slots()
                    }));
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

fn count(class: Class, decided: Result<Verdict, BoundaryRefusal>, streams: usize, pool: u32) {
    match decided {
        Ok(verdict) => {
            let verdict = match verdict {
                Verdict::First => "first",
                Verdict::Advance => "advance",
                Verdict::Late => "late",
            };
            metrics::counter!("admit_one_verdicts_total", "class" => class.label(), "verdict" => verdict).increment(1);
            metrics::gauge!("admit_one_receiver_streams").set(streams as f64);
            metrics::gauge!("admit_one_pool_streams").set(f64::from(pool));
        }
        Err(refusal) => {
            if let BoundaryRefusal::StreamCapacityExceeded { bound, .. } = &refusal {
                metrics::counter!("admit_one_charge_refusals_total", "bound" => bound.label()).increment(1);
            }
            metrics::counter!("admit_one_refusals_total", "reason" => refusal.label()).increment(1);
        }
    }
}
