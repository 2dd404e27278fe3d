//! Transactions that are too large for a frame, as their origin sends them (laws L2.8, L3.6, L3.7 and L3.8).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admit_one::{
    BoxFuture,
    identity::{SignError, Signature, Signer, Slot},
    lanes::{Config, Fate, Inbound, LossReason, Lost, Origin, OriginError, Settlement},
    link::{Arrival, CreditGuard},
    message::{Class, Content, FRAME_LIMIT, Kind, MESSAGE_LIMIT, Payload},
    storage::Memory,
};
use futures::{StreamExt, future::join_all, poll};
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::{
    both_transports,
    origin::Sending,
    support::{Node, Transport, frame, in_time, read},
};

both_transports! {
    l3_6_chunks_of_two_messages_of_a_lane_never_interleave_for_any_number_of_callers,
    l3_6_other_classes_and_what_is_forwarded_go_on_between_chunks,
    l3_8_a_link_that_ends_in_the_middle_of_a_message_loses_it_and_the_next_message_goes_on_the_next_link,
    l3_8_a_message_partly_written_is_lost_with_its_link_even_if_all_that_was_written_was_taken_over,
    l3_8_a_message_of_which_nothing_was_written_moves_to_the_next_link_whole,
    l3_7_a_message_that_expires_in_the_middle_is_lost_and_its_lane_goes_on,
    l3_7_a_caller_that_goes_away_in_the_middle_stops_the_rest_and_its_lane_goes_on,
    l3_7_a_caller_behind_a_message_waits_at_most_until_its_own_expiry,
    l3_7_a_shutdown_in_the_middle_loses_a_message_once,
    l3_7_a_signer_that_fails_in_the_middle_gives_the_message_up_and_its_lane_goes_on,
    l3_5_a_message_to_a_peer_that_takes_nothing_holds_up_no_other_peer,
    l2_8_a_message_of_the_greatest_length_passes_a_lane_of_2_mib,
}

/// What a chunk's frame carries of its original, about.
const CHUNK: usize = FRAME_LIMIT - 1_024;

async fn sending(transport: Transport) -> Sending {
    Sending::with(Arc::new(Memory::new()), transport, Config::default()).await
}

fn origin(sending: &Sending) -> Origin {
    sending.builder(sending.delegated(&sending.device)).build().unwrap()
}

/// Data that takes at least so many frames.
fn data(class: Class, frames: usize) -> Vec<u8> {
    let mut data = vec![0; if frames == 1 { 40 } else { frames * CHUNK }];
    data[0] = class.lane();
    data
}

fn send(origin: &Origin, to: &Node, data: Vec<u8>) -> JoinHandle<Result<Settlement, OriginError>> {
    let (origin, to) = (origin.clone(), to.did);
    tokio::spawn(async move { origin.send(to, data).await })
}

/// The next frame, which keeps its credit as long as the arrival is kept.
async fn next(inbound: &mut Inbound) -> (Arrival, Content) {
    let arrival = in_time(inbound.next()).await.expect("the channel is open");
    let content = Payload::decode(arrival.bytes.clone(), FRAME_LIMIT).unwrap().transaction.content;
    (arrival, content)
}

/// The index of a chunk and how many there are.
fn place(content: &Content) -> (u32, u32) {
    match content.kind {
        Kind::Chunk { index, count, .. } => (index, count),
        Kind::Whole => panic!("a whole transaction, sequence {}", content.sequence),
    }
}

/// Takes the chunks of one message, all of them and nothing between.
async fn whole_message(inbound: &mut Inbound) -> u64 {
    let (_, first) = next(inbound).await;
    let (index, count) = place(&first);
    assert_eq!(index, 0);
    for expected in 1..count {
        let (_, content) = next(inbound).await;
        assert_eq!((content.sequence, place(&content)), (first.sequence, (expected, count)));
    }
    first.sequence
}

/// Takes what comes until a whole transaction does, whose sequence it returns with how many chunks came before.
async fn until_whole(inbound: &mut Inbound) -> (u32, u64) {
    let mut chunks = 0;
    loop {
        let (_, content) = next(inbound).await;
        if content.kind == Kind::Whole {
            return (chunks, content.sequence);
        }
        chunks += 1;
    }
}

/// Signs so often, and then waits for more permits, or fails.
#[derive(Debug)]
struct Gated {
    signer: Arc<dyn Signer>,
    permits: Semaphore,
}

impl Gated {
    fn new(signer: Arc<dyn Signer>, permits: usize) -> Arc<Self> {
        Arc::new(Self { signer, permits: Semaphore::new(permits) })
    }
}

impl Signer for Gated {
    fn slot(&self) -> Slot {
        self.signer.slot()
    }

    fn sign(&self, digest: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        Box::pin(async move {
            match self.permits.acquire().await {
                Ok(permit) => permit.forget(),
                Err(closed) => return Err(SignError { reason: closed.to_string() }),
            }
            self.signer.sign(digest).await
        })
    }
}

async fn l3_6_chunks_of_two_messages_of_a_lane_never_interleave_for_any_number_of_callers(transport: Transport) {
    const TASKS: usize = 8;
    const EACH: usize = 6;
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (origin, to) = (origin.clone(), receiver.did);
            tokio::spawn(async move {
                let mut settlements = Vec::new();
                for each in 0..EACH {
                    settlements.push(origin.send(to, data(Class::E2e, 1 + (task + each) % 5 * 3)).await.unwrap());
                }
                join_all(settlements).await
            })
        })
        .collect();
    let mut inbound = receiver.channel().await;
    for sequence in 0..(TASKS * EACH) as u64 {
        let (_, content) = next(&mut inbound).await;
        assert_eq!(content.sequence, sequence, "lane order is the order of the sequences");
        if let Kind::Chunk { index, count, length, original } = content.kind {
            assert_eq!(index, 0);
            let mut bytes = content.data.len() - 1;
            for index in 1..count {
                let (_, content) = next(&mut inbound).await;
                assert_eq!((content.sequence, content.data[0]), (sequence, Class::E2e.lane()));
                assert_eq!(content.kind, Kind::Chunk { index, count, length, original });
                bytes += content.data.len() - 1;
            }
            assert_eq!(bytes as u64, length);
        }
    }
    for task in tasks {
        assert!(in_time(task).await.unwrap().iter().all(Result::is_ok));
    }
}

async fn l3_6_other_classes_and_what_is_forwarded_go_on_between_chunks(transport: Transport) {
    let config = Config::default().pool(1);
    let sending = Sending::with(Arc::new(Memory::new()), transport, config).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let message = send(&origin, &receiver, data(Class::E2e, 40));
    let mut inbound = receiver.channel().await;
    let (held, first) = next(&mut inbound).await;
    assert_eq!(place(&first).0, 0);
    // The window is full behind the frame that is held, so these meet a message in the middle.
    let control = in_time(sending.node.outbound.send(frame(receiver.did, Class::DhtControl, 1_000, 10))).await.unwrap();
    let mut forward = frame(receiver.did, Class::E2e, 2_000, 10);
    forward.inbound = Some(CreditGuard::new(|| {}));
    let forwarded = in_time(sending.node.outbound.send(forward)).await.unwrap();
    let mut own = Box::pin(sending.node.outbound.send(frame(receiver.did, Class::E2e, 3_000, 10)));
    assert!(poll!(&mut own).is_pending(), "this node's own waits");
    drop(held);
    let (mut order, mut last) = (Vec::new(), 0);
    let reading = async {
        while order.len() < 3 {
            let (_, content) = next(&mut inbound).await;
            match content.kind {
                Kind::Whole => order.push((content.sequence, last)),
                Kind::Chunk { index, .. } => last = index,
            }
        }
    };
    let (own, ()) = tokio::join!(async { in_time(in_time(own).await.unwrap()).await }, reading);
    assert_eq!(own, Ok(()));
    assert_eq!(order.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1_000, 2_000, 3_000]);
    let (_, count) = place(&first);
    assert!(order[1].1 < count - 1, "chunks follow what was forwarded");
    assert_eq!(order[2].1, count - 1, "the node's own follows the last chunk");
    for settlement in [control, forwarded, in_time(message).await.unwrap().unwrap()] {
        assert_eq!(in_time(settlement).await, Ok(()));
    }
}

async fn l3_8_a_link_that_ends_in_the_middle_of_a_message_loses_it_and_the_next_message_goes_on_the_next_link(
    transport: Transport,
) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let lost = send(&origin, &receiver, data(Class::E2e, 60));
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for index in 0..11 {
        let (arrival, content) = next(&mut inbound).await;
        assert_eq!((content.sequence, place(&content).0), (0, index));
        held.extend((index >= 3).then_some(arrival));
    }
    let moves = send(&origin, &receiver, data(Class::E2e, 20));
    sending.node.disconnect(receiver.peer);
    let expected = Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(in_time(lost).await.unwrap().unwrap()).await, Err(expected));
    let mut inbound = receiver.channel().await;
    assert_eq!(whole_message(&mut inbound).await, 1, "nothing of the lost one comes before it");
    assert_eq!(in_time(in_time(moves).await.unwrap().unwrap()).await, Ok(()));
}

async fn l3_8_a_message_partly_written_is_lost_with_its_link_even_if_all_that_was_written_was_taken_over(
    transport: Transport,
) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    // The original and three chunks.
    let gated = Gated::new(sending.delegated(&sending.device), 4);
    let origin = sending.builder(gated.clone()).build().unwrap();
    let lost = send(&origin, &receiver, data(Class::E2e, 20));
    let mut inbound = receiver.channel().await;
    for index in 0..3 {
        assert_eq!(place(&next(&mut inbound).await.1).0, index);
    }
    // A later frame's credit covers all that came before on the channel.
    let mut other = frame(receiver.did, Class::E2e, 9, 10);
    other.inbound = Some(CreditGuard::new(|| {}));
    let settled = in_time(sending.node.outbound.send(other)).await.unwrap();
    assert_eq!(next(&mut inbound).await.1.sequence, 9);
    assert_eq!(in_time(settled).await, Ok(()));
    sending.node.disconnect(receiver.peer);
    let expected = Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(in_time(lost).await.unwrap().unwrap()).await, Err(expected));
    gated.permits.add_permits(1_000);
    let moves = send(&origin, &receiver, data(Class::E2e, 1));
    let mut inbound = receiver.channel().await;
    assert_eq!(until_whole(&mut inbound).await, (0, 1));
    assert_eq!(in_time(in_time(moves).await.unwrap().unwrap()).await, Ok(()));
}

async fn l3_8_a_message_of_which_nothing_was_written_moves_to_the_next_link_whole(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let mut before = Vec::new();
    for _ in 0..8 {
        before.push(in_time(origin.send(receiver.did, data(Class::E2e, 1))).await.unwrap());
    }
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(next(&mut inbound).await);
    }
    // The window is full. The message is open once its first chunks are signed, for which it must have room.
    let gated = Gated::new(sending.delegated(&sending.device), 1_000);
    let origin = sending.builder(gated.clone()).build().unwrap();
    let moves = send(&origin, &receiver, data(Class::E2e, 20));
    in_time(async {
        while gated.permits.available_permits() > 1_000 - 1 - 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    sending.node.disconnect(receiver.peer);
    for settled in in_time(join_all(before)).await {
        assert_eq!(settled, Err(Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived }));
    }
    let mut inbound = receiver.channel().await;
    assert_eq!(whole_message(&mut inbound).await, 8);
    assert_eq!(in_time(in_time(moves).await.unwrap().unwrap()).await, Ok(()));
}

async fn l3_7_a_message_that_expires_in_the_middle_is_lost_and_its_lane_goes_on(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let short = sending.builder(sending.delegated(&sending.device)).ttl(5_000).build().unwrap();
    let expires = send(&short, &receiver, data(Class::E2e, 60));
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for index in 0..11 {
        let (arrival, content) = next(&mut inbound).await;
        assert_eq!(place(&content).0, index);
        held.extend((index >= 3).then_some(arrival));
    }
    let expected = Lost { reason: LossReason::Expired, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(in_time(expires).await.unwrap().unwrap()).await, Err(expected));
    drop(held);
    let goes_on = send(&origin(&sending), &receiver, data(Class::E2e, 1));
    assert_eq!(until_whole(&mut inbound).await, (0, 1), "nothing of the lost one is written any more");
    assert_eq!(in_time(in_time(goes_on).await.unwrap().unwrap()).await, Ok(()));
}

async fn l3_7_a_caller_that_goes_away_in_the_middle_stops_the_rest_and_its_lane_goes_on(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let gone = send(&origin, &receiver, data(Class::E2e, 60));
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for index in 0..11 {
        let (arrival, content) = next(&mut inbound).await;
        assert_eq!(place(&content).0, index);
        held.extend((index >= 3).then_some(arrival));
    }
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    // It is queued, so the lane is free again, while the window is full of what was written.
    let goes_on = in_time(origin.send(receiver.did, data(Class::E2e, 1))).await.unwrap();
    drop(held);
    assert_eq!(until_whole(&mut inbound).await, (0, 1));
    assert_eq!(in_time(goes_on).await, Ok(()));
    assert_eq!(in_time(sending.node.outbound.shutdown(crate::support::FAILURE)).await, 0, "nothing is left of it");
}

async fn l3_7_a_caller_behind_a_message_waits_at_most_until_its_own_expiry(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let message = send(&origin(&sending), &receiver, data(Class::E2e, 60));
    let mut inbound = receiver.channel().await;
    let held = next(&mut inbound).await;
    let short = sending.builder(sending.delegated(&sending.device)).ttl(200).build().unwrap();
    for frames in [1, 10] {
        let refused = in_time(short.send(receiver.did, data(Class::E2e, frames))).await.unwrap_err();
        let expired = "lost (expired): it was never written";
        assert!(matches!(refused, OriginError::Refused(_)) && refused.to_string() == expired, "{refused}");
    }
    let (_, count) = place(&held.1);
    drop(held);
    for expected in 1..count {
        assert_eq!(place(&next(&mut inbound).await.1).0, expected);
    }
    assert_eq!(in_time(in_time(message).await.unwrap().unwrap()).await, Ok(()));
}

async fn l3_7_a_shutdown_in_the_middle_loses_a_message_once(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let message = send(&origin, &receiver, data(Class::E2e, 60));
    let mut inbound = receiver.channel().await;
    let _held = next(&mut inbound).await;
    assert_eq!(in_time(sending.node.outbound.shutdown(Duration::from_millis(100))).await, 1, "one send");
    let expected = Lost { reason: LossReason::Shutdown, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(in_time(message).await.unwrap().unwrap()).await, Err(expected));
    let refused = in_time(origin.send(receiver.did, data(Class::E2e, 60))).await.unwrap_err();
    assert!(matches!(refused, OriginError::Refused(_)), "{refused}");
}

async fn l3_7_a_signer_that_fails_in_the_middle_gives_the_message_up_and_its_lane_goes_on(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let gated = Gated::new(sending.delegated(&sending.device), 4);
    let failing = sending.builder(gated.clone()).build().unwrap();
    let message = send(&failing, &receiver, data(Class::E2e, 20));
    let mut inbound = receiver.channel().await;
    for index in 0..3 {
        assert_eq!(place(&next(&mut inbound).await.1).0, index);
    }
    gated.permits.close();
    let refused = in_time(message).await.unwrap().unwrap_err();
    assert!(matches!(refused, OriginError::Sign(_)), "{refused}");
    let goes_on = in_time(origin(&sending).send(receiver.did, data(Class::E2e, 1))).await.unwrap();
    assert_eq!(until_whole(&mut inbound).await, (0, 1));
    assert_eq!(in_time(goes_on).await, Ok(()));
}

async fn l3_5_a_message_to_a_peer_that_takes_nothing_holds_up_no_other_peer(transport: Transport) {
    let sending = sending(transport).await;
    let (mut stalled, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sending.node.know(&stalled);
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let waits = send(&origin, &stalled, data(Class::E2e, 60));
    let mut stalled_inbound = stalled.channel().await;
    let held = next(&mut stalled_inbound).await;
    for _ in 0..3 {
        let passes = send(&origin, &receiver, data(Class::E2e, 20));
        if receiver.incoming.is_some() {
            let incoming = receiver.incoming();
            tokio::spawn(incoming.for_each_concurrent(None, |inbound| inbound.for_each(|_| async {})));
        }
        assert_eq!(in_time(in_time(passes).await.unwrap().unwrap()).await, Ok(()));
    }
    assert!(!waits.is_finished());
    drop(held);
    assert_eq!(whole_from(&mut stalled_inbound, 1).await, 0);
    assert_eq!(in_time(in_time(waits).await.unwrap().unwrap()).await, Ok(()));
}

/// The rest of a message from `index` on. Its sequence.
async fn whole_from(inbound: &mut Inbound, index: u32) -> u64 {
    for expected in index.. {
        let (_, content) = next(inbound).await;
        let (index, count) = place(&content);
        assert_eq!(index, expected);
        if index + 1 == count {
            return content.sequence;
        }
    }
    unreachable!("a message ends")
}

async fn l2_8_a_message_of_the_greatest_length_passes_a_lane_of_2_mib(transport: Transport) {
    let sending = sending(transport).await;
    let mut receiver = Node::start(transport).await;
    sending.node.know(&receiver);
    let origin = origin(&sending);
    let mut data = vec![7; MESSAGE_LIMIT - 1_024];
    data[0] = Class::E2e.lane();
    // The link is there before the clock starts.
    let first = in_time(origin.send(receiver.did, vec![Class::E2e.lane()])).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!(read(&in_time(inbound.next()).await.unwrap()), (Class::E2e, 0));
    assert_eq!(in_time(first).await, Ok(()));
    let started = Instant::now();
    let message = send(&origin, &receiver, data);
    assert_eq!(whole_message(&mut inbound).await, 1);
    assert_eq!(in_time(in_time(message).await.unwrap().unwrap()).await, Ok(()));
    eprintln!("60 MB over {transport:?} in {:?}", started.elapsed());
}
