//! Mock handlers, so that a test decides when a handler is ready, and when it is done.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use admit_one::{layer::Admitted, link::CreditGuard};
use tokio::sync::watch;
use tower::Service;

use crate::fixture::Calls;

/// Notes each call, and answers its sequence once the test has released that.
///
/// It asserts the contract of `tower::Service`: only the instance that was polled ready is called, once.
#[derive(Debug)]
pub struct Gated {
    pub control: Control,
    ready: bool,
}

#[derive(Debug, Clone)]
pub struct Control {
    pub calls: Calls,
    released: Arc<watch::Sender<BTreeSet<u64>>>,
    readiness: Arc<Mutex<Readiness>>,
}

#[derive(Debug, Default)]
struct Readiness {
    held: bool,
    wakers: Vec<Waker>,
}

impl Gated {
    pub fn new() -> (Self, Control) {
        let control = Control {
            calls: Calls::default(),
            released: Arc::new(watch::Sender::default()),
            readiness: Arc::default(),
        };
        (Self { control: control.clone(), ready: false }, control)
    }
}

impl Control {
    /// Lets the handlers of these sequences answer.
    pub fn release(&self, sequences: impl IntoIterator<Item = u64>) {
        self.released.send_modify(|released| released.extend(sequences));
    }

    /// From now on handlers are not ready, or are again.
    pub fn hold(&self, held: bool) {
        let mut readiness = self.readiness.lock().expect("no panic in here");
        readiness.held = held;
        readiness.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Clone for Gated {
    fn clone(&self) -> Self {
        Self { control: self.control.clone(), ready: false }
    }
}

impl Service<Admitted> for Gated {
    type Response = u64;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<u64, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut readiness = self.control.readiness.lock().expect("no panic in here");
        if readiness.held {
            readiness.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, admitted: Admitted) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "a handler that was not polled ready was called");
        self.control.calls.note(&admitted);
        let mut released = self.control.released.subscribe();
        Box::pin(async move {
            let sequence = admitted.sequence();
            released.wait_for(|released| released.contains(&sequence)).await.expect("the sender lives");
            Ok(sequence)
        })
    }
}

/// Counts the credit that was given back.
#[derive(Debug, Clone, Default)]
pub struct Credit(Arc<AtomicUsize>);

impl Credit {
    pub fn guard(&self) -> Option<CreditGuard> {
        let given = Arc::clone(&self.0);
        Some(CreditGuard::new(move || {
            given.fetch_add(1, Ordering::Relaxed);
        }))
    }

    pub fn given_back(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets every task run until none can: on paused time, a sleep ends when the runtime is idle.
pub async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
