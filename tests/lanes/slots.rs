//! Slots of connections, over the real boundary (laws L10.2 and L10.3).

use std::{sync::Arc, time::Duration};

use admit_one::{
    clock::SystemClock,
    lanes::{Config, Direction, Event, Inbound},
    layer::{
        boundary::{Admission, AdmissionConfig},
        charging::Shares,
    },
    link::Arrival,
    message::Class,
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
    },
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, poll};
use libp2p::Stream;

use crate::{
    both_transports,
    support::{Node, Options, Raw, Seen, Transport, frame, in_time, read},
};

both_transports! {
    l10_3_a_connection_takes_its_slot_with_its_first_lane_and_frees_it_at_its_end,
    l10_3_beyond_the_last_slot_lanes_are_refused_the_connection_stays_and_is_served_once_a_slot_is_free,
    l10_3_a_refusal_is_answered_by_name_on_the_wire_and_said_once,
    l10_3_a_slot_is_kept_until_the_last_frame_of_a_closed_connection_is_taken_over,
    l10_3_a_lane_that_does_not_open_takes_no_slot,
    l10_3_each_link_says_once_that_there_is_no_slot_however_many_lanes_are_refused_at_a_time,
}

/// A node that gives its connections `slots` slots.
async fn receiver(transport: Transport, slots: u16) -> (Node, Admission) {
    let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests()).await.unwrap();
    let shares = Shares { slots, ..Shares::default() };
    let config = AdmissionConfig { shares, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, Arc::new(SystemClock::new()), config).await.unwrap();
    let config = Config::default().links(Arc::new(admission.clone()));
    let ping_every = Duration::from_millis(50);
    (Node::with(transport, Options { config, ping_every, ..Options::default() }).await, admission)
}

/// A node that soon tries again.
async fn sender(transport: Transport, receiver: &Node) -> Node {
    let config = Config::default().pauses(Duration::from_millis(10), Duration::from_millis(40));
    let node = Node::with(transport, Options { config, ..Options::default() }).await;
    node.know(receiver);
    node
}

async fn slots_taken(admission: &Admission, count: usize) {
    in_time(async {
        while admission.health().slots_taken != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn next(inbound: &mut Inbound) -> Arrival {
    in_time(inbound.next()).await.expect("the channel is open")
}

async fn hello(peer: &mut Raw, node: &Node, index: u8, link: u64) -> (Stream, [u8; 9]) {
    let mut stream = peer.open(node.peer).await;
    in_time(stream.write_all(&[[index, 4].as_slice(), &link.to_be_bytes()].concat())).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    (stream, answer)
}

const NO_SLOT: [u8; 9] = [4, 0, 0, 0, 0, 0, 0, 0, 0];

async fn l10_3_a_connection_takes_its_slot_with_its_first_lane_and_frees_it_at_its_end(transport: Transport) {
    let (mut node, admission) = receiver(transport, 2).await;
    let mut peer = Raw::start(transport).await;
    peer.connect(&mut node).await;
    assert_eq!(admission.health().slots_taken, 0, "connected, without a lane");

    let sender = sender(transport, &node).await;
    let first = sender.outbound.send(frame(node.did, Class::E2e, 1, 10)).await.unwrap();
    let mut e2e = node.channel().await;
    drop(next(&mut e2e).await);
    in_time(first).await.unwrap();
    assert_eq!(admission.health().slots_taken, 1);
    let second = sender.outbound.send(frame(node.did, Class::Storage, 1, 10)).await.unwrap();
    let mut storage = node.channel().await;
    drop(next(&mut storage).await);
    in_time(second).await.unwrap();
    assert_eq!(admission.health().slots_taken, 1, "all lanes of a connection have one slot");
    drop((e2e, storage));
    // What is written before the sender hears of the end is lost; then its lane opens again.
    let again = loop {
        let sent = sender.outbound.send(frame(node.did, Class::E2e, 2, 10)).await.unwrap();
        tokio::select! {
            again = node.channel() => break again,
            lost = in_time(sent) => assert!(lost.is_err()),
        }
    };
    assert_eq!(admission.health().slots_taken, 1, "lanes that end and open again are no way to another slot");
    drop(again);

    sender.disconnect(node.peer);
    slots_taken(&admission, 0).await;
}

async fn l10_3_beyond_the_last_slot_lanes_are_refused_the_connection_stays_and_is_served_once_a_slot_is_free(
    transport: Transport,
) {
    let (mut node, admission) = receiver(transport, 1).await;
    let first = sender(transport, &node).await;
    let mut second = sender(transport, &node).await;
    let taken = first.outbound.send(frame(node.did, Class::E2e, 1, 10)).await.unwrap();
    let mut inbound = node.channel().await;
    drop(next(&mut inbound).await);
    in_time(taken).await.unwrap();

    let mut waiting = Vec::new();
    for sequence in 0..20 {
        waiting.push(second.outbound.send(frame(node.did, Class::E2e, sequence, 10)).await.unwrap());
    }
    let no_slot = |seen| match seen {
        Seen::Lanes(Event::NoSlot { peer, direction, .. }) => Some((peer, direction)),
        _ => None,
    };
    assert_eq!(second.until(no_slot).await, (node.peer, Direction::Outward));
    assert_eq!(node.until(no_slot).await, (second.peer, Direction::Inward));
    // Other protocols go on, while lanes are refused again and again; and so do the first one's lanes.
    let other = second.peer;
    for _ in 0..5 {
        node.until(|seen| matches!(seen, Seen::Pinged(peer) if peer == other).then_some(())).await;
    }
    assert!(second.is_connected(node.peer).await && node.is_connected(second.peer).await);
    for settlement in &mut waiting {
        assert!(poll!(settlement).is_pending(), "held, not lost");
    }
    let more = first.outbound.send(frame(node.did, Class::E2e, 2, 10)).await.unwrap();
    drop(next(&mut inbound).await);
    in_time(more).await.unwrap();
    assert_eq!(admission.health().slots_taken, 1);

    drop(inbound);
    first.disconnect(node.peer);
    let mut inbound = node.channel().await;
    assert_eq!(inbound.peer(), second.peer);
    for sequence in 0..20 {
        assert_eq!(read(&next(&mut inbound).await).1, sequence);
    }
    for settlement in waiting {
        in_time(settlement).await.unwrap();
    }
    let opened = |seen| match seen {
        Seen::Lanes(Event::Opened { .. }) => Some(true),
        Seen::Lanes(Event::NoSlot { .. }) => Some(false),
        _ => None,
    };
    assert!(second.until(opened).await, "it is said once that there is no slot");
}

async fn l10_3_a_refusal_is_answered_by_name_on_the_wire_and_said_once(transport: Transport) {
    let (mut node, admission) = receiver(transport, 0).await;
    let mut peer = Raw::start(transport).await;
    peer.connect(&mut node).await;
    for link in 1..6 {
        let (mut stream, answer) = hello(&mut peer, &node, 2, link).await;
        assert_eq!(answer, NO_SLOT);
        assert_eq!(in_time(stream.read(&mut [0; 1])).await.unwrap(), 0, "the receiver ends the channel");
    }
    assert!(node.is_connected(peer.peer).await);
    peer.disconnect(node.peer);
    let mut said = 0;
    node.until(|seen| match seen {
        Seen::Lanes(Event::NoSlot { .. }) => {
            said += 1;
            None
        }
        Seen::Lanes(event) => panic!("{event:?}"),
        Seen::Disconnected(_) => Some(()),
        _ => None,
    })
    .await;
    assert_eq!(said, 1);
    assert_eq!(admission.health().slots_taken, 0);
}

async fn l10_3_a_slot_is_kept_until_the_last_frame_of_a_closed_connection_is_taken_over(transport: Transport) {
    let (mut node, admission) = receiver(transport, 1).await;
    let leaves = sender(transport, &node).await;
    let _lost = leaves.outbound.send(frame(node.did, Class::E2e, 1, 10)).await.unwrap();
    let mut inbound = node.channel().await;
    let held = next(&mut inbound).await;
    leaves.disconnect(node.peer);
    let gone = leaves.peer;
    node.until(|seen| matches!(seen, Seen::Disconnected(peer) if peer == gone).then_some(())).await;
    assert!(in_time(inbound.next()).await.is_none());
    drop(inbound);

    let mut peer = Raw::start(transport).await;
    peer.connect(&mut node).await;
    assert_eq!(hello(&mut peer, &node, 0, 1).await.1, NO_SLOT, "what is still to be admitted has its slot");
    drop(held);
    slots_taken(&admission, 0).await;
    let mut stream = peer.open(node.peer).await;
    in_time(stream.write_all(&[[0, 4].as_slice(), &2_u64.to_be_bytes()].concat())).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    let _inbound = node.channel().await;
    assert_eq!(admission.health().slots_taken, 1);
}

async fn l10_3_a_lane_that_does_not_open_takes_no_slot(transport: Transport) {
    let (mut node, admission) = receiver(transport, 2).await;
    let key = libp2p::identity::Keypair::generate_ed25519();
    let mut peer = Raw::with(transport, Options { key: key.clone(), ..Options::default() }).await;
    let mut twin = Raw::with(transport, Options { key, ..Options::default() }).await;
    peer.connect(&mut node).await;
    twin.connect(&mut node).await;
    let mut stream = peer.open(node.peer).await;
    in_time(stream.write_all(&[[0, 4].as_slice(), &9_u64.to_be_bytes()].concat())).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    let _inbound = node.channel().await;
    assert_eq!(hello(&mut twin, &node, 0, 5).await.1, [1, 0, 0, 0, 0, 0, 0, 0, 9], "superseded");
    assert_eq!(admission.health().slots_taken, 1);
}

async fn l10_3_each_link_says_once_that_there_is_no_slot_however_many_lanes_are_refused_at_a_time(
    transport: Transport,
) {
    let (node, _admission) = receiver(transport, 0).await;
    let mut sender = sender(transport, &node).await;
    let mut queued = Vec::new();
    for class in Class::ALL {
        queued.push(sender.outbound.send(frame(node.did, class, 1, 10)).await.unwrap());
    }
    for _ in 0..20 {
        sender.until(|seen| matches!(seen, Seen::Lanes(Event::NoSlot { .. })).then_some(())).await;
        sender.disconnect(node.peer);
        let said_again = |seen| match seen {
            Seen::Lanes(Event::NoSlot { .. }) => Some(true),
            Seen::Disconnected(_) => Some(false),
            _ => None,
        };
        assert!(!sender.until(said_again).await);
    }
    for mut settlement in queued {
        assert!(poll!(&mut settlement).is_pending(), "held, not lost");
    }
}
