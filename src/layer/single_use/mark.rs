//! What is consumed once, and who can still forbid it.

use std::fmt;

use crate::{identity::Did, storage::Table};

/// The two kinds of single-use authority that are marked by an id. Each has its own table, floor and bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MarkKind {
    /// An execution nonce (law L12.1).
    Nonce,
    /// A governed approval (law L12.3).
    Approval,
}

impl MarkKind {
    /// The table that marks of this kind are in.
    pub const fn table(self) -> Table {
        match self {
            MarkKind::Nonce => Table::Nonce,
            MarkKind::Approval => Table::Approval,
        }
    }
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MarkKind::Nonce => "nonce",
            MarkKind::Approval => "approval",
        })
    }
}

/// Names a mark within its kind: a hash of an issuer and its nonce's id, or of (subject, request, intent). Two marks that
/// share one are one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkId(pub [u8; 32]);

impl fmt::Debug for MarkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkId(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// One single-use mark to be consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its kind.
    pub kind: MarkKind,
    /// Its name.
    pub id: MarkId,
    /// Whose authority it is: whom its place is accounted to.
    pub subject: Did,
    /// The signed instant of its issue, in unix seconds, where its authority carries one.
    pub issued_at: Option<i64>,
    /// The first instant at which what was shown for it holds no more, in unix seconds, read again under the lock. A retry
    /// may show something that holds longer.
    pub valid_until: i64,
    /// Until when the mark is kept at the least, and what is compared with the floor, in unix seconds: a nonce's signed
    /// expiry, an approval's the call's deadline (law L12.4).
    pub expires_at: i64,
}

/// What can be revoked: a key, or the digest of a delegation, a nonce or an approval.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Capability(pub [u8; 32]);

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Who can withdraw authority that was given (law L12.5). Both are asked with every presentation, under the store's lock at
/// the start of a call, and last before an answer leaves; so they must answer at once from memory, never block, and never call
/// [`SingleUse`](super::SingleUse). One that panics counts as a stop, and as a revocation.
pub trait Authority: fmt::Debug + Send + Sync + 'static {
    /// Whether an emergency stop is on, beside the one that the store keeps
    /// ([`SingleUse::stop`](super::SingleUse::stop)).
    fn stopped(&self) -> bool {
        false
    }

    /// Whether `capability` was revoked.
    fn revoked(&self, capability: &Capability) -> bool;
}

/// The [`Authority`] of a deployment that revokes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingRevoked;

impl Authority for NothingRevoked {
    fn revoked(&self, _: &Capability) -> bool {
        false
    }
}

/// How far a mark has come (law L12.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkState {
    /// Nothing is known of it.
    Absent,
    /// Reserved for a call that has not begun.
    Reserved,
    /// Its call began, and nothing is recorded of its end.
    Dispatching,
    /// Consumed.
    Committed,
    /// Counts as consumed: its record is damaged, or its table is (law L11.2).
    Consumed,
}

impl fmt::Display for MarkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MarkState::Absent => "absent",
            MarkState::Reserved => "reserved",
            MarkState::Dispatching => "dispatching",
            MarkState::Committed => "committed",
            MarkState::Consumed => "consumed",
        })
    }
}
