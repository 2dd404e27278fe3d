//! All leases of a store and how they change. Pure: time, random bits and the count of bad records are arguments.
//!
//! State: per stream its running incarnation, the next sequence, the last one that is covered, and what it knows of
//! other incarnations; for the store, what is known of removed ones; and a log of what no durable batch has released.
//!
//! - `plan` decides a reservation and changes nothing. It says what to write, if anything: the stream's record when
//!   its lease is outrun or its incarnation changes; the removal of idle streams, and the record of what was removed,
//!   when a fresh stream needs their room.
//! - `apply` carries a plan out.
//! - `undo` restores what the last released batch left, except that a stream's next sequence is never lowered.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Clocks, LeaseRefused, Reservation,
    known::Known,
    record::{self, Lease, REMOVED_KEY, StreamName},
};
use crate::{
    message::{GREATEST_TTL_MS, Incarnation, MAIL_HOLD_MS},
    storage::{RecordName, Table, Write, commit::BatchNumber},
};

/// How many sequences a lease covers when it is written (law L8.1).
pub const LEASE: u64 = 64;

/// The most idle streams that one reservation retires, so that its time under the lock is bounded; more only where a
/// table that is further over its bound needs it to have room at all.
pub(super) const RETIRE_MAX: usize = 64;

/// How long something that a stream numbers may be delivered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    /// The time to live, in milliseconds.
    pub(super) ttl: u64,
    /// Whether it may be held as mail first.
    pub(super) mail: bool,
}

impl Life {
    const fn ms(self) -> u64 {
        self.ttl.saturating_add(if self.mail { MAIL_HOLD_MS } else { 0 })
    }
}

#[derive(Debug, Clone)]
struct Stream {
    incarnation: Incarnation,
    /// The next sequence; `None` past `u64::MAX`.
    next: Option<u64>,
    /// The last sequence that a written lease covers; `None` before the first.
    through: Option<u64>,
    known: Known,
    /// Whether it ever numbered mail.
    mail: bool,
    /// The greatest time to live reserved for, in milliseconds; of mail, with how long it may be held.
    greatest_ttl: u64,
    last_used: Duration,
}

impl Stream {
    /// From when, in monotonic time, nothing it numbered can be delivered any more (law L8.5).
    fn idle_from(&self, sigma: u64) -> Duration {
        self.last_used.saturating_add(Duration::from_millis(self.greatest_ttl.saturating_add(sigma)))
    }
}

enum Change {
    Stream(StreamName, Option<Stream>),
    Removed(Known),
}

/// A reservation that was decided and not carried out.
pub(super) struct Plan {
    pub(super) reservation: Reservation,
    name: StreamName,
    stream: Stream,
    /// Whether the stream's record changes.
    written: bool,
    retired: Vec<StreamName>,
    removed: Option<Known>,
}

impl Plan {
    /// What must be staged before the plan is carried out: the mark first, then what it stands for.
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        let removed = self.removed.as_ref().map(|known| Write {
            table: Table::Clock,
            key: Bytes::from_static(REMOVED_KEY),
            value: Some(record::encode_removed(known)),
        });
        let retired = self.retired.iter().map(|name| Write { table: Table::Sender, key: key(name), value: None });
        let through = self.stream.through.filter(|_| self.written);
        let lease = through.map(|through| {
            let lease = Lease {
                incarnation: self.stream.incarnation,
                through,
                mail: self.stream.mail,
                known: self.stream.known.clone(),
            };
            Write { table: Table::Sender, key: key(&self.name), value: Some(record::encode(&self.name, &lease)) }
        });
        removed.into_iter().chain(retired).chain(lease)
    }
}

pub(super) struct Ledger {
    /// In one order, so that a run with the same seed retires the same streams.
    streams: BTreeMap<StreamName, Stream>,
    removed: Known,
    /// The record of what was removed cannot be restored: no fresh stream can be drawn safely.
    removed_unavailable: Option<RecordName>,
    bound: usize,
    /// No stream becomes idle before this.
    idle_from: Duration,
    /// Oldest first.
    log: VecDeque<(BatchNumber, Change)>,
}

impl Ledger {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            removed: Known::default(),
            removed_unavailable: None,
            bound,
            idle_from: Duration::ZERO,
            log: VecDeque::new(),
        }
    }

    /// Takes in a durable lease. The stream resumes past it (law L8.2). What it signed before is unknown, so it
    /// counts as used now, for the greatest time to live that any node accepts, and as mail if it ever numbered any.
    pub(super) fn load(&mut self, name: StreamName, lease: Lease, now: Clocks) {
        let Lease { incarnation, through, mail, known } = lease;
        let stream = Stream {
            incarnation,
            next: through.checked_add(1),
            through: Some(through),
            known,
            mail,
            greatest_ttl: GREATEST_TTL_MS.saturating_add(if mail { MAIL_HOLD_MS } else { 0 }),
            last_used: now.monotonic,
        };
        self.streams.insert(name, stream);
    }

    pub(super) fn load_removed(&mut self, removed: Result<Known, RecordName>) {
        match removed {
            Ok(known) => self.removed = known,
            Err(record) => self.removed_unavailable = Some(record),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Decides a reservation of the stream's next sequence, for a transaction that lives as `life` says.
    /// `unrestorable` records each take a place of the bound. `random` gives fresh bits.
    pub(super) fn plan(
        &mut self,
        name: StreamName,
        life: Life,
        now: Clocks,
        unrestorable: usize,
        random: fn() -> Option<u16>,
    ) -> Result<Plan, LeaseRefused> {
        let (mut stream, mut written, mut retired, mut removed) = match self.streams.get(&name) {
            Some(stream) => (stream.clone(), false, Vec::new(), None),
            None => {
                if let Some(record) = self.removed_unavailable {
                    return Err(LeaseRefused::Unavailable { record });
                }
                let retired = self.make_room(now, unrestorable)?;
                let removed = self.after_removal(&retired, now);
                let known = removed.as_ref().unwrap_or(&self.removed).clone();
                (draw(known, now, random)?, true, retired, removed)
            }
        };
        // One above a known incarnation at the tolerance's edge lies a millisecond past it, and is left to run.
        let too_far = stream.incarnation.wall() > now.wall.saturating_add(now.sigma).saturating_add(1);
        if !written && (too_far || stream.known.overtakes(stream.incarnation, now)) {
            let mut known = stream.known.clone();
            known.note(stream.incarnation, now);
            let drawn = draw(known, now, random)?;
            stream = Stream { greatest_ttl: stream.greatest_ttl, mail: stream.mail, ..drawn };
            (written, retired, removed) = (true, Vec::new(), None);
        }
        let sequence = stream.next.ok_or(LeaseRefused::Exhausted)?;
        if stream.through.is_none_or(|through| sequence > through) {
            stream.through = Some(sequence.saturating_add(LEASE - 1));
            written = true;
        }
        stream.next = sequence.checked_add(1);
        written |= life.mail && !stream.mail;
        stream.mail |= life.mail;
        stream.greatest_ttl = stream.greatest_ttl.max(life.ms());
        stream.last_used = now.monotonic;
        let reservation = Reservation { incarnation: stream.incarnation, sequence };
        Ok(Plan { reservation, name, stream, written, retired, removed })
    }

    /// Carries a plan out, its writes being staged in `batch`. No other call may stand between it and its plan.
    pub(super) fn apply(&mut self, plan: Plan, batch: BatchNumber, now: Clocks) {
        let Plan { name, stream, written, retired, removed, .. } = plan;
        for name in retired {
            let before = self.streams.remove(&name);
            self.log.push_back((batch, Change::Stream(name, before)));
        }
        if let Some(removed) = removed {
            let before = std::mem::replace(&mut self.removed, removed);
            self.log.push_back((batch, Change::Removed(before)));
        }
        self.idle_from = self.idle_from.min(stream.idle_from(now.sigma));
        let before = self.streams.insert(name, stream);
        if written {
            self.log.push_back((batch, Change::Stream(name, before)));
        }
    }

    pub(super) fn released(&mut self, batch: BatchNumber) {
        while self.log.front().is_some_and(|(staged, _)| *staged <= batch) {
            self.log.pop_front();
        }
    }

    pub(super) fn undo(&mut self) {
        while let Some((_, change)) = self.log.pop_back() {
            match change {
                Change::Removed(before) => self.removed = before,
                Change::Stream(name, None) => {
                    self.streams.remove(&name);
                }
                Change::Stream(name, Some(mut before)) => {
                    if let Some(undone) = self.streams.get(&name) {
                        before.greatest_ttl = before.greatest_ttl.max(undone.greatest_ttl);
                        before.last_used = before.last_used.max(undone.last_used);
                        if before.incarnation == undone.incarnation {
                            before.next = later(before.next, undone.next);
                        }
                    }
                    self.streams.insert(name, before);
                }
            }
        }
        self.idle_from = Duration::ZERO;
    }

    /// The idle streams to retire so that one more has room; none when it has.
    fn make_room(&mut self, now: Clocks, unrestorable: usize) -> Result<Vec<StreamName>, LeaseRefused> {
        let wanted = (self.streams.len() + unrestorable + 1).saturating_sub(self.bound);
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let full = Err(LeaseRefused::StreamCapacityExceeded { bound: self.bound });
        if now.monotonic < self.idle_from {
            return full;
        }
        let most = wanted.max(RETIRE_MAX);
        let mut idle = Vec::new();
        let mut idle_from = Duration::MAX;
        for (name, stream) in &self.streams {
            let instant = stream.idle_from(now.sigma);
            if instant <= now.monotonic && idle.len() < most {
                idle.push(*name);
            } else {
                idle_from = idle_from.min(instant);
            }
        }
        if idle.len() < wanted {
            // These few stay, and may go with the next that asks.
            self.idle_from = if idle.is_empty() { idle_from } else { Duration::ZERO };
            return full;
        }
        self.idle_from = idle_from;
        Ok(idle)
    }

    /// What is known of removed incarnations once `retired` are removed too; `None` where nothing changes.
    fn after_removal(&self, retired: &[StreamName], now: Clocks) -> Option<Known> {
        if retired.is_empty() {
            return None;
        }
        let mut removed = self.removed.clone();
        for stream in retired.iter().filter_map(|name| self.streams.get(name)) {
            removed.note(stream.incarnation, now);
            stream.known.list().iter().for_each(|known| removed.note(*known, now));
        }
        Some(removed)
    }
}

/// A stream under a fresh incarnation, with nothing covered.
fn draw(known: Known, now: Clocks, random: fn() -> Option<u16>) -> Result<Stream, LeaseRefused> {
    let random = random().ok_or(LeaseRefused::NoRandomness)?;
    let incarnation = known.draw(now, random).ok_or(LeaseRefused::ClockOutOfRange { wall: now.wall })?;
    Ok(Stream {
        incarnation,
        next: Some(0),
        through: None,
        known,
        mail: false,
        greatest_ttl: 0,
        last_used: now.monotonic,
    })
}

/// The later of two next sequences, of which none is past them all.
fn later(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

fn key(name: &StreamName) -> Bytes {
    Bytes::copy_from_slice(name)
}
