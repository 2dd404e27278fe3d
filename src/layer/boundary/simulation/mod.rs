//! A simulation of the whole receive side, alike for every run of a seed.
//!
//! The model beside this one ([`model`](super::model)) runs the boundary's pure core at single-digit times, where
//! everything meets. Here the parts are the real ones as they ship, joined as they ship, at the size of real times:
//! [`Admission`](super::Admission) and [`Leases`](crate::storage::lease::Leases) over
//! [`GroupCommit`](crate::storage::commit::GroupCommit), on engines that stall, fail, tear and crash on demand and clocks
//! that move when told to; links by [`Links`](crate::link::Links) with slots, charges, quotas, volatile windows and
//! namespaces. Left out are the proofs, which are a pure function of a transaction and would cost a hundred times all
//! else: a transaction is what was signed, and nobody signs as another.
//!
//! A *world* has two destinations with a store and a clock each; two honest origins with leases, a store and a clock of
//! their own; an attacker with six identities who signs what it likes; and a relay. Whatever was ever signed is
//! delivered at any time after, on any link, as often as the seed says. Processes crash between any two steps and in the
//! middle of a batch, flushes fail, stores close and are opened again, records go bad, stores are lost, machines boot,
//! wall clocks step both ways, links open and close, namespaces come and go, and now and then another classifier reads.
//!
//! After every step these hold, or the world stops with a [`Violation`]; see there. As to a second dispatch, what the model
//! excuses is excused here: a namespace that promised to know it (law L6.3), and, across the loss of a store, a clock
//! that is behind at the second admission by more than σ and the time that had passed when the store was lost (law L9.9).
//!
//! When a world's steps are over its clocks come right and its parts are repaired, and after a while every honest origin
//! is heard again.
//!
//! The tests take away a guard of the boundary, or a [`Habit`] of what surrounds it, and expect a violation.
//!
//! `ADMIT_ONE_SEEDS=10000 cargo test --lib simulation::tests::every` runs as many seeds as it says, and
//! `ADMIT_ONE_SEED=7 cargo test --lib simulation::tests::one -- --nocapture` one again.

mod disk;
mod dispatches;
mod receiver;
mod sender;
mod tests;
mod weather;
mod world;

use crate::storage::guard::{Guard, Guards};

/// Something that must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Violation {
    /// A store dispatched a digest that it had dispatched before.
    TwiceInOneStore,
    /// A store dispatched a digest that one before it had dispatched, which was lost.
    TwiceAcrossLoss,
    /// One link's volatile windows admitted a digest twice.
    TwiceOnOneLink,
    /// A dispatch that a crash would forget: neither the durable record nor a durable floor or horizon knows it.
    NotDurable,
    /// A refusal changed streams, charges, quotas, windows, slots or floors, an admission changed another stream, or a
    /// quota had no room where plain arithmetic has some.
    RefusalCosts,
    /// A batch wrote a stream that nothing in it admitted, or missed one.
    WroteAnother,
    /// An honest origin exposed a signature over a sequence that it had exposed before.
    SequenceReused,
    /// More streams than the bound, bad records included, more links than slots, or more windows than a link may have.
    OverBound,
    /// The pool, the inbox or this node holds more than its share.
    OverShare,
    /// A stream brought in more than its quota.
    OverQuota,
    /// An honest origin is not heard, though everything was repaired.
    NotHeard,
}

/// What surrounds the boundary and keeps it safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// A handler sees what is durable only (law L5.5).
    DispatchAfterDurable,
    /// What a receiver's disk said that it holds, it holds after a crash.
    HonestDisk,
    /// The same of a sender's disk.
    HonestSendersDisk,
    /// A refusal leaves its stream as it was.
    RefusalsTouchNothing,
    /// The boundary was told of the quotas that the world expects.
    Quotas,
    /// The boundary was told of the shares that the world expects.
    Shares,
}

/// What a world goes without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Guard(Guard),
    Habit(Habit),
}

impl Without {
    fn keeps(self, habit: Habit) -> bool {
        self != Self::Habit(habit)
    }

    fn guards(self) -> Guards {
        match self {
            Self::Guard(guard) => Guards { without: Some(guard) },
            Self::Nothing | Self::Habit(_) => Guards::default(),
        }
    }
}
