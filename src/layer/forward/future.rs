use std::future::Ready;

use futures::future::Either;

use crate::{
    BoxFuture,
    layer::{AdmissionError, Outcome},
};

type Answer<R, E> = Result<Outcome<R>, AdmissionError<E>>;

/// What [`Forward`](super::Forward) answers with: the future of the service behind it, a refusal at once, or the
/// way out.
pub type ForwardFuture<S, R, E> = Either<S, Either<Ready<Answer<R, E>>, BoxFuture<'static, Answer<R, E>>>>;
