use tower::Layer;

use super::DispatchService;
use crate::layer::single_use::SingleUse;

/// Consumes what was presented, and calls the handler for it once. See the [module](super).
#[derive(Debug, Clone)]
pub struct DispatchLayer {
    pub(super) single_use: SingleUse,
}

impl DispatchLayer {
    /// Over this store, which the layers in front of it must share.
    pub const fn new(single_use: SingleUse) -> Self {
        Self { single_use }
    }
}

impl<S> Layer<S> for DispatchLayer {
    type Service = DispatchService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DispatchService::new(self.clone(), inner)
    }
}
