use std::{
    future::{poll_fn, ready},
    sync::Arc,
    task::{Context, Poll},
};

use tower::Service;
use tracing::Instrument;

use super::{AdmitLayer, Admitted, layer::Shared};
use crate::{
    BoxFuture,
    layer::{
        AdmissionError, Outcome, Refusal, Verified,
        boundary::{Application, BoundaryRefusal, Carrier, Request},
        dispatch::Turn,
        local::{Namespace, is_own_connection},
        reassembly::ChunkRefusal,
        window::Verdict,
    },
    message::{Class, Kind},
    storage::commit::Ticket,
};

/// Admits verified transactions, each once, and calls the handler with them. See the [module](super).
#[derive(Debug, Clone)]
pub struct Admit<H> {
    layer: AdmitLayer,
    handler: H,
}

impl<H> Admit<H> {
    pub(super) const fn new(layer: AdmitLayer, handler: H) -> Self {
        Self { layer, handler }
    }

    /// The handler.
    pub const fn get_ref(&self) -> &H {
        &self.handler
    }
}

impl<H> Service<Verified> for Admit<H>
where
    H: Service<Admitted, Response: Send, Error: Send, Future: Send> + Clone + Send + 'static,
{
    type Response = Outcome<H::Response>;
    type Error = AdmissionError<H::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// Always ready: the handler is readied when its turn has come.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    /// Stages before it returns: calling in arrival order is admitting in arrival order, and is the order of the
    /// handler's turns.
    fn call(&mut self, verified: Verified) -> Self::Future {
        let span = verified.span();
        let _entered = span.clone().entered();
        match Staged::stage(&self.layer.shared, verified) {
            Ok(staged) => Box::pin(staged.run(self.handler.clone()).instrument(span)),
            Err(refusal) => Box::pin(ready(Err(AdmissionError::refuse(refusal)))),
        }
    }
}

/// A transaction whose transition is staged, and its place in its channel's line.
struct Staged {
    verified: Verified,
    request: Request,
    /// How often a mark had been set before it was admitted.
    marks: u64,
    turn: Turn,
    ticket: Ticket<Result<Verdict, BoundaryRefusal>>,
    shared: Arc<Shared>,
}

impl Staged {
    fn stage(shared: &Arc<Shared>, verified: Verified) -> Result<Self, Refusal> {
        // Only an original takes its sequence (law L2.8), however the steps were stacked.
        if verified.content().kind != Kind::Whole {
            return Err(Refusal::Chunk(ChunkRefusal::NotJoined));
        }
        // The window is for the destination alone (law L5.4), however the steps were stacked.
        if verified.destination() != shared.local {
            return Err(Refusal::NoRoute { destination: verified.destination() });
        }
        let content = verified.content();
        let request = Request {
            stream: verified.stream(),
            incarnation: content.incarnation,
            sequence: content.sequence,
            digest: verified.digest(),
            issued_at: content.issued_at,
            ttl: content.ttl,
            bytes: content.data.len() as u64,
            application: application(shared, &verified),
            carrier: Carrier::Link(verified.link()),
        };
        let marks = shared.admission.marks();
        let (turn, ticket) = shared.turns.take(&verified, || shared.admission.admit(request))?;
        Ok(Self { verified, request, marks, turn, ticket, shared: Arc::clone(shared) })
    }

    async fn run<H: Service<Admitted>>(self, mut handler: H) -> Result<Outcome<H::Response>, AdmissionError<H::Error>> {
        let Self { mut verified, request, marks, turn, ticket, shared } = self;
        let verdict = match ticket.await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(refusal)) => {
                drop(turn);
                let (stream, transaction) = (verified.stream(), verified.into_parts().payload.transaction);
                return Err(AdmissionError::pass_on(shared.explain(stream, transaction, refusal).await));
            }
            Err(failed) => {
                drop(turn);
                return Err(AdmissionError::refuse(failed.into()));
            }
        };
        tracing::debug!(?verdict, "admitted");

        turn.wait().await;
        poll_fn(|context| handler.poll_ready(context)).await.map_err(AdmissionError::Handler)?;
        // Kept until the handler is done, whatever it does with its own (law L3.4).
        let credit = verified.take_credit().map(Arc::new);
        let admitted = Admitted::new(verified, verdict, credit.clone());
        let answer = match shared.admission.hand_over(&request, marks, || handler.call(admitted)).await {
            Ok(answer) => answer,
            Err(refusal) => {
                drop(turn);
                return Err(AdmissionError::pass_on(refusal.into()));
            }
        };
        turn.called();
        let answer = answer.await.map(Outcome::Dispatched).map_err(AdmissionError::Handler);
        drop((turn, credit));
        tracing::debug!(handled = answer.is_ok(), "dispatched");
        answer
    }
}

/// What decides whether it is link-local: its envelope and its connection, nothing else (law L6.1).
fn application(shared: &Shared, verified: &Verified) -> Option<Application> {
    if verified.class() != Class::Application {
        return None;
    }
    let delegatee = verified.delegation().map(|delegation| delegation.delegatee());
    let own = is_own_connection(&verified.peer_did(), &verified.origin(), delegatee.as_ref());
    // What came in part by another way is a relayed copy like any other.
    let own = own && verified.came_on_one_link();
    Some(Application {
        classifier: shared.classifier,
        namespace: verified.namespace().and_then(|namespace| Namespace::new(namespace).ok()),
        own_link: own.then(|| verified.link()),
    })
}
