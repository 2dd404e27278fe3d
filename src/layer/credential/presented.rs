use bytes::Bytes;

use super::SignedApproval;
use crate::{
    identity::Did,
    layer::single_use::{Call, Capability, Commitment, Mark},
};

/// A request whose credentials were checked, with what is to be consumed for it. Nothing is consumed yet: whoever
/// dispatches it does that, all in one transition ([`DispatchLayer`](crate::layer::effect::DispatchLayer) or
/// [`OperationLayer`](crate::layer::operation::OperationLayer)).
///
/// Only [`NonceLayer`](crate::layer::nonce::NonceLayer) makes one. A handler takes [`Permitted`] instead.
#[derive(Debug)]
pub struct Presented<R> {
    pub(in crate::layer) permitted: Permitted<R>,
    pub(in crate::layer) marks: Vec<Mark>,
    pub(in crate::layer) capabilities: Vec<Capability>,
    pub(in crate::layer) approval: Option<SignedApproval>,
}

/// A request that may run now: all that it shows is durably consumed for it, and for it alone. Only the layers that
/// dispatch make one, so that a handler that takes it cannot be reached around them.
#[derive(Debug)]
pub struct Permitted<R> {
    pub(in crate::layer) request: R,
    pub(in crate::layer) call: Call,
    pub(in crate::layer) arguments: Bytes,
    pub(in crate::layer) commitment: Commitment,
    pub(in crate::layer) subject: Did,
    pub(in crate::layer) key: Did,
}

impl<R> Presented<R> {
    /// The request.
    pub const fn request(&self) -> &R {
        &self.permitted.request
    }

    /// What is asked for.
    pub const fn call(&self) -> &Call {
        &self.permitted.call
    }

    /// The arguments, as they were received.
    pub const fn arguments(&self) -> &Bytes {
        &self.permitted.arguments
    }

    /// Who asks.
    pub const fn subject(&self) -> Did {
        self.permitted.subject
    }

    /// The key that proved itself: the subject's, or one that it delegated to.
    pub const fn key(&self) -> Did {
        self.permitted.key
    }

    /// With another request in place of this one; what was checked and what is to be consumed stay.
    pub fn map<T>(self, map: impl FnOnce(R) -> T) -> Presented<T> {
        let Self { permitted, marks, capabilities, approval } = self;
        Presented { permitted: permitted.map(map), marks, capabilities, approval }
    }
}

impl<R> Permitted<R> {
    /// The request.
    pub const fn request(&self) -> &R {
        &self.request
    }

    /// The request itself, for a handler that asks nothing of how it was permitted.
    pub fn into_request(self) -> R {
        self.request
    }

    /// What is asked for.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The arguments, as they were received.
    pub const fn arguments(&self) -> &Bytes {
        &self.arguments
    }

    /// The hash over the call and its subject.
    pub const fn commitment(&self) -> Commitment {
        self.commitment
    }

    /// Who asks.
    pub const fn subject(&self) -> Did {
        self.subject
    }

    /// The key that proved itself: the subject's, or one that it delegated to.
    pub const fn key(&self) -> Did {
        self.key
    }

    /// With another request in place of this one.
    pub fn map<T>(self, map: impl FnOnce(R) -> T) -> Permitted<T> {
        let Self { request, call, arguments, commitment, subject, key } = self;
        Permitted { request: map(request), call, arguments, commitment, subject, key }
    }
}
