use std::fmt;

use crate::identity::Did;

/// What kind of authority a mark says is spent. Each has its own table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MarkKind {
    /// An execution nonce (law L12.1).
    Nonce,
    /// A governed approval (law L12.3).
    Approval,
}

/// What a mark is called among those of its kind: a hash over what names the authority. For a nonce that is its issuer and
/// its id; for an approval the subject, the request and the intent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkId(pub [u8; 32]);

/// One piece of single-use authority, to be consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its kind.
    pub kind: MarkKind,
    /// Its name.
    pub id: MarkId,
    /// Whom it is charged to.
    pub subject: Did,
    /// When the authority was signed, in unix seconds, if it says so.
    pub issued_at: Option<i64>,
    /// The first instant at which what was shown for it holds no more, in unix seconds, read again under the lock. A retry
    /// may show something that holds longer; it never says how long the mark is kept.
    pub valid_until: i64,
    /// Until when the mark is kept at the least, in unix seconds: a nonce's until it expires, an approval's until the call's
    /// deadline.
    pub expires_at: i64,
}

/// What can be revoked: a key, or the digest of a delegation, a nonce or an approval.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Capability(pub [u8; 32]);

impl fmt::Debug for MarkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkId(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
