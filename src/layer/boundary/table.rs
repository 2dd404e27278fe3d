//! The receiver's streams, whom they are charged to, and which of them may be removed.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use super::record::StreamRecord;
use crate::{
    clock::WallMs,
    layer::{
        charging::{Bound, Charges, Introducer, Shares},
        quota::Buckets,
    },
    message::StreamKey,
    storage::commit::BatchNumber,
};

/// One stream in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    /// What its durable record will hold.
    pub(super) record: StreamRecord,
    /// The monotonic reading that it waits from: of its last admission, or of when it was loaded, and the time that mail of
    /// it may be held.
    last: Duration,
    /// Its greatest expiry, and the time that mail of it may be held.
    expiry: WallMs,
    /// What is left of its quota; full where there is none (law L7). In memory only.
    pub(super) buckets: Option<Buckets>,
    /// The newest batch that can undo it; 0 for none.
    pub(super) touched: BatchNumber,
    /// Whether it has waited: which of the two orders it stands in.
    waited: bool,
}

impl Stream {
    /// A stream that was admitted or loaded at `last`. Mail of it may be held for `hold` milliseconds.
    pub(super) fn new(record: StreamRecord, last: Duration, hold: u64, touched: BatchNumber) -> Self {
        let last = last.saturating_add(Duration::from_millis(hold));
        let expiry = record.expiry.saturating_add(hold);
        Self { record, last, expiry, buckets: None, touched, waited: false }
    }

    /// With what is left of its quota.
    pub(super) fn with(self, buckets: Option<Buckets>) -> Self {
        Self { buckets, ..self }
    }
}

/// When a stream is spent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// It waits from this monotonic instant or earlier.
    pub(super) waited: Option<Duration>,
    /// Its greatest expiry, and the time that mail of it may be held, is at or before this wall instant.
    pub(super) expired: Option<WallMs>,
}

/// All streams, and two orders over them; each stream stands in exactly one.
///
/// A stream waits in order of its last admission, and once it waited long enough it stands in order of its expiry. So
/// neither a stream that admits again and again, nor one whose expiry lies far ahead, holds back the others.
#[derive(Debug)]
pub(super) struct Streams {
    streams: HashMap<StreamKey, Stream>,
    waiting: BTreeSet<(Duration, StreamKey)>,
    waited: BTreeSet<(WallMs, StreamKey)>,
    /// Changes with every stream that is put or taken out, so that it is always what the streams say.
    charges: Charges,
    /// The same streams by whom they are charged to, in order of their last admission.
    charged: HashMap<Introducer, BTreeSet<(Duration, StreamKey)>>,
}

impl Streams {
    pub(super) fn new(shares: Shares) -> Self {
        Self {
            streams: HashMap::new(),
            waiting: BTreeSet::new(),
            waited: BTreeSet::new(),
            charges: Charges::new(shares),
            charged: HashMap::new(),
        }
    }

    pub(super) const fn charges(&self) -> &Charges {
        &self.charges
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn get(&self, key: &StreamKey) -> Option<&Stream> {
        self.streams.get(key)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&StreamKey, &Stream)> {
        self.streams.iter()
    }

    /// Puts a stream, or takes it out, and gives what was there.
    pub(super) fn set(&mut self, key: StreamKey, stream: Option<Stream>) -> Option<Stream> {
        let before = match stream {
            Some(mut stream) => {
                stream.waited = false;
                self.waiting.insert((stream.last, key));
                let (last, introducer) = (stream.last, stream.record.introducer);
                let before = self.streams.insert(key, stream);
                self.recharge(key, before.as_ref(), Some((introducer, last)));
                if before.as_ref().is_some_and(|before| !before.waited && before.last == last) {
                    // The same place in the same order.
                    return before;
                }
                before
            }
            None => {
                let before = self.streams.remove(&key);
                self.recharge(key, before.as_ref(), None);
                before
            }
        };
        match &before {
            Some(before) if before.waited => self.waited.remove(&(before.expiry, key)),
            Some(before) => self.waiting.remove(&(before.last, key)),
            None => false,
        };
        before
    }

    fn recharge(&mut self, key: StreamKey, before: Option<&Stream>, after: Option<(Introducer, Duration)>) {
        let before = before.map(|before| (before.record.introducer, before.last));
        if before == after {
            return;
        }
        if let Some((introducer, last)) = before {
            self.charges.give_back(introducer);
            if let Some(charged) = self.charged.get_mut(&introducer) {
                charged.remove(&(last, key));
                if charged.is_empty() && after.is_none_or(|(after, _)| after != introducer) {
                    self.charged.remove(&introducer);
                }
            }
        }
        if let Some((introducer, last)) = after {
            self.charges.charge(introducer);
            self.charged.entry(introducer).or_default().insert((last, key));
        }
    }

    /// Makes room for one more stream of `introducer`, where it needs any: adds to `removals`, which go in any case, what
    /// must go with them. What is spent takes no place from a new stream, removed or not yet.
    ///
    /// # Errors
    /// The bound that refuses although everything spent that could help is gone.
    pub(super) fn make_room(
        &self,
        introducer: Introducer,
        removals: &mut Vec<StreamKey>,
        spent: Spent,
    ) -> Result<(), Bound> {
        if self.charges.permits(introducer).is_ok() {
            return Ok(());
        }
        let (mut charges, mut gone) = (self.charges.clone(), HashSet::new());
        for key in removals.iter() {
            if let Some(stream) = self.streams.get(key) {
                charges.give_back(stream.record.introducer);
                gone.insert(*key);
            }
        }
        let mut own = self.spent_of(introducer, spent);
        while let Err(bound) = charges.permits(introducer) {
            let next = own.find(|key| !gone.contains(key)).map(|key| (introducer, key));
            // Whoever leaves the pool, there is room in it.
            let next = next.or_else(|| match bound {
                Bound::Pool { .. } => charges.past_floor().find_map(|slot| {
                    let key = self.spent_of(slot, spent).find(|key| !gone.contains(key))?;
                    Some((slot, key))
                }),
                _ => None,
            });
            let Some((of, key)) = next else { return Err(bound) };
            charges.give_back(of);
            gone.insert(key);
            removals.push(key);
        }
        Ok(())
    }

    /// The spent streams of one introducer.
    fn spent_of(&self, introducer: Introducer, spent: Spent) -> impl Iterator<Item = StreamKey> {
        let charged = self.charged.get(&introducer).into_iter().flatten();
        charged
            .take_while(move |(last, _)| spent.waited.is_some_and(|waited| *last <= waited))
            .map(|(_, key)| *key)
            .filter(move |key| {
                let expiry = self.streams.get(key).map(|stream| stream.expiry);
                expiry.is_some_and(|expiry| spent.expired.is_some_and(|expired| expiry <= expired))
            })
    }

    /// Moves at most `limit` streams whose last admission is `wait` or more before `now` to the order of expiries.
    pub(super) fn pass(&mut self, now: Duration, wait: Duration, limit: usize) {
        for _ in 0..limit {
            let Some((last, key)) = self.waiting.first().copied() else { return };
            if now.checked_sub(last).is_none_or(|age| age < wait) {
                return;
            }
            self.waiting.remove(&(last, key));
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.waited = true;
                self.waited.insert((stream.expiry, key));
            }
        }
    }

    /// The streams that waited and whose greatest expiry is at or before `instant`, the least first.
    pub(super) fn expired(&self, instant: Option<WallMs>) -> impl Iterator<Item = &StreamKey> {
        self.waited
            .iter()
            .take_while(move |(expiry, _)| instant.is_some_and(|instant| *expiry <= instant))
            .map(|(_, key)| key)
    }
}
