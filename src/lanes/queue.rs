//! What waits to be written: per peer four lanes, bounded in items and bytes, under a common bound (law L3.7).
//!
//! **State.** Each lane has a queue of items, room taken and not filled yet, a line of callers that wait for room, and
//! aside from the line those that may not stand in it yet, since their stream has frames on another hop (law L3.9).
//! An item takes room from when it is let in until it is popped, expires or is drained. All deadlines stand in one
//! ordered table.
//!
//! **Transitions.** [`Queues::offer`] queues an item, or puts it in line; [`Queues::reserve`] takes room first, to be
//! given up by [`Queues::fill`] or [`Queues::release`]. A line is first come, first served, and nobody passes it:
//! whoever finds someone waiting waits too. Whenever room in a lane comes free, its line is let in as far as it fits.
//! Items leave in the order in which they were let in, a reserved one in the order in which it was filled.
//! [`Queues::set_aside`] keeps one back until [`Queues::join`] puts it at the end of the line, or lets it in; meanwhile
//! it takes no room and holds up nobody.
//! [`Queues::expire`] removes what is past its deadline, queued, in line or aside.
//!
//! **Bounds.** Items and bytes per lane, items and bytes in all, and peers. A lane that holds nothing lets one item in
//! whatever the common bound says, so one peer's backlog never shuts another out (law L3.5); the common bound is
//! therefore exceeded by at most one item a lane. Lines, and what is aside, are bounded by their callers, who hold what
//! they wait with.
//!
//! **Failures.** A new peer past the bound on peers is refused with what it came with. Nothing is dropped in silence:
//! what leaves other than by `pop` is handed back.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

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

/// Items `T` on their way to peers `P`, and the handles `N` by which those who wait for room are told.
#[derive(Debug)]
pub(crate) struct Queues<P, T, N> {
    limits: Limits,
    peers: HashMap<P, [Lane<T, N>; LANES]>,
    deadlines: BTreeMap<(Duration, u64), (P, Class)>,
    next_id: u64,
    items: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Lane<T, N> {
    queued: VecDeque<Queued<T>>,
    line: VecDeque<Waiting<T, N>>,
    aside: BTreeMap<u64, Waiting<T, N>>,
    items: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Queued<T> {
    id: u64,
    deadline: Duration,
    bytes: usize,
    item: T,
}

#[derive(Debug)]
struct Waiting<T, N> {
    id: u64,
    deadline: Duration,
    bytes: usize,
    /// The item to queue, or nothing for one that wants room.
    item: Option<T>,
    notify: N,
}

/// Room taken in a lane. It must be filled or released.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Reserved<P> {
    peer: P,
    class: Class,
    bytes: usize,
}

impl<P> Reserved<P> {
    pub(crate) const fn peer(&self) -> &P {
        &self.peer
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
    Waiting { item: Option<T>, notify: N },
}

impl<P: Clone + Eq + Hash, T, N> Queues<P, T, N> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, peers: HashMap::new(), deadlines: BTreeMap::new(), next_id: 0, items: 0, bytes: 0 }
    }

    /// Queues `item` of `bytes`, or puts it in line until `deadline`; `notify` is made only for one in line.
    pub(crate) fn offer(
        &mut self,
        peer: &P,
        class: Class,
        bytes: usize,
        deadline: Duration,
        item: T,
        notify: impl FnOnce() -> N,
    ) -> Entry<(), T> {
        if !self.knows_or_may_add(peer) {
            return Entry::PeersFull(item);
        }
        if self.take_room(peer, class, bytes) {
            self.push(peer, class, bytes, deadline, item);
            return Entry::Now(());
        }
        Entry::Waiting(self.stand_in_line(peer, class, bytes, deadline, Some(item), notify()))
    }

    /// Takes room for an item of `bytes`, or stands in line for it until `deadline`.
    pub(crate) fn reserve(
        &mut self,
        peer: &P,
        class: Class,
        bytes: usize,
        deadline: Duration,
        notify: impl FnOnce() -> N,
    ) -> Entry<Reserved<P>, ()> {
        if !self.knows_or_may_add(peer) {
            return Entry::PeersFull(());
        }
        if self.take_room(peer, class, bytes) {
            return Entry::Now(Reserved { peer: peer.clone(), class, bytes });
        }
        Entry::Waiting(self.stand_in_line(peer, class, bytes, deadline, None, notify()))
    }

    /// Keeps an item of `bytes`, or with none a wish for room, aside under `name` until it joins the line or `deadline`
    /// comes. Handed back past the bound on peers.
    pub(crate) fn set_aside(
        &mut self,
        peer: &P,
        class: Class,
        name: u64,
        (bytes, deadline): (usize, Duration),
        item: Option<T>,
        notify: N,
    ) -> Result<(), (Option<T>, N)> {
        if !self.knows_or_may_add(peer) {
            return Err((item, notify));
        }
        if let Some(lane) = self.lane(peer, class) {
            lane.aside.insert(name, Waiting { id: name, deadline, bytes, item, notify });
            self.deadlines.insert((deadline, name), (peer.clone(), class));
        }
        Ok(())
    }

    /// Puts what was kept aside at the end of the line, or lets it in. Nothing, if it is not aside any more.
    pub(crate) fn join(&mut self, peer: &P, class: Class, name: u64, let_in: &mut Vec<LetIn<P, N>>) {
        let Some(lane) = self.lane(peer, class) else { return };
        let Some(waiting) = lane.aside.remove(&name) else { return };
        lane.line.push_back(waiting);
        self.let_in(peer, class, let_in);
    }

    /// Queues `item` in room taken before.
    pub(crate) fn fill(&mut self, room: Reserved<P>, deadline: Duration, item: T) {
        self.push(&room.peer, room.class, room.bytes, deadline, item);
    }

    /// Gives room back unused.
    pub(crate) fn release(&mut self, room: Reserved<P>, let_in: &mut Vec<LetIn<P, N>>) {
        self.give_room(&room.peer, room.class, room.bytes, let_in);
    }

    /// Takes the item at the head of a lane.
    pub(crate) fn pop(&mut self, peer: &P, class: Class, let_in: &mut Vec<LetIn<P, N>>) -> Option<T> {
        let queued = self.lane(peer, class)?.queued.pop_front()?;
        self.deadlines.remove(&(queued.deadline, queued.id));
        self.give_room(peer, class, queued.bytes, let_in);
        Some(queued.item)
    }

    /// Leaves the line, or what is aside. What stood there, unless it was let in or removed before.
    pub(crate) fn cancel(
        &mut self,
        peer: &P,
        class: Class,
        id: u64,
        let_in: &mut Vec<LetIn<P, N>>,
    ) -> Option<Removed<T, N>> {
        let waiting = self.lane(peer, class)?.remove_waiting(id)?;
        self.deadlines.remove(&(waiting.deadline, id));
        self.let_in(peer, class, let_in);
        Some(Removed::Waiting { item: waiting.item, notify: waiting.notify })
    }

    /// Removes the item, queued or waiting, whose deadline is the earliest at or before `now`. Called until `None`.
    pub(crate) fn expire(&mut self, now: Duration, let_in: &mut Vec<LetIn<P, N>>) -> Option<(P, Class, Removed<T, N>)> {
        let earliest = self.deadlines.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, id), (peer, class)) = earliest.remove_entry();
        let lane = self.lane(&peer, class)?;
        if let Some(place) = lane.queued.iter().position(|queued| queued.id == id) {
            let queued = lane.queued.remove(place)?;
            self.give_room(&peer, class, queued.bytes, let_in);
            return Some((peer, class, Removed::Queued(queued.item)));
        }
        let waiting = lane.remove_waiting(id)?;
        self.let_in(&peer, class, let_in);
        Some((peer, class, Removed::Waiting { item: waiting.item, notify: waiting.notify }))
    }

    /// The earliest deadline of anything queued or waiting.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.keys().next().map(|(deadline, _)| *deadline)
    }

    /// Removes everything queued and waiting for `peer`, in order. Room that was taken stays taken.
    pub(crate) fn drain(&mut self, peer: &P) -> Vec<Removed<T, N>> {
        let mut removed = Vec::new();
        let Some(lanes) = self.peers.get_mut(peer) else { return removed };
        for lane in lanes.iter_mut() {
            for queued in lane.queued.drain(..) {
                self.deadlines.remove(&(queued.deadline, queued.id));
                lane.items -= 1;
                lane.bytes -= queued.bytes;
                self.items -= 1;
                self.bytes -= queued.bytes;
                removed.push(Removed::Queued(queued.item));
            }
            let aside = std::mem::take(&mut lane.aside).into_values();
            for waiting in lane.line.drain(..).chain(aside) {
                self.deadlines.remove(&(waiting.deadline, waiting.id));
                removed.push(Removed::Waiting { item: waiting.item, notify: waiting.notify });
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
        (self.items, self.bytes)
    }

    fn lane(&mut self, peer: &P, class: Class) -> Option<&mut Lane<T, N>> {
        self.peers.get_mut(peer).map(|lanes| &mut lanes[usize::from(class.lane())])
    }

    fn knows_or_may_add(&mut self, peer: &P) -> bool {
        if self.peers.contains_key(peer) {
            return true;
        }
        let may = self.peers.len() < self.limits.peers;
        if may {
            self.peers.insert(peer.clone(), std::array::from_fn(|_| Lane::new()));
        }
        may
    }

    /// Takes room at once, if nobody stands in line and it fits.
    fn take_room(&mut self, peer: &P, class: Class, bytes: usize) -> bool {
        let (limits, items, all) = (self.limits, self.items, self.bytes);
        let Some(lane) = self.lane(peer, class) else { return false };
        let fits = lane.line.is_empty() && lane.fits(bytes, &limits, items, all);
        if fits {
            lane.items += 1;
            lane.bytes += bytes;
            self.items += 1;
            self.bytes += bytes;
        }
        fits
    }

    fn give_room(&mut self, peer: &P, class: Class, bytes: usize, let_in: &mut Vec<LetIn<P, N>>) {
        let Some(lane) = self.lane(peer, class) else { return };
        lane.items -= 1;
        lane.bytes -= bytes;
        self.items -= 1;
        self.bytes -= bytes;
        self.let_in(peer, class, let_in);
    }

    fn push(&mut self, peer: &P, class: Class, bytes: usize, deadline: Duration, item: T) {
        let id = self.name();
        let Some(lane) = self.lane(peer, class) else { return };
        lane.queued.push_back(Queued { id, deadline, bytes, item });
        self.deadlines.insert((deadline, id), (peer.clone(), class));
    }

    fn stand_in_line(
        &mut self,
        peer: &P,
        class: Class,
        bytes: usize,
        deadline: Duration,
        item: Option<T>,
        notify: N,
    ) -> u64 {
        let id = self.name();
        if let Some(lane) = self.lane(peer, class) {
            lane.line.push_back(Waiting { id, deadline, bytes, item, notify });
            self.deadlines.insert((deadline, id), (peer.clone(), class));
        }
        id
    }

    /// Lets in those at the head of a lane's line that fit.
    fn let_in(&mut self, peer: &P, class: Class, let_in: &mut Vec<LetIn<P, N>>) {
        loop {
            let (limits, items, all) = (self.limits, self.items, self.bytes);
            let Some(lane) = self.lane(peer, class) else { return };
            if !lane.line.front().is_some_and(|waiting| lane.fits(waiting.bytes, &limits, items, all)) {
                break;
            }
            let Some(waiting) = lane.line.pop_front() else { break };
            let Waiting { id, deadline, bytes, item, notify } = waiting;
            lane.items += 1;
            lane.bytes += bytes;
            self.items += 1;
            self.bytes += bytes;
            self.deadlines.remove(&(deadline, id));
            let room = match item {
                Some(item) => {
                    self.push(peer, class, bytes, deadline, item);
                    None
                }
                None => Some(Reserved { peer: peer.clone(), class, bytes }),
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

    /// A name that none had before, greater than all of them.
    pub(crate) fn name(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl<T, N> Lane<T, N> {
    fn new() -> Self {
        Self { queued: VecDeque::new(), line: VecDeque::new(), aside: BTreeMap::new(), items: 0, bytes: 0 }
    }

    fn is_empty(&self) -> bool {
        self.items == 0 && self.line.is_empty() && self.aside.is_empty()
    }

    fn remove_waiting(&mut self, id: u64) -> Option<Waiting<T, N>> {
        if let Some(waiting) = self.aside.remove(&id) {
            return Some(waiting);
        }
        let place = self.line.iter().position(|waiting| waiting.id == id)?;
        self.line.remove(place)
    }

    fn fits(&self, bytes: usize, limits: &Limits, all_items: usize, all_bytes: usize) -> bool {
        self.items == 0
            || (self.items < limits.lane_items
                && self.bytes + bytes <= limits.lane_bytes
                && all_items < limits.all_items
                && all_bytes + bytes <= limits.all_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { lane_items: 3, lane_bytes: 100, all_items: 6, all_bytes: 150, peers: 2 };
    const LATER: Duration = Duration::from_secs(9);

    type Small = Queues<u8, u32, u32>;

    fn offer(queues: &mut Small, peer: u8, class: Class, bytes: usize, item: u32) -> Entry<(), u32> {
        queues.offer(&peer, class, bytes, LATER, item, || item)
    }

    #[test]
    fn l3_7_a_full_lane_makes_callers_wait_and_lets_them_in_first_come_first_served() {
        let mut queues = Small::new(LIMITS);
        for item in 0..3 {
            assert_eq!(offer(&mut queues, 1, Class::E2e, 10, item), Entry::Now(()));
        }
        assert!(matches!(offer(&mut queues, 1, Class::E2e, 10, 3), Entry::Waiting(_)));
        assert!(matches!(offer(&mut queues, 1, Class::E2e, 1, 4), Entry::Waiting(_)), "nobody passes the line");
        assert_eq!(offer(&mut queues, 1, Class::Storage, 10, 9), Entry::Now(()), "another lane has room of its own");
        let mut let_in = Vec::new();
        assert_eq!(queues.pop(&1, Class::E2e, &mut let_in), Some(0));
        assert_eq!(let_in, [LetIn { notify: 3, room: None }]);
        let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    #[test]
    fn l3_7_bytes_bound_a_lane_and_one_large_item_is_not_passed_by_small_ones() {
        let mut queues = Small::new(LIMITS);
        assert_eq!(offer(&mut queues, 1, Class::E2e, 60, 0), Entry::Now(()));
        assert!(matches!(offer(&mut queues, 1, Class::E2e, 60, 1), Entry::Waiting(_)));
        assert!(matches!(offer(&mut queues, 1, Class::E2e, 1, 2), Entry::Waiting(_)));
        let mut let_in = Vec::new();
        queues.pop(&1, Class::E2e, &mut let_in);
        assert_eq!(let_in.iter().map(|one| one.notify).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn l3_5_the_common_bound_never_shuts_out_an_empty_lane() {
        let mut queues = Small::new(LIMITS);
        for item in 0..3 {
            assert_eq!(offer(&mut queues, 1, Class::E2e, 25, item), Entry::Now(()));
            assert_eq!(offer(&mut queues, 1, Class::Storage, 25, item), Entry::Now(()));
        }
        assert_eq!(queues.held(), (LIMITS.all_items, LIMITS.all_bytes));
        assert_eq!(offer(&mut queues, 2, Class::E2e, 25, 7), Entry::Now(()));
        assert!(matches!(offer(&mut queues, 2, Class::E2e, 25, 8), Entry::Waiting(_)));
    }

    #[test]
    fn l3_7_a_peer_past_the_bound_is_refused_with_its_item_and_an_idle_one_makes_place() {
        let mut queues = Small::new(LIMITS);
        offer(&mut queues, 1, Class::E2e, 1, 1);
        offer(&mut queues, 2, Class::E2e, 1, 2);
        assert_eq!(offer(&mut queues, 3, Class::E2e, 1, 3), Entry::PeersFull(3));
        queues.pop(&1, Class::E2e, &mut Vec::new());
        assert_eq!(offer(&mut queues, 3, Class::E2e, 1, 3), Entry::Now(()));
    }

    #[test]
    fn l3_2_room_is_taken_before_the_item_exists_and_given_back_to_the_line() {
        let mut queues = Small::new(LIMITS);
        let rooms: Vec<_> = (0..3)
            .map(|_| match queues.reserve(&1, Class::E2e, 10, LATER, || 0) {
                Entry::Now(room) => room,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(matches!(queues.reserve(&1, Class::E2e, 10, LATER, || 77), Entry::Waiting(_)));
        let mut let_in = Vec::new();
        for (item, room) in rooms.into_iter().enumerate() {
            if item == 1 { queues.release(room, &mut let_in) } else { queues.fill(room, LATER, item as u32) }
        }
        let waited = let_in.pop().unwrap();
        assert_eq!(waited.notify, 77);
        queues.fill(waited.room.unwrap(), LATER, 9);
        let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
        assert_eq!(order, [0, 2, 9]);
        assert!(!queues.has_work(&1));
    }

    #[test]
    fn l3_7_waiting_for_room_ends_at_its_deadline_and_lets_the_next_in() {
        let mut queues = Small::new(LIMITS);
        let soon = Duration::from_secs(1);
        queues.offer(&1, Class::E2e, 90, LATER, 0, || 0);
        queues.offer(&1, Class::E2e, 90, soon, 1, || 1);
        queues.offer(&1, Class::E2e, 5, LATER, 2, || 2);
        assert_eq!(queues.next_deadline(), Some(soon));
        let mut let_in = Vec::new();
        assert_eq!(queues.expire(Duration::ZERO, &mut let_in), None);
        let expired = queues.expire(soon, &mut let_in);
        assert_eq!(expired, Some((1, Class::E2e, Removed::Waiting { item: Some(1), notify: 1 })));
        assert_eq!(let_in, [LetIn { notify: 2, room: None }]);
        assert_eq!(queues.expire(LATER, &mut let_in), Some((1, Class::E2e, Removed::Queued(0))));
        assert_eq!(queues.expire(LATER, &mut let_in), Some((1, Class::E2e, Removed::Queued(2))));
        assert_eq!(queues.expire(LATER, &mut let_in), None);
        assert_eq!((queues.held(), queues.has_work(&1)), ((0, 0), false));
    }

    #[test]
    fn l3_9_what_is_aside_takes_no_room_and_joins_the_end_of_the_line() {
        let mut queues = Small::new(LIMITS);
        let aside = queues.name();
        assert_eq!(queues.set_aside(&1, Class::E2e, aside, (10, LATER), Some(0), 0), Ok(()));
        assert_eq!((queues.held(), queues.has_work(&1), queues.ready(&1)), ((0, 0), true, [false; LANES]));
        for item in 1..4 {
            assert_eq!(offer(&mut queues, 1, Class::E2e, 10, item), Entry::Now(()), "it holds up nobody");
        }
        assert!(matches!(offer(&mut queues, 1, Class::E2e, 10, 4), Entry::Waiting(_)));
        let mut let_in = Vec::new();
        queues.join(&1, Class::E2e, aside, &mut let_in);
        assert_eq!(let_in, []);
        let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
        assert_eq!(order, [1, 2, 3, 4, 0]);
        assert_eq!(let_in.iter().map(|one| one.notify).collect::<Vec<_>>(), [4, 0]);
    }

    #[test]
    fn l3_9_what_is_aside_ends_by_its_deadline_by_its_caller_or_with_its_peer() {
        let mut queues = Small::new(LIMITS);
        let mut let_in = Vec::new();
        let names: Vec<u64> = (0..3)
            .map(|item| {
                let (name, deadline) = (queues.name(), Duration::from_secs(1 + u64::from(item)));
                assert_eq!(queues.set_aside(&1, Class::E2e, name, (10, deadline), Some(item), item), Ok(()));
                name
            })
            .collect();
        let gone = |item| Removed::Waiting { item: Some(item), notify: item };
        assert_eq!(queues.expire(Duration::from_secs(1), &mut let_in), Some((1, Class::E2e, gone(0))));
        assert_eq!(queues.cancel(&1, Class::E2e, names[1], &mut let_in), Some(gone(1)));
        assert_eq!(queues.drain(&1), [gone(2)]);
        queues.join(&1, Class::E2e, names[2], &mut let_in);
        assert_eq!((let_in.len(), queues.has_work(&1), queues.next_deadline()), (0, false, None));
        // A third peer is past the bound.
        offer(&mut queues, 1, Class::E2e, 1, 1);
        offer(&mut queues, 2, Class::E2e, 1, 2);
        let name = queues.name();
        assert_eq!(queues.set_aside(&3, Class::E2e, name, (1, LATER), Some(3), 3), Err((Some(3), 3)));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Offer { peer: u8, class: Class, bytes: usize, deadline: u64 },
        Reserve { peer: u8, class: Class, bytes: usize },
        SetAside { peer: u8, class: Class, bytes: usize, deadline: u64, item: bool },
        Join(u8),
        Fill(u8),
        Release(u8),
        Pop { peer: u8, class: Class },
        Cancel(u8),
        Expire,
        Drain(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let class = prop_oneof![Just(Class::DhtControl), Just(Class::E2e)];
        let step = prop_oneof![
            4 => (0..3_u8, class.clone(), 1..60_usize, 1..50_u64)
                .prop_map(|(peer, class, bytes, deadline)| Step::Offer { peer, class, bytes, deadline }),
            2 => (0..3_u8, class.clone(), 1..60_usize)
                .prop_map(|(peer, class, bytes)| Step::Reserve { peer, class, bytes }),
            2 => (0..3_u8, class.clone(), 1..60_usize, 1..50_u64, any::<bool>()).prop_map(
                |(peer, class, bytes, deadline, item)| Step::SetAside { peer, class, bytes, deadline, item }
            ),
            2 => any::<u8>().prop_map(Step::Join),
            2 => any::<u8>().prop_map(Step::Fill),
            1 => any::<u8>().prop_map(Step::Release),
            3 => (0..3_u8, class).prop_map(|(peer, class)| Step::Pop { peer, class }),
            1 => any::<u8>().prop_map(Step::Cancel),
            1 => Just(Step::Expire),
            1 => (0..3_u8).prop_map(Step::Drain),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Bounds hold at every step; whatever goes in comes out exactly once; a lane's items come out in the order
        /// in which they were let in; nobody waits before an empty lane.
        #[test]
        fn l3_7_everything_leaves_once_in_order_and_within_the_bounds(steps in steps()) {
            let mut queues = Small::new(LIMITS);
            let (mut next, mut now, mut gone, mut inside) = (0_u32, 0_u64, Vec::new(), Vec::new());
            let mut rooms: Vec<Reserved<u8>> = Vec::new();
            let mut waiting: Vec<(u8, Class, u64)> = Vec::new();
            let mut aside: Vec<(u8, Class, u64)> = Vec::new();
            let mut model: HashMap<(u8, u8), VecDeque<u32>> = HashMap::new();
            let place: std::cell::RefCell<HashMap<u32, (u8, Class)>> = Default::default();
            for step in steps {
                let mut let_in = Vec::new();
                let mut removed = Vec::new();
                match step {
                    Step::Offer { peer, class, bytes, deadline } => {
                        next += 1;
                        let deadline = Duration::from_secs(now + deadline);
                        match queues.offer(&peer, class, bytes, deadline, next, || next) {
                            Entry::Now(()) => {
                                model.entry((peer, class.lane())).or_default().push_back(next);
                                inside.push(next);
                            }
                            Entry::Waiting(id) => {
                                waiting.push((peer, class, id));
                                inside.push(next);
                            }
                            Entry::PeersFull(item) => prop_assert_eq!(item, next),
                        }
                        place.borrow_mut().insert(next, (peer, class));
                    }
                    Step::Reserve { peer, class, bytes } => {
                        next += 1;
                        let deadline = Duration::from_secs(now + 20);
                        match queues.reserve(&peer, class, bytes, deadline, || next) {
                            Entry::Now(room) => rooms.push(room),
                            Entry::Waiting(id) => waiting.push((peer, class, id)),
                            Entry::PeersFull(()) => {}
                        }
                    }
                    Step::SetAside { peer, class, bytes, deadline, item } => {
                        next += 1;
                        let name = queues.name();
                        let (held, terms) = (queues.held(), (bytes, Duration::from_secs(now + deadline)));
                        let kept = queues.set_aside(&peer, class, name, terms, item.then_some(next), next);
                        prop_assert_eq!(queues.held(), held, "it takes no room");
                        place.borrow_mut().insert(next, (peer, class));
                        match kept {
                            Ok(()) => {
                                inside.extend(item.then_some(next));
                                waiting.push((peer, class, name));
                                aside.push((peer, class, name));
                            }
                            Err(back) => prop_assert_eq!(back, (item.then_some(next), next)),
                        }
                    }
                    Step::Join(choice) if !aside.is_empty() => {
                        let (peer, class, name) = aside.swap_remove(usize::from(choice) % aside.len());
                        queues.join(&peer, class, name, &mut let_in);
                    }
                    Step::Fill(choice) if !rooms.is_empty() => {
                        next += 1;
                        let room = rooms.swap_remove(usize::from(choice) % rooms.len());
                        model.entry((room.peer, room.class.lane())).or_default().push_back(next);
                        place.borrow_mut().insert(next, (room.peer, room.class));
                        inside.push(next);
                        queues.fill(room, Duration::from_secs(now + 20), next);
                    }
                    Step::Release(choice) if !rooms.is_empty() => {
                        let room = rooms.swap_remove(usize::from(choice) % rooms.len());
                        queues.release(room, &mut let_in);
                    }
                    Step::Pop { peer, class } => {
                        let popped = queues.pop(&peer, class, &mut let_in);
                        let expected = model.entry((peer, class.lane())).or_default().pop_front();
                        prop_assert_eq!(popped, expected);
                        gone.extend(popped);
                    }
                    Step::Cancel(choice) if !waiting.is_empty() => {
                        let (peer, class, id) = waiting.swap_remove(usize::from(choice) % waiting.len());
                        removed.extend(queues.cancel(&peer, class, id, &mut let_in));
                    }
                    Step::Expire => {
                        now += 10;
                        while let Some((_, _, one)) = queues.expire(Duration::from_secs(now), &mut let_in) {
                            removed.push(one);
                        }
                        prop_assert!(queues.next_deadline().is_none_or(|next| next > Duration::from_secs(now)));
                    }
                    Step::Drain(peer) => removed.extend(queues.drain(&peer)),
                    Step::Join(_) | Step::Fill(_) | Step::Release(_) | Step::Cancel(_) => {}
                }
                // Let in before removed: an item may be let in and expire within one step.
                for one in let_in {
                    match one.room {
                        Some(room) => rooms.push(room),
                        None => {
                            let (peer, class) = place.borrow()[&one.notify];
                            model.entry((peer, class.lane())).or_default().push_back(one.notify);
                        }
                    }
                }
                for one in removed {
                    if let Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } = one {
                        let (peer, class) = place.borrow()[&item];
                        model.entry((peer, class.lane())).or_default().retain(|other| *other != item);
                        gone.push(item);
                    }
                }
                let (items, bytes) = queues.held();
                let lanes = || queues.peers.values().flatten();
                prop_assert_eq!(items, lanes().map(|lane| lane.items).sum::<usize>());
                prop_assert_eq!(bytes, lanes().map(|lane| lane.bytes).sum::<usize>());
                prop_assert!(queues.peers.len() <= LIMITS.peers);
                prop_assert!(items <= LIMITS.all_items + LIMITS.peers * LANES);
                for lane in lanes() {
                    prop_assert!(lane.items <= LIMITS.lane_items);
                    prop_assert!(lane.items <= 1 || lane.bytes <= LIMITS.lane_bytes);
                    prop_assert!(lane.items > 0 || lane.line.is_empty());
                }
                let entries = lanes().map(|lane| lane.queued.len() + lane.line.len() + lane.aside.len()).sum::<usize>();
                prop_assert_eq!(queues.deadlines.len(), entries);
            }
            while let Some(room) = rooms.pop() {
                let mut let_in = Vec::new();
                queues.release(room, &mut let_in);
                rooms.extend(let_in.into_iter().filter_map(|one| one.room));
            }
            for peer in 0..3 {
                for one in queues.drain(&peer) {
                    if let Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } = one {
                        gone.push(item);
                    }
                }
            }
            gone.sort_unstable();
            inside.sort_unstable();
            prop_assert_eq!(gone, inside);
            prop_assert_eq!((queues.held(), queues.peers.len(), queues.deadlines.len()), ((0, 0), 0, 0));
        }
    }
}
