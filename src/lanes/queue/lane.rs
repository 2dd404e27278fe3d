//! One lane to one peer: see the head of [`queue`](super). Names and deadlines are kept by the queues around it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{Common, Terms, Traffic};

/// The most frames of a message that wait in its lane, where there is room; one always may.
pub(crate) const MESSAGE_FRAMES: usize = 8;

#[derive(Debug)]
pub(super) struct Lane<T, N> {
    pub(super) queued: VecDeque<Queued<T>>,
    /// This node's own items that had their room before the open message had the turn, and follow it.
    pub(super) behind: VecDeque<Queued<T>>,
    pub(super) line: VecDeque<Waiting<T, N>>,
    pub(super) aside: BTreeMap<u64, Waiting<T, N>>,
    /// This node's own that wait until the message that has the turn is finished, in order.
    pub(super) turns: VecDeque<Waiting<T, N>>,
    /// Whether a message stands in line, has room or is open: one at a time.
    turn: bool,
    /// The open one, and those whose last frames wait to be written.
    pub(super) messages: BTreeMap<u64, Message<N>>,
    open: Option<u64>,
    pub(super) items: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Queued<T> {
    pub(super) id: u64,
    pub(super) message: Option<u64>,
    pub(super) deadline: Duration,
    pub(super) bytes: usize,
    pub(super) item: T,
}

#[derive(Debug)]
pub(super) struct Waiting<T, N> {
    pub(super) id: u64,
    pub(super) terms: Terms,
    /// The item to queue, or nothing for one that wants room.
    pub(super) item: Option<T>,
    pub(super) notify: N,
}

/// A message that has frames to come, or frames queued.
#[derive(Debug)]
pub(super) struct Message<N> {
    pub(super) deadline: Duration,
    /// The room that each of its frames takes.
    bytes: usize,
    /// The frames that it has room for, those queued included.
    held: usize,
    queued: usize,
    /// Whether a frame of it was popped.
    started: bool,
    notify: N,
}

/// What a message leaves when it is removed.
#[derive(Debug)]
pub(super) struct Left<T, N> {
    pub(super) deadline: Duration,
    pub(super) items: Vec<T>,
    pub(super) notify: N,
    pub(super) started: bool,
}

/// What came out at the head of a lane.
#[derive(Debug)]
pub(super) struct Popped<T> {
    pub(super) item: T,
    /// The deadline, with its name, of what is not kept any more.
    pub(super) over: Option<(Duration, u64)>,
}

impl<T, N> Lane<T, N> {
    pub(super) fn new() -> Self {
        Self {
            queued: VecDeque::new(),
            behind: VecDeque::new(),
            line: VecDeque::new(),
            aside: BTreeMap::new(),
            turns: VecDeque::new(),
            turn: false,
            messages: BTreeMap::new(),
            open: None,
            items: 0,
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items == 0 && self.line.is_empty() && self.aside.is_empty() && self.turns.is_empty()
    }

    /// Takes room at once, if nobody is to be waited for and it fits; a message takes the turn with it.
    pub(super) fn take_room(&mut self, terms: &Terms, common: &mut Common) -> bool {
        let fits = self.line.is_empty() && !self.waits_its_turn(terms) && self.fits(terms.bytes, common);
        if fits {
            self.take(terms.bytes, common);
            self.turn |= terms.traffic == Traffic::Message;
        }
        fits
    }

    pub(super) fn give_room(&mut self, bytes: usize, common: &mut Common) {
        self.items -= 1;
        self.bytes -= bytes;
        common.items -= 1;
        common.bytes -= bytes;
    }

    /// Queues an item that has room, or keeps it behind the open message.
    pub(super) fn push(&mut self, id: u64, terms: Terms, item: T) {
        let Terms { bytes, deadline, traffic, .. } = terms;
        let queued = Queued { id, message: None, deadline, bytes, item };
        let behind = self.open.is_some() && traffic != Traffic::Forwarded;
        if behind { self.behind.push_back(queued) } else { self.queued.push_back(queued) }
    }

    /// Puts one who waits at the end of the line, where a message has the turn; or at the end of those who wait for it.
    pub(super) fn stand(&mut self, waiting: Waiting<T, N>) {
        if self.waits_its_turn(&waiting.terms) {
            self.turns.push_back(waiting);
        } else {
            self.turn |= waiting.terms.traffic == Traffic::Message;
            self.line.push_back(waiting);
        }
    }

    /// The message that had the turn has it no longer.
    pub(super) fn pass_turn(&mut self) {
        self.turn = false;
        while !self.turn
            && let Some(next) = self.turns.pop_front()
        {
            self.stand(next);
        }
    }

    /// Takes the room of the first in line, if it fits.
    pub(super) fn let_in(&mut self, common: &mut Common) -> Option<Waiting<T, N>> {
        self.grow(common);
        let bytes = self.line.front()?.terms.bytes;
        if !self.fits(bytes, common) {
            return None;
        }
        self.take(bytes, common);
        self.line.pop_front()
    }

    /// Leaves the line, the turns, or what is aside.
    pub(super) fn remove_waiting(&mut self, id: u64) -> Option<Waiting<T, N>> {
        if let Some(waiting) = self.aside.remove(&id) {
            return Some(waiting);
        }
        if let Some(place) = self.turns.iter().position(|waiting| waiting.id == id) {
            return self.turns.remove(place);
        }
        let place = self.line.iter().position(|waiting| waiting.id == id)?;
        let waiting = self.line.remove(place)?;
        if waiting.terms.traffic == Traffic::Message {
            self.pass_turn();
        }
        Some(waiting)
    }

    /// Removes an item that belongs to no message.
    pub(super) fn remove_queued(&mut self, id: u64, common: &mut Common) -> Option<Queued<T>> {
        let queues = [&mut self.queued, &mut self.behind];
        let queued = queues.into_iter().find_map(|queue| {
            let place = queue.iter().position(|queued| queued.id == id)?;
            queue.remove(place)
        })?;
        self.give_room(queued.bytes, common);
        Some(queued)
    }

    pub(super) fn pop(&mut self, common: &mut Common) -> Option<Popped<T>> {
        let Queued { id, message, deadline, bytes, item } = self.queued.pop_front()?;
        let Some(name) = message else {
            self.give_room(bytes, common);
            return Some(Popped { item, over: Some((deadline, id)) });
        };
        let mut over = None;
        if let Some(message) = self.messages.get_mut(&name) {
            message.started = true;
            message.queued -= 1;
            // An open one keeps the room for its next frame.
            if self.open != Some(name) {
                message.held -= 1;
                if message.queued == 0 {
                    self.messages.remove(&name);
                    over = Some((deadline, name));
                }
                self.give_room(bytes, common);
            }
        }
        Some(Popped { item, over })
    }

    /// Opens the message that has the turn, and has room for one frame of `bytes`.
    pub(super) fn begin(&mut self, id: u64, bytes: usize, deadline: Duration, notify: N, common: &mut Common) {
        self.open = Some(id);
        self.messages.insert(id, Message { deadline, bytes, held: 1, queued: 0, started: false, notify });
        self.grow(common);
    }

    /// How many more frames of a message may be queued now. `None` once it was removed.
    pub(super) fn free(&self, id: u64) -> Option<usize> {
        self.messages.get(&id).map(|message| message.held - message.queued)
    }

    /// Queues the next frame of the open message, if it is still there and has room for it.
    pub(super) fn append(&mut self, id: u64, frame: u64, item: T) -> Result<(), T> {
        let open = self.open == Some(id);
        match self.messages.get_mut(&id).filter(|message| open && message.queued < message.held) {
            Some(message) => {
                message.queued += 1;
                let (deadline, bytes) = (message.deadline, message.bytes);
                self.queued.push_back(Queued { id: frame, message: Some(id), deadline, bytes, item });
                Ok(())
            }
            None => Err(item),
        }
    }

    /// The open message has all its frames. Its deadline, if none of them is queued any more.
    pub(super) fn finish(&mut self, id: u64, common: &mut Common) -> Option<Duration> {
        if self.open != Some(id) {
            return None;
        }
        let message = self.messages.get_mut(&id)?;
        let (spare, bytes, deadline, over) =
            (message.held - message.queued, message.bytes, message.deadline, message.queued == 0);
        message.held = message.queued;
        if over {
            self.messages.remove(&id);
        }
        (0..spare).for_each(|_| self.give_room(bytes, common));
        self.shut();
        over.then_some(deadline)
    }

    /// Removes a message, and its frames that are queued.
    pub(super) fn remove_message(&mut self, id: u64, common: &mut Common) -> Option<Left<T, N>> {
        let Message { deadline, bytes, held, started, notify, .. } = self.messages.remove(&id)?;
        (0..held).for_each(|_| self.give_room(bytes, common));
        let of_it = |queued: &Queued<T>| queued.message == Some(id);
        let (its, others): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queued).into_iter().partition(of_it);
        self.queued = others;
        if self.open == Some(id) {
            self.shut();
        }
        let items = its.into_iter().map(|queued| queued.item).collect();
        Some(Left { deadline, items, notify, started })
    }

    /// The message of which some frames were popped and some were not. There is at most one.
    pub(super) fn started(&self) -> Option<u64> {
        self.messages.iter().find(|(_, message)| message.started).map(|(id, _)| *id)
    }

    /// No message is open any more; what was kept behind it follows.
    fn shut(&mut self) {
        self.open = None;
        self.queued.append(&mut self.behind);
        self.pass_turn();
    }

    /// Takes more room for the open message, before anybody in line, who is behind it anyway.
    fn grow(&mut self, common: &mut Common) {
        let Some(id) = self.open else { return };
        while let Some((held, bytes)) = self.messages.get(&id).map(|message| (message.held, message.bytes))
            && held < MESSAGE_FRAMES
            && self.fits(bytes, common)
        {
            self.take(bytes, common);
            if let Some(message) = self.messages.get_mut(&id) {
                message.held += 1;
            }
        }
    }

    /// Whether a message has the turn that one with these terms waits for.
    fn waits_its_turn(&self, terms: &Terms) -> bool {
        self.turn && terms.traffic != Traffic::Forwarded
    }

    fn take(&mut self, bytes: usize, common: &mut Common) {
        self.items += 1;
        self.bytes += bytes;
        common.items += 1;
        common.bytes += bytes;
    }

    fn fits(&self, bytes: usize, common: &Common) -> bool {
        let Common { limits, items, bytes: all } = common;
        self.items == 0
            || (self.items < limits.lane_items
                && self.bytes + bytes <= limits.lane_bytes
                && *items < limits.all_items
                && all + bytes <= limits.all_bytes)
    }
}
