use std::{fmt, sync::Weak};

use super::shared::Shared;
use crate::{identity::Did, link::Frame, message::Class};

/// Which frames keep their order across a change of next hop (law L3.9). Lanes know no network, so streams of two
/// networks that are alike in all else wait for each other, as do all those whose origin is still a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) origin: Option<Did>,
    pub(crate) destination: Did,
    pub(crate) class: Class,
}

impl Stream {
    pub(crate) fn of(frame: &Frame) -> Self {
        let transaction = &frame.payload.transaction;
        Self { origin: transaction.origin(), destination: transaction.content.destination, class: frame.class }
    }
}

/// A frame's part in its stream, from when it was offered or room was asked for it, until it settles or is given up:
/// dropped then, it lets go those that wait for it. Never dropped under the lock of the queues.
pub(crate) struct Passage {
    stream: Stream,
    name: u64,
    /// Weak, since the queues hold it.
    shared: Weak<Shared>,
}

impl Passage {
    pub(super) const fn new(stream: Stream, name: u64, shared: Weak<Shared>) -> Self {
        Self { stream, name, shared }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // Without the queues nothing waits.
        if let Some(shared) = self.shared.upgrade() {
            shared.leave(&self.stream, self.name);
        }
    }
}

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passage").field("stream", &self.stream).field("name", &self.name).finish_non_exhaustive()
    }
}
