//! What the behaviour tells its node: why links ended, and a sample of refusals (law L13.3).

use std::{sync::Arc, time::Duration};

use admit_one::{
    clock::SystemClock,
    lanes::{DEFAULT_PROTOCOL, Direction, Event, LinkEnd, Violation},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
    },
    message::{Class, FRAME_LIMIT, NetworkId},
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
    },
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::Stream;
use tower::{Layer, service_fn};

use crate::{
    both_transports,
    support::{Node, Raw, Seen, Transport, frame, in_time},
};

both_transports! {
    l13_3_refusals_are_reported_with_the_peer_and_how_many,
    l13_3_an_oversize_frame_is_reported_as_refused,
    l13_3_a_link_ends_for_a_violation_on_any_of_its_channels,
    l13_3_a_link_outward_ends_for_what_its_receiver_broke,
    l13_3_a_link_ends_for_what_the_peer_broke_the_other_way,
    l13_3_a_link_inward_ends_for_a_greater_one,
    l13_3_a_link_outward_ends_for_a_greater_one,
    l13_3_a_link_ends_when_the_peer_takes_no_channels_any_more,
    l13_3_a_link_ends_with_the_shutdown,
}

fn hello(index: u8, link: u64) -> Vec<u8> {
    [[index, 4].as_slice(), &link.to_be_bytes()].concat()
}

async fn write(stream: &mut Stream, bytes: &[u8]) {
    in_time(stream.write_all(bytes)).await.unwrap();
    in_time(stream.flush()).await.unwrap();
}

const ACCEPTED: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0, 16];

async fn opened(peer: &mut Raw, node: &mut Node, index: u8, link: u64) -> (Stream, admit_one::lanes::Inbound) {
    let mut stream = peer.open(node.peer).await;
    write(&mut stream, &hello(index, link)).await;
    let inbound = node.channel().await;
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, ACCEPTED);
    (stream, inbound)
}

/// The reasons for which the node's links in `direction` ended next.
async fn ended(node: &mut Node, of: Direction) -> LinkEnd {
    node.until(|seen| match seen {
        Seen::Lanes(Event::Closed { direction, reason, .. }) if direction == of => Some(reason),
        _ => None,
    })
    .await
}

async fn refused(node: &mut Node) -> (libp2p::PeerId, &'static str, u64) {
    node.until(|seen| match seen {
        Seen::Lanes(Event::Refused { peer, reason, count, .. }) => Some((peer, reason, count)),
        _ => None,
    })
    .await
}

async fn l13_3_refusals_are_reported_with_the_peer_and_how_many(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests()).await.unwrap();
    let clock = Arc::new(SystemClock::new());
    let admission = Admission::open(&commit, clock, AdmissionConfig::default()).await.unwrap();
    let layer = AdmissionLayer::builder(NetworkId(1), node.did, admission).build();
    let service = layer.layer(service_fn(async |_: Admitted| Ok::<_, std::convert::Infallible>(())));
    tokio::spawn(node.incoming().serve(service));
    peer.connect(&mut node).await;
    let mut stream = peer.open(node.peer).await;
    write(&mut stream, &hello(2, 5)).await;
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    // The first at once.
    write(&mut stream, &[0, 0, 0, 1, 7]).await;
    assert_eq!(refused(&mut node).await, (peer.peer, "wrong_marker", 1));
    // Then they gather for a second. Each is sent once the one before was credited.
    let (mut sent, mut credit) = (0, [0; 8]);
    let (_, _, count) = loop {
        in_time(stream.read_exact(&mut credit)).await.unwrap();
        write(&mut stream, &[0, 0, 0, 1, 7]).await;
        sent += 1;
        match tokio::time::timeout(Duration::from_millis(1), refused(&mut node)).await {
            Ok(found) => break found,
            Err(_) => assert!(sent < 1_000_000),
        }
    };
    assert!((1..=sent).contains(&count), "{count} of {sent}");
}

async fn l13_3_an_oversize_frame_is_reported_as_refused(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let (mut stream, _inbound) = opened(&mut peer, &mut node, 2, 5).await;
    let length = u32::try_from(FRAME_LIMIT + 1).unwrap();
    write(&mut stream, &[&length.to_be_bytes()[..], &vec![9; FRAME_LIMIT + 1]].concat()).await;
    assert_eq!(refused(&mut node).await, (peer.peer, "oversize", 1));
}

async fn l13_3_a_link_ends_for_a_violation_on_any_of_its_channels(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let (mut one, _inbound) = opened(&mut peer, &mut node, 2, 5).await;
    let (_other, _also) = opened(&mut peer, &mut node, 3, 5).await;
    write(&mut one, &[0, 0, 0, 0]).await;
    let violation = Violation::EmptyFrame { channel: 2 };
    assert_eq!(ended(&mut node, Direction::Inward).await, LinkEnd::Violation(violation));
}

/// A node with a link to a raw peer.
async fn linked(transport: Transport) -> (Raw, Node, Stream) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    let mut channels = peer.streams.accept(DEFAULT_PROTOCOL).unwrap();
    node.know(&peer);
    drop(in_time(node.outbound.send(frame(peer.did, Class::E2e, 0, 10))).await.unwrap());
    let (_, mut stream) = in_time(channels.next()).await.unwrap();
    in_time(stream.read_exact(&mut [0; 10])).await.unwrap();
    write(&mut stream, &ACCEPTED).await;
    node.until(|seen| matches!(seen, Seen::Lanes(Event::Opened { .. })).then_some(())).await;
    tokio::spawn(async move {
        // The next channel is said to be of a link that a greater one took over from.
        let Some((_, mut stream)) = channels.next().await else { return };
        let _ = stream.read_exact(&mut [0; 10]).await;
        let _ = stream.write_all(&[1, 255, 0, 0, 0, 0, 0, 0, 0]).await;
        let _ = stream.flush().await;
        std::future::pending::<()>().await;
    });
    (peer, node, stream)
}

async fn l13_3_a_link_outward_ends_for_what_its_receiver_broke(transport: Transport) {
    let (_peer, mut node, mut stream) = linked(transport).await;
    write(&mut stream, &9_u64.to_be_bytes()).await;
    let violation = Violation::CreditAhead { channel: 2, count: 9, written: 1 };
    assert_eq!(ended(&mut node, Direction::Outward).await, LinkEnd::Violation(violation));
}

async fn l13_3_a_link_ends_for_what_the_peer_broke_the_other_way(transport: Transport) {
    let (mut peer, mut node, _stream) = linked(transport).await;
    let (mut inward, _inbound) = opened(&mut peer, &mut node, 2, 5).await;
    write(&mut inward, &[0, 0, 0, 0]).await;
    let violation = Violation::EmptyFrame { channel: 2 };
    assert_eq!(ended(&mut node, Direction::Outward).await, LinkEnd::Violation(violation));
}

async fn l13_3_a_link_inward_ends_for_a_greater_one(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let _lower = opened(&mut peer, &mut node, 2, 5).await;
    let _greater = opened(&mut peer, &mut node, 2, 6).await;
    assert_eq!(ended(&mut node, Direction::Inward).await, LinkEnd::Superseded);
}

async fn l13_3_a_link_outward_ends_for_a_greater_one(transport: Transport) {
    let (peer, mut node, _stream) = linked(transport).await;
    drop(in_time(node.outbound.send(frame(peer.did, Class::Storage, 0, 10))).await.unwrap());
    assert_eq!(ended(&mut node, Direction::Outward).await, LinkEnd::Superseded);
}

async fn l13_3_a_link_ends_when_the_peer_takes_no_channels_any_more(transport: Transport) {
    let (mut sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    drop(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap());
    let _inbound = receiver.channel().await;
    sender.until(|seen| matches!(seen, Seen::Lanes(Event::Opened { .. })).then_some(())).await;
    drop(receiver.incoming());
    drop(in_time(sender.outbound.send(frame(receiver.did, Class::Storage, 0, 10))).await.unwrap());
    assert_eq!(ended(&mut sender, Direction::Outward).await, LinkEnd::Unsupported);
}

async fn l13_3_a_link_ends_with_the_shutdown(transport: Transport) {
    let (_peer, mut node, _stream) = linked(transport).await;
    assert_eq!(in_time(node.outbound.shutdown(Duration::ZERO)).await, 1);
    assert_eq!(ended(&mut node, Direction::Outward).await, LinkEnd::Shutdown);
}
