//! The pure core of verification: rules, facts, bytes and the time in; [`Verified`] or a [`Refusal`] out.
//!
//! It keeps no state but the memory of delegations that verified. The checks go from cheap to dear, so that what
//! can be refused for a comparison never costs a signature check:
//!
//! 1. that the frame decodes, and that its references resolve, is behind it already (see [`resolve`](crate::layer::resolve));
//! 2. the peer has a `Did` (law L1.1), which the next two compare with;
//! 3. this node is the next hop (law L2.5): a copy for another node is not ours to judge further;
//! 4. both slots name their keys, as resolving left them;
//! 5. the hop is the connection's peer, by its key or its delegator (law L2.5): the last of the facts of the link;
//! 6. its data has a class, whose lane is pinned to the channel it came on (law L2.6);
//! 7. it lives, and asks for no longer life than is accepted (law L2.4). Judged early to save the signatures, and
//!    again inside the admission boundary, which alone decides;
//! 8. the delegations are valid (law L1.2): the origin's at issued-at and now. The hop's is judged now only: a hop
//!    proves when it sends, and a relay that renewed its delegation since the origin signed is honest;
//! 9. the signatures: of delegations not verified before, of the origin, of the hop. Together where there are
//!    several, which is cheaper than one by one; where they do not hold together, one by one in this order, so
//!    that the refusal names the first that fails (law L1.5).
//!
//! Any failure refuses the frame and leaves nothing behind. A hop budget of zero is no reason to refuse here: it
//! is valid at the destination. A chunk is judged as a whole transaction is (law L2.8): its data begins with its
//! original's head.

use std::sync::Arc;

use super::{KnownDelegations, Verified};
use crate::{
    clock::WallMs,
    identity::{Check, Delegation, DelegationDigest, Did, Proof, Slot, verify_all},
    layer::{Refusal, Signatory, resolve::Resolved},
    message::{Classified, Classifier, Content, Liveness, NetworkId, Payload},
};

/// What a node verifies by.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// The overlay, hashed into what the origin signs.
    pub(crate) network: NetworkId,
    /// This node.
    pub(crate) local: Did,
    /// Derives the class.
    pub(crate) classifier: Arc<dyn Classifier>,
    /// The clock tolerance in milliseconds.
    pub(crate) sigma: u64,
    /// The longest life that is accepted, in milliseconds.
    pub(crate) greatest_ttl: u64,
}

/// Judges one frame at wall clock `now`.
pub(super) fn judge(
    rules: &Rules,
    known: &KnownDelegations,
    resolved: Resolved,
    now: WallMs,
) -> Result<Verified, Refusal> {
    let Resolved { payload, arrival, .. } = resolved;
    let content = &payload.transaction.content;
    let peer = arrival.peer;
    let peer_did = Did::try_from(&peer).map_err(|_| Refusal::PeerNotEd25519 { peer })?;

    if payload.next_hop != rules.local {
        return Err(Refusal::NotNextHop { next_hop: payload.next_hop });
    }
    let hop = Speaker::of(&payload.proof, Signatory::Hop)?;
    let origin = Speaker::of(&payload.transaction.proof, Signatory::Origin)?;
    if hop.key != peer_did && hop.on_behalf_of != peer_did {
        return Err(Refusal::HopNotPeer { hop: hop.key, peer: peer_did });
    }

    let Classified { class, namespace, head } = rules.classifier.classify(&content.data)?;
    if let Some(channel) = arrival.channel.filter(|channel| !channel.carries(class.lane())) {
        return Err(Refusal::WrongLane { class, channel });
    }

    alive(rules, content, now)?;
    hop.may_speak_at(now, rules.sigma)?;
    origin.may_speak_at(content.issued_at, rules.sigma)?;
    origin.may_speak_at(now, rules.sigma)?;

    let digest = content.digest(rules.network, &origin.on_behalf_of, class);
    let mut signatures = Signatures::default();
    signatures.delegation(&origin, known);
    if hop.delegation != origin.delegation {
        signatures.delegation(&hop, known);
    }
    signatures.proof(&origin, digest.0, Refusal::OriginSignature { key: origin.key });
    let hop_digest = Payload::hop_digest(&digest, &payload.next_hop, payload.hop_budget);
    signatures.proof(&hop, hop_digest, Refusal::HopSignature { key: hop.key });
    signatures.verify(known)?;

    Ok(Verified {
        network: rules.network,
        origin: origin.on_behalf_of,
        class,
        namespace,
        head,
        digest,
        peer,
        peer_did,
        link: arrival.link,
        whole_link: true,
        channel: arrival.channel,
        read_at: arrival.read_at,
        credit: arrival.credit,
        feedback: arrival.feedback,
        span: tracing::Span::none(),
        payload,
    })
}

fn alive(rules: &Rules, content: &Content, now: WallMs) -> Result<(), Refusal> {
    if content.ttl > rules.greatest_ttl {
        return Err(Refusal::TtlTooLong { ttl: content.ttl, greatest: rules.greatest_ttl });
    }
    match content.liveness(now, rules.sigma) {
        Liveness::Live => Ok(()),
        Liveness::Expired => Err(Refusal::Expired { expires_at: content.expires_at() }),
        Liveness::FromTheFuture => Err(Refusal::FromTheFuture { issued_at: content.issued_at, sigma: rules.sigma }),
    }
}

/// Who signed one of the two proofs.
pub(super) struct Speaker {
    whose: Signatory,
    pub(super) key: Did,
    pub(super) on_behalf_of: Did,
    delegation: Option<Arc<Delegation>>,
    proof: Proof,
}

impl Speaker {
    pub(super) fn of(proof: &Proof, whose: Signatory) -> Result<Self, Refusal> {
        let (key, on_behalf_of) = match &proof.slot {
            Slot::Own(key) => (*key, *key),
            Slot::Inline(delegation) => (delegation.delegatee(), delegation.delegator()),
            Slot::Digest(digest) => return Err(Refusal::UnresolvedReference { whose, digest: *digest }),
        };
        Ok(Self { whose, key, on_behalf_of, delegation: proof.slot.delegation().cloned(), proof: proof.clone() })
    }

    pub(super) fn may_speak_at(&self, instant: WallMs, sigma: u64) -> Result<(), Refusal> {
        let Some(delegation) = &self.delegation else { return Ok(()) };
        let (whose, delegator, judged_at) = (self.whose, delegation.delegator(), instant);
        if delegation.valid_at(instant, sigma) {
            Ok(())
        } else if delegation.issued_at().saturating_sub(sigma) > instant {
            let issued_at = delegation.issued_at();
            Err(Refusal::DelegationNotYetValid { whose, delegator, issued_at, judged_at })
        } else {
            let expired_at = delegation.issued_at().saturating_add(delegation.ttl());
            Err(Refusal::DelegationExpired { whose, delegator, expired_at, judged_at })
        }
    }
}

/// The signatures that one payload stands on, with what is refused where one does not hold. At most four.
#[derive(Default)]
pub(super) struct Signatures {
    checks: Vec<Check>,
    refusals: Vec<Refusal>,
    delegations: Vec<DelegationDigest>,
}

impl Signatures {
    pub(super) fn delegation(&mut self, speaker: &Speaker, known: &KnownDelegations) {
        let Some(delegation) = &speaker.delegation else { return };
        let digest = delegation.digest();
        if !known.contains(&digest) {
            self.checks.push(delegation.check());
            let (whose, delegator) = (speaker.whose, delegation.delegator());
            self.refusals.push(Refusal::DelegationSignature { whose, delegator });
            self.delegations.push(digest);
        }
    }

    pub(super) fn proof(&mut self, speaker: &Speaker, message: [u8; 32], refusal: Refusal) {
        self.checks.push(Check { key: speaker.key, message, signature: speaker.proof.signature });
        self.refusals.push(refusal);
    }

    pub(super) fn verify(mut self, known: &KnownDelegations) -> Result<(), Refusal> {
        verify_all(&self.checks).map_err(|(place, _)| self.refusals.swap_remove(place))?;
        self.delegations.into_iter().for_each(|digest| known.insert(digest));
        Ok(())
    }
}
