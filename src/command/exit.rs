//! What the process ends with, and why.

use admit_one::{
    operator::{ClearError, CompareError, MigrateError, RenewError},
    storage::{OpenError, ScanError},
};

/// The exit codes. They are part of the command's interface: see `admit-one --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked is done.
    Done = 0,
    /// What was checked did not hold.
    CheckFailed = 1,
    /// The arguments are not understood.
    Usage = 2,
    /// Another process owns the store.
    InUse = 3,
    /// The store, a file or a directory cannot be opened.
    CannotOpen = 4,
    /// What was asked is refused, or the operator said no.
    Refused = 5,
    /// It began and failed on the way.
    Failed = 6,
}

impl Exit {
    /// The number that the process ends with.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// What `--help` says of the codes.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done
  1  a check failed: a bad record, a frame that is refused, two stores that differ
  2  the arguments are not understood
  3  the store is in use by another process
  4  a store, file or directory cannot be opened
  5  refused, or answered no at the prompt
  6  failed on the way";

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// A stable name of the reason, for scripts.
    pub(crate) kind: &'static str,
    /// The reason and what to do about it.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, kind: &'static str, message: impl ToString) -> Self {
        Self { exit, kind, message: message.to_string() }
    }

    /// A file operation that the system refused.
    pub(crate) fn io(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(Exit::CannotOpen, "io", format!("cannot {action} {}: {error}", path.display()))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (exit, kind) = match &error {
            OpenError::Locked { .. } => (Exit::InUse, "in_use"),
            OpenError::NotAStore { .. } => (Exit::CannotOpen, "not_a_store"),
            OpenError::NewerFormat { .. } => (Exit::CannotOpen, "newer_format"),
            OpenError::Damaged { .. } => (Exit::CannotOpen, "damaged"),
            OpenError::OverBudget { .. } => (Exit::CannotOpen, "over_budget"),
            _ => (Exit::CannotOpen, "io"),
        };
        Self::new(exit, kind, error)
    }
}

impl From<ScanError> for Failure {
    fn from(error: ScanError) -> Self {
        Self::new(Exit::Failed, "scan", error)
    }
}

impl From<ClearError> for Failure {
    fn from(error: ClearError) -> Self {
        let (exit, kind) = match &error {
            ClearError::NoRecord { .. } => (Exit::Refused, "no_record"),
            ClearError::RenewInstead { .. } => (Exit::Refused, "renew_instead"),
            ClearError::CannotRemember { .. } => (Exit::Refused, "cannot_remember"),
            ClearError::Migrating => (Exit::Refused, "migrating"),
            ClearError::Scan(_) => (Exit::Failed, "scan"),
            _ => (Exit::Failed, "commit"),
        };
        Self::new(exit, kind, error)
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        let (exit, kind) = match &error {
            RenewError::Migrating => (Exit::Refused, "migrating"),
            RenewError::Scan(_) => (Exit::Failed, "scan"),
            _ => (Exit::Failed, "commit"),
        };
        Self::new(exit, kind, error)
    }
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        let (exit, kind) = match &error {
            MigrateError::Unreadable { .. } => (Exit::CheckFailed, "unreadable"),
            MigrateError::SourceMigrating => (Exit::Refused, "source_migrating"),
            MigrateError::TargetInUse => (Exit::Refused, "target_in_use"),
            MigrateError::Differs(CompareError::Record { .. }) => (Exit::CheckFailed, "differs"),
            MigrateError::Differs(_) | MigrateError::Scan(_) => (Exit::Failed, "scan"),
            _ => (Exit::Failed, "commit"),
        };
        Self::new(exit, kind, error)
    }
}
