use std::{
    future::ready,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::Service;

use super::{Verified, VerifyFuture, VerifyLayer, judge::judge};
use crate::layer::{AdmissionError, resolve::Resolved};

/// Verifies payloads, and hands those whose proofs hold to a `Service<Verified>`. See the [module](super).
#[derive(Debug, Clone)]
pub struct Verify<S> {
    layer: VerifyLayer,
    inner: S,
}

impl<S> Verify<S> {
    pub(super) const fn new(layer: VerifyLayer, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, E> Service<Resolved> for Verify<S>
where
    S: Service<Verified, Error = AdmissionError<E>>,
{
    type Response = S::Response;
    type Error = AdmissionError<E>;
    type Future = VerifyFuture<S::Future, S::Response, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    /// Verifies before it returns, on the caller's task: calling in arrival order is handing on in arrival order.
    fn call(&mut self, mut resolved: Resolved) -> Self::Future {
        let VerifyLayer { rules, known, clock } = &self.layer;
        let (peer, length) = (resolved.arrival.peer, resolved.payload.encoded_len());
        let carried = std::mem::take(&mut resolved.carried);
        match judge(rules, known, resolved, clock.wall()) {
            Ok(mut verified) => {
                carried.verified();
                verified.trace();
                Either::Right(self.inner.call(verified))
            }
            Err(refusal) => {
                let _span = tracing::debug_span!("frame", %peer, length).entered();
                Either::Left(ready(Err(AdmissionError::refuse(refusal))))
            }
        }
    }
}
