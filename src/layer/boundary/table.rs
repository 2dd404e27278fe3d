//! The receiver's streams, and which of them may be removed.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::record::StreamRecord;
use crate::{clock::WallMs, layer::quota::Buckets, message::StreamKey, storage::commit::BatchNumber};

/// One stream in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    /// What its durable record will hold.
    pub(super) record: StreamRecord,
    /// The monotonic reading of its last admission, or of when it was loaded.
    pub(super) last: Duration,
    /// What is left of its quota; full where there is none (law L7). In memory only.
    pub(super) buckets: Option<Buckets>,
    /// The newest batch that can undo it; 0 for none.
    pub(super) touched: BatchNumber,
    /// Whether it has waited: which of the two orders it stands in.
    waited: bool,
}

impl Stream {
    /// A stream that was admitted or loaded at `last`.
    pub(super) fn new(record: StreamRecord, last: Duration, touched: BatchNumber) -> Self {
        Self { record, last, buckets: None, touched, waited: false }
    }

    /// With what is left of its quota.
    pub(super) fn with(self, buckets: Option<Buckets>) -> Self {
        Self { buckets, ..self }
    }
}

/// All streams, and two orders over them; each stream stands in exactly one.
///
/// A stream waits in order of its last admission, and once it waited long enough it stands in order of its expiry. So
/// neither a stream that admits again and again, nor one whose expiry lies far ahead, holds back the others.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: HashMap<StreamKey, Stream>,
    waiting: BTreeSet<(Duration, StreamKey)>,
    waited: BTreeSet<(WallMs, StreamKey)>,
}

impl Streams {
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
                let last = stream.last;
                let before = self.streams.insert(key, stream);
                if before.as_ref().is_some_and(|before| !before.waited && before.last == last) {
                    // The same place in the same order.
                    return before;
                }
                before
            }
            None => self.streams.remove(&key),
        };
        match &before {
            Some(before) if before.waited => self.waited.remove(&(before.record.expiry, key)),
            Some(before) => self.waiting.remove(&(before.last, key)),
            None => false,
        };
        before
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
                self.waited.insert((stream.record.expiry, key));
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
