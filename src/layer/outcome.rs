use super::Refusal;

/// What became of a frame that was not refused (law L13.4). `R` is what the handler answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<R> {
    /// It was admitted, and the handler answered.
    Dispatched(R),
    /// It was for another node, and waits in a queue towards it.
    Forwarded,
    /// It is a chunk, stored until the others of its original are there (law L2.8).
    Gathering,
}

/// Why a frame brought no [`Outcome`]. `E` is the handler's own error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdmissionError<E> {
    /// It was refused; the handler was not called.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// It was admitted, once and for all, and the handler failed.
    #[error("admitted, and the handler failed: {0}")]
    Handler(E),
}

impl<E> AdmissionError<E> {
    /// Counts and logs a refusal of the layer's own.
    pub(super) fn refuse(refusal: Refusal) -> Self {
        AdmissionError::Refused(refusal.counted())
    }

    /// Logs a refusal that the boundary has counted.
    pub(super) fn pass_on(refusal: Refusal) -> Self {
        AdmissionError::Refused(refusal.logged())
    }

    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            AdmissionError::Refused(refusal) => Some(refusal),
            AdmissionError::Handler(_) => None,
        }
    }
}
