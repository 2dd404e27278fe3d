//! Mail: what an application with a store-and-forward inbox of its own calls (law L10.6).
//!
//! ```text
//! carrier → Mail → Inbox::receive → Offered → take → Taken → the application
//! ```
//!
//! The crate keeps no inbox and speaks no inbox's protocol. An application has *carriers*, nodes or stores that hold
//! transactions for it while it is away, and drains them. Each thing that a carrier hands over is [`Mail`], and
//! [`Inbox::receive`] verifies and admits it as all else is admitted, into the same windows, so that a copy that came by
//! a link is a replay here and the other way round. What was admitted is in *custody*, durably, until it is taken: a
//! carrier that keeps its mail until then loses nothing to a restart, since the mail is redelivered.
//!
//! - [`Offered`] says what the mail is, and shows nothing of it. Dropping it leaves the mail in custody.
//! - [`Offered::take`] removes it from custody, and gives [`Taken`], which shows it, once that is durable. A crash in
//!   between loses the mail, and never shows it twice.
//! - A carrier may delete what was taken, and what was refused for good. A refusal that passes is
//!   [`RelayCustodyFull`](crate::layer::custody::MailRefusal::RelayCustodyFull), as are those of capacity, quota and of a
//!   store that failed: the mail stays where it is.
//!
//! Mail has no hop proof, since it comes by no connection: what counts is the origin's. Its hold instant is the carrier's
//! word, and no instant that a carrier may name lengthens the mail's life (see [`custody`](crate::layer::custody)). New
//! streams are charged to the inbox (law L10.2). Custody is off unless
//! [`AdmissionConfig::custody`](crate::layer::boundary::AdmissionConfig::custody) enables it.
//!
//! At most [`CUSTODY_MAX`](crate::layer::custody::CUSTODY_MAX) are offered at once. The order of mail is the order of the
//! calls; streams' windows take it in any order that stays within them.

mod offered;
mod receive;

pub use offered::{Offered, Taken};
pub use receive::{Inbox, Mail};
