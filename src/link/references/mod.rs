//! Delegation references: what lets a link carry a delegation once and name it by its digest from then on (law L4).
//!
//! Each direction of a link has one table at each end. They live and die with the link, and nothing of them is stored.
//!
//! | end | table | entries | an entry is there |
//! | --- | --- | --- | --- |
//! | who sends frames | [`SenderTable`] | [`SENDER_BOUND`] | while it holds a lease |
//! | who receives them | [`ReceiverTable`] | [`RECEIVER_BOUND`] | at least as long as a lease, two delivery bounds more, and then until room is needed |
//!
//! **State.** The sender remembers its leases, each with its end, and the frames that lately carried a delegation
//! inline, each with the instant just before it began to write it ([`INLINE_FRAMES`] of them). The receiver holds the
//! delegations themselves, each with the instant until which it must not evict it.
//!
//! **Transitions.**
//!
//! 1. The sender writes a frame. A slot whose delegation it holds a live lease of is written as a digest, any other
//!    inline, and the frame is noted ([`SenderTable::write`]).
//! 2. The receiver reads it, and resolves its digests as of that instant ([`ReceiverTable::resolve`]). One that misses is
//!    disclaimed at once, and the frame is never handled (law L4.6).
//! 3. When a frame with an inline delegation has verified, the receiver takes the delegation in, if there is room, and
//!    grants a lease that names the digest and the frame ([`ReceiverTable::verified`]).
//! 4. The sender takes the grant ([`SenderTable::take`]): the lease lasts `lease` from just before it began to write the
//!    frame that the grant names. Near a lease's end it carries the delegation inline again, to have it renewed. A
//!    disclaimer ends a lease.
//!
//! **Why an honest reference resolves.** Let the sender begin to write an inline frame at *s*, and the receiver read it
//! at *r*; *r* is not before *s*. The lease ends at *s* + L_s, so a reference under it is written before that, and is
//! read before *s* + L_s + 2·D where its way takes less than two delivery bounds D. The receiver keeps the entry until
//! *r* + L_s + 2·D, which is no earlier. What waits in a sender's buffer is on its way already: both instants of the
//! sender are taken when a frame is put there. No clock of one end is compared with one of the other; only their rates matter.
//! Frames overtake each other and grants come late, twice or never without changing this.
//!
//! **Failures.** A grant that is lost, late, doubled, or names what was never written changes nothing: the sender stays
//! inline. A disclaimer that is lost costs frames until the lease ends; one too many, or one that lies, costs bytes. So
//! a receiver that lies wastes the bytes of its own link, and a sender that lies is refused its own frames. Each of
//! both tables is bounded, and so is what one frame costs: two look-ups, and at most two control frames
//! ([`CONTROL_FRAMES`] in flight, dropped beyond; law L4.7). A sender that is told more than two for each frame that it
//! wrote knows that its peer lies ([`ControlAhead`]).
//!
//! **Channels that are opened again.** The frames of a channel are numbered from 0 by both ends, so an old grant for a
//! channel that ended and was opened again in the same link would name a newer frame, and last too long. Such a channel
//! brings no leases any more on this link ([`SenderTable::channel_ended`]); those that others brought stay.
//!
//! **Around the tables.** [`ReceiverEnd`] is a receiver's table and what it has to say, as the channels of one link and
//! the layer share them; [`References`] is what one frame takes along from it. They read the injected clock, and no more.
//!
//! **Metrics.** `admit_one_link_table_hits_total` and `admit_one_link_table_misses_total` count the references that were
//! read; `admit_one_link_grants_total` and `admit_one_link_disclaims_total` what was said about delegations, of which
//! `admit_one_link_control_dropped_total` went unsaid; `admit_one_link_bytes_saved_total` the bytes that this node did not
//! write, since it referred.
//!
//! **Expiry.** A delegation is absent from both tables once its own end and σ passed on the wall clock (law L4.8).

mod control;
mod end;
mod receiver;
mod sender;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use control::{BadControl, Control, Controls};
pub(crate) use end::ReceiverEnd;
pub use end::References;
pub(crate) use receiver::ReceiverTable;
pub(crate) use sender::{ControlAhead, SenderTable, Told, Write};

use crate::clock::{DEFAULT_SIGMA_MS, WallMs};

/// The delivery bound D: what an honest frame's way over one link takes less than twice of, and how long a frame may take
/// from when it was read here until it is written to its next hop (laws L3.9 and L4.3).
pub const DELIVERY_BOUND: Duration = Duration::from_secs(10);

/// L_s: how long a lease lets a sender refer to a delegation, from just before it began to write it inline (law L4.3).
/// Both ends of a link must agree.
pub const REFERENCE_LEASE: Duration = Duration::from_secs(60);

/// How many delegations a sender may refer to on one link (law L4.2).
pub const SENDER_BOUND: usize = 64;

/// How many delegations a receiver holds for one link (law L4.2).
pub const RECEIVER_BOUND: usize = 128;

/// How many control frames of one link wait to be written before further ones are dropped (law L4.7).
pub const CONTROL_FRAMES: usize = 128;

/// How many frames that carried a delegation inline a sender remembers, counted by slot, oldest forgotten first: as many
/// slots as all frames have that can be in flight, so that a grant for one of these is never too late.
pub(crate) const INLINE_FRAMES: usize = 256;

/// The times that both ends keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// L_s.
    pub(crate) lease: Duration,
    /// D.
    pub(crate) delivery: Duration,
    /// σ in milliseconds, for the end of a delegation alone. Whether one is valid is for verification to judge.
    pub(crate) sigma: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { lease: REFERENCE_LEASE, delivery: DELIVERY_BOUND, sigma: DEFAULT_SIGMA_MS }
    }
}

impl Terms {
    /// Whether a delegation that ends at `expires_at` is to be absent.
    const fn is_over(&self, expires_at: WallMs, wall: WallMs) -> bool {
        wall >= expires_at.saturating_add(self.sigma)
    }
}

/// One reading of both clocks of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Now {
    /// Monotonic.
    pub(crate) at: Duration,
    pub(crate) wall: WallMs,
}

/// One frame of a link: its channel, and its number among that channel's frames, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FrameName {
    pub(crate) channel: u8,
    pub(crate) number: u64,
}

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) const FUZZ: [crate::fuzzing::Target; 1] = [control::FUZZ];
