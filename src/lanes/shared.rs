//! The queues, as the senders, the links and the behaviour share them: one short lock, never held across an await, and
//! nothing that others wrote runs under it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::task::AtomicWaker;
use libp2p::PeerId;
use tokio::sync::oneshot;

use super::{
    config::Config,
    parts::{Message, Parts},
    passage::{Passage, Stream},
    queue::{Entry, LetIn, Queues, Removed, Reserved, Terms, Traffic},
    routes::Routes,
    scheduler::{LANES, Ready},
    settlement::{Ending, LossReason, Lost, Outstanding, Settle},
};
use crate::{
    clock::Clock,
    message::{Class, Payload},
};

/// A frame on its way, and how its sender learns what became of it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) payload: Payload,
    pub(crate) class: Class,
    pub(crate) bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) settle: Settle,
}

/// How one who waits for room, or for its stream, or who has a message open, is told.
#[derive(Debug)]
pub(crate) enum Waiter {
    Frame(oneshot::Sender<Result<(), Lost>>),
    Room(oneshot::Sender<Result<Room, Lost>>, Option<Passage>),
    /// Nobody asks: the frame was accepted before.
    Accepted,
    Message(Arc<Parts>),
}

/// What became of an offer of a frame, or of a wish for room.
#[derive(Debug)]
pub(crate) enum Asked<Now, Told> {
    Now(Now),
    Waiting { id: u64, told: Option<oneshot::Receiver<Result<Told, Lost>>> },
    PeersFull,
    Shutdown,
}

/// Whether sends are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Nothing new; what is queued still goes out.
    Draining,
    /// Nothing goes out any more.
    Closed,
}

/// Room taken in a lane, given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    reserved: Option<Reserved<PeerId>>,
    /// What the frame that will fill it goes on with.
    passage: Option<Passage>,
    peer: PeerId,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outstanding: Arc<Outstanding>,
    pub(crate) behaviour: AtomicWaker,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queues: Queues<PeerId, Item, Waiter>,
    routes: Routes<Stream, PeerId>,
    /// The links that write, by peer.
    links: HashMap<PeerId, Arc<AtomicWaker>>,
    /// The peers that the swarm is connected to.
    connected: HashSet<PeerId>,
    /// Peers with work and no link, for the behaviour to look at.
    wanting: HashSet<PeerId>,
    /// The deadline that the behaviour's timer is set to, or will be.
    armed: Option<Duration>,
    phase: Phase,
}

impl Shared {
    pub(crate) fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            queues: Queues::new(config.limits),
            routes: Routes::new(),
            links: HashMap::new(),
            connected: HashSet::new(),
            wanting: HashSet::new(),
            armed: None,
            phase: Phase::Open,
        };
        Self { config, clock, outstanding: Arc::default(), behaviour: AtomicWaker::new(), state: Mutex::new(state) }
    }

    /// Queues a frame of `stream`, puts it in line, or sets it aside until its stream may go to `peer`.
    ///
    /// One set aside that holds a credit is accepted at once, so that it holds up no other stream of the channel that
    /// it came on: that credit bounds how many there are.
    pub(crate) fn offer(self: &Arc<Self>, peer: &PeerId, stream: Stream, mut item: Item) -> Asked<(), ()> {
        let (class, deadline) = (item.class, item.deadline);
        let traffic = if item.settle.is_forward() { Traffic::Forwarded } else { Traffic::Own };
        let terms = Terms { class, bytes: item.bytes, deadline, traffic };
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            item.settle.abandon();
            return Asked::Shutdown;
        }
        let known = state.queues.has_work(peer) || state.connected.contains(peer);
        if !known && state.queues.peer_count() >= self.peer_bound(&item) {
            drop(state);
            item.settle.abandon();
            return Asked::PeersFull;
        }
        let (goes, name, passage) = self.enter(&mut state, stream, peer);
        item.settle.holds(passage);
        let mut told = None;
        if !goes {
            let forwarded = traffic == Traffic::Forwarded;
            let notify = if forwarded { Waiter::Accepted } else { Waiter::Frame(teller(&mut told)) };
            return match state.queues.set_aside(peer, terms, name, Some(item), notify) {
                Ok(()) => {
                    self.queued(state, peer, deadline);
                    if forwarded { Asked::Now(()) } else { Asked::Waiting { id: name, told } }
                }
                Err((item, _)) => {
                    drop(state);
                    item.into_iter().for_each(|item| item.settle.abandon());
                    Asked::PeersFull
                }
            };
        }
        match state.queues.offer(peer, terms, item, || Waiter::Frame(teller(&mut told))) {
            Entry::Now(()) => {
                self.queued(state, peer, deadline);
                Asked::Now(())
            }
            Entry::Waiting(id) => {
                self.arm(&mut state, deadline);
                Asked::Waiting { id, told }
            }
            Entry::PeersFull(item) => {
                drop(state);
                item.settle.abandon();
                Asked::PeersFull
            }
        }
    }

    /// How many peers anything may wait for when `item` is to wait for one more that is not connected. What is forwarded
    /// leaves half of them to what this node sends of its own and to the peers that it is connected to: it goes wherever
    /// strangers say, and they could name any number of nodes.
    pub(crate) fn peer_bound(&self, item: &Item) -> usize {
        let peers = self.config.limits.peers;
        if item.settle.is_forward() { peers.div_ceil(2) } else { peers }
    }

    /// Takes room for a frame of `stream`, stands in line for it, or is set aside until the stream may go to `peer`.
    pub(crate) fn reserve(self: &Arc<Self>, peer: &PeerId, stream: Stream, terms: Terms) -> Asked<Room, Room> {
        let deadline = terms.deadline;
        // Before the lock, so that it is dropped after it.
        let mut passage;
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Asked::Shutdown;
        }
        let (goes, name, entered) = self.enter(&mut state, stream, peer);
        passage = Some(entered);
        let mut told = None;
        if !goes {
            let notify = Waiter::Room(teller(&mut told), passage.take());
            if let Err(refused) = state.queues.set_aside(peer, terms, name, None, notify) {
                drop(state);
                drop(refused);
                return Asked::PeersFull;
            }
            self.queued(state, peer, deadline);
            return Asked::Waiting { id: name, told };
        }
        let notify = || Waiter::Room(teller(&mut told), passage.take());
        match state.queues.reserve(peer, terms, notify) {
            Entry::Now(reserved) => Asked::Now(self.room(*peer, reserved, passage.take())),
            Entry::Waiting(id) => {
                self.arm(&mut state, deadline);
                Asked::Waiting { id, told }
            }
            Entry::PeersFull(()) => Asked::PeersFull,
        }
    }

    /// A frame of `stream` settled or was given up. Those that waited for it join their lanes.
    pub(super) fn leave(self: &Arc<Self>, stream: &Stream, name: u64) {
        let (mut released, mut let_in) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        let Some(peer) = state.routes.leave(stream, name, &mut released) else { return };
        for name in released {
            state.queues.join(&peer, stream.class, name, &mut let_in);
        }
        self.wake(state, &peer);
        self.tell(let_in);
    }

    /// Leaves the line, if still in it; a frame that stood there is gone unsent.
    pub(crate) fn cancel(self: &Arc<Self>, peer: &PeerId, class: Class, id: u64) {
        let mut let_in = Vec::new();
        let mut state = self.lock();
        let removed = state.queues.cancel(peer, class, id, &mut let_in);
        self.wake_for(state, peer, &let_in);
        if let Some(Removed::Waiting { item: Some(item), .. }) = removed {
            item.settle.abandon();
        }
        self.tell(let_in);
    }

    /// Takes frames off the lanes of `peer` in the order that `pick` says, until it says `None`. It is told which
    /// lanes have a frame, and afterwards which frame its pick was.
    pub(crate) fn take(self: &Arc<Self>, peer: &PeerId, picker: &mut impl Picker, taken: &mut Vec<Item>) -> Taken {
        let (mut let_in, mut overdue) = (Vec::new(), Vec::new());
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if state.phase == Phase::Closed {
            return Taken { closed: true, ready: [false; LANES], work: false };
        }
        loop {
            let ready = state.queues.ready(peer);
            let Some(item) = picker.pick(ready).and_then(|class| state.queues.pop(peer, class, &mut let_in)) else {
                break;
            };
            // The behaviour's timer may be late, and what is overdue is never written.
            if item.deadline <= now {
                overdue.push(item.settle);
                continue;
            }
            picker.picked(&item);
            taken.push(item);
        }
        let (ready, work) = (state.queues.ready(peer), state.queues.has_work(peer));
        drop(state);
        self.tell(let_in);
        taken.iter().for_each(|item: &Item| item.settle.popped());
        overdue.into_iter().for_each(Settle::overdue_in_queue);
        Taken { closed: false, ready, work }
    }

    /// Until when an item that is now written may be credited: its life's end (law L3.7), but for a forwarded one the
    /// delivery bound, which it also had to be written within. Until then it holds a credit of the channel that it came
    /// on, with everything behind it there, and keeps its stream to its next hop: neither is for that hop to take.
    pub(crate) fn until(&self, item: &Item, now: Duration) -> Duration {
        if item.settle.is_forward() {
            return item.deadline;
        }
        let left = item.payload.transaction.content.expires_at().saturating_sub(self.clock.wall());
        item.deadline.max(now.saturating_add(Duration::from_millis(left)))
    }

    pub(crate) fn has_work(&self, peer: &PeerId) -> bool {
        self.lock().queues.has_work(peer)
    }

    /// The swarm is connected to `peer`, or is not any more.
    pub(crate) fn set_connected(&self, peer: &PeerId, connected: bool) {
        let mut state = self.lock();
        if connected {
            state.connected.insert(*peer);
        } else {
            state.connected.remove(peer);
        }
    }

    pub(crate) fn is_connected(&self, peer: &PeerId) -> bool {
        self.lock().connected.contains(peer)
    }

    /// From now on a link takes what is queued for `peer`; it is woken by `waker`.
    pub(crate) fn link_started(&self, peer: PeerId, waker: Arc<AtomicWaker>) {
        self.lock().links.insert(peer, waker);
    }

    pub(crate) fn link_ended(&self, peer: &PeerId) {
        self.lock().links.remove(peer);
    }

    /// The peers that got work while no link took it.
    pub(crate) fn wanting(&self) -> HashSet<PeerId> {
        std::mem::take(&mut self.lock().wanting)
    }

    /// Settles as lost what is past its time, and says when to look again.
    pub(crate) fn expire(self: &Arc<Self>, now: Duration) -> Option<Duration> {
        let (mut let_in, mut expired, mut woken) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = self.lock();
        loop {
            let before = let_in.len();
            let Some((peer, _, removed)) = state.queues.expire(now, &mut let_in) else { break };
            let link = state.links.get(&peer).map(Arc::clone);
            expired.push((removed, link.is_some()));
            if let_in.len() > before {
                match link {
                    Some(link) => woken.push(link),
                    None => {
                        state.wanting.insert(peer);
                    }
                }
            }
        }
        let wanted = !state.wanting.is_empty();
        state.armed = state.queues.next_deadline();
        let next = state.armed;
        drop(state);
        if wanted {
            self.behaviour.wake();
        }
        woken.iter().for_each(|link: &Arc<AtomicWaker>| link.wake());
        self.tell(let_in);
        for (removed, connected) in expired {
            let reason = match &removed {
                Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } => item.settle.overdue(connected),
                Removed::Waiting { .. } | Removed::Message { .. } if connected => LossReason::Expired,
                Removed::Waiting { .. } | Removed::Message { .. } => LossReason::NotConnected,
            };
            lose(removed, reason);
        }
        next
    }

    /// How many more frames of a message may be queued now. `None` once it is gone.
    pub(super) fn free(&self, parts: &Parts) -> Option<usize> {
        let Parts { peer, class, name, .. } = parts;
        self.lock().queues.free(peer, *class, *name)
    }

    /// Queues the next frame of a message, if it has room and is not gone; else the frame is dropped.
    pub(super) fn append(&self, parts: &Parts, item: Item) {
        let Parts { peer, class, name, .. } = parts;
        let mut state = self.lock();
        let appended = state.queues.append(peer, *class, *name, item);
        self.wake(state, peer);
        drop(appended);
    }

    /// A message has all its frames, or none are to come: what is queued of it goes if it was `given_up`.
    pub(super) fn finish(self: &Arc<Self>, parts: &Parts, given_up: bool) {
        let Parts { peer, class, name, .. } = parts;
        let mut let_in = Vec::new();
        let mut state = self.lock();
        let removed = if given_up {
            state.queues.remove(peer, *class, *name, &mut let_in)
        } else {
            state.queues.finish(peer, *class, *name, &mut let_in);
            None
        };
        self.wake(state, peer);
        self.tell(let_in);
        drop(removed);
    }

    /// A channel of `peer` ended, which lanes that `on_it` names were on: their messages of which some frames were
    /// written, and some not, are lost (law L3.8).
    pub(crate) fn interrupt(self: &Arc<Self>, peer: &PeerId, on_it: impl Fn(usize) -> bool, reason: LossReason) {
        let (mut let_in, mut lost) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        for class in Class::ALL.into_iter().filter(|class| on_it(usize::from(class.lane()))) {
            lost.extend(state.queues.interrupt(peer, class, &mut let_in));
        }
        self.wake_for(state, peer, &let_in);
        self.tell(let_in);
        lost.into_iter().for_each(|removed| lose(removed, reason));
    }

    /// Settles everything queued for `peer` as lost.
    pub(crate) fn drain(&self, peer: &PeerId, reason: LossReason) {
        let removed = self.lock().queues.drain(peer);
        removed.into_iter().for_each(|removed| lose(removed, reason));
    }

    /// Accepts nothing new.
    pub(crate) fn drain_only(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Draining;
        }
    }

    /// Ends everything: what is queued is lost, and the links end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        let peers: Vec<_> = state.queues.peers().copied().collect();
        let removed: Vec<_> = peers.iter().flat_map(|peer| state.queues.drain(peer)).collect();
        let links: Vec<_> = state.links.values().cloned().collect();
        drop(state);
        removed.into_iter().for_each(|removed| lose(removed, LossReason::Shutdown));
        links.iter().for_each(|waker| waker.wake());
    }

    /// Whether no send is unsettled and no room is taken.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.count() == 0 && self.lock().queues.held().0 == 0
    }

    /// Looks at the queues, with how many links write and whether sends are accepted.
    pub(super) fn inspect<R>(&self, look: impl FnOnce(&Queues<PeerId, Item, Waiter>, usize, bool) -> R) -> R {
        let state = self.lock();
        look(&state.queues, state.links.len(), state.phase == Phase::Open)
    }

    /// How many streams have unsettled frames.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.lock().routes.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, and the queue core does not panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(self: &Arc<Self>, peer: PeerId, reserved: Reserved<PeerId>, passage: Option<Passage>) -> Room {
        Room { reserved: Some(reserved), passage, peer, shared: Arc::clone(self) }
    }

    /// Takes a frame into its stream: whether it may go to `peer` now, its name, and what it is to hold meanwhile.
    fn enter(self: &Arc<Self>, state: &mut State, stream: Stream, peer: &PeerId) -> (bool, u64, Passage) {
        let name = state.queues.name();
        let goes = state.routes.enter(stream, peer, name);
        (goes, name, Passage::new(stream, name, Arc::downgrade(self)))
    }

    /// Wakes whoever writes what was queued for `peer`, or has to find a way to it.
    fn queued(&self, mut state: MutexGuard<'_, State>, peer: &PeerId, deadline: Duration) {
        self.arm(&mut state, deadline);
        self.wake(state, peer);
    }

    /// As [`Shared::wake`], if anyone was let in.
    fn wake_for(&self, state: MutexGuard<'_, State>, peer: &PeerId, let_in: &[LetIn<PeerId, Waiter>]) {
        if !let_in.is_empty() {
            self.wake(state, peer);
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>, peer: &PeerId) {
        match state.links.get(peer).map(Arc::clone) {
            Some(link) => {
                drop(state);
                link.wake();
            }
            None => {
                state.wanting.insert(*peer);
                drop(state);
                self.behaviour.wake();
            }
        }
    }

    /// Has the behaviour's timer set no later than `deadline`.
    fn arm(&self, state: &mut State, deadline: Duration) {
        if state.armed.is_none_or(|armed| deadline < armed) {
            state.armed = Some(deadline);
            self.behaviour.wake();
        }
    }

    /// Tells those who were let in. A room that nobody waits for any more is given back.
    fn tell(self: &Arc<Self>, let_in: Vec<LetIn<PeerId, Waiter>>) {
        for LetIn { notify, room } in let_in {
            match (notify, room) {
                (Waiter::Room(teller, passage), Some(reserved)) => {
                    let room = self.room(*reserved.peer(), reserved, passage);
                    drop(teller.send(Ok(room)));
                }
                // A caller that just went away leaves its frame queued: it was accepted.
                (Waiter::Frame(teller), _) => drop(teller.send(Ok(()))),
                (Waiter::Room(..), None) | (Waiter::Accepted | Waiter::Message(_), _) => {}
            }
        }
    }
}

/// Chooses among the lanes of one link.
pub(crate) trait Picker {
    fn pick(&mut self, ready: Ready) -> Option<Class>;
    fn picked(&mut self, item: &Item);
}

/// How a peer's lanes stand after frames were taken off them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) closed: bool,
    pub(crate) ready: Ready,
    /// Whether anything is queued, or room for it taken.
    pub(crate) work: bool,
}

impl Room {
    /// Queues a frame in this room. After a shutdown it is lost at once.
    pub(crate) fn fill(mut self, mut item: Item) {
        let deadline = item.deadline;
        self.passage.take().into_iter().for_each(|passage| item.settle.holds(passage));
        let mut state = self.shared.lock();
        let reserved = if state.phase == Phase::Closed { None } else { self.reserved.take() };
        match reserved {
            Some(reserved) => {
                state.queues.fill(reserved, deadline, item);
                self.shared.queued(state, &self.peer, deadline);
            }
            None => {
                drop(state);
                item.settle.lost(LossReason::Shutdown);
            }
        }
    }

    /// Opens a message in this room, which was asked for a message. It ends as `ending` by `deadline`; after a shutdown
    /// it is lost at once.
    pub(crate) fn begin(mut self, deadline: Duration, mut ending: Ending) -> Option<Message> {
        self.passage.take().into_iter().for_each(|passage| ending.holds(passage));
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let reserved = if state.phase == Phase::Closed { None } else { self.reserved.take() };
        let name = state.queues.name();
        let Some(reserved) = reserved else {
            drop(state);
            ending.lost(LossReason::Shutdown);
            return None;
        };
        let parts = Arc::new(Parts::new((self.peer, reserved.class(), name), deadline, ending, &shared));
        state.queues.begin(reserved, name, deadline, Waiter::Message(Arc::clone(&parts)));
        shared.queued(state, &self.peer, deadline);
        Some(Message::new(parts))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(reserved) = self.reserved.take() else { return };
        let mut let_in = Vec::new();
        let mut state = self.shared.lock();
        state.queues.release(reserved, &mut let_in);
        self.shared.wake_for(state, &self.peer, &let_in);
        self.shared.tell(let_in);
        self.shared.outstanding.changed.notify_waiters();
    }
}

/// Makes the channel that one in line is told by, which most never need.
fn teller<T>(told: &mut Option<oneshot::Receiver<T>>) -> oneshot::Sender<T> {
    let (teller, receiver) = oneshot::channel();
    *told = Some(receiver);
    teller
}

fn lose(removed: Removed<Item, Waiter>, reason: LossReason) {
    match removed {
        Removed::Queued(item) => item.settle.lost(reason),
        Removed::Waiting { item, notify } => {
            let lost = Lost::never_written(reason);
            match (item, notify) {
                (item, Waiter::Accepted) => item.into_iter().for_each(|item| item.settle.lost(reason)),
                (item, Waiter::Frame(teller)) => {
                    item.into_iter().for_each(|item| item.settle.abandon());
                    let _ = teller.send(Err(lost));
                }
                (_, Waiter::Room(teller, _)) => drop(teller.send(Err(lost))),
                (_, Waiter::Message(_)) => {}
            }
        }
        Removed::Message { items, notify, started } => {
            if let Waiter::Message(parts) = notify {
                parts.lost(reason, started);
            }
            // They settled with it.
            drop(items);
        }
    }
}
