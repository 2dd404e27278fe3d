//! Link-local transactions: those of a namespace that delegates its replay protection, on their origin's own connection
//! (law L6). Pure; the admission boundary drives it under its lock.
//!
//! # What is link-local
//! A transaction is link-local iff all three hold, decided from the envelope and the connection (law L6.1):
//!
//! 1. its class is `Application`;
//! 2. it arrived on the authenticated connection of its own origin: the peer's key is the origin, or the delegatee of the
//!    origin's verified delegation (`is_own_connection`); of one in chunks, all of them arrived on that one connection;
//! 3. its namespace is registered, and it was issued after the registration's mark.
//!
//! It is then admitted in a volatile window of its stream on that link (`Windows`), which is never written and goes with
//! the link. Every other transaction, a relayed copy of the same one included, uses the durable window. So do those that
//! find no room: the fifth stream of a link, a link that nobody announced the end of, a link past [`LINKS_MAX`].
//!
//! # What a namespace promises
//! A namespace that registers **promises to act on each payload at most once, by a key of its own, across connections and
//! restarts** (law L6.3): while it is registered, the same transaction may be handed to it once by each of its origin's
//! links, and once more by the durable window. The promise begins with the registration and ends with the withdrawal.
//!
//! # Why a change of registrations opens no gap
//! **State** (`Registry`), one durable record: of each namespace whether it is *registered*, and since which mark; its
//! *horizon*, an instant that nothing which was admitted link-locally is issued after; and the *mark* of its last
//! withdrawal. A mark of all namespaces, listed or not. The identity of the classifier.
//!
//! | event | does |
//! | --- | --- |
//! | registration of one that is not registered | registered since a mark |
//! | start with one that is registered | nothing: the same registration goes on |
//! | withdrawal, or a start without it | a mark, no less than what it may have admitted link-locally |
//! | first link-local admission past the horizon | the horizon moves [`HORIZON_AHEAD_MS`] past what was admitted, in the batch that the admission waits for |
//! | the run's first transaction, read by another classifier than the recorded one | the mark of all namespaces, no less than any horizon |
//! | a transaction read by another classifier than the run's first | nothing, and is refused |
//! | registration where [`NAMESPACES_MAX`] are known | the oldest mark that nothing lives below joins the mark of all |
//!
//! A mark is 2σ after the greater of the wall clock and the greatest instant at which the store admitted anything. What was
//! issued at or before a withdrawal's mark is refused for good, registered again or not.
//!
//! Take a transaction that is dispatched twice, by one store. If both times its stream's durable window admitted it, that
//! window's laws were broken. So one of the two was link-local, under a registration *R* that held until it was handed
//! over, and it was issued at `i`, after *R*'s mark and at or before the horizon. The other dispatch
//!
//! - *under R too*: is the namespace's to recognise, by its promise.
//! - *before R*: was admitted when the store's clock showed at least `i − σ`, so *R*'s mark, 2σ after the greatest instant
//!   of an admission, is `i` or later, and the transaction was not link-local under *R*.
//! - *after R*: *R* ended by a mark. In the run that admitted it, the mark is no less than the greatest issued instant
//!   that was admitted link-locally; in a later one, no less than the horizon as that run found it. So `i` is at or before
//!   the mark, and the other is refused; or it was admitted before the mark and not yet handed over, and is dropped when
//!   its turn comes (`Registry::mark` is asked once more there).
//! - *read as of another namespace*: the data is signed, so another classifier read it, and its first transaction set the
//!   mark of all namespaces, no less than every horizon. Read as of another class its signature does not hold.
//!
//! A crash keeps the record's old or new value, and no transaction that waited for the new one was dispatched if it kept
//! the old. A store that is lost whole loses the registrations too; what it had admitted, link-locally or not, is refused
//! by the birth mark of the next one (law L9.9).
//!
//! # Failures
//! A batch that fails takes back the registry, and the volatile windows of what waited for it: that can come again. A
//! record that cannot be read refuses the store, since every namespace relies on it.

mod accounts;
mod namespace;
mod registry;
#[cfg(test)]
mod tests;
mod windows;

pub use self::namespace::{NAMESPACE_LEN_MAX, Namespace, NamespaceTooLong};
pub(crate) use self::registry::NAMESPACES_KEY;
pub(in crate::layer) use self::{
    registry::{Registry, TooManyNamespaces},
    windows::{Room, Volatile, Windows},
};
use crate::identity::Did;

/// The most namespaces that a store knows, withdrawn ones included whose marks something may still live below.
pub const NAMESPACES_MAX: usize = 32;

/// The most volatile windows of one link (law L6.2): origins are free to mint, the fifth is durable.
pub const LINK_WINDOWS: usize = 4;

/// The most links that may have volatile windows; on those beyond, every window is durable.
pub const LINKS_MAX: usize = 1_024;

/// How far past what was admitted a horizon is moved, in milliseconds: so rarely is it written.
pub const HORIZON_AHEAD_MS: u64 = 5 * 60 * 1_000;

/// Whether a connection of `peer` is the own one of `origin`, whose transaction is signed under a delegation to
/// `delegatee` or by its own key (law L6.1).
pub(in crate::layer) fn is_own_connection(peer: &Did, origin: &Did, delegatee: Option<&Did>) -> bool {
    peer == origin || delegatee == Some(peer)
}

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 1] = [registry::FUZZ];
