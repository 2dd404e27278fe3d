//! The boundary's side of mail: how it is judged, and what it changes of custody (law L10.6). Why nothing is dispatched
//! twice is argued in [`layer::custody`](crate::layer::custody).

use super::{
    BoundaryRefusal, Carrier, Request,
    core::{Boundary, Staging, Undo, Unrestorable},
};
use crate::{
    clock::WallMs,
    layer::{
        custody::{Entry, Held, MailRefusal, Offer, decode, encode, key, live},
        window::{Verdict, Window, WindowRefusal},
    },
    message::{Class, TransactionDigest},
    storage::{
        RecordName, Scan, Table,
        commit::{BatchNumber, BudgetExhausted},
        guard::Guard,
    },
};

/// What an admission changes of custody.
#[derive(Debug, Default)]
pub(super) struct CustodyChange {
    /// The mail that it admits.
    entry: Option<Entry>,
    /// Entries that are spent, or that it admits by another way.
    removals: Vec<TransactionDigest>,
}

/// An entry before a change, or that there was none.
pub(super) type CustodyUndo = (TransactionDigest, Option<Entry>);

impl Boundary {
    /// Puts what the scan found into custody, and names the records that cannot be restored.
    pub(super) fn restore_custody(&mut self, scan: &Scan) -> Vec<Unrestorable> {
        let mut bad = Vec::new();
        for (filed, value) in &scan.records {
            match decode(filed, value) {
                Ok((digest, entry)) => drop(self.custody.set(digest, Some(entry))),
                Err(reason) => {
                    self.custody.add_damaged();
                    bad.push((RecordName::of(Table::Custody, filed), reason));
                }
            }
        }
        bad
    }

    /// Whether a request may be mail here, if it comes from an inbox.
    pub(super) fn may_be_mail(&self, request: &Request) -> Result<(), MailRefusal> {
        match request.carrier {
            Carrier::Inbox { .. } if self.tolerance.hold == 0 => Err(MailRefusal::CustodyDisabled),
            Carrier::Inbox { .. } if request.stream.class != Class::Application => {
                Err(MailRefusal::NotApplication { class: request.stream.class })
            }
            _ => Ok(()),
        }
    }

    /// Whether a request lives at `wall`; mail, as of its hold instant (law L2.4).
    pub(super) fn lives(&self, request: &Request, wall: WallMs) -> Result<(), BoundaryRefusal> {
        let (guards, sigma) = (self.tolerance.guards, self.tolerance.sigma);
        if request.issued_at.saturating_sub(sigma) > wall && guards.keep(Guard::FromTheFuture) {
            return Err(BoundaryRefusal::FromTheFuture { issued_at: request.issued_at, sigma });
        }
        let expires_at = request.expires_at();
        let Carrier::Inbox { held_at } = request.carrier else {
            return match wall >= expires_at && guards.keep(Guard::Expired) {
                true => Err(BoundaryRefusal::Expired { expired: expires_at }),
                false => Ok(()),
            };
        };
        let expires_at = if guards.keep(Guard::HeldInLife) { expires_at } else { WallMs::MAX };
        let hold = if guards.keep(Guard::HeldTooLong) { self.tolerance.hold } else { WallMs::MAX };
        Ok(live(Held { issued_at: request.issued_at, expires_at, held_at }, wall, sigma, hold)?)
    }

    /// Whether a request is mail in custody that is not pending, and that its window, by its answer `observed`, knows.
    pub(super) fn redelivers(&self, request: &Request, observed: &Result<(Verdict, Window), WindowRefusal>) -> bool {
        let guards = self.tolerance.guards;
        let known = matches!(observed, Err(WindowRefusal::Replay | WindowRefusal::Stale { .. }));
        let of = |request: &Request| (request.stream, request.incarnation, request.sequence);
        let matches = |entry: &Entry| (entry.stream, entry.incarnation, entry.sequence) == of(request);
        matches!(request.carrier, Carrier::Inbox { .. })
            && self.custody.get(&request.digest).is_some_and(matches)
            && !(self.custody.pending(&request.digest) && guards.keep(Guard::Pending))
            && (known || !guards.keep(Guard::CustodyWindow))
    }

    /// What the admission of a request changes of custody.
    pub(super) fn custody_change(
        &self,
        request: &Request,
        wall: WallMs,
        stage: &impl Staging,
    ) -> Result<CustodyChange, MailRefusal> {
        let (sigma, _) = self.greatest();
        let spent = match self.tolerance.hold {
            0 => None,
            hold => wall.checked_sub(sigma.saturating_add(hold)),
        };
        let mut removals = self.custody.spent(spent);
        let here = self.custody.get(&request.digest).is_some();
        if !matches!(request.carrier, Carrier::Inbox { .. }) {
            if here && !removals.contains(&request.digest) && self.tolerance.guards.keep(Guard::CustodyLeft) {
                removals.push(request.digest);
            }
            return Ok(CustodyChange { entry: None, removals });
        }
        removals.retain(|digest| *digest != request.digest);
        if let Some(record) = stage.unavailable(Table::Custody, &request.digest.0) {
            return Err(MailRefusal::Unavailable { record });
        }
        if !here && !self.custody.has_room(removals.len()) {
            return Err(MailRefusal::RelayCustodyFull { held: self.custody.held() });
        }
        let (stream, incarnation, sequence) = (request.stream, request.incarnation, request.sequence);
        let entry = Entry { stream, incarnation, sequence, expiry: request.expires_at() };
        Ok(CustodyChange { entry: Some(entry), removals })
    }

    pub(super) fn stage_custody(
        &self,
        request: &Request,
        change: &CustodyChange,
        stage: &mut impl Staging,
    ) -> Result<(), BudgetExhausted> {
        change.removals.iter().for_each(|digest| stage.remove(Table::Custody, key(digest)));
        match &change.entry {
            Some(entry) => stage.put(Table::Custody, key(&request.digest), encode(&request.digest, entry)),
            None => Ok(()),
        }
    }

    pub(super) fn apply_custody(&mut self, request: &Request, change: CustodyChange, batch: BatchNumber) {
        for digest in change.removals {
            self.set_custody(digest, None, batch);
        }
        if let Some(entry) = change.entry {
            self.set_custody(request.digest, Some(entry), batch);
        }
    }

    fn set_custody(&mut self, digest: TransactionDigest, entry: Option<Entry>, batch: BatchNumber) {
        let before = self.custody.set(digest, entry);
        self.undo.push_back((batch, Undo::Custody((digest, before))));
    }

    /// Mail that is accepted is offered to the application.
    pub(super) fn offer(&mut self, request: &Request) -> Option<Offer> {
        matches!(request.carrier, Carrier::Inbox { .. }).then(|| self.custody.offer(request.digest))
    }

    /// An offer has ended.
    pub(super) fn end_offer(&mut self, offer: Offer) {
        self.custody.end(offer);
    }

    /// Takes mail out of custody. Where its namespace was withdrawn since it was admitted it is taken out all the same, and
    /// refused: nothing can deliver it any more (law L6.4).
    ///
    /// # Errors
    /// [`BoundaryRefusal`]: it is not to be shown.
    pub(super) fn take(&mut self, request: &Request, stage: &mut impl Staging) -> Result<(), BoundaryRefusal> {
        if self.custody.get(&request.digest).is_none() {
            return Err(MailRefusal::NotInCustody.into());
        }
        if self.tolerance.guards.keep(Guard::TakeStaged) {
            stage.remove(Table::Custody, key(&request.digest));
        }
        self.set_custody(request.digest, None, stage.batch());
        self.hand_over(request)
    }
}
