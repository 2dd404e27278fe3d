//! What ends the wait for a stream's old next hop, and what it does not hold up (laws L3.5, L3.7 and L3.9).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use admit_one::{
    BoxFuture,
    clock::SystemClock,
    identity::{Did, KeySigner, SignError, Signature, Signer, Slot},
    lanes::{Config, Fate, Inbound, LossReason, Lost, Origin, OriginError, SendRefused, Settlement},
    link::{Arrival, CreditGuard, Frame, Router},
    message::{Class, NetworkId},
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::{StreamExt, future::join_all, poll};
use libp2p::identity::Keypair;
use tokio::sync::{Semaphore, oneshot};

use crate::{
    both_transports,
    support::{FAILURE, Node, Options, Raw, Transport, frame_by, in_time, read},
};

both_transports! {
    l3_9_a_hop_that_is_not_there_keeps_its_stream_until_its_frames_are_past_their_time,
    l3_9_the_wait_for_the_old_hop_ends_when_a_frames_time_is_over,
    l3_9_a_forward_that_waits_for_the_old_hop_is_accepted_and_ends_in_time_with_its_credit,
    l3_9_a_caller_that_goes_away_holds_up_nobody_behind_it,
    l3_9_frames_lost_with_their_link_let_the_stream_go_on,
    l3_9_a_new_hop_without_the_protocol_loses_what_comes_to_it_and_no_more,
    l3_9_shutdown_loses_what_waits_for_the_old_hop,
    l3_9_shutdown_drains_what_waits_for_the_old_hop,
    l3_9_an_origin_that_has_room_on_the_old_hop_and_cannot_sign_lets_the_stream_go_on,
    l3_7_room_given_back_lets_the_next_go_at_once,
}

const SOON: Duration = Duration::from_millis(100);

fn did(seed: u8) -> Did {
    KeySigner::from_secret(&[seed; 32]).unwrap().key()
}

/// A frame of the one stream that these tests move about.
fn moved(next_hop: Did, sequence: u64) -> Frame {
    frame_by(next_hop, did(1), did(2), Class::E2e, sequence)
}

fn within(frame: Frame, write_within: Duration) -> Frame {
    Frame { write_within, ..frame }
}

fn never_written(reason: LossReason) -> Lost {
    Lost { reason, fate: Fate::NeverWritten }
}

/// A node with one frame of the stream in flight to the old hop, which holds it.
struct Held {
    sender: Node,
    old: Node,
    new: Node,
    in_flight: Settlement,
    arrival: Arrival,
    _inbound: Inbound,
}

impl Held {
    async fn start(transport: Transport) -> Self {
        let sender = Node::start(transport).await;
        let (mut old, new) = (Node::start(transport).await, Node::start(transport).await);
        sender.know(&old);
        sender.know(&new);
        let in_flight = in_time(sender.outbound.send(moved(old.did, 0))).await.unwrap();
        let mut inbound = old.channel().await;
        let arrival = in_time(inbound.next()).await.unwrap();
        Self { sender, old, new, in_flight, arrival, _inbound: inbound }
    }
}

/// The sequences of the next `count` frames on the next channel.
async fn taken(node: &mut Node, count: usize) -> Vec<u64> {
    let mut inbound = node.channel().await;
    let mut sequences = Vec::new();
    for _ in 0..count {
        sequences.push(read(&in_time(inbound.next()).await.unwrap()).1);
    }
    sequences
}

async fn l3_9_a_hop_that_is_not_there_keeps_its_stream_until_its_frames_are_past_their_time(transport: Transport) {
    let (sender, mut new) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&new);
    let stuck = in_time(sender.outbound.send(within(moved(did(9), 0), SOON))).await.unwrap();
    let mut waiting = sender.outbound.send(moved(new.did, 1));
    assert!(poll!(&mut waiting).is_pending());
    // Another stream of the same lane, and the same two ends in another class, go at once.
    let other = in_time(sender.outbound.send(frame_by(new.did, did(3), did(2), Class::E2e, 7))).await.unwrap();
    let storage = in_time(sender.outbound.send(frame_by(new.did, did(1), did(2), Class::Storage, 8))).await.unwrap();
    assert_eq!(in_time(stuck).await, Err(never_written(LossReason::NotConnected)));
    let settlement = in_time(waiting).await.unwrap();
    let incoming = new.incoming();
    tokio::spawn(incoming.for_each_concurrent(None, |inbound| inbound.for_each(|_| async {})));
    for settlement in [other, storage, settlement] {
        assert_eq!(in_time(settlement).await, Ok(()));
    }
}

async fn l3_9_the_wait_for_the_old_hop_ends_when_a_frames_time_is_over(transport: Transport) {
    let mut held = Held::start(transport).await;
    // So that the new hop is connected.
    let other =
        in_time(held.sender.outbound.send(frame_by(held.new.did, did(3), did(2), Class::E2e, 7))).await.unwrap();
    assert_eq!(taken(&mut held.new, 1).await, [7]);
    assert_eq!(in_time(other).await, Ok(()));
    let refused = in_time(held.sender.outbound.send(within(moved(held.new.did, 1), SOON))).await.unwrap_err();
    assert_eq!(refused, SendRefused::Lost(never_written(LossReason::Expired)));
    assert_eq!(poll!(&mut held.in_flight), Poll::Pending);
    drop(held.arrival);
    assert_eq!(in_time(held.in_flight).await, Ok(()));
}

async fn l3_9_a_forward_that_waits_for_the_old_hop_is_accepted_and_ends_in_time_with_its_credit(transport: Transport) {
    let held = Held::start(transport).await;
    let (given_back, mut credit) = oneshot::channel();
    let mut forward = within(moved(held.new.did, 1), SOON);
    forward.inbound = Some(CreditGuard::new(move || {
        let _ = given_back.send(());
    }));
    let settlement = match poll!(&mut held.sender.outbound.send(forward)) {
        Poll::Ready(accepted) => accepted.unwrap(),
        Poll::Pending => panic!("it holds up the frames behind it on its inbound channel"),
    };
    assert_eq!(poll!(&mut credit), Poll::Pending);
    assert_eq!(in_time(settlement).await, Err(never_written(LossReason::ForwardQueueFull)));
    assert_eq!(in_time(credit).await, Ok(()));
}

async fn l3_9_a_caller_that_goes_away_holds_up_nobody_behind_it(transport: Transport) {
    let mut held = Held::start(transport).await;
    let outbound = &held.sender.outbound;
    let (mut gone, mut kept) = (outbound.send(moved(held.new.did, 1)), outbound.send(moved(held.new.did, 2)));
    // Parted from the frame in flight by those to the new hop alone.
    let mut back = outbound.send(moved(held.old.did, 3));
    assert!(poll!(&mut gone).is_pending() && poll!(&mut kept).is_pending() && poll!(&mut back).is_pending());
    drop(gone);
    assert!(poll!(&mut kept).is_pending() && poll!(&mut back).is_pending());
    drop(kept);
    let back = in_time(back).await.unwrap();
    drop(held.arrival);
    assert_eq!(read(&in_time(held._inbound.next()).await.unwrap()).1, 3);
    assert_eq!((in_time(held.in_flight).await, in_time(back).await), (Ok(()), Ok(())));
    let after = in_time(outbound.send(moved(held.new.did, 4))).await.unwrap();
    assert_eq!(taken(&mut held.new, 1).await, [4]);
    assert_eq!(in_time(after).await, Ok(()));
}

async fn l3_9_frames_lost_with_their_link_let_the_stream_go_on(transport: Transport) {
    let mut held = Held::start(transport).await;
    let mut calls: Vec<_> = (1..4).map(|sequence| held.sender.outbound.send(moved(held.new.did, sequence))).collect();
    assert!(poll!(&mut calls[0]).is_pending());
    held.sender.disconnect(held.old.peer);
    let lost = Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(held.in_flight).await, Err(lost));
    let settlements = in_time(join_all(calls)).await.into_iter().map(Result::unwrap);
    assert_eq!(taken(&mut held.new, 3).await, [1, 2, 3]);
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}

async fn l3_9_a_new_hop_without_the_protocol_loses_what_comes_to_it_and_no_more(transport: Transport) {
    let mut held = Held::start(transport).await;
    let stranger = Raw::start(transport).await;
    held.sender.know(&stranger);
    let (first, second) =
        (held.sender.outbound.send(moved(stranger.did, 1)), held.sender.outbound.send(moved(held.new.did, 2)));
    drop(held.arrival);
    assert_eq!(in_time(held.in_flight).await, Ok(()));
    let unsupported = Err(never_written(LossReason::Unsupported));
    assert_eq!(in_time(in_time(first).await.unwrap()).await, unsupported);
    let second = in_time(second).await.unwrap();
    assert_eq!(taken(&mut held.new, 1).await, [2]);
    assert_eq!(in_time(second).await, Ok(()));
}

async fn l3_9_shutdown_loses_what_waits_for_the_old_hop(transport: Transport) {
    let held = Held::start(transport).await;
    let waiting = held.sender.outbound.send(moved(held.new.did, 1));
    let mut forward = moved(held.new.did, 2);
    forward.inbound = Some(CreditGuard::new(|| {}));
    let forwarded = in_time(held.sender.outbound.send(forward)).await.unwrap();
    assert_eq!(in_time(held.sender.outbound.shutdown(SOON)).await, 3);
    assert_eq!(in_time(waiting).await.unwrap_err(), SendRefused::Lost(never_written(LossReason::Shutdown)));
    assert_eq!(in_time(forwarded).await, Err(never_written(LossReason::Shutdown)));
    let lost = Lost { reason: LossReason::Shutdown, fate: Fate::MayHaveBeenReceived };
    assert_eq!(in_time(held.in_flight).await, Err(lost));
}

async fn l3_9_shutdown_drains_what_waits_for_the_old_hop(transport: Transport) {
    let mut held = Held::start(transport).await;
    let calls: Vec<_> = (1..50)
        .map(|sequence| {
            let hop = if sequence % 3 == 0 { held.old.did } else { held.new.did };
            held.sender.outbound.send(moved(hop, sequence))
        })
        .collect();
    let outbound = held.sender.outbound.clone();
    let shutdown = tokio::spawn(async move { outbound.shutdown(FAILURE).await });
    let incoming = held.new.incoming();
    tokio::spawn(incoming.for_each_concurrent(None, |inbound| inbound.for_each(|_| async {})));
    tokio::spawn(held._inbound.for_each(|_| async {}));
    drop(held.arrival);
    let settlements = in_time(join_all(calls)).await.into_iter().map(Result::unwrap);
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    assert_eq!(in_time(shutdown).await.unwrap(), 0);
}

/// A key that signs when the test lets it, or not at all.
#[derive(Debug)]
struct Remote {
    key: KeySigner,
    gate: Semaphore,
    fails: AtomicBool,
}

impl Signer for Remote {
    fn slot(&self) -> Slot {
        self.key.slot()
    }

    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        Box::pin(async move {
            self.gate.acquire().await.expect("never closed").forget();
            if self.fails.load(Ordering::SeqCst) {
                return Err(SignError { reason: "told to".into() });
            }
            Ok(self.key.sign_now(&message))
        })
    }
}

#[derive(Debug)]
struct By(Mutex<Did>);

impl Router for By {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        Some(*self.0.lock().unwrap())
    }
}

/// A node whose origin signs with a key that stands still.
async fn origin(transport: Transport, config: Config, by: Did) -> (Node, Origin, Arc<Remote>, Arc<By>) {
    let key = Keypair::generate_ed25519();
    let signer = KeySigner::from_keypair(&key).unwrap();
    let node = Node::with(transport, Options { key, config, ..Options::default() }).await;
    let clock = Arc::new(SystemClock::new());
    let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests()).await.unwrap();
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).unwrap();
    let remote = Arc::new(Remote { key: signer.clone(), gate: Semaphore::new(0), fails: AtomicBool::new(false) });
    let router = Arc::new(By(Mutex::new(by)));
    let origin = Origin::builder(NetworkId(77), remote.clone(), leases, node.outbound.clone(), clock)
        .hop_signer(Arc::new(signer))
        .router(router.clone())
        .build()
        .unwrap();
    (node, origin, remote, router)
}

async fn l3_9_an_origin_that_has_room_on_the_old_hop_and_cannot_sign_lets_the_stream_go_on(transport: Transport) {
    let mut new = Node::start(transport).await;
    let (node, origin, remote, router) = origin(transport, Config::default(), did(9)).await;
    node.know(&new);
    let data = vec![Class::E2e.lane(), 7];
    let mut first = Box::pin(origin.send(did(2), data.clone()));
    assert!(poll!(&mut first).is_pending(), "it has its room");
    *router.0.lock().unwrap() = new.did;
    let (mut gone, mut second) =
        (Box::pin(origin.send(did(2), data.clone())), Box::pin(origin.send(did(2), data.clone())));
    assert!(poll!(&mut gone).is_pending() && poll!(&mut second).is_pending());
    drop(gone);
    remote.fails.store(true, Ordering::SeqCst);
    remote.gate.add_permits(1);
    assert!(matches!(in_time(first).await, Err(OriginError::Sign(_))));
    remote.fails.store(false, Ordering::SeqCst);
    remote.gate.add_permits(1);
    let settlement = in_time(second).await.unwrap();
    assert_eq!(taken(&mut new, 1).await, [1], "the one that was not signed left a gap, the one that was dropped none");
    assert_eq!(in_time(settlement).await, Ok(()));
}

async fn l3_7_room_given_back_lets_the_next_go_at_once(transport: Transport) {
    let mut receiver = Node::start(transport).await;
    let config = Config::default().lane_bound(1, 1024 * 1024);
    let (node, origin, remote, _router) = self::origin(transport, config, receiver.did).await;
    node.know(&receiver);
    let mut unsigned = Box::pin(origin.send(did(2), vec![Class::E2e.lane(), 7]));
    assert!(poll!(&mut unsigned).is_pending(), "it has the only room");
    let mut next = node.outbound.send(moved(receiver.did, 5));
    assert!(poll!(&mut next).is_pending());
    remote.fails.store(true, Ordering::SeqCst);
    remote.gate.add_permits(1);
    assert!(matches!(in_time(unsigned).await, Err(OriginError::Sign(_))));
    let next = in_time(next).await.unwrap();
    assert_eq!(taken(&mut receiver, 1).await, [5]);
    assert_eq!(in_time(next).await, Ok(()));
}
