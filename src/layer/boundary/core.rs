//! The boundary itself, without clocks, locks or files. See the room's docs for its order and its failures.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;

use super::{
    AdmissionConfig, AdmissionOpenError, BoundaryRefusal, Carrier, REMOVALS, Request, STREAMS_MAX,
    cleared::{CLEARED_KEY, Cleared},
    custody::CustodyUndo,
    judge::{Admission, Change},
    local::{Local, LocalUndo},
    record::StreamRecord,
    table::{Stream, Streams},
};
use crate::{
    clock::WallMs,
    layer::{
        charging::{Introducer, Slots},
        custody::{Custody, Offer},
        quota::{FILL_MAX, Quotas, Steady},
        window::Verdict,
    },
    message::{Class, GREATEST_TTL_MS, StreamKey},
    storage::{
        Key, RecordName, Scan, Table,
        birth::{BIRTH_KEY, Birth, Reading, Tolerance},
        commit::{BatchNumber, BudgetExhausted},
        floor::{FLOOR_KEY, Floors},
        guard::{Guard, Guards},
    },
};

/// Where a transition puts its writes, and what group commit knows of bad records.
pub(in crate::layer) trait Staging {
    /// The batch that the writes land in.
    fn batch(&self) -> BatchNumber;
    /// The batch that the transition's answer waits for, if it waits.
    fn waits_for(&self) -> Option<BatchNumber>;
    /// Stages a whole new value.
    fn put(&mut self, table: Table, key: Key, value: Bytes) -> Result<(), BudgetExhausted>;
    /// Stages a removal.
    fn remove(&mut self, table: Table, key: Key);
    /// Discards what this transition staged.
    fn rewind(&mut self);
    /// The name of the record of `key`, if it cannot be restored.
    fn unavailable(&self, table: Table, key: &[u8]) -> Option<RecordName>;
    /// How many records cannot be restored.
    fn unrestorable(&self) -> usize;
}

/// What the store holds of each of the boundary's tables.
#[derive(Debug, Default)]
pub(super) struct Scans {
    pub(super) receiver: Scan,
    pub(super) clock: Scan,
    pub(super) custody: Scan,
}

/// All that a receiver remembers.
#[derive(Debug)]
pub(super) struct Boundary {
    pub(super) tolerance: Tolerance,
    pub(super) bound: usize,
    birth_mark: bool,
    pub(super) quotas: Quotas,
    pub(super) steady: Steady,
    pub(super) local: Local,
    pub(super) custody: Custody,
    pub(super) streams: Streams,
    pub(super) slots: Slots,
    birth: Option<Birth>,
    pub(super) floors: Floors,
    /// Marks of streams that an operator cleared, with the node stopped.
    pub(super) cleared: Cleared,
    /// The greatest instant of an admission, undone ones included, which only makes a mark later.
    pub(super) admitted: WallMs,
    pub(super) undo: VecDeque<(BatchNumber, Undo)>,
}

/// A value before the first change of a batch.
#[derive(Debug)]
pub(super) enum Undo {
    Local(LocalUndo),
    Custody(CustodyUndo),
    Stream(StreamKey, Option<Box<Stream>>),
    Birth(Option<Birth>),
    Floors(Floors),
}

/// What the boundary decided of a request that it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) verdict: Verdict,
    /// Whether it was admitted in a volatile window.
    pub(super) link_local: bool,
    /// Mail is offered to the application until this ends.
    pub(super) offer: Option<Offer>,
}

/// How much is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) streams: usize,
    /// Streams that slots hold past their floors.
    pub(super) pool: u32,
    /// Volatile windows.
    pub(super) windows: usize,
    /// Mail in custody, records that cannot be restored included.
    pub(super) custody: usize,
}

/// A record that cannot be restored, and why.
pub(super) type Unrestorable = (RecordName, &'static str);

impl Boundary {
    /// Restores from the scans of its tables (law L11.1), and names the records that join the unrestorable set. Mail may be
    /// held for `hold` milliseconds; 0 is without custody.
    ///
    /// The bound refuses only what this table itself holds: bad records of other tables take places from new streams
    /// (law L11.2), and keep none of those that are there from running.
    pub(super) fn restore(
        config: &AdmissionConfig,
        guards: Guards,
        scans: &Scans,
        hold: u64,
        now: Duration,
    ) -> Result<(Self, Vec<Unrestorable>), AdmissionOpenError> {
        if config.greatest_ttl > GREATEST_TTL_MS {
            return Err(AdmissionOpenError::TtlOverBound { configured: config.greatest_ttl });
        }
        if config.streams > STREAMS_MAX {
            return Err(AdmissionOpenError::StreamsOverBound { configured: config.streams });
        }
        let fill = config.quotas.fill_time();
        if fill > FILL_MAX {
            return Err(AdmissionOpenError::QuotaTooSlow { seconds: fill.as_secs() });
        }
        let Scans { receiver, clock, custody } = scans;
        let birth = shared(clock, "birth", BIRTH_KEY, Birth::decode)?;
        let floors = shared(clock, "floor", FLOOR_KEY, Floors::decode)?.unwrap_or_default();
        let mut boundary = Self {
            tolerance: Tolerance { sigma: config.sigma, ttl: config.greatest_ttl, hold, guards },
            bound: config.streams,
            birth_mark: config.birth_mark,
            quotas: config.quotas,
            steady: Steady::default(),
            local: Local::restore(clock)?,
            custody: Custody::new(custody.bad.len()),
            streams: Streams::new(config.shares),
            slots: Slots::new(config.shares.slots),
            birth,
            admitted: floors.admitted(),
            floors,
            cleared: shared(clock, "cleared", CLEARED_KEY, Cleared::decode)?.unwrap_or_default(),
            undo: VecDeque::new(),
        };
        let mut bad = boundary.restore_custody(custody);
        let unread = bad.len();
        let mut last = None;
        for (key, value) in &receiver.records {
            match StreamRecord::decode_after(key, value, last.as_ref()) {
                Ok((key, record)) => {
                    last = Some(key);
                    boundary.admitted = boundary.admitted.max(record.admitted);
                    let hold = boundary.hold(key.class);
                    boundary.streams.set(key, Some(Stream::new(record, now, hold, 0)));
                }
                Err(reason) => bad.push((RecordName::of(Table::Receiver, key), reason)),
            }
        }
        let held = boundary.streams.len() + receiver.bad.len() + bad.len() - unread;
        if held > config.streams {
            return Err(AdmissionOpenError::OverCapacity { held, bound: config.streams });
        }
        Ok((boundary, bad))
    }

    /// Takes a reading of the clocks, which may advance birth (law L9.9), and says whether it did.
    ///
    /// # Errors
    /// [`BudgetExhausted`]; nothing changed.
    pub(super) fn read(&mut self, reading: &Reading, stage: &mut impl Staging) -> Result<bool, BudgetExhausted> {
        let next = Birth::advance(self.birth.as_ref(), reading, &self.tolerance, self.admitted);
        let advanced = self.birth.as_ref() != Some(&next);
        if advanced {
            stage.put(Table::Clock, Key::from_static(BIRTH_KEY), next.encode())?;
            let before = self.birth.replace(next);
            self.undo.push_back((stage.batch(), Undo::Birth(before)));
        }
        Ok(advanced)
    }

    /// Judges a request at a reading of the clocks made under the same lock, and stages what it changes.
    ///
    /// # Errors
    /// [`BoundaryRefusal`]; nothing of the request is kept.
    pub(super) fn admit(
        &mut self,
        request: &Request,
        reading: &Reading,
        stage: &mut impl Staging,
    ) -> Result<Accepted, BoundaryRefusal> {
        let before = self.undo.len();
        self.read(reading, stage)?;
        if let Err(error) = self.read_by(request, reading, stage) {
            self.take_back(before, stage);
            return Err(error.into());
        }
        let (sigma, ttl) = self.greatest();
        self.streams.pass(reading.monotonic, self.wait(sigma, ttl), 2 * REMOVALS);
        if self.streams.get(&request.stream).is_none()
            && let Ok(introducer) = self.introducer(request)
        {
            self.streams.pass_charged(introducer, self.spent(reading).waited);
        }
        self.local.windows.sweep(self.steady.read(reading.monotonic), self.quotas.fill_time());
        let change = match self.judge(request, reading, stage) {
            Ok(change) => change,
            Err(refusal) => {
                if !self.tolerance.guards.keep(Guard::RefusedReading) {
                    self.take_back(before, stage);
                }
                return Err(refusal);
            }
        };
        let staged = match &change {
            Change::Durable(admission) => self.stage(request, admission, stage),
            Change::LinkLocal(admission) => self.stage_local(admission, stage),
            Change::Redelivered => Ok(()),
        };
        if let Err(error) = staged {
            self.take_back(before, stage);
            return Err(error.into());
        }
        Ok(match change {
            Change::Durable(admission) => {
                let verdict = admission.verdict;
                self.apply(request, admission, reading, stage.batch());
                Accepted { verdict, link_local: false, offer: self.offer(request) }
            }
            Change::Redelivered => {
                Accepted { verdict: Verdict::Redelivered, link_local: false, offer: self.offer(request) }
            }
            Change::LinkLocal(admission) => {
                let verdict = admission.verdict;
                self.apply_local(request, admission, reading.wall, stage);
                Accepted { verdict, link_local: true, offer: None }
            }
        })
    }

    /// Discards what this transition staged, and what it changed since the undo log was `before` long: the birth and the
    /// classifier. The next reading advances them again.
    pub(super) fn take_back(&mut self, before: usize, stage: &mut impl Staging) {
        stage.rewind();
        self.undo_to(before);
    }

    /// σ and ttl, the greatest that this store ever ran with.
    pub(super) fn greatest(&self) -> (u64, u64) {
        match &self.birth {
            Some(birth) => (birth.greatest_sigma(), birth.greatest_ttl()),
            None => (self.tolerance.sigma, self.tolerance.ttl),
        }
    }

    /// How much longer a stream of `class` waits before it is spent, in milliseconds, since mail of it may be held.
    pub(super) fn hold(&self, class: Class) -> u64 {
        match class == Class::Application && self.tolerance.guards.keep(Guard::MailOutlives) {
            true => self.tolerance.hold,
            false => 0,
        }
    }

    /// How long a stream waits after its last admission before it may be removed, without the time mail may be held.
    pub(super) fn wait(&self, sigma: u64, ttl: u64) -> Duration {
        match self.tolerance.guards.keep(Guard::RemovalWait) {
            true => Duration::from_millis(ttl.saturating_add(sigma)).max(self.quotas.fill_time()),
            false => Duration::ZERO,
        }
    }

    fn stage(&self, request: &Request, admission: &Admission, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        for key in &admission.removals {
            stage.remove(Table::Receiver, Key::copy_from_slice(&key.to_bytes()));
        }
        if admission.floors != self.floors && self.tolerance.guards.keep(Guard::FloorStaged) {
            stage.put(Table::Clock, Key::from_static(FLOOR_KEY), admission.floors.encode())?;
        }
        self.stage_custody(request, &admission.custody, stage)?;
        let key = Key::copy_from_slice(&request.stream.to_bytes());
        stage.put(Table::Receiver, key, admission.stream.encode(&request.stream))
    }

    fn apply(&mut self, request: &Request, admission: Admission, reading: &Reading, batch: BatchNumber) {
        self.admitted = self.admitted.max(admission.stream.admitted);
        if admission.floors != self.floors {
            self.undo.push_back((batch, Undo::Floors(self.floors)));
            self.floors = admission.floors;
        }
        if let (Carrier::Link(link), Introducer::Slot(slot)) = (request.carrier, admission.stream.introducer)
            && self.streams.get(&request.stream).is_none()
        {
            self.slots.introduced(&link, slot);
        }
        for key in admission.removals {
            self.set(key, None, batch);
        }
        self.apply_custody(request, admission.custody, batch);
        let hold = self.hold(request.stream.class);
        let stream = Stream::new(admission.stream, reading.monotonic, hold, batch).with(admission.buckets);
        self.set(request.stream, Some(stream), batch);
    }

    fn set(&mut self, key: StreamKey, stream: Option<Stream>, batch: BatchNumber) {
        let before = self.streams.set(key, stream);
        // Only the value before a batch's first change is needed.
        if before.as_ref().is_none_or(|before| before.touched != batch) {
            self.undo.push_back((batch, Undo::Stream(key, before.map(Box::new))));
        }
    }

    /// Everything in batches up to `batch` is durable.
    pub(super) fn released(&mut self, batch: BatchNumber) {
        let durable = self.undo.iter().take_while(|(of, _)| *of <= batch).count();
        self.undo.drain(..durable);
    }

    /// Restores the last durable value of everything that is not durable as it stands.
    pub(super) fn undo(&mut self) {
        self.undo_to(0);
    }

    fn undo_to(&mut self, length: usize) {
        while self.undo.len() > length
            && let Some((_, undo)) = self.undo.pop_back()
        {
            match undo {
                Undo::Local(undo) => self.local.undo(undo, self.steady.now()),
                Undo::Custody((digest, before)) => drop(self.custody.set(digest, before)),
                Undo::Stream(key, before) => drop(self.streams.set(key, before.map(|before| *before))),
                Undo::Birth(before) => self.birth = before,
                Undo::Floors(before) => self.floors = before,
            }
        }
    }

    /// How much is held.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes { streams: self.streams.len(), pool: self.pool(), windows: self.windows(), custody: self.custody.held() }
    }

    /// How many streams are kept.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The birth record, once the first reading made one.
    pub(super) fn birth(&self) -> Option<&Birth> {
        self.birth.as_ref()
    }

    /// The instant at or before which nothing may be issued, where the guard is enabled.
    pub(super) fn mark(&self) -> Option<WallMs> {
        self.birth.as_ref().filter(|_| self.birth_mark).map(Birth::mark)
    }

    /// What the streams in memory are charged to.
    #[cfg(test)]
    pub(super) const fn charges(&self) -> &crate::layer::charging::Charges {
        self.streams.charges()
    }

    /// What a restart would have to restore: streams, birth, floors, registrations, custody.
    #[cfg(test)]
    pub(super) fn durable(&self) -> impl PartialEq + use<> {
        let streams = self.streams.iter().map(|(key, stream)| (*key, stream.record.clone()));
        let streams = streams.collect::<std::collections::BTreeMap<_, _>>();
        let birth = self.birth.as_ref().map(Birth::encode);
        (streams, birth, self.floors, self.local.registry.encode(), self.custody.entries().clone())
    }
}

/// Reads a record that every stream relies on. One that is there and cannot be read refuses the store.
pub(super) fn shared<T>(
    clock: &Scan,
    what: &'static str,
    key: &'static [u8],
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, AdmissionOpenError> {
    let record = RecordName::of(Table::Clock, key);
    if let Some(bad) = clock.bad.iter().find(|bad| bad.name == record) {
        return Err(AdmissionOpenError::Damaged { what, record, reason: bad.reason.clone() });
    }
    let Some((_, value)) = clock.records.iter().find(|(found, _)| found == key) else { return Ok(None) };
    match decode(value) {
        Some(value) => Ok(Some(value)),
        None => Err(AdmissionOpenError::Damaged { what, record, reason: "it does not decode".into() }),
    }
}
