//! The core alone, without keys or signatures: which chunks are taken, and what is held.

mod bounds;
mod model;

use std::time::Duration;

use bytes::Bytes;

use super::{
    ChunkRefusal, Failure, ReassemblyConfig,
    account::Peer,
    core::{Gathered, Now, Taken},
    message::{Chunk, Common, Name},
};
use crate::{
    clock::WallMs,
    link::LinkId,
    message::{Class, Incarnation, MESSAGE_LIMIT, TransactionDigest, TxId, slice_range},
};

const START: WallMs = 1_000_000;
const TTL: u64 = 600_000;

const ALICE: Peer = [1; 32];
const BOB: Peer = [2; 32];
const MALLORY: Peer = [3; 32];

/// At `ms` milliseconds from the start of the test, on both clocks.
const fn at(ms: u64) -> Now {
    Now { wall: START + ms, monotonic: Duration::from_millis(ms) }
}

/// A message as its origin cuts it.
#[derive(Debug, Clone)]
struct Sent {
    name: Name,
    common: Common,
    encoded: Vec<u8>,
}

impl Sent {
    /// Message `id` of `length` bytes in `count` chunks, issued at the start.
    fn new(id: u8, length: usize, count: u32) -> Self {
        let name = Name { origin: [id; 32], original: TransactionDigest([id; 32]) };
        let common = Common {
            class: Class::E2e,
            tx_id: TxId([id; 16]),
            incarnation: Incarnation(1),
            sequence: u64::from(id),
            issued_at: START,
            ttl: TTL,
            count,
            length: u64::try_from(length).unwrap(),
            head: Bytes::from_static(b"\x02"),
        };
        let encoded = (0..length).map(|place| (place % 251) as u8 ^ id).collect();
        Self { name, common, encoded }
    }

    fn chunk(&self, index: u32, peer: Peer) -> Chunk<'_> {
        let range = slice_range(index, self.common.count, self.common.length).unwrap();
        Chunk {
            name: self.name,
            peer,
            link: LinkId::of(peer),
            common: self.common.clone(),
            index,
            slice: &self.encoded[range],
        }
    }
}

/// A table, and what is still accounted for complete messages.
struct Table {
    gathered: Gathered,
    in_hand: Vec<Vec<(Peer, usize)>>,
}

impl Table {
    fn new(config: ReassemblyConfig) -> Self {
        Self { gathered: Gathered::new(config), in_hand: Vec::new() }
    }

    /// The joined bytes, where the chunk completes its message.
    fn take(&mut self, chunk: &Chunk<'_>, now: Now) -> Result<Option<Bytes>, ChunkRefusal> {
        let taken = self.gathered.take(chunk, now);
        let taken = taken.map(|taken| match taken {
            Taken::Stored => None,
            Taken::Complete(message) => {
                self.in_hand.push(message.parts().collect());
                Some(message.join())
            }
        });
        self.gathered.assert_consistent(now, &self.in_hand);
        taken
    }

    fn let_go(&mut self, now: Now) {
        for parts in self.in_hand.drain(..) {
            self.gathered.let_go(parts);
        }
        self.gathered.assert_consistent(now, &[]);
    }

    fn purge(&mut self, now: Now) {
        self.gathered.purge(now);
        self.gathered.assert_consistent(now, &self.in_hand);
    }

    /// Bytes, messages and ids held.
    fn held(&self) -> (usize, usize, usize) {
        let held = self.gathered.held();
        (held.bytes, held.messages, held.ids)
    }

    fn failures(&mut self) -> Vec<(&'static str, u64)> {
        self.gathered.take_failures().into_iter().collect()
    }
}

#[test]
fn l2_8_chunks_in_any_order_and_more_than_once_join_to_what_was_cut() {
    let sent = Sent::new(1, 1_000, 7);
    for order in [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [3, 6, 0, 5, 1, 4, 2]] {
        let mut table = Table::new(ReassemblyConfig::default());
        let (last, first) = order.split_last().unwrap();
        for index in first {
            assert_eq!(table.take(&sent.chunk(*index, ALICE), at(1)), Ok(None));
            let again = table.take(&sent.chunk(*index, ALICE), at(1));
            assert_eq!(again, Err(ChunkRefusal::Repeated { index: *index }));
        }
        assert_eq!(table.take(&sent.chunk(*last, ALICE), at(1)), Ok(Some(sent.encoded.clone().into())));
        assert_eq!(table.held().1, 0, "it gathers no more");
        table.let_go(at(1));
        assert_eq!(table.held(), (0, 0, 1), "and its name is remembered");
        for index in order {
            assert_eq!(table.take(&sent.chunk(index, BOB), at(2)), Err(ChunkRefusal::Finished));
        }
        table.purge(at(TTL - 1));
        assert_eq!(table.held(), (0, 0, 1));
        table.purge(at(TTL));
        assert_eq!(table.held(), (0, 0, 0), "until it expires");
        assert_eq!(table.failures(), []);
    }
}

#[test]
fn l2_8_one_chunk_may_be_all() {
    let sent = Sent::new(1, 10, 1);
    let mut table = Table::new(ReassemblyConfig::default());
    assert_eq!(table.take(&sent.chunk(0, ALICE), at(0)), Ok(Some(sent.encoded.clone().into())));
}

#[test]
fn l2_8_a_chunk_whose_numbers_contradict_each_other_is_refused_and_nothing_else_changes() {
    let sent = Sent::new(1, 100, 4);
    let mut table = Table::new(ReassemblyConfig::default());
    table.take(&sent.chunk(0, ALICE), at(0)).unwrap();
    let held = table.held();
    let changed = |change: &dyn Fn(&mut Chunk<'_>)| {
        let mut chunk = sent.chunk(1, ALICE);
        change(&mut chunk);
        chunk
    };
    let limit = MESSAGE_LIMIT;
    let over = u64::try_from(limit).unwrap() + 1;
    let wrong = |index, count, length, slice| ChunkRefusal::WrongSize { index, count, length, slice };
    for (chunk, refusal) in [
        (changed(&|chunk| chunk.index = 4), ChunkRefusal::NoSuchChunk { index: 4, count: 4 }),
        (changed(&|chunk| chunk.index = u32::MAX), ChunkRefusal::NoSuchChunk { index: u32::MAX, count: 4 }),
        (changed(&|chunk| chunk.common.count = 0), ChunkRefusal::NoSuchChunk { index: 1, count: 0 }),
        (changed(&|chunk| chunk.common.length = over), ChunkRefusal::MessageTooLarge { length: over, limit }),
        (changed(&|chunk| chunk.common.length = u64::MAX), ChunkRefusal::MessageTooLarge { length: u64::MAX, limit }),
        (changed(&|chunk| chunk.common.length = 0), wrong(1, 4, 0, 25)),
        (changed(&|chunk| chunk.common.length = 104), wrong(1, 4, 104, 25)),
        (changed(&|chunk| chunk.common.count = u32::MAX), wrong(1, u32::MAX, 100, 25)),
        (changed(&|chunk| chunk.slice = &chunk.slice[1..]), wrong(1, 4, 100, 24)),
        (changed(&|chunk| chunk.slice = &[]), wrong(1, 4, 100, 0)),
    ] {
        assert_eq!(table.take(&chunk, at(0)), Err(refusal));
        assert_eq!(table.held(), held);
    }
    assert_eq!(table.take(&sent.chunk(1, ALICE), at(0)), Ok(None), "the message goes on");
}

#[test]
fn l2_8_a_conflicting_chunk_is_refused_and_its_message_fails_for_all() {
    type Change = fn(&mut Chunk<'_>);
    let changes: [(&str, Change); 10] = [
        ("class", |chunk| chunk.common.class = Class::Storage),
        ("tx_id", |chunk| chunk.common.tx_id = TxId([9; 16])),
        ("incarnation", |chunk| chunk.common.incarnation = Incarnation(2)),
        ("sequence", |chunk| chunk.common.sequence += 1),
        ("issued-at", |chunk| chunk.common.issued_at += 1),
        ("ttl", |chunk| chunk.common.ttl += 1),
        ("head", |chunk| chunk.common.head = Bytes::from_static(b"\x02\x01")),
        ("length", |chunk| chunk.common.length = 99),
        ("count", |chunk| (chunk.common.count, chunk.common.length) = (5, 125)),
        ("bytes", |chunk| (chunk.index, chunk.slice) = (0, &[9; 25])),
    ];
    for (field, change) in changes {
        let sent = Sent::new(1, 100, 4);
        let mut table = Table::new(ReassemblyConfig::default());
        table.take(&sent.chunk(0, ALICE), at(0)).unwrap();
        table.take(&sent.chunk(3, BOB), at(0)).unwrap();
        let mut chunk = sent.chunk(1, ALICE);
        change(&mut chunk);
        assert_eq!(table.take(&chunk, at(0)), Err(ChunkRefusal::Conflict { field }));
        assert_eq!(table.held(), (0, 0, 1), "{field}: nothing but its name is left");
        assert_eq!(table.failures(), [("conflict", 1)]);
        for peer in [ALICE, BOB, MALLORY] {
            let later = table.take(&sent.chunk(2, peer), at(TTL - 1));
            assert_eq!(later, Err(ChunkRefusal::Failed(Failure::Conflict)), "{field}");
        }
        table.purge(at(TTL));
        assert_eq!(table.held(), (0, 0, 0));
    }
}

#[test]
fn l2_8_nobody_but_the_origin_can_conflict_with_it() {
    let (sent, mut other) = (Sent::new(1, 100, 4), Sent::new(2, 100, 4));
    other.name.original = sent.name.original;
    let mut table = Table::new(ReassemblyConfig::default());
    for index in 0..4 {
        let mine = table.take(&sent.chunk(index, ALICE), at(0)).unwrap();
        let theirs = table.take(&other.chunk(index, MALLORY), at(0)).unwrap();
        assert_eq!((mine.is_some(), theirs.is_some()), (index == 3, index == 3));
    }
}

#[test]
fn l2_8_nothing_is_held_past_its_expiry_or_its_age() {
    let (sent, late) = (Sent::new(1, 100, 4), Sent::new(2, 100, 4));
    let age = ReassemblyConfig::default().age;
    let mut table = Table::new(ReassemblyConfig::default());
    table.take(&sent.chunk(0, ALICE), at(0)).unwrap();
    assert_eq!(table.gathered.due_in(at(100)), Some(age - Duration::from_millis(100)));
    let aged = at(u64::try_from(age.as_millis()).unwrap());
    let later = table.take(&sent.chunk(1, ALICE), aged);
    assert_eq!(later, Err(ChunkRefusal::Failed(Failure::Age)), "too old when its second chunk came");
    assert_eq!((table.held(), table.failures()), ((0, 0, 1), vec![("age", 1)]));

    table.take(&late.chunk(0, ALICE), at(TTL - 10)).unwrap();
    assert_eq!(table.gathered.due_in(at(TTL - 10)), Some(Duration::from_millis(10)), "the wall clock comes first");
    table.purge(at(TTL - 1));
    assert_eq!(table.held().1, 1);
    table.purge(at(TTL));
    assert_eq!((table.held(), table.failures()), ((0, 0, 0), vec![("expired", 1)]));
    assert_eq!(table.gathered.due_in(at(TTL)), None);
    let refusal = Err(ChunkRefusal::Expired { expires_at: START + TTL });
    assert_eq!(table.take(&late.chunk(1, ALICE), at(TTL)), refusal);

    let stepped_back = Now { wall: START, monotonic: Duration::from_millis(TTL) };
    table.take(&sent.chunk(0, ALICE), stepped_back).unwrap();
    let aged = Now { wall: START, monotonic: Duration::from_millis(TTL) + age };
    table.purge(aged);
    assert_eq!(table.held(), (0, 0, 1), "a wall clock that stands still keeps nothing but the name");
}

#[test]
fn l2_8_a_lost_chunk_leaves_its_message_unfinished_until_its_time_is_over() {
    let sent = Sent::new(1, 1_000, 10);
    let mut table = Table::new(ReassemblyConfig::default());
    for index in (0..10).filter(|index| *index != 4) {
        assert_eq!(table.take(&sent.chunk(index, ALICE), at(0)), Ok(None));
    }
    table.purge(at(299_999));
    assert_eq!(table.held().1, 1);
    table.purge(at(300_000));
    assert_eq!(table.held(), (0, 0, 1));
}

#[test]
fn l2_8_an_original_that_is_none_fails_its_message() {
    let sent = Sent::new(1, 100, 1);
    let mut table = Table::new(ReassemblyConfig::default());
    table.take(&sent.chunk(0, ALICE), at(0)).unwrap();
    table.gathered.spoil(sent.name);
    table.let_go(at(0));
    assert_eq!(table.failures(), [("original", 1)]);
    assert_eq!(table.take(&sent.chunk(0, ALICE), at(1)), Err(ChunkRefusal::Failed(Failure::Original)));
    table.purge(at(TTL));
    table.gathered.spoil(sent.name);
    assert_eq!(table.failures(), [], "unless it has expired meanwhile");
}
