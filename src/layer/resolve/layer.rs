use tower::Layer;

use super::Resolve;

/// Puts [`Resolve`] in front of a `Service<Resolved>`.
#[derive(Debug, Clone)]
pub struct ResolveLayer {
    frame_limit: usize,
}

impl ResolveLayer {
    pub(in crate::layer) const fn new(frame_limit: usize) -> Self {
        Self { frame_limit }
    }
}

impl<S> Layer<S> for ResolveLayer {
    type Service = Resolve<S>;

    fn layer(&self, inner: S) -> Resolve<S> {
        Resolve::new(self.frame_limit, inner)
    }
}
