//! The third step: chunks become the transaction that they were cut from, and only that goes on (law L2.8).
//!
//! [`Reassemble`] is a `tower::Service<Verified>` around another. A whole transaction passes untouched. A chunk is
//! stored and answered [`Outcome::Gathering`](crate::layer::Outcome), its frame's credit given back at once (law L3.4).
//! The chunk that completes its original is answered as the original is, and its credit goes with it.
//!
//! **State** (`core::Gathered`, pure), by the original's *name*, its origin and the digest that its chunks claim:
//!
//! - *gathering*: what all its chunks must agree in, the slices so far, and which link brought which;
//! - *closed*, a tombstone until the original expires: finished; failed; or failed for one link only. Where all ids are
//!   taken, it may have to go before.
//!
//! **Transition**: one verified chunk and the clocks' reading in. First what expired or is too old goes. Then, in order:
//! the chunk's numbers contradict each other, or it has expired (refused, nothing else changes); its original is closed
//! (refused); it conflicts with an earlier chunk in any field or in the bytes of its place (refused, and the message
//! fails: only the origin's own key can do that to it); its link has brought it already (refused, nothing else changes);
//! a bound is reached (refused, and the message fails for its link). Otherwise it is stored, and if it was the last one
//! missing, the message is finished, for all links.
//!
//! **Links and relays.** A message may come by several links at once, whole or in turns: a chunk is stored once, and each
//! link that brings it is noted, and accounted for it as if it were alone. Where a message fails for one link, what only
//! that one brought goes, and what others bring goes on. So nothing that one link does takes a chunk away that another
//! has brought. A link here is all connections of one peer, so that a new one gains nothing, and a relay may carry what
//! it had queued over its next.
//!
//! **Bounds** ([`ReassemblyConfig`]): bytes, messages and ids, per link and in all, and age. Bytes are what is held:
//! slices, heads, a stated sum for each chunk and message, and a finished original until its handler is done with it. At
//! a bound of its own link a chunk is refused. Where the bytes in all are reached, the link that holds most loses its
//! part of a message, if that link holds more than the newcomer would; else the newcomer is refused. So a link that holds
//! no more than its even share is never the one that loses, as long as handlers are done with what others finished. The
//! messages in all are enough for every link (law L10.3) at its own bound. Where the ids in all are reached, the link that
//! takes most of them forgets its tombstone that expires first, if it takes more than the newcomer would; else the newcomer
//! is refused. What is forgotten may be gathered again, as after a restart, and the window knows whether it was admitted.
//!
//! **Time.** Nothing is held past its expiry on the wall clock, read inside, or past the greatest age on the monotonic
//! one, whichever comes first: each call lets go what is due, and while anything is held a task does. A chunk of a link
//! that went away stays until then, accounted to its peer: a relay carries what it had queued over its next connection.
//!
//! **Joining** 60 MB, hashing and verifying it takes 0.1 to 0.3 s of one core. It runs on the runtime's threads for
//! blocking work, one message at a time in the process, and the service whose call completed it is not ready until the
//! original has reached the next step: so it keeps its place in its channel's order (law L5.6), and no other channel
//! waits for it. It goes on, accounted and alone, though its caller goes away. While it is joined a message stands in memory twice, so what all the links together can make this step
//! hold is at most [`ReassemblyConfig::bytes`], and [`MESSAGE_LIMIT`](crate::message::MESSAGE_LIMIT) once, and the
//! tombstones (about 500 bytes each).
//!
//! **The original** must decode whole, self-contained and unnested; have the fields, origin, class and head of its chunks
//! and the digest that they claim; and stand under its origin's signature and a delegation valid at issued-at and now.
//! One that does not is refused and its message has failed. It is then admitted as any other: the sequence that its
//! chunks carry is used once, by it, and a copy that is gathered again after a restart is a Replay. It may be link-local (law
//! L6.1) only if all its chunks came on one connection, its origin's own; one that came in part by another way uses the
//! durable window.
//!
//! Metrics: gauges `admit_one_reassembly_messages` and `admit_one_reassembly_bytes`, and counter
//! `admit_one_reassembly_failures_total` by `reason` (see [`Failure::label`]); refusals as everywhere in the layer.

mod account;
mod core;
mod layer;
mod message;
mod refusal;
mod service;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    layer::ReassemblyLayer,
    refusal::{ChunkRefusal, Failure},
    service::{Reassemble, ReassembleFuture},
};

/// Bytes accounted for each chunk held, beside its slice: its place in its message, and the allocator's own.
pub const CHUNK_OVERHEAD: usize = 96;

/// Bytes accounted for each message that a link brings, beside its head and its chunks.
pub const MESSAGE_OVERHEAD: usize = 2_048;

/// How much of messages in chunks a node holds. A *link* here is all connections of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// The most bytes held for one link; default 128 MiB, two messages of 60 MB: one with its handler, and one gathering.
    pub link_bytes: usize,
    /// The most bytes held for all links; default 256 MiB. Joining takes a message's length more.
    pub bytes: usize,
    /// The most messages that one link may bring at a time; default 64.
    pub link_messages: usize,
    /// The most that all links may, one that two bring counted twice; default 20,992, all links that have a slot (law
    /// L10.3) at their own bound.
    pub messages: usize,
    /// The most messages of one link that are remembered, tombstones included; default 8,192.
    pub link_ids: usize,
    /// The most messages that are remembered in all, tombstones included; default 65,536.
    pub ids: usize,
    /// How old a message may become from its first chunk on; default 5 minutes.
    pub age: Duration,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            link_bytes: 128 << 20,
            bytes: 256 << 20,
            link_messages: 64,
            messages: 64 * 328,
            link_ids: 8_192,
            ids: 65_536,
            age: Duration::from_secs(5 * 60),
        }
    }
}
