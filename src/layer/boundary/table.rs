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
    pub(super) last: Duration,
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

/// All streams, and two orders over them, of all and of each introducer's; each stream stands in exactly one of the two.
///
/// A stream waits in order of its last admission, and once it waited long enough it stands in order of its expiry. So
/// neither a stream that admits again and again, nor one whose expiry lies far ahead, holds back the others; and whether
/// one of them is spent is one look at the first.
#[derive(Debug)]
pub(super) struct Streams {
    streams: HashMap<StreamKey, Stream>,
    orders: Orders,
    /// Changes with every stream that is put or taken out, so that it is always what the streams say.
    charges: Charges,
    /// The same streams by whom they are charged to.
    charged: HashMap<Introducer, Orders>,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: BTreeSet<(Duration, StreamKey)>,
    waited: BTreeSet<(WallMs, StreamKey)>,
}

impl Orders {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.waited.is_empty()
    }

    fn remove(&mut self, key: StreamKey, stream: &Stream) {
        match stream.waited {
            true => self.waited.remove(&(stream.expiry, key)),
            false => self.waiting.remove(&(stream.last, key)),
        };
    }

    fn pass(&mut self, key: StreamKey, last: Duration, expiry: WallMs) {
        self.waiting.remove(&(last, key));
        self.waited.insert((expiry, key));
    }

    /// Those that waited and whose greatest expiry is at or before `instant`, the least first.
    fn expired(&self, instant: Option<WallMs>) -> impl Iterator<Item = &StreamKey> {
        let expired = move |expiry: &WallMs| instant.is_some_and(|instant| *expiry <= instant);
        self.waited.iter().take_while(move |(expiry, _)| expired(expiry)).map(|(_, key)| key)
    }
}

impl Streams {
    pub(super) fn new(shares: Shares) -> Self {
        Self {
            streams: HashMap::new(),
            orders: Orders::default(),
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
        let (place, before) = match stream {
            Some(mut stream) => {
                stream.waited = false;
                (Some((stream.record.introducer, stream.last)), self.streams.insert(key, stream))
            }
            None => (None, self.streams.remove(&key)),
        };
        let same = |before: &Stream| !before.waited && Some((before.record.introducer, before.last)) == place;
        if before.as_ref().is_some_and(same) {
            // The same place in the same orders.
            return before;
        }
        if let Some(before) = &before {
            let introducer = before.record.introducer;
            self.charges.give_back(introducer);
            self.orders.remove(key, before);
            if let Some(charged) = self.charged.get_mut(&introducer) {
                charged.remove(key, before);
                if charged.is_empty() && place.is_none_or(|(next, _)| next != introducer) {
                    self.charged.remove(&introducer);
                }
            }
        }
        if let Some((introducer, last)) = place {
            self.charges.charge(introducer);
            self.orders.waiting.insert((last, key));
            self.charged.entry(introducer).or_default().waiting.insert((last, key));
        }
        before
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

    /// The spent streams of one introducer, as far as they were passed.
    fn spent_of(&self, introducer: Introducer, spent: Spent) -> impl Iterator<Item = StreamKey> {
        let charged = self.charged.get(&introducer).into_iter();
        charged.flat_map(move |orders| orders.expired(spent.expired)).copied()
    }

    /// Moves at most `limit` streams whose last admission is `wait` or more before `now` to the order of expiries.
    pub(super) fn pass(&mut self, now: Duration, wait: Duration, limit: usize) {
        for _ in 0..limit {
            let Some((last, key)) = self.orders.waiting.first().copied() else { return };
            if now.checked_sub(last).is_none_or(|age| age < wait) {
                return;
            }
            self.pass_one(key, last);
        }
    }

    /// Where `introducer` may not grow, moves all those that waited of the streams that [`Streams::make_room`] may ask
    /// for. A stream is moved once for each of its admissions, so however often room is asked for in vain, that costs
    /// no more than these did.
    pub(super) fn pass_charged(&mut self, introducer: Introducer, waited: Option<Duration>) {
        let (Some(waited), Err(_)) = (waited, self.charges.permits(introducer)) else { return };
        let pool = matches!(introducer, Introducer::Slot(_)) && self.charges.pool_is_used_up();
        let others: Vec<_> = if pool { self.charges.past_floor().collect() } else { Vec::new() };
        for of in std::iter::once(introducer).chain(others) {
            while let Some((last, key)) = self.charged.get(&of).and_then(|orders| orders.waiting.first()).copied()
                && last <= waited
            {
                self.pass_one(key, last);
            }
        }
    }

    fn pass_one(&mut self, key: StreamKey, last: Duration) {
        self.orders.waiting.remove(&(last, key));
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.waited = true;
            let (expiry, introducer) = (stream.expiry, stream.record.introducer);
            self.orders.waited.insert((expiry, key));
            if let Some(charged) = self.charged.get_mut(&introducer) {
                charged.pass(key, last, expiry);
            }
        }
    }

    /// The streams that waited and whose greatest expiry is at or before `instant`, the least first.
    pub(super) fn expired(&self, instant: Option<WallMs>) -> impl Iterator<Item = &StreamKey> {
        self.orders.expired(instant)
    }
}
