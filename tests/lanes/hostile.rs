//! Peers that break the protocol, by raw substreams, and what becomes of the link (laws L2.7 and L3.4).

use std::task::Poll;

use admit_one::{
    lanes::{DEFAULT_PROTOCOL, Event, Fate, Inbound, LossReason, Lost, Settlement, Violation},
    link::Arrival,
    message::{Class, DecodeError, FRAME_LIMIT, Payload},
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, future::join_all, poll};
use libp2p::Stream;

use crate::{
    both_transports,
    support::{Node, Raw, Seen, Transport, frame, in_time},
};

both_transports! {
    l3_4_a_frame_past_the_credit_closes_the_link,
    a_frame_of_no_bytes_closes_the_link,
    l3_1_an_unknown_channel_closes_the_link,
    a_channel_opened_twice_is_refused_by_name_and_the_link_kept,
    too_many_channels_close_the_link,
    l3_4_opening_a_channel_again_is_no_way_past_its_credit,
    l3_4_what_a_dropped_channel_holds_is_not_taken_over,
    l2_7_an_oversize_frame_is_passed_over_and_the_link_kept,
    garbage_is_handed_on_as_it_is_and_the_link_kept,
    a_frame_cut_off_in_the_middle_is_never_handed_on,
    a_hello_cut_off_in_the_middle_opens_nothing,
    l3_4_a_credit_past_what_was_written_closes_the_link,
    l3_4_old_and_repeated_credits_change_nothing,
    an_answer_of_an_unknown_kind_closes_the_link,
}

fn hello(index: u8, pool: u8) -> Vec<u8> {
    [[index, pool].as_slice(), &7_u64.to_be_bytes()].concat()
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

async fn write(stream: &mut Stream, bytes: &[u8]) {
    in_time(stream.write_all(bytes)).await.unwrap();
    in_time(stream.flush()).await.unwrap();
}

async fn read<const N: usize>(stream: &mut Stream) -> [u8; N] {
    let mut bytes = [0; N];
    in_time(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// A raw peer with one open channel to a node.
async fn opened(transport: Transport) -> (Raw, Node, Stream, Inbound) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut stream = peer.open(node.peer).await;
    write(&mut stream, &hello(2, 4)).await;
    let inbound = node.channel().await;
    assert_eq!(read::<9>(&mut stream).await, [0, 0, 0, 0, 0, 0, 0, 0, 16]);
    (peer, node, stream, inbound)
}

async fn violation(node: &mut Node) -> Violation {
    node.until(|seen| match seen {
        Seen::Lanes(Event::Violation { violation, .. }) => Some(violation),
        _ => None,
    })
    .await
}

async fn disconnected(node: &mut Node) {
    node.until(|seen| matches!(seen, Seen::Disconnected(_)).then_some(())).await;
}

async fn next(inbound: &mut Inbound) -> Arrival {
    in_time(inbound.next()).await.expect("the channel is open")
}

async fn l3_4_a_frame_past_the_credit_closes_the_link(transport: Transport) {
    let (_peer, mut node, mut stream, mut inbound) = opened(transport).await;
    write(&mut stream, &framed(&[1]).repeat(16)).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(next(&mut inbound).await);
    }
    assert!(poll!(inbound.next()).is_pending(), "the whole credit is no violation");
    write(&mut stream, &framed(&[2])).await;
    assert_eq!(violation(&mut node).await, Violation::CreditExceeded { channel: 2, credit: 16 });
    disconnected(&mut node).await;
    assert!(in_time(inbound.next()).await.is_none(), "the frame past the credit is not handed on");
}

async fn a_frame_of_no_bytes_closes_the_link(transport: Transport) {
    let (_peer, mut node, mut stream, mut inbound) = opened(transport).await;
    write(&mut stream, &[framed(&[1]), framed(&[])].concat()).await;
    assert_eq!(&*next(&mut inbound).await.bytes, [1]);
    assert_eq!(violation(&mut node).await, Violation::EmptyFrame { channel: 2 });
    disconnected(&mut node).await;
}

async fn l3_1_an_unknown_channel_closes_the_link(transport: Transport) {
    for (index, pool) in [(4, 4), (0, 0), (7, 9)] {
        let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
        peer.connect(&mut node).await;
        let mut stream = peer.open(node.peer).await;
        write(&mut stream, &hello(index, pool)).await;
        assert_eq!(violation(&mut node).await, Violation::UnknownChannel { index, pool });
        disconnected(&mut node).await;
    }
}

async fn a_channel_opened_twice_is_refused_by_name_and_the_link_kept(transport: Transport) {
    let (mut peer, mut node, mut stream, mut inbound) = opened(transport).await;
    let mut again = peer.open(node.peer).await;
    write(&mut again, &hello(2, 4)).await;
    assert_eq!(read::<9>(&mut again).await, [2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(violation(&mut node).await, Violation::AlreadyOpen { channel: 2 });
    write(&mut stream, &framed(&[1])).await;
    assert_eq!(&*next(&mut inbound).await.bytes, [1]);
}

async fn too_many_channels_close_the_link(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut streams = Vec::new();
    for _ in 0..11 {
        // Silent ones, without a hello. The last one may meet its connection's end.
        streams.push(in_time(peer.streams.open_stream(node.peer, DEFAULT_PROTOCOL)).await);
    }
    assert_eq!(violation(&mut node).await, Violation::TooManyChannels { bound: 10 });
    assert!(streams.iter().take(10).all(Result::is_ok), "as many as the bound are none too many");
    disconnected(&mut node).await;
}

async fn l3_4_opening_a_channel_again_is_no_way_past_its_credit(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut held = Vec::new();
    // As a handler that does not get on: whatever comes in stays.
    for _ in 0..10 {
        let mut stream = peer.open(node.peer).await;
        write(&mut stream, &hello(2, 4)).await;
        let mut inbound = node.channel().await;
        assert_eq!(read::<9>(&mut stream).await, [0, 0, 0, 0, 0, 0, 0, 0, 16]);
        for _ in 0..16 {
            write(&mut stream, &framed(b"x")).await;
            held.push(next(&mut inbound).await);
        }
        drop(stream);
        assert!(in_time(inbound.next()).await.is_none());
    }
    // The connection may be closed before the peer knows of its last channel.
    let _last = in_time(peer.streams.open_stream(node.peer, DEFAULT_PROTOCOL)).await;
    assert_eq!(violation(&mut node).await, Violation::TooManyChannels { bound: 10 });
    disconnected(&mut node).await;
}

async fn l3_4_what_a_dropped_channel_holds_is_not_taken_over(transport: Transport) {
    let (sender, mut node) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&node);
    let mut settlements = Vec::new();
    for sequence in 0..8 {
        settlements.push(in_time(sender.outbound.send(frame(node.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    let mut inbound = node.channel().await;
    // The first is taken over; the second is in hand; the rest was never looked at. All were written in one go, since
    // they were queued before the channel was taken.
    drop(next(&mut inbound).await);
    assert_eq!(in_time(settlements.remove(0)).await, Ok(()));
    let _second = next(&mut inbound).await;
    drop(inbound);
    let lost = Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(join_all(settlements)).await, [Err(lost); 7]);
}

async fn l2_7_an_oversize_frame_is_passed_over_and_the_link_kept(transport: Transport) {
    let (_peer, node, mut stream, mut inbound) = opened(transport).await;
    write(&mut stream, &framed(&vec![9; 3 * FRAME_LIMIT])).await;
    write(&mut stream, &framed(&vec![8; FRAME_LIMIT])).await;
    assert_eq!(next(&mut inbound).await.bytes, vec![8; FRAME_LIMIT]);
    // Both are taken over; the counts may come as one.
    while read::<8>(&mut stream).await != 2_u64.to_be_bytes() {}
    assert!(node.is_connected(inbound.peer()).await);
}

async fn garbage_is_handed_on_as_it_is_and_the_link_kept(transport: Transport) {
    let (_peer, node, mut stream, mut inbound) = opened(transport).await;
    for length in 1..200_u64 {
        let garbage: Vec<u8> = (0..length).map(|place| (place * length * 31) as u8).collect();
        write(&mut stream, &framed(&garbage)).await;
        let arrival = next(&mut inbound).await;
        assert_eq!(*arrival.bytes, *garbage);
        assert_eq!(Payload::decode(arrival.bytes.clone(), FRAME_LIMIT), Err(DecodeError::WrongMarker));
    }
    assert!(node.is_connected(inbound.peer()).await);
}

async fn a_frame_cut_off_in_the_middle_is_never_handed_on(transport: Transport) {
    let (_peer, node, mut stream, mut inbound) = opened(transport).await;
    let whole = framed(&[5; 100]);
    write(&mut stream, &whole[..50]).await;
    in_time(stream.close()).await.unwrap();
    assert!(in_time(inbound.next()).await.is_none());
    assert!(node.is_connected(inbound.peer()).await);
}

async fn a_hello_cut_off_in_the_middle_opens_nothing(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut stream = peer.open(node.peer).await;
    write(&mut stream, &hello(2, 4)[..5]).await;
    in_time(stream.close()).await.unwrap();
    // A whole one after it opens its channel, the first.
    let mut stream = peer.open(node.peer).await;
    write(&mut stream, &hello(1, 4)).await;
    assert_eq!(node.channel().await.channel().index, 1);
}

/// A node with sends to a raw peer, who has taken its channel and read its hello.
async fn accepted(transport: Transport, sends: u64) -> (Raw, Node, Stream, Vec<Settlement>) {
    let (mut peer, node) = (Raw::start(transport).await, Node::start(transport).await);
    let mut channels = peer.streams.accept(DEFAULT_PROTOCOL).unwrap();
    node.know(&peer);
    let sends = (0..sends).map(|sequence| node.outbound.send(frame(peer.did, Class::E2e, sequence, 10)));
    let settlements = in_time(join_all(sends)).await.into_iter().map(Result::unwrap).collect();
    let (_, mut stream) = in_time(channels.next()).await.unwrap();
    let hello = read::<10>(&mut stream).await;
    assert_eq!(hello[..2], [2, 4]);
    (peer, node, stream, settlements)
}

async fn read_frames(stream: &mut Stream, count: u64) {
    for sequence in 0..count {
        let length = u32::from_be_bytes(read::<4>(stream).await);
        let mut bytes = vec![0; length as usize];
        in_time(stream.read_exact(&mut bytes)).await.unwrap();
        let payload = Payload::decode(bytes.into(), FRAME_LIMIT).unwrap();
        assert_eq!(payload.transaction.content.sequence, sequence);
    }
}

const ACCEPTED: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0, 16];

async fn l3_4_a_credit_past_what_was_written_closes_the_link(transport: Transport) {
    let (_peer, mut node, mut stream, settlements) = accepted(transport, 2).await;
    write(&mut stream, &ACCEPTED).await;
    read_frames(&mut stream, 2).await;
    write(&mut stream, &9_u64.to_be_bytes()).await;
    assert_eq!(violation(&mut node).await, Violation::CreditAhead { channel: 2, count: 9, written: 2 });
    for settled in in_time(join_all(settlements)).await {
        assert_eq!(settled, Err(Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived }));
    }
    disconnected(&mut node).await;
}

async fn l3_4_old_and_repeated_credits_change_nothing(transport: Transport) {
    let (peer, node, mut stream, mut settlements) = accepted(transport, 4).await;
    write(&mut stream, &ACCEPTED).await;
    read_frames(&mut stream, 4).await;
    for count in [2_u64, 0, 1, 2, 2] {
        write(&mut stream, &count.to_be_bytes()).await;
    }
    let rest = settlements.split_off(2);
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    let mut rest = join_all(rest);
    assert_eq!(poll!(&mut rest), Poll::Pending);
    write(&mut stream, &4_u64.to_be_bytes()).await;
    assert!(in_time(rest).await.iter().all(Result::is_ok));
    assert!(node.is_connected(peer.peer).await);
}

async fn an_answer_of_an_unknown_kind_closes_the_link(transport: Transport) {
    let (_peer, mut node, mut stream, settlements) = accepted(transport, 1).await;
    write(&mut stream, &[9, 0, 0, 0, 0, 0, 0, 0, 16]).await;
    assert_eq!(violation(&mut node).await, Violation::BadAnswer { channel: 2, kind: 9, value: 16 });
    disconnected(&mut node).await;
    drop(settlements);
}
