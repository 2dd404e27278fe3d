use std::{num::NonZeroUsize, sync::Arc};

use tower::Layer;

use super::Admit;
use crate::{
    identity::{Did, Signer},
    layer::{
        Refusal,
        boundary::{Admission, BoundaryRefusal},
        dispatch::Turns,
        window::ForkEvidence,
    },
    message::{ClassifierId, StreamKey, Transaction},
};

/// Puts [`Admit`] in front of a handler. All its services share one boundary and one order of turns.
#[derive(Debug, Clone)]
pub struct AdmitLayer {
    pub(in crate::layer) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(in crate::layer) struct Shared {
    pub(in crate::layer) local: Did,
    pub(in crate::layer) classifier: ClassifierId,
    pub(in crate::layer) admission: Admission,
    pub(super) turns: Turns,
    evidence: Option<Arc<dyn Signer>>,
}

impl Shared {
    /// What the boundary refused, with this node's evidence where it is a fork and there is a key to sign with.
    pub(in crate::layer) async fn explain(
        &self,
        stream: StreamKey,
        transaction: Transaction,
        refusal: BoundaryRefusal,
    ) -> Refusal {
        let mut refusal = Refusal::from(refusal);
        if let (Refusal::Fork { kept, evidence, .. }, Some(signer)) = (&mut refusal, &self.evidence) {
            match ForkEvidence::sign(stream, *kept, transaction, &**signer).await {
                Ok(signed) => *evidence = Some(Box::new(signed)),
                Err(error) => tracing::warn!(%error, "a fork is refused without evidence"),
            }
        }
        refusal
    }
}

impl AdmitLayer {
    pub(in crate::layer) fn new(
        local: Did,
        classifier: ClassifierId,
        admission: Admission,
        concurrency: NonZeroUsize,
        evidence: Option<Arc<dyn Signer>>,
    ) -> Self {
        let turns = Turns::new(concurrency, admission.config().shares.slots);
        Self { shared: Arc::new(Shared { local, classifier, admission, turns, evidence }) }
    }
}

impl<H> Layer<H> for AdmitLayer {
    type Service = Admit<H>;

    fn layer(&self, handler: H) -> Admit<H> {
        Admit::new(self.clone(), handler)
    }
}
