use std::collections::{BTreeMap, HashMap};

use super::CUSTODY_MAX;
use crate::{
    clock::WallMs,
    message::{Incarnation, StreamKey, TransactionDigest},
};

/// One mail in custody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct Entry {
    /// Its stream.
    pub(in crate::layer) stream: StreamKey,
    /// Which life of the stream's numbering its sequence belongs to.
    pub(in crate::layer) incarnation: Incarnation,
    /// Its sequence.
    pub(in crate::layer) sequence: u64,
    /// Its transaction's issued-at + ttl.
    pub(in crate::layer) expiry: WallMs,
}

/// Names one time that mail was offered to the application, so that the end of an older one ends no newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct Offer {
    digest: TransactionDigest,
    number: u64,
}

/// All mail in custody, and which of it is pending. See the room's docs.
#[derive(Debug)]
pub(in crate::layer) struct Custody {
    /// How many there are at most, records that cannot be restored included.
    pub(in crate::layer) places: usize,
    entries: BTreeMap<TransactionDigest, Entry>,
    /// Records that cannot be restored: each takes a place.
    damaged: usize,
    pending: HashMap<TransactionDigest, u64>,
    offers: u64,
}

impl Custody {
    /// With as many records that cannot be restored.
    pub(in crate::layer) fn new(damaged: usize) -> Self {
        let (entries, pending) = (BTreeMap::new(), HashMap::new());
        Self { places: CUSTODY_MAX, entries, damaged, pending, offers: 0 }
    }

    /// One more record that cannot be restored.
    pub(in crate::layer) const fn add_damaged(&mut self) {
        self.damaged += 1;
    }

    /// How many places are taken.
    pub(in crate::layer) fn held(&self) -> usize {
        self.entries.len() + self.damaged
    }

    /// Whether there is a place for one more, once `leaving` have left.
    pub(in crate::layer) fn has_room(&self, leaving: usize) -> bool {
        self.held().saturating_sub(leaving) < self.places
    }

    pub(in crate::layer) fn get(&self, digest: &TransactionDigest) -> Option<&Entry> {
        self.entries.get(digest)
    }

    /// Puts an entry, or takes it out, and gives what was there.
    pub(in crate::layer) fn set(&mut self, digest: TransactionDigest, entry: Option<Entry>) -> Option<Entry> {
        match entry {
            Some(entry) => self.entries.insert(digest, entry),
            None => self.entries.remove(&digest),
        }
    }

    /// What is spent: its transaction expired at or before `instant`.
    pub(in crate::layer) fn spent(&self, instant: Option<WallMs>) -> Vec<TransactionDigest> {
        let Some(instant) = instant else { return Vec::new() };
        self.entries.iter().filter(|(_, entry)| entry.expiry <= instant).map(|(digest, _)| *digest).collect()
    }

    /// Whether this process offers the mail right now.
    pub(in crate::layer) fn pending(&self, digest: &TransactionDigest) -> bool {
        self.pending.contains_key(digest)
    }

    /// The mail is offered, until this offer ends or the next begins.
    pub(in crate::layer) fn offer(&mut self, digest: TransactionDigest) -> Offer {
        self.offers += 1;
        self.pending.insert(digest, self.offers);
        Offer { digest, number: self.offers }
    }

    /// An offer has ended.
    pub(in crate::layer) fn end(&mut self, offer: Offer) {
        if self.pending.get(&offer.digest) == Some(&offer.number) {
            self.pending.remove(&offer.digest);
        }
    }

    #[cfg(test)]
    pub(in crate::layer) const fn damaged(&self) -> usize {
        self.damaged
    }

    #[cfg(test)]
    pub(in crate::layer) fn entries(&self) -> &BTreeMap<TransactionDigest, Entry> {
        &self.entries
    }
}
