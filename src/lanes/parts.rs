//! One end for the frames of one message (laws L3.7 and L3.8).
//!
//! **State.** How many of its frames are not settled, whether all of them are known, and, until it ends, what it settles
//! by. [`Message`] is the end of the one who makes the frames, [`Part`] that of whoever moves one of them.
//!
//! **Transitions.** It is taken over when all frames are known and each was. The first frame that is lost loses it with
//! that frame's reason, and so does the queue when it removes the message; what is queued of it goes, and its maker
//! hears of it. What is known is what is known of the frame that went furthest: the message may have been received if
//! any byte of any frame was written, or if any was taken over.
//!
//! **Failures.** A [`Message`] dropped unfinished is given up: what is queued of it goes, nobody is told, and the lane
//! goes on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use libp2p::PeerId;
use tokio::sync::{Notify, futures::Notified};

use super::{
    meters::Depth,
    settlement::{Ending, LossReason, Settle},
    shared::{Item, Shared},
};
use crate::{link::Frame, message::Class};

/// What the frames of a message, the queue and its maker share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(super) peer: PeerId,
    pub(super) class: Class,
    pub(super) name: u64,
    deadline: Duration,
    tally: Mutex<Tally>,
    changed: Notify,
    /// Weak, since the queues hold it.
    shared: Weak<Shared>,
}

#[derive(Debug)]
struct Tally {
    /// Gone once it ended. Taken out before anything of it is dropped, so that it ends once.
    ending: Option<Ending>,
    unsettled: usize,
    complete: bool,
    /// Whether a frame was popped to be written.
    popped: bool,
}

/// A message that frames are added to. Dropped unfinished, it is given up.
#[derive(Debug)]
#[must_use]
pub(crate) struct Message {
    parts: Arc<Parts>,
    finished: bool,
}

/// One frame of a message. Dropped unsettled, it loses the message by shutdown.
#[derive(Debug)]
pub(crate) struct Part {
    parts: Arc<Parts>,
    settled: bool,
    /// Until it is taken to be written.
    depth: Option<Depth>,
}

impl Parts {
    pub(crate) fn new(
        (peer, class, name): (PeerId, Class, u64),
        deadline: Duration,
        ending: Ending,
        shared: &Arc<Shared>,
    ) -> Self {
        let tally = Mutex::new(Tally { ending: Some(ending), unsettled: 0, complete: false, popped: false });
        Self { peer, class, name, deadline, tally, changed: Notify::new(), shared: Arc::downgrade(shared) }
    }

    /// The queue removed it; a frame may have been written if any was popped.
    pub(crate) fn lost(&self, reason: LossReason, popped: bool) {
        let ending = self.tally().ending.take();
        self.end(ending, reason, popped);
    }

    /// A frame was lost: so is the rest.
    fn lost_with(&self, reason: LossReason, popped: bool) {
        let ending = self.tally().ending.take();
        if ending.is_some() {
            // First the rest, so that none of it is written once its sender was told.
            self.take_back();
        }
        self.end(ending, reason, popped);
    }

    fn end(&self, ending: Option<Ending>, reason: LossReason, popped: bool) {
        let Some(mut ending) = ending else { return };
        if popped {
            ending.being_written();
        }
        ending.lost(reason);
        self.changed.notify_one();
    }

    fn take_back(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.finish(self, true);
        }
    }

    /// Ends it as taken over, if each of its frames was.
    fn end_if_taken_over(&self, mut tally: MutexGuard<'_, Tally>) {
        let ending = if tally.complete && tally.unsettled == 0 { tally.ending.take() } else { None };
        drop(tally);
        if let Some(ending) = ending {
            ending.taken_over();
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        // Nothing under the lock panics half-way.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Message {
    pub(crate) const fn new(parts: Arc<Parts>) -> Self {
        Self { parts, finished: false }
    }

    /// How many more frames it has room for. `None` once it ended.
    pub(crate) fn free(&self) -> Option<usize> {
        self.parts.shared.upgrade()?.free(&self.parts)
    }

    /// Ready after there may be more room, or it ended, since this was ready last: what happens between a look and the
    /// wait is not missed.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.parts.changed.notified()
    }

    /// Ready once it ended.
    pub(crate) async fn ended(&self) {
        while self.free().is_some() {
            self.changed().await;
        }
    }

    /// Queues its next frame, for which there must be room. Nothing, once it ended.
    pub(crate) fn append(&self, frame: Frame) {
        let Some(shared) = self.parts.shared.upgrade() else { return };
        let Frame { payload, class, .. } = frame;
        let bytes = payload.encoded_len();
        self.parts.tally().unsettled += 1;
        let depth = Some(Depth::of(class));
        let settle = Settle::Part(Part { parts: Arc::clone(&self.parts), settled: false, depth });
        shared.append(&self.parts, Item { payload, class, bytes, deadline: self.parts.deadline, settle });
    }

    /// All its frames are queued.
    pub(crate) fn finish(mut self) {
        self.finished = true;
        if let Some(shared) = self.parts.shared.upgrade() {
            shared.finish(&self.parts, false);
        }
        let mut tally = self.parts.tally();
        tally.complete = true;
        self.parts.end_if_taken_over(tally);
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if !self.finished {
            let ending = self.parts.tally().ending.take();
            self.parts.take_back();
            if let Some(ending) = ending {
                ending.abandon();
            }
        }
    }
}

impl Part {
    /// It left the queue to be written, which makes room for another.
    pub(crate) fn popped(&self) {
        self.parts.tally().popped = true;
        self.parts.changed.notify_one();
    }

    /// It was taken off its lane, to be written.
    pub(crate) fn leaves_its_lane(&mut self) {
        self.depth = None;
    }

    pub(crate) fn being_written(&self) {
        if let Some(ending) = &mut self.parts.tally().ending {
            ending.being_written();
        }
    }

    pub(crate) fn taken_over(mut self) {
        self.settled = true;
        let mut tally = self.parts.tally();
        tally.unsettled -= 1;
        if let Some(ending) = &mut tally.ending {
            ending.being_written();
        }
        self.parts.end_if_taken_over(tally);
    }

    pub(crate) fn lost(mut self, reason: LossReason) {
        self.settled = true;
        self.parts.lost_with(reason, false);
    }

    pub(crate) fn overdue_in_queue(mut self, reason: LossReason) {
        self.settled = true;
        let popped = self.parts.tally().popped;
        self.parts.lost_with(reason, popped);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.settled {
            let popped = self.parts.tally().popped;
            self.parts.lost_with(LossReason::Shutdown, popped);
        }
    }
}

#[cfg(test)]
mod tests;
