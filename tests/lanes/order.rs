//! Order, window, credit and independence (laws L3.1 to L3.5).

use admit_one::{link::Arrival, message::Class};
use futures::StreamExt;

use crate::support::{Node, Transport, frame, in_time, read};

async fn first_send(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let settlement = sender.outbound.send(frame(receiver.did, Class::E2e, 7, 10)).await.unwrap();
    let mut inbound = in_time(receiver.incoming().next()).await.unwrap();
    assert_eq!((inbound.peer(), inbound.channel().index, inbound.credit()), (sender.peer, Class::E2e.lane(), 16));
    let arrival: Arrival = in_time(inbound.next()).await.unwrap();
    assert_eq!(read(&arrival), (Class::E2e, 7));
    assert_eq!((arrival.peer, arrival.channel), (sender.peer, Some(inbound.channel())));
    assert!(arrival.read_at.is_some());
    drop(arrival);
    assert_eq!(in_time(settlement).await, Ok(()));
}

#[tokio::test]
async fn a_frame_goes_over_tcp_and_settles_when_its_guard_drops() {
    first_send(Transport::Tcp).await;
}

#[tokio::test]
async fn a_frame_goes_over_quic_and_settles_when_its_guard_drops() {
    first_send(Transport::Quic).await;
}
