use std::task::{Context, Poll};

use tower::Service;

use super::DispatchLayer;
use crate::{
    BoxFuture,
    layer::{
        credential::{CallError, Permitted, Presented},
        single_use::{Capability, Dispatching, SingleUse},
    },
};

/// Calls the handler for what was presented, once. See the [module](super).
#[derive(Debug, Clone)]
pub struct DispatchService<S> {
    layer: DispatchLayer,
    inner: S,
}

impl<S> DispatchService<S> {
    pub(super) const fn new(layer: DispatchLayer, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The handler.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<R, S> Service<Presented<R>> for DispatchService<S>
where
    R: Send + 'static,
    S: Service<Permitted<R>, Response: Send, Error: Send, Future: Send> + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(CallError::NotReady)
    }

    /// Calls the instance that was polled ready, once the way is free (law L12.8).
    fn call(&mut self, presented: Presented<R>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(dispatch(self.layer.single_use.clone(), inner, presented))
    }
}

async fn dispatch<R, S>(
    single_use: SingleUse,
    mut inner: S,
    presented: Presented<R>,
) -> Result<S::Response, CallError<S::Error>>
where
    S: Service<Permitted<R>>,
{
    let Presented { permitted, marks, capabilities, approval: _ } = presented;
    let reservation = single_use.reserve(&marks, &capabilities).await.map_err(CallError::refuse)?;
    let dispatching = reservation.begin(&capabilities).await.map_err(CallError::refuse)?;
    let answer = inner.call(permitted).await;
    let answer = commit(dispatching, answer, &capabilities).await?;
    answer.map_err(CallError::Handler)
}

/// Commits what was consumed for `answer`, and lets that out where it still may leave.
pub(in crate::layer) async fn commit<T, E>(
    dispatching: Dispatching,
    answer: T,
    capabilities: &[Capability],
) -> Result<T, CallError<E>> {
    let recorded = dispatching.commit(answer).await.map_err(CallError::unknown)?;
    recorded.release(capabilities).map(|released| released.into_inner()).map_err(CallError::refuse)
}
