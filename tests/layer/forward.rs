//! What is for another node goes on, in order, under this node's own hop proof, and leaves the window alone.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use admit_one::{
    BoxFuture,
    identity::{Did, KeySigner, SignError, Signature, Signer, Slot},
    layer::{
        AdmissionLayer, Outcome,
        forward::{DELIVERY_BOUND, Forwarding},
    },
    link::{Arrival, Channel, Frame, LinkId, Router},
    message::{Class, FRAME_LIMIT},
    storage::Table,
};
use tokio::sync::watch;
use tower::{Layer, Service, ServiceBuilder, service_fn};

use crate::{
    engine::Gate,
    fixture::{Answer, Calls, Counters, Node, Sender, accept, chunks, frame_with, refused},
    handler::{Credit, Gated, settle},
};

const CHANNEL: Option<Channel> = Some(Channel { index: 2, pool: 4 });

/// A mock of the outbound side: it keeps what it is given, in the order of the calls, and a test lets it be busy or fail.
#[derive(Debug, Clone)]
struct MockOutbound {
    calls: Arc<AtomicUsize>,
    frames: Arc<Mutex<BTreeMap<usize, Frame>>>,
    state: Arc<watch::Sender<State>>,
    ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Busy,
    Failing,
}

impl MockOutbound {
    fn new() -> Self {
        Self {
            calls: Arc::default(),
            frames: Arc::default(),
            state: Arc::new(watch::Sender::new(State::Open)),
            ready: false,
        }
    }

    fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    fn take(&self) -> Vec<Frame> {
        std::mem::take(&mut *self.frames.lock().expect("no panic in here")).into_values().collect()
    }
}

impl Service<Frame> for MockOutbound {
    type Response = ();
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, frame: Frame) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "an outbound side that was not polled ready was called");
        let (frames, state) = (Arc::clone(&self.frames), Arc::clone(&self.state));
        let place = self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let mut state = state.subscribe();
            if *state.wait_for(|state| *state != State::Busy).await.expect("the sender lives") == State::Failing {
                return Err("not connected");
            }
            frames.lock().expect("no panic in here").insert(place, frame);
            Ok(())
        })
    }
}

/// A relay between an origin and a destination.
struct Relay {
    node: Node,
    destination: Node,
    origin: Sender,
    outbound: MockOutbound,
    calls: Calls,
    credit: Credit,
}

impl Relay {
    async fn start() -> Self {
        let (node, destination) = (Node::start().await, Node::start().await);
        let origin = Sender::new(&node.clock);
        let (outbound, calls, credit) = (MockOutbound::new(), Calls::default(), Credit::default());
        Self { node, destination, origin, outbound, calls, credit }
    }

    fn forwarding(&self) -> Forwarding<MockOutbound> {
        Forwarding::new(Arc::new(self.node.signer.clone()), self.outbound.clone())
    }

    fn layer(&self) -> AdmissionLayer<MockOutbound> {
        self.node.layer().forward(self.forwarding()).build()
    }

    fn call(
        &self,
        layer: &AdmissionLayer<MockOutbound>,
        arrival: Arrival,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let calls = self.calls.clone();
        let handler = service_fn(move |admitted| {
            calls.note(&admitted);
            std::future::ready(Ok(()))
        });
        layer.layer(handler).call(arrival)
    }

    /// The origin's next transaction for the destination, by way of the relay.
    fn arrival(&mut self, hop_budget: u8) -> Arrival {
        let content = self.origin.content(self.destination.did(), b"\x02hello");
        let payload = self.origin.sign(content, self.node.did(), hop_budget);
        Arrival { channel: CHANNEL, credit: self.credit.guard(), ..self.origin.arrival(&payload) }
    }

    /// Nothing was admitted, stored or handled at the relay.
    fn assert_window_untouched(&self) {
        let stored = self.node.engine.count(Table::Receiver);
        assert_eq!((self.node.streams(), stored, self.calls.sequences()), (0, 0, vec![]));
    }
}

#[tokio::test]
async fn l2_5_a_forwarded_copy_is_proved_by_the_relay_and_verifies_at_the_next_hop() {
    let mut relay = Relay::start().await;
    let counters = Counters::record();
    let arrival = relay.arrival(3);
    let answer = relay.call(&relay.layer(), arrival).await;
    assert_eq!(answer.expect("forwarded"), Outcome::Forwarded);
    assert_eq!(counters.take("admit_one_forwarded_total", "class"), [("e2e".into(), 1)].into());
    relay.assert_window_untouched();

    let frame = relay.outbound.take().pop().expect("one frame");
    assert_eq!((frame.class, frame.payload.hop_budget), (Class::E2e, 2), "one of its budget is spent");
    assert_eq!(frame.payload.next_hop, relay.destination.did());
    assert_eq!(frame.payload.proof.slot, Slot::Own(relay.node.did()));
    assert_eq!(frame.write_within, DELIVERY_BOUND);

    let (handler, control) = Gated::new();
    control.release([0]);
    let mut next = relay.destination.layer().build().layer(handler);
    let bytes = frame.payload.encode(FRAME_LIMIT).expect("fits");
    let link = LinkId::of("relay to destination");
    let from_relay = Arrival::from_parts(relay.node.did().to_peer_id(), link, bytes.clone());
    assert_eq!(next.call(from_relay).await.expect("admitted"), Outcome::Dispatched(0));
    assert_eq!(control.calls.origins(), [relay.origin.origin()], "and it is from its origin still");
    let from_another = Arrival::from_parts(relay.origin.origin().to_peer_id(), link, bytes);
    assert_eq!(refused(next.call(from_another).await).label(), "hop_not_peer");
}

#[tokio::test]
async fn l5_4_a_relay_forwards_a_copy_again_since_it_keeps_no_window() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    let arrival = relay.arrival(3);
    let copy = relay.origin.raw(arrival.bytes.clone());
    for arrival in [arrival, copy] {
        assert_eq!(relay.call(&layer, arrival).await.expect("forwarded"), Outcome::Forwarded);
    }
    relay.assert_window_untouched();
    assert_eq!(relay.outbound.take().len(), 2);
}

#[tokio::test]
async fn l2_5_a_relay_refuses_to_forward_on_a_spent_budget() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    let spent = relay.arrival(0);
    assert_eq!(refused(relay.call(&layer, spent).await).label(), "hop_budget_spent");
    let last = relay.arrival(1);
    assert_eq!(relay.call(&layer, last).await.expect("forwarded"), Outcome::Forwarded);
    assert_eq!(relay.outbound.take().pop().expect("one frame").payload.hop_budget, 0);
    assert_eq!(relay.credit.given_back(), 2, "the refused one's, and that of the frame that the test dropped");
    relay.assert_window_untouched();
}

/// A router that always says the same.
#[derive(Debug)]
struct Always(Option<Did>);

impl Router for Always {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        self.0
    }
}

#[tokio::test]
async fn l13_1_the_router_chooses_and_no_route_leads_back_or_to_the_node_itself() {
    let mut relay = Relay::start().await;
    let (back, itself, third) = (relay.origin.origin(), relay.node.did(), KeySigner::generate().key());
    for way in [None, Some(back), Some(itself)] {
        let layer = relay.node.layer().forward(relay.forwarding().router(Arc::new(Always(way)))).build();
        let arrival = relay.arrival(3);
        assert_eq!(refused(relay.call(&layer, arrival).await).label(), "no_route", "{way:?}");
    }
    assert!(relay.outbound.take().is_empty());
    let layer = relay.node.layer().forward(relay.forwarding().router(Arc::new(Always(Some(third))))).build();
    let arrival = relay.arrival(3);
    relay.call(&layer, arrival).await.expect("forwarded");
    assert_eq!(relay.outbound.take().pop().expect("one frame").payload.next_hop, third);
}

#[tokio::test]
async fn l3_4_the_inbound_credit_travels_with_the_frame() {
    let mut relay = Relay::start().await;
    let arrival = relay.arrival(3);
    relay.call(&relay.layer(), arrival).await.expect("forwarded");
    assert_eq!(relay.credit.given_back(), 0, "the next hop has not taken it over");
    drop(relay.outbound.take());
    assert_eq!(relay.credit.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn l3_9_frames_of_one_channel_go_on_in_arrival_order() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    relay.outbound.set(State::Busy);
    let mut calls: Vec<_> = (0..5)
        .map(|_| {
            let arrival = relay.arrival(3);
            Some(tokio::spawn(relay.call(&layer, arrival)))
        })
        .collect();
    settle().await;
    if let Some(gone) = calls[2].take() {
        gone.abort();
    }
    settle().await;
    assert_eq!(relay.credit.given_back(), 1, "a caller that goes away takes its frame with it");
    relay.outbound.set(State::Open);
    for call in calls.into_iter().flatten() {
        assert_eq!(call.await.expect("no panic").expect("forwarded"), Outcome::Forwarded);
    }
    let order: Vec<_> = relay.outbound.take().iter().map(|frame| frame.payload.transaction.content.sequence).collect();
    assert_eq!(order, [0, 1, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn l3_5_a_stalled_handler_or_store_holds_no_forward_up() {
    let mut relay = Relay::start().await;
    relay.node.engine.set(Gate::Stalled);
    let layer = relay.layer();
    let payload = relay.origin.next(relay.node.did(), b"\x02for the relay");
    let own = Arrival { channel: CHANNEL, ..relay.origin.arrival(&payload) };
    let _waits = tokio::spawn(relay.call(&layer, own));
    settle().await;
    let arrival = relay.arrival(3);
    assert_eq!(relay.call(&layer, arrival).await.expect("forwarded"), Outcome::Forwarded);
}

#[tokio::test(start_paused = true)]
async fn l3_9_a_forward_that_is_not_taken_within_the_delivery_bound_is_dropped_and_the_next_goes_on() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    relay.outbound.set(State::Busy);
    let started = tokio::time::Instant::now();
    let arrival = relay.arrival(3);
    let answer = tokio::spawn(relay.call(&layer, arrival)).await.expect("no panic");
    assert_eq!(refused(answer).label(), "forward_queue_full");
    assert!(started.elapsed() >= DELIVERY_BOUND && started.elapsed() < DELIVERY_BOUND + Duration::from_secs(1));
    assert_eq!(relay.credit.given_back(), 1);
    relay.outbound.set(State::Open);
    let arrival = relay.arrival(3);
    assert_eq!(relay.call(&layer, arrival).await.expect("forwarded"), Outcome::Forwarded);
}

#[tokio::test(start_paused = true)]
async fn l3_9_a_forward_whose_time_is_over_is_refused_as_such_even_if_the_outbound_side_says_so_first() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    let mut refusal_after = async |ttl: u64, passed: Duration| {
        relay.outbound.set(State::Busy);
        let mut content = relay.origin.content(relay.destination.did(), b"\x02hello");
        content.ttl = ttl;
        let payload = relay.origin.sign(content, relay.node.did(), 3);
        let call = tokio::spawn(relay.call(&layer, relay.origin.arrival(&payload)));
        settle().await;
        relay.node.clock.advance(passed);
        relay.outbound.set(State::Failing);
        refused(call.await.expect("no panic")).label()
    };
    assert_eq!(refusal_after(60_000, DELIVERY_BOUND - Duration::from_millis(1)).await, "forward_failed");
    assert_eq!(refusal_after(60_000, DELIVERY_BOUND).await, "forward_queue_full");
    assert_eq!(refusal_after(4_000, Duration::from_secs(4)).await, "expired");
}

#[tokio::test(start_paused = true)]
async fn l3_9_what_waited_counts_and_so_does_the_end_of_its_life() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    relay.node.clock.advance(Duration::from_secs(5));
    let read_at = admit_one::clock::Clock::monotonic(&*relay.node.clock) - Duration::from_secs(4);
    let arrival = Arrival { read_at: Some(read_at), ..relay.arrival(3) };
    relay.call(&layer, arrival).await.expect("forwarded");
    assert_eq!(relay.outbound.take().pop().expect("one frame").write_within, DELIVERY_BOUND - Duration::from_secs(4));

    let mut content = relay.origin.content(relay.destination.did(), b"\x02short");
    content.ttl = 1_500;
    let payload = relay.origin.sign(content, relay.node.did(), 3);
    relay.call(&layer, relay.origin.arrival(&payload)).await.expect("forwarded");
    assert_eq!(relay.outbound.take().pop().expect("one frame").write_within, Duration::from_millis(1_500));

    let late = Arrival { read_at: Some(Duration::ZERO), ..relay.arrival(3) };
    assert_eq!(refused(relay.call(&layer, late).await).label(), "forward_queue_full", "the bound was over on arrival");
}

#[tokio::test]
async fn l3_9_forwarding_is_bounded_per_inbound_link() {
    let mut relay = Relay::start().await;
    let some = |number| NonZeroU32::new(number).expect("not zero");
    let layer = relay.node.layer().forward(relay.forwarding().rate(some(2), some(3))).build();
    for _ in 0..3 {
        let arrival = relay.arrival(3);
        relay.call(&layer, arrival).await.expect("in the burst");
    }
    let over = relay.arrival(3);
    assert_eq!(refused(relay.call(&layer, over).await).label(), "forward_rate_exceeded");
    let other_link = Arrival { link: LinkId::of("another"), ..relay.arrival(3) };
    relay.call(&layer, other_link).await.expect("another link has its own");
    relay.node.clock.advance(Duration::from_millis(500));
    let later = relay.arrival(3);
    relay.call(&layer, later).await.expect("half a second fills one");
    assert_eq!(relay.outbound.take().len(), 5);
}

#[tokio::test]
async fn an_outbound_side_that_refuses_is_a_refusal_of_its_own() {
    let mut relay = Relay::start().await;
    relay.outbound.set(State::Failing);
    let arrival = relay.arrival(3);
    let refusal = refused(relay.call(&relay.layer(), arrival).await);
    assert_eq!(refusal.label(), "forward_failed");
    assert!(refusal.to_string().contains("not connected"), "{refusal}");
    assert_eq!(relay.credit.given_back(), 1);
}

/// A key that lives elsewhere, and answers when the test lets it.
#[derive(Debug)]
struct Remote {
    key: KeySigner,
    asked: AtomicUsize,
    answers: watch::Sender<bool>,
}

impl Signer for Remote {
    fn slot(&self) -> Slot {
        self.key.slot()
    }

    fn sign(&self, message: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        let first = self.asked.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            if first {
                let mut answers = self.answers.subscribe();
                answers.wait_for(|answers| *answers).await.expect("the sender lives in self");
            }
            Ok(self.key.sign_now(&message))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn l3_9_a_frame_whose_proof_is_signed_late_is_not_overtaken_on_its_channel() {
    let mut relay = Relay::start().await;
    let signer =
        Arc::new(Remote { key: relay.node.signer.clone(), asked: 0.into(), answers: watch::Sender::new(false) });
    let layer = relay.node.layer().forward(Forwarding::new(signer.clone(), relay.outbound.clone())).build();
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let arrival = relay.arrival(3);
            tokio::spawn(relay.call(&layer, arrival))
        })
        .collect();
    settle().await;
    assert!(relay.outbound.take().is_empty(), "the others are signed, and wait");
    signer.answers.send_replace(true);
    for call in calls {
        assert_eq!(call.await.expect("no panic").expect("forwarded"), Outcome::Forwarded);
    }
    let order: Vec<_> = relay.outbound.take().iter().map(|frame| frame.payload.transaction.content.sequence).collect();
    assert_eq!(order, [0, 1, 2]);
}

/// A key that cannot be reached.
#[derive(Debug)]
struct Unreachable(KeySigner);

impl Signer for Unreachable {
    fn slot(&self) -> Slot {
        self.0.slot()
    }

    fn sign(&self, _: [u8; 32]) -> BoxFuture<'_, Result<Signature, SignError>> {
        Box::pin(std::future::ready(Err(SignError { reason: String::from("the agent is gone") })))
    }
}

#[tokio::test]
async fn l13_1_a_key_that_cannot_sign_is_a_refusal_of_its_own() {
    let mut relay = Relay::start().await;
    let signer = Arc::new(Unreachable(relay.node.signer.clone()));
    let layer = relay.node.layer().forward(Forwarding::new(signer, relay.outbound.clone())).build();
    let arrival = relay.arrival(3);
    assert_eq!(refused(relay.call(&layer, arrival).await).label(), "hop_signing");
    assert!(relay.outbound.take().is_empty());
}

#[tokio::test]
async fn l5_4_without_the_forward_step_what_is_for_another_node_is_not_admitted_either() {
    let mut relay = Relay::start().await;
    let (resolve, verify, _, _, admit) = relay.layer().into_steps();
    let arrival = relay.arrival(3);
    let answer = resolve.layer(verify.layer(admit.layer(service_fn(accept)))).call(arrival).await;
    assert_eq!(refused(answer).label(), "no_route");
    relay.assert_window_untouched();
}

#[tokio::test]
async fn l2_8_a_relay_forwards_chunks_as_they_are_and_the_destination_joins_them() {
    let mut relay = Relay::start().await;
    let layer = relay.layer();
    let content = relay.origin.content(relay.destination.did(), b"\x02a message that is cut into several chunks");
    let chunks = chunks(&relay.origin, content.clone(), relay.node.did(), frame_with(100));
    assert!(chunks.len() > 2);
    for chunk in &chunks {
        let arrival = Arrival { channel: CHANNEL, ..relay.origin.arrival(chunk) };
        assert_eq!(relay.call(&layer, arrival).await.expect("forwarded"), Outcome::Forwarded);
    }
    relay.assert_window_untouched();

    let (handler, control) = Gated::new();
    control.release([content.sequence]);
    let mut next = relay.destination.layer().build().layer(handler);
    let mut frames = relay.outbound.take().into_iter().peekable();
    while let Some(frame) = frames.next() {
        assert_eq!(frame.class, Class::E2e, "the class is its original's, and so is the lane");
        let bytes = frame.payload.encode(FRAME_LIMIT).expect("fits");
        let arrival = Arrival::from_parts(relay.node.did().to_peer_id(), LinkId::of("relay"), bytes);
        let last = frames.peek().is_none();
        let outcome = if last { Outcome::Dispatched(content.sequence) } else { Outcome::Gathering };
        assert_eq!(next.call(arrival).await.expect("taken"), outcome);
    }
    assert_eq!(control.calls.origins(), [relay.origin.origin()]);
}

#[tokio::test]
async fn what_is_for_the_relay_itself_is_admitted_there() {
    let mut relay = Relay::start().await;
    let payload = relay.origin.next(relay.node.did(), b"\x02for the relay");
    let mut service = ServiceBuilder::new().layer(relay.layer()).service(service_fn(accept));
    let answer = service.call(relay.origin.arrival(&payload)).await.expect("admitted");
    assert_eq!(answer, Outcome::Dispatched(()));
    assert_eq!(relay.node.streams(), 1);
}
