use std::{fmt, sync::Arc};

use tower::Layer;

use super::{NonceService, check::Rules};
use crate::{identity::Did, layer::single_use::SingleUse};

/// The longest that a proof of possession may hold unless told otherwise, in seconds.
pub const DEFAULT_POSSESSION_LIFETIME_S: u32 = 60;

/// Checks what requests show, and hands those that may be dispatched to a `Service<Presented<R>>`. See the
/// [module](super).
pub struct NonceLayer<X> {
    pub(super) shared: Arc<Shared<X>>,
}

#[derive(Debug)]
pub(super) struct Shared<X> {
    pub(super) single_use: SingleUse,
    pub(super) extractor: X,
    pub(super) rules: Rules,
}

impl<X> NonceLayer<X> {
    /// Finds credentials with `extractor`, and trusts the nonces of `issuers`. Where there are none, no signed nonce is
    /// needed: the proof's own nonce is consumed in its place, and of an admitted transaction nothing is.
    ///
    /// An issuer's nonces belong to one store. Two stores that trust one issuer, and serve one tenant, would each take one.
    pub fn new(single_use: SingleUse, extractor: X, issuers: impl IntoIterator<Item = Did>) -> Self {
        let rules = Rules {
            issuers: issuers.into_iter().collect(),
            possession_lifetime: i64::from(DEFAULT_POSSESSION_LIFETIME_S),
            sigma: single_use.config().sigma_ms,
            greatest_lifetime: i64::try_from(single_use.config().greatest_lifetime_s).unwrap_or(i64::MAX),
        };
        Self { shared: Arc::new(Shared { single_use, extractor, rules }) }
    }

    /// Takes proofs of possession that expire within `seconds`; default [`DEFAULT_POSSESSION_LIFETIME_S`].
    #[must_use]
    pub fn possession_lifetime(self, seconds: u32) -> Self
    where
        X: Clone,
    {
        let Shared { single_use, extractor, rules } = &*self.shared;
        let rules = Rules { possession_lifetime: i64::from(seconds), ..rules.clone() };
        Self { shared: Arc::new(Shared { single_use: single_use.clone(), extractor: extractor.clone(), rules }) }
    }
}

impl<X> Clone for NonceLayer<X> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<X: fmt::Debug> fmt::Debug for NonceLayer<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceLayer")
            .field("extractor", &self.shared.extractor)
            .field("rules", &self.shared.rules)
            .finish()
    }
}

impl<X, S> Layer<S> for NonceLayer<X> {
    type Service = NonceService<X, S>;

    fn layer(&self, inner: S) -> Self::Service {
        NonceService::new(self.clone(), inner)
    }
}
