//! What group commit is opened with, and why it may refuse to open.

use std::sync::Arc;

use crate::{
    clock::{Clock, SystemClock},
    storage::{KEY_MAX, ScanError, Table, VALUE_MAX},
};

/// The most that one table may hold (law L9.7). Bytes are those of keys and values, without an engine's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Records, the unreadable ones included.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Which bound a write would have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The table's records.
    #[error("its budget of {0} records")]
    Records(u64),
    /// The table's bytes.
    #[error("its budget of {0} bytes")]
    Bytes(u64),
    /// One record's key.
    #[error("{KEY_MAX} bytes a key")]
    KeyLength,
    /// One record's value.
    #[error("{VALUE_MAX} bytes a value")]
    ValueLength,
}

/// A write that would take a table past a bound. Nothing was staged and nothing is evicted (law L9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("table {table:?} would pass {limit}: raise the table's budget")]
pub struct BudgetExhausted {
    /// The table.
    pub table: Table,
    /// The bound.
    pub limit: Limit,
}

/// How group commit runs over a store.
#[derive(Debug, Clone)]
pub struct CommitConfig {
    pub(super) sender: Budget,
    pub(super) receiver: Budget,
    pub(super) clock_table: Budget,
    pub(super) custody: Budget,
    pub(super) nonce: Budget,
    pub(super) approval: Budget,
    pub(super) operation: Budget,
    pub(super) volatile: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl CommitConfig {
    /// The default budget of the sender table: a lease of each of 16,384 streams, at most 256 bytes each.
    pub const SENDER: Budget = Budget { records: 16_384, bytes: 16_384 * 256 };
    /// The default budget of the receiver table: a window of each of 16,384 streams, at most 2 KiB each.
    pub const RECEIVER: Budget = Budget { records: 16_384, bytes: 16_384 * 2_048 };
    /// The default budget of the clock table: 64 records of at most 1 KiB.
    pub const CLOCK: Budget = Budget { records: 64, bytes: 64 * 1_024 };
    /// The default budget of the custody table: 64 mails, at most 256 bytes each.
    pub const CUSTODY: Budget = Budget { records: 64, bytes: 64 * 256 };
    /// The default budget of the nonce table: 65,536 nonces, at most 192 bytes each.
    pub const NONCE: Budget = Budget { records: 65_536, bytes: 65_536 * 192 };
    /// The default budget of the approval table: 16,384 approvals, at most 192 bytes each.
    pub const APPROVAL: Budget = Budget { records: 16_384, bytes: 16_384 * 192 };
    /// The default budget of the operation table: 16,384 operations, 16 MiB with their outcomes.
    pub const OPERATION: Budget = Budget { records: 16_384, bytes: 16 * 1_024 * 1_024 };

    /// The defaults, for a store that is durable; any other is refused.
    pub fn new() -> Self {
        Self {
            sender: Self::SENDER,
            receiver: Self::RECEIVER,
            clock_table: Self::CLOCK,
            custody: Self::CUSTODY,
            nonce: Self::NONCE,
            approval: Self::APPROVAL,
            operation: Self::OPERATION,
            volatile: false,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// The defaults, and a store that forgets is taken too: whatever it admitted, it admits again after a restart,
    /// and it signs sequences again that it signed before. For tests only (law L9.6).
    pub fn volatile_for_tests() -> Self {
        Self { volatile: true, ..Self::new() }
    }

    /// Sets a table's budget.
    #[must_use]
    pub fn with_budget(mut self, table: Table, budget: Budget) -> Self {
        match table {
            Table::Sender => self.sender = budget,
            Table::Receiver => self.receiver = budget,
            Table::Clock => self.clock_table = budget,
            Table::Custody => self.custody = budget,
            Table::Nonce => self.nonce = budget,
            Table::Approval => self.approval = budget,
            Table::Operation => self.operation = budget,
        }
        self
    }

    /// Sets the clock that commits are timed with. It decides nothing.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(super) fn budget(&self, table: Table) -> Budget {
        match table {
            Table::Sender => self.sender,
            Table::Receiver => self.receiver,
            Table::Clock => self.clock_table,
            Table::Custody => self.custody,
            Table::Nonce => self.nonce,
            Table::Approval => self.approval,
            Table::Operation => self.operation,
        }
    }
}

impl Default for CommitConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Why group commit did not open. The store is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitOpenError {
    /// The store forgets everything with its process, and durability is promised (law L9.6).
    #[error("the store is not durable: give a durable one, or say in the configuration that this is a test")]
    Volatile,
    /// Another group commit of this process runs over the store: two would each admit (law L9.8).
    #[error("the store is in use by another group commit: share that one, or wait until it was shut down")]
    InUse,
    /// A migration into the store has not ended, and what it has not copied yet would be admitted again.
    #[error("a migration into the store has not ended: run `admit-one store migrate` again with the same two stores")]
    Migrating,
    /// A table cannot be listed (law L11.3). Opening again scans again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The store holds more than a budget allows (law L9.7).
    #[error("the store holds more than a budget allows: {0}")]
    OverBudget(#[from] BudgetExhausted),
}

/// Why a store that refuses was not made usable again (law L9.4).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReopenError {
    /// The engine could not.
    #[error(transparent)]
    Engine(#[from] crate::storage::OpenError),
    /// Group commit itself has stopped, and the tables in memory cannot be trusted any more: open it anew.
    #[error("group commit has stopped: {reason}; open the store anew")]
    Stopped {
        /// Why it stopped.
        reason: String,
    },
}
