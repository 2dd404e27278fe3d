//! Who speaks: keys, delegations between them, and proofs.
//!
//! A [`Did`] is an Ed25519 key. It may let another key sign for it by a [`Delegation`]; who a statement is *from*
//! is then the delegator, so that rotating the delegatee changes nothing for a receiver (law L1.3). A [`Proof`]
//! names its key in a [`Slot`] and carries the signature. [`Signer`] is the signing half, [`Check`] the verifying
//! half.

mod check;
mod delegation;
mod did;
mod proof;
mod signer;

pub use check::{BadSignature, Check, verify_all};
pub use delegation::{DEFAULT_DELEGATION_TTL_MS, Delegation, DelegationDigest, DelegationError};
pub use did::{Did, DidError};
pub use proof::{Proof, Signature, Slot};
pub use signer::{KeySigner, SignError, Signer};

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) const FUZZ: [crate::fuzzing::Target; 2] = [did::FUZZ, delegation::FUZZ];
