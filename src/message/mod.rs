//! What is signed, and how it is encoded.
//!
//! A [`Transaction`] is content under its origin's proof; a [`Payload`] is a transaction under the proof of the hop
//! that carries it. `docs/wire.md` has the encoding field by field.

mod chunk;
mod class;
mod payload;
mod stream;
mod transaction;
mod wire;

pub use chunk::{Chunks, CutError, MESSAGE_LIMIT, cut};
pub(crate) use chunk::{check_cut, slice_range};
pub use class::{Class, Classified, Classifier, ClassifierId, ClassifyError, TagClassifier};
pub use payload::{MAX_HOP_BUDGET, Payload};
pub use stream::{NetworkId, StreamKey};
pub use transaction::{
    Content, DEFAULT_TTL_MS, GREATEST_TTL_MS, Incarnation, Kind, Liveness, MAIL_HOLD_MS, Transaction,
    TransactionDigest, TxId,
};
pub use wire::{DecodeError, FRAME_LIMIT, FrameTooLarge, MARKER};

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) const FUZZ: [crate::fuzzing::Target; 5] = {
    let [original, chunk] = chunk::FUZZ;
    [wire::FUZZ, original, chunk, class::FUZZ, stream::FUZZ]
};
