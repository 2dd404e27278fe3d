use std::time::Duration;

use super::{Bucket, Moment, Quota, Rate};

/// One token, in the unit that levels are kept in. A bucket that fills by `r` tokens a second fills by `r` units a
/// nanosecond, so that nothing is ever rounded.
const TOKEN: u128 = 1_000_000_000;

/// What the two buckets of one stream hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct Buckets {
    messages: u128,
    bytes: u128,
    at: Moment,
}

/// A bucket holds too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct TooLittle {
    /// Which.
    pub(in crate::layer) bucket: Bucket,
    /// When it holds enough, if nothing is taken from it; `None` where it can never hold as much.
    pub(in crate::layer) after: Option<Duration>,
}

impl Quota {
    /// Takes one message of `bytes` bytes at `now` from a stream's buckets, full ones where it has none yet.
    pub(in crate::layer) fn charge(
        &self,
        buckets: Option<&Buckets>,
        bytes: u64,
        now: Moment,
    ) -> Result<Buckets, TooLittle> {
        let (messages, held) = match buckets {
            Some(buckets) => {
                let since = now.since(buckets.at);
                (fill(&self.messages, buckets.messages, since), fill(&self.bytes, buckets.bytes, since))
            }
            None => (full(&self.messages), full(&self.bytes)),
        };
        Ok(Buckets {
            messages: take(&self.messages, messages, 1)
                .map_err(|after| TooLittle { bucket: Bucket::Messages, after })?,
            bytes: take(&self.bytes, held, bytes).map_err(|after| TooLittle { bucket: Bucket::Bytes, after })?,
            at: now,
        })
    }
}

fn full(rate: &Rate) -> u128 {
    u128::from(rate.burst.get()) * TOKEN
}

fn fill(rate: &Rate, level: u128, since: Duration) -> u128 {
    level.saturating_add(since.as_nanos().saturating_mul(u128::from(rate.per_second.get()))).min(full(rate))
}

/// What is left of `level`, or how long until it holds enough.
fn take(rate: &Rate, level: u128, tokens: u64) -> Result<u128, Option<Duration>> {
    let cost = u128::from(tokens) * TOKEN;
    level.checked_sub(cost).ok_or_else(|| {
        let missing = (cost - level).div_ceil(u128::from(rate.per_second.get()));
        (cost <= full(rate)).then(|| Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX)))
    })
}
