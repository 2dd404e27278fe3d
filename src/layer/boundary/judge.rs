//! What the boundary decides of a request, and what that would change.

use super::{
    BoundaryRefusal, Carrier, REMOVALS, Request,
    core::{Boundary, Staging},
    custody::CustodyChange,
    local::LocalAdmission,
    record::StreamRecord,
    table::Spent,
};
use crate::{
    clock::WallMs,
    layer::{
        charging::{Bound, Introducer},
        quota::Buckets,
        window::{Verdict, observe},
    },
    link::NoSlot,
    message::StreamKey,
    storage::{
        Table,
        birth::{Reading, Tolerance},
        floor::Floors,
        guard::Guard,
    },
};

/// What an accepted request changes.
pub(super) enum Change {
    Durable(Admission),
    LinkLocal(LocalAdmission),
    /// Mail in custody is offered once more. Nothing is staged.
    Redelivered,
}

/// What a request changes that its durable window accepts.
pub(super) struct Admission {
    pub(super) verdict: Verdict,
    pub(super) stream: StreamRecord,
    pub(super) buckets: Option<Buckets>,
    pub(super) removals: Vec<StreamKey>,
    pub(super) floors: Floors,
    pub(super) custody: CustodyChange,
}

impl Boundary {
    /// Judges a request, in the order of the room's docs. Nothing is changed by it.
    pub(super) fn judge(
        &self,
        request: &Request,
        reading: &Reading,
        stage: &impl Staging,
    ) -> Result<Change, BoundaryRefusal> {
        let wall = reading.wall;
        let guards = self.tolerance.guards;
        let Tolerance { sigma, ttl: greatest, .. } = self.tolerance;
        if let Some(record) = stage.unavailable(Table::Receiver, &request.stream.to_bytes())
            && guards.keep(Guard::Unavailable)
        {
            return Err(BoundaryRefusal::StreamUnavailable { key: request.stream, record });
        }
        self.may_be_mail(request)?;
        if request.ttl > greatest && guards.keep(Guard::TtlBound) {
            return Err(BoundaryRefusal::TtlTooLong { ttl: request.ttl, greatest });
        }
        self.lives(request, wall)?;
        if let Some(mark) = self.mark()
            && request.issued_at <= mark
            && guards.keep(Guard::BirthMark)
        {
            return Err(BoundaryRefusal::BeforeMark { mark });
        }
        let cleared = self.cleared.mark(&request.stream);
        if request.issued_at <= cleared && guards.keep(Guard::ClearedMark) {
            return Err(BoundaryRefusal::StreamCleared { mark: cleared });
        }
        if self.read_by_another(request) {
            return Err(BoundaryRefusal::OtherClassifier);
        }
        self.not_withdrawn(request)?;
        let floor = self.floors.of(request.stream.class);
        if request.expires_at() <= floor && guards.keep(Guard::Floor) {
            return Err(BoundaryRefusal::BelowFloor { floor });
        }
        if request.incarnation.wall() > wall.saturating_add(sigma) && guards.keep(Guard::IncarnationAhead) {
            return Err(BoundaryRefusal::IncarnationAhead { incarnation: request.incarnation, sigma });
        }
        if let Some(admission) = self.judge_local(request)? {
            return Ok(Change::LinkLocal(admission));
        }
        let stream = self.streams.get(&request.stream);
        let known = stream.filter(|_| guards.keep(Guard::Window)).map(|stream| &stream.record.window);
        let observed = observe(known, request.incarnation, request.sequence, request.digest);
        if self.redelivers(request, &observed) {
            return Ok(Change::Redelivered);
        }
        let (verdict, window) = observed?;
        let custody = self.custody_change(request, wall, stage)?;
        let spent = self.spent(reading);
        let (introducer, removals) = match stream {
            Some(stream) => (stream.record.introducer, self.removals(&request.stream, spent, 0)),
            None => self.open(request, spent, stage.unrestorable())?,
        };
        let buckets = self.charge(request, stream.and_then(|stream| stream.buckets.as_ref()))?;
        let mut floors = self.floors;
        for key in &removals {
            if let Some(spent) = self.streams.get(key) {
                floors.remove(key.class, spent.record.expiry, spent.record.admitted);
            }
        }
        let (expiry, admitted) = stream.map_or((0, 0), |stream| (stream.record.expiry, stream.record.admitted));
        let expiry = expiry.max(request.expires_at());
        let stream = StreamRecord { introducer, expiry, admitted: admitted.max(wall), window };
        Ok(Change::Durable(Admission { verdict, stream, buckets, removals, floors, custody }))
    }

    /// What is left of the stream's quota once this request is taken from it (law L7).
    pub(super) fn charge(&self, request: &Request, held: Option<&Buckets>) -> Result<Option<Buckets>, BoundaryRefusal> {
        let Some(quota) = self.quotas.of(request.stream.class) else { return Ok(None) };
        quota.charge(held, request.bytes, self.steady.now()).map(Some).map_err(|short| BoundaryRefusal::QuotaExceeded {
            key: request.stream,
            bucket: short.bucket,
            after_ms: short.after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).saturating_add(1)),
        })
    }

    /// Whether the introducer of a new stream may open it (laws L10.1 and L10.3): whom it is charged to, and what is
    /// removed with it, [`REMOVALS`] or as many as it needs.
    fn open(
        &self,
        request: &Request,
        spent: Spent,
        unrestorable: usize,
    ) -> Result<(Introducer, Vec<StreamKey>), BoundaryRefusal> {
        let introducer = self.introducer(request)?;
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

    /// Whom a new stream of the request is charged to (law L10.2).
    pub(super) fn introducer(&self, request: &Request) -> Result<Introducer, NoSlot> {
        Ok(match request.carrier {
            Carrier::Link(link) => Introducer::Slot(self.slots.of(&link, self.streams.charges())?),
            Carrier::Inbox { .. } => Introducer::Inbox,
            Carrier::Own => Introducer::Own,
        })
    }

    pub(super) fn spent(&self, reading: &Reading) -> Spent {
        let (guards, wall) = (self.tolerance.guards, reading.wall);
        let (sigma, ttl) = self.greatest();
        let expired = match (guards.keep(Guard::Spent), guards.keep(Guard::SpentTolerance)) {
            (true, true) => wall.checked_sub(sigma),
            (true, false) => Some(wall),
            (false, _) => Some(WallMs::MAX),
        };
        Spent { waited: reading.monotonic.checked_sub(self.wait(sigma, ttl)), expired }
    }
}
