//! Order, pools, window, credit and independence (laws L3.1 to L3.5).

use std::{collections::HashMap, future::pending, task::Poll};

use admit_one::{
    lanes::{Config, Inbound},
    link::Arrival,
    message::Class,
};
use futures::{StreamExt, future::join_all, poll};
use tower::service_fn;

use crate::{
    both_transports,
    support::{Node, Options, Transport, frame, in_time, read},
};

both_transports! {
    a_frame_settles_when_its_guard_drops,
    l3_2_order_is_kept_in_each_lane_over_thousands_of_frames,
    l3_1_order_is_kept_per_class_at_every_pool_size,
    l3_3_the_window_is_never_exceeded,
    l3_3_the_advertised_credit_is_never_exceeded,
    l3_3_the_greatest_window_and_credit_work,
    l3_4_credit_waits_for_the_oldest_frame,
    a_call_that_panics_costs_its_frame_alone,
    l3_5_a_stalled_handler_on_one_channel_leaves_the_others_alone,
}

async fn a_frame_settles_when_its_guard_drops(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let mut settlement = sender.outbound.send(frame(receiver.did, Class::E2e, 7, 10)).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!((inbound.peer(), inbound.channel().index, inbound.credit()), (sender.peer, Class::E2e.lane(), 16));
    let arrival: Arrival = in_time(inbound.next()).await.unwrap();
    assert_eq!(read(&arrival), (Class::E2e, 7));
    assert_eq!((arrival.peer, arrival.channel), (sender.peer, Some(inbound.channel())));
    assert!(arrival.read_at.is_some());
    assert_eq!(poll!(&mut settlement), Poll::Pending);
    drop(arrival);
    assert_eq!(in_time(settlement).await, Ok(()));
}

/// Reads `count` frames off every channel as they come, and gives each class's sequences in their order.
async fn collect(receiver: &mut Node, count: usize) -> HashMap<Class, Vec<u64>> {
    let (found, mut finds) = tokio::sync::mpsc::unbounded_channel();
    let incoming = receiver.incoming();
    let serving = tokio::spawn(incoming.for_each_concurrent(None, move |mut inbound| {
        let found = found.clone();
        async move {
            while let Some(arrival) = inbound.next().await {
                let (class, sequence) = read(&arrival);
                assert!(inbound.channel().carries(class.lane()));
                let _ = found.send((class, sequence));
            }
        }
    }));
    let mut sequences: HashMap<Class, Vec<u64>> = HashMap::new();
    for _ in 0..count {
        let (class, sequence) = in_time(finds.recv()).await.unwrap();
        sequences.entry(class).or_default().push(sequence);
    }
    serving.abort();
    sequences
}

/// Sends `count` frames in each lane, one sender a lane, and checks that they come in order and settle.
async fn order(transport: Transport, config: Config, count: u64) {
    let options = || Options { config: config.clone(), ..Options::default() };
    let (sender, mut receiver) = (Node::with(transport, options()).await, Node::with(transport, options()).await);
    sender.know(&receiver);
    let sending = Class::ALL.map(|class| {
        let (outbound, next_hop) = (sender.outbound.clone(), receiver.did);
        tokio::spawn(async move {
            let mut settlements = Vec::new();
            for sequence in 0..count {
                // Sizes from a few bytes to the frame limit.
                let length = if sequence % 97 == 0 { 31_000 } else { 1 + (sequence as usize * 37) % 1_500 };
                settlements.push(outbound.send(frame(next_hop, class, sequence, length)).await.unwrap());
            }
            join_all(settlements).await
        })
    });
    let sequences = collect(&mut receiver, count as usize * Class::ALL.len()).await;
    let in_order: Vec<u64> = (0..count).collect();
    for class in Class::ALL {
        assert_eq!(sequences[&class], in_order, "{class:?}");
    }
    for settled in sending {
        assert!(in_time(settled).await.unwrap().iter().all(Result::is_ok));
    }
}

async fn l3_2_order_is_kept_in_each_lane_over_thousands_of_frames(transport: Transport) {
    order(transport, Config::default(), 5_000).await;
}

async fn l3_1_order_is_kept_per_class_at_every_pool_size(transport: Transport) {
    for pool in 1..=4 {
        order(transport, Config::default().pool(pool), 300).await;
    }
}

/// Holds every guard, and checks that exactly `bound` frames are in flight, then one more for each that is let go.
async fn in_flight(transport: Transport, window: u8, credit: u8, bound: usize) {
    let options = |config| Options { config, ..Options::default() };
    let sender = Node::with(transport, options(Config::default().window(window))).await;
    let mut receiver = Node::with(transport, options(Config::default().credit(credit))).await;
    sender.know(&receiver);
    for sequence in 0..3 * bound as u64 {
        drop(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10)).await.unwrap());
    }
    let mut inbound = receiver.channel().await;
    take_the_rest(&mut receiver);
    let mut held = Vec::new();
    for _ in 0..bound {
        held.push(in_time(inbound.next()).await.unwrap());
    }
    for round in 0..2 * bound {
        nothing_more(&sender, &receiver, &mut inbound).await;
        held.remove(0);
        let arrival = in_time(inbound.next()).await.unwrap();
        assert_eq!(read(&arrival).1, (bound + round) as u64);
        held.push(arrival);
    }
    nothing_more(&sender, &receiver, &mut inbound).await;
}

/// Takes whatever comes on the channels not taken yet.
fn take_the_rest(receiver: &mut Node) {
    let rest = receiver.incoming();
    tokio::spawn(rest.for_each_concurrent(None, |other| other.for_each(|_| async {})));
}

/// Another lane goes all the way round, so that whatever else this one sent would have come.
async fn nothing_more(sender: &Node, receiver: &Node, inbound: &mut Inbound) {
    let settled = sender.outbound.send(frame(receiver.did, Class::Storage, 0, 10)).await.unwrap();
    assert_eq!(in_time(settled).await, Ok(()));
    assert!(poll!(inbound.next()).is_pending());
}

async fn l3_3_the_window_is_never_exceeded(transport: Transport) {
    in_flight(transport, 8, 16, 8).await;
}

async fn l3_3_the_advertised_credit_is_never_exceeded(transport: Transport) {
    in_flight(transport, 8, 3, 3).await;
}

async fn l3_3_the_greatest_window_and_credit_work(transport: Transport) {
    in_flight(transport, 31, 32, 31).await;
}

async fn l3_4_credit_waits_for_the_oldest_frame(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let mut settlements = Vec::new();
    for sequence in 0..8 {
        settlements.push(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10)).await.unwrap());
    }
    let mut inbound = receiver.channel().await;
    take_the_rest(&mut receiver);
    let oldest = in_time(inbound.next()).await.unwrap();
    for _ in 1..8 {
        drop(in_time(inbound.next()).await.unwrap());
    }
    nothing_more(&sender, &receiver, &mut inbound).await;
    for settlement in &mut settlements {
        assert!(poll!(settlement).is_pending(), "a later frame settled before the oldest");
    }
    drop(oldest);
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}

async fn a_call_that_panics_costs_its_frame_alone(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (gate, gated) = tokio::sync::watch::channel(false);
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |arrival: Arrival| {
        let (mut gated, done) = (gated.clone(), done.clone());
        async move {
            let (_, sequence) = read(&arrival);
            assert_ne!(sequence, 3, "this panic is part of the test");
            gated.wait_for(|open| *open).await.unwrap();
            done.send(sequence).unwrap();
            drop(arrival);
            Ok::<_, std::convert::Infallible>(())
        }
    });
    tokio::spawn(receiver.incoming().serve(service));
    let mut sends = Vec::new();
    for sequence in 0..8 {
        sends.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    // The credit of the one that panicked comes with that of those before it; all others are still in progress.
    gate.send(true).unwrap();
    for send in sends {
        assert_eq!(in_time(send).await, Ok(()));
    }
    let mut served = Vec::new();
    for _ in 0..7 {
        served.push(in_time(finished.recv()).await.unwrap());
    }
    served.sort_unstable();
    assert_eq!(served, [0, 1, 2, 4, 5, 6, 7]);
}

async fn l3_5_a_stalled_handler_on_one_channel_leaves_the_others_alone(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let service = service_fn(|arrival: Arrival| async move {
        if read(&arrival).0 == Class::Storage {
            pending::<()>().await;
        }
        Ok::<_, std::convert::Infallible>(())
    });
    tokio::spawn(receiver.incoming().serve(service));
    // More than its window and its queue hold, so that it stands still altogether.
    let stalled = {
        let (outbound, next_hop) = (sender.outbound.clone(), receiver.did);
        tokio::spawn(async move {
            for sequence in 0..1_000 {
                let _ = outbound.send(frame(next_hop, Class::Storage, sequence, 10)).await;
            }
        })
    };
    for sequence in 0..500 {
        let others = [Class::DhtControl, Class::E2e, Class::Application]
            .map(|class| sender.outbound.send(frame(receiver.did, class, sequence, 10)));
        let settlements = in_time(join_all(others)).await.into_iter().map(Result::unwrap);
        assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    }
    assert!(!stalled.is_finished());
    stalled.abort();
}
