use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use tokio::sync::oneshot;
use tower::Service;

use super::{Answer, OperationLayer};
use crate::{
    BoxFuture,
    layer::{
        credential::{CallError, Permitted, Presented},
        effect::commit,
        single_use::{
            Capability, Operation, Outcome, OutcomeUnknown, Presentation, Recorded, Refusal, Reservation, SingleUse,
        },
    },
    task,
};

/// How often one caller presents an operation again that others took over and gave up, before it is refused.
pub(super) const ATTEMPTS: usize = 4;

/// Runs each operation once. See the [module](super).
#[derive(Debug, Clone)]
pub struct OperationService<S> {
    layer: OperationLayer,
    inner: S,
}

impl<S> OperationService<S> {
    pub(super) const fn new(layer: OperationLayer, inner: S) -> Self {
        Self { layer, inner }
    }

    /// The handler.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<R, S> Service<Presented<R>> for OperationService<S>
where
    R: Send + 'static,
    S: Service<Permitted<R>, Response = Outcome, Error: Send, Future: Send> + Clone + Send + 'static,
{
    type Response = Answer;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<Answer, Self::Error>>;

    /// Always ready: a retry that is answered from the ledger needs no handler, and must not hold one's place. The handler
    /// is readied when its call may begin, and the instance that was polled ready is the one that is called (law L12.8).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, presented: Presented<R>) -> Self::Future {
        let OperationLayer { single_use, detached } = self.layer.clone();
        let answer = present(single_use, self.inner.clone(), presented);
        if !detached {
            return Box::pin(answer);
        }
        Box::pin(async move {
            let (reply, waiting) = oneshot::channel();
            // A caller that went away misses its answer; a retry gets it from the ledger.
            task::spawn(Box::pin(async move { drop(reply.send(answer.await)) }));
            waiting.await.unwrap_or_else(|_| {
                let reason = "the task that ran the call ended before it".to_owned();
                Err(CallError::unknown(OutcomeUnknown::NotRecorded { reason }))
            })
        })
    }
}

async fn present<R, S>(single_use: SingleUse, inner: S, presented: Presented<R>) -> Result<Answer, CallError<S::Error>>
where
    S: Service<Permitted<R>, Response = Outcome> + Clone,
{
    let Presented { permitted, marks, capabilities, approval: _ } = presented;
    let operation = Operation::of(&permitted.call, permitted.subject).map_err(CallError::refuse)?;
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        // Never the one that an earlier attempt made ready: a service may hold a place for whom it is ready for.
        let mut inner = inner.clone();
        let reservation = match single_use.present(&operation, &marks, &capabilities).await {
            Ok(Presentation::Run(reservation)) => reservation,
            Ok(Presentation::Recorded(recorded)) => return release(recorded, &capabilities),
            Err(Refusal::Abandoned) if attempts > 0 => continue,
            Err(refusal) => return Err(CallError::refuse(refusal)),
        };
        let dispatching = match ready(&mut inner, reservation).await?.begin(&capabilities).await {
            Ok(dispatching) => dispatching,
            // A newer caller continues it: its outcome is this one's too.
            Err(Refusal::Superseded) => {
                drop(inner);
                match single_use.follow(&operation, &capabilities).await {
                    Ok(recorded) => return release(recorded, &capabilities),
                    Err(Refusal::Abandoned) if attempts > 0 => continue,
                    Err(refusal) => return Err(CallError::refuse(refusal)),
                }
            }
            Err(refusal) => return Err(CallError::refuse(refusal)),
        };
        return match inner.call(permitted).await {
            Ok(outcome) => {
                let recorded = dispatching.finish(outcome).await.map_err(CallError::unknown)?;
                let released = recorded.release(&capabilities).map_err(CallError::refuse)?;
                Ok(Answer::new(released.into_inner(), false))
            }
            Err(error) => Err(CallError::Handler(commit(dispatching, error, &capabilities).await?)),
        };
    }
}

/// Makes the handler ready for what is reserved, and gives that back where it is not.
async fn ready<R, S>(inner: &mut S, reservation: Reservation) -> Result<Reservation, CallError<S::Error>>
where
    S: Service<Permitted<R>>,
{
    match poll_fn(|context| inner.poll_ready(context)).await {
        Ok(()) => Ok(reservation),
        Err(error) => match reservation.rollback().await {
            Ok(()) => Err(CallError::NotReady(error)),
            Err(refusal) => Err(CallError::refuse(refusal)),
        },
    }
}

/// Hands back an outcome that nothing ran for.
fn release<E>(recorded: Recorded<Outcome>, capabilities: &[Capability]) -> Result<Answer, CallError<E>> {
    recorded.release(capabilities).map(|released| Answer::new(released.into_inner(), true)).map_err(CallError::refuse)
}
