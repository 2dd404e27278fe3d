use std::future::Ready;

use futures::future::Either;

use crate::layer::AdmissionError;

/// What [`Verify`](super::Verify) answers with: a refusal at once, or the future of the service behind it.
pub type VerifyFuture<F, T, E> = Either<Ready<Result<T, AdmissionError<E>>>, F>;
