//! How a send ends: exactly once, taken over or lost, with what is known (law L3.7).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, ready},
};

use tokio::sync::{Notify, oneshot};

use super::passage::Passage;
use crate::{link::CreditGuard, message::Class};

/// Why a send was lost. Nothing is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The link that it was in flight on ended, or its channel of that link alone did: its credit could come on that
    /// channel only.
    LinkClosed,
    /// Its time to be written was over while the peer was connected; or it was written, and its life was over before
    /// the peer took it over.
    Expired,
    /// The peer does not speak the protocol.
    Unsupported,
    /// Its time to be written was over, and there was no connection to the peer.
    NotConnected,
    /// This node's lanes were shut down.
    Shutdown,
    /// It was to be forwarded, and was not written within the delivery bound (law L3.9).
    ForwardQueueFull,
}

impl LossReason {
    /// The name that metrics are labelled with.
    pub const fn label(self) -> &'static str {
        match self {
            LossReason::LinkClosed => "link_closed",
            LossReason::Expired => "expired",
            LossReason::Unsupported => "unsupported",
            LossReason::NotConnected => "not_connected",
            LossReason::Shutdown => "shutdown",
            LossReason::ForwardQueueFull => "forward_queue_full",
        }
    }
}

/// What is known of a lost send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// No byte of it left this node.
    NeverWritten,
    /// It was written, wholly or in part, and the peer may have received it, admitted it and acted on it.
    MayHaveBeenReceived,
}

/// A send that was not taken over by its peer, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("lost ({}): {}", reason.label(), match fate {
    Fate::NeverWritten => "it was never written",
    Fate::MayHaveBeenReceived => "it was written and may have been received",
})]
pub struct Lost {
    /// Why.
    pub reason: LossReason,
    /// What is known.
    pub fate: Fate,
}

impl Lost {
    pub(crate) const fn never_written(reason: LossReason) -> Self {
        Self { reason, fate: Fate::NeverWritten }
    }

    pub(crate) const fn maybe_received(reason: LossReason) -> Self {
        Self { reason, fate: Fate::MayHaveBeenReceived }
    }
}

/// How one accepted send ends: `Ok` once the peer took it over, [`Lost`] otherwise. Dropping it changes nothing.
#[must_use]
pub struct Settlement(oneshot::Receiver<Result<(), Lost>>);

impl Future for Settlement {
    type Output = Result<(), Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let settled = ready!(Pin::new(&mut self.0).poll(context));
        // A `Settle` settles when it is dropped, so the other end is never closed without an answer.
        Poll::Ready(settled.unwrap_or(Err(Lost::maybe_received(LossReason::Shutdown))))
    }
}

impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settlement")
    }
}

/// Sends accepted and not settled.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    count: AtomicUsize,
    pub(crate) changed: Notify,
}

impl Outstanding {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

/// The sending end of a [`Settlement`]. Dropped unsettled, it settles as lost by shutdown.
#[derive(Debug)]
pub(crate) struct Settle {
    answer: Option<oneshot::Sender<Result<(), Lost>>>,
    class: Class,
    fate: Fate,
    /// The inbound copy's credit, of a forwarded frame: given back when this send settles, either way (law L3.4).
    inbound: Option<CreditGuard>,
    passage: Option<Passage>,
    outstanding: Arc<Outstanding>,
}

impl Settle {
    pub(crate) fn new(
        class: Class,
        inbound: Option<CreditGuard>,
        outstanding: &Arc<Outstanding>,
    ) -> (Self, Settlement) {
        let (answer, settlement) = oneshot::channel();
        outstanding.count.fetch_add(1, Ordering::AcqRel);
        let outstanding = Arc::clone(outstanding);
        let settle =
            Self { answer: Some(answer), class, fate: Fate::NeverWritten, inbound, passage: None, outstanding };
        (settle, Settlement(settlement))
    }

    /// From now on its stream knows of it.
    pub(crate) fn holds(&mut self, passage: Passage) {
        self.passage = Some(passage);
    }

    /// From now on its bytes may be on their way.
    pub(crate) fn being_written(&mut self) {
        self.fate = Fate::MayHaveBeenReceived;
    }

    pub(crate) fn taken_over(mut self) {
        self.settle(Ok(()));
    }

    pub(crate) fn lost(mut self, reason: LossReason) {
        let fate = self.fate;
        self.settle(Err(Lost { reason, fate }));
    }

    /// Whether it is carried on for others.
    pub(crate) const fn is_forward(&self) -> bool {
        self.inbound.is_some()
    }

    /// Why it is lost when its time to be written is over.
    pub(crate) fn overdue(&self, connected: bool) -> LossReason {
        match (&self.inbound, connected) {
            (Some(_), _) => LossReason::ForwardQueueFull,
            (None, true) => LossReason::Expired,
            (None, false) => LossReason::NotConnected,
        }
    }

    /// Nobody will ask: the caller went away, or was told by other means, before the send was accepted.
    pub(crate) fn abandon(mut self) {
        self.answer = None;
    }

    fn settle(&mut self, outcome: Result<(), Lost>) {
        let Some(answer) = self.answer.take() else { return };
        let label = outcome.map_or_else(|lost| lost.reason.label(), |()| "taken_over");
        metrics::counter!("admit_one_sends_total", "class" => self.class.label(), "outcome" => label).increment(1);
        // Whoever sent it may have stopped listening.
        let _ = answer.send(outcome);
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        let fate = self.fate;
        self.settle(Err(Lost { reason: LossReason::Shutdown, fate }));
        self.inbound = None;
        // What it lets go is counted itself, so that a drain does not end in between.
        self.passage = None;
        self.outstanding.count.fetch_sub(1, Ordering::AcqRel);
        self.outstanding.changed.notify_waiters();
    }
}
