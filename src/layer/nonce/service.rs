use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use futures::future::Either;
use tower::Service;

use super::{NonceLayer, check::check};
use crate::layer::credential::{CallError, CredentialRefusal, Credentials, Extractor, Permitted, Presented};

/// What [`NonceService`] answers with: a refusal at once, or the answer of the service behind it.
pub type NonceFuture<F, T, E> = Either<Ready<Result<T, CallError<E>>>, F>;

/// Checks what requests show. See the [module](super).
#[derive(Debug)]
pub struct NonceService<X, S> {
    layer: NonceLayer<X>,
    inner: S,
}

impl<X, S> NonceService<X, S> {
    pub(super) const fn new(layer: NonceLayer<X>, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<X, S: Clone> Clone for NonceService<X, S> {
    fn clone(&self) -> Self {
        Self::new(self.layer.clone(), self.inner.clone())
    }
}

impl<R, X, S, E> Service<R> for NonceService<X, S>
where
    X: Extractor<R>,
    S: Service<Presented<R>, Error = CallError<E>>,
{
    type Response = S::Response;
    type Error = CallError<E>;
    type Future = NonceFuture<S::Future, S::Response, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    /// Checks before it returns, on the caller's task, and calls the instance that was polled ready.
    fn call(&mut self, request: R) -> Self::Future {
        // The latch before the clock, and before anything that the request says (law L12.5).
        if self.layer.shared.single_use.stopped() {
            return Either::Left(ready(Err(CallError::stopped())));
        }
        match self.present(request) {
            Ok(presented) => Either::Right(self.inner.call(presented)),
            Err(refusal) => Either::Left(ready(Err(CallError::refuse(refusal)))),
        }
    }
}

impl<X, S> NonceService<X, S> {
    fn present<R>(&self, request: R) -> Result<Presented<R>, CredentialRefusal>
    where
        X: Extractor<R>,
    {
        let shared = &*self.layer.shared;
        let credentials = shared.extractor.extract(&request)?;
        let checked = check(&shared.rules, &credentials, shared.single_use.clock().wall())?;
        let Credentials { call, arguments, approval, .. } = credentials;
        let permitted = Permitted {
            request,
            call,
            arguments,
            commitment: checked.commitment,
            subject: checked.subject,
            key: checked.key,
        };
        let marks = checked.mark.into_iter().collect();
        Ok(Presented { permitted, marks, capabilities: checked.capabilities, approval })
    }
}
