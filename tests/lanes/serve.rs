//! What `Incoming::serve` promises: frame order, at most the credit at once, errors that cost one frame alone.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use admit_one::{
    lanes::{Config, Fate, LossReason, Lost},
    link::Arrival,
    message::Class,
};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::sync::Semaphore;
use tower::{Service, service_fn};

use crate::{
    both_transports,
    support::{Node, Options, Transport, frame, in_time, read},
};

both_transports! {
    calls_come_in_frame_order_and_at_most_the_credit_at_once,
    a_failed_call_costs_its_frame_alone,
    a_service_that_is_not_ready_any_more_ends_its_channel,
    calls_stop_with_the_future_that_serves,
}

async fn calls_come_in_frame_order_and_at_most_the_credit_at_once(transport: Transport) {
    const CREDIT: usize = 5;
    let options = |config| Options { config, ..Options::default() };
    let sender = Node::with(transport, options(Config::default().window(31))).await;
    let mut receiver = Node::with(transport, options(Config::default().credit(CREDIT as u8))).await;
    sender.know(&receiver);
    let gate = Arc::new(Semaphore::new(0));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let order = Arc::new(Mutex::new(HashMap::<Class, Vec<u64>>::new()));
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let service = {
        let (gate, running, most, order) = (gate.clone(), running, most.clone(), order.clone());
        service_fn(move |arrival: Arrival| {
            let (class, sequence) = read(&arrival);
            order.lock().unwrap().entry(class).or_default().push(sequence);
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ = called.send(());
            let (gate, running) = (gate.clone(), running.clone());
            async move {
                gate.acquire().await.unwrap().forget();
                running.fetch_sub(1, Ordering::SeqCst);
                drop(arrival);
                Ok::<_, std::convert::Infallible>(())
            }
        })
    };
    tokio::spawn(receiver.incoming().serve(service));
    let mut settlements = Vec::new();
    for sequence in 0..100 {
        settlements.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    // As many as the credit are called while none is done.
    for _ in 0..CREDIT {
        in_time(calls.recv()).await.unwrap();
    }
    for _ in 0..100 {
        gate.add_permits(1);
    }
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    assert_eq!(order.lock().unwrap()[&Class::E2e], (0..100).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), CREDIT);
}

async fn a_failed_call_costs_its_frame_alone(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let service = service_fn(move |arrival: Arrival| {
        let (_, sequence) = read(&arrival);
        count.fetch_add(1, Ordering::SeqCst);
        async move { if sequence % 2 == 0 { Ok(()) } else { Err("refused") } }
    });
    tokio::spawn(receiver.incoming().serve(service));
    let mut settlements = Vec::new();
    for sequence in 0..50 {
        settlements.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    // A refused frame is taken over too.
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    assert_eq!(served.load(Ordering::SeqCst), 50);
}

/// Takes some calls, and then is not ready any more.
#[derive(Clone)]
struct Wearing(Arc<AtomicUsize>);

impl Service<Arrival> for Wearing {
    type Response = ();
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if self.0.load(Ordering::SeqCst) < 3 { Ok(()) } else { Err("worn out") })
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        self.0.fetch_add(1, Ordering::SeqCst);
        drop(arrival);
        async { Ok(()) }.boxed()
    }
}

async fn a_service_that_is_not_ready_any_more_ends_its_channel(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let calls = Arc::new(AtomicUsize::new(0));
    tokio::spawn(receiver.incoming().serve(Wearing(calls.clone())));
    let mut outcomes = Vec::new();
    for sequence in 0..4 {
        let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap();
        outcomes.push(in_time(settlement).await);
        if sequence == 2 {
            // The service wore out with this frame, and its channel ends before it takes another.
            break;
        }
    }
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let last = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 9, 10))).await.unwrap();
    let lost = in_time(last).await;
    // Whether it was written before the channel's end was heard of is up to the two nodes.
    assert!(matches!(lost, Err(Lost { reason: LossReason::LinkClosed, .. })), "{lost:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 3, "and nothing is called any more");
}

async fn calls_stop_with_the_future_that_serves(transport: Transport) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    sender.know(&receiver);
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let service = service_fn(move |arrival: Arrival| {
        let (dropped, stopped) = tokio::sync::oneshot::channel::<()>();
        let _ = called.send(stopped);
        async move {
            let _held = (arrival, dropped);
            std::future::pending::<Result<(), std::convert::Infallible>>().await
        }
    });
    let serving = tokio::spawn(receiver.incoming().serve(service));
    let settlement = in_time(sender.outbound.send(frame(receiver.did, Class::E2e, 0, 10))).await.unwrap();
    let stopped = in_time(calls.recv()).await.unwrap();
    serving.abort();
    assert!(in_time(stopped).await.is_err(), "the call is dropped");
    // What was called was taken over or not, as far as the sender can tell; it hears one of both.
    let settled = in_time(settlement).await;
    assert!(
        matches!(settled, Ok(()) | Err(Lost { reason: LossReason::LinkClosed, fate: Fate::MayHaveBeenReceived })),
        "{settled:?}"
    );
}
