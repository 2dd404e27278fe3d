use std::{
    future::ready,
    task::{Context, Poll},
};

use futures::future::Either;
use tower::Service;

use super::{ApprovalLayer, check::check};
use crate::layer::{
    credential::{CallError, CredentialRefusal, Presented},
    nonce::NonceFuture,
};

/// Checks that calls are approved. See the [module](super).
#[derive(Debug, Clone)]
pub struct ApprovalService<S> {
    layer: ApprovalLayer,
    inner: S,
}

impl<S> ApprovalService<S> {
    pub(super) const fn new(layer: ApprovalLayer, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    fn approve<R>(&self, presented: &mut Presented<R>) -> Result<(), CredentialRefusal> {
        let ApprovalLayer { single_use, rules, needed } = &self.layer;
        if needed(presented.call()) {
            let (call, subject, approval) = (presented.call(), presented.subject(), presented.approval.as_ref());
            let (mark, capabilities) = check(rules, call, subject, approval, single_use.clock().wall())?;
            presented.marks.push(mark);
            presented.capabilities.extend(capabilities);
        }
        Ok(())
    }
}

impl<R, S, E> Service<Presented<R>> for ApprovalService<S>
where
    S: Service<Presented<R>, Error = CallError<E>>,
{
    type Response = S::Response;
    type Error = CallError<E>;
    type Future = NonceFuture<S::Future, S::Response, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    /// Checks before it returns, on the caller's task, and calls the instance that was polled ready.
    fn call(&mut self, mut presented: Presented<R>) -> Self::Future {
        // The latch before the clock (law L12.5).
        if self.layer.single_use.stopped() {
            return Either::Left(ready(Err(CallError::stopped())));
        }
        match self.approve(&mut presented) {
            Ok(()) => Either::Right(self.inner.call(presented)),
            Err(refusal) => Either::Left(ready(Err(CallError::refuse(refusal)))),
        }
    }
}
