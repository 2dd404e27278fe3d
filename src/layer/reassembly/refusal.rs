use crate::{clock::WallMs, message::DecodeError};

/// Why a chunk was refused, or the original that it completed (law L2.8). Nothing of it was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkRefusal {
    /// There is no such place among its original's chunks.
    #[error("chunk {index} of {count}: the sender cuts wrongly")]
    NoSuchChunk {
        /// Its place.
        index: u32,
        /// How many there are.
        count: u32,
    },
    /// The original that it claims is longer than any.
    #[error("its original is of {length} bytes, over the message limit of {limit}: send less at once")]
    MessageTooLarge {
        /// The claimed length in bytes.
        length: u64,
        /// The message limit in bytes.
        limit: usize,
    },
    /// Its slice is not as long as its place, its count and its original's length make it.
    #[error("chunk {index} of {count} of an original of {length} bytes has {slice} bytes: the sender cuts wrongly")]
    WrongSize {
        /// Its place.
        index: u32,
        /// How many there are.
        count: u32,
        /// The original's length in bytes.
        length: u64,
        /// Its own slice's length in bytes.
        slice: usize,
    },
    /// Its life was over when it was to be stored.
    #[error("expired at {expires_at}: sign it anew, or set the clock that is wrong")]
    Expired {
        /// The first instant at which it no longer lived.
        expires_at: WallMs,
    },
    /// Another chunk of the same original says otherwise. The message has failed.
    #[error("the origin signed chunks of one message that differ in their {field}: the message has failed")]
    Conflict {
        /// In what.
        field: &'static str,
    },
    /// Its link has brought the same chunk already.
    #[error("chunk {index} came by this link already: a relay repeats frames, or the sender does")]
    Repeated {
        /// Its place.
        index: u32,
    },
    /// Its message was gathered before.
    #[error("the message is complete: this chunk came twice, by this way or another")]
    Finished,
    /// Its message has failed.
    #[error("the message has failed ({0}): sign and send it anew")]
    Failed(Failure),
    /// Its link holds as many bytes as one may. The message has failed for this link.
    #[error("this link holds {held} bytes of messages, and the bound is {bound}: send fewer large ones at once")]
    LinkBytes {
        /// How many it holds.
        held: usize,
        /// The bound.
        bound: usize,
    },
    /// All links together hold as many bytes as they may. As [`ChunkRefusal::LinkBytes`].
    #[error("all links hold {held} bytes of messages, and the bound is {bound}: send it later, or raise the bound")]
    AllBytes {
        /// How many they hold.
        held: usize,
        /// The bound.
        bound: usize,
    },
    /// Its link brings as many messages as one may. The message has failed for this link.
    #[error("this link has begun {bound} messages, as many as it may: finish some first")]
    LinkMessages {
        /// The bound.
        bound: usize,
    },
    /// As many messages as may be are begun. The message has failed for this link.
    #[error("{bound} messages are begun, as many as may be: send it later, or raise the bound")]
    AllMessages {
        /// The bound.
        bound: usize,
    },
    /// Its link has begun as many messages that have not expired as one may.
    #[error("{bound} messages of this link have not expired, as many as may be: send fewer, or with a shorter ttl")]
    LinkIds {
        /// The bound.
        bound: usize,
    },
    /// As many messages as are remembered have not expired, and no link takes more of these places than this one would.
    #[error("{bound} messages have not expired, as many as are remembered: send it later, or raise the bound")]
    AllIds {
        /// The bound.
        bound: usize,
    },
    /// The chunks join to no original. The message has failed.
    #[error("the chunks join to no transaction: {0}; the sender cuts wrongly, and the message has failed")]
    Original(DecodeError),
    /// The original is not what its chunks say of it. The message has failed.
    #[error("the original's {field} is not what its chunks say: the sender cuts wrongly, and the message has failed")]
    Mismatch {
        /// In what.
        field: &'static str,
    },
    /// It came to the step that admits, and no step before that joins chunks.
    #[error("this node does not join chunks: put the reassembly step before the one that admits")]
    NotJoined,
    /// The runtime gave up joining the message, which has failed.
    #[error("joining the message was given up: send it anew")]
    Interrupted,
}

impl ChunkRefusal {
    /// The stable name that metrics are labelled with.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoSuchChunk { .. } => "no_such_chunk",
            Self::MessageTooLarge { .. } => "message_too_large",
            Self::WrongSize { .. } => "chunk_size",
            Self::Expired { .. } => "expired",
            Self::Conflict { .. } => "chunk_conflict",
            Self::Repeated { .. } => "chunk_repeated",
            Self::Finished => "chunk_of_finished",
            Self::Failed(_) => "chunk_of_failed",
            Self::LinkBytes { .. } => "reassembly_link_bytes",
            Self::AllBytes { .. } => "reassembly_bytes",
            Self::LinkMessages { .. } => "reassembly_link_messages",
            Self::AllMessages { .. } => "reassembly_messages",
            Self::LinkIds { .. } => "reassembly_link_ids",
            Self::AllIds { .. } => "reassembly_ids",
            Self::Original(DecodeError::Nested) => "nested_chunk",
            Self::Original(DecodeError::Reference) => "original_reference",
            Self::Original(_) => "original_malformed",
            Self::Mismatch { .. } => "original_mismatch",
            Self::NotJoined => "chunk_not_joined",
            Self::Interrupted => "joining_interrupted",
        }
    }
}

/// Why a message in chunks failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// Its chunks contradict each other.
    #[error("its chunks contradict each other")]
    Conflict,
    /// A bound was reached, or a link that held less needed the room.
    #[error("there was no room for it")]
    Room,
    /// It was not complete within the greatest age.
    #[error("it took too long")]
    Age,
    /// It was not complete when it expired.
    #[error("it expired")]
    Expired,
    /// It was complete, and no original of its chunks.
    #[error("its chunks join to no valid original")]
    Original,
}

impl Failure {
    /// The name that metrics are labelled with.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Room => "room",
            Self::Age => "age",
            Self::Expired => "expired",
            Self::Original => "original",
        }
    }
}
