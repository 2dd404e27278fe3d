//! Mail that was admitted from an inbox and that the application has not taken yet (law L10.6). Pure; the admission
//! boundary drives it under its lock.
//!
//! An inbox is a store-and-forward place of the application's own: others leave transactions there for a node that is
//! away, and it drains them when it comes back. What a carrier hands over is *mail*: a transaction's self-contained
//! encoding, and its *hold instant*, when the carrier took it in. A carrier deletes nothing before the application took
//! the mail, so the same mail comes again and again; custody is how the boundary tells that from a replay.
//!
//! **Life** (`live`). Mail is judged as of its hold instant `h`, at wall clock `t`: live iff `issued − σ ≤ t`,
//! `issued − σ ≤ h < issued + ttl`, `h ≤ t + σ` and `t < h + 7 days` (law L2.4). So it may live 7 days past its expiry,
//! and no longer whatever `h` says, which is why `h` needs no proof. Only class `Application` has mail, since only its
//! streams wait the 7 days before they are spent (law L10.5).
//!
//! **State** (`Custody`). *Entries*, durable, one record each: the stream, incarnation, sequence, digest and expiry of
//! mail that was admitted and not taken; at most [`CUSTODY_MAX`] in the whole store, records that cannot be restored
//! included. *Pending* ones, in memory only: mail that this process offers to its application right now.
//!
//! | event | does |
//! | --- | --- |
//! | mail that its window accepts | admitted: window and entry in one batch; pending |
//! | the same where [`CUSTODY_MAX`] are held | refused, nothing changes, the mail stays where it is |
//! | mail that is in custody, not pending, and known to its window | redelivered: pending; nothing is written |
//! | any other copy | what its window says: replay, stale or fork |
//! | the application takes it | the entry is removed; once that is durable the application sees the mail |
//! | the application drops it | not pending any more; the entry stays |
//! | the same transaction is admitted by another way | the entry is removed with it |
//! | the next admission after it is spent, σ and 7 days after its expiry | the entry is removed with it |
//!
//! A pass over an inbox that finds nothing is no event: a carrier that is away says nothing of what it holds.
//!
//! # Why nothing is dispatched twice
//! An entry is made in the batch that makes its window know the mail, and only the take of an entry shows mail to the
//! application. A take removes its entry, durably before anything is shown, and a batch that fails shows nothing and brings
//! the entry back. So it remains to see that what is shown once is never admitted again, nor was before. A crash may tear
//! a batch (law L9.2):
//!
//! - *the window landed and the entry did not*: the mail is lost, as by any crash before its handler;
//! - *the entry landed and the window did not*: mail is redelivered only where its window knows it; where it does not,
//!   it is admitted anew, with its entry. What came by a link meanwhile has removed the entry in the batch that its own
//!   dispatch waited for.
//!
//! # What a failure costs
//! A crash after a take is durable and before the application acted loses that mail, as every crash between admission and
//! handler does (law L5.5). A damaged entry keeps one place, and its mail is never shown: its window knows it. A wall clock
//! that steps a week ahead for one admission spends custody: those copies are refused as replays.

mod entries;
pub(in crate::layer) mod record;
mod refusal;
#[cfg(test)]
mod tests;

#[cfg(test)]
use self::record::CUSTODY_RECORD_LEN;
pub use self::refusal::MailRefusal;
pub(in crate::layer) use self::{
    entries::{Custody, Entry, Offer},
    record::{decode, encode, key},
};
use crate::clock::WallMs;

/// The most mail in custody of one store.
pub const CUSTODY_MAX: usize = 64;

/// When a transaction was held, and what decides whether it still lives as mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct Held {
    pub(in crate::layer) issued_at: WallMs,
    pub(in crate::layer) expires_at: WallMs,
    pub(in crate::layer) held_at: WallMs,
}

/// Whether mail lives at `wall`, with `sigma` milliseconds of tolerance, where it may be held for `hold` milliseconds
/// (law L2.4). That it was not issued further ahead than the tolerance is judged as of every transaction, beside this.
///
/// # Errors
/// [`MailRefusal`]: which of the conditions does not hold.
pub(in crate::layer) const fn live(held: Held, wall: WallMs, sigma: u64, hold: u64) -> Result<(), MailRefusal> {
    let Held { issued_at, expires_at, held_at } = held;
    if issued_at.saturating_sub(sigma) > held_at {
        return Err(MailRefusal::HeldBeforeIssue { held_at, issued_at });
    }
    if held_at >= expires_at {
        return Err(MailRefusal::HeldAfterExpiry { held_at, expires_at });
    }
    if held_at > wall.saturating_add(sigma) {
        return Err(MailRefusal::HeldInTheFuture { held_at, sigma });
    }
    if wall >= held_at.saturating_add(hold) {
        return Err(MailRefusal::HeldTooLong { held_at, hold });
    }
    Ok(())
}

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 1] = [record::FUZZ];
