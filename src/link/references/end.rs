use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use bytes::BytesMut;
use futures::task::AtomicWaker;

use super::{CONTROL_FRAMES, Control, FrameName, Now, RECEIVER_BOUND, ReceiverTable, Terms};
use crate::{
    clock::Clock,
    identity::{Delegation, DelegationDigest},
    message::Payload,
};

/// How many control frames one inbound frame may cause (law L4.7).
const CONTROLS_PER_FRAME: u8 = 2;

/// One inbound link's references: the table, and what is to be said to the peer. Shared by the link's channels, by the
/// frames that came on them, and by its control substream. Nothing of others runs under its lock.
pub(crate) struct ReceiverEnd {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    control: AtomicWaker,
}

#[derive(Debug)]
struct State {
    table: ReceiverTable<Arc<Delegation>>,
    said: VecDeque<Control>,
    /// How many more the control substream has taken and not written.
    in_hand: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing can be said any more, so nothing is granted; what was granted resolves.
    Mute,
    /// The link is over.
    Over,
}

/// What one frame's slots referred to when it was read, and the way to have what it carried inline referred to from now
/// on (laws L4.3 and L4.5).
#[derive(Debug)]
pub struct References {
    end: Arc<ReceiverEnd>,
    frame: FrameName,
    read_at: Duration,
    /// The hop's, then the origin's.
    slots: [Option<Reference>; 2],
    grants_left: u8,
}

#[derive(Debug)]
struct Reference {
    digest: DelegationDigest,
    delegation: Option<Arc<Delegation>>,
}

impl ReceiverEnd {
    /// The receiver's end of a new link.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let table = ReceiverTable::new(Terms::default(), RECEIVER_BOUND);
        let state = State { table, said: VecDeque::new(), in_hand: 0, phase: Phase::Open };
        Self { clock, state: Mutex::new(state), control: AtomicWaker::new() }
    }

    /// A frame was read just now, at `read_at` on the clock's monotonic time: resolves its references, and disclaims
    /// those that miss (laws L4.5 and L4.6).
    pub(crate) fn read(self: &Arc<Self>, frame: FrameName, bytes: &[u8], read_at: Duration) -> References {
        let digests = Payload::references(bytes);
        let slots = if digests == [None; 2] {
            [None, None]
        } else {
            let now = Now { at: read_at, wall: self.clock.wall() };
            let mut state = self.lock();
            let mut missed = None;
            let slots = digests.map(|digest| {
                let digest = digest?;
                let delegation = state.table.resolve(&digest, now);
                if delegation.is_some() {
                    metrics::counter!("admit_one_link_table_hits_total").increment(1);
                } else {
                    metrics::counter!("admit_one_link_table_misses_total").increment(1);
                    // One delegation in both slots is disclaimed once.
                    if missed.replace(digest) != Some(digest) && state.say(Control::Disclaim { digest }) {
                        metrics::counter!("admit_one_link_disclaims_total").increment(1);
                    }
                }
                Some(Reference { digest, delegation })
            });
            drop(state);
            if missed.is_some() {
                self.control.wake();
            }
            slots
        };
        References { end: Arc::clone(self), frame, read_at, slots, grants_left: CONTROLS_PER_FRAME }
    }

    /// A frame with this delegation inline has verified: takes it in and grants a lease, if there is room (law L4.4).
    fn verified(&self, frame: FrameName, read_at: Duration, delegation: &Arc<Delegation>) {
        let digest = delegation.digest();
        let expires_at = delegation.issued_at().saturating_add(delegation.ttl());
        let now = Now { at: self.clock.monotonic(), wall: self.clock.wall() };
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return;
        }
        let held = state.table.verified(&digest, || Arc::clone(delegation), expires_at, read_at, now);
        let said = held && state.say(Control::Grant { digest, frame });
        drop(state);
        if said {
            metrics::counter!("admit_one_link_grants_total").increment(1);
            self.control.wake();
        }
    }

    /// Has `waker` woken when there is something to write, or the link is over.
    pub(crate) fn register(&self, waker: &Waker) {
        self.control.register(waker);
    }

    /// Puts all that is to be said into `out`, once what was taken before is written.
    pub(crate) fn take(&self, out: &mut BytesMut) {
        let mut state = self.lock();
        state.in_hand = state.said.len();
        state.said.drain(..).for_each(|control| control.encode(out));
    }

    /// Nothing can be said on this link any more.
    pub(crate) fn mute(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Mute;
        }
        state.said.clear();
    }

    /// The link is over: its table is emptied (law L4.2).
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Over;
        state.said.clear();
        let table = std::mem::replace(&mut state.table, ReceiverTable::new(Terms::default(), 0));
        drop(state);
        drop(table);
        self.control.wake();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().phase == Phase::Over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The tables do not panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has something said, if there is room for it. Nothing is lost but bytes where there is none (law L4.7).
    fn say(&mut self, control: Control) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let room = self.said.len() + self.in_hand < CONTROL_FRAMES;
        if room {
            self.said.push_back(control);
        } else {
            metrics::counter!("admit_one_link_control_dropped_total").increment(1);
        }
        room
    }
}

impl References {
    /// What the hop's slot referred to.
    pub(crate) fn hop(&self, digest: &DelegationDigest) -> Option<Arc<Delegation>> {
        self.found(0, digest)
    }

    /// What the origin's slot referred to.
    pub(crate) fn origin(&self, digest: &DelegationDigest) -> Option<Arc<Delegation>> {
        self.found(1, digest)
    }

    /// The frame carried `delegation` inline, and all of its proofs hold. At most two are listened to.
    pub(crate) fn verified(&mut self, delegation: &Arc<Delegation>) {
        if let Some(left) = self.grants_left.checked_sub(1) {
            self.grants_left = left;
            self.end.verified(self.frame, self.read_at, delegation);
        }
    }

    fn found(&self, place: usize, digest: &DelegationDigest) -> Option<Arc<Delegation>> {
        let reference = self.slots.get(place)?.as_ref()?;
        reference.delegation.as_ref().filter(|_| reference.digest == *digest).map(Arc::clone)
    }
}

impl fmt::Debug for ReceiverEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverEnd").finish_non_exhaustive()
    }
}
