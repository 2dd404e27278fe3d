//! What a caller shows for a call: signed nonces, proofs of possession and signed approvals, and where they are found in a
//! request.
//!
//! | credential | signed by | over | spent as |
//! | --- | --- | --- | --- |
//! | [`SignedNonce`] | an issuer that this node trusts | subject, operation, method, arguments, the subject's key, and a time | one nonce, until it expires |
//! | [`PossessionProof`] | the subject's key, now | the whole call, its subject, and the nonce that it goes with | one nonce, where it goes with no signed one |
//! | [`SignedApproval`] | an approver that this node trusts | subject, operation, intent, and a time | one approval, until the call's deadline |
//!
//! An [`Extractor`] finds them in a request: `HttpExtractor` in headers (feature `http`), [`EnvelopeExtractor`] in the
//! bytes of a libp2p request, [`AdmittedExtractor`] in a transaction that this node admitted, whose origin is the subject.
//! It reads, and judges nothing: [`nonce`](crate::layer::nonce) and [`approval`](crate::layer::approval) do.
//!
//! Bounds: each credential has an `ENCODED_MAX`; a request carries at most one of each. Where more come, or one that does
//! not decode, the request is refused, never read in part (law L12.8).

mod admitted;
mod approval;
mod envelope;
mod error;
mod extract;
#[cfg(feature = "http")]
pub mod http;
mod possession;
mod presented;
mod refusal;
mod signed_nonce;
#[cfg(test)]
mod tests;

#[cfg(feature = "http")]
pub use self::http::HttpExtractor;
pub use self::{
    admitted::AdmittedExtractor,
    approval::{Approval, SignedApproval},
    envelope::{ENVELOPE_LIMIT, Envelope, EnvelopeExtractor},
    error::{CallError, CallRefusal},
    extract::{AdmittedOrigin, Credentials, Extractor, Presenter},
    possession::{Possession, PossessionProof},
    presented::{Permitted, Presented},
    refusal::{CredentialRefusal, Malformation},
    signed_nonce::{Nonce, SignedNonce},
};
