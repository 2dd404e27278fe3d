//! Who a receiver's new streams are charged to, and how many each may have (laws L10.2 to L10.4).
//!
//! An origin is a key, and keys are free, so a bound per origin bounds nothing. What is scarce is a connection: each has
//! one of R *slots*, and a new stream is charged to its *introducer*, the slot of the connection that delivered its first
//! transaction, the inbox, or this node itself. It stays charged to it when the connection leaves, and across restarts,
//! until the stream is spent and removed.
//!
//! **State.** `Charges`: how many streams each introducer holds, the sum of what slots hold past their floors (the *pool*)
//! and how many slots do. It is counted by the table of streams with every change of it, restored and undone with it, so
//! that it is a function of the table at all times. `Slots`: which link has which slot. It is volatile: a restart finds
//! every slot free, and every charge as it was.
//!
//! **Transitions.** A link takes the free slot that holds the fewest streams with its first lane, and gives it back when
//! it is retired. Links that nobody announced (a transport of the application's own) share one slot, taken when the first
//! of them introduces a stream and kept as long as the process runs. A new stream asks whether its introducer may grow:
//!
//! | introducer | may grow while it holds |
//! | --- | --- |
//! | a slot | fewer than its floor; past it, while the pool's sum is below its bound and the slot's own excess is below ⌈pool / n⌉, n counting the slots past their floors, itself included |
//! | the inbox, this node | fewer than its share |
//!
//! Slots that vanish when R is lowered keep their streams, and what these are past their floor keeps counting in the pool
//! and in n.
//!
//! **Failures.** [`Bound`] says which bound refused a new stream, and [`NoSlot`](crate::link::NoSlot) a link. Neither
//! changes anything. No other introducer is ever refused for it: only floors are promised, and a floor depends on nothing
//! but its own slot's charges and the bound of all streams (which the records in the unrestorable set narrow, law L11.2).
//!
//! **What is not promised.** A connection inherits what its slot still holds (the *rotation residual*). Since it takes the
//! cleanest slot, a party reaches it only by charging every free slot first; then the newcomer has its fair claim alone
//! until those streams are spent. And a party that keeps other connections can keep them from being spent, by sending on
//! them there. A connection that keeps its slot is never affected. A fair claim counts a slot until what takes it past its
//! floor is removed, which the next admissions do with what is spent, a few at a time.
//!
//! **Metrics** are counted by [`Admission`](super::boundary::Admission), which says them.

mod charges;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use self::{charges::Charges, slots::Slots};

/// How the places for new streams are shared (law L10.3). Any numbers are sound; where they come to more than the bound of
/// all streams less the unrestorable records, that bound refuses first and the floors are not promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// How many connections may have lanes at once: R. By default 328 = 2·(160 + 3 + 1), for a Chord ring of 160 fingers
    /// and 3 successors.
    pub slots: u16,
    /// How many streams each slot may hold whatever the others do.
    pub floor: u32,
    /// How many streams slots may hold past their floors, in all.
    pub pool: u32,
    /// How many streams the inbox may hold.
    pub inbox: u32,
    /// How many streams this node may introduce itself.
    pub own: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { slots: 2 * (160 + 3 + 1), floor: 32, pool: 3_328, inbox: 768, own: 1_024 }
    }
}

impl Shares {
    /// The most streams that introducers hold together.
    pub const fn total(&self) -> u64 {
        self.slots as u64 * self.floor as u64 + self.pool as u64 + self.inbox as u64 + self.own as u64
    }
}

/// Who a stream is charged to (law L10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Introducer {
    /// A slot.
    Slot(u16),
    /// The inbox.
    Inbox,
    /// This node itself, by signaling out of band.
    Own,
}

impl fmt::Display for Introducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Introducer::Slot(slot) => write!(f, "slot {slot}"),
            Introducer::Inbox => f.write_str("the inbox"),
            Introducer::Own => f.write_str("this node"),
        }
    }
}

/// The bound that a new stream would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The slot's floor and its fair claim on the pool (law L10.3).
    Claim {
        /// The floor.
        floor: u32,
        /// The claim, as many slots being past their floors as were.
        claim: u32,
    },
    /// The slot's floor, and the pool is used up (law L10.3).
    Pool {
        /// The floor.
        floor: u32,
        /// The pool.
        pool: u32,
    },
    /// The inbox's or this node's share (law L10.3).
    Share {
        /// The share.
        share: u32,
    },
    /// The bound of all streams, unrestorable records included (laws L10.1 and L11.2).
    Store {
        /// The bound.
        streams: usize,
    },
}

impl Bound {
    /// The name that metrics are labelled with.
    pub const fn label(&self) -> &'static str {
        match self {
            Bound::Claim { .. } => "claim",
            Bound::Pool { .. } => "pool",
            Bound::Share { .. } => "share",
            Bound::Store { .. } => "store",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Claim { floor, claim } => write!(f, "its floor of {floor} and its fair claim of {claim} more"),
            Bound::Pool { floor, pool } => write!(f, "its floor of {floor}, the pool of {pool} being used up"),
            Bound::Share { share } => write!(f, "its share of {share}"),
            Bound::Store { streams } => write!(f, "the bound of {streams} streams in all"),
        }
    }
}
