//! Handlers are called in admission order, a bounded number at once, and a caller that goes away is in nobody's way.

use std::{num::NonZeroUsize, sync::Arc};

use admit_one::{
    layer::{AdmissionError, AdmissionLayer, Outcome},
    link::{Arrival, Channel},
};
use bytes::Bytes;
use futures::FutureExt;
use tokio::task::JoinHandle;
use tower::{Layer, Service, service_fn};

use crate::{
    engine::Gate,
    fixture::{Node, Sender, refused},
    handler::{Control, Credit, Gated, settle},
};

const CHANNEL: Option<Channel> = Some(Channel { index: 2, pool: 4 });

type Answer = crate::fixture::Answer<u64>;

/// A node, a sender on one channel, and a handler that the test controls.
struct Bench {
    node: Node,
    sender: Sender,
    layer: AdmissionLayer,
    handler: Gated,
    control: Control,
    credit: Credit,
}

impl Bench {
    async fn with(concurrency: usize) -> Self {
        let node = Node::start().await;
        let concurrency = NonZeroUsize::new(concurrency).expect("not zero");
        let layer = node.layer().concurrency(concurrency).build();
        let (handler, control) = Gated::new();
        let sender = Sender::new(&node.clock);
        Self { node, sender, layer, handler, control, credit: Credit::default() }
    }

    fn arrival(&mut self) -> Arrival {
        let payload = self.sender.next(self.node.did(), b"\x02hello");
        Arrival { channel: CHANNEL, credit: self.credit.guard(), ..self.sender.arrival(&payload) }
    }

    /// Calls with an arrival at once, and returns the future.
    fn call(&self, arrival: Arrival) -> impl Future<Output = Answer> + Send + 'static {
        self.layer.layer(self.handler.clone()).call(arrival)
    }

    fn spawn(&mut self) -> JoinHandle<Answer> {
        let arrival = self.arrival();
        tokio::spawn(self.call(arrival))
    }

    fn called(&self) -> Vec<u64> {
        self.control.calls.sequences()
    }
}

async fn dispatched(call: JoinHandle<Answer>) -> u64 {
    match call.await.expect("no panic") {
        Ok(Outcome::Dispatched(sequence)) => sequence,
        other => panic!("not dispatched: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn l5_6_a_slow_first_handler_holds_its_channel_back_in_order() {
    let mut bench = Bench::with(1).await;
    let calls: Vec<_> = (0..5).map(|_| bench.spawn()).collect();
    settle().await;
    assert_eq!(bench.called(), [0]);
    bench.control.release([2, 1, 4]);
    settle().await;
    assert_eq!(bench.called(), [0], "what is behind it may be ready as it likes");
    bench.control.release([0]);
    settle().await;
    assert_eq!(bench.called(), [0, 1, 2, 3]);
    bench.control.release([3]);
    for (sequence, call) in (0..).zip(calls) {
        assert_eq!(dispatched(call).await, sequence);
    }
    assert_eq!(bench.called(), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn l5_6_a_concurrency_of_two_lets_two_run_and_calls_in_order() {
    let mut bench = Bench::with(2).await;
    let calls: Vec<_> = (0..4).map(|_| bench.spawn()).collect();
    settle().await;
    assert_eq!(bench.called(), [0, 1]);
    bench.control.release([1]);
    settle().await;
    assert_eq!(bench.called(), [0, 1, 2], "one is done, so one more runs");
    bench.control.release([0, 2, 3]);
    for (sequence, call) in (0..).zip(calls) {
        assert_eq!(dispatched(call).await, sequence);
    }
    assert_eq!(bench.called(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn l3_5_a_stalled_handler_holds_no_other_channel_or_link_back() {
    let mut bench = Bench::with(1).await;
    let _stalled = bench.spawn();
    settle().await;
    let mut other_lane = bench.arrival();
    other_lane.channel = None;
    let mut other_link = Sender::new(&bench.node.clock);
    other_link.next = 77;
    let payload = other_link.next(bench.node.did(), b"\x02other");
    let other_link = Arrival { channel: CHANNEL, ..other_link.arrival(&payload) };
    bench.control.release([1, 77]);
    for (arrival, sequence) in [(other_lane, 1), (other_link, 77)] {
        let call = tokio::spawn(bench.call(arrival));
        assert_eq!(dispatched(call).await, sequence);
    }
}

#[tokio::test(start_paused = true)]
async fn l5_6_a_handler_is_called_only_once_it_is_ready_and_meanwhile_nobody_passes() {
    let mut bench = Bench::with(2).await;
    bench.control.hold(true);
    let calls = [bench.spawn(), bench.spawn()];
    settle().await;
    assert_eq!(bench.called(), [], "the mock asserts that it is not called before it is ready");
    bench.control.release([0, 1]);
    bench.control.hold(false);
    for (sequence, call) in (0..).zip(calls) {
        assert_eq!(dispatched(call).await, sequence);
    }
    assert_eq!(bench.called(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn l5_6_a_refusal_leaves_its_place() {
    let mut bench = Bench::with(1).await;
    let first = bench.arrival();
    let copy = Arrival { channel: CHANNEL, ..bench.sender.raw(first.bytes.clone()) };
    bench.control.release([0, 1]);
    let calls = [first, copy, bench.arrival()].map(|arrival| tokio::spawn(bench.call(arrival)));
    let [first, copy, second] = calls;
    assert_eq!(refused(copy.await.expect("no panic")).label(), "replay");
    assert_eq!((dispatched(first).await, dispatched(second).await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn l9_3_a_caller_that_goes_away_frees_its_place_at_every_await() {
    // While its batch is written.
    let mut bench = Bench::with(1).await;
    bench.node.engine.set(Gate::Stalled);
    let gone = bench.spawn();
    settle().await;
    gone.abort();
    let next = bench.spawn();
    settle().await;
    assert_eq!(bench.credit.given_back(), 1, "its credit comes back");
    bench.control.release([1]);
    bench.node.engine.set(Gate::Open);
    assert_eq!(dispatched(next).await, 1);
    assert_eq!(bench.called(), [1]);

    // While it waits for its turn.
    let mut bench = Bench::with(1).await;
    let (running, gone, next) = (bench.spawn(), bench.spawn(), bench.spawn());
    settle().await;
    gone.abort();
    settle().await;
    assert_eq!((bench.called(), bench.credit.given_back()), (vec![0], 1));
    bench.control.release([0, 2]);
    assert_eq!((dispatched(running).await, dispatched(next).await), (0, 2));
    assert_eq!(bench.called(), [0, 2]);

    // While its handler is not ready.
    let mut bench = Bench::with(1).await;
    bench.control.hold(true);
    let (gone, next) = (bench.spawn(), bench.spawn());
    settle().await;
    gone.abort();
    settle().await;
    bench.control.release([1]);
    bench.control.hold(false);
    assert_eq!(dispatched(next).await, 1);
    assert_eq!(bench.called(), [1]);

    // While its handler runs.
    let mut bench = Bench::with(1).await;
    let (gone, next) = (bench.spawn(), bench.spawn());
    settle().await;
    assert_eq!(bench.called(), [0]);
    gone.abort();
    bench.control.release([1]);
    assert_eq!(dispatched(next).await, 1);
    assert_eq!((bench.called(), bench.credit.given_back()), (vec![0, 1], 2));
}

#[tokio::test(start_paused = true)]
async fn l9_3_what_a_caller_abandoned_stays_admitted_and_is_never_dispatched() {
    let mut bench = Bench::with(1).await;
    let arrival = bench.arrival();
    let copy = Arrival { channel: CHANNEL, ..bench.sender.raw(arrival.bytes.clone()) };
    drop(bench.call(arrival));
    bench.control.release([0]);
    assert_eq!(refused(bench.call(copy).await).label(), "replay");
    assert_eq!((bench.called(), bench.node.streams()), (vec![], 1));
}

#[tokio::test(start_paused = true)]
async fn l3_4_credit_comes_back_when_the_handler_is_done_or_the_frame_is_refused() {
    let mut bench = Bench::with(1).await;
    let call = bench.spawn();
    settle().await;
    assert_eq!((bench.called(), bench.credit.given_back()), (vec![0], 0), "its handler runs");
    bench.control.release([0]);
    dispatched(call).await;
    assert_eq!(bench.credit.given_back(), 1);
    let garbage = Arrival { credit: bench.credit.guard(), ..bench.sender.raw(Bytes::from_static(b"garbage")) };
    assert_eq!(refused(bench.call(garbage).await).label(), "wrong_marker");
    assert_eq!(bench.credit.given_back(), 2);
}

#[tokio::test(start_paused = true)]
async fn l3_4_a_handler_that_drops_what_it_was_given_early_holds_its_credit_until_it_is_done() {
    let mut bench = Bench::with(1).await;
    let done = Arc::new(tokio::sync::Notify::new());
    let until = Arc::clone(&done);
    let handler = service_fn(move |admitted| {
        drop(admitted);
        let until = Arc::clone(&until);
        async move {
            until.notified().await;
            Ok::<_, std::convert::Infallible>(())
        }
    });
    let call = tokio::spawn(bench.layer.layer(handler).call(bench.arrival()));
    settle().await;
    assert_eq!(bench.credit.given_back(), 0);
    done.notify_one();
    call.await.expect("no panic").expect("dispatched");
    assert_eq!(bench.credit.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn l3_4_a_handler_that_passes_it_on_to_another_task_holds_its_credit_until_that_is_done() {
    let mut bench = Bench::with(1).await;
    let handler = service_fn(|admitted| std::future::ready(Ok::<_, std::convert::Infallible>(admitted)));
    let Outcome::Dispatched(admitted) = bench.layer.layer(handler).call(bench.arrival()).await.expect("dispatched")
    else {
        panic!("not dispatched");
    };
    assert_eq!(bench.credit.given_back(), 0);
    drop(admitted);
    assert_eq!(bench.credit.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn l13_4_a_handlers_own_error_is_told_apart_and_the_next_goes_on() {
    let mut bench = Bench::with(1).await;
    let handler = service_fn(|admitted: admit_one::layer::Admitted| {
        std::future::ready(if admitted.sequence() == 0 { Err("on purpose") } else { Ok(()) })
    });
    let mut service = bench.layer.layer(handler);
    let (first, second) = (service.call(bench.arrival()), service.call(bench.arrival()));
    assert!(matches!(first.await, Err(AdmissionError::Handler("on purpose"))));
    assert!(matches!(second.await, Ok(Outcome::Dispatched(()))));
}

#[tokio::test(start_paused = true)]
async fn at_1024_places_of_a_channel_the_next_is_refused_before_anything_is_staged() {
    let mut bench = Bench::with(1).await;
    let arrivals: Vec<_> = (0..1_024).map(|_| bench.arrival()).collect();
    let waiting: Vec<_> = arrivals.into_iter().map(|arrival| bench.call(arrival)).collect();
    let over = bench.arrival();
    let copy = Arrival { channel: CHANNEL, ..bench.sender.raw(over.bytes.clone()) };
    let answer = bench.call(over).now_or_never().expect("at once");
    assert_eq!(refused(answer).label(), "dispatch_full");
    drop(waiting);
    bench.control.release([1_024]);
    assert!(matches!(bench.call(copy).await, Ok(Outcome::Dispatched(1_024))), "and can be admitted later");
}
