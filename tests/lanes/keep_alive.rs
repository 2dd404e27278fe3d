//! Which work keeps a connection, at either end, and that nothing else does. Each node's idle timeout stands alone: the
//! other's is long.

use std::time::Duration;

use admit_one::{
    lanes::{Fate, LossReason, Lost},
    message::Class,
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};

use crate::{
    both_transports,
    support::{Node, Options, Raw, Running, Seen, Transport, frame, frame_within, in_time},
};

both_transports! {
    a_queued_frame_keeps_its_connection_and_once_it_settled_nothing_does,
    a_frame_in_flight_keeps_its_connection_and_once_it_settled_nothing_does,
    a_frame_that_came_in_keeps_its_connection_until_it_is_taken_over,
    a_frame_that_expired_in_flight_keeps_nothing_any_more,
    open_lanes_with_nothing_in_them_keep_nothing,
    work_again_before_the_timeout_keeps_the_same_connection,
}

const IDLE: Duration = Duration::from_millis(300);

/// A node with the short timeout, which pings to see time pass. A ping keeps nothing alive.
async fn hasty(transport: Transport) -> Node {
    Node::with(transport, Options { idle: IDLE, ping_every: IDLE / 4, ..Options::default() }).await
}

/// A node with the long timeout, which pings as often: over QUIC its answers to pings may wait until it has more to say.
async fn patient(transport: Transport) -> Node {
    Node::with(transport, Options { ping_every: IDLE / 4, ..Options::default() }).await
}

/// Five of its idle timeouts later the node still has its connection.
async fn stays(node: &mut Running) {
    let mut last = tokio::time::Instant::now();
    let until = last + 5 * IDLE;
    while last < until {
        let there = node.until(|seen| match seen {
            Seen::Pinged(_) => Some(true),
            Seen::Disconnected(_) => Some(false),
            _ => None,
        });
        assert!(there.await, "the connection was closed with work on it");
        last = tokio::time::Instant::now();
    }
}

async fn closes(node: &mut Running) {
    node.until(|seen| matches!(seen, Seen::Disconnected(_)).then_some(())).await;
}

async fn a_queued_frame_keeps_its_connection_and_once_it_settled_nothing_does(transport: Transport) {
    let (mut sender, mut receiver) = (hasty(transport).await, patient(transport).await);
    sender.know(&receiver);
    // The receiver takes no channel yet, so that the frame stays in its lane.
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    stays(&mut sender).await;
    let mut inbound = receiver.channel().await;
    drop(in_time(inbound.next()).await.unwrap());
    assert_eq!(in_time(settlement).await, Ok(()));
    closes(&mut sender).await;
}

async fn a_frame_in_flight_keeps_its_connection_and_once_it_settled_nothing_does(transport: Transport) {
    let (mut sender, mut receiver) = (hasty(transport).await, patient(transport).await);
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    let held = in_time(inbound.next()).await.unwrap();
    stays(&mut sender).await;
    drop(held);
    assert_eq!(in_time(settlement).await, Ok(()));
    closes(&mut sender).await;
}

async fn a_frame_that_came_in_keeps_its_connection_until_it_is_taken_over(transport: Transport) {
    let (sender, mut receiver) = (patient(transport).await, hasty(transport).await);
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    // Whoever holds its credit guard holds the frame, whatever became of the rest of it.
    let mut arrival = in_time(inbound.next()).await.unwrap();
    let guard = arrival.credit.take();
    drop(arrival);
    stays(&mut receiver).await;
    drop(guard);
    assert_eq!(in_time(settlement).await, Ok(()));
    closes(&mut receiver).await;
}

async fn a_frame_that_expired_in_flight_keeps_nothing_any_more(transport: Transport) {
    let (mut sender, mut receiver) = (hasty(transport).await, patient(transport).await);
    sender.know(&receiver);
    // Long enough to be written by a machine that does much else.
    let life = Duration::from_secs(2);
    let settlement = in_time(sender.outbound.send(frame_within(receiver.did, Class::E2e, 0, 10, life))).await.unwrap();
    let mut inbound = receiver.channel().await;
    let _held = in_time(inbound.next()).await.unwrap();
    let lost = Lost { reason: LossReason::Expired, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(settlement).await, Err(lost));
    closes(&mut sender).await;
}

async fn open_lanes_with_nothing_in_them_keep_nothing(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, hasty(transport).await);
    opener.connect(&mut receiver).await;
    let (mut streams, mut channels) = (Vec::new(), Vec::new());
    for index in 0..4 {
        let mut stream = opener.open(receiver.peer).await;
        in_time(stream.write_all(&[[index, 4].as_slice(), &7_u64.to_be_bytes()].concat())).await.unwrap();
        in_time(stream.flush()).await.unwrap();
        channels.push(receiver.channel().await);
        let mut answer = [0; 9];
        in_time(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer[0], 0);
        streams.push(stream);
    }
    closes(&mut receiver).await;
    for mut channel in channels {
        assert!(in_time(channel.next()).await.is_none());
    }
}

async fn work_again_before_the_timeout_keeps_the_same_connection(transport: Transport) {
    let (mut sender, mut receiver) = (hasty(transport).await, patient(transport).await);
    sender.know(&receiver);
    let first = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    let held = in_time(inbound.next()).await.unwrap();
    // The next is there before the one before settles, for three timeouts: at no time is there nothing.
    let (mut held, mut settlement) = (held, first);
    for sequence in 1..=12 {
        sender.until(|seen| matches!(seen, Seen::Pinged(_)).then_some(())).await;
        let next = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap();
        let arrival = in_time(inbound.next()).await.expect("the channel is the one that it was");
        drop(std::mem::replace(&mut held, arrival));
        assert_eq!(in_time(std::mem::replace(&mut settlement, next)).await, Ok(()));
    }
    assert!(sender.is_connected(receiver.peer).await);
    drop(held);
    assert_eq!(in_time(settlement).await, Ok(()));
    closes(&mut sender).await;
}
