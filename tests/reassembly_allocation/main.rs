//! What hostile links can make a node hold of messages in chunks, counted at the global allocator (law L2.8).
//!
//! A test target of its own, since it counts through the global allocator.

#[path = "../allocation/counting.rs"]
#[expect(dead_code, reason = "shared with targets that measure otherwise")]
mod allocation;
#[expect(dead_code, reason = "shared with the layer's tests, which use all of it")]
#[path = "../layer/engine.rs"]
mod engine;
#[expect(dead_code, reason = "shared with the layer's tests, which use all of it")]
#[path = "../layer/fixture.rs"]
mod fixture;

use std::time::Duration;

use admit_one::{
    layer::{Outcome, reassembly::ReassemblyConfig},
    message::{Class, FRAME_LIMIT, Kind, MESSAGE_LIMIT, TransactionDigest, cut},
};
use tower::{Layer, Service, ServiceExt, service_fn};

use allocation::{held, most, start};
use fixture::{NETWORK, Node, Sender, accept};

/// What a test itself and the rest of the layer hold at a time: a few frames, keys, one stream.
const BESIDE: usize = 1_000_000;

/// Both in one, since the allocator counts for the whole process.
#[tokio::test]
async fn l2_8_what_links_make_a_node_hold_of_messages_in_chunks_is_within_the_stated_bounds() {
    a_flood().await;
    the_greatest_message().await;
}

/// Eight links that each begin as many messages as they can, of frames as large as there are, and as small.
async fn a_flood() {
    let node = Node::start().await;
    let config = ReassemblyConfig {
        link_bytes: 3_000_000,
        bytes: 16_000_000,
        link_messages: 200,
        ..ReassemblyConfig::default()
    };
    let layer = node.layer().reassembly(config).build();
    let mut links: Vec<_> = (0..8).map(|_| (Sender::new(&node.clock), layer.layer(service_fn(accept)))).collect();
    let before = start();
    let (mut stored, mut refused) = (0, 0);
    for round in 0..100_u8 {
        for (sender, service) in &mut links {
            for slice in [32_000, 1] {
                let mut content = sender.content(node.did(), b"");
                content.data = vec![2; 1 + slice].into();
                let id = if slice == 1 { round } else { 100 + round };
                content.kind = Kind::Chunk {
                    index: 0,
                    count: 1_000,
                    original: TransactionDigest([id; 32]),
                    length: 1_000 * slice as u64,
                };
                let payload = sender.sign(content, node.did(), 0);
                match service.call(sender.arrival(&payload)).await {
                    Ok(Outcome::Gathering) => stored += 1,
                    _ => refused += 1,
                }
            }
        }
    }
    let (most, now) = (most() - before, held() - before);
    println!("flood: {stored} stored, {refused} refused, {now} bytes held, {most} at the most");
    assert!(stored > 500 && refused > 100, "the bounds are reached");
    assert!(most <= config.bytes + BESIDE, "{most} bytes were held");
    assert!(now * 2 > config.bytes, "and what is held is what is counted: {now}");

    node.clock.advance(Duration::from_secs(601));
    let (sender, service) = &mut links[0];
    let payload = sender.next(node.did(), b"\x02");
    drop(service.call(sender.arrival(&payload)).await);
    let mut content = sender.content(node.did(), b"\x02late");
    content.kind = Kind::Chunk { index: 0, count: 1, original: TransactionDigest([0; 32]), length: 9 };
    let payload = sender.sign(content, node.did(), 0);
    assert!(service.call(sender.arrival(&payload)).await.is_err());
    let left = held().saturating_sub(before);
    assert!(left < BESIDE, "{left} bytes are held past the expiry of all");
}

/// 60 MB from one link: in memory once while it gathers, twice while it is joined, and not at all once it is handled.
async fn the_greatest_message() {
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let mut service = node.layer().build().layer(service_fn(accept));
    let mut content = sender.content(node.did(), b"");
    let data = MESSAGE_LIMIT - (32 + 16 + 32 + 1) - (1 + 32 + 64) - 4;
    content.data = vec![2; data].into();
    let digest = content.digest(NETWORK, &sender.origin(), Class::E2e);
    let original = sender.sign(content, node.did(), 0).transaction;
    let mut chunks = cut(&original, digest, 1, FRAME_LIMIT).expect("can be cut");
    drop(original);
    let before = start();
    while chunks.len() > 1 {
        let chunk = sender.sign(chunks.next().expect("one more"), node.did(), 0);
        let answer = service.ready().await.expect("ready").call(sender.arrival(&chunk)).await;
        assert_eq!(answer.expect("stored"), Outcome::Gathering);
    }
    let gathered = most() - before;
    assert!(gathered > MESSAGE_LIMIT * 9 / 10 && gathered < MESSAGE_LIMIT + BESIDE, "{gathered}");
    let chunk = sender.sign(chunks.next().expect("the last"), node.did(), 0);
    let answer = service.call(sender.arrival(&chunk)).await;
    assert_eq!(answer.expect("admitted"), Outcome::Dispatched(()));
    let (left, joined) = (held() - before, most() - before);
    println!("60 MB: {gathered} bytes while gathering, {joined} while joined, {left} after");
    assert!(joined < 2 * MESSAGE_LIMIT + BESIDE, "{joined}");
    assert!(left < BESIDE, "{left}");
}
