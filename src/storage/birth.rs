//! When a store began, as an instant that nothing issued before passes (law L9.9). Pure: [`Birth::advance`] takes the
//! clocks' readings and gives the record that should be durable.
//!
//! A store that was lost whole starts empty, so what its predecessor admitted could be presented again. Everything
//! issued at or before the **mark**, birth + 2σ, is refused: the predecessor admitted nothing issued more than σ ahead
//! of its clock, and the second σ is the step back that the clock may have taken since.
//!
//! **States.** *Settling*: from birth, until one boot of the machine has seen the store live for the greatest ttl + 3σ.
//! *Settled under a ttl*: whatever lived at birth and had at most that ttl has expired. Where custody is enabled, the ttl
//! here and below is greater by the 7 days that mail may be held, so that enabling it raises the ttl.
//!
//! | event | in | does |
//! | --- | --- | --- |
//! | no record | | birth is now; settling |
//! | a reading of the same boot | settling | birth is raised to wall − age, against a clock that was behind at birth |
//! | the same, at age ≥ greatest ttl + 3σ | settling | settled |
//! | a reading of another boot, where ages do not compare | settling | birth is taken anew: now |
//! | a greatest ttl over the one settled under | settled | birth is taken anew; settling |
//!
//! "Now" is a mark's start: the greater of the wall clock and the greatest instant at which the store admitted
//! anything. Birth never goes back. σ in a mark is the greatest that the store ever ran with; both greatest values are
//! kept in the record. Where a platform tells no boot, each process counts as one.
//!
//! Not to be had: safety from a clock that was ahead before the loss and is behind by more than σ from birth until the
//! store settles and at the second presentation, or from a σ lowered together with the loss.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    guard::{Guard, Guards},
    seal::{SEAL_LEN, seal, unseal},
};
use crate::clock::{BootId, Clock, WallMs};

/// The key of the birth record in the clock table.
pub(crate) const BIRTH_KEY: &[u8] = b"birth";

const KIND: &str = "admit-one birth record 1";

/// Length of a birth record in bytes: born 8, greatest σ 8, greatest ttl 8, settled flag 1 and ttl 8, boot flag 1,
/// boot 16 and nanoseconds 8, checksum.
pub(crate) const BIRTH_LEN: usize = 3 * 8 + 9 + 25 + SEAL_LEN;

/// All clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Wall milliseconds.
    pub(crate) wall: WallMs,
    /// Time since a fixed instant of the boot.
    pub(crate) monotonic: Duration,
    /// The boot, where the platform tells it.
    pub(crate) boot: Option<BootId>,
}

impl Reading {
    /// Reads `clock`.
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), monotonic: clock.monotonic(), boot: clock.boot() }
    }
}

/// What a store runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// σ, in milliseconds.
    pub(crate) sigma: u64,
    /// The greatest time to live accepted, in milliseconds.
    pub(crate) ttl: u64,
    /// For how long mail may be held, in milliseconds; 0 where custody is not enabled (law L10.6).
    pub(crate) hold: u64,
    /// Which guards are there.
    pub(crate) guards: Guards,
}

impl Tolerance {
    /// The longest that anything may live from its issue, in milliseconds: as mail it may be held first.
    pub(crate) fn life(&self) -> u64 {
        let hold = if self.guards.keep(Guard::MailBirth) { self.hold } else { 0 };
        self.ttl.saturating_add(hold)
    }
}

/// The birth record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Birth {
    born: WallMs,
    sigma: u64,
    ttl: u64,
    settled_under: Option<u64>,
    age: Option<AgeBase>,
}

/// Where an age is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AgeBase {
    /// `None` is this process, and is not written.
    boot: Option<BootId>,
    since: Duration,
}

impl Birth {
    /// The record that follows `current` at `reading`. `admitted` is the greatest instant at which the store admitted
    /// anything, 0 where it admitted nothing.
    pub(crate) fn advance(
        current: Option<&Birth>,
        reading: &Reading,
        tolerance: &Tolerance,
        admitted: WallMs,
    ) -> Birth {
        let guards = tolerance.guards;
        let start = if guards.keep(Guard::GreatestAdmitted) { reading.wall.max(admitted) } else { reading.wall };
        let base = AgeBase { boot: reading.boot, since: reading.monotonic };
        let Some(current) = current else {
            return Birth {
                born: start,
                sigma: tolerance.sigma,
                ttl: tolerance.ttl,
                settled_under: None,
                age: Some(base),
            };
        };
        let mut next = current.clone();
        next.sigma = if guards.keep(Guard::GreatestSigma) { next.sigma.max(tolerance.sigma) } else { tolerance.sigma };
        next.ttl = next.ttl.max(tolerance.ttl);
        let life = tolerance.life();
        if next.settled_under.is_some_and(|under| life <= under || !guards.keep(Guard::TtlRaise)) {
            return next;
        }
        // Ages compare within one boot only, and where the monotonic clock did not go back.
        let age = next.age.filter(|_| next.settled_under.is_none()).and_then(|base| {
            (base.boot == reading.boot || !guards.keep(Guard::NewBoot))
                .then(|| reading.monotonic.checked_sub(base.since))
                .flatten()
        });
        match age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)) {
            None => {
                next.born = next.born.max(start);
                next.settled_under = None;
                next.age = Some(base);
            }
            Some(age) if age >= life.saturating_add(next.sigma.saturating_mul(3)) => {
                next.settled_under = Some(life);
                next.age = None;
            }
            Some(age) => {
                if guards.keep(Guard::BirthRaise) {
                    next.born = next.born.max(reading.wall.saturating_sub(age));
                }
            }
        }
        next
    }

    /// A birth taken anew by an operator at `start`, no earlier than `current`; a node that opens the store settles it again.
    pub(crate) fn renewed(current: Option<&Birth>, start: WallMs, sigma: u64, ttl: u64) -> Birth {
        let (born, sigma, ttl) =
            current.map_or((0, sigma, ttl), |birth| (birth.born, birth.sigma.max(sigma), birth.ttl.max(ttl)));
        Birth { born: born.max(start), sigma, ttl, settled_under: None, age: None }
    }

    /// What was issued at or before this instant is refused.
    pub(crate) const fn mark(&self) -> WallMs {
        self.born.saturating_add(self.sigma.saturating_mul(2))
    }

    /// The greatest σ that the store ever ran with.
    pub(crate) const fn greatest_sigma(&self) -> u64 {
        self.sigma
    }

    /// The greatest ttl that the store ever accepted.
    pub(crate) const fn greatest_ttl(&self) -> u64 {
        self.ttl
    }

    /// Whether birth can still be raised.
    pub(crate) const fn settled(&self) -> bool {
        self.settled_under.is_some()
    }

    /// The record's bytes. An age counted by a process that knows no boot ends with it and is left out.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(BIRTH_LEN);
        out.put_u64(self.born);
        out.put_u64(self.sigma);
        out.put_u64(self.ttl);
        out.put_u8(u8::from(self.settled_under.is_some()));
        out.put_u64(self.settled_under.unwrap_or(0));
        let age = self.age.and_then(|age| Some((age.boot?, age.since)));
        out.put_u8(u8::from(age.is_some()));
        let (boot, since) = age.unwrap_or((BootId([0; 16]), Duration::ZERO));
        out.put_slice(&boot.0);
        // Some 584 years of one boot fit.
        out.put_u64(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        seal(KIND, out)
    }

    /// Reads [`Birth::encode`] back; `None` where the bytes are no birth record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = unseal(KIND, bytes)?;
        let born = record.try_get_u64().ok()?;
        let sigma = record.try_get_u64().ok()?;
        let ttl = record.try_get_u64().ok()?;
        let settled = flag(&mut record)?;
        let under = record.try_get_u64().ok()?;
        let counted = flag(&mut record)?;
        let (boot, rest) = record.split_first_chunk::<16>()?;
        record = rest;
        let since = Duration::from_nanos(record.try_get_u64().ok()?);
        record.is_empty().then_some(Self {
            born,
            sigma,
            ttl,
            settled_under: settled.then_some(under),
            age: counted.then_some(AgeBase { boot: Some(BootId(*boot)), since }),
        })
    }
}

fn flag(record: &mut &[u8]) -> Option<bool> {
    match record.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The fuzz target of a birth record.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "birth",
    run: |data| {
        super::seal::fuzz(KIND, false, data, Birth::decode, |birth| {
            // Whatever it says, a start goes on from it and never moves it back.
            let reading = Reading { wall: 1_000, monotonic: Duration::from_secs(9), boot: Some(BootId([1; 16])) };
            let tolerance = Tolerance { sigma: 3, ttl: 100, hold: 0, guards: Guards::default() };
            assert!(Birth::advance(Some(birth), &reading, &tolerance, 2_000).mark() >= birth.mark());
            birth.encode()
        })
    },
    seeds: || {
        let reading = |wall, seconds, boot| Reading { wall, monotonic: Duration::from_secs(seconds), boot };
        let tolerance = Tolerance { sigma: 3, ttl: 100, hold: 0, guards: Guards::default() };
        let boot = Some(BootId([1; 16]));
        let born = Birth::advance(None, &reading(1_000, 5, boot), &tolerance, 0);
        let settled = Birth::advance(Some(&born), &reading(2_000, 90, boot), &tolerance, 0);
        let unknown = Birth::advance(None, &reading(1_000, 5, None), &tolerance, 0);
        [born, settled, unknown].map(|birth| birth.encode().to_vec()).into()
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(wall: WallMs, monotonic: u64, boot: u8) -> Reading {
        Reading { wall, monotonic: MS(monotonic), boot: Some(BootId([boot; 16])) }
    }

    fn tolerance(sigma: u64, ttl: u64) -> Tolerance {
        Tolerance { sigma, ttl, hold: 0, guards: Guards::default() }
    }

    fn walk(tolerance: &Tolerance, readings: &[Reading]) -> Birth {
        readings
            .iter()
            .fold(None, |birth, reading| Some(Birth::advance(birth.as_ref(), reading, tolerance, 0)))
            .unwrap()
    }

    #[test]
    fn l9_9_the_mark_is_two_tolerances_after_birth_and_follows_a_clock_that_was_behind() {
        let tolerance = tolerance(3, 100);
        let birth = walk(&tolerance, &[at(1_000, 50, 1)]);
        assert_eq!(birth.mark(), 1_006);
        // The clock was a minute behind: 10 ms later it reads 61,010, so birth was at 61,000.
        let birth = Birth::advance(Some(&birth), &at(61_010, 60, 1), &tolerance, 0);
        assert_eq!(birth.mark(), 61_006);
        // It never goes back, and passing time alone moves nothing.
        let birth = Birth::advance(Some(&birth), &at(2_000, 70, 1), &tolerance, 0);
        assert_eq!(Birth::advance(Some(&birth), &at(61_030, 80, 1), &tolerance, 0), birth);
        assert_eq!(birth.mark(), 61_006);
    }

    #[test]
    fn l9_9_birth_settles_after_the_greatest_ttl_and_three_tolerances_in_one_boot() {
        let tolerance = tolerance(3, 100);
        let birth = walk(&tolerance, &[at(1_000, 0, 1), at(9_000, 108, 1)]);
        assert!(!birth.settled());
        assert_eq!(birth.mark(), 9_000 - 108 + 6);
        let birth = walk(&tolerance, &[at(1_000, 0, 1), at(1_109, 109, 1), at(9_000, 110, 1), at(9_000, 5, 2)]);
        assert!(birth.settled());
        assert_eq!(birth.mark(), 1_006);
    }

    #[test]
    fn l9_9_a_new_boot_before_it_settled_takes_birth_anew() {
        let tolerance = tolerance(3, 100);
        let birth = walk(&tolerance, &[at(1_000, 500, 1), at(1_080, 580, 1), at(1_090, 600, 2)]);
        assert_eq!(birth.mark(), 1_096);
        let birth = Birth::advance(Some(&birth), &at(1_198, 708, 2), &tolerance, 0);
        assert!(!birth.settled());
        assert!(Birth::advance(Some(&birth), &at(1_199, 709, 2), &tolerance, 0).settled());
        // Anew is a mark: from the greatest instant of an admission where the clock is behind that.
        let birth = Birth::advance(Some(&birth), &at(900, 0, 3), &tolerance, 2_000);
        assert_eq!(birth.mark(), 2_006);
    }

    #[test]
    fn l9_9_where_no_boot_is_told_each_process_counts_as_one() {
        let tolerance = tolerance(3, 100);
        let reading = |wall, monotonic| Reading { wall, monotonic: MS(monotonic), boot: None };
        let birth = walk(&tolerance, &[reading(1_000, 0), reading(1_050, 50)]);
        assert_eq!(birth.mark(), 1_006);
        let reopened = Birth::decode(&birth.encode()).unwrap();
        assert_eq!(Birth::advance(Some(&reopened), &reading(1_060, 60), &tolerance, 0).mark(), 1_066);
        assert!(walk(&tolerance, &[reading(1_000, 0), reading(1_109, 109)]).settled());
    }

    #[test]
    fn l9_9_a_greater_ttl_than_it_settled_under_takes_birth_anew_and_a_smaller_one_does_not() {
        let birth = walk(&tolerance(3, 100), &[at(1_000, 0, 1), at(1_109, 109, 1)]);
        assert_eq!(Birth::advance(Some(&birth), &at(2_000, 1_000, 1), &tolerance(3, 100), 0), birth);
        let lowered = Birth::advance(Some(&birth), &at(2_000, 1_000, 1), &tolerance(3, 50), 0);
        assert_eq!((lowered.mark(), lowered.settled(), lowered.greatest_ttl()), (1_006, true, 100));
        let raised = Birth::advance(Some(&lowered), &at(2_000, 1_000, 1), &tolerance(3, 101), 0);
        assert_eq!((raised.mark(), raised.settled(), raised.greatest_ttl()), (2_006, false, 101));
    }

    #[test]
    fn l9_9_a_mark_uses_the_greatest_tolerance_that_the_store_ever_ran_with() {
        let birth = walk(&tolerance(5, 100), &[at(1_000, 0, 1)]);
        let birth = Birth::advance(Some(&birth), &at(1_001, 1, 1), &tolerance(2, 100), 0);
        assert_eq!((birth.mark(), birth.greatest_sigma()), (1_010, 5));
        assert_eq!(Birth::advance(Some(&birth), &at(1_002, 2, 1), &tolerance(7, 100), 0).mark(), 1_014);
    }

    #[test]
    fn l9_1_a_birth_record_is_read_back_whole_or_not_at_all() {
        for birth in [
            walk(&tolerance(3, 100), &[at(1_000, 77, 1)]),
            walk(&tolerance(3, 100), &[at(1_000, 0, 1), at(1_109, 109, 1)]),
        ] {
            let bytes = birth.encode();
            assert_eq!(bytes.len(), BIRTH_LEN);
            assert_eq!(Birth::decode(&bytes), Some(birth));
            for place in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[place] ^= 1;
                assert_eq!(Birth::decode(&damaged), None);
                assert_eq!(Birth::decode(&bytes[..place]), None);
            }
        }
    }
}
