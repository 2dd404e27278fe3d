//! The boundary's mail over group commit: what is offered to the application, and taken by it (law L10.6).

use std::fmt;

use super::{Admission, BoundaryRefusal, Request, core::Boundary, shell::count_refusal};
use crate::{
    layer::{custody::Offer, window::Verdict},
    storage::commit::{Member, Ticket},
};

/// Mail that this process offers to its application. Dropping it ends that, and the mail may be redelivered.
pub(in crate::layer) struct Pending {
    member: Member<Boundary>,
    offer: Offer,
}

impl Pending {
    pub(super) const fn new(member: Member<Boundary>, offer: Offer) -> Self {
        Self { member, offer }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.member.arrange(|boundary| boundary.end_offer(self.offer));
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.offer).finish()
    }
}

impl Admission {
    /// Judges mail as [`admit`](Self::admit) does, and keeps what it accepts pending as long as the second value lives.
    pub(in crate::layer) fn offer(
        &self,
        request: Request,
    ) -> (Ticket<Result<Verdict, BoundaryRefusal>>, Option<Pending>) {
        self.decide(request)
    }

    /// Takes mail out of custody. The application may see it once the ticket gives `Ok`, and never without it: the removal
    /// is durable then (law L10.6). `request` is the one that was admitted.
    pub fn take(&self, request: &Request) -> Ticket<Result<(), BoundaryRefusal>> {
        let mut answer = None;
        let ticket = self.member.transition(|boundary, stage| {
            let taken = boundary.take(request, stage);
            answer = Some((taken, boundary.sizes().custody));
            taken
        });
        if let Some((taken, custody)) = answer {
            metrics::gauge!("admit_one_custody").set(custody as f64);
            if let Err(refusal) = &taken {
                count_refusal(refusal);
            }
        }
        ticket
    }
}
