//! What waits to be written: per peer four lanes, bounded in items and bytes, under a common bound (law L3.7).
//!
//! **State.** Each lane has a queue of items, room taken and not filled yet, a line of callers that wait for room, and
//! aside from the line those that may not stand in it yet: their stream has frames on another hop (law L3.9), or a
//! message of several items is on its way. An item takes room from when it is let in until it is popped, expires or
//! is drained. All deadlines stand in one ordered table.
//!
//! **Transitions.** [`Queues::offer`] queues an item, or puts it in line; [`Queues::reserve`] takes room first, to be
//! given up by [`Queues::fill`], [`Queues::begin`] or [`Queues::release`]. A line is first come, first served, and nobody
//! passes it: whoever finds someone waiting waits too. Whenever room in a lane comes free, its line is let in as far as
//! it fits. Items leave in the order in which they were let in, a reserved one in the order in which it was filled.
//! [`Queues::set_aside`] keeps one back until [`Queues::join`] puts it at the end of the line, or lets it in; meanwhile
//! it takes no room and holds up nobody.
//! [`Queues::expire`] removes what is past its deadline, queued, in line or aside.
//!
//! **Messages** of several items, which no other of this node's own stands between (law L3.6). In each lane one has
//! the turn, from when it stands in line or has room until it is finished. This node's own that come meanwhile wait for
//! it, in order, aside from the line, so that what is forwarded passes them; one that had its room before is kept
//! behind the message. [`Queues::begin`] opens a message in room for one item; [`Queues::append`] queues its items one by
//! one as room comes, and [`Queues::finish`] ends it. While it is open it keeps the room of what is popped of it for
//! what follows, and takes more, up to [`MESSAGE_FRAMES`](lane::MESSAGE_FRAMES), where there is some: so it never waits for those behind it.
//! What is forwarded goes on between its items, in the order in which it comes. A message has one deadline and leaves
//! as one: by its deadline, by [`Queues::remove`], or, when its link ends while some of it was popped and some was not,
//! by [`Queues::interrupt`] (law L3.8); of what is left nothing is popped any more, and the lane goes on.
//!
//! **Bounds.** Items and bytes per lane, items and bytes in all, and peers. A lane that holds nothing lets one item in
//! whatever the common bound says, so one peer's backlog never shuts another out (law L3.5); the common bound is
//! therefore exceeded by at most one item a lane. Lines, and what is aside, are bounded by their callers, who hold what
//! they wait with.
//!
//! **Failures.** A new peer past the bound on peers is refused with what it came with. Nothing is dropped in silence:
//! what leaves other than by `pop` is handed back.

mod lane;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use self::lane::{Lane, Left, Waiting};
use super::scheduler::{LANES, Ready};
use crate::message::Class;

/// The bounds of all queues of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) lane_items: usize,
    pub(crate) lane_bytes: usize,
    pub(crate) all_items: usize,
    pub(crate) all_bytes: usize,
    pub(crate) peers: usize,
}

/// What one who wants to queue something says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) class: Class,
    /// Of the item; of one item of a message.
    pub(crate) bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) traffic: Traffic,
}

/// Whose an item is, which decides how it stands to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Forwarded,
    Own,
    /// This node's own, in several items.
    Message,
}

/// Items `T` on their way to peers `P`, and the handles `N` by which those who wait for room, or have a message open,
/// are told.
#[derive(Debug)]
pub(crate) struct Queues<P, T, N> {
    peers: HashMap<P, [Lane<T, N>; LANES]>,
    deadlines: BTreeMap<(Duration, u64), (P, Class)>,
    next_id: u64,
    common: Common,
}

/// What all lanes share.
#[derive(Debug)]
struct Common {
    limits: Limits,
    items: usize,
    bytes: usize,
}

/// Room taken in a lane. It must be filled, begun or released.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Reserved<P> {
    peer: P,
    class: Class,
    bytes: usize,
    traffic: Traffic,
}

impl<P> Reserved<P> {
    pub(crate) const fn peer(&self) -> &P {
        &self.peer
    }

    pub(crate) const fn class(&self) -> Class {
        self.class
    }
}

/// Someone in line was let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LetIn<P, N> {
    pub(crate) notify: N,
    /// The room, for one that asked for room; the others' items are queued.
    pub(crate) room: Option<Reserved<P>>,
}

/// What became of an offer or a reservation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<Now, T> {
    /// Done.
    Now(Now),
    /// In line, under this name.
    Waiting(u64),
    /// The bound on peers is reached.
    PeersFull(T),
}

/// What left other than by being popped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removed<T, N> {
    Queued(T),
    Waiting {
        item: Option<T>,
        notify: N,
    },
    /// A message, with those of its items that were queued, and whether any was popped before.
    Message {
        items: Vec<T>,
        notify: N,
        started: bool,
    },
}

impl<P: Clone + Eq + Hash, T, N> Queues<P, T, N> {
    pub(crate) fn new(limits: Limits) -> Self {
        let common = Common { limits, items: 0, bytes: 0 };
        Self { peers: HashMap::new(), deadlines: BTreeMap::new(), next_id: 0, common }
    }

    /// Queues `item`, or puts it in line until its deadline; `notify` is made only for one in line.
    pub(crate) fn offer(&mut self, peer: &P, terms: Terms, item: T, notify: impl FnOnce() -> N) -> Entry<(), T> {
        if !self.knows_or_may_add(peer) {
            return Entry::PeersFull(item);
        }
        let id = self.name();
        let Some((lane, common)) = self.lane(peer, terms.class) else { return Entry::PeersFull(item) };
        let fits = lane.take_room(&terms, common);
        if fits {
            lane.push(id, terms, item);
        } else {
            lane.stand(Waiting { id, terms, item: Some(item), notify: notify() });
        }
        self.deadlines.insert((terms.deadline, id), (peer.clone(), terms.class));
        if fits { Entry::Now(()) } else { Entry::Waiting(id) }
    }

    /// Takes room for an item, or stands in line for it, or for the turn, until its deadline.
    pub(crate) fn reserve(&mut self, peer: &P, terms: Terms, notify: impl FnOnce() -> N) -> Entry<Reserved<P>, ()> {
        if !self.knows_or_may_add(peer) {
            return Entry::PeersFull(());
        }
        let id = self.name();
        let Terms { class, bytes, traffic, deadline } = terms;
        let Some((lane, common)) = self.lane(peer, class) else { return Entry::PeersFull(()) };
        if lane.take_room(&terms, common) {
            return Entry::Now(Reserved { peer: peer.clone(), class, bytes, traffic });
        }
        lane.stand(Waiting { id, terms, item: None, notify: notify() });
        self.deadlines.insert((deadline, id), (peer.clone(), class));
        Entry::Waiting(id)
    }

    /// Keeps an item, or with none a wish for room, aside under `name` until it joins the line or its deadline comes.
    /// Handed back past the bound on peers.
    pub(crate) fn set_aside(
        &mut self,
        peer: &P,
        terms: Terms,
        name: u64,
        item: Option<T>,
        notify: N,
    ) -> Result<(), (Option<T>, N)> {
        if !self.knows_or_may_add(peer) {
            return Err((item, notify));
        }
        if let Some((lane, _)) = self.lane(peer, terms.class) {
            lane.aside.insert(name, Waiting { id: name, terms, item, notify });
            self.deadlines.insert((terms.deadline, name), (peer.clone(), terms.class));
        }
        Ok(())
    }

    /// Puts what was kept aside at the end of the line, or lets it in. Nothing, if it is not aside any more.
    pub(crate) fn join(&mut self, peer: &P, class: Class, name: u64, let_in: &mut Vec<LetIn<P, N>>) {
        let Some((lane, _)) = self.lane(peer, class) else { return };
        let Some(waiting) = lane.aside.remove(&name) else { return };
        lane.stand(waiting);
        self.let_in(peer, class, let_in);
    }

    /// Queues `item` in room taken before.
    pub(crate) fn fill(&mut self, room: Reserved<P>, deadline: Duration, item: T) {
        let Reserved { peer, class, bytes, traffic } = room;
        let id = self.name();
        let Some((lane, _)) = self.lane(&peer, class) else { return };
        lane.push(id, Terms { class, bytes, deadline, traffic }, item);
        self.deadlines.insert((deadline, id), (peer, class));
    }

    /// Gives room back unused.
    pub(crate) fn release(&mut self, room: Reserved<P>, let_in: &mut Vec<LetIn<P, N>>) {
        let Some((lane, common)) = self.lane(&room.peer, room.class) else { return };
        lane.give_room(room.bytes, common);
        if room.traffic == Traffic::Message {
            lane.pass_turn();
        }
        self.let_in(&room.peer, room.class, let_in);
    }

    /// Opens a message under a `name` of its own, in room that was taken for it.
    pub(crate) fn begin(&mut self, room: Reserved<P>, name: u64, deadline: Duration, notify: N) {
        debug_assert_eq!(room.traffic, Traffic::Message);
        let Reserved { peer, class, bytes, .. } = room;
        let Some((lane, common)) = self.lane(&peer, class) else { return };
        lane.begin(name, bytes, deadline, notify, common);
        self.deadlines.insert((deadline, name), (peer, class));
    }

    /// How many more items of a message may be appended now. `None` once it is gone.
    pub(crate) fn free(&self, peer: &P, class: Class, name: u64) -> Option<usize> {
        self.peers.get(peer)?.get(usize::from(class.lane()))?.free(name)
    }

    /// Queues the next item of an open message. Handed back if it has no room for it, or is gone.
    pub(crate) fn append(&mut self, peer: &P, class: Class, name: u64, item: T) -> Result<(), T> {
        let id = self.name();
        match self.lane(peer, class) {
            Some((lane, _)) => lane.append(name, id, item),
            None => Err(item),
        }
    }

    /// A message has all its items. Nothing, if it is gone.
    pub(crate) fn finish(&mut self, peer: &P, class: Class, name: u64, let_in: &mut Vec<LetIn<P, N>>) {
        let Some((lane, common)) = self.lane(peer, class) else { return };
        if let Some(deadline) = lane.finish(name, common) {
            self.deadlines.remove(&(deadline, name));
        }
        self.let_in(peer, class, let_in);
    }

    /// Removes a message and what is queued of it. Nothing, if all of it was popped, or it was removed before.
    pub(crate) fn remove(
        &mut self,
        peer: &P,
        class: Class,
        name: u64,
        let_in: &mut Vec<LetIn<P, N>>,
    ) -> Option<Removed<T, N>> {
        let (lane, common) = self.lane(peer, class)?;
        let left = lane.remove_message(name, common)?;
        self.deadlines.remove(&(left.deadline, name));
        self.let_in(peer, class, let_in);
        Some(left.into())
    }

    /// The link of a lane ended: removes the message of which some items were popped and some were not.
    pub(crate) fn interrupt(&mut self, peer: &P, class: Class, let_in: &mut Vec<LetIn<P, N>>) -> Option<Removed<T, N>> {
        let (lane, _) = self.lane(peer, class)?;
        let started = lane.started()?;
        self.remove(peer, class, started, let_in)
    }

    /// Takes the item at the head of a lane.
    pub(crate) fn pop(&mut self, peer: &P, class: Class, let_in: &mut Vec<LetIn<P, N>>) -> Option<T> {
        let (lane, common) = self.lane(peer, class)?;
        let popped = lane.pop(common)?;
        if let Some(over) = popped.over {
            self.deadlines.remove(&over);
        }
        self.let_in(peer, class, let_in);
        Some(popped.item)
    }

    /// Leaves the line, or what is aside. What stood there, unless it was let in or removed before.
    pub(crate) fn cancel(
        &mut self,
        peer: &P,
        class: Class,
        id: u64,
        let_in: &mut Vec<LetIn<P, N>>,
    ) -> Option<Removed<T, N>> {
        let (lane, _) = self.lane(peer, class)?;
        let waiting = lane.remove_waiting(id)?;
        self.deadlines.remove(&(waiting.terms.deadline, id));
        self.let_in(peer, class, let_in);
        Some(waiting.into())
    }

    /// Removes the item, queued or waiting, or the message, whose deadline is the earliest at or before `now`. Called
    /// until `None`.
    pub(crate) fn expire(&mut self, now: Duration, let_in: &mut Vec<LetIn<P, N>>) -> Option<(P, Class, Removed<T, N>)> {
        let earliest = self.deadlines.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, id), (peer, class)) = earliest.remove_entry();
        let (lane, common) = self.lane(&peer, class)?;
        let removed = if let Some(left) = lane.remove_message(id, common) {
            left.into()
        } else if let Some(queued) = lane.remove_queued(id, common) {
            Removed::Queued(queued.item)
        } else {
            lane.remove_waiting(id)?.into()
        };
        self.let_in(&peer, class, let_in);
        Some((peer, class, removed))
    }

    /// The earliest deadline of anything queued or waiting.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.keys().next().map(|(deadline, _)| *deadline)
    }

    /// Removes everything queued and waiting for `peer`, in order. Room that was taken stays taken.
    pub(crate) fn drain(&mut self, peer: &P) -> Vec<Removed<T, N>> {
        let mut removed = Vec::new();
        let Self { peers, deadlines, common, .. } = self;
        let Some(lanes) = peers.get_mut(peer) else { return removed };
        for lane in lanes.iter_mut() {
            // Those who wait leave first, so that nobody gets the turn.
            let (turns, aside) = (std::mem::take(&mut lane.turns), std::mem::take(&mut lane.aside));
            let mut waiting = Vec::new();
            while let Some(id) = lane.line.front().map(|waiting| waiting.id) {
                waiting.extend(lane.remove_waiting(id));
            }
            waiting.extend(turns.into_iter().chain(aside.into_values()));
            while let Some(name) = lane.messages.keys().next().copied() {
                let Some(left) = lane.remove_message(name, common) else { break };
                deadlines.remove(&(left.deadline, name));
                removed.push(left.into());
            }
            while let Some(popped) = lane.pop(common) {
                popped.over.iter().for_each(|over| drop(deadlines.remove(over)));
                removed.push(Removed::Queued(popped.item));
            }
            for waiting in waiting {
                deadlines.remove(&(waiting.terms.deadline, waiting.id));
                removed.push(waiting.into());
            }
        }
        self.forget_if_empty(peer);
        removed
    }

    /// Which lanes of `peer` have an item queued.
    pub(crate) fn ready(&self, peer: &P) -> Ready {
        self.peers.get(peer).map_or([false; LANES], |lanes| lanes.each_ref().map(|lane| !lane.queued.is_empty()))
    }

    /// Whether anything is queued for `peer` or waits for room, or room for it is taken.
    pub(crate) fn has_work(&self, peer: &P) -> bool {
        self.peers.contains_key(peer)
    }

    /// The peers that anything is queued for or waits for, or room taken for.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &P> {
        self.peers.keys()
    }

    /// How many peers that is.
    pub(crate) fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Items that hold room in all lanes, and their bytes.
    pub(crate) const fn held(&self) -> (usize, usize) {
        (self.common.items, self.common.bytes)
    }

    /// A name that none had before, greater than all of them.
    pub(crate) fn name(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn lane(&mut self, peer: &P, class: Class) -> Option<(&mut Lane<T, N>, &mut Common)> {
        let lane = self.peers.get_mut(peer)?.get_mut(usize::from(class.lane()))?;
        Some((lane, &mut self.common))
    }

    fn knows_or_may_add(&mut self, peer: &P) -> bool {
        if self.peers.contains_key(peer) {
            return true;
        }
        let may = self.peers.len() < self.common.limits.peers;
        if may {
            self.peers.insert(peer.clone(), std::array::from_fn(|_| Lane::new()));
        }
        may
    }

    /// Lets in those at the head of a lane's line that fit.
    fn let_in(&mut self, peer: &P, class: Class, let_in: &mut Vec<LetIn<P, N>>) {
        while let Some((lane, common)) = self.lane(peer, class) {
            let Some(Waiting { id, terms, item, notify }) = lane.let_in(common) else { break };
            let room = match item {
                Some(item) => {
                    lane.push(id, terms, item);
                    None
                }
                None => {
                    self.deadlines.remove(&(terms.deadline, id));
                    Some(Reserved { peer: peer.clone(), class, bytes: terms.bytes, traffic: terms.traffic })
                }
            };
            let_in.push(LetIn { notify, room });
        }
        self.forget_if_empty(peer);
    }

    fn forget_if_empty(&mut self, peer: &P) {
        if self.peers.get(peer).is_some_and(|lanes| lanes.iter().all(Lane::is_empty)) {
            self.peers.remove(peer);
        }
    }
}

impl<T, N> From<Left<T, N>> for Removed<T, N> {
    fn from(Left { items, notify, started, .. }: Left<T, N>) -> Self {
        Removed::Message { items, notify, started }
    }
}

impl<T, N> From<Waiting<T, N>> for Removed<T, N> {
    fn from(Waiting { item, notify, .. }: Waiting<T, N>) -> Self {
        Removed::Waiting { item, notify }
    }
}

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod tests;
