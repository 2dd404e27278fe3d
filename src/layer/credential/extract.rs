use std::fmt;

use bytes::Bytes;

use super::{CredentialRefusal, PossessionProof, SignedApproval, SignedNonce};
use crate::{
    identity::{Delegation, DelegationDigest, Did},
    layer::{Admitted, single_use::Call},
};

/// Finds what a request asks for and what it shows for it. It judges nothing of what it finds: that a request has one of
/// each at most, and that it decodes, is all that it says.
pub trait Extractor<R>: fmt::Debug + Send + Sync + 'static {
    /// Reads `request`.
    ///
    /// # Errors
    /// [`CredentialRefusal::Missing`], [`CredentialRefusal::Duplicate`] or [`CredentialRefusal::Malformed`], never what a
    /// part of it says (law L12.8).
    fn extract(&self, request: &R) -> Result<Credentials, CredentialRefusal>;
}

/// What a request asks for, and what it shows for it. Nothing of it is judged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(in crate::layer) call: Call,
    pub(in crate::layer) arguments: Bytes,
    pub(in crate::layer) presenter: Presenter,
    pub(in crate::layer) nonce: Option<SignedNonce>,
    pub(in crate::layer) approval: Option<SignedApproval>,
}

impl Credentials {
    /// What `presenter` shows for `call` with these arguments, as they were received; takes their hash.
    pub fn new(call: Call, arguments: Bytes, presenter: Presenter) -> Self {
        let call = Call { arguments: Call::hash_arguments(&arguments), ..call };
        Self { call, arguments, presenter, nonce: None, approval: None }
    }

    /// Shows an issuer's nonce too.
    #[must_use]
    pub fn nonce(mut self, nonce: Option<SignedNonce>) -> Self {
        self.nonce = nonce;
        self
    }

    /// Shows an approver's approval too.
    #[must_use]
    pub fn approval(mut self, approval: Option<SignedApproval>) -> Self {
        self.approval = approval;
        self
    }
}

/// Who asks, and by what this is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presenter {
    /// The subject signed this call.
    Proof(PossessionProof),
    /// The subject is the origin of a transaction that this node admitted.
    Origin(AdmittedOrigin),
}

/// The origin of a transaction that this node admitted. It has signed the call with the transaction, and admission has
/// taken that once: nothing of it is left to prove or to spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedOrigin {
    origin: Did,
    key: Did,
    delegation: Option<DelegationDigest>,
}

impl AdmittedOrigin {
    /// Of this transaction.
    pub fn of(admitted: &Admitted) -> Self {
        let origin = admitted.origin();
        let delegation = admitted.delegation();
        let key = delegation.map_or(origin, |delegation| delegation.delegatee());
        Self { origin, key, delegation: delegation.map(|delegation| Delegation::digest(delegation)) }
    }

    /// Who the transaction is from.
    pub const fn origin(&self) -> Did {
        self.origin
    }

    /// The key that signed it: the origin's, or one that it delegated to.
    pub const fn key(&self) -> Did {
        self.key
    }

    /// The delegation that it was signed under.
    pub const fn delegation(&self) -> Option<DelegationDigest> {
        self.delegation
    }
}
