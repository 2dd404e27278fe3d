use std::sync::Arc;

use bytes::Bytes;

use crate::{
    clock::WallMs,
    identity::{Delegation, Did},
    layer::{
        Refusal,
        boundary::{Admission, Pending, Request},
        verify::VerifiedMail,
        window::Verdict,
    },
    message::{Incarnation, TransactionDigest, TxId},
};

/// Mail in custody, durably, and offered to the application. Only [`Inbox::receive`](super::Inbox::receive) makes one, and
/// one at a time of the same mail. It says what the mail is, and shows nothing of it.
///
/// Dropping it leaves the mail in custody, to be redelivered.
#[derive(Debug)]
#[must_use = "mail stays in custody until it is taken"]
pub struct Offered {
    pub(super) verified: VerifiedMail,
    pub(super) request: Request,
    pub(super) verdict: Verdict,
    pub(super) pending: Pending,
    pub(super) admission: Admission,
}

/// Mail that this node has admitted and taken, durably and for the first and only time. Only [`Offered::take`] makes one,
/// so who handles it cannot be reached around admission.
#[derive(Debug)]
pub struct Taken {
    verified: VerifiedMail,
    verdict: Verdict,
}

impl Offered {
    /// Who it is from: the delegator, or the key itself (law L1.3).
    pub const fn origin(&self) -> Did {
        self.verified.stream().origin
    }

    /// The application's namespace.
    pub fn namespace(&self) -> Option<&[u8]> {
        self.verified.namespace()
    }

    /// What the origin signed: the transaction's own name, the same however it was carried.
    pub const fn digest(&self) -> TransactionDigest {
        self.verified.digest
    }

    /// The name that its origin gave it.
    pub const fn tx_id(&self) -> TxId {
        self.verified.content().tx_id
    }

    /// Where it fell in its stream's window, or that it was in custody and is redelivered.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes the mail out of custody, and shows it once that is durable. After this its carrier may delete it.
    ///
    /// The future may be dropped: the mail may then be lost, as in a crash, and is never shown twice.
    ///
    /// # Errors
    /// [`Refusal`]: nothing is shown. Where the store failed, the mail is in custody still, and is redelivered; where its
    /// namespace was withdrawn since it was admitted (law L6.4), or it is not in custody any more, it is gone.
    pub async fn take(self) -> Result<Taken, Refusal> {
        let Self { verified, request, verdict, pending, admission } = self;
        let marks = admission.marks();
        match admission.take(&request).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => return Err(Refusal::from(refusal).logged()),
            Err(failed) => return Err(Refusal::from(failed).counted()),
        }
        // What the take returns is handed over: a withdrawal of the namespace waits for it, or is seen here.
        let taken = admission.hand_over(&request, marks, || Taken { verified, verdict }).await;
        drop(pending);
        taken.map_err(|refusal| Refusal::from(refusal).logged())
    }
}

impl Taken {
    /// Who it is from: the delegator, or the key itself (law L1.3).
    pub const fn origin(&self) -> Did {
        self.verified.stream().origin
    }

    /// Whom it is for: this node.
    pub const fn destination(&self) -> Did {
        self.verified.content().destination
    }

    /// The application's namespace.
    pub fn namespace(&self) -> Option<&[u8]> {
        self.verified.namespace()
    }

    /// The message, the classifier's head included. A clone of it shares the mail's memory.
    pub const fn data(&self) -> &Bytes {
        &self.verified.content().data
    }

    /// The name that its origin gave it.
    pub const fn tx_id(&self) -> TxId {
        self.verified.content().tx_id
    }

    /// Which life of the stream's numbering its sequence belongs to.
    pub const fn incarnation(&self) -> Incarnation {
        self.verified.content().incarnation
    }

    /// Its place in its stream. A gap before it is no evidence of anything (law L5.3).
    pub const fn sequence(&self) -> u64 {
        self.verified.content().sequence
    }

    /// When it was signed, in wall milliseconds by its origin's clock.
    pub const fn issued_at(&self) -> WallMs {
        self.verified.content().issued_at
    }

    /// When its carrier took it in, by the carrier's word.
    pub const fn held_at(&self) -> WallMs {
        self.verified.held_at
    }

    /// What the origin signed: the transaction's own name, the same however it was carried.
    pub const fn digest(&self) -> TransactionDigest {
        self.verified.digest
    }

    /// The delegation that its signer speaks under, if it does not speak for itself.
    pub fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.verified.delegation()
    }

    /// Where it fell in its stream's window, or that it was redelivered.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }
}
