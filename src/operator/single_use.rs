//! The clock of single-use authority, shown and moved back (law L12.6), and its birth taken anew (law L9.9).
//!
//! A node whose clock was ahead for a while refuses everything once the clock is right again, since it is behind what the
//! store has read. Only its operator knows which of the two was wrong. [`clock_recover`] moves the high-water mark back, as a
//! compare-and-swap: it changes the mark that the operator looked at, or nothing. It never moves it below a floor, up to
//! which the store has forgotten what was used.

use serde::Serialize;

use crate::{
    clock::{Clock, WallMs},
    layer::single_use::record::{BIRTH_KEY, CLOCK_KEY, ClockRecord, STOP_KEY, decode_stop},
    storage::{
        Batch, CommitError, Key, RecordName, Scan, ScanError, Store, Table, Write,
        birth::{Birth, Reading, Tolerance},
        guard::Guards,
    },
};

/// What a store's single-use clock says. Instants are milliseconds since the Unix epoch; a floor of 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClockReport {
    /// The greatest reading of the wall clock that was decided at.
    pub high_water: WallMs,
    /// What the wall clock reads now, where it was asked.
    pub wall: Option<WallMs>,
    /// Whether that is behind the mark by more than the greatest tolerance that the store ran with, so that a node refuses.
    pub regressed: Option<bool>,
    /// Nonces that expire at or before it are refused.
    pub nonce_floor: WallMs,
    /// Approvals whose deadline is at or before it are refused.
    pub approval_floor: WallMs,
    /// Operations whose deadline is at or before it are refused.
    pub operation_floor: WallMs,
    /// How often single-use authority was opened on the store.
    pub epoch: u64,
    /// What was issued at or before it is refused, unless the node opted out; `None` where the store has no birth.
    pub birth_mark: Option<WallMs>,
    /// The greatest tolerance that the store ran with, in milliseconds.
    pub sigma: Option<u64>,
    /// Whether the emergency stop is on.
    pub stopped: bool,
}

/// Why the single-use clock was not shown or moved. The store is as it was, unless it says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClockError {
    /// The clock table cannot be listed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Single-use authority never ran on this store.
    #[error("the store has no single-use clock: no node has used single-use authority on it")]
    NoClock,
    /// The clock or birth record cannot be restored.
    #[error(
        "the {what} record {record} cannot be restored ({reason}): start on an empty store, which refuses what was issued \
         before it began"
    )]
    Damaged {
        /// `single-use clock` or `single-use birth`.
        what: &'static str,
        /// The record's name.
        record: RecordName,
        /// What is wrong with it.
        reason: String,
    },
    /// The mark is not the one that the operator looked at.
    #[error("the high-water mark is {found} ms, not the expected {expected} ms: look at it again")]
    Moved {
        /// What was expected.
        expected: WallMs,
        /// What it is.
        found: WallMs,
    },
    /// The mark would lie where the store has forgotten what was used.
    #[error(
        "{to} ms is below the floor of {floor} ms, up to which nothing is known any more: move it to no less than that"
    )]
    BelowFloor {
        /// Where it was to be moved.
        to: WallMs,
        /// The greatest floor.
        floor: WallMs,
    },
    /// The mark would move forward, which the clock does by itself.
    #[error("{to} ms is ahead of the high-water mark of {high_water} ms: it only moves back")]
    Ahead {
        /// Where it was to be moved.
        to: WallMs,
        /// The mark.
        high_water: WallMs,
    },
    /// The store failed; whether the mark was moved is not known.
    #[error("{0}; look at the clock again")]
    NotRecorded(#[from] CommitError),
}

/// What is read of the clock table.
struct Read {
    clock: ClockRecord,
    birth: Option<Birth>,
    stopped: bool,
}

/// Shows the single-use clock. Nothing changes.
///
/// # Errors
/// [`ClockError`].
pub async fn clock_show(store: &dyn Store, clock: &dyn Clock) -> Result<ClockReport, ClockError> {
    let read = Read::of(&store.scan(Table::Clock).await?)?;
    Ok(read.report(Some(clock.wall())))
}

/// Moves the high-water mark back to `to`, if it is `expected_high_water` now and no floor lies above `to`. For an operator
/// who knows that the clock was ahead, and has set it.
///
/// # Errors
/// [`ClockError`].
pub async fn clock_recover(
    store: &dyn Store,
    expected_high_water: WallMs,
    to: WallMs,
) -> Result<ClockReport, ClockError> {
    let mut read = Read::of(&store.scan(Table::Clock).await?)?;
    let found = read.clock.high_water;
    if found != expected_high_water {
        return Err(ClockError::Moved { expected: expected_high_water, found });
    }
    let floor = read.clock.greatest_floor();
    if to < floor {
        return Err(ClockError::BelowFloor { to, floor });
    }
    if to > found {
        return Err(ClockError::Ahead { to, high_water: found });
    }
    read.clock.high_water = to;
    let write = Write { table: Table::Clock, key: Key::from_static(CLOCK_KEY), value: Some(read.clock.encode()) };
    store.commit(Batch { writes: vec![write] }).await?;
    Ok(read.report(None))
}

/// The write that takes the birth of single-use authority anew, as a store needs after a restore from a backup (law L9.9):
/// what was issued at or before 2σ from now is refused from then on. `None` where single-use authority never ran.
///
/// # Errors
/// [`ClockError::Damaged`].
pub(super) fn renewal(clock: &Scan, reading: &Reading) -> Result<Option<Write>, ClockError> {
    let Read { clock, birth, .. } = match Read::of(clock) {
        Err(ClockError::NoClock) => return Ok(None),
        read => read?,
    };
    let Some(birth) = birth else { return Ok(None) };
    let tolerance =
        Tolerance { sigma: birth.greatest_sigma(), ttl: birth.greatest_ttl(), hold: 0, guards: Guards::default() };
    // Birth never goes back, so neither does a new one.
    let born = birth.mark().saturating_sub(birth.greatest_sigma().saturating_mul(2));
    let renewed = Birth::advance(None, reading, &tolerance, clock.high_water.max(born));
    Ok(Some(Write { table: Table::Clock, key: Key::from_static(BIRTH_KEY), value: Some(renewed.encode()) }))
}

impl Read {
    fn of(scan: &Scan) -> Result<Self, ClockError> {
        let clock = find(scan, "single-use clock", CLOCK_KEY, ClockRecord::decode)?.ok_or(ClockError::NoClock)?;
        let birth = find(scan, "single-use birth", BIRTH_KEY, Birth::decode)?;
        let stop = RecordName::of(Table::Clock, STOP_KEY);
        let stopped = scan.bad.iter().any(|bad| bad.name == stop)
            || scan.records.iter().any(|(key, value)| key == STOP_KEY && decode_stop(value));
        Ok(Self { clock, birth, stopped })
    }

    fn report(&self, wall: Option<WallMs>) -> ClockReport {
        let sigma = self.birth.as_ref().map(Birth::greatest_sigma);
        ClockReport {
            high_water: self.clock.high_water,
            wall,
            regressed: wall.map(|wall| wall.saturating_add(sigma.unwrap_or(0)) < self.clock.high_water),
            nonce_floor: self.clock.nonce_floor,
            approval_floor: self.clock.approval_floor,
            operation_floor: self.clock.operation_floor,
            epoch: self.clock.epoch,
            birth_mark: self.birth.as_ref().map(Birth::mark),
            sigma,
            stopped: self.stopped,
        }
    }
}

fn find<T>(
    scan: &Scan,
    what: &'static str,
    key: &'static [u8],
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, ClockError> {
    let record = RecordName::of(Table::Clock, key);
    if let Some(bad) = scan.bad.iter().find(|bad| bad.name == record) {
        return Err(ClockError::Damaged { what, record, reason: bad.reason.clone() });
    }
    let Some((_, value)) = scan.records.iter().find(|(found, _)| found == key) else { return Ok(None) };
    let damaged = || ClockError::Damaged { what, record, reason: "it does not decode".into() };
    decode(value).map(Some).ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        clock::ManualClock,
        identity::KeySigner,
        layer::single_use::{Mark, MarkId, MarkKind, SingleUse, SingleUseConfig},
        storage::commit::{CommitConfig, GroupCommit, fault::FaultStore},
    };

    const T0: u64 = 1_700_000_000_000;

    fn mark(seed: u8, clock: &ManualClock, life: i64) -> Mark {
        let now = (clock.wall() / 1_000) as i64;
        Mark {
            kind: MarkKind::Nonce,
            id: MarkId([seed; 32]),
            subject: KeySigner::from_secret(&[1; 32]).unwrap().key(),
            issued_at: Some(now),
            valid_until: now + life,
            expires_at: now + life,
        }
    }

    /// Runs single-use authority on the store for as long as `work` takes.
    async fn with<R>(store: &FaultStore, clock: &Arc<ManualClock>, work: impl AsyncFnOnce(SingleUse) -> R) -> R {
        let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
        let config = SingleUseConfig::new().with_greatest_lifetime(600);
        let single_use = SingleUse::open(&commit, clock.clone(), config).await.unwrap();
        let result = work(single_use).await;
        commit.shutdown().await;
        result
    }

    #[tokio::test]
    async fn l12_6_an_operator_moves_the_mark_back_by_compare_and_swap_and_never_below_a_floor() {
        let store = FaultStore::new();
        let clock = Arc::new(ManualClock::new(T0));
        assert!(matches!(clock_show(&store, &*clock).await, Err(ClockError::NoClock)));
        with(&store, &clock, async |single_use| {
            clock.advance(Duration::from_secs(60));
            assert_eq!(single_use.reserve_until(&mark(1, &clock, 10)).await, Ok(true));
            clock.advance(Duration::from_secs(603));
            // It prunes, and leaves a floor.
            assert_eq!(single_use.reserve_until(&mark(2, &clock, 10)).await, Ok(true));
        })
        .await;
        let right = clock.wall();
        let used = mark(4, &clock, 500);
        with(&store, &clock, async |single_use| {
            assert_eq!(single_use.reserve_until(&used).await, Ok(true));
            clock.step_wall_to(right + 3_600_000);
            assert_eq!(single_use.reserve_until(&mark(3, &clock, 10)).await, Ok(true));
            clock.step_wall_to(right);
            assert_eq!(single_use.reserve_until(&used).await.unwrap_err().code(), "clock_regressed");
        })
        .await;
        let report = clock_show(&store, &*clock).await.unwrap();
        let floor = T0 + 70_000;
        assert_eq!((report.high_water, report.wall, report.regressed), (right + 3_600_000, Some(right), Some(true)));
        assert_eq!((report.nonce_floor, report.approval_floor, report.epoch), (floor, 0, 2));
        let high = report.high_water;
        let before = store.records();
        let moved = clock_recover(&store, high - 1, right).await;
        assert!(matches!(moved, Err(ClockError::Moved { found, .. }) if found == high));
        let below = clock_recover(&store, high, floor - 1).await;
        assert!(matches!(below, Err(ClockError::BelowFloor { floor: least, .. }) if least == floor));
        let ahead = clock_recover(&store, high, high + 1).await;
        assert!(matches!(ahead, Err(ClockError::Ahead { .. })));
        assert_eq!(store.records(), before, "a refusal changes nothing");
        let report = clock_recover(&store, high, right).await.unwrap();
        assert_eq!(report.high_water, right);
        assert!(matches!(clock_recover(&store, high, right).await, Err(ClockError::Moved { .. })), "once");
        assert_eq!(clock_show(&store, &*clock).await.unwrap().regressed, Some(false));
        with(&store, &clock, async |single_use| {
            assert_eq!(single_use.reserve_until(&used).await, Ok(false));
            assert_eq!(single_use.reserve_until(&mark(5, &clock, 10)).await, Ok(true));
        })
        .await;
        assert!(clock_recover(&store, right, floor).await.is_ok(), "as far as the floor");
    }

    #[tokio::test]
    async fn l9_9_a_renewed_birth_refuses_what_was_issued_before_it() {
        let store = FaultStore::new();
        let clock = Arc::new(ManualClock::new(T0));
        assert!(renewal(&Scan::default(), &Reading::of(&*clock)).unwrap().is_none());
        let (lost, later) = with(&store, &clock, async |single_use| {
            clock.advance(Duration::from_secs(60));
            let lost = mark(1, &clock, 500);
            let backup = store.records();
            assert_eq!(single_use.reserve_until(&lost).await, Ok(true));
            // What the backup does not know is presented again.
            let restored = FaultStore::holding(backup);
            (lost, restored)
        })
        .await;
        let restored = later;
        let write = renewal(&restored.scan(Table::Clock).await.unwrap(), &Reading::of(&*clock)).unwrap().unwrap();
        restored.commit(Batch { writes: vec![write] }).await.unwrap();
        let report = clock_show(&restored, &*clock).await.unwrap();
        assert_eq!(report.birth_mark, Some(clock.wall() + 6_000));
        with(&restored, &clock, async |single_use| {
            assert_eq!(single_use.reserve_until(&lost).await.unwrap_err().code(), "issued_before_mark");
            clock.advance(Duration::from_secs(7));
            assert_eq!(single_use.reserve_until(&mark(2, &clock, 10)).await, Ok(true));
        })
        .await;
        // A birth ahead of the clock is not taken back.
        clock.step_wall_to(T0);
        let again = renewal(&restored.scan(Table::Clock).await.unwrap(), &Reading::of(&*clock)).unwrap().unwrap();
        let again = Birth::decode(&again.value.unwrap()).unwrap();
        assert!(again.mark() >= report.birth_mark.unwrap());
    }

    #[tokio::test]
    async fn l11_2_a_damaged_clock_is_told_and_a_damaged_stop_is_a_stop() {
        for (key, named) in [(CLOCK_KEY, "single-use clock"), (BIRTH_KEY, "single-use birth"), (STOP_KEY, "")] {
            let store = FaultStore::new();
            let clock = Arc::new(ManualClock::new(T0));
            with(&store, &clock, async |_| ()).await;
            assert!(!clock_show(&store, &*clock).await.unwrap().stopped);
            let write =
                Write { table: Table::Clock, key: Key::from_static(key), value: Some(Key::from_static(b"damaged")) };
            store.commit(Batch { writes: vec![write] }).await.unwrap();
            match clock_show(&store, &*clock).await {
                Ok(report) => assert!(named.is_empty() && report.stopped),
                Err(error) => assert!(!named.is_empty() && error.to_string().contains(named), "{error}"),
            }
        }
    }
}
