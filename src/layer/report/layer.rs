use tower::Layer;

use super::Report;

/// Puts [`Report`] around the steps of the way in.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportLayer;

impl<S> Layer<S> for ReportLayer {
    type Service = Report<S>;

    fn layer(&self, inner: S) -> Report<S> {
        Report::new(inner)
    }
}
