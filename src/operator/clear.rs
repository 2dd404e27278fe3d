//! One stream cleared, with its node stopped (law L11.5).
//!
//! | record | what takes its place | what is lost |
//! | --- | --- | --- |
//! | receiver, readable or not | a mark of its name: nothing issued at or before it is admitted on the stream | its window; until its senders' clocks have passed the mark, their messages |
//! | sender, readable | its incarnations are remembered as removed | its numbering: what it has in flight may be refused as stale |
//! | sender, not readable | nothing, since nothing can be read of it | the same; and its new incarnation is above the old one only if the clock is |
//! | custody | nothing | one mail, which is not shown again |
//! | clock, nonce, approval, operation | refused | |
//!
//! A mark lies 2σ after the greater of the wall clock and the greatest instant at which the store admitted anything, as its
//! readable records tell: one that cannot be read may hide a greater one, from a time when the clock was ahead.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    by_name,
    records::{Content, Instants, TableRecords},
};
use crate::{
    clock::{Clock, DEFAULT_SIGMA_MS, WallMs},
    layer::boundary::cleared::{CLEARED_KEY, Cleared as Marks},
    storage::{
        Batch, CommitError, Key, RecordName, ScanError, Store, Table, Write,
        birth::Birth,
        lease::{self, REMOVED_KEY},
        service,
    },
};

/// What goes with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Lost {
    /// A receiver stream's window.
    Window,
    /// A sender stream's numbering.
    Numbering,
    /// A sender stream's numbering, of which nothing could be read.
    UnreadableNumbering,
    /// A mail in custody.
    Mail,
}

/// What clearing a record costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClearingCost {
    /// The record.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// Whether it can be read: one that can is in use.
    pub readable: bool,
    /// What goes with it.
    pub lost: Lost,
}

impl fmt::Display for ClearingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.readable {
            writeln!(f, "{} can be read, and its stream is in use: clearing mends nothing.", self.record)?;
        }
        f.write_str(match self.lost {
            Lost::Window => {
                "The stream's window is lost. What was issued up to a few seconds from now is refused on it for good, \
                 also what was never admitted; what its origin signs later is admitted as on a new stream."
            }
            Lost::Numbering => {
                "The stream's numbering is lost. It goes on under a new incarnation; what of it is still on its way may \
                 be refused as stale."
            }
            Lost::UnreadableNumbering => {
                "The stream's numbering is lost, and its incarnation cannot be read. It goes on under a new one, drawn \
                 from the clock: if the clock is behind where it was, receivers refuse the stream until it has caught up. \
                 What of it is still on its way may be refused as stale."
            }
            Lost::Mail => "The mail is lost: it is not shown to the application again.",
        })
    }
}

/// What [`clear`] did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// The record, which is gone.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// The mark that a receiver stream keeps, in wall milliseconds.
    pub mark: Option<WallMs>,
}

/// Why a record was not cleared.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClearError {
    /// There is no such record.
    #[error("there is no record {record}: look for its name with `admit-one store inspect`")]
    NoRecord {
        /// The name.
        record: RecordName,
    },
    /// The record protects the whole store, or a single use that would be open again.
    #[error(
        "{record} protects more than one stream, and clearing it would admit again what it refuses: \
         run `admit-one store renew`, which gives the store a new birth"
    )]
    RenewInstead {
        /// The name.
        record: RecordName,
    },
    /// The record that the cleared stream's mark or incarnations go to cannot be restored.
    #[error(
        "{record}, which has to remember what was cleared, cannot be restored: run `admit-one store renew`, which gives \
         the store a new birth"
    )]
    CannotRemember {
        /// That record.
        record: RecordName,
    },
    /// A migration into the store has not ended.
    #[error("a migration into the store has not ended: run `admit-one store migrate` again, then clear")]
    Migrating,
    /// A table cannot be listed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The store failed. The mark may be there, and the record gone or not.
    #[error("{0}; then clear the record again")]
    Commit(#[from] CommitError),
}

/// What of a store a clear needs.
struct Found {
    cost: ClearingCost,
    sender: Option<lease::SenderRecord>,
    instants: Instants,
    clock: crate::storage::Scan,
}

async fn find(store: &dyn Store, record: RecordName) -> Result<Found, ClearError> {
    let clock = store.scan(Table::Clock).await?;
    if service::is_unfinished(&clock) {
        return Err(ClearError::Migrating);
    }
    let TableRecords { whole, bad } = TableRecords::read(store, record.table).await?;
    let content = whole.into_iter().find(|(key, _, _)| RecordName::of(record.table, key) == record);
    let readable = content.is_some();
    if !readable && !bad.iter().any(|bad| bad.name == record) {
        return Err(ClearError::NoRecord { record });
    }
    let sender = content.and_then(|(_, _, content)| match content {
        Content::Sender(sender) => Some(sender),
        _ => None,
    });
    let lost = match record.table {
        Table::Receiver => Lost::Window,
        Table::Sender if readable => Lost::Numbering,
        Table::Sender => Lost::UnreadableNumbering,
        Table::Custody => Lost::Mail,
        Table::Clock | Table::Nonce | Table::Approval | Table::Operation => {
            return Err(ClearError::RenewInstead { record });
        }
    };
    let cost = ClearingCost { record, readable, lost };
    Ok(Found { cost, sender, instants: Instants::read(store).await?, clock })
}

/// Says what [`clear`] would cost. Nothing is changed.
///
/// # Errors
/// [`ClearError`], where it would refuse.
pub async fn cost_of_clearing(store: &dyn Store, record: RecordName) -> Result<ClearingCost, ClearError> {
    find(store, record).await.map(|found| found.cost)
}

/// Removes one stream's record, or one mail's, and leaves in its place what keeps that safe: see the table above.
/// Nothing else changes.
///
/// # Errors
/// [`ClearError`]; but for [`ClearError::Commit`], nothing was changed.
pub async fn clear(store: &Arc<dyn Store>, record: RecordName, clock: &dyn Clock) -> Result<Cleared, ClearError> {
    let Found { cost, sender, instants, clock: marks } = find(&**store, record).await?;
    let wall = clock.wall();
    let sigma = instants.birth.as_ref().map_or(DEFAULT_SIGMA_MS, Birth::greatest_sigma);
    let held = |key: &'static [u8]| {
        let name = RecordName::of(Table::Clock, key);
        if marks.bad.iter().any(|bad| bad.name == name) {
            return Err(ClearError::CannotRemember { record: name });
        }
        Ok((name, marks.records.iter().find(|(found, _)| found == key).map(|(_, value)| value)))
    };
    let mut mark = None;
    let write = match cost.lost {
        Lost::Window => {
            let at = wall.max(instants.admitted).saturating_add(sigma.saturating_mul(2));
            mark = Some(at);
            let (name, current) = held(CLEARED_KEY)?;
            let mut cleared = match current.map(|value| Marks::decode(value)) {
                None => Marks::default(),
                Some(Some(cleared)) => cleared,
                Some(None) => return Err(ClearError::CannotRemember { record: name }),
            };
            cleared.note(&record, at);
            let value = Some(cleared.encode());
            Some(Write { table: Table::Clock, key: Key::from_static(CLEARED_KEY), value })
        }
        Lost::Numbering => {
            let (name, current) = held(REMOVED_KEY)?;
            if current.is_some_and(|value| lease::read_removed(value).is_err()) {
                return Err(ClearError::CannotRemember { record: name });
            }
            Some(lease::removing(current.map(|value| &**value), sender.as_slice(), wall, sigma))
        }
        Lost::UnreadableNumbering | Lost::Mail => None,
    };
    // Durable before the record that it stands for goes.
    if let Some(write) = write {
        store.commit(Batch { writes: vec![write] }).await?;
    }
    store.discard(record).await?;
    Ok(Cleared { record, mark })
}
