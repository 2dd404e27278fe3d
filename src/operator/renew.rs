//! A store renewed after it was restored from a backup (law L9.9).
//!
//! What a backup does not know of was admitted, and signed, after it was made. A new birth refuses all of what may have
//! been admitted: it was issued at or before the new mark. New incarnations make every stream that this node sends a new
//! numbering, above the one that the backup knows, so that no sequence is signed twice. The price is what is in flight.
//!
//! Single-use authority has a birth of its own, which is taken anew too.
//!
//! One batch: the births, the floors and the removed senders' incarnations are written, and every readable sender's record
//! goes. Then the records of the clock table and of senders that cannot be restored go, for which the new birth and a draw
//! from the clock stand. A receiver's record that cannot be restored stays, and its stream unavailable: clear it.
//!
//! Where admission is configured without the birth mark, a renewal does not protect what it receives.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    ClockError,
    records::{Content, Instants, TableRecords},
    single_use,
};
use crate::{
    clock::{Clock, DEFAULT_SIGMA_MS, WallMs},
    layer::local::{HORIZON_AHEAD_MS, NAMESPACES_KEY},
    message::DEFAULT_TTL_MS,
    storage::{
        Batch, CommitError, Key, RecordName, ScanError, Store, Table, Write,
        birth::{BIRTH_KEY, Birth, Reading},
        floor::{FLOOR_KEY, Floors},
        lease::{self, REMOVED_KEY},
        service,
    },
};

/// What [`renew`] did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Renewed {
    /// What was issued at or before this is refused from now on, in wall milliseconds.
    pub birth_mark: WallMs,
    /// How many of the streams that this node sends go on under new incarnations.
    pub senders: u64,
    /// How many records that could not be restored are gone.
    pub discarded: u64,
}

impl fmt::Display for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { birth_mark, senders, discarded } = self;
        write!(
            f,
            "the store has a new birth: what was issued up to {birth_mark} ms since 1970 is refused; {senders} sender \
             streams go on under new incarnations; {discarded} records that could not be restored are gone"
        )
    }
}

/// Why a store was not renewed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// A migration into the store has not ended.
    #[error("a migration into the store has not ended: run `admit-one store migrate` again, then renew")]
    Migrating,
    /// A table cannot be listed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The single-use clock of the store cannot be restored.
    #[error(transparent)]
    SingleUse(#[from] ClockError),
    /// The store failed: it is renewed, or as it was.
    #[error("{0}; then renew the store again")]
    Commit(#[from] CommitError),
}

/// Gives a store a new birth and its sender streams new incarnations: see the module's docs.
///
/// # Errors
/// [`RenewError`].
pub async fn renew(store: &Arc<dyn Store>, clock: &dyn Clock) -> Result<Renewed, RenewError> {
    let scan = store.scan(Table::Clock).await?;
    if service::is_unfinished(&scan) {
        return Err(RenewError::Migrating);
    }
    let instants = Instants::read(&**store).await?;
    let single_use = single_use::renewal(&scan, &Reading::of(clock))?;
    let removed = scan.records.iter().find(|(key, _)| key == REMOVED_KEY).map(|(_, value)| value.clone());
    let marks = TableRecords::of(Table::Clock, scan);
    let unreadable = |key: &[u8]| marks.bad.iter().any(|bad| bad.name == RecordName::of(Table::Clock, key));
    let wall = clock.wall();
    let mut start = wall.max(instants.admitted);
    if unreadable(NAMESPACES_KEY) {
        // What was admitted link-locally was issued at or before a horizon that cannot be read.
        start = start.saturating_add(HORIZON_AHEAD_MS);
    }
    let birth = Birth::renewed(instants.birth.as_ref(), start, DEFAULT_SIGMA_MS, DEFAULT_TTL_MS);
    let senders = TableRecords::read(&**store, Table::Sender).await?;
    let mut leases = Vec::new();
    let mut writes = vec![Write { table: Table::Clock, key: Key::from_static(BIRTH_KEY), value: Some(birth.encode()) }];
    if unreadable(FLOOR_KEY) {
        // Whatever the lost floors refuse was issued at or before the new mark.
        let mut floors = Floors::default();
        crate::message::Class::ALL.into_iter().for_each(|class| floors.remove(class, 0, start));
        writes.push(Write { table: Table::Clock, key: Key::from_static(FLOOR_KEY), value: Some(floors.encode()) });
    }
    for (key, _, content) in senders.whole {
        if let Content::Sender(sender) = content {
            leases.push(sender);
            writes.push(Write { table: Table::Sender, key, value: None });
        }
    }
    writes.push(lease::removing(removed.as_deref(), &leases, wall, birth.greatest_sigma()));
    writes.extend(single_use);
    store.commit(Batch { writes }).await?;
    let mut discarded = 0;
    let replaced = [BIRTH_KEY, FLOOR_KEY, REMOVED_KEY].map(|key| RecordName::of(Table::Clock, key));
    for bad in marks.bad.iter().chain(&senders.bad) {
        discarded += 1;
        if !replaced.contains(&bad.name) {
            store.discard(bad.name).await?;
        }
    }
    Ok(Renewed { birth_mark: birth.mark(), senders: super::verify::count(leases.len()), discarded })
}
