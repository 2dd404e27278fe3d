//! What one hostile peer can make a node hold, counted at the global allocator, against the figures of `docs/memory.md`.
//!
//! A test target of its own, since it counts through the global allocator. The node runs on threads of its own, and only
//! what these allocate is counted: the two share nothing but a socket.

#[path = "../allocation/counting.rs"]
#[allow(dead_code, reason = "shared with targets that measure otherwise")]
mod allocation;
mod attacker;
#[path = "../layer/engine.rs"]
#[allow(dead_code, reason = "the fixture's")]
mod engine;
#[path = "../layer/fixture.rs"]
#[allow(dead_code, reason = "shared with tests/layer, which uses more of it")]
mod fixture;
mod node;
#[path = "../lanes/support.rs"]
#[allow(dead_code, reason = "shared with tests/lanes, which uses more of it")]
mod support;

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use admit_one::{
    lanes::Config,
    layer::boundary::STREAM_RECORD_MAX,
    memory,
    message::{Class, FRAME_LIMIT, Payload},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use attacker::{Attacker, Channel};
use node::{Node, REASSEMBLY, admission};
use support::frame;

/// What libp2p holds for one connection and its substreams (Noise's and yamux's buffers, negotiations, dials), and the
/// first entries of what all peers share.
const BESIDE: usize = 1_000_000;

/// The tests measure the same process.
static ALONE: Mutex<()> = Mutex::new(());

const LANES: [u8; 4] = [0, 1, 2, 3];

fn config() -> Config {
    Config::default().lane_bound(8, 8 * FRAME_LIMIT)
}

/// What one peer can make the node hold, by way of a link to it and a link from it.
fn figure(config: &Config) -> usize {
    memory::inbound_link(config)
        + memory::messages_of_link(&REASSEMBLY)
        + memory::streams_of_link(&admission())
        + memory::outbound_link(config)
        + stored()
}

/// A node on counted threads, and the test's own thread, which is not counted.
fn start(config: Config) -> (Runtime, Runtime, Node) {
    allocation::apart();
    let counted = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let own = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let node = own.block_on(counted.spawn(Node::start(config))).expect("starts");
    (counted, own, node)
}

/// What stays when the link is gone and everything was handled: the streams, until they are spent, and the room of the
/// tables that held the rest.
fn left_by_law() -> usize {
    memory::streams_of_link(&admission()) + stored() + REASSEMBLY.link_ids * memory::TOMBSTONE
}

/// The engine of these tests keeps records in memory, too.
fn stored() -> usize {
    (admission().shares.floor + admission().shares.pool) as usize * (STREAM_RECORD_MAX + 256)
}

/// What was held, above what the node holds without a peer.
#[derive(Debug)]
struct Held {
    /// At the worst moment.
    most: usize,
    /// After the connection closed, with all handlers stalled.
    stalled: usize,
    /// After everything went its way.
    left: usize,
    /// What is known to have been held at once: frames and slices alone.
    parked: usize,
}

/// Everything that a peer is allowed, at its maximum, at once.
///
/// `beyond` it, two channels more hold frames, in place of the control substream and the hello that never ends.
async fn everything(node: &Node, beyond: bool) -> Held {
    let before = allocation::start();
    let mut parked = 0;
    let mut attacker = Attacker::start(node).await;
    let opened = attacker.accept();
    let mut channels = Vec::new();
    for lane in LANES {
        channels.push(attacker.open(lane).await);
    }
    refusals_streams_and_references(node, &mut attacker, &mut channels).await;
    let mut beside = Vec::new();
    if !beyond {
        beside.push(attacker.control().await);
        references_that_miss(node, &mut attacker, &mut channels).await;
    }
    parked += messages(node, &mut attacker, &mut channels).await;
    let (senders, _outward) = outward(node, &mut attacker, opened).await;

    // Two generations of channels, each of as many frames as it has credit for, of which none is taken over.
    node.open.send_replace(false);
    let mut called = node.called.load(Ordering::Relaxed);
    for generation in 0..if beyond { 3 } else { 2 } {
        if generation > 0 {
            channels.clear();
            for lane in LANES.into_iter().take(if generation == 2 { 2 } else { 4 }) {
                channels.push(attacker.open(lane).await);
            }
        }
        for channel in &mut channels {
            channel.drained().await;
            let oversize = generation > 0 && channel.lane == 3;
            let frames = channel.credit() - u64::from(oversize);
            for number in 0..frames {
                let frame = attacker.full(node, channel.lane, number % 2 == 1);
                parked += frame.len();
                channel.send(&frame).await;
            }
            called += frames as usize;
            if oversize {
                channel.write(&10_000_000_u32.to_be_bytes()).await;
                channel.write(&vec![0; 3 * FRAME_LIMIT]).await;
            } else if generation > 0 {
                channel.write(&(FRAME_LIMIT as u32).to_be_bytes()).await;
                channel.write(&vec![0; FRAME_LIMIT - 1]).await;
            }
        }
        Attacker::wait_until(|| node.called.load(Ordering::Relaxed) == called, "all are in hand").await;
    }
    if !beyond {
        beside.push(attacker.half_hello().await);
    }
    Attacker::wait_until(|| allocation::held() >= before + parked, "all is held").await;

    attacker.one_too_many().await;
    drop((channels, beside));
    // The connection's tasks end; nothing of its frames does.
    Attacker::wait_until(|| allocation::held() >= before + parked, "its frames stay").await;
    let slots = node.admission.health().slots_taken;
    let (most, stalled) = (allocation::most() - before, allocation::held() - before);

    // Handlers are done; what was forwarded, waits outward or gathers is past its time.
    node.open.send_replace(true);
    senders.iter().for_each(JoinHandle::abort);
    node.clock.advance(Duration::from_secs(3_600));
    let payload = attacker.own.next(node.did, b"\x02");
    node.beside.send(attacker.own.arrival(&payload)).expect("the node runs");
    let late = attacker.chunk(node, 2, u16::MAX, 0, 1);
    node.beside.send(attacker.own.raw(late.into())).expect("the node runs");
    // Has the lanes look at what is past its time.
    drop(node.outbound.send(frame(node.did, Class::E2e, 0, 1)).await);
    assert_eq!(slots, 1, "the slot stays as long as its frames");
    let let_go = || node.admission.health().slots_taken == 0 && allocation::held() <= before + left_by_law() + BESIDE;
    Attacker::wait_until(let_go, "it is let go").await;
    let left = allocation::held().saturating_sub(before);
    Held { most, stalled, left, parked }
}

/// Garbage, oversize frames, as many streams as the slot may hold and more, each under a delegation of its own.
async fn refusals_streams_and_references(node: &Node, attacker: &mut Attacker, channels: &mut [Channel]) {
    for channel in channels.iter_mut() {
        channel.send(&[7; 300]).await;
        channel.send(&vec![0; 10 * FRAME_LIMIT]).await;
        let first = Attacker::small(node, &mut attacker.own, channel.lane);
        channel.send(&first).await;
    }
    for number in 0..160 {
        let channel = &mut channels[number % 4];
        let small = Attacker::small(node, &mut attacker.delegated(), channel.lane);
        channel.send(&small).await;
    }
    for channel in channels {
        channel.drained().await;
    }
    let shares = admission().shares;
    let health = node.admission.health();
    assert_eq!((health.streams, health.link_local_windows), ((shares.floor + shares.pool) as usize, 4));
}

/// More to be said about delegations than the control substream, which nobody reads, has room for.
async fn references_that_miss(node: &Node, attacker: &mut Attacker, channels: &mut [Channel]) {
    let content = attacker.own.content(node.did, b"\x02");
    let payload: Payload = attacker.own.sign(content, node.did, 0);
    for number in 0..4_400 {
        channels[number as usize % 4].send(&Attacker::referring(&payload, number)).await;
    }
    for channel in channels {
        channel.drained().await;
    }
}

/// As many bytes and messages as one link may have gathering, and then as many tombstones.
async fn messages(node: &Node, attacker: &mut Attacker, channels: &mut [Channel]) -> usize {
    const SLICE: usize = 32_000;
    let mut parked = 0;
    for message in 0..REASSEMBLY.link_messages as u16 {
        for index in 0..3 {
            let chunk = attacker.chunk(node, 1, message, index, SLICE);
            channels[1].send(&chunk).await;
            parked += SLICE;
        }
    }
    for message in 0..REASSEMBLY.link_ids as u16 {
        let chunk = attacker.chunk(node, 1, 1_000 + message, 0, 1);
        channels[1].send(&chunk).await;
    }
    channels[1].drained().await;
    parked
}

/// The node sends as much as it may to this peer, who takes nothing.
async fn outward(
    node: &Node,
    attacker: &mut Attacker,
    opened: libp2p_stream::IncomingStreams,
) -> (Vec<JoinHandle<()>>, Vec<libp2p::Stream>) {
    let to = attacker.raw.did;
    let senders = Class::ALL.map(|class| {
        let outbound = node.outbound.clone();
        node.runtime.spawn(async move {
            let mut settlements = Vec::new();
            for sequence in 0..30 {
                settlements.push(outbound.send(frame(to, class, sequence, 32_000)).await);
            }
        })
    });
    (senders.into(), attacker.take_nothing(opened).await)
}

fn run<T>(config: Config, test: impl AsyncFnOnce(&Node) -> T) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (counted, own, node) = start(config);
    let found = own.block_on(test(&node));
    drop((own, node));
    counted.shutdown_timeout(Duration::from_secs(5));
    found
}

#[test]
fn a_peer_that_does_all_it_may_makes_a_node_hold_no_more_than_the_documented_figure() {
    let figure = figure(&config());
    let held = run(config(), async |node| everything(node, false).await);
    println!("documented {figure}, {held:?}");
    assert!(held.most <= figure + BESIDE, "{held:?}, documented are {figure}");
    assert!(held.stalled <= held.most && held.stalled >= held.parked, "{held:?}");
    assert!(held.left <= left_by_law() + BESIDE, "{held:?}");
}

/// The check above can fail: here is a node whose peers have twice the credit that the figure is for.
#[test]
fn a_credit_past_what_the_figure_assumes_is_found_out() {
    let figure = figure(&config());
    let held = run(config().credit(32), async |node| everything(node, true).await);
    println!("documented {figure}, {held:?}");
    assert!(held.most > figure + BESIDE, "{held:?}, documented are {figure}");
}

/// While the swarm is held up, nobody hears of a channel that is refused. Whoever says so waits, and counts as one of the
/// connection's substreams meanwhile.
#[test]
fn substreams_that_are_refused_while_the_swarm_is_held_up_are_bounded() {
    /// Reports that wait, and substreams of a connection.
    const BOUND: usize = 64 + 10;
    let answered = run(config(), async |node| {
        let mut attacker = Attacker::start(node).await;
        let held_up = node.swarm.lock().await;
        let _channel = attacker.open(0).await;
        let mut answered = 0;
        while answered < 4 * BOUND && attacker.hail(0).await.is_some() {
            answered += 1;
        }
        drop(held_up);
        answered
    });
    assert!((BOUND / 2..=BOUND).contains(&answered), "{answered}");
}
