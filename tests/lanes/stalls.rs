//! Handlers, peers and receivers that do not get on, and that nobody else waits for them (laws L3.5 and L3.7).
//!
//! Real sockets and tokio's paused time do not go together: paused time passes whenever nothing is ready, and bytes on
//! their way through the system are not ready yet. So over TCP and QUIC a stall is held by an event, and its minutes
//! pass on the injected clock; and one test has its minutes of tokio's paused time, timers and all, over libp2p's memory
//! transport, where everything happens in the one runtime.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admit_one::{
    clock::{BootId, Clock, ManualClock, WallMs},
    lanes::{Behaviour, Config, DEFAULT_PROTOCOL, Fate, LossReason, Lost, SendRefused, Sending, Settlement},
    link::{Arrival, Frame},
    message::{Class, FRAME_LIMIT, Payload},
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, future::join_all, poll};
use libp2p::{
    SwarmBuilder, Transport as _,
    core::{transport::MemoryTransport, upgrade::Version},
    identify, noise, ping, yamux,
};
use tokio::sync::{mpsc, watch};
use tower::service_fn;

use crate::{
    both_transports,
    support::{Composed, Node, Options, Raw, Running, Transport, frame, frame_within, in_time, read, swarm},
};

both_transports! {
    l3_5_a_handler_stalled_for_minutes_on_one_class_holds_up_no_other,
    l3_5_a_slow_peer_holds_up_no_other_and_keeps_to_its_bounds,
    l3_5_two_ends_that_fill_every_lane_with_the_greatest_frames_do_not_stop_each_other,
    l3_7_a_receiver_that_stops_reading_costs_a_bounded_number_of_frames_and_no_other_peer,
}

/// A handler that takes frames over once `of` says so of the gate's value, and tells of each call.
fn gated(
    node: &mut Node,
    of: impl Fn(Class, u64, u64) -> bool + Clone + Send + Sync + 'static,
) -> (watch::Sender<u64>, mpsc::UnboundedReceiver<(Class, u64)>) {
    let (gate, gated) = watch::channel(0);
    let (called, calls) = mpsc::unbounded_channel();
    let service = service_fn(move |arrival: Arrival| {
        let (mut gated, called, of) = (gated.clone(), called.clone(), of.clone());
        async move {
            let (class, sequence) = read(&arrival);
            let _ = called.send((class, sequence));
            let _ = gated.wait_for(|gate| of(class, sequence, *gate)).await;
            drop(arrival);
            Ok::<_, std::convert::Infallible>(())
        }
    });
    tokio::spawn(node.incoming().serve(service));
    (gate, calls)
}

async fn with_clock(transport: Transport, clock: Arc<ManualClock>) -> Node {
    let (lanes, outbound, incoming) = Behaviour::new(Config::default(), clock);
    let running = Running::start(swarm(transport, Options::default(), lanes), transport, None, Some).await;
    Node { running, outbound, incoming: Some(incoming) }
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn l3_5_a_handler_stalled_for_minutes_on_one_class_holds_up_no_other(transport: Transport) {
    for stalled in Class::ALL {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let sender = with_clock(transport, clock.clone()).await;
        let mut receiver = with_clock(transport, clock.clone()).await;
        sender.know(&receiver);
        let (gate, mut calls) = gated(&mut receiver, move |class, _, gate| class != stalled || gate > 0);
        let send = |class, sequence, within| {
            in_time(sender.outbound.send(frame_within(receiver.did, class, sequence, 100, within)))
        };
        let mut held = Vec::new();
        for sequence in 0..100 {
            held.push(send(stalled, sequence, HOUR).await.unwrap());
        }
        for sequence in 0..8 {
            assert_eq!(in_time(calls.recv()).await, Some((stalled, sequence)));
        }
        // Ten minutes, with a burst of the others in each. None of these lives for as long as a minute.
        for minute in 0..10 {
            let mut sends = Vec::new();
            for sequence in 0..30 {
                for class in Class::ALL.into_iter().filter(|class| *class != stalled) {
                    sends.push(send(class, 30 * minute + sequence, Duration::from_secs(30)).await.unwrap());
                }
            }
            assert!(in_time(join_all(sends)).await.iter().all(Result::is_ok), "{stalled:?}, minute {minute}");
            clock.advance(Duration::from_secs(60));
        }
        while let Ok((class, _)) = calls.try_recv() {
            assert_ne!(class, stalled, "its window is full");
        }
        for settlement in &mut held {
            assert!(poll!(settlement).is_pending(), "{stalled:?}");
        }
        gate.send(1).unwrap();
        assert!(in_time(join_all(held)).await.iter().all(Result::is_ok), "{stalled:?}");
        for sequence in 8..100 {
            assert_eq!(in_time(calls.recv()).await, Some((stalled, sequence)));
        }
    }
}

async fn l3_5_a_slow_peer_holds_up_no_other_and_keeps_to_its_bounds(transport: Transport) {
    const WINDOW: usize = 8;
    const LANE: usize = 16;
    // What all may hold is little more than what the slow one's lanes would take if they could.
    let config = Config::default().lane_bound(LANE, 1024 * 1024).common_bound(4 * LANE, 8 * 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut slow = Node::start(transport).await;
    sender.know(&slow);
    let (gate, mut calls) = gated(&mut slow, |_, _, gate| gate > 0);
    let mut accepted = Vec::new();
    for sequence in 0..WINDOW as u64 {
        for class in Class::ALL {
            accepted.push(in_time(sender.outbound.send(frame(slow.did, class, sequence, 100))).await.unwrap());
        }
    }
    for _ in 0..4 * WINDOW {
        in_time(calls.recv()).await.unwrap();
    }
    // Its windows are full. From now on each of its lanes takes as many as its bound, and makes callers wait.
    let mut callers: Vec<Vec<Sending>> = Vec::new();
    for class in Class::ALL {
        let calls = (0..2 * LANE).map(|more| sender.outbound.send(frame(slow.did, class, (WINDOW + more) as u64, 100)));
        callers.push(calls.collect());
    }
    let mut fast = Vec::new();
    for _ in 0..3 {
        let mut node = Node::start(transport).await;
        sender.know(&node);
        let (_, calls) = gated(&mut node, |_, _, _| true);
        fast.push((node, calls));
    }
    let sending = fast.iter().flat_map(|(node, _)| Class::ALL.map(|class| (node.did, class))).map(|(to, class)| {
        let outbound = sender.outbound.clone();
        tokio::spawn(async move {
            let mut settlements = Vec::new();
            for sequence in 0..150 {
                settlements.push(outbound.send(frame(to, class, sequence, 1_000)).await.unwrap());
            }
            join_all(settlements).await
        })
    });
    for settled in join_all(sending.map(in_time)).await {
        assert!(settled.unwrap().iter().all(Result::is_ok), "a fast peer's sends settle during the stall");
    }
    assert!(calls.try_recv().is_err(), "the slow one has its windows and no frame more");
    let mut waiting = Vec::new();
    for calls in callers {
        let mut in_lane = 0;
        for mut call in calls {
            match poll!(&mut call) {
                std::task::Poll::Ready(settlement) => {
                    accepted.push(settlement.unwrap());
                    in_lane += 1;
                }
                std::task::Poll::Pending => waiting.push(call),
            }
        }
        assert!(in_lane <= LANE, "{in_lane} in one lane");
    }
    assert!(!waiting.is_empty());
    for settlement in &mut accepted {
        assert!(poll!(settlement).is_pending());
    }
    gate.send(1).unwrap();
    let waited = in_time(join_all(waiting)).await.into_iter().map(Result::unwrap);
    accepted.extend(waited);
    assert_eq!(accepted.len(), 4 * (WINDOW + 2 * LANE));
    assert!(in_time(join_all(accepted)).await.iter().all(Result::is_ok));
}

/// A frame of exactly the frame limit.
fn greatest(to: &Node, class: Class, sequence: u64) -> Frame {
    let mut length = FRAME_LIMIT;
    loop {
        let frame = frame(to.did, class, sequence, length);
        match frame.payload.encoded_len().checked_sub(FRAME_LIMIT) {
            None | Some(0) => return frame,
            Some(over) => length -= over,
        }
    }
}

async fn l3_5_two_ends_that_fill_every_lane_with_the_greatest_frames_do_not_stop_each_other(transport: Transport) {
    const FRAMES: u64 = 60;
    // 31 frames of 32 KiB a lane are four times what yamux takes of it unread.
    let options = || Options { config: Config::default().window(31).credit(32), ..Options::default() };
    let mut nodes = [Node::with(transport, options()).await, Node::with(transport, options()).await];
    nodes[0].know(&nodes[1]);
    assert_eq!(greatest(&nodes[0], Class::E2e, FRAMES).payload.encoded_len(), FRAME_LIMIT);
    // Each handler is done with a frame only once those of its class that its own node sent before it have settled,
    // and these wait in the same way for the other node's handlers.
    let gates: Vec<_> = nodes
        .iter_mut()
        .map(|node| {
            let (gates, gated): (Vec<_>, Vec<_>) = Class::ALL.iter().map(|_| watch::channel(0_u64)).unzip();
            let service = service_fn(move |arrival: Arrival| {
                let (class, sequence) = read(&arrival);
                let mut gated = gated[usize::from(class.lane())].clone();
                async move {
                    let _ = gated.wait_for(|settled| *settled >= sequence).await;
                    drop(arrival);
                    Ok::<_, std::convert::Infallible>(())
                }
            });
            tokio::spawn(node.incoming().serve(service));
            gates
        })
        .collect();
    let mut sending = Vec::new();
    for ((from, to), gates) in [(0, 1), (1, 0)].into_iter().zip(gates) {
        for (class, gate) in Class::ALL.into_iter().zip(gates) {
            let frames: Vec<_> = (0..FRAMES).map(|sequence| greatest(&nodes[to], class, sequence)).collect();
            let outbound = nodes[from].outbound.clone();
            sending.push(tokio::spawn(async move {
                let mut settlements = Vec::new();
                for frame in frames {
                    settlements.push(outbound.send(frame).await.unwrap());
                }
                for settlement in settlements {
                    assert_eq!(settlement.await, Ok(()));
                    gate.send_modify(|settled| *settled += 1);
                }
            }));
        }
    }
    for sent in sending {
        in_time(sent).await.unwrap();
    }
}

async fn l3_7_a_receiver_that_stops_reading_costs_a_bounded_number_of_frames_and_no_other_peer(transport: Transport) {
    const WINDOW: u8 = 31;
    const LANE: usize = 16;
    const LIFE: Duration = Duration::from_secs(4);
    let config = Config::default().window(WINDOW).lane_bound(LANE, 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let (mut deaf, mut good) = (Raw::start(transport).await, Node::start(transport).await);
    let mut channels = deaf.streams.accept(DEFAULT_PROTOCOL).unwrap();
    sender.know(&deaf);
    sender.know(&good);
    let _calls = gated(&mut good, |_, _, _| true);
    let began = Instant::now();
    let mut callers: Vec<Option<Sending>> = (0..200)
        .map(|sequence| Some(sender.outbound.send(frame_within(deaf.did, Class::E2e, sequence, 31_000, LIFE))))
        .collect();
    // The peer answers the hello, and reads no byte after it.
    let (_, mut stream) = in_time(channels.next()).await.unwrap();
    let mut hello = [0; 10];
    in_time(stream.read_exact(&mut hello)).await.unwrap();
    in_time(stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 0, 32])).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    let to_good = |sequence| Class::ALL.map(|class| sender.outbound.send(frame(good.did, class, sequence, 1_000)));
    for sequence in 0..20 {
        let sends = in_time(join_all(to_good(sequence))).await.into_iter().map(Result::unwrap);
        assert!(in_time(join_all(sends)).await.iter().all(Result::is_ok));
    }
    let mut settlements: Vec<Settlement> = Vec::new();
    for caller in &mut callers {
        if let std::task::Poll::Ready(sent) = poll!(caller.as_mut().unwrap()) {
            settlements.push(sent.unwrap());
            *caller = None;
        }
    }
    // Until the first is over, nothing but being written makes room; what is not accepted is its caller's.
    if began.elapsed() < LIFE {
        let accepted = settlements.len();
        assert!((LANE..=usize::from(WINDOW) + LANE).contains(&accepted), "{accepted} frames held");
    }
    let expired = |fate| Lost { reason: LossReason::Expired, fate };
    let mut written = 0;
    for caller in callers.into_iter().flatten() {
        match in_time(caller).await {
            Ok(settlement) => settlements.push(settlement),
            Err(refused) => assert_eq!(refused, SendRefused::Lost(expired(Fate::NeverWritten))),
        }
    }
    for settled in in_time(join_all(settlements)).await {
        let lost = settled.expect_err("nothing was taken over");
        assert_eq!(lost.reason, LossReason::Expired);
        written += usize::from(lost.fate == Fate::MayHaveBeenReceived);
    }
    assert!((1..=usize::from(WINDOW)).contains(&written), "{written} written");
    let sends = in_time(join_all(to_good(20))).await.into_iter().map(Result::unwrap);
    assert!(in_time(join_all(sends)).await.iter().all(Result::is_ok));
    // The connection is still there. Once the peer reads and takes over what it has, it is sent to again.
    let mut last = in_time(sender.outbound.send(frame(deaf.did, Class::E2e, 999, 10))).await.unwrap();
    let mut count = 0_u64;
    loop {
        let mut length = [0; 4];
        in_time(stream.read_exact(&mut length)).await.unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        in_time(stream.read_exact(&mut bytes)).await.unwrap();
        count += 1;
        assert!(poll!(&mut last).is_pending());
        in_time(stream.write_all(&count.to_be_bytes())).await.unwrap();
        in_time(stream.flush()).await.unwrap();
        if Payload::decode(bytes.into(), FRAME_LIMIT).unwrap().transaction.content.sequence == 999 {
            break;
        }
    }
    assert_eq!(count, written as u64 + 1, "what was taken to be written is all that came");
    assert_eq!(in_time(last).await, Ok(()));
}

/// Tokio's time, paused or not.
#[derive(Debug)]
struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn wall(&self) -> WallMs {
        1_700_000_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn boot(&self) -> Option<BootId> {
        None
    }
}

/// A node on libp2p's memory transport.
async fn in_memory(clock: Arc<TokioClock>) -> Node {
    let (lanes, outbound, incoming) = Behaviour::new(Config::default(), clock);
    let swarm = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_other_transport(|key| {
            let noise = noise::Config::new(key).unwrap();
            MemoryTransport::default().upgrade(Version::V1).authenticate(noise).multiplex(yamux::Config::default())
        })
        .unwrap()
        .with_behaviour(|key| Composed {
            lanes,
            identify: identify::Behaviour::new(identify::Config::new("/lanes-test/1".into(), key.public())),
            ping: ping::Behaviour::new(ping::Config::new()),
        })
        .unwrap()
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(600)))
        .build();
    let at = Some("/memory/0".parse().unwrap());
    let running = Running::start(swarm, Transport::Tcp, at, Some).await;
    Node { running, outbound, incoming: Some(incoming) }
}

/// Ten minutes of paused time, every timer of the lanes with them, in one thread.
#[tokio::test(start_paused = true)]
async fn l3_5_l3_7_a_stall_of_minutes_of_paused_time_expires_its_own_frames_and_no_others() {
    const STALLED: Class = Class::DhtControl;
    let clock = Arc::new(TokioClock(tokio::time::Instant::now()));
    let (sender, mut receiver) = (in_memory(clock.clone()).await, in_memory(clock.clone()).await);
    sender.know(&receiver);
    let (gate, mut calls) = gated(&mut receiver, |class, _, gate| class != STALLED || gate > 0);
    let minute = Duration::from_secs(60);
    let mut held = Vec::new();
    for sequence in 0..20 {
        held.push(sender.outbound.send(frame_within(receiver.did, STALLED, sequence, 100, minute)).await.unwrap());
    }
    for sequence in 0..8 {
        assert_eq!(calls.recv().await, Some((STALLED, sequence)));
    }
    for second in 0..600 {
        let before = clock.monotonic();
        let sends: Vec<_> = Class::ALL
            .into_iter()
            .filter(|class| *class != STALLED)
            .map(|class| sender.outbound.send(frame_within(receiver.did, class, second, 100, minute)))
            .collect();
        let sends = join_all(sends).await.into_iter().map(Result::unwrap);
        assert!(join_all(sends).await.iter().all(Result::is_ok));
        // Were any of it to wait for the stall, or for a timer, time would have passed.
        assert_eq!(clock.monotonic(), before);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let fates: Vec<_> = join_all(held).await.into_iter().map(Result::unwrap_err).collect();
    assert!(fates.iter().all(|lost| lost.reason == LossReason::Expired));
    let written = |lost: &Lost| lost.fate == Fate::MayHaveBeenReceived;
    assert!(fates[..8].iter().all(written) && !fates[8..].iter().any(written), "{fates:?}");
    // The stalled lane still has its window taken, and goes on once the handler does.
    let late = sender.outbound.send(frame_within(receiver.did, STALLED, 20, 100, minute)).await.unwrap();
    gate.send(1).unwrap();
    assert_eq!(late.await, Ok(()));
}
