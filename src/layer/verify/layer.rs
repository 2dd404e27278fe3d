use std::{fmt, sync::Arc};

use tower::Layer;

use super::{KnownDelegations, Verify, delegations::KNOWN_DELEGATIONS, judge::Rules};
use crate::clock::Clock;

/// Puts [`Verify`] in front of a `Service<Verified>`. All its services share one memory of verified delegations.
#[derive(Clone)]
pub struct VerifyLayer {
    pub(super) rules: Arc<Rules>,
    pub(super) known: Arc<KnownDelegations>,
    pub(super) clock: Arc<dyn Clock>,
}

impl VerifyLayer {
    pub(in crate::layer) fn new(rules: Rules, clock: Arc<dyn Clock>) -> Self {
        Self { rules: Arc::new(rules), known: Arc::new(KnownDelegations::new(KNOWN_DELEGATIONS)), clock }
    }
}

impl<S> Layer<S> for VerifyLayer {
    type Service = Verify<S>;

    fn layer(&self, inner: S) -> Verify<S> {
        Verify::new(self.clone(), inner)
    }
}

impl fmt::Debug for VerifyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyLayer").field("rules", &self.rules).finish_non_exhaustive()
    }
}
