//! Sequence leases: no sequence of a stream is ever handed out twice (law L8).
//!
//! A reservation that outruns its stream's durable lease writes one that covers the next [`LEASE`] sequences; one
//! inside it writes nothing. A restart resumes past the lease, so it leaves a gap of at most [`LEASE`] and reuses
//! nothing, wherever the crash was. The reservation's ticket resolves when what covers it is durable, and only then
//! may a signature over it be exposed.
//!
//! **Incarnations.** A stream's numbering belongs to an incarnation, drawn when its record is created, from the wall
//! clock and fresh random bits, above every one that the stream had and every one that was removed. One that lies
//! more than the tolerance ahead of the clock is set aside: the stream runs under a lower one, and draws above it once
//! the clock reaches it. So a sender that lost its record is heard again at once.
//!
//! **One owner.** One allocator owns a stream (law L8.3). Two that do not know of each other show at the
//! destination: as Fork where one runs on a copy of the other's store, as Stale, naming the newer incarnation, where
//! each has a store of its own. Nothing here can prevent it.
//!
//! **Retirement.** At the bound of [`SENDER_STREAMS`], a fresh stream takes the room of streams that were idle for the
//! greatest time to live they were used with and the tolerance (law L8.5); after a restart, for the greatest that any
//! node accepts. A stream that ever numbered mail waits 7 days longer, and its record says so. When there are none it is refused. A record that cannot be restored makes its stream unavailable
//! and takes one place of the bound (law L11.2); if it is the record of what was removed, no fresh stream is opened.
//!
//! Metric: `admit_one_unavailable_calls_total`, labelled `table`, counts reservations refused for a bad record.
//!
//! What a failed batch does: the lease it would have written is forgotten, the next sequence stays, so that the next
//! reservation writes a lease again.

mod known;
mod ledger;
mod record;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use bytes::Bytes;

pub(crate) use self::record::REMOVED_KEY;
use self::{
    known::Known,
    ledger::{Ledger, Life},
    record::Lease,
};
pub use self::{ledger::LEASE, record::SENDER_STREAMS};
use crate::{
    clock::{Clock, DEFAULT_SIGMA_MS, WallMs},
    message::{Incarnation, StreamKey},
    storage::{
        RecordName, Table, Write,
        commit::{BatchNumber, BudgetExhausted, GroupCommit, Member, Participant, Ticket},
    },
};

/// How leases are granted.
#[derive(Debug, Clone, Copy)]
pub struct LeaseConfig {
    /// How far ahead of the clock an incarnation may lie, in milliseconds. The same as admission's.
    pub sigma: u64,
    /// The most streams; at most [`SENDER_STREAMS`], which a greater number is taken for.
    pub streams: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { sigma: DEFAULT_SIGMA_MS, streams: SENDER_STREAMS }
    }
}

/// A sequence that nothing else of its stream was or will be signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reservation {
    /// The numbering that the sequence belongs to.
    pub incarnation: Incarnation,
    /// The sequence.
    pub sequence: u64,
}

/// Why no sequence was reserved. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseRefused {
    /// The stream's record cannot be restored (law L11.2), or, for a fresh stream, the record of what was removed.
    #[error(
        "record {record} cannot be restored, and its stream is unavailable: stop the node and run `admit-one store clear --record {record}`, which says what is lost"
    )]
    Unavailable {
        /// The record's name.
        record: RecordName,
    },
    /// Every place is taken by a stream that is in use (law L10.1).
    #[error("{bound} sender streams are in use: wait until one was idle for the life of its transactions")]
    StreamCapacityExceeded {
        /// The bound.
        bound: usize,
    },
    /// The stream's numbering has reached `u64::MAX` (law L8.2).
    #[error("the stream has used its last sequence: sign under another key")]
    Exhausted,
    /// The lease would pass the sender table's budget (law L9.7).
    #[error(transparent)]
    BudgetExhausted(#[from] BudgetExhausted),
    /// An incarnation could not be drawn: the system gave no random bits.
    #[error("the system has no random source")]
    NoRandomness,
    /// An incarnation could not be drawn: the clock is past the 48 bits of milliseconds that one holds.
    #[error("the wall clock reads {wall} ms since 1970, past the year 10889: set it right")]
    ClockOutOfRange {
        /// The clock's reading.
        wall: WallMs,
    },
}

/// Why leases could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseOpenError {
    /// Something else owns the sender table of this group commit.
    #[error("the sender table is taken: one group commit has one set of leases")]
    Taken,
}

/// The clock's readings under the lock, and the tolerance, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall: WallMs,
    monotonic: std::time::Duration,
    sigma: u64,
}

/// The leases of a store's own streams. Cheap to clone.
#[derive(Clone)]
pub struct Leases {
    member: Member<Ledger>,
    clock: Arc<dyn Clock>,
    sigma: u64,
    random: fn() -> Option<u16>,
}

impl Leases {
    /// Restores the leases from what group commit scanned. A record that cannot be restored makes its own stream
    /// unavailable and no other (law L11).
    ///
    /// # Errors
    /// [`LeaseOpenError::Taken`] the second time.
    pub fn open(commit: &GroupCommit, clock: Arc<dyn Clock>, config: LeaseConfig) -> Result<Self, LeaseOpenError> {
        Self::open_with(commit, clock, config, system_random)
    }

    pub(crate) fn open_with(
        commit: &GroupCommit,
        clock: Arc<dyn Clock>,
        config: LeaseConfig,
        random: fn() -> Option<u16>,
    ) -> Result<Self, LeaseOpenError> {
        let senders = commit.take_scan(Table::Sender).ok_or(LeaseOpenError::Taken)?;
        let marks = commit.take_scan(Table::Clock).ok_or(LeaseOpenError::Taken)?;
        let sigma = config.sigma;
        let now = Clocks { wall: clock.wall(), monotonic: clock.monotonic(), sigma };
        let mut ledger = Ledger::new(config.streams.min(SENDER_STREAMS));
        for (key, value) in &senders.records {
            match record::decode(key, value) {
                Ok((name, lease)) => ledger.load(name, lease, now),
                Err(reason) => commit.set_unrestorable(RecordName::of(Table::Sender, key), reason),
            }
        }
        let mark = RecordName::of(Table::Clock, REMOVED_KEY);
        if marks.bad.iter().any(|bad| bad.name == mark) {
            ledger.load_removed(Err(mark));
        }
        if let Some((_, value)) = marks.records.iter().find(|(key, _)| *key == REMOVED_KEY) {
            ledger.load_removed(record::decode_removed(value).map_err(|reason| {
                commit.set_unrestorable(mark, reason);
                mark
            }));
        }
        Ok(Self { member: commit.join(ledger), clock, sigma, random })
    }

    /// Reserves the stream's next sequence, for a transaction that lives `ttl` milliseconds from now (law L8.1).
    /// The ticket resolves when the sequence is covered by a durable lease; until then nothing signed over it may
    /// leave this process. Dropping the ticket leaves a gap and nothing else.
    ///
    /// Reservations of one stream are numbered in the order of the calls.
    ///
    /// # Errors
    /// In the ticket, [`LeaseRefused`].
    pub fn reserve(&self, stream: &StreamKey, ttl: u64) -> Ticket<Result<Reservation, LeaseRefused>> {
        self.reserve_for(stream, Life { ttl, mail: false })
    }

    /// The same for mail, which a store-and-forward inbox may hold for [`MAIL_HOLD_MS`](crate::message::MAIL_HOLD_MS) on
    /// top of its life: the stream is retired only once that has passed too (law L8.5), since a new incarnation would
    /// overtake what is held. The stream's record says that it sent mail, so the first such reservation writes it.
    ///
    /// # Errors
    /// In the ticket, [`LeaseRefused`].
    pub fn reserve_mail(&self, stream: &StreamKey, ttl: u64) -> Ticket<Result<Reservation, LeaseRefused>> {
        self.reserve_for(stream, Life { ttl, mail: true })
    }

    fn reserve_for(&self, stream: &StreamKey, life: Life) -> Ticket<Result<Reservation, LeaseRefused>> {
        let name = stream.to_bytes();
        self.member.transition(|ledger, stage| {
            if let Some(record) = stage.unavailable(Table::Sender, &name) {
                metrics::counter!("admit_one_unavailable_calls_total", "table" => "sender").increment(1);
                return Err(LeaseRefused::Unavailable { record });
            }
            let now = Clocks { wall: self.clock.wall(), monotonic: self.clock.monotonic(), sigma: self.sigma };
            let plan = ledger.plan(name, life, now, stage.unrestorable(), self.random)?;
            for write in plan.writes() {
                match write.value {
                    None => stage.remove(write.table, write.key),
                    Some(value) => {
                        if let Err(exhausted) = stage.put(write.table, write.key, value) {
                            stage.rewind();
                            return Err(exhausted.into());
                        }
                    }
                }
            }
            let reservation = plan.reservation;
            ledger.apply(plan, stage.batch(), now);
            Ok(reservation)
        })
    }

    /// How many streams have a lease, unreleased ones included.
    pub fn streams(&self) -> usize {
        self.member.inspect(Ledger::len)
    }
}

impl Participant for Ledger {
    fn released(&mut self, batch: BatchNumber) {
        Ledger::released(self, batch);
    }

    fn undo(&mut self) {
        Ledger::undo(self);
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("streams", &self.streams()).finish_non_exhaustive()
    }
}

/// What an operator reads of a sender stream's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SenderRecord {
    pub(crate) stream: [u8; StreamKey::LEN],
    pub(crate) incarnation: Incarnation,
    /// The last sequence that the lease covers.
    pub(crate) through: u64,
    known: Known,
}

/// Reads the record of a sender stream that was found under `key`.
pub(crate) fn read_sender(key: &[u8], record: &[u8]) -> Result<SenderRecord, &'static str> {
    let (stream, Lease { incarnation, through, known, .. }) = record::decode(key, record)?;
    Ok(SenderRecord { stream, incarnation, through, known })
}

/// Whether the bytes are the record of what was removed.
pub(crate) fn read_removed(record: &[u8]) -> Result<(), &'static str> {
    record::decode_removed(record).map(drop)
}

/// The write that remembers `senders` as removed, beside what `current` remembers, which is ignored where it does not
/// decode: what is drawn after it exceeds them all (law L8.4).
pub(crate) fn removing(current: Option<&[u8]>, senders: &[SenderRecord], wall: WallMs, sigma: u64) -> Write {
    let now = Clocks { wall, monotonic: std::time::Duration::ZERO, sigma };
    let mut removed = current.and_then(|record| record::decode_removed(record).ok()).unwrap_or_default();
    for sender in senders {
        removed.note(sender.incarnation, now);
        sender.known.list().iter().for_each(|known| removed.note(*known, now));
    }
    Write { table: Table::Clock, key: Bytes::from_static(REMOVED_KEY), value: Some(record::encode_removed(&removed)) }
}

fn system_random() -> Option<u16> {
    let mut bits = [0; 2];
    getrandom::fill(&mut bits).ok()?;
    Some(u16::from_be_bytes(bits))
}

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 2] = record::FUZZ;
