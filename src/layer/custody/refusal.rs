use super::CUSTODY_MAX;
use crate::{
    clock::WallMs,
    message::{Class, DecodeError},
    storage::RecordName,
};

/// Why mail was refused as mail. Nothing of it was stored, and it stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailRefusal {
    /// Custody is not enabled here.
    #[error("custody is not enabled: enable it in the admission's configuration to take mail")]
    CustodyDisabled,
    /// The bytes are no self-contained transaction: one that refers to its delegation instead of carrying it is none
    /// (law L4.8).
    #[error("no self-contained transaction: {0}; its sender or its carrier is faulty")]
    Encoding(DecodeError),
    /// It is of another class than Application, whose streams do not wait for mail.
    #[error("mail of class {class:?}: only class Application has mail")]
    NotApplication {
        /// The class.
        class: Class,
    },
    /// Held further before it was issued than the tolerance (law L2.4).
    #[error("held at {held_at}, before it was issued at {issued_at}: the carrier's clock is wrong")]
    HeldBeforeIssue {
        /// The hold instant, in wall milliseconds.
        held_at: WallMs,
        /// When it was issued, in wall milliseconds.
        issued_at: WallMs,
    },
    /// Held when it no longer lived (law L2.4).
    #[error("held at {held_at}, when it had expired at {expires_at}: it reached its carrier too late")]
    HeldAfterExpiry {
        /// The hold instant, in wall milliseconds.
        held_at: WallMs,
        /// The first instant at which it no longer lived.
        expires_at: WallMs,
    },
    /// Held further ahead of this node's clock than the tolerance (law L2.4).
    #[error("held at {held_at}, more than {sigma} ms ahead of this node's clock: set the clock that is wrong")]
    HeldInTheFuture {
        /// The hold instant, in wall milliseconds.
        held_at: WallMs,
        /// The tolerance, in milliseconds.
        sigma: u64,
    },
    /// Held for longer than mail may be (law L2.4).
    #[error("held at {held_at}, {hold} ms ago or longer: it came too late")]
    HeldTooLong {
        /// The hold instant, in wall milliseconds.
        held_at: WallMs,
        /// For how long mail may be held, in milliseconds.
        hold: u64,
    },
    /// Its record in custody cannot be restored, and is kept (law L11.1); its window does not know it.
    #[error(
        "its custody record {record} cannot be restored: stop the node and run `admit-one store clear --record {record}`, which gives this mail up"
    )]
    Unavailable {
        /// The record.
        record: RecordName,
    },
    /// As much mail is in custody as may be (law L10.6).
    #[error("{held} mails wait in custody, of {CUSTODY_MAX} at most: take them, and drain the inbox again")]
    RelayCustodyFull {
        /// How many places are taken, by records that cannot be restored too.
        held: usize,
    },
    /// What was to be taken is in custody no more: it was taken, or is spent.
    #[error("not in custody any more: it was taken before, or is spent")]
    NotInCustody,
}

impl MailRefusal {
    /// The name that metrics are labelled with.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::CustodyDisabled => "custody_disabled",
            Self::Encoding(DecodeError::Reference) => "mail_reference",
            Self::Encoding(_) => "mail_encoding",
            Self::NotApplication { .. } => "mail_not_application",
            Self::HeldBeforeIssue { .. } => "held_before_issue",
            Self::HeldAfterExpiry { .. } => "held_after_expiry",
            Self::HeldInTheFuture { .. } => "held_in_the_future",
            Self::HeldTooLong { .. } => "held_too_long",
            Self::Unavailable { .. } => "custody_unavailable",
            Self::RelayCustodyFull { .. } => "relay_custody_full",
            Self::NotInCustody => "not_in_custody",
        }
    }
}
