//! Nothing is dispatched before its batch is durable.

use admit_one::layer::Outcome;
use admit_one::link::Arrival;
use tower::{Layer, Service};

use crate::{
    engine::Gate,
    fixture::{Counters, Node, Sender, refused},
    handler::{Credit, Gated, settle},
};

#[tokio::test(start_paused = true)]
async fn l5_5_the_handler_sees_nothing_before_its_batch_is_durable() {
    let node = Node::start().await;
    let (handler, control) = Gated::new();
    let mut service = node.layer().build().layer(handler);
    let mut sender = Sender::new(&node.clock);
    control.release(0..9);
    node.engine.set(Gate::Stalled);
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let payload = sender.next(node.did(), b"\x02hello");
            tokio::spawn(service.call(sender.arrival(&payload)))
        })
        .collect();
    settle().await;
    assert_eq!(control.calls.sequences(), [], "the engine has not finished");
    node.engine.set(Gate::Open);
    for (sequence, call) in (0..).zip(calls) {
        assert_eq!(call.await.expect("no panic").expect("admitted"), Outcome::Dispatched(sequence));
    }
    assert_eq!(control.calls.sequences(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn l9_2_a_failed_batch_dispatches_nothing_and_its_transactions_can_be_admitted_later() {
    let counters = Counters::record();
    let node = Node::start().await;
    let (handler, control) = Gated::new();
    let mut service = node.layer().build().layer(handler);
    let mut sender = Sender::new(&node.clock);
    let credit = Credit::default();
    control.release(0..9);
    node.engine.set(Gate::Stalled);
    let frames: Vec<_> = (0..3).map(|_| sender.next(node.did(), b"\x02hello")).collect();
    // The first goes into the batch in flight, the others gather on top of it.
    let mut calls = Vec::new();
    for frame in &frames {
        let arrival = Arrival { credit: credit.guard(), ..sender.arrival(frame) };
        calls.push(tokio::spawn(service.call(arrival)));
        settle().await;
    }
    node.engine.set(Gate::Failing);
    for call in calls {
        assert_eq!(refused(call.await.expect("no panic")).label(), "store_failed");
    }
    assert_eq!(control.calls.sequences(), []);
    assert_eq!((node.streams(), credit.given_back()), (0, 3));
    assert_eq!(counters.refusals(), [("store_failed".into(), 3)].into());

    node.engine.set(Gate::Open);
    for (sequence, frame) in (0..).zip(&frames) {
        let answer = service.call(sender.arrival(frame)).await.expect("the very same transaction");
        assert_eq!(answer, Outcome::Dispatched(sequence));
    }
    assert_eq!(control.calls.sequences(), [0, 1, 2]);
}
