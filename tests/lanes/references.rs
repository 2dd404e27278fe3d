//! References on a link, each end against a peer by raw substreams that is honest, silent or lies (law L4).

use std::{sync::Arc, time::Duration};

use admit_one::{
    identity::{Delegation, DelegationDigest, Did, KeySigner, Slot},
    lanes::{DEFAULT_PROTOCOL, Event, Settlement, Violation},
    link::Frame,
    message::{Class, FRAME_LIMIT, Payload},
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, future::join_all};
use libp2p::Stream;

use crate::{
    both_transports,
    support::{Node, Options, Raw, Seen, Transport, frame, in_time},
};

both_transports! {
    l4_3_the_sender_goes_inline_until_it_is_granted_a_lease_and_then_by_reference,
    l4_6_a_disclaimer_brings_the_sender_back_inline_and_a_grant_back_to_references,
    l4_7_a_receiver_that_never_takes_the_control_substream_gets_everything_inline,
    l4_7_a_control_substream_that_fails_costs_references_alone,
    l4_7_grants_for_what_was_never_carried_change_nothing,
    l4_7_disclaimers_of_everything_change_nothing,
    l4_7_more_than_two_control_frames_a_frame_close_the_link,
    l4_7_a_control_frame_of_an_unknown_kind_closes_the_link,
    l4_7_a_control_substream_answered_as_a_channel_closes_the_link,
    l4_7_a_channel_answered_as_a_control_substream_closes_the_link,
    l4_2_a_new_link_begins_with_an_empty_table,
    l4_6_what_was_never_carried_is_disclaimed_when_it_is_read,
    l4_7_a_flood_of_references_costs_its_own_link_alone,
    l4_7_a_control_substream_before_any_channel_closes_the_link,
    l4_7_a_second_control_substream_is_refused_by_name_and_the_link_kept,
    l4_7_a_control_substream_of_an_older_link_is_superseded,
    l4_7_an_opener_that_speaks_on_its_control_substream_loses_it_alone,
    l4_7_the_control_substream_keeps_no_connection_alive,
    a_node_without_delegations_opens_no_control_substream,
}

const CONTROL: u8 = 255;
const LATEST: u64 = 1 << 60;

fn delegation(of: u8) -> Arc<Delegation> {
    let (account, device) = (KeySigner::from_secret(&[of; 32]).unwrap(), KeySigner::from_secret(&[7; 32]).unwrap());
    Arc::new(account.delegate(device.key(), 0, LATEST))
}

/// A frame whose origin signs under delegation `of`, and whose hop for itself. Lanes verify nothing.
fn delegated(next_hop: Did, of: u8, sequence: u64) -> Frame {
    let mut frame = frame(next_hop, Class::E2e, sequence, 10);
    frame.payload.transaction.proof.slot = Slot::Inline(delegation(of));
    frame
}

fn grant(of: u8, channel: u8, number: u64) -> Vec<u8> {
    [[0].as_slice(), &delegation(of).digest().0, &[channel], &number.to_be_bytes()].concat()
}

fn disclaimer(of: u8) -> Vec<u8> {
    [[1].as_slice(), &delegation(of).digest().0].concat()
}

fn hello(channel: u8, link: u64) -> Vec<u8> {
    [[channel, 4].as_slice(), &link.to_be_bytes()].concat()
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

/// A node that sends to a raw receiver.
struct Sending {
    peer: Raw,
    node: Node,
    /// What the node opens.
    opened: libp2p_stream::IncomingStreams,
    channel: Stream,
    taken: u64,
    next: u64,
}

impl Sending {
    /// The node's first frame is in its channel, unread, and the channel is answered.
    async fn start(transport: Transport, options: Options) -> (Self, Settlement) {
        let (mut peer, node) = (Raw::start(transport).await, Node::with(transport, options).await);
        let mut opened = peer.streams.accept(DEFAULT_PROTOCOL).unwrap();
        node.know(&peer);
        let first = in_time(node.outbound.send(delegated(peer.did, 1, 0))).await.unwrap();
        let (_, mut channel) = in_time(opened.next()).await.unwrap();
        assert_eq!(read::<10>(&mut channel).await[..2], [2, 4]);
        write(&mut channel, &[0, 0, 0, 0, 0, 0, 0, 0, 16]).await;
        (Self { peer, node, opened, channel, taken: 0, next: 1 }, first)
    }

    /// As [`Sending::start`], with the first frame taken over and the control substream answered.
    async fn with_control(transport: Transport) -> (Self, Stream) {
        let (mut sending, first) = Self::start(transport, Options::default()).await;
        assert!(matches!(sending.take().await, Slot::Inline(_)));
        assert_eq!(in_time(first).await, Ok(()));
        let mut control = sending.control().await;
        write(&mut control, &[3, 0, 0, 0, 0, 0, 0, 0, 0]).await;
        (sending, control)
    }

    /// The control substream that the node opens, its hello read.
    async fn control(&mut self) -> Stream {
        let (_, mut control) = in_time(self.opened.next()).await.unwrap();
        assert_eq!(read::<10>(&mut control).await[..2], [CONTROL, 4]);
        control
    }

    /// Takes one frame over, and returns its origin's slot.
    async fn take(&mut self) -> Slot {
        let length = u32::from_be_bytes(read::<4>(&mut self.channel).await);
        let mut bytes = vec![0; length as usize];
        in_time(self.channel.read_exact(&mut bytes)).await.unwrap();
        self.taken += 1;
        write(&mut self.channel, &self.taken.to_be_bytes()).await;
        Payload::decode(bytes.into(), FRAME_LIMIT).unwrap().transaction.proof.slot
    }

    /// Sends one frame under delegation `of`, to its end.
    async fn send(&mut self, of: u8) -> Slot {
        let frame = delegated(self.peer.did, of, self.next);
        self.next += 1;
        let settlement = in_time(self.node.outbound.send(frame)).await.unwrap();
        let slot = self.take().await;
        assert_eq!(in_time(settlement).await, Ok(()));
        slot
    }

    /// Sends until the node heard what was said last on the control substream: until a slot is as `expected`.
    async fn until(&mut self, of: u8, expected: impl Fn(&Slot) -> bool) {
        let sending = async { while !expected(&self.send(of).await) {} };
        in_time(sending).await;
    }
}

fn is_inline(slot: &Slot) -> bool {
    matches!(slot, Slot::Inline(_))
}

fn is_reference(slot: &Slot) -> bool {
    matches!(slot, Slot::Digest(_))
}

async fn l4_3_the_sender_goes_inline_until_it_is_granted_a_lease_and_then_by_reference(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    for _ in 0..3 {
        assert_eq!(sending.send(1).await, Slot::Inline(delegation(1)));
    }
    write(&mut control, &grant(1, 2, 2)).await;
    sending.until(1, is_reference).await;
    for _ in 0..10 {
        assert_eq!(sending.send(1).await, Slot::Digest(delegation(1).digest()));
    }
    assert!(is_inline(&sending.send(2).await), "another delegation was not granted");
}

async fn l4_6_a_disclaimer_brings_the_sender_back_inline_and_a_grant_back_to_references(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    write(&mut control, &grant(1, 2, 0)).await;
    sending.until(1, is_reference).await;
    write(&mut control, &disclaimer(1)).await;
    sending.until(1, is_inline).await;
    let inline = sending.taken - 1;
    assert!(is_inline(&sending.send(1).await));
    write(&mut control, &grant(1, 2, inline)).await;
    sending.until(1, is_reference).await;
}

async fn l4_7_a_receiver_that_never_takes_the_control_substream_gets_everything_inline(transport: Transport) {
    let (mut sending, first) = Sending::start(transport, Options::default()).await;
    let mut settlements = vec![first];
    for _ in 0..40 {
        settlements.push(sending.node.outbound.send(delegated(sending.peer.did, 1, sending.next)).await.unwrap());
        sending.next += 1;
        assert!(is_inline(&sending.take().await));
    }
    assert!(is_inline(&sending.take().await), "one more than were sent here");
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}

async fn l4_7_a_control_substream_that_fails_costs_references_alone(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    write(&mut control, &grant(1, 2, 0)).await;
    sending.until(1, is_reference).await;
    drop(control);
    sending.until(1, is_inline).await;
    for _ in 0..10 {
        assert!(is_inline(&sending.send(1).await));
    }
    let raw = sending.peer.peer;
    assert!(sending.node.is_connected(raw).await);
}

async fn l4_7_grants_for_what_was_never_carried_change_nothing(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    sending.send(1).await;
    sending.send(2).await;
    // Another delegation, another channel, a frame of another delegation, a frame that is not written yet.
    let lies = [grant(3, 2, 0), grant(1, 3, 0), grant(1, 2, 2), grant(1, 2, u64::MAX), grant(1, 200, 0)];
    write(&mut control, &lies.concat()).await;
    for _ in 0..20 {
        assert!(is_inline(&sending.send(1).await));
    }
    // Said after all of them, so they were heard by when it is.
    write(&mut control, &grant(2, 2, 2)).await;
    sending.until(2, is_reference).await;
    assert!(is_inline(&sending.send(1).await) && is_inline(&sending.send(3).await));
}

async fn l4_7_disclaimers_of_everything_change_nothing(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    for _ in 0..20 {
        assert!(is_inline(&sending.send(1).await));
        write(&mut control, &[disclaimer(1), disclaimer(9)].concat()).await;
    }
    let raw = sending.peer.peer;
    assert!(sending.node.is_connected(raw).await);
}

async fn l4_7_more_than_two_control_frames_a_frame_close_the_link(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    sending.send(1).await;
    // The node may end the connection before all of it is written.
    let _ = in_time(control.write_all(&disclaimer(1).repeat(1_000))).await;
    let _ = in_time(control.flush()).await;
    assert_eq!(violation(&mut sending.node).await, Violation::ControlAhead { count: 5, written: 2 });
    disconnected(&mut sending.node).await;
}

async fn l4_7_a_control_frame_of_an_unknown_kind_closes_the_link(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    write(&mut control, &[7]).await;
    assert_eq!(violation(&mut sending.node).await, Violation::BadControl { kind: 7 });
    disconnected(&mut sending.node).await;
}

async fn l4_7_a_control_substream_answered_as_a_channel_closes_the_link(transport: Transport) {
    let (mut sending, _first) = Sending::start(transport, Options::default()).await;
    let mut control = sending.control().await;
    write(&mut control, &[0, 0, 0, 0, 0, 0, 0, 0, 16]).await;
    assert_eq!(violation(&mut sending.node).await, Violation::BadAnswer { channel: CONTROL, kind: 0, value: 16 });
    disconnected(&mut sending.node).await;
}

async fn l4_7_a_channel_answered_as_a_control_substream_closes_the_link(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    let mut opened = peer.streams.accept(DEFAULT_PROTOCOL).unwrap();
    node.know(&peer);
    let _settlement = in_time(node.outbound.send(frame(peer.did, Class::E2e, 0, 10))).await.unwrap();
    let (_, mut channel) = in_time(opened.next()).await.unwrap();
    write(&mut channel, &[3, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    assert_eq!(violation(&mut node).await, Violation::BadAnswer { channel: 2, kind: 3, value: 0 });
    disconnected(&mut node).await;
}

async fn l4_2_a_new_link_begins_with_an_empty_table(transport: Transport) {
    let (mut sending, mut control) = Sending::with_control(transport).await;
    write(&mut control, &grant(1, 2, 0)).await;
    sending.until(1, is_reference).await;
    sending.node.disconnect(sending.peer.peer);
    disconnected(&mut sending.node).await;
    let settlement = in_time(sending.node.outbound.send(delegated(sending.peer.did, 1, 99))).await.unwrap();
    (_, sending.channel) = in_time(sending.opened.next()).await.unwrap();
    sending.taken = 0;
    assert_eq!(read::<10>(&mut sending.channel).await[..2], [2, 4]);
    write(&mut sending.channel, &[0, 0, 0, 0, 0, 0, 0, 0, 16]).await;
    assert!(is_inline(&sending.take().await));
    assert_eq!(in_time(settlement).await, Ok(()));
}

/// A raw opener with one channel, answered, to a node; its link is number 7.
async fn opener(transport: Transport) -> (Raw, Node, Stream) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut channel = peer.open(node.peer).await;
    write(&mut channel, &hello(2, 7)).await;
    (peer, node, channel)
}

/// Its control substream, answered.
async fn control_to(peer: &mut Raw, node: &Node) -> Stream {
    let mut control = peer.open(node.peer).await;
    write(&mut control, &hello(CONTROL, 7)).await;
    assert_eq!(read::<9>(&mut control).await, [3, 0, 0, 0, 0, 0, 0, 0, 0]);
    control
}

fn framed(frame: &Frame) -> Vec<u8> {
    let bytes = frame.payload.encode(FRAME_LIMIT).unwrap();
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), &*bytes].concat()
}

fn referring(next_hop: Did, hop: DelegationDigest, origin: DelegationDigest) -> Vec<u8> {
    let mut frame = frame(next_hop, Class::E2e, 0, 10);
    frame.payload.proof.slot = Slot::Digest(hop);
    frame.payload.transaction.proof.slot = Slot::Digest(origin);
    framed(&frame)
}

async fn l4_6_what_was_never_carried_is_disclaimed_when_it_is_read(transport: Transport) {
    let (mut peer, mut node, mut channel) = opener(transport).await;
    let mut inbound = node.channel().await;
    assert_eq!(read::<9>(&mut channel).await[0], 0);
    let mut control = control_to(&mut peer, &node).await;
    let (hop, origin) = (delegation(1).digest(), delegation(2).digest());
    write(&mut channel, &referring(node.did, hop, origin)).await;
    // Nobody has looked at the frame yet.
    assert_eq!(read::<66>(&mut control).await, *[disclaimer(1), disclaimer(2)].concat());
    write(&mut channel, &referring(node.did, origin, origin)).await;
    assert_eq!(read::<33>(&mut control).await, *disclaimer(2), "once");
    // Lanes carry what they do not understand: it is the layer that refuses it, and its credit comes back.
    for count in 1..=2_u64 {
        drop(in_time(inbound.next()).await.expect("the channel is open"));
        assert_eq!(read::<8>(&mut channel).await, count.to_be_bytes());
    }
}

async fn l4_7_a_flood_of_references_costs_its_own_link_alone(transport: Transport) {
    const FRAMES: u64 = 2_000;
    let (mut peer, mut node, mut channel) = opener(transport).await;
    let serving = node.incoming().serve(tower::service_fn(async |_| Ok::<_, std::convert::Infallible>(())));
    tokio::spawn(serving);
    assert_eq!(read::<9>(&mut channel).await[0], 0);
    // A control substream that its opener never reads.
    let _control = control_to(&mut peer, &node).await;
    let mut count = 0;
    for number in 0..FRAMES {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        let other = DelegationDigest(digest.map(|byte| !byte));
        write(&mut channel, &referring(node.did, DelegationDigest(digest), other)).await;
        // At most the credit of 16 in flight, and all taken over in the end.
        while number + 1 >= count + 16 || (number + 1 == FRAMES && count < FRAMES) {
            count = u64::from_be_bytes(read::<8>(&mut channel).await);
        }
    }
    assert!(node.is_connected(peer.peer).await);
}

async fn l4_7_a_control_substream_before_any_channel_closes_the_link(transport: Transport) {
    let (mut peer, mut node) = (Raw::start(transport).await, Node::start(transport).await);
    peer.connect(&mut node).await;
    let mut control = peer.open(node.peer).await;
    write(&mut control, &hello(CONTROL, 7)).await;
    assert_eq!(violation(&mut node).await, Violation::UnknownChannel { index: CONTROL, pool: 4 });
    disconnected(&mut node).await;
}

async fn l4_7_a_second_control_substream_is_refused_by_name_and_the_link_kept(transport: Transport) {
    let (mut peer, mut node, mut channel) = opener(transport).await;
    let _inbound = node.channel().await;
    assert_eq!(read::<9>(&mut channel).await[0], 0);
    let mut first = control_to(&mut peer, &node).await;
    let mut second = peer.open(node.peer).await;
    write(&mut second, &hello(CONTROL, 7)).await;
    assert_eq!(read::<9>(&mut second).await, [2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(violation(&mut node).await, Violation::AlreadyOpen { channel: CONTROL });
    write(&mut channel, &referring(node.did, delegation(1).digest(), delegation(1).digest())).await;
    assert_eq!(read::<33>(&mut first).await, *disclaimer(1));
}

async fn l4_7_a_control_substream_of_an_older_link_is_superseded(transport: Transport) {
    let (mut peer, mut node, mut channel) = opener(transport).await;
    let _inbound = node.channel().await;
    assert_eq!(read::<9>(&mut channel).await[0], 0);
    let mut control = peer.open(node.peer).await;
    write(&mut control, &hello(CONTROL, 6)).await;
    assert_eq!(read::<9>(&mut control).await, [1, 0, 0, 0, 0, 0, 0, 0, 7]);
    // A greater link ends the control substream of the lower one with its channels.
    let mut control = control_to(&mut peer, &node).await;
    let mut greater = peer.open(node.peer).await;
    write(&mut greater, &hello(2, 8)).await;
    let _inbound = node.channel().await;
    assert_eq!(in_time(control.read(&mut [0])).await.unwrap_or(0), 0);
}

async fn l4_7_an_opener_that_speaks_on_its_control_substream_loses_it_alone(transport: Transport) {
    let (mut peer, mut node, mut channel) = opener(transport).await;
    let mut inbound = node.channel().await;
    assert_eq!(read::<9>(&mut channel).await[0], 0);
    let mut control = control_to(&mut peer, &node).await;
    write(&mut control, &[0]).await;
    assert_eq!(in_time(control.read(&mut [0])).await.unwrap_or(0), 0);
    write(&mut channel, &framed(&delegated(node.did, 1, 5))).await;
    let arrival = in_time(inbound.next()).await.expect("the channel is open");
    assert_eq!(crate::support::read(&arrival), (Class::E2e, 5));
}

async fn l4_7_the_control_substream_keeps_no_connection_alive(transport: Transport) {
    let options = Options { idle: Duration::from_millis(300), ..Options::default() };
    let (mut sending, first) = Sending::start(transport, options).await;
    sending.take().await;
    assert_eq!(in_time(first).await, Ok(()));
    let mut control = sending.control().await;
    write(&mut control, &[3, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    disconnected(&mut sending.node).await;
}

async fn a_node_without_delegations_opens_no_control_substream(transport: Transport) {
    let (mut peer, node) = (Raw::start(transport).await, Node::start(transport).await);
    let mut opened = peer.streams.accept(DEFAULT_PROTOCOL).unwrap();
    node.know(&peer);
    let mut channels = Vec::new();
    for (taken, class) in Class::ALL.into_iter().enumerate() {
        let settlement = in_time(node.outbound.send(frame(peer.did, class, 0, 10))).await.unwrap();
        let (_, mut channel) = in_time(opened.next()).await.unwrap();
        assert_eq!(usize::from(read::<10>(&mut channel).await[0]), taken, "the next one opened is the next channel");
        write(&mut channel, &[0, 0, 0, 0, 0, 0, 0, 0, 16]).await;
        let length = u32::from_be_bytes(read::<4>(&mut channel).await);
        in_time(channel.read_exact(&mut vec![0; length as usize])).await.unwrap();
        write(&mut channel, &1_u64.to_be_bytes()).await;
        assert_eq!(in_time(settlement).await, Ok(()));
        channels.push(channel);
    }
}
