use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    VerifyLayer,
    judge::{Signatures, Speaker},
};
use crate::{
    clock::WallMs,
    identity::{Delegation, Did},
    layer::{
        Refusal, Signatory,
        custody::{Held, MailRefusal, live},
    },
    message::{Class, Classified, Content, MAIL_HOLD_MS, NetworkId, StreamKey, Transaction, TransactionDigest},
};

/// A transaction whose origin's proof holds, and which came as mail. Only [`VerifyLayer::judge_mail`] makes one.
#[derive(Debug)]
pub(in crate::layer) struct VerifiedMail {
    pub(in crate::layer) transaction: Transaction,
    pub(in crate::layer) held_at: WallMs,
    pub(in crate::layer) digest: TransactionDigest,
    network: NetworkId,
    origin: Did,
    class: Class,
    namespace: Option<Range<usize>>,
}

impl VerifyLayer {
    /// Judges mail: its self-contained encoding, and when its carrier took it in (law L10.6). The checks go from cheap to
    /// dear, as those of a frame do:
    ///
    /// 1. it decodes whole; a reference to a delegation is refused (law L4.8);
    /// 2. it is for this node;
    /// 3. it is of class `Application`;
    /// 4. it lives as of its hold instant (law L2.4), early to save the signatures: the boundary alone decides;
    /// 5. the origin's delegation is valid at issued-at and at the hold instant (law L1.2);
    /// 6. the signatures: of a delegation not verified before, and of the origin.
    ///
    /// There is no hop proof. A hop's says that this copy comes from the connection's peer and is for this node
    /// (law L2.5); mail comes from no connection, and whoever holds it could sign one by any key. What it is, who it is
    /// from and that it is for this node is what the origin signed.
    pub(in crate::layer) fn judge_mail(&self, encoded: Bytes, held_at: WallMs) -> Result<VerifiedMail, Refusal> {
        let rules = &*self.rules;
        let transaction = Transaction::decode_self_contained(encoded).map_err(MailRefusal::Encoding)?;
        let content = &transaction.content;
        if content.destination != rules.local {
            return Err(Refusal::NoRoute { destination: content.destination });
        }
        let origin = Speaker::of(&transaction.proof, Signatory::Origin)?;
        let Classified { class, namespace, .. } = rules.classifier.classify(&content.data)?;
        if class != Class::Application {
            return Err(MailRefusal::NotApplication { class }.into());
        }

        if content.ttl > rules.greatest_ttl {
            return Err(Refusal::TtlTooLong { ttl: content.ttl, greatest: rules.greatest_ttl });
        }
        let (wall, sigma) = (self.clock.wall(), rules.sigma);
        let (issued_at, expires_at) = (content.issued_at, content.expires_at());
        if issued_at.saturating_sub(sigma) > wall {
            return Err(Refusal::FromTheFuture { issued_at, sigma });
        }
        live(Held { issued_at, expires_at, held_at }, wall, sigma, MAIL_HOLD_MS)?;
        origin.may_speak_at(issued_at, sigma)?;
        origin.may_speak_at(held_at, sigma)?;

        let digest = content.digest(rules.network, &origin.on_behalf_of, class);
        let mut signatures = Signatures::default();
        signatures.delegation(&origin, &self.known);
        signatures.proof(&origin, digest.0, Refusal::OriginSignature { key: origin.key });
        signatures.verify(&self.known)?;

        let (network, origin) = (rules.network, origin.on_behalf_of);
        Ok(VerifiedMail { transaction, held_at, digest, network, origin, class, namespace })
    }
}

impl VerifiedMail {
    pub(in crate::layer) const fn content(&self) -> &Content {
        &self.transaction.content
    }

    pub(in crate::layer) const fn stream(&self) -> StreamKey {
        StreamKey {
            network: self.network,
            origin: self.origin,
            destination: self.content().destination,
            class: self.class,
        }
    }

    pub(in crate::layer) fn namespace(&self) -> Option<&[u8]> {
        self.content().data.get(self.namespace.clone()?)
    }

    pub(in crate::layer) fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.transaction.proof.slot.delegation()
    }
}
