use bytes::Bytes;

use super::{
    Verified, VerifyLayer,
    judge::{Signatures, Speaker},
};
use crate::{
    identity::Did,
    layer::{Refusal, Signatory, reassembly::ChunkRefusal},
    message::{Classified, Payload, Transaction, TransactionDigest},
};

impl VerifyLayer {
    /// This node.
    pub(in crate::layer) fn local(&self) -> Did {
        self.rules.local
    }

    /// Judges what the chunks of `original` joined to, of which `chunk` came last (law L2.8): as a frame is judged (laws
    /// L1 and L2), but that the facts of its link are the chunk's, and that it must be what its chunks say. `whole_link`:
    /// all of them came on that link. Whether it lives is decided by the boundary.
    pub(in crate::layer) fn judge_original(
        &self,
        encoded: Bytes,
        original: TransactionDigest,
        chunk: Verified,
        whole_link: bool,
    ) -> Result<Verified, Refusal> {
        let rules = &*self.rules;
        let transaction = Transaction::decode_self_contained(encoded).map_err(ChunkRefusal::Original)?;
        let content = &transaction.content;
        let origin = Speaker::of(&transaction.proof, Signatory::Origin)?;
        let Classified { class, namespace, head } = rules.classifier.classify(&content.data)?;
        let of_chunk = chunk.content();
        let agreed = [
            (content.destination == of_chunk.destination, "destination"),
            (content.tx_id == of_chunk.tx_id, "tx_id"),
            (content.incarnation == of_chunk.incarnation, "incarnation"),
            (content.sequence == of_chunk.sequence, "sequence"),
            (content.issued_at == of_chunk.issued_at, "issued-at"),
            (content.ttl == of_chunk.ttl, "ttl"),
            (origin.on_behalf_of == chunk.origin, "origin"),
            (class == chunk.class, "class"),
            (content.data.get(..head) == of_chunk.data.get(..chunk.head), "head"),
        ];
        if let Some((_, field)) = agreed.into_iter().find(|(alike, _)| !alike) {
            return Err(ChunkRefusal::Mismatch { field }.into());
        }
        let digest = content.digest(rules.network, &origin.on_behalf_of, class);
        if digest != original {
            return Err(ChunkRefusal::Mismatch { field: "digest" }.into());
        }

        origin.may_speak_at(content.issued_at, rules.sigma)?;
        origin.may_speak_at(self.clock.wall(), rules.sigma)?;
        let mut signatures = Signatures::default();
        signatures.delegation(&origin, &self.known);
        signatures.proof(&origin, digest.0, Refusal::OriginSignature { key: origin.key });
        signatures.verify(&self.known)?;

        let payload = Payload { transaction, ..chunk.payload };
        let mut verified = Verified { payload, namespace, head, digest, whole_link, ..chunk };
        verified.trace();
        Ok(verified)
    }
}
