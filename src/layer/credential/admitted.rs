use super::{AdmittedOrigin, CredentialRefusal, Credentials, EnvelopeExtractor, Extractor, Presenter};
use crate::layer::Admitted;

/// Finds credentials in the data of a transaction that this node admitted: an [`Envelope`](super::Envelope) behind the
/// head that the classifier reads. Its origin is the subject, unless the envelope carries a proof of another one's.
#[derive(Debug, Clone, Copy)]
pub struct AdmittedExtractor {
    envelope: EnvelopeExtractor,
    head: fn(&Admitted) -> usize,
}

impl AdmittedExtractor {
    /// Under the default classifier, [`TagClassifier`](crate::message::TagClassifier).
    pub const fn new() -> Self {
        Self { envelope: EnvelopeExtractor::new(), head: tag_head }
    }

    /// Under another classifier: `head` says how many bytes of the data stand before the envelope.
    #[must_use]
    pub const fn head(self, head: fn(&Admitted) -> usize) -> Self {
        Self { head, ..self }
    }

    /// Takes envelopes of at most `limit` bytes.
    #[must_use]
    pub const fn limit(self, limit: usize) -> Self {
        Self { envelope: self.envelope.limit(limit), ..self }
    }
}

impl Default for AdmittedExtractor {
    fn default() -> Self {
        Self::new()
    }
}

/// The tag, and for an application its namespace behind one byte of length.
fn tag_head(admitted: &Admitted) -> usize {
    admitted.namespace().map_or(1, |namespace| namespace.len().saturating_add(2))
}

impl Extractor<Admitted> for AdmittedExtractor {
    fn extract(&self, request: &Admitted) -> Result<Credentials, CredentialRefusal> {
        let data = request.data();
        let envelope = data.slice((self.head)(request).min(data.len())..);
        self.envelope.decode(&envelope)?.present(Some(Presenter::Origin(AdmittedOrigin::of(request))))
    }
}
