//! References between real nodes: swarms over TCP and QUIC on loopback, the whole layer behind them, and clocks that move
//! when told to (law L4).

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admit_one::{
    BoxFuture,
    clock::{Clock, ManualClock},
    identity::{Did, KeySigner, Slot},
    lanes::{Behaviour, Config, Incoming, Outbound},
    layer::{
        AdmissionError, AdmissionLayer, Outcome,
        boundary::{Admission, AdmissionConfig},
        forward::Forwarding,
    },
    link::{Arrival, DELIVERY_BOUND, Frame, RECEIVER_BOUND, REFERENCE_LEASE, Router},
    message::{Class, DEFAULT_TTL_MS, FRAME_LIMIT, Payload},
    storage::commit::{CommitConfig, GroupCommit},
};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, SwarmBuilder,
    identity::{Keypair, ed25519},
    noise,
    swarm::SwarmEvent,
    tcp, yamux,
};
use tokio::sync::mpsc;
use tower::{Layer, Service, service_fn};

use crate::{
    engine::MockEngine,
    fixture::{Counters, NETWORK, START, Sender, accept},
};

/// A test that waits this long has failed.
const FAILURE: Duration = Duration::from_secs(60);
const DAY: u64 = 24 * 60 * 60 * 1_000;
const DATA: &[u8] = b"\x02hello";

#[derive(Debug, Clone, Copy)]
enum Transport {
    Tcp,
    Quic,
}

macro_rules! both_transports {
    ($($test:ident),+ $(,)?) => {
        mod over_tcp {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::in_time(super::$test(super::Transport::Tcp)).await;
                }
            )+
        }
        mod over_quic {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::in_time(super::$test(super::Transport::Quic)).await;
                }
            )+
        }
    };
}

both_transports! {
    l4_1_at_one_hop_the_first_frame_is_inline_and_later_ones_refer_in_both_slots,
    l4_1_a_relay_refers_on_its_own_link_and_the_origin_on_its,
    l4_3_a_lease_is_renewed_by_one_inline_frame_before_it_ends,
    l4_3_no_lease_is_used_past_its_end,
    l4_4_a_table_full_of_leased_delegations_leaves_others_inline,
    l4_5_a_frame_that_waits_resolves_though_its_link_is_gone,
    l4_6_a_miss_is_refused_and_credited_and_the_sender_goes_back_inline,
    l4_8_no_delegation_is_referred_to_once_it_is_over,
    l4_2_a_link_that_ends_takes_its_tables_with_it,
    l1_3_a_rotated_signer_is_carried_inline_first,
}

async fn in_time<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(FAILURE, work).await.expect("in time")
}

/// How a frame came, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    /// As written: `own`, `inline` or `reference`; the hop's, then the origin's.
    slots: [&'static str; 2],
    bytes: usize,
    answer: &'static str,
}

impl Read {
    fn of(bytes: &bytes::Bytes) -> Self {
        let payload = Payload::decode(bytes.clone(), FRAME_LIMIT).expect("a frame");
        let slots = [&payload.proof.slot, &payload.transaction.proof.slot].map(|slot| match slot {
            Slot::Own(_) => "own",
            Slot::Inline(_) => "inline",
            Slot::Digest(_) => "reference",
        });
        Self { slots, bytes: bytes.len(), answer: "" }
    }

    fn is(&self, hop: &str, origin: &str) -> bool {
        self.slots == [hop, origin]
    }
}

/// Looks at frames before `inner` does, and at what it answers.
#[derive(Clone)]
struct Look<S> {
    inner: S,
    reads: mpsc::UnboundedSender<Read>,
}

impl<S> Service<Arrival> for Look<S>
where
    S: Service<Arrival, Response = Outcome<()>, Error = AdmissionError<Infallible>, Future: Send + 'static>,
{
    type Response = ();
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context).map_err(|error| panic!("always ready: {error}"))
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let (mut read, reads) = (Read::of(&arrival.bytes), self.reads.clone());
        let answered = self.inner.call(arrival);
        Box::pin(async move {
            read.answer = match answered.await {
                Ok(Outcome::Dispatched(())) => "dispatched",
                Ok(_) => "forwarded",
                Err(error) => error.refusal().expect("the handler does not fail").label(),
            };
            let _ = reads.send(read);
            Ok(())
        })
    }
}

/// A running node: its identity is its account, and it signs with a device key under the account's delegation. Its swarm
/// ends with the test's runtime.
struct Node {
    account: KeySigner,
    signer: KeySigner,
    clock: Arc<ManualClock>,
    admission: Admission,
    outbound: Outbound,
    incoming: Option<Incoming>,
    address: Multiaddr,
    hang_up: mpsc::UnboundedSender<PeerId>,
    reads: mpsc::UnboundedReceiver<Read>,
    reader: mpsc::UnboundedSender<Read>,
}

impl Node {
    /// A node whose delegation ends `ttl` milliseconds from its start. It connects to `to`, when there is something to send.
    async fn start(transport: Transport, to: Option<&Node>, ttl: u64) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let commit = GroupCommit::open(Arc::new(MockEngine::new()), CommitConfig::default())
            .await
            .expect("an empty store opens");
        let admission =
            Admission::open(&commit, clock.clone(), AdmissionConfig::default()).await.expect("the boundary opens");
        clock.advance(Duration::from_secs(60));
        let secret = ed25519::SecretKey::generate();
        let account = KeySigner::from_secret(secret.as_ref().try_into().expect("32 bytes")).expect("a key");
        let key = Keypair::from(ed25519::Keypair::from(secret));
        let signer = device(&account, &clock, ttl);

        let (lanes, outbound, incoming) = Behaviour::new(Config::default(), clock.clone());
        let builder = SwarmBuilder::with_existing_identity(key).with_tokio();
        let (mut swarm, at) = match transport {
            Transport::Tcp => {
                let swarm = builder
                    .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
                    .expect("a transport")
                    .with_behaviour(|_| lanes)
                    .expect("a behaviour")
                    .with_swarm_config(|config| config.with_idle_connection_timeout(FAILURE))
                    .build();
                (swarm, "/ip4/127.0.0.1/tcp/0")
            }
            Transport::Quic => {
                let swarm = builder
                    .with_quic()
                    .with_behaviour(|_| lanes)
                    .expect("a behaviour")
                    .with_swarm_config(|config| config.with_idle_connection_timeout(FAILURE))
                    .build();
                (swarm, "/ip4/127.0.0.1/udp/0/quic-v1")
            }
        };
        swarm.listen_on(at.parse().expect("an address")).expect("listens");
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        if let Some(to) = to {
            swarm.add_peer_address(to.did().to_peer_id(), to.address.clone());
        }
        let (hang_up, mut hung_up) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = swarm.select_next_some() => {}
                    Some(peer) = hung_up.recv() => drop(swarm.disconnect_peer_id(peer)),
                }
            }
        });
        let (reader, reads) = mpsc::unbounded_channel();
        let incoming = Some(incoming);
        Self { account, signer, clock, admission, outbound, incoming, address, hang_up, reads, reader }
    }

    fn did(&self) -> Did {
        self.account.key()
    }

    /// Admits what is for it.
    fn serve(&mut self) {
        let layer = AdmissionLayer::builder(NETWORK, self.did(), self.admission.clone()).build();
        let look = Look { inner: layer.layer(service_fn(accept)), reads: self.reader.clone() };
        tokio::spawn(self.incoming.take().expect("served once").serve(look));
    }

    /// Carries everything on to `next_hop`, under the hop proof of `signer`.
    fn relay(&mut self, signer: KeySigner, next_hop: Did) {
        let forwarding = Forwarding::new(Arc::new(signer), self.outbound.clone()).router(Arc::new(To(next_hop)));
        let layer = AdmissionLayer::builder(NETWORK, self.did(), self.admission.clone()).forward(forwarding).build();
        let look = Look { inner: layer.layer(service_fn(accept)), reads: self.reader.clone() };
        tokio::spawn(self.incoming.take().expect("served once").serve(look));
    }

    async fn read(&mut self) -> Read {
        self.reads.recv().await.expect("it is served")
    }
}

/// A new device key of `account`, under a delegation for `ttl` milliseconds from now.
fn device(account: &KeySigner, clock: &ManualClock, ttl: u64) -> KeySigner {
    let device = KeySigner::generate();
    let delegation = account.delegate(device.key(), clock.wall(), ttl);
    device.with_delegation(delegation).expect("for this key")
}

#[derive(Debug)]
struct To(Did);

impl Router for To {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        Some(self.0)
    }
}

/// An origin, the node that its frames are for, and perhaps a relay between them.
struct Line {
    origin: Node,
    relay: Option<Node>,
    destination: Node,
    sender: Sender,
}

impl Line {
    async fn direct(transport: Transport) -> Self {
        let mut line = Self::unserved(transport, DAY).await;
        line.destination.serve();
        line
    }

    async fn unserved(transport: Transport, ttl: u64) -> Self {
        let destination = Node::start(transport, None, DAY).await;
        let origin = Node::start(transport, Some(&destination), ttl).await;
        let sender = Sender::with(&origin.clock, origin.signer.clone());
        Self { origin, relay: None, destination, sender }
    }

    fn next(&mut self) -> Frame {
        let (to, first) = (self.destination.did(), self.relay.as_ref().map_or(self.destination.did(), Node::did));
        let content = self.sender.content(to, DATA);
        frame(self.sender.sign(content, first, 3))
    }

    /// Sends the next frame to its end, and says how each node read it, the destination last.
    async fn send(&mut self) -> Vec<Read> {
        let frame = self.next();
        let settlement = self.origin.outbound.send(frame).await.expect("accepted");
        let mut reads = Vec::new();
        if let Some(relay) = &mut self.relay {
            reads.push(relay.read().await);
        }
        reads.push(self.destination.read().await);
        settlement.await.expect("taken over");
        reads
    }

    async fn send_direct(&mut self) -> Read {
        self.send().await.pop().expect("read")
    }

    /// Sends until the last grant or disclaimer was heard of: until the destination reads a frame with such slots.
    async fn until(&mut self, hop: &str, origin: &str) {
        while !self.send().await.pop().expect("read").is(hop, origin) {}
    }

    /// Waits until the origin has heard all that the destination has said so far: what it says of another delegation comes
    /// behind it.
    async fn heard(&mut self) {
        let other = device(&self.origin.account, &self.origin.clock, DAY);
        let signer = std::mem::replace(&mut self.sender.signer, other);
        self.until("reference", "reference").await;
        self.sender.signer = signer;
    }

    fn advance(&self, time: Duration) {
        for node in [Some(&self.origin), self.relay.as_ref(), Some(&self.destination)].into_iter().flatten() {
            node.clock.advance(time);
        }
    }
}

fn frame(payload: Payload) -> Frame {
    Frame { payload, class: Class::E2e, write_within: FAILURE, inbound: None }
}

/// The figures of docs/wire.md: 112 bytes for each reference, 224 of 544 where both slots are delegated.
async fn l4_1_at_one_hop_the_first_frame_is_inline_and_later_ones_refer_in_both_slots(transport: Transport) {
    let mut line = Line::direct(transport).await;
    let inline = Read { slots: ["inline"; 2], bytes: 544 + DATA.len(), answer: "dispatched" };
    assert_eq!(line.send_direct().await, inline);
    line.until("reference", "reference").await;
    let reference = Read { slots: ["reference"; 2], bytes: 320 + DATA.len(), answer: "dispatched" };
    for _ in 0..20 {
        assert_eq!(line.send_direct().await, reference);
    }
}

async fn l4_1_a_relay_refers_on_its_own_link_and_the_origin_on_its(transport: Transport) {
    for delegated in [true, false] {
        let mut destination = Node::start(transport, None, DAY).await;
        let mut relay = Node::start(transport, Some(&destination), DAY).await;
        let origin = Node::start(transport, Some(&relay), DAY).await;
        destination.serve();
        let hop = if delegated { relay.signer.clone() } else { relay.account.clone() };
        relay.relay(hop, destination.did());
        let sender = Sender::with(&origin.clock, origin.signer.clone());
        let mut line = Line { origin, relay: Some(relay), destination, sender };
        let (before, hops) = if delegated { (544, ["inline", "reference"]) } else { (432, ["own", "own"]) };

        let first = line.send().await;
        let at_relay = Read { slots: ["inline"; 2], bytes: 544 + DATA.len(), answer: "forwarded" };
        let at_destination = Read { slots: [hops[0], "inline"], bytes: before + DATA.len(), answer: "dispatched" };
        assert_eq!(first, [at_relay, at_destination]);
        line.until(hops[1], "reference").await;
        while !line.send().await[0].is("reference", "reference") {}
        let at_relay = Read { slots: ["reference"; 2], bytes: 320 + DATA.len(), answer: "forwarded" };
        let at_destination = Read { slots: [hops[1], "reference"], bytes: 320 + DATA.len(), answer: "dispatched" };
        for _ in 0..10 {
            assert_eq!(line.send().await, [at_relay.clone(), at_destination.clone()]);
        }
    }
}

async fn l4_3_a_lease_is_renewed_by_one_inline_frame_before_it_ends(transport: Transport) {
    let mut line = Line::direct(transport).await;
    line.until("reference", "reference").await;
    let (early, second) = (2 * DELIVERY_BOUND, Duration::from_secs(1));
    let due = REFERENCE_LEASE - early;
    let mut since = Duration::ZERO;
    for _ in 0..4 {
        line.advance(due - second - since);
        assert!(line.send_direct().await.is("reference", "reference"), "no need to renew it yet");
        line.advance(second);
        assert!(line.send_direct().await.is("inline", "reference"), "once, in one slot");
        assert!(line.send_direct().await.is("reference", "reference"), "the lease goes on meanwhile");
        line.heard().await;
        // Past the end of the first lease.
        line.advance(early);
        assert!(line.send_direct().await.is("reference", "reference"), "renewed");
        since = early;
    }
}

async fn l4_3_no_lease_is_used_past_its_end(transport: Transport) {
    let mut line = Line::direct(transport).await;
    line.until("reference", "reference").await;
    line.advance(REFERENCE_LEASE);
    assert!(line.send_direct().await.is("inline", "inline"), "though the receiver still holds it");
    line.until("reference", "reference").await;
}

async fn l4_4_a_table_full_of_leased_delegations_leaves_others_inline(transport: Transport) {
    let mut line = Line::direct(transport).await;
    // The hop speaks for itself, and carries transactions of many origins.
    let (hop, to, clock) = (line.origin.account.clone(), line.destination.did(), line.origin.clock.clone());
    let mut origins: Vec<Sender> =
        (0..=RECEIVER_BOUND).map(|_| Sender::with(&clock, device(&KeySigner::generate(), &clock, DAY))).collect();
    let mut send = async |line: &mut Line, of: usize| {
        let content = origins[of].content(to, DATA);
        let signed = origins[of].sign(content, to, 0);
        let digest = signed.transaction.content.digest(NETWORK, &origins[of].origin(), Class::E2e);
        let payload = crate::fixture::hop(signed.transaction, digest, &hop, to, 0);
        let settlement = line.origin.outbound.send(frame(payload)).await.expect("accepted");
        let read = line.destination.read().await;
        settlement.await.expect("taken over");
        assert_eq!(read.answer, "dispatched");
        read
    };
    for of in 0..RECEIVER_BOUND {
        assert!(send(&mut line, of).await.is("own", "inline"));
    }
    while !send(&mut line, RECEIVER_BOUND - 1).await.is("own", "reference") {}
    for _ in 0..10 {
        assert!(send(&mut line, RECEIVER_BOUND).await.is("own", "inline"), "the table is full of leased ones");
    }
    assert!(send(&mut line, 0).await.is("own", "inline"), "the sender keeps the leases that it used last");
    line.advance(REFERENCE_LEASE + 2 * DELIVERY_BOUND);
    while !send(&mut line, RECEIVER_BOUND).await.is("own", "reference") {}
}

async fn l4_5_a_frame_that_waits_resolves_though_its_link_is_gone(transport: Transport) {
    let mut line = Line::unserved(transport, DAY).await;
    let layer = AdmissionLayer::builder(NETWORK, line.destination.did(), line.destination.admission.clone()).build();
    let mut service = layer.layer(service_fn(accept));
    let mut incoming = line.destination.incoming.take().expect("not taken");
    let frame = line.next();
    let mut settlements = vec![line.origin.outbound.send(frame).await.expect("accepted")];
    let mut inbound = incoming.next().await.expect("a channel");
    let waiting = loop {
        let arrival = inbound.next().await.expect("a frame");
        if Read::of(&arrival.bytes).is("reference", "reference") {
            break arrival;
        }
        service.call(arrival).await.expect("admitted");
        let frame = line.next();
        settlements.push(line.origin.outbound.send(frame).await.expect("accepted"));
    };
    line.origin.hang_up.send(line.destination.did().to_peer_id()).expect("it runs");
    while inbound.next().await.is_some() {}
    line.advance(Duration::from_millis(DEFAULT_TTL_MS / 2));
    assert_eq!(service.call(waiting).await.expect("admitted"), Outcome::Dispatched(()));
}

async fn l4_6_a_miss_is_refused_and_credited_and_the_sender_goes_back_inline(transport: Transport) {
    let mut line = Line::direct(transport).await;
    line.until("reference", "reference").await;
    // The receiver's wall clock is wrong for one frame: to it, the delegation is long over.
    let wall = line.destination.clock.wall();
    line.destination.clock.step_wall_to(wall + 2 * DAY);
    let missed = line.send_direct().await;
    assert_eq!((missed.slots, missed.answer), (["reference"; 2], "unresolved_reference"));
    line.destination.clock.step_wall_to(wall);
    // Until the disclaimer is heard of, more miss; none is held, and all are credited.
    let inline = loop {
        let read = line.send_direct().await;
        if read.is("inline", "inline") {
            break read;
        }
        assert_eq!(read.answer, "unresolved_reference");
    };
    assert_eq!(inline.answer, "dispatched");
    line.until("reference", "reference").await;
    assert_eq!(line.send_direct().await.answer, "dispatched");
}

async fn l4_8_no_delegation_is_referred_to_once_it_is_over(transport: Transport) {
    let mut line = Line::unserved(transport, 30_000).await;
    line.destination.serve();
    line.until("reference", "reference").await;
    line.advance(Duration::from_millis(29_999));
    assert_eq!(line.send_direct().await.answer, "dispatched");
    line.advance(Duration::from_secs(3));
    let within_sigma = line.send_direct().await;
    assert_eq!((within_sigma.slots, within_sigma.answer), (["reference"; 2], "delegation_expired"));
    line.advance(Duration::from_millis(1));
    let over = line.send_direct().await;
    assert_eq!((over.slots, over.answer), (["inline"; 2], "delegation_expired"));
}

async fn l4_2_a_link_that_ends_takes_its_tables_with_it(transport: Transport) {
    let mut line = Line::direct(transport).await;
    line.until("reference", "reference").await;
    line.origin.hang_up.send(line.destination.did().to_peer_id()).expect("it runs");
    // A frame may still be written on the old link, and lost with it.
    let first = loop {
        let frame = line.next();
        if line.origin.outbound.send(frame).await.expect("accepted").await.is_ok() {
            let read = line.destination.read().await;
            if !read.is("reference", "reference") {
                break read;
            }
        }
    };
    assert_eq!((first.slots, first.answer), (["inline"; 2], "dispatched"));
    line.until("reference", "reference").await;
}

async fn l1_3_a_rotated_signer_is_carried_inline_first(transport: Transport) {
    let mut line = Line::direct(transport).await;
    line.until("reference", "reference").await;
    let rotated = device(&line.origin.account, &line.origin.clock, DAY);
    let old = std::mem::replace(&mut line.sender.signer, rotated);
    let first = line.send_direct().await;
    assert_eq!((first.slots, first.answer), (["inline"; 2], "dispatched"));
    line.until("reference", "reference").await;
    line.sender.signer = old;
    assert!(line.send_direct().await.is("reference", "reference"), "the old one's lease is still there");
}

#[tokio::test]
async fn l13_5_hits_misses_grants_disclaims_and_bytes_saved_are_counted() {
    // One thread, so that this recorder hears all of it.
    let counters = Counters::record();
    in_time(async {
        let mut line = Line::direct(Transport::Tcp).await;
        line.until("reference", "reference").await;
        line.heard().await;
        counters.totals();
        for _ in 0..5 {
            line.send().await;
        }
        let totals = counters.totals();
        let count = |name: &str| totals.get(name).copied().unwrap_or(0);
        assert_eq!(count("admit_one_link_table_hits_total"), 10, "two a frame");
        assert_eq!(count("admit_one_link_bytes_saved_total"), 5 * 224);
        assert_eq!(count("admit_one_link_grants_total") + count("admit_one_link_table_misses_total"), 0);

        let wall = line.destination.clock.wall();
        line.destination.clock.step_wall_to(wall + 2 * DAY);
        line.send().await;
        line.destination.clock.step_wall_to(wall);
        line.until("inline", "inline").await;
        let totals = counters.totals();
        let count = |name: &str| totals.get(name).copied().unwrap_or(0);
        assert!(count("admit_one_link_table_misses_total") >= 2);
        assert_eq!(2 * count("admit_one_link_disclaims_total"), count("admit_one_link_table_misses_total"));
        assert_eq!(count("admit_one_link_grants_total"), 1);
        assert_eq!(count("admit_one_link_control_dropped_total"), 0);
    })
    .await;
}
