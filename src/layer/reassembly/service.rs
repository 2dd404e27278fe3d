use std::{
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use tokio::sync::oneshot;
use tower::Service;
use tracing::Instrument;

use super::{
    ChunkRefusal, ReassemblyLayer,
    core::Taken,
    layer::Shared,
    message::{Chunk, Common, Message, Name},
};
use crate::{
    BoxFuture,
    layer::{AdmissionError, Outcome, Refusal, Verified},
    link::CreditGuard,
    message::Kind,
    task,
};

/// What [`Reassemble`] answers with: the future of the service behind it, an answer at once, or the original's way.
pub type ReassembleFuture<S, R, E> = Either<
    S,
    Either<Ready<Result<Outcome<R>, AdmissionError<E>>>, BoxFuture<'static, Result<Outcome<R>, AdmissionError<E>>>>,
>;

/// Gathers chunks, and hands whole transactions to a `Service<Verified>`. See the [module](super).
#[derive(Debug)]
pub struct Reassemble<S> {
    layer: ReassemblyLayer,
    inner: S,
    /// Until when this instance takes nothing: an original completed by it is on its way to the next step.
    joining: Option<oneshot::Receiver<()>>,
}

impl<S> Reassemble<S> {
    pub(super) const fn new(layer: ReassemblyLayer, inner: S) -> Self {
        Self { layer, inner, joining: None }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone> Clone for Reassemble<S> {
    fn clone(&self) -> Self {
        Self::new(self.layer.clone(), self.inner.clone())
    }
}

impl<S, R, E> Service<Verified> for Reassemble<S>
where
    S: Service<Verified, Response = Outcome<R>, Error = AdmissionError<E>, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    type Response = Outcome<R>;
    type Error = AdmissionError<E>;
    type Future = ReassembleFuture<S::Future, R, E>;

    /// Not ready while an original that this instance completed is on its way to the next step.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if let Some(joining) = &mut self.joining {
            // It ends when the sender is dropped, too: the original was refused, or its caller went away.
            let _ended = std::task::ready!(Pin::new(joining).poll(context));
            self.joining = None;
        }
        self.inner.poll_ready(context)
    }

    /// Stores a chunk before it returns.
    fn call(&mut self, mut verified: Verified) -> Self::Future {
        if verified.content().kind == Kind::Whole {
            return Either::Left(self.inner.call(verified));
        }
        let span = verified.span();
        let _entered = span.clone().entered();
        let answer = |answer| Either::Right(Either::Left(ready(answer)));
        match store(&self.layer.shared, &verified) {
            Ok(None) => {
                drop(verified.take_credit());
                answer(Ok(Outcome::Gathering))
            }
            Ok(Some(complete)) => {
                // The instance that was polled ready is the one that is called.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                let (reached, joining) = oneshot::channel();
                self.joining = Some(joining);
                let way = hand_on(Arc::clone(&self.layer.shared), verified, complete, inner, reached);
                Either::Right(Either::Right(Box::pin(way.instrument(span))))
            }
            Err(refusal) => answer(Err(AdmissionError::refuse(refusal))),
        }
    }
}

/// A message all of whose chunks are there.
struct Complete {
    message: Message,
    name: Name,
    /// Whether all of it came on the connection of the last chunk.
    whole_link: bool,
    held: CreditGuard,
}

/// Stores a chunk; gives the message that it completes, if it does.
fn store(shared: &Arc<Shared>, verified: &Verified) -> Result<Option<Complete>, Refusal> {
    // Chunks for other nodes went on as they are, however the steps were stacked.
    if verified.destination() != shared.verify.local() {
        return Err(Refusal::NoRoute { destination: verified.destination() });
    }
    let content = verified.content();
    let Kind::Chunk { index, count, original, length } = content.kind else { return Ok(None) };
    let head = verified.head();
    let chunk = Chunk {
        name: Name { origin: *verified.origin().as_bytes(), original },
        peer: *verified.peer_did().as_bytes(),
        link: verified.link(),
        common: Common {
            class: verified.class(),
            tx_id: content.tx_id,
            incarnation: content.incarnation,
            sequence: content.sequence,
            issued_at: content.issued_at,
            ttl: content.ttl,
            count,
            length,
            head: content.data.slice(..head),
        },
        index,
        slice: content.data.get(head..).unwrap_or_default(),
    };
    match shared.transition(|gathered, now| gathered.take(&chunk, now))? {
        Taken::Stored => Ok(None),
        Taken::Complete(message) => {
            let (shared, parts) = (Arc::clone(shared), message.parts().collect::<Vec<_>>());
            let held = CreditGuard::new(move || shared.let_go(parts));
            let whole_link = message.came_on_one_connection(&chunk.peer);
            Ok(Some(Complete { message, name: chunk.name, whole_link, held }))
        }
    }
}

/// Makes the original of a complete message, and hands it to the next step.
async fn hand_on<S, R, E>(
    shared: Arc<Shared>,
    mut verified: Verified,
    complete: Complete,
    mut inner: S,
    reached: oneshot::Sender<()>,
) -> Result<Outcome<R>, AdmissionError<E>>
where
    S: Service<Verified, Response = Outcome<R>, Error = AdmissionError<E>>,
{
    let Complete { message, name, whole_link, held } = complete;
    let credit = verified.take_credit();
    let one_at_a_time = Arc::clone(&shared.joining).acquire_owned().await;
    let verify = shared.verify.clone();
    let joined = task::blocking(move || {
        let encoded = message.join();
        let original = verify.judge_original(encoded, name.original, verified, whole_link);
        // Both stay with the work, which goes on where its caller goes away.
        original.map(|original| (original, held, one_at_a_time))
    });
    match joined.await.unwrap_or_else(|| Err(ChunkRefusal::Interrupted.into())) {
        Ok((mut original, held, one_at_a_time)) => {
            drop(one_at_a_time);
            // What is held for it is given back when its credit is: once its handler is done with it.
            original.set_credit(CreditGuard::new(move || drop((credit, held))));
            tracing::debug!(digest = %original.digest(), length = original.data().len(), "reassembled");
            let answer = inner.call(original);
            drop(reached);
            answer.await
        }
        Err(refusal) => {
            shared.transition(|gathered, _| gathered.spoil(name));
            Err(AdmissionError::refuse(refusal))
        }
    }
}
