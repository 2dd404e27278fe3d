use std::{
    future::ready,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::Service;

use super::{Resolved, resolve};
use crate::{
    layer::{AdmissionError, verify::VerifyFuture},
    link::Arrival,
};

/// Decodes frames and resolves their references, and hands them to a `Service<Resolved>`. See the [module](super).
#[derive(Debug, Clone)]
pub struct Resolve<S> {
    frame_limit: usize,
    inner: S,
}

impl<S> Resolve<S> {
    pub(super) const fn new(frame_limit: usize, inner: S) -> Self {
        Self { frame_limit, inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, E> Service<Arrival> for Resolve<S>
where
    S: Service<Resolved, Error = AdmissionError<E>>,
{
    type Response = S::Response;
    type Error = AdmissionError<E>;
    type Future = VerifyFuture<S::Future, S::Response, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    /// Resolves before it returns: calling in arrival order is handing on in arrival order.
    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let (peer, length) = (arrival.peer, arrival.bytes.len());
        match resolve(arrival, self.frame_limit) {
            Ok(resolved) => Either::Right(self.inner.call(resolved)),
            Err(refusal) => {
                let _span = tracing::debug_span!("frame", %peer, length).entered();
                Either::Left(ready(Err(AdmissionError::refuse(refusal))))
            }
        }
    }
}
