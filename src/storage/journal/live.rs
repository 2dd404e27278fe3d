//! The live set: the newest content of every record, in memory.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use super::frame::Content;
use crate::storage::{BadRecord, RecordName, Scan, Table};

/// How many records one slice of compaction looks at, at most.
const LOOKED_AT: usize = 4_096;

/// Every record that is not removed, and the segment that holds its newest content.
///
/// Values are shared with the batch that brought them. Beside keys and values a record takes some 200 bytes.
#[derive(Debug, Default)]
pub(super) struct Live {
    records: BTreeMap<RecordName, Held>,
    held: u64,
    encoded: u64,
}

#[derive(Debug)]
struct Held {
    segment: u64,
    content: Content,
}

/// A piece of a pass over the live set.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// What must be copied.
    pub(super) items: Vec<(RecordName, Content)>,
    /// The name that the next slice begins after; `None` when the pass is through.
    pub(super) next: Option<RecordName>,
}

impl Live {
    /// Takes over what a durable batch in `segment` says of a record: the last one wins.
    pub(super) fn apply(&mut self, name: RecordName, content: Content, segment: u64) {
        let gone = if matches!(content, Content::Removal { .. } | Content::Discarded) {
            self.records.remove(&name)
        } else {
            self.held = self.held.saturating_add(wide(content.held_len()));
            self.encoded = self.encoded.saturating_add(wide(content.encoded_len()));
            self.records.insert(name, Held { segment, content })
        };
        if let Some(Held { content, .. }) = gone {
            self.held = self.held.saturating_sub(wide(content.held_len()));
            self.encoded = self.encoded.saturating_sub(wide(content.encoded_len()));
        }
    }

    /// Whether there is a record of that name, readable or not.
    pub(super) fn contains(&self, name: &RecordName) -> bool {
        self.records.contains_key(name)
    }

    /// Bytes of keys and values.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that the records would take in a segment.
    pub(super) fn encoded(&self) -> u64 {
        self.encoded
    }

    /// Says that every record's newest content is in `segment`.
    pub(super) fn settle(&mut self, segment: u64) {
        self.records.values_mut().for_each(|held| held.segment = segment);
    }

    /// Every record, in the order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RecordName, &Content)> {
        self.records.iter().map(|(name, held)| (name, &held.content))
    }

    /// The records after `after` whose newest content is in a segment below `target`, up to about `bytes` bytes.
    pub(super) fn slice(&self, after: Option<RecordName>, target: u64, bytes: usize) -> Slice {
        let mut slice = Slice::default();
        let mut room = bytes;
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        for (looked_at, (name, held)) in self.records.range::<RecordName, _>(range).enumerate() {
            if room == 0 || looked_at == LOOKED_AT {
                return slice;
            }
            if held.segment < target {
                room = room.saturating_sub(held.content.encoded_len());
                slice.items.push((*name, held.content.clone()));
            }
            slice.next = Some(*name);
        }
        slice.next = None;
        slice
    }

    /// The records of one table.
    pub(super) fn scan(&self, table: Table) -> Scan {
        let mut scan = Scan::default();
        let first = RecordName { table, hash: [0; 32] };
        for (name, held) in self.records.range(first..).take_while(|(name, _)| name.table == table) {
            match &held.content {
                Content::Put { key, value } => scan.records.push((key.clone(), value.clone())),
                Content::Unreadable { reason, .. } => {
                    scan.bad.push(BadRecord { name: *name, reason: reason.clone() });
                }
                // Never held: `apply` removes.
                Content::Removal { .. } | Content::Discarded => {}
            }
        }
        scan
    }
}

/// A length as a `u64`, which every platform's `usize` fits.
pub(super) fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: u16) -> (RecordName, Content) {
        let key = key.to_be_bytes().to_vec();
        (RecordName::of(Table::Receiver, &key), Content::Put { key: key.into(), value: vec![0; 100].into() })
    }

    #[test]
    fn sizes_follow_puts_overwrites_and_removals() {
        let mut live = Live::default();
        let (name, content) = put(1);
        live.apply(name, content.clone(), 1);
        live.apply(name, content.clone(), 1);
        assert_eq!((live.held(), live.encoded()), (102, wide(content.encoded_len())));
        live.apply(name, Content::Removal { key: vec![0, 1].into() }, 1);
        live.apply(name, Content::Removal { key: vec![0, 1].into() }, 1);
        assert_eq!((live.held(), live.encoded()), (0, 0));
    }

    #[test]
    fn slices_are_bounded_and_together_copy_exactly_what_is_old() {
        let mut live = Live::default();
        for key in 0..10_000 {
            let (name, content) = put(key);
            live.apply(name, content, 1 + u64::from(key % 2));
        }
        let (mut after, mut copied, mut slices) = (None, 0, 0);
        loop {
            let slice = live.slice(after, 2, 10_000);
            assert!(slice.items.len() <= 60);
            assert!(
                slice.items.iter().all(|(_, content)| matches!(content, Content::Put { key, .. } if key[1] % 2 == 0))
            );
            copied += slice.items.len();
            slices += 1;
            after = slice.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(copied, 5_000);
        assert!(slices >= 5_000 / 60);
        // Nothing to copy: the walk itself is bounded too.
        assert!(live.slice(None, 1, 10_000).next.is_some());
    }
}
