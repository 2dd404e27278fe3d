use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use libp2p::PeerId;

use crate::{
    identity::{Delegation, Did},
    link::{Channel, CreditGuard, Feedback, LinkId},
    message::{Class, Content, NetworkId, Payload, StreamKey, TransactionDigest},
};

/// A transaction whose both proofs hold, for this node or for another one. Only [`Verify`](super::Verify) makes one.
///
/// Nothing is known yet of whether it was admitted before.
#[derive(Debug)]
pub struct Verified {
    pub(super) payload: Payload,
    pub(super) network: NetworkId,
    pub(super) origin: Did,
    pub(super) class: Class,
    pub(super) namespace: Option<Range<usize>>,
    pub(super) head: usize,
    pub(super) digest: TransactionDigest,
    pub(super) peer: PeerId,
    pub(super) peer_did: Did,
    pub(super) link: LinkId,
    /// Whether all of it came on `link`: of an original, each of its chunks.
    pub(super) whole_link: bool,
    pub(super) channel: Option<Channel>,
    pub(super) read_at: Option<Duration>,
    pub(super) credit: Option<CreditGuard>,
    pub(super) feedback: Option<Arc<dyn Feedback>>,
    pub(super) span: tracing::Span,
}

/// What the steps after verification take out of it.
pub(in crate::layer) struct Parts {
    pub(in crate::layer) payload: Payload,
    pub(in crate::layer) credit: Option<CreditGuard>,
}

impl Verified {
    /// Who it is from: the delegator, or the key itself (law L1.3).
    pub const fn origin(&self) -> Did {
        self.origin
    }

    /// Whom it is for.
    pub const fn destination(&self) -> Did {
        self.payload.transaction.content.destination
    }

    /// The class, derived from its data.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// The application's namespace, for class `Application`.
    pub fn namespace(&self) -> Option<&[u8]> {
        self.content().data.get(self.namespace.clone()?)
    }

    /// The message.
    pub const fn data(&self) -> &Bytes {
        &self.content().data
    }

    /// What the origin signed.
    pub const fn content(&self) -> &Content {
        &self.payload.transaction.content
    }

    /// The digest that the origin signed and a window remembers.
    pub const fn digest(&self) -> TransactionDigest {
        self.digest
    }

    /// The stream that its sequence counts in.
    pub const fn stream(&self) -> StreamKey {
        StreamKey { network: self.network, origin: self.origin, destination: self.destination(), class: self.class }
    }

    /// The delegation that its signer speaks under, if it does not speak for itself.
    pub fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.payload.transaction.proof.slot.delegation()
    }

    /// How many more times it may be forwarded.
    pub const fn hop_budget(&self) -> u8 {
        self.payload.hop_budget
    }

    /// The peer whose connection it came on.
    pub const fn peer(&self) -> PeerId {
        self.peer
    }

    /// The key that this connection authenticated.
    pub const fn peer_did(&self) -> Did {
        self.peer_did
    }

    /// The connection generation that it came on.
    pub const fn link(&self) -> LinkId {
        self.link
    }

    /// Whether all of it came on its link: of an original, each of its chunks.
    pub(in crate::layer) const fn came_on_one_link(&self) -> bool {
        self.whole_link
    }

    /// The channel that it came on, where the transport has channels.
    pub const fn channel(&self) -> Option<Channel> {
        self.channel
    }

    /// When its frame was read, on the injected clock's monotonic time, where the transport says.
    pub(in crate::layer) const fn read_at(&self) -> Option<Duration> {
        self.read_at
    }

    /// How many first bytes of the data its class was derived from; of a chunk, where its slice begins.
    pub(in crate::layer) const fn head(&self) -> usize {
        self.head
    }

    /// Begins the span that it is traced in along its way.
    pub(super) fn trace(&mut self) {
        let content = self.content();
        self.span = tracing::debug_span!(
            "transaction",
            origin = %self.origin(),
            destination = %self.destination(),
            class = self.class().label(),
            incarnation = content.incarnation.0,
            sequence = content.sequence,
            digest = %self.digest(),
            peer = %self.peer(),
        );
    }

    /// The span that it is traced in along its way.
    pub(in crate::layer) fn span(&self) -> tracing::Span {
        self.span.clone()
    }

    /// Where its transport is told what becomes of it.
    pub(in crate::layer) const fn feedback(&self) -> Option<&Arc<dyn Feedback>> {
        self.feedback.as_ref()
    }

    /// Its frame's place in its lane's credit, to be kept by who goes on with it.
    pub(in crate::layer) const fn take_credit(&mut self) -> Option<CreditGuard> {
        self.credit.take()
    }

    /// Has `credit` travel with it from now on.
    pub(in crate::layer) fn set_credit(&mut self, credit: CreditGuard) {
        self.credit = Some(credit);
    }

    pub(in crate::layer) fn into_parts(self) -> Parts {
        Parts { payload: self.payload, credit: self.credit }
    }
}
