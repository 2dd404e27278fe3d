//! Backpressure, and every way in which a send is lost, each exactly once (law L3.7).

use std::{task::Poll, time::Duration};

use admit_one::{
    identity::KeySigner,
    lanes::{Config, Event, Fate, LossReason, Lost, Outbound, SendRefused, Settlement},
    link::{Arrival, CreditGuard, Frame},
    message::{Class, FRAME_LIMIT, FrameTooLarge, Payload},
};
use futures::{FutureExt, StreamExt, future::join_all, poll};
use tokio::sync::oneshot;
use tower::Service;

use crate::{
    both_transports,
    support::{Node, Options, Raw, Seen, Transport, frame, frame_within, full_window, in_time, read},
};

both_transports! {
    l3_7_a_full_queue_makes_the_caller_wait_and_nothing_is_dropped,
    l3_7_a_dropped_caller_takes_its_frame_out_of_the_line,
    l3_7_link_closed_while_in_flight_may_have_been_received,
    l3_7_expired_behind_a_full_window_was_never_written,
    l3_7_expired_in_flight_may_have_been_received_and_keeps_its_place_in_the_window,
    l3_7_two_handlers_that_send_to_each_other_do_not_stop_for_ever,
    l3_4_a_forward_in_flight_gives_its_credit_back_when_its_life_is_over,
    l3_7_not_connected_was_never_written,
    l3_7_a_caller_that_waits_for_room_is_refused_when_its_time_is_over,
    l3_7_unsupported_by_a_peer_without_the_protocol,
    l3_7_unsupported_by_a_peer_that_takes_no_channels,
    l3_7_shutdown_loses_what_is_queued_and_what_is_in_flight_with_what_is_known,
    l3_7_shutdown_drains_what_settles_in_time,
    l3_7_a_dropped_swarm_loses_everything_once,
    l3_9_a_forward_not_written_in_time_gives_its_credit_back,
    forwards_to_anywhere_leave_half_the_peers_to_the_nodes_own_sends,
    an_oversize_frame_and_a_peer_past_the_bound_are_refused,
}

const SOON: Duration = Duration::from_millis(100);

async fn send(outbound: &Outbound, frame: Frame) -> Settlement {
    in_time(outbound.send(frame)).await.unwrap()
}

fn never_written(reason: LossReason) -> Lost {
    Lost { reason, fate: Fate::NeverWritten }
}

fn maybe_received(reason: LossReason) -> Lost {
    Lost { reason, fate: Fate::MayHaveBeenReceived }
}

async fn l3_7_a_full_queue_makes_the_caller_wait_and_nothing_is_dropped(transport: Transport) {
    let config = Config::default().lane_bound(4, 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut receiver = Node::start(transport).await;
    let mut outbound = sender.outbound.clone();
    // Calls, not polls, take places.
    let mut calls: Vec<_> =
        (0..10).map(|sequence| outbound.call(frame(receiver.did, Class::E2e, sequence, 10))).collect();
    for call in calls.iter_mut().rev() {
        let _ = poll!(call);
    }
    let mut other = Box::pin(sender.outbound.send(frame(receiver.did, Class::Storage, 0, 10)));
    assert!(poll!(&mut other).is_ready(), "another lane has room of its own");
    // Nothing is connected, so exactly the queue's bound is accepted.
    let waiting: Vec<bool> = {
        let mut waiting = Vec::new();
        for sequence in 10..13 {
            waiting.push(poll!(&mut outbound.call(frame(receiver.did, Class::E2e, sequence, 10))).is_pending());
        }
        waiting
    };
    assert_eq!(waiting, [true; 3]);
    sender.know(&receiver);
    let serving = async {
        let mut sequences = Vec::new();
        let mut incoming = receiver.incoming();
        let mut inbound = loop {
            let inbound = in_time(incoming.next()).await.unwrap();
            if inbound.channel().index == Class::E2e.lane() {
                break inbound;
            }
        };
        while sequences.len() < 10 {
            sequences.push(read(&in_time(inbound.next()).await.unwrap()).1);
        }
        sequences
    };
    let mut settling = Vec::new();
    let accepting = async {
        for call in calls.into_iter().skip(4) {
            settling.push(in_time(call).await.unwrap());
        }
    };
    let (sequences, ()) = tokio::join!(serving, accepting);
    assert_eq!(sequences, (0..10).collect::<Vec<_>>());
}

async fn l3_7_a_dropped_caller_takes_its_frame_out_of_the_line(transport: Transport) {
    let config = Config::default().lane_bound(1, 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut receiver = Node::start(transport).await;
    let mut outbound = sender.outbound.clone();
    let mut calls: Vec<_> =
        (0..3).map(|sequence| outbound.call(frame(receiver.did, Class::E2e, sequence, 10))).collect();
    assert!(poll!(&mut calls[1]).is_pending());
    drop(calls.remove(1));
    sender.know(&receiver);
    let mut inbound = receiver.channel().await;
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 0);
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 2);
    for call in calls {
        assert_eq!(in_time(in_time(call).await.unwrap()).await, Ok(()));
    }
}

async fn l3_7_link_closed_while_in_flight_may_have_been_received(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let settlement = send(&sender.outbound, frame(receiver.did, Class::E2e, 1, 10)).await;
    let mut inbound = receiver.channel().await;
    let _held = in_time(inbound.next()).await.unwrap();
    sender.disconnect(receiver.peer);
    assert_eq!(in_time(settlement).await, Err(maybe_received(LossReason::LinkClosed)));
    assert!(in_time(inbound.next()).await.is_none(), "the channel ends with its connection");
}

async fn l3_7_expired_behind_a_full_window_was_never_written(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (in_flight, held, mut inbound) = full_window(&sender, &mut receiver, 8).await;
    let late = send(&sender.outbound, frame_within(receiver.did, Class::E2e, 8, 10, SOON)).await;
    let patient = send(&sender.outbound, frame(receiver.did, Class::E2e, 9, 10)).await;
    assert_eq!(in_time(late).await, Err(never_written(LossReason::Expired)));
    drop(held);
    assert!(in_time(join_all(in_flight)).await.iter().all(Result::is_ok));
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 9);
    assert_eq!(in_time(patient).await, Ok(()));
}

/// Long enough that a frame to a connected peer is written in it, whatever else the machine does.
const LIFE: Duration = Duration::from_secs(2);

async fn l3_7_expired_in_flight_may_have_been_received_and_keeps_its_place_in_the_window(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (in_flight, mut held, mut inbound) = full_window(&sender, &mut receiver, 8).await;
    held.pop();
    held.drain(..7).for_each(drop);
    assert!(in_time(join_all(in_flight)).await.iter().all(Result::is_ok));
    let mut sends = Vec::new();
    for sequence in 8..16 {
        sends.push(send(&sender.outbound, frame_within(receiver.did, Class::E2e, sequence, 10, LIFE)).await);
        held.push(in_time(inbound.next()).await.unwrap());
    }
    // The receiver never takes them over.
    for settled in in_time(join_all(sends)).await {
        assert_eq!(settled, Err(maybe_received(LossReason::Expired)));
    }
    let late = send(&sender.outbound, frame_within(receiver.did, Class::E2e, 16, 10, SOON)).await;
    assert_eq!(in_time(late).await, Err(never_written(LossReason::Expired)), "the window is full all the same");
    // Their late credits settle nothing twice, and make room.
    held.clear();
    let next = send(&sender.outbound, frame(receiver.did, Class::E2e, 17, 10)).await;
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 17);
    assert_eq!(in_time(next).await, Ok(()));
}

async fn l3_7_two_handlers_that_send_to_each_other_do_not_stop_for_ever(transport: Transport) {
    let mut nodes = [Node::start(transport).await, Node::start(transport).await];
    nodes[0].know(&nodes[1]);
    nodes[1].know(&nodes[0]);
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let others = [nodes[1].did, nodes[0].did];
    for (node, other) in nodes.iter_mut().zip(others) {
        let (outbound, done) = (node.outbound.clone(), done.clone());
        // Each call sends to the other node, and goes on once that took it over.
        let service = tower::service_fn(move |arrival: Arrival| {
            let (outbound, done) = (outbound.clone(), done.clone());
            async move {
                let _held = arrival;
                let sent = outbound.send(frame_within(other, Class::E2e, 1, 10, LIFE)).await.unwrap().await;
                let _ = done.send(sent);
                Ok::<_, std::convert::Infallible>(())
            }
        });
        tokio::spawn(node.incoming().serve(service));
    }
    for (node, other) in nodes.iter().zip(others) {
        drop(send(&node.outbound, frame(other, Class::E2e, 0, 10)).await);
    }
    for _ in 0..4 {
        in_time(finished.recv()).await.unwrap().ok();
    }
}

async fn l3_4_a_forward_in_flight_gives_its_credit_back_when_its_life_is_over(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (given_back, credit) = oneshot::channel();
    let mut forward = frame_within(receiver.did, Class::E2e, 8, 10, LIFE);
    forward.inbound = Some(CreditGuard::new(move || {
        let _ = given_back.send(());
    }));
    let settlement = send(&sender.outbound, forward).await;
    let mut inbound = receiver.channel().await;
    let _held = in_time(inbound.next()).await.unwrap();
    assert_eq!(in_time(settlement).await, Err(maybe_received(LossReason::Expired)));
    assert_eq!(in_time(credit).await, Ok(()));
}

async fn l3_7_not_connected_was_never_written(transport: Transport) {
    let (sender, receiver) = (Node::start(transport).await, Node::start(transport).await);
    // No address is known.
    let settlement = send(&sender.outbound, frame_within(receiver.did, Class::E2e, 1, 10, SOON)).await;
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::NotConnected)));
    // One is, and nobody answers there.
    sender.know(&receiver);
    let did = receiver.did;
    receiver.running.kill().await;
    let settlement = send(&sender.outbound, frame_within(did, Class::E2e, 1, 10, SOON)).await;
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::NotConnected)));
}

async fn l3_7_a_caller_that_waits_for_room_is_refused_when_its_time_is_over(transport: Transport) {
    let config = Config::default().lane_bound(1, 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let receiver = Node::start(transport).await;
    let _queued = send(&sender.outbound, frame(receiver.did, Class::E2e, 0, 10)).await;
    let refused = in_time(sender.outbound.send(frame_within(receiver.did, Class::E2e, 1, 10, SOON))).await;
    assert_eq!(refused.unwrap_err(), SendRefused::Lost(never_written(LossReason::NotConnected)));
}

async fn l3_7_unsupported_by_a_peer_without_the_protocol(transport: Transport) {
    let mut sender = Node::start(transport).await;
    let receiver = Raw::start(transport).await;
    sender.know(&receiver);
    let sends = (0..20).map(|sequence| sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10)));
    let settlements = in_time(join_all(sends)).await.into_iter().map(Result::unwrap);
    for settled in in_time(join_all(settlements)).await {
        assert_eq!(settled, Err(never_written(LossReason::Unsupported)));
    }
    let said = sender.until(|seen| match seen {
        Seen::Lanes(event @ Event::Unsupported { .. }) => Some(event),
        _ => None,
    });
    assert!(matches!(said.await, Event::Unsupported { peer, .. } if peer == receiver.peer));
    // And again, at once, for what is sent later.
    let settlement = send(&sender.outbound, frame(receiver.did, Class::Storage, 1, 10)).await;
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::Unsupported)));
}

async fn l3_7_unsupported_by_a_peer_that_takes_no_channels(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    drop(receiver.incoming());
    sender.know(&receiver);
    let settlement = send(&sender.outbound, frame(receiver.did, Class::E2e, 1, 10)).await;
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::Unsupported)));
}

async fn l3_7_shutdown_loses_what_is_queued_and_what_is_in_flight_with_what_is_known(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (in_flight, _held, _inbound) = full_window(&sender, &mut receiver, 8).await;
    let queued = send(&sender.outbound, frame(receiver.did, Class::E2e, 8, 10)).await;
    assert_eq!(in_time(sender.outbound.shutdown(SOON)).await, 9);
    assert_eq!(in_time(queued).await, Err(never_written(LossReason::Shutdown)));
    for settled in in_time(join_all(in_flight)).await {
        assert_eq!(settled, Err(maybe_received(LossReason::Shutdown)));
    }
    let refused = sender.outbound.send(frame(receiver.did, Class::E2e, 9, 10)).now_or_never().unwrap();
    assert_eq!(refused.unwrap_err(), SendRefused::Lost(never_written(LossReason::Shutdown)));
}

async fn l3_7_shutdown_drains_what_settles_in_time(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let sends = (0..200).map(|sequence| sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10)));
    let settlements: Vec<_> = in_time(join_all(sends)).await.into_iter().map(Result::unwrap).collect();
    let incoming = receiver.incoming();
    tokio::spawn(incoming.for_each_concurrent(None, |inbound| inbound.for_each(|_| async {})));
    assert_eq!(in_time(sender.outbound.shutdown(crate::support::FAILURE)).await, 0);
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}

async fn l3_7_a_dropped_swarm_loses_everything_once(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (in_flight, _held, _inbound) = full_window(&sender, &mut receiver, 8).await;
    let queued = send(&sender.outbound, frame(receiver.did, Class::E2e, 8, 10)).await;
    let outbound = sender.outbound.clone();
    sender.running.kill().await;
    assert_eq!(in_time(queued).await, Err(never_written(LossReason::Shutdown)));
    for settled in in_time(join_all(in_flight)).await {
        assert!(matches!(settled, Err(Lost { fate: Fate::MayHaveBeenReceived, .. })), "{settled:?}");
    }
    let refused = outbound.send(frame(receiver.did, Class::E2e, 9, 10)).now_or_never().unwrap();
    assert_eq!(refused.unwrap_err(), SendRefused::Lost(never_written(LossReason::Shutdown)));
}

async fn l3_9_a_forward_not_written_in_time_gives_its_credit_back(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (_in_flight, _held, _inbound) = full_window(&sender, &mut receiver, 8).await;
    let (given_back, mut credit) = oneshot::channel();
    let mut forward = frame_within(receiver.did, Class::E2e, 8, 10, SOON);
    forward.inbound = Some(CreditGuard::new(move || {
        let _ = given_back.send(());
    }));
    let settlement = send(&sender.outbound, forward).await;
    assert_eq!(poll!(&mut credit), Poll::Pending);
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::ForwardQueueFull)));
    assert_eq!(in_time(credit).await, Ok(()));
}

async fn forwards_to_anywhere_leave_half_the_peers_to_the_nodes_own_sends(transport: Transport) {
    let config = Config::default().peer_bound(4);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut waiting = Vec::new();
    let mut forward = || {
        let mut forward = frame(KeySigner::generate().key(), Class::E2e, 0, 10);
        forward.inbound = Some(CreditGuard::new(|| {}));
        let sent = sender.outbound.send(forward).now_or_never().unwrap();
        sent.map(|settlement| waiting.push(settlement))
    };
    assert_eq!((forward(), forward()), (Ok(()), Ok(())));
    assert_eq!(forward(), Err(SendRefused::TooManyPeers { bound: 2 }));
    for _ in 0..2 {
        let own = frame(KeySigner::generate().key(), Class::E2e, 0, 10);
        waiting.push(sender.outbound.send(own).now_or_never().unwrap().unwrap());
    }
    let own = sender.outbound.send(frame(KeySigner::generate().key(), Class::E2e, 0, 10)).now_or_never().unwrap();
    assert_eq!(own.unwrap_err(), SendRefused::TooManyPeers { bound: 4 });
}

async fn an_oversize_frame_and_a_peer_past_the_bound_are_refused(transport: Transport) {
    let config = Config::default().peer_bound(1);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let (one, two) = (Node::start(transport).await, Node::start(transport).await);
    let large = frame(one.did, Class::E2e, 0, FRAME_LIMIT);
    let length = Payload::encoded_len(&large.payload);
    let refused = sender.outbound.send(large).now_or_never().unwrap().unwrap_err();
    assert_eq!(refused, SendRefused::TooLarge(FrameTooLarge { length, limit: FRAME_LIMIT }));
    let _queued = send(&sender.outbound, frame(one.did, Class::E2e, 0, 10)).await;
    let refused = sender.outbound.send(frame(two.did, Class::E2e, 0, 10)).now_or_never().unwrap().unwrap_err();
    assert_eq!(refused, SendRefused::TooManyPeers { bound: 1 });
}
