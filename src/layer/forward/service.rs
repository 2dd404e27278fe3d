use std::{
    fmt::Display,
    future::{poll_fn, ready},
    sync::{Arc, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::Either;
use tower::Service;
use tracing::Instrument;

use super::{ForwardFuture, ForwardLayer, Forwarding, layer::Way};
use crate::{
    clock::{Clock, WallMs},
    identity::{Did, Proof, SignError},
    layer::{AdmissionError, Outcome, Refusal, Verified, dispatch::Turn},
    link::Frame,
    message::Payload,
    task::within,
};

/// Carries transactions for other nodes on, and hands those for this node to a `Service<Verified>`. See the
/// [module](super).
#[derive(Debug)]
pub struct Forward<S, F> {
    layer: ForwardLayer<F>,
    inner: S,
}

impl<S, F> Forward<S, F> {
    pub(super) const fn new(layer: ForwardLayer<F>, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone, F> Clone for Forward<S, F> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<S, F, R, E> Service<Verified> for Forward<S, F>
where
    S: Service<Verified, Response = Outcome<R>, Error = AdmissionError<E>>,
    F: Service<Frame, Error: Display, Future: Send> + Clone + Send + 'static,
{
    type Response = Outcome<R>;
    type Error = AdmissionError<E>;
    type Future = ForwardFuture<S::Future, R, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    /// Takes the frame's place in its channel's order before it returns.
    fn call(&mut self, verified: Verified) -> Self::Future {
        let shared = &self.layer.shared;
        if verified.destination() == shared.local {
            return Either::Left(self.inner.call(verified));
        }
        let span = verified.span();
        let _entered = span.clone().entered();
        let forwarded = match &shared.forwarding {
            Some(way) => Forwarded::prepare(way, shared.local, &shared.clock, verified),
            None => Err(Refusal::NoRoute { destination: verified.destination() }),
        };
        match forwarded {
            Ok(forwarded) => {
                let future = async move { forwarded.run().await.map_err(AdmissionError::refuse) };
                Either::Right(Either::Right(Box::pin(future.instrument(span))))
            }
            Err(refusal) => Either::Right(Either::Left(ready(Err(AdmissionError::refuse(refusal))))),
        }
    }
}

/// One frame on its way out.
struct Forwarded<F> {
    verified: Verified,
    next_hop: Did,
    hop_budget: u8,
    turn: Turn,
    forwarding: Forwarding<F>,
    clock: Arc<dyn Clock>,
    arrived: Duration,
}

impl<F> Forwarded<F>
where
    F: Service<Frame, Error: Display> + Clone,
{
    fn prepare(way: &Way<F>, local: Did, clock: &Arc<dyn Clock>, verified: Verified) -> Result<Self, Refusal> {
        let destination = verified.destination();
        let hop_budget = verified.hop_budget().checked_sub(1).ok_or(Refusal::HopBudgetSpent { destination })?;
        let forwarding = way.forwarding.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Never back to the peer that it came from: that one chose this node as the nearer one, and would choose so
        // again until the budget is spent.
        let next_hop = forwarding
            .router
            .next_hop(&destination)
            .filter(|next_hop| *next_hop != local && *next_hop != verified.peer_did())
            .ok_or(Refusal::NoRoute { destination })?;
        let now = clock.monotonic();
        if !way.rates.lock().unwrap_or_else(PoisonError::into_inner).take(verified.link(), now) {
            return Err(Refusal::ForwardRateExceeded { per_second: way.per_second.get() });
        }
        let (turn, ()) = way.turns.take(&verified, || ())?;
        // A reading of another clock, or of the future, is not believed.
        let arrived = verified.read_at().unwrap_or(now).min(now);
        Ok(Self { verified, next_hop, hop_budget, turn, forwarding, clock: Arc::clone(clock), arrived })
    }

    async fn run<R>(self) -> Result<Outcome<R>, Refusal> {
        let (class, next_hop, clock) = (self.verified.class(), self.next_hop, Arc::clone(&self.clock));
        let time = self.time();
        let Some(left) = time.left(&*clock) else { return Err(time.over(&*clock, next_hop)) };
        match within(left, self.hand_over()).await {
            Some(Ok(())) => {}
            // The outbound side was told the same time, and may be the first to say that it is over.
            Some(Err(refusal)) if time.left(&*clock).is_some() => return Err(refusal),
            Some(Err(_)) | None => return Err(time.over(&*clock, next_hop)),
        }
        metrics::counter!("admit_one_forwarded_total", "class" => class.label()).increment(1);
        tracing::debug!(%next_hop, "forwarded");
        Ok(Outcome::Forwarded)
    }

    /// Proves this node's hop, waits for its turn, and hands the frame over. Dropped, it takes the frame with it.
    async fn hand_over(mut self) -> Result<(), Refusal> {
        let proof = self.prove().await?;
        self.turn.wait().await;
        let next_hop = self.next_hop;
        let failed = |error: F::Error| Refusal::ForwardFailed { next_hop, reason: error.to_string() };
        let mut outbound = self.forwarding.outbound.clone();
        poll_fn(|context| outbound.poll_ready(context)).await.map_err(failed)?;
        let write_within = self.time().left(&*self.clock).unwrap_or(Duration::ZERO);
        let class = self.verified.class();
        let parts = self.verified.into_parts();
        let payload = Payload { transaction: parts.payload.transaction, next_hop, hop_budget: self.hop_budget, proof };
        let frame = Frame { payload, class, write_within, inbound: parts.credit };
        let queued = outbound.call(frame);
        // It has its place. What waits for room at one next hop holds up nobody who goes to another.
        drop(self.turn);
        queued.await.map(drop).map_err(failed)
    }

    async fn prove(&mut self) -> Result<Proof, SignError> {
        let digest = Payload::hop_digest(&self.verified.digest(), &self.next_hop, self.hop_budget);
        let signer = &self.forwarding.signer;
        let slot = signer.slot();
        Ok(Proof { slot, signature: signer.sign(digest).await? })
    }

    fn time(&self) -> Time {
        let (bound, expires_at) = (self.forwarding.within, self.verified.content().expires_at());
        Time { arrived: self.arrived, bound, expires_at }
    }
}

/// The time that a forward has until it is written.
#[derive(Clone, Copy)]
struct Time {
    arrived: Duration,
    bound: Duration,
    expires_at: WallMs,
}

impl Time {
    /// What is left of the delivery bound, and of its life.
    fn left(self, clock: &dyn Clock) -> Option<Duration> {
        let waited = clock.monotonic().saturating_sub(self.arrived);
        let of_life = Duration::from_millis(self.expires_at.saturating_sub(clock.wall()));
        Some(self.bound.saturating_sub(waited).min(of_life)).filter(|left| !left.is_zero())
    }

    /// Why it is refused once nothing is left.
    fn over(self, clock: &dyn Clock, next_hop: Did) -> Refusal {
        let Self { bound, expires_at, .. } = self;
        if clock.wall() >= expires_at {
            Refusal::Expired { expires_at }
        } else {
            Refusal::ForwardQueueFull { next_hop, waited_ms: u64::try_from(bound.as_millis()).unwrap_or(u64::MAX) }
        }
    }
}
