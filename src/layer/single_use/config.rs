//! What single-use authority runs with, and why it may refuse to open.

use std::sync::Arc;

use super::{Authority, NothingRevoked, OUTCOME_MAX};
use crate::{
    clock::DEFAULT_SIGMA_MS,
    storage::{RecordName, Table, commit::CommitConfig},
};

/// The greatest lifetime that may be configured: 30 days, in seconds.
pub const LIFETIME_MAX_S: u64 = 30 * 24 * 60 * 60;

/// The greatest lifetime unless told otherwise: 1 hour, in seconds.
pub const DEFAULT_LIFETIME_S: u64 = 60 * 60;

/// How many records of one kind may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Of one subject.
    pub per_subject: usize,
    /// Of all subjects, damaged ones included.
    pub in_all: usize,
}

/// How single-use authority is kept.
#[derive(Debug, Clone)]
pub struct SingleUseConfig {
    /// The clock tolerance σ, in milliseconds. Lowering it together with the loss of a store reopens replay.
    pub sigma_ms: u64,
    /// The furthest ahead of the clock that an authority may expire or a deadline lie, in seconds; at most
    /// [`LIFETIME_MAX_S`]. Raising it takes the store's birth anew (law L9.9).
    pub greatest_lifetime_s: u64,
    /// Places for nonces.
    pub nonces: Places,
    /// Places for approvals.
    pub approvals: Places,
    /// Places for operations.
    pub operations: Places,
    /// The most bytes of operations' records, of which an unfinished one counts with the greatest outcome.
    pub operation_bytes: u64,
    /// The most bytes of an outcome that are recorded; at most [`OUTCOME_MAX`]. Of a greater one nothing is known.
    pub outcome_max: usize,
    /// The most callers that wait for one running operation.
    pub waiters_per_operation: usize,
    /// The most callers that wait for running operations in all.
    pub waiters: usize,
    /// Who can withdraw authority.
    pub authority: Arc<dyn Authority>,
    /// Whether the birth mark refuses (laws L9.9 and L12.6). Without it, a store that was lost gives again what its
    /// predecessor gave and still lives. Birth is kept in either case.
    pub birth_mark: bool,
}

impl SingleUseConfig {
    /// The defaults: σ 3 s; lifetimes up to 1 h; 65,536 nonces, 1,024 a subject; 16,384 approvals and operations each, 256 a
    /// subject; outcomes of up to 4 KiB in 16 MiB; 64 callers waiting for an operation, 4,096 in all; nothing revoked.
    pub fn new() -> Self {
        Self {
            sigma_ms: DEFAULT_SIGMA_MS,
            greatest_lifetime_s: DEFAULT_LIFETIME_S,
            nonces: Places { per_subject: 1_024, in_all: 65_536 },
            approvals: Places { per_subject: 256, in_all: 16_384 },
            operations: Places { per_subject: 256, in_all: 16_384 },
            operation_bytes: CommitConfig::OPERATION.bytes,
            outcome_max: 4 * 1_024,
            waiters_per_operation: 64,
            waiters: 4_096,
            authority: Arc::new(NothingRevoked),
            birth_mark: true,
        }
    }

    /// Sets who can withdraw authority.
    #[must_use]
    pub fn with_authority(mut self, authority: Arc<dyn Authority>) -> Self {
        self.authority = authority;
        self
    }

    /// Sets the greatest lifetime, in seconds.
    #[must_use]
    pub const fn with_greatest_lifetime(mut self, seconds: u64) -> Self {
        self.greatest_lifetime_s = seconds;
        self
    }
}

impl Default for SingleUseConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Why single-use authority did not open. The store is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SingleUseOpenError {
    /// The greatest lifetime is over the bound.
    #[error("a greatest lifetime of {configured} s is over the bound of {LIFETIME_MAX_S} s")]
    LifetimeOverBound {
        /// What was configured, in seconds.
        configured: u64,
    },
    /// The bound of outcomes is over what a record may hold.
    #[error("outcomes of {configured} bytes are over the bound of {OUTCOME_MAX}")]
    OutcomeOverBound {
        /// What was configured, in bytes.
        configured: usize,
    },
    /// A table holds more than configured (law L9.7).
    #[error("table {table:?} holds {held} records, over the configured {bound}: raise the bound to at least that")]
    OverCapacity {
        /// The table.
        table: Table,
        /// Records held, damaged ones included.
        held: usize,
        /// The configured bound.
        bound: usize,
    },
    /// A record that everything relies on cannot be restored, or is missing.
    #[error(
        "the {what} record {record} cannot be restored ({reason}), and without it nothing is safe from a second use: \
         start on an empty store, which refuses what was issued before it began"
    )]
    Damaged {
        /// `single-use clock` or `single-use birth`.
        what: &'static str,
        /// The record's name.
        record: RecordName,
        /// What is wrong with it.
        reason: String,
    },
    /// Another one runs over the same group commit, or one began to open on it and did not end.
    #[error(
        "this group commit's single-use tables are taken: one serves a store, and after one whose opening was not \
         recorded or was abandoned, group commit must be opened anew"
    )]
    Taken,
    /// The start could not be made durable.
    #[error("the start could not be recorded: {reason}")]
    NotRecorded {
        /// What the store says.
        reason: String,
    },
}
