use std::task::{Context, Poll};

use futures::{TryFutureExt, future::Either};
use tower::Service;

use crate::{BoxFuture, layer::AdmissionError, link::Arrival};

/// Says refusals to the transport that brought the frame. See the [module](super).
#[derive(Debug, Clone)]
pub struct Report<S> {
    inner: S,
}

impl<S> Report<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, E> Service<Arrival> for Report<S>
where
    S: Service<Arrival, Response: Send, Error = AdmissionError<E>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = AdmissionError<E>;
    type Future = Either<S::Future, BoxFuture<'static, Result<S::Response, AdmissionError<E>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let feedback = arrival.feedback.clone();
        let answer = self.inner.call(arrival);
        let Some(feedback) = feedback else { return Either::Left(answer) };
        let told = answer.inspect_err(move |error| {
            if let Some(refusal) = error.refusal() {
                feedback.refused(refusal.label());
            }
        });
        Either::Right(Box::pin(told))
    }
}
