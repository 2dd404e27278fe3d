//! Links that end and begin: reconnects, restarts, two links of one peer, idleness (laws L3.8, L13.2).

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use admit_one::{
    clock::SystemClock,
    lanes::{Behaviour, Config, DEFAULT_PROTOCOL, Direction, Event, Fate, LinkEnd, LossReason, Lost},
    link::Arrival,
    message::{Class, FRAME_LIMIT, Payload},
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, future::join_all, poll};
use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    identity::Keypair,
    swarm::{ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, ToSwarm, dummy},
};
use tokio::sync::mpsc;

use crate::{
    both_transports,
    support::{Node, Options, Raw, Running, Seen, Transport, frame, full_window, in_time, read, swarm},
};

both_transports! {
    l3_8_what_is_queued_moves_to_the_next_link_in_order,
    l3_8_every_send_resolves_once_over_many_forced_reconnects,
    l13_2_a_restarted_destination_is_dialled_again_and_gets_what_was_held,
    l13_2_what_is_sent_before_an_address_is_known_goes_once_it_is,
    l3_8_a_greater_link_ends_the_lanes_of_a_lower_one,
    l3_8_a_lower_link_is_refused_with_the_number_to_exceed,
    l3_8_a_node_that_finds_its_number_exceeded_takes_a_greater_one,
    l13_3_links_are_reported_opened_and_closed,
    an_idle_link_lets_its_connection_close,
    an_unsettled_frame_keeps_its_connection,
    l3_8_a_connection_that_a_sibling_denies_is_never_used,
    l3_8_a_lane_that_fails_to_open_is_opened_again_and_loses_nothing_queued,
    it_composes_with_identify_and_ping_on_one_connection,
}

async fn l3_8_what_is_queued_moves_to_the_next_link_in_order(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (mut settlements, _held, _inbound) = full_window(&sender, &mut receiver, 40).await;
    sender.disconnect(receiver.peer);
    let queued = settlements.split_off(8);
    for settled in in_time(join_all(settlements)).await {
        assert_eq!(settled, Err(Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived }));
    }
    let mut next = receiver.channel().await;
    for sequence in 8..40 {
        assert_eq!(read(&in_time(next.next()).await.unwrap()).1, sequence);
    }
    assert!(in_time(join_all(queued)).await.iter().all(Result::is_ok));
}

/// Takes everything that comes, and reports it.
fn serve(receiver: &mut Node) -> mpsc::UnboundedReceiver<(Class, u64)> {
    let (found, finds) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |arrival: Arrival| {
        // As whoever admits in order does it.
        let feedback = arrival.feedback.clone().expect("lanes ask");
        feedback.unless_superseded(&mut || found.send(read(&arrival)).unwrap_or_default());
        async { Ok::<_, std::convert::Infallible>(()) }
    });
    tokio::spawn(receiver.incoming().serve(service));
    finds
}

async fn l3_8_every_send_resolves_once_over_many_forced_reconnects(transport: Transport) {
    const EACH: u64 = 1_500;
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let mut finds = serve(&mut receiver);
    let sending = Class::ALL.map(|class| {
        let (outbound, next_hop) = (sender.outbound.clone(), receiver.did);
        tokio::spawn(async move {
            let mut settlements = Vec::new();
            for sequence in 0..EACH {
                settlements.push(outbound.send(frame(next_hop, class, sequence, 600)).await.unwrap());
            }
            join_all(settlements).await
        })
    });
    let mut received: HashMap<Class, Vec<u64>> = HashMap::new();
    let mut cuts = 0;
    let mut count = 0;
    let mut sent = Box::pin(join_all(sending));
    let settled = loop {
        tokio::select! {
            found = finds.recv() => {
                let (class, sequence) = found.unwrap();
                received.entry(class).or_default().push(sequence);
                count += 1;
                if count % 300 == 0 {
                    cuts += 1;
                    // From either side.
                    if cuts % 2 == 0 { sender.disconnect(receiver.peer) } else { receiver.disconnect(sender.peer) }
                }
            }
            settled = in_time(&mut sent) => break settled,
        }
    };
    while let Ok((class, sequence)) = finds.try_recv() {
        received.entry(class).or_default().push(sequence);
    }
    assert!(cuts >= 10, "{cuts}");
    let mut lost = 0;
    for (class, settled) in Class::ALL.into_iter().zip(settled) {
        let settled = settled.unwrap();
        assert_eq!(settled.len() as u64, EACH);
        let received = &received[&class];
        for pair in received.windows(2) {
            assert!(pair[0] < pair[1], "{class:?}: {} then {}", pair[0], pair[1]);
        }
        let once = received;
        for (sequence, outcome) in settled.into_iter().enumerate() {
            match outcome {
                Ok(()) => assert!(once.binary_search(&(sequence as u64)).is_ok(), "settled and not received"),
                Err(Lost { reason: LossReason::LinkClosed, .. }) => lost += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    // At most a window in each lane at each cut.
    assert!(lost <= (cuts + 1) * 8 * 4, "{lost} lost at {cuts} cuts");
}

async fn l13_2_a_restarted_destination_is_dialled_again_and_gets_what_was_held(transport: Transport) {
    let sender = Node::start(transport).await;
    let key = Keypair::generate_ed25519();
    let options = |listen| Options { key: key.clone(), listen, ..Options::default() };
    let mut receiver = Node::with(transport, options(None)).await;
    let (did, address) = (receiver.did, receiver.address.clone());
    sender.know(&receiver);
    let mut inbound = {
        let first = in_time(sender.outbound.send(frame(did, Class::E2e, 0, 10))).await.unwrap();
        let mut inbound = receiver.channel().await;
        drop(in_time(inbound.next()).await.unwrap());
        assert_eq!(in_time(first).await, Ok(()));
        inbound
    };
    receiver.running.kill().await;
    assert!(in_time(inbound.next()).await.is_none());
    // Sent while nobody is there: a window's worth may still go to the dead link, the rest is held.
    let mut settlements = Vec::new();
    for sequence in 1..60 {
        settlements.push(in_time(sender.outbound.send(frame(did, Class::E2e, sequence, 10))).await.unwrap());
    }
    let mut receiver = Node::with(transport, options(Some(address))).await;
    let mut inbound = receiver.channel().await;
    let mut received = Vec::new();
    while received.last() != Some(&59) {
        received.push(read(&in_time(inbound.next()).await.unwrap()).1);
    }
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    let settled = in_time(join_all(settlements)).await;
    for (sequence, outcome) in (1..).zip(settled) {
        assert_eq!(outcome.is_ok(), received.contains(&sequence), "{sequence}: {outcome:?}");
    }
    assert!(received.len() >= 59 - 8, "{received:?}");
}

async fn l13_2_what_is_sent_before_an_address_is_known_goes_once_it_is(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    let mut settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    assert!(poll!(&mut settlement).is_pending());
    // The peer comes by itself.
    receiver.dial(sender.peer, sender.address.clone());
    let mut inbound = receiver.channel().await;
    drop(in_time(inbound.next()).await.unwrap());
    assert_eq!(in_time(settlement).await, Ok(()));
}

fn hello(index: u8, link: u64) -> Vec<u8> {
    [[index, 4].as_slice(), &link.to_be_bytes()].concat()
}

async fn answer(stream: &mut libp2p::Stream) -> (u8, u64) {
    let mut answer = [0; 9];
    in_time(stream.read_exact(&mut answer)).await.unwrap();
    (answer[0], u64::from_be_bytes(answer[1..].try_into().unwrap()))
}

async fn ended(stream: &mut libp2p::Stream) {
    let mut rest = Vec::new();
    let _ = in_time(stream.read_to_end(&mut rest)).await;
}

async fn l3_8_a_greater_link_ends_the_lanes_of_a_lower_one(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, Node::start(transport).await);
    opener.connect(&mut receiver).await;
    let mut lower = opener.open(receiver.peer).await;
    lower.write_all(&hello(2, 5)).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!(answer(&mut lower).await, (0, 16));
    // Two frames; one is taken, one is left in the channel.
    lower.write_all(&[0, 0, 0, 1, 7, 0, 0, 0, 1, 8]).await.unwrap();
    lower.flush().await.unwrap();
    let taken = in_time(inbound.next()).await.unwrap();
    assert_eq!(&*taken.bytes, [7]);
    let mut greater = opener.open(receiver.peer).await;
    greater.write_all(&hello(2, 6)).await.unwrap();
    let next = receiver.channel().await;
    assert_eq!(answer(&mut greater).await, (0, 16));
    ended(&mut lower).await;
    assert!(in_time(inbound.next()).await.is_none(), "what was not taken yet is dropped");
    assert_eq!(next.channel().index, 2);
}

async fn l3_8_a_lower_link_is_refused_with_the_number_to_exceed(transport: Transport) {
    let (mut opener, mut receiver) = (Raw::start(transport).await, Node::start(transport).await);
    opener.connect(&mut receiver).await;
    let mut greater = opener.open(receiver.peer).await;
    greater.write_all(&hello(0, 6)).await.unwrap();
    let _inbound = receiver.channel().await;
    assert_eq!(answer(&mut greater).await, (0, 16));
    let mut lower = opener.open(receiver.peer).await;
    lower.write_all(&hello(1, 5)).await.unwrap();
    assert_eq!(answer(&mut lower).await, (1, 6));
    ended(&mut lower).await;
}

async fn l3_8_a_node_that_finds_its_number_exceeded_takes_a_greater_one(transport: Transport) {
    let mut receiver = Node::start(transport).await;
    let key = Keypair::generate_ed25519();
    let mut other = Raw::with(transport, Options { key: key.clone(), ..Options::default() }).await;
    other.connect(&mut receiver).await;
    let ahead = u64::MAX / 2;
    let mut stream = other.open(receiver.peer).await;
    stream.write_all(&hello(2, ahead)).await.unwrap();
    let _inbound = receiver.channel().await;
    assert_eq!(answer(&mut stream).await, (0, 16));
    // The same peer, run anew by a clock behind.
    let sender = Node::with(transport, Options { key, ..Options::default() }).await;
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 3, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 3);
    assert_eq!(in_time(settlement).await, Ok(()));
    ended(&mut stream).await;
}

async fn l13_3_links_are_reported_opened_and_closed(transport: Transport) {
    let (mut sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    drop(in_time(inbound.next()).await.unwrap());
    assert_eq!(in_time(settlement).await, Ok(()));
    sender.disconnect(receiver.peer);
    let events = |seen| if let Seen::Lanes(event) = seen { Some(event) } else { None };
    for (node, other, way) in
        [(&mut sender, receiver.peer, Direction::Outward), (&mut receiver, inbound.peer(), Direction::Inward)]
    {
        let Event::Opened { peer, link, direction } = node.until(events).await else { panic!("not opened") };
        assert_eq!((peer, direction), (other, way));
        let closed = node.until(events).await;
        assert_eq!(closed, Event::Closed { peer, link, direction, reason: LinkEnd::Closed });
    }
}

const IDLE: Duration = Duration::from_millis(300);

async fn an_idle_link_lets_its_connection_close(transport: Transport) {
    let idle = || Options { idle: IDLE, ..Options::default() };
    let (mut sender, mut receiver) = (Node::with(transport, idle()).await, Node::with(transport, idle()).await);
    sender.know(&receiver);
    let mut finds = serve(&mut receiver);
    for sequence in 0..3 {
        // Each finds its connection anew.
        let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap();
        assert_eq!(in_time(settlement).await, Ok(()));
        assert_eq!(in_time(finds.recv()).await, Some((Class::E2e, sequence)));
        let other = receiver.peer;
        sender.until(|seen| matches!(seen, Seen::Disconnected(peer) if peer == other).then_some(())).await;
    }
}

async fn an_unsettled_frame_keeps_its_connection(transport: Transport) {
    let idle = || Options { idle: IDLE, ping_every: IDLE / 4, ..Options::default() };
    let (mut sender, mut receiver) = (Node::with(transport, idle()).await, Node::with(transport, idle()).await);
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    let held = Arc::new(in_time(inbound.next()).await.unwrap());
    // Pings, which keep nothing alive themselves, tell how time passes on the connection: five idle timeouts of it.
    for _ in 0..20 {
        let pinged = sender.until(|seen| match seen {
            Seen::Pinged(_) => Some(true),
            Seen::Disconnected(_) => Some(false),
            _ => None,
        });
        assert!(pinged.await, "the connection closed with a frame in flight");
    }
    drop(held);
    assert_eq!(in_time(settlement).await, Ok(()));
    sender.until(|seen| matches!(seen, Seen::Disconnected(_)).then_some(())).await;
}

async fn it_composes_with_identify_and_ping_on_one_connection(transport: Transport) {
    let (mut sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    drop(in_time(inbound.next()).await.unwrap());
    assert_eq!(in_time(settlement).await, Ok(()));
    let other = receiver.peer;
    let (mut identified, mut pinged, mut opened) = (false, false, false);
    sender
        .until(|seen| {
            match seen {
                Seen::Identified(peer) => identified = peer == other,
                Seen::Pinged(peer) => pinged = peer == other,
                Seen::Lanes(Event::Opened { .. }) => opened = true,
                _ => {}
            }
            (identified && pinged && opened).then_some(())
        })
        .await;
    assert!(sender.is_connected(receiver.peer).await);
}

/// A sibling that denies connections after lanes made their handler for them.
struct Denies(Arc<AtomicU64>);

impl NetworkBehaviour for Denies {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        self.judge()
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        self.judge()
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, never: Infallible) {
        match never {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, Infallible>> {
        Poll::Pending
    }
}

impl Denies {
    fn judge(&self) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() { Err(ConnectionDenied::new("told to")) } else { Ok(dummy::ConnectionHandler) }
    }
}

#[derive(NetworkBehaviour)]
struct Guarded {
    lanes: Behaviour,
    denies: Denies,
}

async fn l3_8_a_connection_that_a_sibling_denies_is_never_used(transport: Transport) {
    let denials = Arc::new(AtomicU64::new(3));
    let (lanes, outbound, _incoming) = Behaviour::new(Config::default(), Arc::new(SystemClock::new()));
    let guarded = Guarded { lanes, denies: Denies(denials.clone()) };
    let only_lanes = |event| match event {
        GuardedEvent::Lanes(event) => Some(event),
        GuardedEvent::Denies(never) => match never {},
    };
    let sender = Running::start(swarm(transport, Options::default(), guarded), transport, None, only_lanes).await;
    let mut receiver = Node::start(transport).await;
    sender.know(&receiver);
    let settlement = in_time(outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()).1, 0);
    assert_eq!(in_time(settlement).await, Ok(()));
    assert_eq!(denials.load(Ordering::SeqCst), 0, "three were denied first");
}

async fn l3_8_a_lane_that_fails_to_open_is_opened_again_and_loses_nothing_queued(transport: Transport) {
    let config = Config::default().pauses(Duration::from_millis(5), Duration::from_millis(50));
    let sender = Node::with(transport, Options { config, ..Options::default() }).await;
    let mut receiver = Raw::start(transport).await;
    let mut channels = receiver.streams.accept(DEFAULT_PROTOCOL).unwrap();
    sender.know(&receiver);
    let mut settlements = Vec::new();
    for sequence in 0..5 {
        settlements.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    // Ten that end before they are answered, then one that says it is open already, then one that works.
    for _ in 0..10 {
        drop(in_time(channels.next()).await.unwrap());
    }
    let (_, mut busy) = in_time(channels.next()).await.unwrap();
    in_time(busy.write_all(&[2, 0, 0, 0, 0, 0, 0, 0, 0])).await.unwrap();
    in_time(busy.close()).await.unwrap();
    let (_, mut stream) = in_time(channels.next()).await.unwrap();
    let mut hello = [0; 10];
    in_time(stream.read_exact(&mut hello)).await.unwrap();
    in_time(stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 0, 16])).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    for sequence in 0..5 {
        let mut length = [0; 4];
        in_time(stream.read_exact(&mut length)).await.unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        in_time(stream.read_exact(&mut bytes)).await.unwrap();
        let payload = Payload::decode(bytes.into(), FRAME_LIMIT).unwrap();
        assert_eq!(payload.transaction.content.sequence, sequence);
    }
    in_time(stream.write_all(&5_u64.to_be_bytes())).await.unwrap();
    in_time(stream.flush()).await.unwrap();
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}
