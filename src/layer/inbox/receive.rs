use bytes::Bytes;

use super::Offered;
use crate::{
    clock::WallMs,
    layer::{
        Refusal,
        admit::AdmitLayer,
        boundary::{Application, Carrier, Request},
        custody::MailRefusal,
        local::Namespace,
        verify::VerifyLayer,
    },
    message::{CutError, Transaction},
};

/// What a carrier held for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The transaction, as [`Mail::encode`] gives it.
    pub transaction: Bytes,
    /// When the carrier took it in, in wall milliseconds.
    pub held_at: WallMs,
}

impl Mail {
    /// The self-contained encoding of a whole transaction, to be left with a carrier. Its sequence is reserved with
    /// [`Leases::reserve_mail`](crate::storage::lease::Leases::reserve_mail), and its data is of class `Application`.
    ///
    /// # Errors
    /// [`CutError`]: it is a chunk, refers to a delegation, or is over the message limit.
    pub fn encode(transaction: &Transaction) -> Result<Bytes, CutError> {
        transaction.encode_self_contained()
    }
}

/// Where an application gives its mail to. Cheap to clone; see the [module](super).
#[derive(Debug, Clone)]
pub struct Inbox {
    verify: VerifyLayer,
    admit: AdmitLayer,
}

impl Inbox {
    pub(in crate::layer) const fn new(verify: VerifyLayer, admit: AdmitLayer) -> Self {
        Self { verify, admit }
    }

    /// Verifies mail and admits it, or finds it in custody, and returns once that is durable. The mail must stay with its
    /// carrier until it is taken.
    ///
    /// Dropping the future leaves the mail in custody if it was admitted.
    ///
    /// # Errors
    /// [`Refusal`]; nothing of the mail was kept.
    pub async fn receive(&self, mail: Mail) -> Result<Offered, Refusal> {
        let shared = &self.admit.shared;
        if !shared.admission.config().custody {
            return Err(Refusal::from(MailRefusal::CustodyDisabled).counted());
        }
        let verified = self.verify.judge_mail(mail.transaction, mail.held_at).map_err(Refusal::counted)?;
        let content = verified.content();
        let request = Request {
            stream: verified.stream(),
            incarnation: content.incarnation,
            sequence: content.sequence,
            digest: verified.digest,
            issued_at: content.issued_at,
            ttl: content.ttl,
            bytes: content.data.len() as u64,
            application: Some(Application {
                classifier: shared.classifier,
                namespace: verified.namespace().and_then(|namespace| Namespace::new(namespace).ok()),
                own_link: None,
            }),
            carrier: Carrier::Inbox { held_at: verified.held_at },
        };
        let (ticket, pending) = shared.admission.offer(request);
        match (ticket.await, pending) {
            (Ok(Ok(verdict)), Some(pending)) => {
                tracing::debug!(?verdict, digest = %verified.digest, "mail is offered");
                Ok(Offered { verified, request, verdict, pending, admission: shared.admission.clone() })
            }
            (Ok(Ok(_)), None) => unreachable!("what an inbox brings is offered where it is accepted"),
            (Ok(Err(refusal)), _) => Err(shared.explain(request.stream, verified.transaction, refusal).await.logged()),
            (Err(failed), _) => Err(Refusal::from(failed).counted()),
        }
    }
}
