//! The bounds, each reached, and what one link can do to another at them.

use std::collections::BTreeMap;

use super::*;
use crate::layer::reassembly::{CHUNK_OVERHEAD, MESSAGE_OVERHEAD};

/// What the first chunk of a message takes, but its slice; its head is one byte.
const FIRST: usize = MESSAGE_OVERHEAD + 1 + CHUNK_OVERHEAD;

/// No bound but those that a test sets.
const WIDE: ReassemblyConfig = ReassemblyConfig {
    link_bytes: usize::MAX,
    bytes: usize::MAX,
    link_messages: usize::MAX,
    messages: usize::MAX,
    link_ids: usize::MAX,
    ids: usize::MAX,
    age: Duration::from_secs(300),
};

#[test]
fn l2_8_by_default_one_link_may_send_a_message_of_60_mb_while_the_last_is_handled() {
    let count = 2_000;
    let mut table = Table::new(ReassemblyConfig::default());
    for id in 1..=2 {
        let sent = Sent::new(id, MESSAGE_LIMIT, count);
        for index in 0..count - 1 {
            assert!(table.gathered.take(&sent.chunk(index, ALICE), at(0)).is_ok());
        }
        assert!(table.take(&sent.chunk(count - 1, ALICE), at(0)).is_ok_and(|joined| joined.is_some()));
    }
    let (bytes, ..) = table.held();
    assert!(bytes > 2 * MESSAGE_LIMIT && bytes < 2 * MESSAGE_LIMIT + 500_000, "{bytes}");
    let third = Sent::new(3, MESSAGE_LIMIT, 2);
    let refusal = table.take(&third.chunk(0, ALICE), at(0)).unwrap_err();
    assert_eq!(refusal, ChunkRefusal::LinkBytes { held: bytes, bound: 128 << 20 });
    assert_eq!(table.take(&third.chunk(1, ALICE), at(0)), Err(ChunkRefusal::Failed(Failure::Room)));
    table.let_go(at(0));
    assert_eq!(table.held().0, 0);
}

#[test]
fn l2_8_a_chunk_over_its_links_bytes_fails_its_message_for_that_link() {
    let config = ReassemblyConfig { link_bytes: FIRST + 10 + CHUNK_OVERHEAD + 9, ..WIDE };
    let sent = Sent::new(1, 30, 3);
    let mut table = Table::new(config);
    table.take(&sent.chunk(0, MALLORY), at(0)).unwrap();
    let refusal = ChunkRefusal::LinkBytes { held: FIRST + 10, bound: config.link_bytes };
    assert_eq!(table.take(&sent.chunk(1, MALLORY), at(0)), Err(refusal));
    assert_eq!((table.held(), table.failures()), ((0, 0, 1), vec![("room", 1)]));
    assert_eq!(table.take(&sent.chunk(2, MALLORY), at(0)), Err(ChunkRefusal::Failed(Failure::Room)), "none waits");

    let config = ReassemblyConfig { link_bytes: 2 * FIRST + 60, ..WIDE };
    let mut table = Table::new(config);
    for index in 0..2 {
        table.take(&sent.chunk(index, BOB), at(0)).unwrap();
    }
    assert!(table.take(&sent.chunk(2, BOB), at(0)).unwrap().is_some(), "another link may");
}

#[test]
fn l2_8_a_link_over_its_bytes_takes_nothing_of_a_message_that_another_brings_too() {
    let sent = Sent::new(1, 30, 3);
    let mut table = Table::new(ReassemblyConfig { link_bytes: FIRST + 10 + CHUNK_OVERHEAD + 10, ..WIDE });
    // Mallory is faster with two chunks, Bob brings one of them too, and Alice all.
    for index in 0..2 {
        table.take(&sent.chunk(index, MALLORY), at(0)).unwrap();
    }
    table.take(&sent.chunk(0, BOB), at(0)).unwrap();
    assert_eq!(table.take(&sent.chunk(0, BOB), at(0)), Err(ChunkRefusal::Repeated { index: 0 }));
    let before = (table.gathered.account(&MALLORY).bytes, table.gathered.account(&BOB).bytes);
    assert_eq!(before, (FIRST + 10 + CHUNK_OVERHEAD + 10, FIRST + 10), "each is accounted for what it brings");
    assert!(matches!(table.take(&sent.chunk(2, MALLORY), at(0)), Err(ChunkRefusal::LinkBytes { .. })));
    assert_eq!(table.gathered.account(&MALLORY).bytes, 0);
    assert_eq!(table.take(&sent.chunk(1, MALLORY), at(0)), Err(ChunkRefusal::Failed(Failure::Room)));

    // Chunk 0 is there still, which Bob brought; chunk 1 went with Mallory.
    assert_eq!(table.take(&sent.chunk(2, ALICE), at(0)), Ok(None));
    assert_eq!(table.take(&sent.chunk(1, BOB), at(0)), Ok(Some(sent.encoded.clone().into())));
}

#[test]
fn l2_8_where_all_bytes_are_taken_the_link_that_holds_most_makes_room_and_a_greater_one_is_refused() {
    let config = ReassemblyConfig { bytes: 24_000, ..WIDE };
    let mut table = Table::new(config);
    let flood: Vec<_> = (10..14).map(|id| Sent::new(id, 6_000, 2)).collect();
    for sent in &flood {
        table.take(&sent.chunk(0, MALLORY), at(0)).unwrap();
    }
    assert_eq!(table.gathered.account(&MALLORY).bytes, 4 * (FIRST + 3_000));

    let honest = Sent::new(1, 8_000, 4);
    for index in 0..4 {
        let taken = table.take(&honest.chunk(index, ALICE), at(0));
        assert_eq!(taken.map(|taken| taken.is_some()), Ok(index == 3), "chunk {index}: the flood makes room");
        if index == 1 {
            // No chunk of the flood takes room from a link that holds less than it.
            let more = Sent::new(20, 12_000, 2);
            let refusal = table.take(&more.chunk(0, MALLORY), at(0)).unwrap_err();
            assert!(matches!(refusal, ChunkRefusal::AllBytes { bound: 24_000, .. }), "{refusal}");
            assert_eq!(table.take(&more.chunk(1, MALLORY), at(0)), Err(ChunkRefusal::Failed(Failure::Room)));
        }
    }
    assert_eq!(table.failures(), [("room", 3)], "one refused, two of the flood");
}

#[test]
fn l2_8_room_is_made_by_the_part_of_the_greatest_link_alone_though_others_bring_the_message() {
    let mut table = Table::new(ReassemblyConfig { bytes: 4 * FIRST + 12_000, ..WIDE });
    let shared = Sent::new(1, 16_000, 4);
    for index in 0..2 {
        table.take(&shared.chunk(index, MALLORY), at(0)).unwrap();
    }
    table.take(&shared.chunk(0, BOB), at(0)).unwrap();
    let newcomer = Sent::new(2, 8_000, 2);
    table.take(&newcomer.chunk(0, ALICE), at(0)).unwrap();
    assert_eq!(table.gathered.account(&MALLORY).bytes, 0);
    table.gathered.let_all(WIDE);
    for index in 1..4 {
        assert_eq!(table.take(&shared.chunk(index, BOB), at(0)).unwrap().is_some(), index == 3);
    }
}

#[test]
fn l2_8_a_link_may_begin_so_many_messages_and_all_links_so_many() {
    let mut table = Table::new(ReassemblyConfig { link_messages: 2, messages: 3, ..WIDE });
    let sent: Vec<_> = (1..7).map(|id| Sent::new(id, 10, 2)).collect();
    table.take(&sent[0].chunk(0, ALICE), at(0)).unwrap();
    table.take(&sent[1].chunk(0, ALICE), at(0)).unwrap();
    assert_eq!(table.take(&sent[2].chunk(0, ALICE), at(0)), Err(ChunkRefusal::LinkMessages { bound: 2 }));
    assert_eq!(table.take(&sent[2].chunk(1, ALICE), at(0)), Err(ChunkRefusal::Failed(Failure::Room)));
    table.take(&sent[2].chunk(0, BOB), at(0)).unwrap();
    assert_eq!(table.take(&sent[3].chunk(0, BOB), at(0)), Err(ChunkRefusal::AllMessages { bound: 3 }));
    table.take(&sent[0].chunk(1, ALICE), at(0)).unwrap();
    table.take(&sent[4].chunk(0, ALICE), at(0)).unwrap();
    assert_eq!(table.take(&sent[2].chunk(1, MALLORY), at(0)), Err(ChunkRefusal::AllMessages { bound: 3 }));
    assert_eq!(table.held().1, 3, "one that is complete has left its place");
}

#[test]
fn l2_8_so_many_names_are_remembered_and_new_messages_are_refused_until_some_expire() {
    let mut table = Table::new(ReassemblyConfig { link_ids: 2, ids: 3, ..WIDE });
    let sent: Vec<_> = (1..9).map(|id| Sent::new(id, 10, 1)).collect();
    let unfinished = Sent::new(20, 10, 2);
    table.take(&sent[0].chunk(0, ALICE), at(0)).unwrap();
    table.take(&unfinished.chunk(0, ALICE), at(0)).unwrap();
    table.let_go(at(0));
    assert_eq!(table.take(&sent[1].chunk(0, ALICE), at(0)), Err(ChunkRefusal::LinkIds { bound: 2 }));
    table.take(&sent[1].chunk(0, BOB), at(0)).unwrap();
    assert_eq!(table.take(&sent[2].chunk(0, BOB), at(0)), Err(ChunkRefusal::AllIds { bound: 3 }));
    table.take(&sent[2].chunk(0, MALLORY), at(0)).unwrap();
    let again = table.take(&sent[0].chunk(0, BOB), at(0));
    assert_eq!(again, Err(ChunkRefusal::AllIds { bound: 3 }), "Alice forgot it for Mallory, and is not asked again");
    assert!(table.take(&unfinished.chunk(1, ALICE), at(0)).unwrap().is_some(), "what was begun goes on");
    assert_eq!(table.held().2, 3);
    let mut later = sent[3].clone();
    later.common.issued_at += TTL;
    table.take(&later.chunk(0, ALICE), at(TTL)).unwrap();
}

#[test]
fn l2_8_links_that_use_up_all_names_take_none_from_a_link_that_uses_fewer() {
    let mut table = Table::new(ReassemblyConfig { link_ids: 8, ids: 24, ..WIDE });
    for id in 0..24 {
        table.take(&Sent::new(id, 10, 1).chunk(0, [200 + id / 8; 32]), at(0)).unwrap();
    }
    let more = Sent::new(50, 10, 1);
    assert_eq!(table.take(&more.chunk(0, [200; 32]), at(0)), Err(ChunkRefusal::LinkIds { bound: 8 }));
    // Each of four has six in the end.
    for id in 100..106 {
        let honest = Sent::new(id, 10, 2);
        table.take(&honest.chunk(0, ALICE), at(0)).unwrap();
        assert!(table.take(&honest.chunk(1, ALICE), at(0)).unwrap().is_some());
    }
    let more = Sent::new(106, 10, 2);
    assert_eq!(table.take(&more.chunk(0, ALICE), at(0)), Err(ChunkRefusal::AllIds { bound: 24 }));
    assert_eq!(table.held().2, 24);
    // What one forgot is gathered anew, as after a restart: whether it was admitted is for the window to say.
    table.let_go(at(0));
    let forgotten = (0..24).find(|id| {
        let again = Sent::new(*id, 10, 1);
        table.take(&again.chunk(0, BOB), at(0)) != Err(ChunkRefusal::Finished)
    });
    assert!(forgotten.is_some());
}

#[test]
fn l2_8_a_flood_of_first_chunks_from_many_ids_is_held_within_the_bounds() {
    let config = ReassemblyConfig { link_bytes: 60_000, bytes: 150_000, link_messages: 8, ..WIDE };
    let mut table = Table::new(config);
    let mut refused = BTreeMap::<_, u32>::new();
    for round in 0..=u8::MAX {
        let peer = [round % 5; 32];
        let sent = Sent::new(round, 20_000, 4);
        if let Err(refusal) = table.take(&sent.chunk(0, peer), at(0)) {
            *refused.entry(refusal.label()).or_default() += 1;
        }
        let (bytes, messages, _) = table.held();
        assert!(bytes <= 150_000 && messages <= 40);
    }
    assert!(refused.values().sum::<u32>() > 200, "{refused:?}");
    table.purge(at(TTL));
    assert_eq!(table.held(), (0, 0, 0));
}
