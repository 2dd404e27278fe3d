//! The boundary itself, without clocks, locks or files. See the room's docs for its order and its failures.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;

use super::{
    AdmissionConfig, AdmissionOpenError, BoundaryRefusal, Carrier, REMOVALS, Request, STREAMS_MAX,
    record::StreamRecord,
    table::{Spent, Stream, Streams},
};
use crate::{
    clock::WallMs,
    layer::{
        charging::{Bound, Introducer, Slots},
        window::{Verdict, observe},
    },
    link::{LinkId, NoSlot},
    message::{GREATEST_TTL_MS, StreamKey},
    storage::{
        Key, RecordName, Scan, Table,
        birth::{BIRTH_KEY, Birth, Reading, Tolerance},
        commit::{BatchNumber, BudgetExhausted},
        floor::{FLOOR_KEY, Floors},
        guard::{Guard, Guards},
    },
};

/// Where a transition puts its writes, and what group commit knows of bad records.
pub(super) trait Staging {
    /// The batch that the writes land in.
    fn batch(&self) -> BatchNumber;
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

/// All that a receiver remembers.
#[derive(Debug)]
pub(super) struct Boundary {
    tolerance: Tolerance,
    bound: usize,
    birth_mark: bool,
    streams: Streams,
    slots: Slots,
    birth: Option<Birth>,
    floors: Floors,
    /// The greatest instant of an admission, undone ones included, which only makes a mark later.
    admitted: WallMs,
    undo: VecDeque<(BatchNumber, Undo)>,
}

/// A value before the first change of a batch.
#[derive(Debug)]
enum Undo {
    Stream(StreamKey, Option<Box<Stream>>),
    Birth(Option<Birth>),
    Floors(Floors),
}

/// What an accepted request changes.
struct Admission {
    verdict: Verdict,
    stream: StreamRecord,
    removals: Vec<StreamKey>,
    floors: Floors,
}

/// A record that cannot be restored, and why.
pub(super) type Unrestorable = (RecordName, &'static str);

impl Boundary {
    /// Restores from the scans of the receiver and clock tables (law L11.1), and names the receiver records that join
    /// the unrestorable set.
    ///
    /// The bound refuses only what this table itself holds: bad records of other tables take places from new streams
    /// (law L11.2), and keep none of those that are there from running.
    pub(super) fn restore(
        config: &AdmissionConfig,
        guards: Guards,
        receiver: &Scan,
        clock: &Scan,
        now: Duration,
    ) -> Result<(Self, Vec<Unrestorable>), AdmissionOpenError> {
        if config.greatest_ttl > GREATEST_TTL_MS {
            return Err(AdmissionOpenError::TtlOverBound { configured: config.greatest_ttl });
        }
        if config.streams > STREAMS_MAX {
            return Err(AdmissionOpenError::StreamsOverBound { configured: config.streams });
        }
        let birth = shared(clock, "birth", BIRTH_KEY, Birth::decode)?;
        let floors = shared(clock, "floor", FLOOR_KEY, Floors::decode)?.unwrap_or_default();
        let mut boundary = Self {
            tolerance: Tolerance { sigma: config.sigma, ttl: config.greatest_ttl, guards },
            bound: config.streams,
            birth_mark: config.birth_mark,
            streams: Streams::new(config.shares),
            slots: Slots::new(config.shares.slots),
            birth,
            admitted: floors.admitted(),
            floors,
            undo: VecDeque::new(),
        };
        let mut bad = Vec::new();
        for (key, value) in &receiver.records {
            match StreamRecord::decode(key, value) {
                Ok((key, record)) => {
                    boundary.admitted = boundary.admitted.max(record.admitted);
                    boundary.streams.set(key, Some(Stream::new(record, now, 0)));
                }
                Err(reason) => bad.push((RecordName::of(Table::Receiver, key), reason)),
            }
        }
        let held = boundary.streams.len() + receiver.bad.len() + bad.len();
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
    ) -> Result<Verdict, BoundaryRefusal> {
        let advanced = self.read(reading, stage)?;
        let (sigma, ttl) = self.greatest();
        self.streams.pass(reading.monotonic, self.wait(sigma, ttl), 2 * REMOVALS);
        let admission = match self.judge(request, reading, stage) {
            Ok(admission) => admission,
            Err(refusal) => {
                if !self.tolerance.guards.keep(Guard::RefusedReading) {
                    self.take_back(advanced, stage);
                }
                return Err(refusal);
            }
        };
        let verdict = admission.verdict;
        if let Err(error) = self.stage(request, &admission, stage) {
            self.take_back(advanced, stage);
            return Err(error.into());
        }
        self.apply(request, admission, reading, stage.batch());
        Ok(verdict)
    }

    /// Discards what this transition staged, the birth that it may have advanced included. The next reading advances
    /// it again.
    fn take_back(&mut self, advanced: bool, stage: &mut impl Staging) {
        stage.rewind();
        if advanced && let Some((_, Undo::Birth(before))) = self.undo.pop_back() {
            self.birth = before;
        }
    }

    /// σ and ttl, the greatest that this store ever ran with.
    fn greatest(&self) -> (u64, u64) {
        match &self.birth {
            Some(birth) => (birth.greatest_sigma(), birth.greatest_ttl()),
            None => (self.tolerance.sigma, self.tolerance.ttl),
        }
    }

    fn wait(&self, sigma: u64, ttl: u64) -> Duration {
        match self.tolerance.guards.keep(Guard::RemovalWait) {
            true => Duration::from_millis(ttl.saturating_add(sigma)),
            false => Duration::ZERO,
        }
    }

    fn judge(&self, request: &Request, reading: &Reading, stage: &impl Staging) -> Result<Admission, BoundaryRefusal> {
        let wall = reading.wall;
        let guards = self.tolerance.guards;
        let Tolerance { sigma, ttl: greatest, .. } = self.tolerance;
        if let Some(record) = stage.unavailable(Table::Receiver, &request.stream.to_bytes())
            && guards.keep(Guard::Unavailable)
        {
            return Err(BoundaryRefusal::StreamUnavailable { key: request.stream, record });
        }
        if request.ttl > greatest && guards.keep(Guard::TtlBound) {
            return Err(BoundaryRefusal::TtlTooLong { ttl: request.ttl, greatest });
        }
        if request.issued_at.saturating_sub(sigma) > wall && guards.keep(Guard::FromTheFuture) {
            return Err(BoundaryRefusal::FromTheFuture { issued_at: request.issued_at, sigma });
        }
        if wall >= request.expires_at() && guards.keep(Guard::Expired) {
            return Err(BoundaryRefusal::Expired { expired: request.expires_at() });
        }
        if let Some(mark) = self.mark()
            && request.issued_at <= mark
            && guards.keep(Guard::BirthMark)
        {
            return Err(BoundaryRefusal::BeforeMark { mark });
        }
        let floor = self.floors.of(request.stream.class);
        if request.expires_at() <= floor && guards.keep(Guard::Floor) {
            return Err(BoundaryRefusal::BelowFloor { floor });
        }
        if request.incarnation.wall() > wall.saturating_add(sigma) && guards.keep(Guard::IncarnationAhead) {
            return Err(BoundaryRefusal::IncarnationAhead { incarnation: request.incarnation, sigma });
        }
        let stream = self.streams.get(&request.stream);
        let known = stream.filter(|_| guards.keep(Guard::Window)).map(|stream| &stream.record.window);
        let (verdict, window) = observe(known, request.incarnation, request.sequence, request.digest)?;
        let spent = self.spent(reading);
        let (introducer, removals) = match stream {
            Some(stream) => (stream.record.introducer, self.removals(&request.stream, spent, 0)),
            None => self.open(request, spent, stage.unrestorable())?,
        };
        let mut floors = self.floors;
        for key in &removals {
            if let Some(spent) = self.streams.get(key) {
                floors.remove(key.class, spent.record.expiry, spent.record.admitted);
            }
        }
        let (expiry, admitted) = stream.map_or((0, 0), |stream| (stream.record.expiry, stream.record.admitted));
        let expiry = expiry.max(request.expires_at());
        let stream = StreamRecord { introducer, expiry, admitted: admitted.max(wall), window };
        Ok(Admission { verdict, stream, removals, floors })
    }

    /// Whether the introducer of a new stream may open it (laws L10.1 and L10.3): whom it is charged to, and what is
    /// removed with it, [`REMOVALS`] or as many as it needs.
    fn open(
        &self,
        request: &Request,
        spent: Spent,
        unrestorable: usize,
    ) -> Result<(Introducer, Vec<StreamKey>), BoundaryRefusal> {
        let introducer = match request.carrier {
            Carrier::Link(link) => Introducer::Slot(self.slots.of(&link, self.streams.charges())?),
            Carrier::Inbox => Introducer::Inbox,
            Carrier::Own => Introducer::Own,
        };
        // How many must go before a new stream has a place.
        let over = (self.streams.len() + unrestorable + 1).saturating_sub(self.bound);
        let mut removals = self.removals(&request.stream, spent, over);
        let room = self.streams.make_room(introducer, &mut removals, spent);
        let refused = |bound| BoundaryRefusal::StreamCapacityExceeded { introducer, bound };
        room.map_err(refused)?;
        if removals.len() < over {
            return Err(refused(Bound::Store { streams: self.bound }));
        }
        Ok((introducer, removals))
    }

    /// The spent streams that an admission removes: never its own, and at most [`REMOVALS`] or as many as it needs.
    fn removals(&self, own: &StreamKey, spent: Spent, needed: usize) -> Vec<StreamKey> {
        let spent = self.streams.expired(spent.expired).filter(|key| *key != own);
        spent.take(REMOVALS.max(needed)).copied().collect()
    }

    fn spent(&self, reading: &Reading) -> Spent {
        let (guards, wall) = (self.tolerance.guards, reading.wall);
        let (sigma, ttl) = self.greatest();
        let expired = match (guards.keep(Guard::Spent), guards.keep(Guard::SpentTolerance)) {
            (true, true) => wall.checked_sub(sigma),
            (true, false) => Some(wall),
            (false, _) => Some(WallMs::MAX),
        };
        Spent { waited: reading.monotonic.checked_sub(self.wait(sigma, ttl)), expired }
    }

    fn stage(&self, request: &Request, admission: &Admission, stage: &mut impl Staging) -> Result<(), BudgetExhausted> {
        for key in &admission.removals {
            stage.remove(Table::Receiver, Key::copy_from_slice(&key.to_bytes()));
        }
        if admission.floors != self.floors && self.tolerance.guards.keep(Guard::FloorStaged) {
            stage.put(Table::Clock, Key::from_static(FLOOR_KEY), admission.floors.encode())?;
        }
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
        self.set(request.stream, Some(Stream::new(admission.stream, reading.monotonic, batch)), batch);
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
        while let Some((_, undo)) = self.undo.pop_back() {
            match undo {
                Undo::Stream(key, before) => drop(self.streams.set(key, before.map(|before| *before))),
                Undo::Birth(before) => self.birth = before,
                Undo::Floors(before) => self.floors = before,
            }
        }
    }

    /// A link takes a slot with its first lane (law L10.3).
    pub(super) fn open_link(&mut self, link: LinkId) -> Result<u16, NoSlot> {
        self.slots.open(link, self.streams.charges())
    }

    /// A link is retired, and its slot is free. Its charges stay (law L10.4).
    pub(super) fn retire_link(&mut self, link: &LinkId) {
        self.slots.retire(link);
    }

    /// How many slots there are, and how many of them are taken.
    pub(super) fn slots(&self) -> (usize, usize) {
        self.slots.used()
    }

    /// How many streams slots hold past their floors.
    pub(super) fn pool(&self) -> u32 {
        self.streams.charges().pool()
    }

    /// How many streams are kept.
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

    /// What a restart would have to restore.
    #[cfg(test)]
    pub(super) fn durable(&self) -> (std::collections::BTreeMap<StreamKey, StreamRecord>, Option<Bytes>, Floors) {
        let streams = self.streams.iter().map(|(key, stream)| (*key, stream.record.clone())).collect();
        (streams, self.birth.as_ref().map(Birth::encode), self.floors)
    }
}

/// Reads a record that every stream relies on. One that is there and cannot be read refuses the store.
fn shared<T>(
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
