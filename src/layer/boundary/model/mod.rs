//! A randomized model of everything that a receiver must survive, and what each guard is for.
//!
//! A *world* has two clocks (true time, and a wall clock that steps either way against it), boots, processes that crash,
//! a disk whose batches are late, lost, torn or failing, records that go bad, stores that are lost whole, configurations
//! that change between runs, honest senders with clocks of their own, and an adversary who holds keys too, signs what it
//! likes, and presents anything ever signed at any later time. The boundary is the real one; times are single-digit
//! milliseconds, so that everything that is apart by hours meets.
//!
//! After every step these hold, or the world stops with a [`Fault`]:
//!
//! - **No second dispatch** of a digest, within a store and across stores.
//! - **In memory as on disk**: whenever nothing is unreleased, after an undo too, memory is what a restart restores,
//!   charges included.
//! - **Bounds**: streams and unrestorable records are within the bound; in half of the worlds shares are so small that
//!   each is reached, slots come and go, links open and are retired, and no share is ever passed
//!   (law L10.3), but for what a torn batch left.
//! - **The floor refuses nothing that lives by a clock that is right**, as long as only admissions made by a clock that
//!   was ahead raised it above (law L10.5).
//! - **No stream is out of reach**: a window's incarnation is at most σ ahead of the greatest wall reading ever made
//!   (law L8.4).
//!
//! *Local* worlds have links that come and go, two namespaces that are registered and withdrawn, starts with and without
//! them, and classifiers that read one as the other. In them handing over takes a while, and a second dispatch is also
//! excused where the namespace promised to know it: both were of the same namespace under one registration. The promise
//! begins and ends with what is durable. One more thing holds:
//!
//! - **No second dispatch by one link**, whatever the namespace promises (law L6.2).
//!
//! Worlds *with mail* run with custody and without, of two places. Carriers name any hold instant; what is accepted is
//! offered once it is durable, and the application takes it or drops it. What is dispatched is what a durable take gave. Two
//! more things hold: **no mail is offered twice at once**, and custody has no more than its places. A floor may refuse
//! mail that lives where a run without custody removed its stream.
//!
//! # What is not to be had
//! Across the loss of a store (law L9.9), a second dispatch is excused only if both hold. Let `first` be the offset of
//! the wall clock against true time when the first store admitted it, and *behind* mean an offset of less than
//! `first − σ − (the time between that admission and the loss)`:
//!
//! - the clock was behind at every reading that the newer store made durable, or still held unreleased in memory, while
//!   its birth was settling; and
//! - the clock is behind at the second admission.
//!
//! That is the law's clock "that was ahead before a loss, stays behind by more than σ after it". And the greatest σ is
//! not lowered together with a loss: until a store has made a birth record durable, it runs with at least the greatest σ
//! of all before it.
//!
//! # What each guard is for
//! The tests take away one guard at a time and expect a fault. Guards of the boundary are in `storage::guard`; three
//! more belong to its surroundings and are taken from the world itself ([`Habit`]). Two are redundant for all of the
//! above, and their tests say that no fault is found: the tolerance in *spent* (the floor and the wait cover it; it only
//! makes a removal later), and the greatest instant of an admission in birth's mark (see its test).

mod disk;
mod tests;
mod weather;
mod world;

pub(super) use self::disk::Draw;
use crate::storage::guard::Guard;

/// Something that must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fault {
    /// A digest was dispatched again by the store that dispatched it before.
    TwiceInOneStore,
    /// A digest was dispatched again by a store born after the one that dispatched it was lost.
    TwiceAcrossLoss,
    /// Memory and disk differ where nothing is unreleased.
    MemoryIsNotDisk,
    /// More streams than the bound.
    OverBound,
    /// An introducer, or the pool, holds more than its share.
    OverShare,
    /// The floor refused what lives by a clock that is right.
    FloorTooHigh,
    /// A stream follows an incarnation that no clock has reached.
    OutOfReach,
    /// A link's volatile windows admitted a digest twice.
    TwiceOnOneLink,
    /// The same mail was offered while it was pending.
    OfferedTwice,
}

/// What surrounds the boundary and keeps it safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// A handler sees what is durable only (law L5.5).
    DispatchAfterDurable,
    /// A failed batch is undone in memory (law L9.2).
    UndoOnFailure,
    /// In a torn batch the floors and marks land first (law L9.2).
    MarksLandFirst,
}

/// What a run goes without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Guard(Guard),
    Habit(Habit),
}
