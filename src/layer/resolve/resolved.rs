use std::sync::Arc;

use crate::{
    identity::{Delegation, Slot},
    layer::{Refusal, Signatory},
    link::{Arrival, References},
    message::Payload,
};

/// A decoded frame without references, and how it came. Only [`Resolve`](super::Resolve) makes one. Nothing in it is
/// verified.
#[derive(Debug)]
pub struct Resolved {
    pub(in crate::layer) payload: Payload,
    /// How it came: its bytes are decoded, and its references taken out of it.
    pub(in crate::layer) arrival: Arrival,
    pub(in crate::layer) carried: Carried,
}

/// The delegations that a frame carried inline, and whom to tell if they verify.
#[derive(Debug, Default)]
pub(in crate::layer) struct Carried {
    references: Option<References>,
    delegations: [Option<Arc<Delegation>>; 2],
}

impl Carried {
    /// The frame that carried them has verified: they may be referred to from now on, as far as there is room.
    pub(in crate::layer) fn verified(self) {
        let Some(mut references) = self.references else { return };
        let [hop, origin] = self.delegations;
        let origin = origin.filter(|origin| hop.as_ref() != Some(origin));
        hop.iter().chain(&origin).for_each(|delegation| references.verified(delegation));
    }
}

/// Decodes a frame of at most `limit` bytes, and puts delegations in the places of its references.
pub(in crate::layer) fn resolve(mut arrival: Arrival, limit: usize) -> Result<Resolved, Refusal> {
    let mut payload = Payload::decode(std::mem::take(&mut arrival.bytes), limit)?;
    let references = arrival.references.take();
    let hop = fill(&mut payload.proof.slot, Signatory::Hop, references.as_ref())?;
    let origin = fill(&mut payload.transaction.proof.slot, Signatory::Origin, references.as_ref())?;
    Ok(Resolved { payload, arrival, carried: Carried { references, delegations: [hop, origin] } })
}

/// Resolves one slot. What it carried inline before, if it did.
fn fill(
    slot: &mut Slot,
    whose: Signatory,
    references: Option<&References>,
) -> Result<Option<Arc<Delegation>>, Refusal> {
    let digest = match slot {
        Slot::Own(_) => return Ok(None),
        Slot::Inline(delegation) => return Ok(Some(Arc::clone(delegation))),
        Slot::Digest(digest) => *digest,
    };
    let references = references.ok_or(Refusal::ReferenceOutsideLink { whose, digest })?;
    let found = match whose {
        Signatory::Hop => references.hop(&digest),
        Signatory::Origin => references.origin(&digest),
    };
    *slot = Slot::Inline(found.ok_or(Refusal::UnresolvedReference { whose, digest })?);
    Ok(None)
}
