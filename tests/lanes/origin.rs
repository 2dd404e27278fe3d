//! A node's own transactions: one order, no signature ahead of its lease (laws L3.2 and L8.1).

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use admit_one::{
    BoxFuture,
    clock::{Clock, SystemClock},
    identity::{Check, DEFAULT_DELEGATION_TTL_MS, Did, KeySigner, SignError, Signature, Signer, Slot},
    lanes::{
        Config, DEFAULT_HOP_BUDGET, Fate, Inbound, LossReason, Lost, Origin, OriginBuilder, OriginError, SendRefused,
    },
    link::Router,
    message::{
        Class, ClassifyError, CutError, DEFAULT_TTL_MS, FRAME_LIMIT, MESSAGE_LIMIT, NetworkId, Payload, StreamKey,
    },
    storage::{
        Batch, CommitError, Memory, OpenError, RecordName, Scan, ScanError, Store, Table,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, LeaseRefused, Leases},
    },
};
use futures::{StreamExt, future::join_all, poll};
use libp2p::identity::Keypair;
use tokio::sync::Semaphore;

use crate::support::{Node, Options, Transport, frame, in_time};

const NETWORK: NetworkId = NetworkId(77);

/// The memory engine with faults injected: each commit waits for a permit, and fails when told to.
#[derive(Debug)]
struct Gated {
    memory: Memory,
    gate: Semaphore,
    failing: AtomicBool,
}

impl Gated {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { memory: Memory::new(), gate: Semaphore::new(permits), failing: AtomicBool::new(false) })
    }
}

impl Store for Gated {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        self.memory.scan(table)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            self.gate.acquire().await.expect("never closed").forget();
            if self.failing.load(Ordering::SeqCst) {
                return Err(CommitError::Closed { reason: "told to".into() });
            }
            self.memory.commit(batch).await
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        self.memory.discard(name)
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        self.memory.reopen()
    }

    fn durable(&self) -> bool {
        false
    }
}

pub struct Sending {
    pub node: Node,
    pub account: KeySigner,
    pub device: KeySigner,
    pub commit: GroupCommit,
    pub leases: Leases,
    pub clock: Arc<SystemClock>,
}

impl Sending {
    async fn over(store: Arc<dyn Store>) -> Self {
        Self::with(store, Transport::Tcp, Config::default()).await
    }

    pub async fn with(store: Arc<dyn Store>, transport: Transport, config: Config) -> Self {
        let key = Keypair::generate_ed25519();
        let device = KeySigner::from_keypair(&key).unwrap();
        let node = Node::with(transport, Options { key, config, ..Options::default() }).await;
        let commit = GroupCommit::open(store, CommitConfig::volatile_for_tests()).await.unwrap();
        let clock = Arc::new(SystemClock::new());
        let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).unwrap();
        Self { node, account: KeySigner::generate(), device, commit, leases, clock }
    }

    pub fn delegated(&self, device: &KeySigner) -> Arc<dyn Signer> {
        let now = self.clock.wall();
        let delegation = self.account.delegate(device.key(), now, DEFAULT_DELEGATION_TTL_MS);
        Arc::new(device.clone().with_delegation(delegation).unwrap())
    }

    fn origin(&self) -> Origin {
        self.builder(self.delegated(&self.device)).build().unwrap()
    }

    pub fn builder(&self, signer: Arc<dyn Signer>) -> OriginBuilder {
        Origin::builder(NETWORK, signer, self.leases.clone(), self.node.outbound.clone(), self.clock.clone())
            .hop_signer(Arc::new(self.device.clone()))
    }
}

fn data(class: Class, text: &str) -> Vec<u8> {
    let namespace: &[u8] = if class == Class::Application { &[0] } else { &[] };
    [&[class.lane()], namespace, text.as_bytes()].concat()
}

async fn next(inbound: &mut Inbound) -> Payload {
    let arrival = in_time(inbound.next()).await.expect("the channel is open");
    Payload::decode(arrival.bytes.clone(), FRAME_LIMIT).unwrap()
}

fn verify(payload: &Payload, origin: Did, class: Class) {
    let Payload { transaction, next_hop, hop_budget, proof } = payload;
    assert_eq!(transaction.origin(), Some(origin));
    let digest = transaction.content.digest(NETWORK, &origin, class);
    let by = |proof: &admit_one::identity::Proof, message| {
        let check = Check { key: proof.slot.key().unwrap(), message, signature: proof.signature };
        check.verify().expect("a good signature");
    };
    by(&transaction.proof, digest.0);
    transaction.proof.slot.delegation().expect("a device's").verify().unwrap();
    by(proof, Payload::hop_digest(&digest, next_hop, *hop_budget));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_2_lane_order_is_signing_order_for_any_number_of_calling_tasks() {
    const TASKS: u64 = 12;
    const EACH: u64 = 60;
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let mut receiver = Node::start(Transport::Tcp).await;
    sending.node.know(&receiver);
    let origin = sending.origin();
    let tasks = (0..TASKS).map(|task| {
        let (origin, destination) = (origin.clone(), receiver.did);
        tokio::spawn(async move {
            let mut settlements = Vec::new();
            for each in 0..EACH {
                let class = Class::from_lane(u8::try_from(each % 4).unwrap()).unwrap();
                let data = data(class, &format!("{task} {each}"));
                settlements.push(origin.send(destination, data).await.unwrap());
            }
            join_all(settlements).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let incoming = receiver.incoming();
    let (found, mut finds) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(incoming.for_each_concurrent(None, move |mut inbound| {
        let found = found.clone();
        async move {
            loop {
                let payload = next(&mut inbound).await;
                let _ = found.send((Class::from_lane(inbound.channel().index).unwrap(), payload));
            }
        }
    }));
    let mut by_class: HashMap<Class, Vec<Payload>> = HashMap::new();
    for _ in 0..TASKS * EACH {
        let (class, payload) = in_time(finds.recv()).await.unwrap();
        by_class.entry(class).or_default().push(payload);
    }
    for (class, payloads) in by_class {
        let mut last = HashMap::new();
        for (sequence, payload) in payloads.iter().enumerate() {
            let content = &payload.transaction.content;
            assert_eq!(content.sequence, sequence as u64, "{class:?}");
            assert_eq!((content.ttl, payload.hop_budget), (DEFAULT_TTL_MS, DEFAULT_HOP_BUDGET));
            verify(payload, sending.account.key(), class);
            let text =
                String::from_utf8(content.data[if class == Class::Application { 2 } else { 1 }..].into()).unwrap();
            let (task, each) = text.split_once(' ').unwrap();
            let (task, each): (u64, u64) = (task.parse().unwrap(), each.parse().unwrap());
            assert!(last.insert(task, each).is_none_or(|last| last < each), "a task's own order");
        }
    }
    for settled in tasks {
        assert!(in_time(settled).await.unwrap().iter().all(Result::is_ok));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l9_2_one_flush_serves_many_reservations() {
    const STREAMS: usize = 200;
    let store = Gated::new(0);
    let sending = Sending::over(store.clone()).await;
    let origin = sending.origin();
    let destinations: Vec<_> = (0..STREAMS).map(|_| KeySigner::generate().key()).collect();
    let sends: Vec<_> = destinations
        .iter()
        .map(|destination| {
            let (origin, destination) = (origin.clone(), *destination);
            tokio::spawn(async move { origin.send(destination, data(Class::E2e, "x")).await })
        })
        .collect();
    // Each is a new stream and needs a lease of its own; all are staged while the first flush stands still.
    in_time(async {
        while sending.leases.streams() < STREAMS {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let before = sending.commit.health().batches;
    store.gate.add_permits(STREAMS);
    for send in in_time(join_all(sends)).await {
        assert!(send.unwrap().is_ok());
    }
    let batches = sending.commit.health().batches - before;
    assert!(batches <= 2, "{batches} batches for {STREAMS} leases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l8_1_nothing_is_sent_before_its_lease_is_durable_and_a_failed_lease_sends_nothing() {
    let store = Gated::new(0);
    let sending = Sending::over(store.clone()).await;
    let mut receiver = Node::start(Transport::Tcp).await;
    sending.node.know(&receiver);
    let origin = sending.origin();
    let mut send = Box::pin(origin.send(receiver.did, data(Class::E2e, "first")));
    assert!(poll!(&mut send).is_pending());
    // What needs no lease goes all the way round meanwhile.
    let other = in_time(sending.node.outbound.send(frame(receiver.did, Class::Storage, 0, 10))).await.unwrap();
    let mut storage = receiver.channel().await;
    drop(in_time(storage.next()).await.unwrap());
    assert_eq!(in_time(other).await, Ok(()));
    assert!(poll!(receiver.incoming.as_mut().unwrap().next()).is_pending());
    assert!(poll!(&mut send).is_pending());
    store.failing.store(true, Ordering::SeqCst);
    store.gate.add_permits(1);
    assert!(matches!(in_time(send).await, Err(OriginError::Store(_))));
    store.failing.store(false, Ordering::SeqCst);
    store.gate.add_permits(10);
    in_time(sending.commit.reopen()).await.unwrap();
    let settlement = in_time(origin.send(receiver.did, data(Class::E2e, "second"))).await.unwrap();
    let mut inbound = receiver.channel().await;
    let payload = next(&mut inbound).await;
    assert_eq!(&payload.transaction.content.data[1..], b"second");
    assert_eq!(in_time(settlement).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_3_a_rotated_device_keeps_the_stream_and_its_order() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let mut receiver = Node::start(Transport::Tcp).await;
    sending.node.know(&receiver);
    let origin = sending.origin();
    let (first, second) = (sending.device.key(), KeySigner::generate());
    let mut settlements = Vec::new();
    for text in 0..40 {
        if text == 20 {
            let stranger = Arc::new(KeySigner::generate());
            let refused = origin.rotate(stranger).await;
            assert!(
                matches!(refused, Err(OriginError::OtherOrigin { origin }) if origin == Some(sending.account.key()))
            );
            origin.rotate(sending.delegated(&second)).await.unwrap();
        }
        settlements.push(in_time(origin.send(receiver.did, data(Class::E2e, &text.to_string()))).await.unwrap());
    }
    let mut inbound = receiver.channel().await;
    for sequence in 0..40 {
        let payload = next(&mut inbound).await;
        verify(&payload, sending.account.key(), Class::E2e);
        assert_eq!(payload.transaction.content.sequence, sequence);
        let device = if sequence < 20 { first } else { second.key() };
        assert_eq!(payload.transaction.proof.slot.key(), Some(device));
        assert_eq!(payload.proof.slot.key(), Some(first), "the hop is the node's own");
    }
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
}

#[derive(Debug)]
struct Nowhere;

impl Router for Nowhere {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_8_what_cannot_be_sent_is_refused_before_a_sequence_is_taken() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let receiver = Node::start(Transport::Tcp).await;
    let origin = sending.origin();
    let large = vec![Class::E2e.lane(); MESSAGE_LIMIT];
    let refused = origin.send(receiver.did, large).await.unwrap_err();
    assert!(
        matches!(refused, OriginError::TooLarge(CutError::MessageTooLarge { length }) if length > MESSAGE_LIMIT),
        "{refused}"
    );
    let refused = origin.send(receiver.did, vec![9]).await.unwrap_err();
    assert!(matches!(refused, OriginError::Unclassified(ClassifyError::UnknownTag(9))), "{refused}");
    let signer = sending.delegated(&sending.device);
    let nowhere =
        Origin::builder(NETWORK, signer, sending.leases.clone(), sending.node.outbound.clone(), sending.clock.clone())
            .router(Arc::new(Nowhere))
            .build()
            .unwrap();
    let refused = nowhere.send(receiver.did, data(Class::E2e, "x")).await.unwrap_err();
    assert!(matches!(refused, OriginError::NoRoute { destination } if destination == receiver.did), "{refused}");
    let stream =
        StreamKey { network: NETWORK, origin: sending.account.key(), destination: receiver.did, class: Class::E2e };
    assert_eq!(sending.leases.reserve(&stream, 1).await.unwrap().unwrap().sequence, 0);
    // The largest that fits does go.
    sending.node.know(&receiver);
    let fits = vec![Class::E2e.lane(); FRAME_LIMIT - Payload::OVERHEAD];
    let mut receiver = receiver;
    let settlement = in_time(origin.send(receiver.did, fits)).await.unwrap();
    let mut inbound = receiver.channel().await;
    assert_eq!(next(&mut inbound).await.transaction.content.sequence, 1);
    assert_eq!(in_time(settlement).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_7_lanes_that_were_shut_down_refuse_before_a_sequence_is_taken() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let (origin, destination) = (sending.origin(), KeySigner::generate().key());
    assert_eq!(in_time(sending.node.outbound.shutdown(std::time::Duration::ZERO)).await, 0);
    let refused = in_time(origin.send(destination, data(Class::E2e, "x"))).await.unwrap_err();
    let lost = Lost { reason: LossReason::Shutdown, fate: Fate::NeverWritten };
    assert!(matches!(refused, OriginError::Refused(SendRefused::Lost(found)) if found == lost), "{refused}");
    assert_eq!(sending.leases.streams(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_1_a_stream_that_the_senders_table_has_no_place_for_is_refused_with_the_bound() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests()).await.unwrap();
    let config = LeaseConfig { streams: 1, ..LeaseConfig::default() };
    let leases = Leases::open(&commit, sending.clock.clone(), config).unwrap();
    let signer = sending.delegated(&sending.device);
    let origin =
        Origin::builder(NETWORK, signer, leases, sending.node.outbound.clone(), sending.clock.clone()).build().unwrap();
    let destination = KeySigner::generate().key();
    drop(in_time(origin.send(destination, data(Class::E2e, "x"))).await.unwrap());
    let refused = in_time(origin.send(destination, data(Class::Storage, "x"))).await.unwrap_err();
    assert!(matches!(refused, OriginError::Lease(LeaseRefused::StreamCapacityExceeded { bound: 1 })), "{refused}");
}

/// Names its delegation by a reference, which says of nobody whom it speaks for.
#[derive(Debug)]
struct ByReference(KeySigner);

impl Signer for ByReference {
    fn slot(&self) -> Slot {
        Slot::Digest(self.0.slot().delegation().expect("a device's").digest())
    }

    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        self.0.sign(message)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_1_a_signer_that_names_nobody_makes_no_origin() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let now = sending.clock.wall();
    let delegation = sending.account.delegate(sending.device.key(), now, DEFAULT_DELEGATION_TTL_MS);
    let signer = Arc::new(ByReference(sending.device.clone().with_delegation(delegation).unwrap()));
    let leases = sending.leases.clone();
    let refused = Origin::builder(NETWORK, signer, leases, sending.node.outbound.clone(), sending.clock.clone())
        .build()
        .unwrap_err();
    assert!(matches!(refused, OriginError::OtherOrigin { origin: None }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_whose_runtime_is_gone_says_so() {
    let sending = Sending::over(Arc::new(Memory::new())).await;
    let (signer, leases) = (sending.delegated(&sending.device), sending.leases.clone());
    let builder = Origin::builder(NETWORK, signer, leases, sending.node.outbound.clone(), sending.clock.clone());
    let origin = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { builder.build().unwrap() })
    });
    let origin = origin.join().unwrap();
    let refused = in_time(origin.send(KeySigner::generate().key(), data(Class::E2e, "x"))).await.unwrap_err();
    assert!(matches!(refused, OriginError::Stopped), "{refused}");
}
