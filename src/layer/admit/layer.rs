use std::{num::NonZeroUsize, sync::Arc};

use tower::Layer;

use super::Admit;
use crate::{
    identity::{Did, Signer},
    layer::{boundary::Admission, dispatch::Turns},
    message::ClassifierId,
};

/// Puts [`Admit`] in front of a handler. All its services share one boundary and one order of turns.
#[derive(Debug, Clone)]
pub struct AdmitLayer {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) local: Did,
    pub(super) classifier: ClassifierId,
    pub(super) admission: Admission,
    pub(super) turns: Turns,
    pub(super) evidence: Option<Arc<dyn Signer>>,
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
