//! Out: four class lanes, each pinned to an ordered channel, under credit.

mod backoff;
mod credit;
mod framing;
mod queue;
mod scheduler;
