use std::time::Duration;

use proptest::prelude::*;

use super::{Bucket, Buckets, Moment, Quota, Quotas, Rate, Steady};
use crate::message::Class;

fn rate(per_second: u64, burst: u64) -> Rate {
    Rate::new(per_second, burst).expect("not zero")
}

fn moment(ms: u64) -> Moment {
    Steady::default().read(Duration::from_millis(ms))
}

#[test]
fn l7_2_the_offered_quota_takes_a_burst_at_once_and_then_its_rate() {
    let quota = Quota::OFFERED;
    let mut buckets = None;
    for _ in 0..32 {
        buckets = Some(quota.charge(buckets.as_ref(), 100, moment(0)).expect("within the burst"));
    }
    let short = quota.charge(buckets.as_ref(), 100, moment(0)).unwrap_err();
    assert_eq!((short.bucket, short.after), (Bucket::Messages, Some(Duration::from_millis(125))));
    assert!(quota.charge(buckets.as_ref(), 100, moment(124)).is_err());
    assert!(quota.charge(buckets.as_ref(), 100, moment(125)).is_ok());

    let full = quota.charge(None, 64 << 20, moment(0)).expect("the burst of bytes");
    let short = quota.charge(Some(&full), 1 << 20, moment(0)).unwrap_err();
    assert_eq!((short.bucket, short.after), (Bucket::Bytes, Some(Duration::from_millis(250))));
    let never = quota.charge(None, (64 << 20) + 1, moment(0)).unwrap_err();
    assert_eq!((never.bucket, never.after), (Bucket::Bytes, None));
}

#[test]
fn l7_2_the_time_to_fill_is_the_slowest_buckets_and_none_where_no_class_has_a_quota() {
    assert_eq!(Quotas::NONE.fill_time(), Duration::ZERO);
    assert_eq!(Quotas::default(), Quotas::NONE);
    let quotas = Quotas::NONE.with(Class::E2e, Quota::OFFERED);
    assert_eq!(quotas.fill_time(), Duration::from_secs(16));
    let slow = Quota { messages: rate(3, 100), ..Quota::OFFERED };
    assert_eq!(quotas.with(Class::Storage, slow).fill_time(), Duration::from_secs(34));
    assert_eq!((quotas.of(Class::E2e), quotas.of(Class::Storage)), (Some(&Quota::OFFERED), None));
}

/// What a bucket is, said without one: a cost passes iff from every earlier charge on (and on its own), all that passed
/// since, itself included, is within the burst and what the time since then filled.
#[derive(Default)]
struct Naive {
    passed: Vec<(u64, u128)>,
}

impl Naive {
    fn passes(&self, rate: &Rate, now: u64, cost: u64) -> bool {
        let burst = u128::from(rate.burst.get()) * 1_000;
        let mut sum = u128::from(cost) * 1_000;
        let mut within = sum <= burst;
        for (at, earlier) in self.passed.iter().rev() {
            sum += earlier * 1_000;
            within &= sum <= burst + u128::from(now - at) * u128::from(rate.per_second.get());
        }
        within
    }
}

proptest! {
    /// Charges at random times of a clock that sometimes goes back, against the definition.
    #[test]
    fn l7_2_buckets_are_the_naive_model_and_a_refusal_says_for_how_long(
        messages in (1_u64..20, 1_u64..8),
        bytes in (1_u64..2_000, 1_u64..600),
        charges in prop::collection::vec((0_u64..900, 0_u64..700, 0_u64..400), 1..120),
    ) {
        let quota = Quota { messages: rate(messages.0, messages.1), bytes: rate(bytes.0, bytes.1) };
        let (mut steady, mut buckets) = (Steady::default(), None::<Buckets>);
        let (mut counts, mut lengths) = (Naive::default(), Naive::default());
        let (mut read, mut latest) = (10_000_u64, 0);
        for (forward, length, back) in charges {
            read = if back > 300 { read.saturating_sub(back) } else { read + forward };
            latest = read.max(latest);
            let now = steady.read(Duration::from_millis(read));
            let passes = counts.passes(&quota.messages, latest, 1) && lengths.passes(&quota.bytes, latest, length);
            match quota.charge(buckets.as_ref(), length, now) {
                Ok(after) => {
                    prop_assert!(passes);
                    buckets = Some(after);
                    counts.passed.push((latest, 1));
                    lengths.passed.push((latest, length.into()));
                }
                Err(short) => {
                    prop_assert!(!passes);
                    match short.after {
                        None => prop_assert!(short.bucket == Bucket::Bytes && length > bytes.1),
                        Some(after) => {
                            let later = |nanos| {
                                let at = Duration::from_millis(latest) + Duration::from_nanos(nanos);
                                quota.charge(buckets.as_ref(), length, Steady::default().read(at))
                            };
                            let nanos = u64::try_from(after.as_nanos()).expect("short");
                            prop_assert!(nanos > 0);
                            prop_assert!(later(nanos).err().is_none_or(|still| still.bucket != short.bucket));
                            prop_assert_eq!(later(nanos - 1).err().map(|still| still.bucket), Some(short.bucket));
                        }
                    }
                }
            }
        }
    }
}
