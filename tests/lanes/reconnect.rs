//! Which connection a link is on, what is left of one that ended, and peers that do not answer (laws L3.8, L13.2).

use std::{collections::HashMap, time::Duration};

use admit_one::{
    lanes::{Config, Event, Fate, Inbound, LinkEnd, LossReason, Lost, SendRefused, Settlement},
    link::Arrival,
    message::Class,
};
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt, future::join_all, poll};
use libp2p::{Multiaddr, Stream, identity::Keypair};
use tokio::net::{TcpListener, UdpSocket};

use crate::{
    both_transports,
    proxy::Proxy,
    support::{Node, Options, Raw, Seen, Transport, frame, frame_within, full_window, in_time, read},
};

both_transports! {
    l3_8_what_a_link_that_ended_left_is_dropped_once_the_next_one_is_open,
    l3_8_what_a_channel_left_is_dropped_once_it_is_opened_again,
    l3_8_nothing_of_a_lower_link_takes_a_place_once_the_greater_one_is_open,
    l3_8_of_two_connections_the_links_own_may_go_first,
    l3_8_of_two_connections_the_other_may_go_first,
    l3_8_peers_that_dial_each_other_at_once_lose_nothing,
    l3_8_a_link_on_a_connection_that_went_silent_moves_to_a_newer_one,
    l3_8_a_peer_whose_only_connection_went_silent_is_dialled_again,
    l3_8_a_link_whose_receiver_is_slow_is_not_moved,
    l13_2_a_next_hop_that_never_answers_costs_what_waits_for_it_its_time_and_nothing_more,
    l13_3_health_says_what_is_queued_and_in_flight,
}

const LOST: Lost = Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived };

async fn open(opener: &mut Raw, receiver: &mut Node, index: u8, link: u64) -> (Stream, Inbound) {
    let mut stream = opener.open(receiver.peer).await;
    let hello = [[index, 4].as_slice(), &link.to_be_bytes()].concat();
    in_time(stream.write_all(&hello)).await.unwrap();
    let inbound = receiver.channel().await;
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, [0, 0, 0, 0, 0, 0, 0, 0, 16]);
    (stream, inbound)
}

/// Writes frames of one byte each.
async fn write(stream: &mut Stream, frames: &[u8]) {
    for frame in frames {
        in_time(stream.write_all(&[0, 0, 0, 1, *frame])).await.unwrap();
    }
    in_time(stream.flush()).await.unwrap();
}

async fn next(inbound: &mut Inbound) -> Arrival {
    in_time(inbound.next()).await.expect("the channel is open")
}

async fn disconnected(node: &mut Node) {
    node.until(|seen| matches!(seen, Seen::Disconnected(_)).then_some(())).await;
}

async fn l3_8_what_a_link_that_ended_left_is_dropped_once_the_next_one_is_open(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, Node::start(transport).await);
    opener.connect(&mut receiver).await;
    let (mut stream, mut old) = open(&mut opener, &mut receiver, 2, 5).await;
    write(&mut stream, &[1, 2, 3]).await;
    // The others were read with it, or are about to be; none is taken.
    let first = next(&mut old).await;
    assert_eq!(&*first.bytes, [1]);
    opener.disconnect(receiver.peer);
    disconnected(&mut receiver).await;
    opener.connect(&mut receiver).await;
    let (mut stream, mut new) = open(&mut opener, &mut receiver, 2, 6).await;
    write(&mut stream, &[4]).await;
    assert_eq!(&*next(&mut new).await.bytes, [4]);
    assert!(in_time(old.next()).await.is_none(), "a frame of the old link after one of the new");
    let feedback = first.feedback.clone().unwrap();
    assert!(!feedback.unless_superseded(&mut || panic!("it is too late for what was in hand")));
}

async fn l3_8_what_a_channel_left_is_dropped_once_it_is_opened_again(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, Node::start(transport).await);
    opener.connect(&mut receiver).await;
    let (mut stream, mut old) = open(&mut opener, &mut receiver, 2, 5).await;
    let (mut other, mut kept) = open(&mut opener, &mut receiver, 3, 5).await;
    write(&mut stream, &[1, 2, 3]).await;
    assert_eq!(&*next(&mut old).await.bytes, [1]);
    in_time(stream.close()).await.unwrap();
    // The node closes its half once it has read all and seen the end.
    let _ = in_time(stream.read_to_end(&mut Vec::new())).await;
    let (mut stream, mut new) = open(&mut opener, &mut receiver, 2, 5).await;
    write(&mut stream, &[4]).await;
    assert_eq!(&*next(&mut new).await.bytes, [4]);
    assert!(in_time(old.next()).await.is_none(), "a frame of the old channel after one of the new");
    write(&mut other, &[7]).await;
    assert_eq!(&*next(&mut kept).await.bytes, [7], "another channel of the link goes on");
}

/// As above, and what the receiver has in hand then may not be admitted any more, nor is it credited.
async fn l3_8_nothing_of_a_lower_link_takes_a_place_once_the_greater_one_is_open(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, Node::start(transport).await);
    opener.connect(&mut receiver).await;
    let (mut lower, mut old) = open(&mut opener, &mut receiver, 2, 5).await;
    write(&mut lower, &[1, 2]).await;
    let (admitted, late) = (next(&mut old).await, next(&mut old).await);
    let mut places = Vec::new();
    assert!(admitted.feedback.clone().unwrap().unless_superseded(&mut || places.push(1)));
    let (_greater, _new) = open(&mut opener, &mut receiver, 2, 6).await;
    assert!(!late.feedback.clone().unwrap().unless_superseded(&mut || places.push(2)));
    assert_eq!(places, [1]);
    drop((admitted, late));
    let mut rest = Vec::new();
    let _ = in_time(lower.read_to_end(&mut rest)).await;
    assert_eq!(rest, [], "no credit for it comes on the old link, whose sends are lost");
}

/// Two nodes with two connections, the second one made by the receiver; frames 0 to 39 are sent, of which 8 are in
/// flight.
async fn twice_connected(transport: Transport) -> (Node, Node, Vec<Settlement>, Inbound, Vec<Arrival>) {
    let (mut sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (settlements, held, inbound) = full_window(&sender, &mut receiver, 40).await;
    receiver.dial(sender.peer, sender.address.clone());
    for node in [&mut sender, &mut receiver] {
        let mut connections = 0;
        node.until(|seen| {
            connections += u32::from(matches!(seen, Seen::Connected(_)));
            (connections == 2).then_some(())
        })
        .await;
    }
    (sender, receiver, settlements, inbound, held)
}

/// Takes `sequences` from the next channel, in order.
async fn take(inbound: &mut Inbound, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        assert_eq!(read(&next(inbound).await).1, sequence);
    }
}

async fn l3_8_of_two_connections_the_links_own_may_go_first(transport: Transport) {
    let (sender, mut receiver, mut settlements, mut inbound, _held) = twice_connected(transport).await;
    sender.close(receiver.peer, 0);
    let queued = settlements.split_off(8);
    assert_eq!(in_time(join_all(settlements)).await, [Err(LOST); 8]);
    assert!(in_time(inbound.next()).await.is_none());
    let mut inbound = receiver.channel().await;
    take(&mut inbound, 8..40).await;
    assert!(in_time(join_all(queued)).await.iter().all(Result::is_ok));
    // Then the other one goes, and a third is dialled.
    sender.close(receiver.peer, 0);
    assert!(in_time(inbound.next()).await.is_none());
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 40, 10))).await.unwrap();
    take(&mut receiver.channel().await, 40..41).await;
    assert_eq!(in_time(settlement).await, Ok(()));
}

async fn l3_8_of_two_connections_the_other_may_go_first(transport: Transport) {
    let (mut sender, mut receiver, mut settlements, mut inbound, held) = twice_connected(transport).await;
    let other = receiver.peer;
    sender.close(receiver.peer, 1);
    drop(held);
    take(&mut inbound, 8..16).await;
    let queued = settlements.split_off(8);
    assert_eq!(in_time(join_all(settlements)).await, [Ok(()); 8], "the link does not mind");
    sender.close(receiver.peer, 0);
    sender.until(|seen| matches!(seen, Seen::Disconnected(peer) if peer == other).then_some(())).await;
    // What was not taken of the first link is lost or comes by the next one, in order.
    let mut received: Vec<u64> = (8..16).collect();
    while let Some(arrival) = in_time(inbound.next()).await {
        received.push(read(&arrival).1);
    }
    let mut inbound = receiver.channel().await;
    while received.last() != Some(&39) {
        received.push(read(&next(&mut inbound).await).1);
    }
    assert!(received.is_sorted_by(|one, next| one < next), "{received:?}");
    for (sequence, settled) in (8..).zip(in_time(join_all(queued)).await) {
        match settled {
            Ok(()) => assert!(received.contains(&sequence)),
            Err(lost) => assert_eq!(lost, LOST),
        }
    }
}

async fn l3_8_peers_that_dial_each_other_at_once_lose_nothing(transport: Transport) {
    const ROUNDS: u64 = 6;
    const EACH: u64 = 40;
    let mut nodes = [Node::start(transport).await, Node::start(transport).await];
    nodes[0].know(&nodes[1]);
    nodes[1].know(&nodes[0]);
    let others = [(nodes[1].did, nodes[1].peer), (nodes[0].did, nodes[0].peer)];
    let (found, mut finds) = tokio::sync::mpsc::unbounded_channel();
    for (place, node) in nodes.iter_mut().enumerate() {
        let found = found.clone();
        let service = tower::service_fn(move |arrival: Arrival| {
            let feedback = arrival.feedback.clone().expect("lanes ask");
            feedback.unless_superseded(&mut || found.send((place, read(&arrival))).unwrap_or_default());
            async { Ok::<_, std::convert::Infallible>(()) }
        });
        tokio::spawn(node.incoming().serve(service));
    }
    for round in 0..ROUNDS {
        let mut sends = Vec::new();
        for sequence in round * EACH..(round + 1) * EACH {
            for class in Class::ALL {
                for (node, (other, _)) in nodes.iter().zip(others) {
                    sends.push(node.outbound.send(frame(other, class, sequence, 10)));
                }
            }
        }
        let settlements = in_time(join_all(sends)).await.into_iter().map(Result::unwrap);
        assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
        // Nothing is in flight; both are on their own again.
        for (node, (_, other)) in nodes.iter_mut().zip(others) {
            node.disconnect(other);
        }
        for (node, (_, other)) in nodes.iter_mut().zip(others) {
            while in_time(node.is_connected(other)).await {
                tokio::task::yield_now().await;
            }
        }
    }
    let mut last = HashMap::new();
    let mut count = 0;
    while let Ok((node, (class, sequence))) = finds.try_recv() {
        assert_eq!(last.insert((node, class), sequence).map_or(0, |last| last + 1), sequence, "{node} {class:?}");
        count += 1;
    }
    assert_eq!(count, ROUNDS * EACH * 8);
}

/// A node that asks early whether a connection answers.
async fn impatient(transport: Transport) -> Node {
    let config = Config::default().silence(Duration::from_secs(2)).pauses(Duration::from_millis(20), LIFE);
    Node::with(transport, Options { config, ..Options::default() }).await
}

/// A sender with a full window in flight to a receiver over a way that was cut then, and more queued.
async fn cut_off(transport: Transport) -> (Node, Node, Vec<Settlement>, Vec<Settlement>, Inbound) {
    let (sender, mut receiver) = (impatient(transport).await, Node::start(transport).await);
    let proxy = Proxy::to(transport, &receiver.address).await;
    sender.know_at(receiver.peer, proxy.address.clone());
    let (mut settlements, held, inbound) = full_window(&sender, &mut receiver, 20).await;
    proxy.cut();
    drop(held);
    let queued = settlements.split_off(8);
    (sender, receiver, settlements, queued, inbound)
}

async fn moves(mut sender: Node, mut receiver: Node, in_flight: Vec<Settlement>, queued: Vec<Settlement>) {
    let mut inbound = receiver.channel().await;
    take(&mut inbound, 8..20).await;
    assert_eq!(in_time(join_all(in_flight)).await, [Err(LOST); 8]);
    assert!(in_time(join_all(queued)).await.iter().all(Result::is_ok));
    let closed = sender.until(|seen| match seen {
        Seen::Lanes(Event::Closed { reason, .. }) => Some(reason),
        _ => None,
    });
    assert_eq!(closed.await, LinkEnd::Silent);
}

async fn l3_8_a_link_on_a_connection_that_went_silent_moves_to_a_newer_one(transport: Transport) {
    let (sender, receiver, in_flight, queued, _inbound) = cut_off(transport).await;
    receiver.dial(sender.peer, sender.address.clone());
    moves(sender, receiver, in_flight, queued).await;
}

async fn l3_8_a_peer_whose_only_connection_went_silent_is_dialled_again(transport: Transport) {
    let (sender, receiver, in_flight, queued, _inbound) = cut_off(transport).await;
    // By another way, or by the same one once it is there again.
    sender.know(&receiver);
    moves(sender, receiver, in_flight, queued).await;
}

async fn l3_8_a_link_whose_receiver_is_slow_is_not_moved(transport: Transport) {
    let config = Config::default().silence(Duration::from_millis(1_500));
    let mut sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut receiver = Node::start(transport).await;
    sender.know(&receiver);
    let (mut settlements, held, _inbound) = full_window(&sender, &mut receiver, 8).await;
    receiver.dial(sender.peer, sender.address.clone());
    let mut connections = 0;
    sender
        .until(|seen| {
            connections += u32::from(matches!(seen, Seen::Connected(_)));
            (connections == 2).then_some(())
        })
        .await;
    // Long enough for several questions. Nothing is waited for here but that nothing happens.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(poll!(&mut settlements[0]), std::task::Poll::Pending);
    drop(held);
    assert_eq!(in_time(join_all(settlements)).await, [Ok(()); 8]);
}

/// Each is counted until a moment after it was told.
async fn settled(node: &Node) {
    in_time(async {
        while node.outbound.health().unsettled > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

const LIFE: Duration = Duration::from_secs(1);

async fn l13_2_a_next_hop_that_never_answers_costs_what_waits_for_it_its_time_and_nothing_more(transport: Transport) {
    let sender = Node::start(transport).await;
    let (key, mut other) = (Keypair::generate_ed25519(), Node::start(transport).await);
    // Something takes connections there, and says nothing; and somewhere there is nothing at all.
    let (stream, datagram) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let (mute, nowhere): (Multiaddr, Multiaddr) = match transport {
        Transport::Tcp => {
            let port = stream.local_addr().unwrap().port();
            (format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap(), "/ip4/192.0.2.1/tcp/9".parse().unwrap())
        }
        Transport::Quic => {
            let port = datagram.local_addr().unwrap().port();
            (
                format!("/ip4/127.0.0.1/udp/{port}/quic-v1").parse().unwrap(),
                "/ip4/192.0.2.1/udp/9/quic-v1".parse().unwrap(),
            )
        }
    };
    let peer = key.public().to_peer_id();
    let did = admit_one::identity::Did::try_from(&peer).unwrap();
    sender.know_at(peer, mute);
    sender.know_at(peer, nowhere);
    sender.know(&other);
    let sends = (0..20).map(|sequence| sender.outbound.send(frame_within(did, Class::E2e, sequence, 10, LIFE)));
    let settlements: Vec<_> = in_time(join_all(sends)).await.into_iter().map(Result::unwrap).collect();
    // Others are reached meanwhile.
    let unhindered = in_time(sender.outbound.send(frame(other.did, Class::E2e, 0, 10))).await.unwrap();
    take(&mut other.channel().await, 0..1).await;
    assert_eq!(in_time(unhindered).await, Ok(()));
    let lost = Lost { reason: LossReason::NotConnected, fate: Fate::NeverWritten };
    assert_eq!(in_time(join_all(settlements)).await, [Err(lost); 20]);
    settled(&sender).await;
    // The peer comes by itself, and there is nothing to wait out.
    let waiting = in_time(sender.outbound.send(frame(did, Class::E2e, 20, 10))).await.unwrap();
    let mut receiver = Node::with(transport, Options { key, ..Options::default() }).await;
    receiver.dial(sender.peer, sender.address.clone());
    take(&mut receiver.channel().await, 20..21).await;
    assert_eq!(in_time(waiting).await, Ok(()));
}

async fn l13_3_health_says_what_is_queued_and_in_flight(transport: Transport) {
    let config = Config::default().common_bound(5, 1024 * 1024);
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut receiver = Node::start(transport).await;
    let health = || sender.outbound.health();
    assert_eq!((health().unsettled, health().links, health().accepts, health().queued_bound), (0, 0, true, 5));
    let mut sends: Vec<_> =
        (0..6).map(|sequence| Box::pin(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10)))).collect();
    let bytes = frame(receiver.did, Class::E2e, 0, 10).payload.encoded_len();
    let full = health();
    assert_eq!((full.queued, full.queued_bytes, full.unsettled, full.peers), (5, 5 * bytes, 6, 1));
    assert!(poll!(&mut sends[5]).is_pending(), "the sixth waits for room");
    sender.know(&receiver);
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(next(&mut inbound).await);
    }
    let in_flight = health();
    assert_eq!((in_flight.queued, in_flight.unsettled, in_flight.peers, in_flight.links), (0, 6, 0, 1));
    drop(held);
    for send in sends {
        assert_eq!(in_time(in_time(send).await.unwrap()).await, Ok(()));
    }
    settled(&sender).await;
    assert_eq!(in_time(sender.outbound.shutdown(LIFE)).await, 0);
    assert!(!health().accepts);
    let refused = sender.outbound.send(frame(receiver.did, Class::E2e, 9, 10)).now_or_never().unwrap().unwrap_err();
    assert!(matches!(refused, SendRefused::Lost(Lost { reason: LossReason::Shutdown, .. })));
}
