//! The replay window of one stream: what a receiver remembers of the sequences that it admitted (law L5).
//!
//! **State.** [`Window`]: the incarnation, the greatest sequence admitted in it (`high`), and the digests of what was
//! admitted among the 32 sequences `high - 31 ..= high`. A stream that was never heard has no state at all.
//!
//! **Transitions.** [`observe`] is a pure, total function. It returns a [`Verdict`] with the state that follows, or a
//! [`WindowRefusal`] and leaves the state as it was:
//!
//! | incarnation | sequence | slot | answer |
//! | --- | --- | --- | --- |
//! | no state | any | | `First` |
//! | greater | any | | `Advance` onto an empty window |
//! | lower | any | | `Stale` |
//! | same | above `high` | | `Advance`: `high` moves, what falls out below is forgotten |
//! | same | in the window | empty | `Late`: the slot is filled |
//! | same | in the window | same digest | `Replay` |
//! | same | in the window | another digest | `Fork` |
//! | same | below the window | | `Stale` |
//!
//! A sequence that was skipped is no evidence that anything was withheld. Whether an incarnation lies too far ahead of
//! the receiver's clock is judged before, where a clock is (law L8.4).

mod evidence;
#[cfg(test)]
mod tests;

pub use evidence::{EvidenceError, ForkEvidence};

use crate::message::{Incarnation, TransactionDigest};

/// How many sequences a window covers, its greatest included (law L5.2).
pub const WINDOW_SLOTS: u64 = 32;

/// [`WINDOW_SLOTS`] as an array's length.
const SLOTS: usize = WINDOW_SLOTS as usize;

/// What one stream remembers (law L5.2).
///
/// Invariant: the slot of `high` is filled, and where `high` is below 31 the slots of sequences below 0 are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    incarnation: Incarnation,
    high: u64,
    /// The slot of sequence `s` stands at `s mod 32`, so that moving `high` moves nothing else.
    slots: [Option<TransactionDigest>; SLOTS],
}

/// Why a transaction was accepted (law L5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The first that is remembered of its stream.
    First,
    /// Ahead of everything that its stream admitted.
    Advance,
    /// Behind the greatest, in a slot that was empty.
    Late,
    /// Mail in custody, once more: it was admitted before and never taken. No window says this (law L10.6).
    Redelivered,
}

/// Why a window refused a transaction. The window is as it was (law L5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowRefusal {
    /// The same transaction was admitted at this sequence.
    #[error("already admitted")]
    Replay,
    /// Another transaction was admitted at this sequence: two writers share the origin's key (law L8.3).
    #[error("not {refused}: {kept} was admitted at this sequence; does the origin run on two copies of its record?")]
    Fork {
        /// The digest that was admitted.
        kept: TransactionDigest,
        /// The digest that was refused.
        refused: TransactionDigest,
    },
    /// Below the window, or of an older incarnation.
    #[error("below the lowest sequence {lowest} kept in incarnation {:#x}", incarnation.0)]
    Stale {
        /// The incarnation that is kept.
        incarnation: Incarnation,
        /// The lowest sequence that its window still covers.
        lowest: u64,
    },
}

impl Window {
    /// The window after one admission.
    fn only(incarnation: Incarnation, sequence: u64, digest: TransactionDigest) -> Self {
        let mut window = Self { incarnation, high: sequence, slots: [None; SLOTS] };
        *window.slot_mut(sequence) = Some(digest);
        window
    }

    /// Builds a window from a record's fields: `filled` has bit `i` set where the slot of `high - i` is filled, and
    /// `digests` gives those slots' digests, from `high` down. `None` where that is no window that `observe` can
    /// reach.
    pub(crate) fn from_parts(
        incarnation: Incarnation,
        high: u64,
        filled: u32,
        digests: impl IntoIterator<Item = TransactionDigest>,
    ) -> Option<Self> {
        let mut window = Self { incarnation, high, slots: [None; SLOTS] };
        if filled & 1 == 0 {
            return None;
        }
        let mut digests = digests.into_iter();
        for below in (0..WINDOW_SLOTS).filter(|below| filled >> below & 1 == 1) {
            *window.slot_mut(high.checked_sub(below)?) = Some(digests.next()?);
        }
        digests.next().is_none().then_some(window)
    }

    /// The incarnation that it belongs to.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The greatest sequence admitted.
    pub const fn high(&self) -> u64 {
        self.high
    }

    /// The lowest sequence that it covers.
    pub const fn lowest(&self) -> u64 {
        self.high.saturating_sub(WINDOW_SLOTS - 1)
    }

    /// Bit `i` is set where the slot of `high - i` is filled.
    pub(crate) fn filled(&self) -> u32 {
        (0..WINDOW_SLOTS).rev().fold(0, |bits, below| {
            let filled = self.high.checked_sub(below).is_some_and(|sequence| self.slot(sequence).is_some());
            bits << 1 | u32::from(filled)
        })
    }

    /// The digests that it keeps, from `high` down.
    pub(crate) fn digests(&self) -> impl Iterator<Item = &TransactionDigest> {
        (self.lowest()..=self.high).rev().filter_map(|sequence| self.slot(sequence).as_ref())
    }

    // `sequence mod 32` is always a place in the array.
    fn slot(&self, sequence: u64) -> &Option<TransactionDigest> {
        &self.slots[(sequence % WINDOW_SLOTS) as usize]
    }

    fn slot_mut(&mut self, sequence: u64) -> &mut Option<TransactionDigest> {
        &mut self.slots[(sequence % WINDOW_SLOTS) as usize]
    }
}

/// Judges `digest` at `sequence` of `incarnation`, and gives the state that follows (laws L5.3 and L8.4).
///
/// # Errors
/// [`WindowRefusal`]; the state stays.
pub fn observe(
    state: Option<&Window>,
    incarnation: Incarnation,
    sequence: u64,
    digest: TransactionDigest,
) -> Result<(Verdict, Window), WindowRefusal> {
    let Some(window) = state else {
        return Ok((Verdict::First, Window::only(incarnation, sequence, digest)));
    };
    let stale = WindowRefusal::Stale { incarnation: window.incarnation, lowest: window.lowest() };
    if incarnation > window.incarnation {
        return Ok((Verdict::Advance, Window::only(incarnation, sequence, digest)));
    }
    if incarnation < window.incarnation || sequence < window.lowest() {
        return Err(stale);
    }
    if sequence > window.high {
        if sequence - window.high >= WINDOW_SLOTS {
            return Ok((Verdict::Advance, Window::only(incarnation, sequence, digest)));
        }
        let mut next = window.clone();
        for skipped in window.high + 1..sequence {
            *next.slot_mut(skipped) = None;
        }
        next.high = sequence;
        *next.slot_mut(sequence) = Some(digest);
        return Ok((Verdict::Advance, next));
    }
    match *window.slot(sequence) {
        Some(kept) if kept == digest => Err(WindowRefusal::Replay),
        Some(kept) => Err(WindowRefusal::Fork { kept, refused: digest }),
        None => {
            let mut next = window.clone();
            *next.slot_mut(sequence) = Some(digest);
            Ok((Verdict::Late, next))
        }
    }
}
