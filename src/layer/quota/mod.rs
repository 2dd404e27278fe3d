//! How much one stream may bring in: a bucket of messages and a bucket of bytes (law L7). Pure, in integers.
//!
//! **State** (`Buckets`): what both buckets of one stream hold, in billionths of a token, and at which moment. A stream
//! without state has full ones. State lives with its stream, in memory only, and is never stored.
//!
//! **Transition** (`Quota::charge`): fill up to the burst for the time since the last charge, then take one message and
//! the length of the verified original's data in bytes; envelopes cost nothing. Where either bucket holds too little
//! neither is touched, and the refusal says which and for how long. A message longer than the burst of bytes never
//! passes, and its refusal says that.
//!
//! **Time.** A `Moment` comes only from `Steady`, which never gives one before the last it gave: a monotonic clock
//! that goes back by a fault of its platform fills nothing, and takes nothing back.
//!
//! **Where it stands.** In the admission boundary, after the window and before anything is staged (law L7.1): Replay,
//! Fork and Stale cost nothing, and what the quota refuses leaves window and record as they were. The state after a
//! charge is part of the stream's transition: where its batch fails, undoing brings back the state from before it, filled
//! since, which is the giving back up to the burst of law L9.2.
//!
//! A stream is removed no sooner after its last admission than [`Quotas::fill_time`], the longest that any bucket takes
//! to fill. So nobody gets a burst back early by having its stream forgotten, and no table of accounts is needed that one
//! peer could fill.
//!
//! **Link-local windows** (law L6.2) are released with their link, so that buckets that lived with them would be had
//! anew by reconnecting. They share one pair of buckets a stream over all links (`layer::local`), apart from the pair of
//! the stream's durable window: a stream of a delegating namespace may bring in twice its quota, half of it on its own
//! connections. Where there is no room for such a pair, the transaction uses the durable window.

mod buckets;
mod steady;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU64, time::Duration};

#[cfg(test)]
pub(in crate::layer) use self::buckets::TooLittle;
pub(in crate::layer) use self::{
    buckets::Buckets,
    steady::{Moment, Steady},
};
use crate::message::Class;

/// The longest that a bucket may take to fill from empty: spent streams are kept at least that long.
pub const FILL_MAX: Duration = Duration::from_secs(6_000);

/// How fast one bucket fills, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens a second.
    pub per_second: NonZeroU64,
    /// The most tokens that it holds.
    pub burst: NonZeroU64,
}

impl Rate {
    /// A rate of `per_second` tokens with a burst of `burst`; `None` where either is 0.
    pub const fn new(per_second: u64, burst: u64) -> Option<Self> {
        match (NonZeroU64::new(per_second), NonZeroU64::new(burst)) {
            (Some(per_second), Some(burst)) => Some(Self { per_second, burst }),
            _ => None,
        }
    }

    /// How long it takes to fill from empty, rounded up.
    pub(in crate::layer) fn fill_time(&self) -> Duration {
        let (seconds, rest) = (self.burst.get() / self.per_second.get(), self.burst.get() % self.per_second.get());
        Duration::from_secs(seconds.saturating_add(u64::from(rest > 0)))
    }
}

/// What one stream may bring in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Messages.
    pub messages: Rate,
    /// Bytes of data.
    pub bytes: Rate,
}

impl Quota {
    /// 8 messages a second with a burst of 32, and 4 MiB a second with a burst of 64 MiB. Offered, and used by nobody
    /// who does not ask for it.
    pub const OFFERED: Self = match (Rate::new(8, 32), Rate::new(4 << 20, 64 << 20)) {
        (Some(messages), Some(bytes)) => Self { messages, bytes },
        _ => unreachable!(),
    };
}

/// The quota of each class; none where it is not set (law L7.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas([Option<Quota>; Class::ALL.len()]);

impl Quotas {
    /// No class has a quota.
    pub const NONE: Self = Self([None; Class::ALL.len()]);

    /// Sets the quota of each stream of `class`.
    #[must_use]
    pub const fn with(mut self, class: Class, quota: Quota) -> Self {
        self.0[class as usize] = Some(quota);
        self
    }

    /// The quota of each stream of `class`.
    pub const fn of(&self, class: Class) -> Option<&Quota> {
        self.0[class as usize].as_ref()
    }

    /// The longest that any bucket takes to fill from empty; zero where no class has a quota.
    pub fn fill_time(&self) -> Duration {
        let times = self.0.iter().flatten().map(|quota| quota.messages.fill_time().max(quota.bytes.fill_time()));
        times.max().unwrap_or(Duration::ZERO)
    }
}

/// Which of a stream's two buckets holds too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// That of messages.
    Messages,
    /// That of bytes.
    Bytes,
}
