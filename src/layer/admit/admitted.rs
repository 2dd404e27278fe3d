use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use libp2p::PeerId;

use crate::{
    clock::WallMs,
    identity::{Delegation, Did},
    layer::{Verified, window::Verdict},
    link::{CreditGuard, LinkId},
    message::{Class, Incarnation, TransactionDigest, TxId},
};

/// A transaction that this node has admitted, durably and for the first and only time. Only
/// [`Admit`](super::Admit) makes one, so a handler that takes it cannot be reached around admission.
///
/// Its frame's place in its lane's credit is given back when both this is dropped and the handler's future is done
/// (law L3.4): a handler that hands it to another task holds the sender back until that task is done with it too.
#[derive(Debug)]
pub struct Admitted {
    verified: Verified,
    verdict: Verdict,
    /// Held, not read.
    _credit: Option<Arc<CreditGuard>>,
}

impl Admitted {
    pub(super) const fn new(verified: Verified, verdict: Verdict, credit: Option<Arc<CreditGuard>>) -> Self {
        Self { verified, verdict, _credit: credit }
    }

    /// Who it is from: the delegator, or the key itself (law L1.3).
    pub const fn origin(&self) -> Did {
        self.verified.origin()
    }

    /// Whom it is for: this node.
    pub const fn destination(&self) -> Did {
        self.verified.destination()
    }

    /// The class, derived from its data.
    pub const fn class(&self) -> Class {
        self.verified.class()
    }

    /// The application's namespace, for class `Application`.
    pub fn namespace(&self) -> Option<&[u8]> {
        self.verified.namespace()
    }

    /// The message, the classifier's head included. A clone of it shares the frame's memory.
    pub const fn data(&self) -> &Bytes {
        self.verified.data()
    }

    /// The name that its origin gave it.
    pub const fn tx_id(&self) -> TxId {
        self.verified.content().tx_id
    }

    /// Which life of the stream's numbering its sequence belongs to.
    pub const fn incarnation(&self) -> Incarnation {
        self.verified.content().incarnation
    }

    /// Its place in its stream. A gap before it is no evidence of anything (law L5.3).
    pub const fn sequence(&self) -> u64 {
        self.verified.content().sequence
    }

    /// When it was signed, in wall milliseconds by its origin's clock.
    pub const fn issued_at(&self) -> WallMs {
        self.verified.content().issued_at
    }

    /// The first instant at which it no longer lives, in wall milliseconds.
    pub const fn expires_at(&self) -> WallMs {
        self.verified.content().expires_at()
    }

    /// What the origin signed: the transaction's own name, the same however it was carried.
    pub const fn digest(&self) -> TransactionDigest {
        self.verified.digest()
    }

    /// The delegation that its signer speaks under, if it does not speak for itself.
    pub fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.verified.delegation()
    }

    /// Where it fell in its stream's window.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The peer that brought it, which need not be its origin.
    pub const fn peer(&self) -> PeerId {
        self.verified.peer()
    }

    /// When its frame was read, on the clock's monotonic time; `None` where the transport does not say.
    pub const fn read_at(&self) -> Option<Duration> {
        self.verified.read_at()
    }

    /// The connection generation that it came on.
    pub const fn link(&self) -> LinkId {
        self.verified.link()
    }
}
