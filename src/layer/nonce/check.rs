//! The pure core of a nonce's checks: rules, credentials and the time in; what is to be consumed, or a refusal, out.

use std::sync::Arc;

use crate::{
    clock::WallMs,
    identity::{Check, Did, Slot, verify_all},
    layer::{
        credential::{AdmittedOrigin, CredentialRefusal, Credentials, PossessionProof, Presenter, SignedNonce},
        single_use::{Capability, Commitment, Mark, MarkId, MarkKind, WireError},
    },
};

const NONCE_CONTEXT: &str = "admit-one nonce mark";
const POSSESSION_CONTEXT: &str = "admit-one possession mark";

pub(super) const CALL: &str = "call";
pub(super) const NONCE: &str = "signed nonce";
pub(super) const POSSESSION: &str = "proof of possession";
pub(super) const DELEGATION: &str = "delegation";

/// What a node checks by.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// Whose nonces are trusted. Where there are none, no signed nonce is needed.
    pub(super) issuers: Arc<[Did]>,
    /// The longest that a proof of possession may hold, in seconds.
    pub(super) possession_lifetime: i64,
    /// The clock tolerance in milliseconds.
    pub(super) sigma: u64,
    /// How far ahead a credential may expire, in seconds.
    pub(super) greatest_lifetime: i64,
}

/// What the checks found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) commitment: Commitment,
    pub(super) subject: Did,
    pub(super) key: Did,
    pub(super) mark: Option<Mark>,
    pub(super) capabilities: Vec<Capability>,
}

/// Checks `credentials` at wall clock `now`: shape, then time, then binding, then signature (law L12.1), each of the
/// call, the signed nonce and the proof in this order.
pub(super) fn check(rules: &Rules, credentials: &Credentials, now: WallMs) -> Result<Checked, CredentialRefusal> {
    let Credentials { call, presenter, nonce, .. } = credentials;
    let nonce = nonce.as_ref();

    let malformed = |what| move |error: WireError| CredentialRefusal::Malformed { what, reason: error.into() };
    call.check().map_err(malformed(CALL))?;
    match nonce {
        Some(signed) => signed.nonce.check_shape().map_err(malformed(NONCE))?,
        None if rules.issuers.is_empty() => {}
        None => return Err(CredentialRefusal::Missing { what: NONCE }),
    }
    let speaker = Speaker::of(presenter)?;

    let times = Times { now, sigma: rules.sigma };
    if let Some(issued_at) = call.issued_at {
        times.begun(CALL, issued_at)?;
    }
    if let Some(deadline) = call.deadline.filter(|deadline| times.is_over(*deadline)) {
        return Err(CredentialRefusal::DeadlinePassed { deadline });
    }
    if let Some(SignedNonce { nonce, .. }) = nonce {
        times.hold(NONCE, nonce.issued_at, nonce.expires_at, rules.greatest_lifetime)?;
    }
    if let Some(PossessionProof { possession, .. }) = speaker.proof {
        let greatest = rules.possession_lifetime.min(rules.greatest_lifetime);
        times.hold(POSSESSION, possession.issued_at, possession.expires_at, greatest)?;
        speaker.may_speak_at(possession.issued_at, &times)?;
    }

    let commitment = Commitment::of(call, &speaker.subject);
    if let Some(signed) = nonce {
        let SignedNonce { nonce, .. } = signed;
        if !rules.issuers.contains(&nonce.issuer) {
            return Err(CredentialRefusal::Untrusted { what: NONCE, signer: nonce.issuer });
        }
        let bound = [
            ("subject", nonce.subject == speaker.subject),
            ("tenant", nonce.tenant == call.tenant),
            ("request id", nonce.request_id == call.request_id),
            ("method", nonce.method == call.method),
            ("arguments", nonce.arguments == call.arguments),
            ("key", nonce.key == speaker.key),
        ];
        all_bound(NONCE, &bound)?;
    }
    let authority = nonce.map(SignedNonce::digest);
    if let Some(PossessionProof { possession, .. }) = speaker.proof {
        let bound = [(CALL, possession.commitment == commitment), (NONCE, possession.authority == authority)];
        all_bound(POSSESSION, &bound)?;
    }

    let mut signatures: Vec<(Check, &'static str)> = Vec::with_capacity(3);
    signatures.extend(nonce.map(|signed| (signed.check(), NONCE)));
    if let Some(proof) = speaker.proof {
        signatures.extend(proof.proof.slot.delegation().map(|delegation| (delegation.check(), DELEGATION)));
        signatures.extend(proof.check().map(|check| (check, POSSESSION)));
    }
    let (checks, names): (Vec<_>, Vec<_>) = signatures.into_iter().unzip();
    verify_all(&checks).map_err(|(place, _)| CredentialRefusal::BadSignature {
        what: names.get(place).copied().unwrap_or(POSSESSION),
    })?;

    Ok(Checked {
        commitment,
        subject: speaker.subject,
        key: speaker.key,
        mark: match (nonce, speaker.proof) {
            (Some(signed), _) => Some(nonce_mark(signed, &speaker)),
            (None, Some(proof)) => Some(possession_mark(proof, &speaker)),
            (None, None) => None,
        },
        capabilities: speaker.capabilities(nonce.zip(authority)),
    })
}

/// Who asks.
struct Speaker<'a> {
    subject: Did,
    key: Did,
    proof: Option<&'a PossessionProof>,
    origin: Option<&'a AdmittedOrigin>,
}

impl<'a> Speaker<'a> {
    fn of(presenter: &'a Presenter) -> Result<Self, CredentialRefusal> {
        match presenter {
            Presenter::Origin(origin) => {
                Ok(Self { subject: origin.origin(), key: origin.key(), proof: None, origin: Some(origin) })
            }
            Presenter::Proof(proof) => {
                let malformed =
                    |error: WireError| CredentialRefusal::Malformed { what: POSSESSION, reason: error.into() };
                proof.check_shape().map_err(malformed)?;
                let missing = WireError::Reference { field: "subject's slot" };
                let (subject, key) = proof.speaker().ok_or(missing).map_err(malformed)?;
                Ok(Self { subject, key, proof: Some(proof), origin: None })
            }
        }
    }

    /// Law L1.2: a delegation is valid both when the proof was signed and now.
    fn may_speak_at(&self, issued_at: i64, times: &Times) -> Result<(), CredentialRefusal> {
        let Some(Slot::Inline(delegation)) = self.proof.map(|proof| &proof.proof.slot) else { return Ok(()) };
        let seconds = |instant: WallMs| i64::try_from(instant / 1_000).unwrap_or(i64::MAX);
        let end = delegation.issued_at().saturating_add(delegation.ttl());
        for instant in [milliseconds(issued_at), times.now] {
            if delegation.valid_at(instant, times.sigma) {
                continue;
            }
            return Err(if instant >= end {
                CredentialRefusal::Expired { what: DELEGATION, expires_at: seconds(end) }
            } else {
                CredentialRefusal::NotYetValid { what: DELEGATION, issued_at: seconds(delegation.issued_at()) }
            });
        }
        Ok(())
    }

    /// Until when the key is proven: the proof's end, or that of its delegation where it comes first.
    fn proves_until(&self) -> Option<i64> {
        let proof = self.proof?;
        let delegation = proof.proof.slot.delegation().map(|delegation| {
            let end = delegation.issued_at().saturating_add(delegation.ttl());
            i64::try_from(end / 1_000).unwrap_or(i64::MAX)
        });
        Some(delegation.map_or(proof.possession.expires_at, |end| end.min(proof.possession.expires_at)))
    }

    /// What can be revoked of what was shown: keys, the delegation, and the signed nonce.
    fn capabilities(&self, nonce: Option<(&SignedNonce, [u8; 32])>) -> Vec<Capability> {
        let delegation = match (self.proof, self.origin) {
            (Some(proof), _) => proof.proof.slot.delegation().map(|delegation| delegation.digest()),
            (None, Some(origin)) => origin.delegation(),
            (None, None) => None,
        };
        let mut capabilities = vec![Capability(*self.subject.as_bytes())];
        if self.key != self.subject {
            capabilities.push(Capability(*self.key.as_bytes()));
        }
        capabilities.extend(delegation.map(|digest| Capability(digest.0)));
        if let Some((signed, digest)) = nonce {
            capabilities.extend([Capability(*signed.nonce.issuer.as_bytes()), Capability(digest)]);
        }
        capabilities
    }
}

/// The time that credentials are judged at, and the tolerance for who issued them.
pub(in crate::layer) struct Times {
    pub(in crate::layer) now: WallMs,
    pub(in crate::layer) sigma: u64,
}

impl Times {
    fn begun(&self, what: &'static str, issued_at: i64) -> Result<(), CredentialRefusal> {
        if milliseconds(issued_at) > self.now.saturating_add(self.sigma) {
            return Err(CredentialRefusal::NotYetValid { what, issued_at });
        }
        Ok(())
    }

    fn is_over(&self, end: i64) -> bool {
        self.now >= milliseconds(end)
    }

    /// Whether a credential holds now, and ends within `greatest` seconds.
    pub(in crate::layer) fn hold(
        &self,
        what: &'static str,
        issued_at: i64,
        expires_at: i64,
        greatest: i64,
    ) -> Result<(), CredentialRefusal> {
        self.begun(what, issued_at)?;
        if self.is_over(expires_at) {
            return Err(CredentialRefusal::Expired { what, expires_at });
        }
        if milliseconds(expires_at) > self.now.saturating_add(milliseconds(greatest)) {
            return Err(CredentialRefusal::LifetimeTooLong { what, expires_at, greatest });
        }
        Ok(())
    }
}

/// An instant before 1970 is its first.
fn milliseconds(seconds: i64) -> WallMs {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000)
}

/// Refuses by the name of the first field that is another's.
pub(in crate::layer) fn all_bound(
    what: &'static str,
    fields: &[(&'static str, bool)],
) -> Result<(), CredentialRefusal> {
    match fields.iter().find(|(_, bound)| !bound) {
        Some((field, _)) => Err(CredentialRefusal::BindingMismatch { what, field }),
        None => Ok(()),
    }
}

fn nonce_mark(signed: &SignedNonce, speaker: &Speaker<'_>) -> Mark {
    let SignedNonce { nonce, .. } = signed;
    let id = blake3::Hasher::new_derive_key(NONCE_CONTEXT).update(nonce.issuer.as_bytes()).update(&nonce.id).finalize();
    Mark {
        kind: MarkKind::Nonce,
        id: MarkId(*id.as_bytes()),
        subject: nonce.subject,
        issued_at: Some(nonce.issued_at),
        valid_until: speaker.proves_until().map_or(nonce.expires_at, |end| end.min(nonce.expires_at)),
        expires_at: nonce.expires_at,
    }
}

fn possession_mark(proof: &PossessionProof, speaker: &Speaker<'_>) -> Mark {
    let PossessionProof { possession, .. } = proof;
    let id = blake3::Hasher::new_derive_key(POSSESSION_CONTEXT)
        .update(speaker.key.as_bytes())
        .update(&possession.nonce)
        .finalize();
    Mark {
        kind: MarkKind::Nonce,
        id: MarkId(*id.as_bytes()),
        subject: speaker.subject,
        issued_at: Some(possession.issued_at),
        valid_until: speaker.proves_until().unwrap_or(possession.expires_at),
        expires_at: possession.expires_at,
    }
}
