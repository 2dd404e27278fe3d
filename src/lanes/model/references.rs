//! One link's references: both tables, frames in order on each channel, grants and disclaimers in any order, any number of
//! times or never, and time, which may pass anywhere (law L4).

use std::time::Duration;

use stateright::{Model, Property};

use super::{breaks, holds};
use crate::{
    identity::DelegationDigest,
    link::references::{Control, FrameName, Now, ReceiverTable, SenderTable, Terms, Told, Write},
};

/// A rule that a model breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kept,
    /// The receiver keeps an entry for a lease, and not for two delivery bounds more.
    KeepsTooShort,
    /// The sender's lease outlasts what the receiver keeps.
    LeasesTooLong,
    /// The sender refers to what it likes.
    SenderLies,
    /// The receiver grants and disclaims what it likes.
    ReceiverLies,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    channels: u8,
    delegations: u8,
    frames: u8,
    /// How many seconds there are.
    time: u8,
    /// The ends' bounds, and how many inline frames the sender remembers.
    sender: usize,
    receiver: usize,
    notes: usize,
    /// When each end's monotonic clock stood at zero, and the wall clock's lead of the receiver.
    began: (u8, u8),
    lead: u8,
    /// The first delegation's own end on the wall clock.
    ends: u64,
    rule: Rule,
}

const LEASE: u64 = 3;
const DELIVERY: u64 = 1;
const NEVER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Frame {
    of: u8,
    channel: u8,
    number: u8,
    reference: bool,
    written: u8,
}

/// What was ever said. In order, so that equal states are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Said {
    Grant { of: u8, channel: u8, number: u8 },
    Disclaim { of: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    sender: SenderTable,
    receiver: ReceiverTable<u8>,
    /// Frames written on each channel since it was opened.
    numbers: Vec<u8>,
    written: u8,
    in_transit: Vec<Vec<Frame>>,
    /// Inline frames that were read, with when, and not verified.
    waiting: Vec<(Frame, u8)>,
    said: Vec<Said>,
    /// Until when the last inline frame of each delegation allows a lease.
    allowed: Vec<u8>,
    broken: Broken,
    seen: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Broken {
    missed_in_time: bool,
    resolved_wrongly: bool,
    referred_without_leave: bool,
}

/// What happened once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Seen {
    hit: bool,
    missed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Tick,
    Write { of: u8, channel: u8 },
    Lie { of: u8, channel: u8 },
    Read(u8),
    Verify(usize),
    Hear(Said),
}

fn digest(of: u8) -> DelegationDigest {
    DelegationDigest([of; 32])
}

fn insert<T: Ord>(sorted: &mut Vec<T>, one: T) {
    if let Err(place) = sorted.binary_search(&one) {
        sorted.insert(place, one);
    }
}

impl Link {
    const fn terms(delivery: u64, lease: u64) -> Terms {
        Terms { lease: Duration::from_secs(lease), delivery: Duration::from_secs(delivery), sigma: 0 }
    }

    fn at(&self, now: u8) -> (Now, Now) {
        let ((sender, receiver), now) = (self.began, u64::from(now));
        let of =
            |began: u8, lead: u8| Now { at: Duration::from_secs(now + u64::from(began)), wall: now + u64::from(lead) };
        (of(sender, 0), of(receiver, self.lead))
    }

    fn ends(&self, of: u8) -> u64 {
        if of == 0 { self.ends } else { NEVER }
    }

    fn is_over(&self, of: u8, now: Now) -> bool {
        now.wall >= self.ends(of)
    }
}

impl State {
    /// Writes one frame, by reference as the table says or as a liar likes.
    fn write(&mut self, model: &Link, (of, channel): (u8, u8), lies: bool) {
        let (now, _) = model.at(self.now);
        let place = usize::from(channel);
        let number = self.numbers[place];
        let name = FrameName { channel, number: u64::from(number) };
        let [_, how] = self.sender.write(name, [None, Some((digest(of), model.ends(of)))], now);
        let reference = lies || how == Write::Reference;
        let allowed = &mut self.allowed[usize::from(of)];
        if !reference {
            *allowed = self.now + LEASE as u8;
        } else if self.now >= *allowed {
            self.broken.referred_without_leave = true;
        }
        self.numbers[place] += 1;
        self.written += 1;
        // When an inline frame was written is for the sender to know.
        let written = if reference { self.now } else { 0 };
        self.in_transit[place].push(Frame { of, channel, number, reference, written });
    }

    fn read(&mut self, model: &Link, channel: u8) {
        let (_, now) = model.at(self.now);
        let frame = self.in_transit[usize::from(channel)].remove(0);
        if !frame.reference {
            insert(&mut self.waiting, (frame, self.now));
            return;
        }
        match self.receiver.resolve(&digest(frame.of), now) {
            Some(of) => {
                self.seen.hit = true;
                self.broken.resolved_wrongly |= of != frame.of || self.allowed[usize::from(of)] == 0;
            }
            None => {
                let late = u64::from(self.now - frame.written) >= 2 * DELIVERY;
                self.seen.missed = true;
                self.broken.missed_in_time |= !late && !model.is_over(frame.of, now);
                insert(&mut self.said, Said::Disclaim { of: frame.of });
            }
        }
    }

    fn verify(&mut self, model: &Link, place: usize) {
        let (_, now) = model.at(self.now);
        let (Frame { of, channel, number, .. }, read_at) = self.waiting.remove(place);
        let (_, Now { at: read_at, .. }) = model.at(read_at);
        if self.receiver.verified(&digest(of), || of, model.ends(of), read_at, now) {
            insert(&mut self.said, Said::Grant { of, channel, number });
        }
    }

    fn hear(&mut self, model: &Link, said: Said) {
        let (now, _) = model.at(self.now);
        let control = match said {
            Said::Grant { of, channel, number } => {
                Control::Grant { digest: digest(of), frame: FrameName { channel, number: u64::from(number) } }
            }
            Said::Disclaim { of } => Control::Disclaim { digest: digest(of) },
        };
        let before = self.sender.clone();
        match self.sender.take(&control, now) {
            Ok(Told::Leased | Told::Disclaimed) => {}
            // What changes nothing is not told apart by how often it was heard.
            Ok(Told::Nothing) | Err(_) => self.sender = before,
        }
    }
}

impl Model for Link {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (sender, receiver) = match self.rule {
            Rule::KeepsTooShort => (Self::terms(DELIVERY, LEASE), Self::terms(0, LEASE)),
            Rule::LeasesTooLong => (Self::terms(DELIVERY, 3 * LEASE), Self::terms(DELIVERY, LEASE)),
            _ => (Self::terms(DELIVERY, LEASE), Self::terms(DELIVERY, LEASE)),
        };
        let channels = usize::from(self.channels);
        let empty = State {
            now: 0,
            sender: SenderTable::new(sender, self.sender, self.notes),
            receiver: ReceiverTable::new(receiver, self.receiver),
            numbers: vec![0; channels],
            written: 0,
            in_transit: vec![Vec::new(); channels],
            waiting: Vec::new(),
            said: Vec::new(),
            allowed: vec![0; usize::from(self.delegations)],
            broken: Broken::default(),
            seen: Seen::default(),
        };
        // The first delegation has its lease, of a frame that was on its way for no time or for a second.
        let leased = |took| {
            let mut state = empty.clone();
            state.write(self, (0, 0), false);
            state.now += took;
            state.read(self, 0);
            state.verify(self, 0);
            state.hear(self, Said::Grant { of: 0, channel: 0, number: 0 });
            state.written = 0;
            state
        };
        vec![leased(0), leased(1), empty]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // Missed once is enough, but for liars.
        if state.broken.missed_in_time && !matches!(self.rule, Rule::SenderLies | Rule::ReceiverLies) {
            return;
        }
        if state.now < self.time {
            actions.push(Action::Tick);
        }
        for channel in 0..self.channels {
            let place = usize::from(channel);
            if state.written < self.frames {
                actions.extend((0..self.delegations).map(|of| Action::Write { of, channel }));
                if self.rule == Rule::SenderLies {
                    actions.extend((0..self.delegations).map(|of| Action::Lie { of, channel }));
                }
            }
            if !state.in_transit[place].is_empty() {
                actions.push(Action::Read(channel));
            }
        }
        actions.extend((0..state.waiting.len()).map(Action::Verify));
        actions.extend(state.said.iter().copied().map(Action::Hear));
        if self.rule == Rule::ReceiverLies {
            for of in 0..self.delegations {
                actions.push(Action::Hear(Said::Disclaim { of }));
                for channel in 0..=self.channels {
                    let grant = |number| Action::Hear(Said::Grant { of, channel, number });
                    actions.extend((0..=self.frames).map(grant));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Write { of, channel } => state.write(self, (of, channel), false),
            Action::Lie { of, channel } => state.write(self, (of, channel), true),
            Action::Read(channel) => state.read(self, channel),
            Action::Verify(place) => state.verify(self, place),
            Action::Hear(said) => state.hear(self, said),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a reference on its way for less than two delivery bounds resolves",
                |model: &Self, state: &State| {
                    !state.broken.missed_in_time || model.rule == Rule::SenderLies || model.rule == Rule::ReceiverLies
                },
            ),
            Property::always("what resolves was carried, and is what was named", |_, state: &State| {
                !state.broken.resolved_wrongly
            }),
            Property::always(
                "a reference is written within a lease of its inline frame",
                |model: &Self, state: &State| !state.broken.referred_without_leave || model.rule == Rule::SenderLies,
            ),
            Property::always("no table exceeds its bound", |model: &Self, state: &State| {
                state.sender.len() <= model.sender
                    && state.sender.notes() <= model.notes
                    && state.receiver.len() <= model.receiver
            }),
            Property::sometimes("a reference resolves", |_, state: &State| state.seen.hit),
            Property::sometimes("one misses, in a table that is too small for it", |model: &Self, state: &State| {
                state.seen.missed
                    || model.receiver >= usize::from(model.delegations)
                    || u64::from(model.time) < LEASE + 2 * DELIVERY
            }),
        ]
    }
}

/// Both tables have room for one of two delegations.
const SMALL: Link = Link {
    channels: 1,
    delegations: 2,
    frames: 3,
    time: 5,
    sender: 1,
    receiver: 1,
    notes: 2,
    began: (0, 9),
    lead: 0,
    ends: NEVER,
    rule: Rule::Kept,
};

#[test]
fn l4_3_every_interleaving_resolves_an_honest_reference_in_time() {
    for (name, model, floor) in [
        ("references", SMALL, 50_000),
        ("references, room for both", Link { sender: 2, receiver: 2, time: 4, ..SMALL }, 10_000),
        ("references, two channels", Link { channels: 2, frames: 2, time: 4, ..SMALL }, 10_000),
        ("references, a delegation that ends", Link { ends: 3, time: 4, ..SMALL }, 10_000),
        ("references, the receiver's clock ahead", Link { ends: 4, lead: 1, time: 4, ..SMALL }, 10_000),
    ] {
        holds(name, model, floor);
    }
}

#[test]
fn l4_2_a_peer_that_lies_gets_no_more_than_was_carried() {
    holds("references, a sender that lies", Link { time: 3, rule: Rule::SenderLies, ..SMALL }, 10_000);
    holds("references, a receiver that lies", Link { frames: 2, time: 4, rule: Rule::ReceiverLies, ..SMALL }, 20_000);
}

#[test]
fn l4_3_a_references_model_with_a_broken_rule_finds_its_counterexample() {
    let missed = "a reference on its way for less than two delivery bounds resolves";
    breaks(Link { time: 4, rule: Rule::KeepsTooShort, ..SMALL }, missed);
    breaks(Link { rule: Rule::LeasesTooLong, ..SMALL }, missed);
}
