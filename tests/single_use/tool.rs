//! A mock handler, so that a test decides when it is ready, when it is done, and whether it fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use admit_one::{
    BoxFuture,
    layer::{
        credential::Permitted,
        single_use::{Outcome, OutcomeKind},
    },
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;

/// Counts its runs, and answers something else each time.
///
/// It asserts the contract of `tower::Service`: only the instance that was polled ready is called, once (law L12.8).
#[derive(Debug)]
pub struct Tool {
    pub control: Arc<Control>,
    ready: bool,
}

#[derive(Debug)]
pub struct Control {
    runs: AtomicUsize,
    calls: watch::Sender<usize>,
    /// While it is shut no handler is ready.
    readiness: watch::Sender<bool>,
    /// While it is shut no handler ends.
    end: watch::Sender<bool>,
    fail: AtomicBool,
    fail_ready: AtomicBool,
    bytes: AtomicUsize,
    polls: watch::Sender<usize>,
}

impl Tool {
    pub fn new() -> Self {
        let control = Control {
            runs: AtomicUsize::new(0),
            calls: watch::Sender::new(0),
            readiness: watch::Sender::new(true),
            end: watch::Sender::new(true),
            fail: AtomicBool::new(false),
            fail_ready: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            polls: watch::Sender::new(0),
        };
        Self { control: Arc::new(control), ready: false }
    }
}

impl Control {
    /// How often it ran to its end.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until it was called so often.
    pub async fn called(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.expect("the sender lives");
    }

    /// Waits until it was asked so often whether it is ready, and was not.
    pub async fn waited_for(&self, times: usize) {
        self.polls.subscribe().wait_for(|polls| *polls >= times).await.expect("the sender lives");
    }

    pub fn set_ready(&self, ready: bool) {
        self.readiness.send_replace(ready);
    }

    pub fn let_end(&self, end: bool) {
        self.end.send_replace(end);
    }

    pub fn fail(&self, fail: bool) {
        self.fail.store(fail, Ordering::SeqCst);
    }

    pub fn fail_ready(&self, fail: bool) {
        self.fail_ready.store(fail, Ordering::SeqCst);
    }

    /// From now on outcomes have so many bytes more.
    pub fn pad(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::SeqCst);
    }
}

impl Clone for Tool {
    /// No clone is ready because the original was.
    fn clone(&self) -> Self {
        Self { control: self.control.clone(), ready: false }
    }
}

impl<R: Send + 'static> Service<Permitted<R>> for Tool {
    type Response = Outcome;
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<Outcome, &'static str>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.control.fail_ready.load(Ordering::SeqCst) {
            return Poll::Ready(Err("broken"));
        }
        if !*self.control.readiness.borrow() {
            self.control.polls.send_modify(|polls| *polls += 1);
            let (mut readiness, waker) = (self.control.readiness.subscribe(), context.waker().clone());
            tokio::spawn(async move {
                let _ = readiness.wait_for(|ready| *ready).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Permitted<R>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been polled ready");
        let control = self.control.clone();
        control.calls.send_modify(|calls| *calls += 1);
        Box::pin(async move {
            control.end.subscribe().wait_for(|end| *end).await.expect("the sender lives");
            let run = control.runs.fetch_add(1, Ordering::SeqCst) + 1;
            if control.fail.load(Ordering::SeqCst) {
                return Err("it failed");
            }
            let bytes = format!("run {run}{}", ".".repeat(control.bytes.load(Ordering::SeqCst)));
            Ok(Outcome { kind: OutcomeKind::Receipt, bytes: bytes.into() })
        })
    }
}

/// Lets so many calls run at once. A place is taken by being polled ready, as a limit of tower's is, and given back with
/// the call, or with the instance.
pub struct Places<S> {
    inner: S,
    places: Arc<Semaphore>,
    asking: Option<BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>>,
    place: Option<OwnedSemaphorePermit>,
}

impl<S> Places<S> {
    pub fn new(places: usize, inner: S) -> Self {
        Self { inner, places: Arc::new(Semaphore::new(places)), asking: None, place: None }
    }
}

impl<S: Clone> Clone for Places<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), places: self.places.clone(), asking: None, place: None }
    }
}

impl<R, S: Service<R, Future: Send + 'static>> Service<R> for Places<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.place.is_none() {
            let places = self.places.clone();
            let asking = self.asking.get_or_insert_with(|| Box::pin(places.acquire_owned()));
            let place = std::task::ready!(asking.as_mut().poll(context)).expect("it is never closed");
            (self.asking, self.place) = (None, Some(place));
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let place = self.place.take().expect("polled ready");
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(place);
            answer
        })
    }
}
