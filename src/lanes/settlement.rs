//! How a send ends: exactly once, taken over or lost, with what is known (law L3.7).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, ready},
};

use tokio::sync::{Notify, oneshot};

use super::{meters::Depth, parts::Part, passage::Passage};
use crate::{link::CreditGuard, message::Class};

/// Why a send was lost. Nothing is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The link that it was in flight on ended, or its channel of that link alone did: its credit could come on that
    /// channel only.
    LinkClosed,
    /// Its time to be written was over while the peer was connected; or it was written, and its life was over before
    /// the peer took it over. For a forwarded one that was written, its life ends with the delivery bound.
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
        // An `Ending` settles when it is dropped, so the other end is never closed without an answer.
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

/// How whoever moves a frame says what became of it. Dropped unsettled, it settles as lost by shutdown.
#[derive(Debug)]
pub(crate) enum Settle {
    /// The frame is a send of its own.
    Alone(Ending),
    /// The frame is one of several that settle together.
    Part(Part),
}

impl Settle {
    /// From now on its stream knows of it.
    pub(crate) fn holds(&mut self, passage: Passage) {
        if let Settle::Alone(ending) = self {
            ending.holds(passage);
        }
    }

    /// It was taken off its lane, to be written.
    pub(crate) fn leaves_its_lane(&mut self) {
        match self {
            Settle::Alone(ending) => ending.leaves_its_lane(),
            Settle::Part(part) => part.leaves_its_lane(),
        }
    }

    /// From now on its bytes may be on their way.
    pub(crate) fn being_written(&mut self) {
        match self {
            Settle::Alone(ending) => ending.being_written(),
            Settle::Part(part) => part.being_written(),
        }
    }

    pub(crate) fn taken_over(self) {
        match self {
            Settle::Alone(ending) => ending.taken_over(),
            Settle::Part(part) => part.taken_over(),
        }
    }

    pub(crate) fn lost(self, reason: LossReason) {
        match self {
            Settle::Alone(ending) => ending.lost(reason),
            Settle::Part(part) => part.lost(reason),
        }
    }

    /// Its time was over when it was popped, so it is not written.
    pub(crate) fn overdue_in_queue(self) {
        let reason = self.overdue(true);
        match self {
            Settle::Alone(ending) => ending.lost(reason),
            Settle::Part(part) => part.overdue_in_queue(reason),
        }
    }

    /// It was popped, to be written.
    pub(crate) fn popped(&self) {
        if let Settle::Part(part) = self {
            part.popped();
        }
    }

    /// Whether it is carried on for others.
    pub(crate) const fn is_forward(&self) -> bool {
        match self {
            Settle::Alone(ending) => ending.inbound.is_some(),
            Settle::Part(_) => false,
        }
    }

    /// Why it is lost when its time to be written is over.
    pub(crate) const fn overdue(&self, connected: bool) -> LossReason {
        match connected {
            _ if self.is_forward() => LossReason::ForwardQueueFull,
            true => LossReason::Expired,
            false => LossReason::NotConnected,
        }
    }

    /// Nobody will ask: the caller went away, or was told by other means, before the send was accepted.
    pub(crate) fn abandon(self) {
        if let Settle::Alone(ending) = self {
            ending.abandon();
        }
    }
}

/// The sending end of a [`Settlement`]. Dropped unsettled, it settles as lost by shutdown.
#[derive(Debug)]
pub(crate) struct Ending {
    answer: Option<oneshot::Sender<Result<(), Lost>>>,
    class: Class,
    fate: Fate,
    /// The inbound copy's credit, of a forwarded frame: given back when this send settles, either way (law L3.4).
    inbound: Option<CreditGuard>,
    passage: Option<Passage>,
    /// Until it is taken to be written.
    depth: Option<Depth>,
    outstanding: Arc<Outstanding>,
}

impl Ending {
    pub(crate) fn new(
        class: Class,
        inbound: Option<CreditGuard>,
        outstanding: &Arc<Outstanding>,
    ) -> (Self, Settlement) {
        let (answer, settlement) = oneshot::channel();
        outstanding.count.fetch_add(1, Ordering::AcqRel);
        let outstanding = Arc::clone(outstanding);
        let (passage, depth) = (None, Some(Depth::of(class)));
        let ending =
            Self { answer: Some(answer), class, fate: Fate::NeverWritten, inbound, passage, depth, outstanding };
        (ending, Settlement(settlement))
    }

    /// From now on its stream knows of it.
    pub(crate) fn holds(&mut self, passage: Passage) {
        self.passage = Some(passage);
    }

    /// It was taken off its lane, to be written.
    pub(crate) fn leaves_its_lane(&mut self) {
        self.depth = None;
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

impl Drop for Ending {
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
