//! What one hostile connection can make a node hold of frames, counted at the global allocator (law L3.7).
//!
//! A test target of its own, since it counts through the global allocator.

#[expect(dead_code, reason = "shared with other targets, which use all of it")]
#[path = "../allocation/counting.rs"]
mod counting;
#[expect(dead_code, reason = "shared with the lanes' tests, which use all of it")]
#[path = "../lanes/support.rs"]
mod support;

use std::time::Duration;

use admit_one::{
    lanes::{DEFAULT_CREDIT, DEFAULT_PROTOCOL},
    link::{CONTROL_FRAMES, RECEIVER_BOUND},
    message::FRAME_LIMIT,
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::Stream;

use counting::held;
use support::{Node, Raw, Transport, in_time};

/// The substreams that one connection may have at once.
const SUBSTREAMS: usize = 10;

/// The documented figure: for each substream its credit of frames, one more that is being read, and 16 KiB to read into;
/// and the link's delegations and control frames, of at most some 200 bytes each.
const FIGURE: usize =
    SUBSTREAMS * ((DEFAULT_CREDIT as usize + 1) * FRAME_LIMIT + 16 * 1024) + (RECEIVER_BOUND + CONTROL_FRAMES) * 200;

/// What both ends' transports, queues of places and the test itself hold beside.
const BESIDE: usize = 1_000_000;

async fn write(stream: &mut Stream, bytes: &[u8]) {
    in_time(stream.write_all(bytes)).await.unwrap();
    in_time(stream.flush()).await.unwrap();
}

/// Until as little is held as `most`, or as much as `least`.
async fn settles(least: usize, most: usize) {
    let settled = async {
        while !(least..=most).contains(&held()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(support::FAILURE, settled).await.is_err() {
        panic!("{} bytes are held, not {least} to {most}", held());
    }
}

/// All in one, since the allocator counts for the whole process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_7_what_one_connection_makes_a_node_hold_of_frames_is_within_the_stated_figure() {
    for transport in [Transport::Tcp, Transport::Quic] {
        everything_at_its_most(transport).await;
    }
}

/// Ten substreams, as many of them live as a pool has channels, each with its credit of the greatest frames that nobody
/// takes over, and the live ones with all but a byte of one more.
async fn everything_at_its_most(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let before = held();
    let frame: Vec<u8> = [(FRAME_LIMIT as u32).to_be_bytes().as_slice(), &vec![7; FRAME_LIMIT]].concat();
    let (mut live, mut arrivals) = (Vec::new(), Vec::new());
    for round in 0..SUBSTREAMS {
        let index = u8::try_from(round % 4).unwrap();
        let mut stream = peer.open(node.peer).await;
        write(&mut stream, &[[index, 4].as_slice(), &7_u64.to_be_bytes()].concat()).await;
        let mut inbound = node.channel().await;
        in_time(stream.read_exact(&mut [0; 9])).await.unwrap();
        for _ in 0..DEFAULT_CREDIT {
            write(&mut stream, &frame).await;
            arrivals.push(in_time(inbound.next()).await.expect("within the credit"));
        }
        if round + 4 < SUBSTREAMS {
            drop(stream);
            assert!(in_time(inbound.next()).await.is_none(), "it ended, and its frames count on");
        } else {
            // Within no credit, which is judged once it is whole.
            write(&mut stream, &frame[..frame.len() - 1]).await;
            live.push((stream, inbound));
        }
    }
    let held_by_frames = arrivals.len() * FRAME_LIMIT + live.len() * (FRAME_LIMIT + 16 * 1024);
    settles(before + held_by_frames, before + FIGURE + BESIDE).await;
    println!("{transport:?}: {} bytes held, of {FIGURE}", held() - before);
    assert!(held_by_frames * 10 > FIGURE * 9, "the figure is nearly reached: {held_by_frames} of {FIGURE}");

    // One more substream closes the connection, and with the frames everything goes.
    let _more = in_time(peer.streams.open_stream(node.peer, DEFAULT_PROTOCOL)).await;
    let there = peer.peer;
    node.until(|seen| matches!(seen, support::Seen::Disconnected(peer) if peer == there).then_some(())).await;
    drop((live, arrivals));
    settles(0, before + BESIDE).await;
}
