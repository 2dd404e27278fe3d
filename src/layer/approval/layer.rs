use std::{fmt, sync::Arc};

use tower::Layer;

use super::{ApprovalService, check::Rules};
use crate::{
    identity::Did,
    layer::single_use::{Call, SingleUse},
};

/// Checks that calls are approved, and hands them on with the approval's mark. See the [module](super).
#[derive(Clone)]
pub struct ApprovalLayer {
    pub(super) single_use: SingleUse,
    pub(super) rules: Rules,
    pub(super) needed: fn(&Call) -> bool,
}

impl ApprovalLayer {
    /// Trusts the approvals of `approvers`; every call needs one.
    pub fn new(single_use: SingleUse, approvers: impl IntoIterator<Item = Did>) -> Self {
        let rules = Rules {
            approvers: approvers.into_iter().collect::<Arc<[Did]>>(),
            sigma: single_use.config().sigma_ms,
            greatest_lifetime: i64::try_from(single_use.config().greatest_lifetime_s).unwrap_or(i64::MAX),
        };
        Self { single_use, rules, needed: |_| true }
    }

    /// Needs an approval for those calls alone of which `needed` says so. One that others show is not looked at, and stays
    /// as good as it was.
    #[must_use]
    pub const fn needed_where(mut self, needed: fn(&Call) -> bool) -> Self {
        self.needed = needed;
        self
    }
}

impl fmt::Debug for ApprovalLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalLayer").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ApprovalLayer {
    type Service = ApprovalService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ApprovalService::new(self.clone(), inner)
    }
}
