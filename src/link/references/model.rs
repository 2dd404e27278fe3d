//! Both ends of one link, searched exhaustively at small sizes: every order of writes, reads, verifications and ticks of
//! the clock, with control frames delivered, delivered twice, out of order or never, clocks that began at other
//! instants, tables too small for what is sent, and a delegation that ends. The real tables are driven, not a copy of
//! their rules.
//!
//! A tick is a second. A lease has two of them and the delivery bound one, so that an honest frame is read less than two
//! ticks after its sender began to write it.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{Control, FrameName, Now, ReceiverTable, SenderTable, Terms, Write, tests::digest};
use crate::clock::WallMs;

const TERMS: Terms = Terms { lease: Duration::from_secs(2), delivery: Duration::from_secs(1), sigma: 1_000 };
/// Renews at the very end of a lease: the fewest frames until something goes wrong.
const LAZY: Terms = Terms { delivery: Duration::ZERO, ..TERMS };
const TRANSIT: u64 = 2;
const WALL: WallMs = 1_000_000;
const CHANNELS: usize = 2;
const NOTES: usize = 4;

const LAWS: &str = "no law is broken";
const BOUNDS: &str = "the bounds hold";
const RESOLVES: &str = "a reference resolves";
const MISSES: &str = "a reference misses";
const RENEWED: &str = "a lease is renewed";
const OVER: &str = "a reference comes after its delegation's end";
const FULL: &str = "a table is full and grants nothing";
const GIVEN_UP: &str = "the receiver says too much";

/// One way in which a run may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wrong {
    /// An honest reference to a delegation that has not ended did not resolve.
    Missed,
    /// A digest stood for another delegation, or for one that never verified.
    Mistaken,
    /// The sender referred without a lease of a frame that carried the delegation.
    Unleased,
    /// An entry was evicted before its time.
    Evicted,
}

/// What is searched.
#[derive(Debug, Clone)]
struct Link {
    sender: Terms,
    receiver: Terms,
    sender_bound: usize,
    receiver_bound: usize,
    delegations: u8,
    /// How far the receiver's clocks are ahead of the sender's, in ticks.
    ahead: u64,
    /// When the last of the delegations ends, in ticks of the sender; the others never do.
    ends: Option<u64>,
    channels: u8,
    frames: u64,
    ticks: u64,
    /// Whether control frames may be delivered twice.
    twice: bool,
    /// Whether frames may take any time.
    slow: bool,
    liar: Option<Liar>,
    /// What happened on some way.
    seen: Arc<Mutex<BTreeSet<&'static str>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Liar {
    /// Grants and disclaims anything at any time.
    Receiver,
    /// Refers to anything at any time.
    Sender,
}

/// Two delegations, of which each table holds one.
fn link() -> Link {
    Link {
        sender: TERMS,
        receiver: TERMS,
        sender_bound: 1,
        receiver_bound: 1,
        delegations: 2,
        ahead: 0,
        ends: None,
        channels: 1,
        frames: 3,
        ticks: 6,
        twice: false,
        slow: false,
        liar: None,
        seen: Arc::default(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    sender: SenderTable,
    receiver: ReceiverTable<u8>,
    next: [u64; CHANNELS],
    flying: [VecDeque<Flying>; CHANNELS],
    unverified: Vec<Unverified>,
    /// What the receiver said, and whether a copy was delivered before. Sorted, so that states that differ in its order
    /// are one; what is never delivered is lost.
    said: Vec<(Said, bool)>,
    /// By delegation, the greatest instant at which an inline frame was begun whose grant arrived; of a liar, any.
    leased: Vec<Option<u64>>,
    /// By delegation, until when the receiver promised to keep it, on its own clock; 0 if it never verified.
    kept: Vec<u64>,
    /// How many delegations were written so far.
    named: u8,
    given_up: bool,
    wrong: Option<Wrong>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flying {
    name: FrameName,
    of: u8,
    how: Write,
    begun: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Unverified {
    name: FrameName,
    of: u8,
    begun: u64,
    read_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Said {
    /// `begun` is not on the wire: the check compares with it.
    Grant {
        of: u8,
        channel: u8,
        number: u64,
        begun: u64,
    },
    Disclaim {
        of: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Write {
        of: u8,
        channel: u8,
    },
    /// A reference that the sender's table did not allow.
    Forge {
        of: u8,
        channel: u8,
    },
    Read {
        channel: u8,
    },
    Verify {
        place: usize,
    },
    Tell {
        place: usize,
        stays: bool,
    },
    Lie(Said),
}

impl Link {
    fn seen(&self, what: &'static str) {
        self.seen.lock().unwrap().insert(what);
    }

    fn ends(&self, of: u8) -> WallMs {
        match self.ends {
            Some(ends) if of + 1 == self.delegations => WALL + ends * 1_000,
            _ => WallMs::MAX,
        }
    }

    fn is_over(&self, of: u8, now: Now) -> bool {
        now.wall >= self.ends(of).saturating_add(TERMS.sigma)
    }

    fn senders(&self, state: &State) -> Now {
        Now { at: Duration::from_secs(state.now), wall: WALL + state.now * 1_000 }
    }

    /// Its clocks are ahead by other amounts, as those of another machine are.
    fn receivers(&self, state: &State) -> Now {
        Now { at: Duration::from_secs(state.now + 5 * self.ahead), wall: WALL + (state.now + self.ahead) * 1_000 }
    }

    fn name(&self, state: &mut State, of: u8, channel: u8) -> FrameName {
        let number = &mut state.next[usize::from(channel)];
        let name = FrameName { channel, number: *number };
        *number += 1;
        state.named = state.named.max(of + 1);
        name
    }

    fn write(&self, state: &mut State, of: u8, channel: u8) {
        let name = self.name(state, of, channel);
        let now = self.senders(state);
        let [_, how] = state.sender.write(name, [None, Some((digest(of), self.ends(of)))], now);
        let leased = state.leased[usize::from(of)].filter(|begun| state.now < begun + self.sender.lease.as_secs());
        match how {
            Write::Reference if leased.is_none() => state.wrong = Some(Wrong::Unleased),
            Write::Reference => {}
            Write::Inline => {
                if leased.is_some() {
                    self.seen(RENEWED);
                }
                if self.liar == Some(Liar::Receiver) {
                    state.leased[usize::from(of)] = Some(state.now);
                }
            }
        }
        state.flying[usize::from(channel)].push_back(Flying { name, of, how, begun: state.now });
    }

    fn read(&self, state: &mut State, channel: u8) {
        let Some(frame) = state.flying[usize::from(channel)].pop_front() else { return };
        let now = self.receivers(state);
        if frame.how == Write::Inline {
            let Flying { name, of, begun, .. } = frame;
            state.unverified.push(Unverified { name, of, begun, read_at: state.now });
            return;
        }
        match state.receiver.resolve(&digest(frame.of), now) {
            Some(found) if found == frame.of && state.kept[usize::from(found)] > 0 => self.seen(RESOLVES),
            Some(_) => state.wrong = Some(Wrong::Mistaken),
            // It is dropped here, so it is never delivered late.
            None => {
                self.seen(MISSES);
                if self.is_over(frame.of, now) {
                    self.seen(OVER);
                } else if state.now < frame.begun + TRANSIT && self.liar.is_none() {
                    state.wrong = Some(Wrong::Missed);
                }
                self.say(state, Said::Disclaim { of: frame.of });
            }
        }
    }

    fn verify(&self, state: &mut State, place: usize) {
        let Unverified { name, of, begun, read_at } = state.unverified.remove(place);
        let now = self.receivers(state);
        let read = Duration::from_secs(read_at + 5 * self.ahead);
        if !state.receiver.verified(&digest(of), || of, self.ends(of), read, now) {
            self.seen(FULL);
            return;
        }
        let until = (read + self.receiver.lease + 2 * self.receiver.delivery).as_secs();
        let kept = &mut state.kept[usize::from(of)];
        *kept = (*kept).max(until);
        self.say(state, Said::Grant { of, channel: name.channel, number: name.number, begun });
    }

    fn say(&self, state: &mut State, said: Said) {
        if self.liar.is_none() {
            state.said.push((said, false));
            state.said.sort_unstable();
        }
    }

    fn tell(&self, state: &mut State, said: Said) {
        let now = self.senders(state);
        let control = match said {
            Said::Grant { of, channel, number, .. } => {
                Control::Grant { digest: digest(of), frame: FrameName { channel, number } }
            }
            Said::Disclaim { of } => Control::Disclaim { digest: digest(of) },
        };
        match (state.sender.take(&control, now), said) {
            (Ok(_), Said::Grant { of, begun, .. }) if self.liar.is_none() => {
                let leased = &mut state.leased[usize::from(of)];
                *leased = (*leased).max(Some(begun));
            }
            (Ok(_), _) => {}
            // The link is closed for it.
            (Err(_), _) => {
                self.seen(GIVEN_UP);
                state.given_up = true;
            }
        }
    }

    fn check_kept(&self, state: &mut State) {
        let now = self.receivers(state);
        for of in 0..self.delegations {
            let promised = Duration::from_secs(state.kept[usize::from(of)]) > now.at;
            // A look refreshes an entry's place in the order, so it is made on a copy.
            if promised && !self.is_over(of, now) && state.receiver.clone().resolve(&digest(of), now).is_none() {
                state.wrong = Some(Wrong::Evicted);
            }
        }
    }
}

impl Model for Link {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            sender: SenderTable::new(self.sender, self.sender_bound, NOTES),
            receiver: ReceiverTable::new(self.receiver, self.receiver_bound),
            next: [0; CHANNELS],
            flying: Default::default(),
            unverified: Vec::new(),
            said: Vec::new(),
            leased: vec![None; usize::from(self.delegations)],
            kept: vec![0; usize::from(self.delegations)],
            named: 0,
            given_up: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.given_up {
            return;
        }
        let late = |frame: &Flying| state.now + 1 >= frame.begun + TRANSIT;
        if state.now < self.ticks && (self.slow || !state.flying.iter().flatten().any(late)) {
            actions.push(Action::Tick);
        }
        let written = state.next.iter().sum::<u64>();
        // What differs in names alone is searched once: the first frame comes on the first channel, and delegations
        // that never end come in their order.
        let channels = if written == 0 { 1 } else { self.channels };
        let named = if self.ends.is_some() { self.delegations } else { self.delegations.min(state.named + 1) };
        for channel in 0..channels {
            if written < self.frames {
                actions.extend((0..named).map(|of| Action::Write { of, channel }));
                if self.liar == Some(Liar::Sender) {
                    actions.extend((0..named).map(|of| Action::Forge { of, channel }));
                }
            }
            if !state.flying[usize::from(channel)].is_empty() {
                actions.push(Action::Read { channel });
            }
        }
        actions.extend((0..state.unverified.len()).map(|place| Action::Verify { place }));
        for (place, (_, again)) in state.said.iter().enumerate() {
            actions.push(Action::Tell { place, stays: false });
            if self.twice && !again {
                actions.push(Action::Tell { place, stays: true });
            }
        }
        if self.liar == Some(Liar::Receiver) {
            for of in 0..named {
                actions.push(Action::Lie(Said::Disclaim { of }));
                for channel in 0..channels {
                    // One past what was written, too.
                    let numbers = 0..=state.next[usize::from(channel)];
                    let grants = numbers.map(|number| Said::Grant { of, channel, number, begun: 0 });
                    actions.extend(grants.map(Action::Lie));
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Write { of, channel } => self.write(&mut next, of, channel),
            Action::Forge { of, channel } => {
                let name = self.name(&mut next, of, channel);
                let begun = next.now;
                next.flying[usize::from(channel)].push_back(Flying { name, of, how: Write::Reference, begun });
            }
            Action::Read { channel } => self.read(&mut next, channel),
            Action::Verify { place } => self.verify(&mut next, place),
            Action::Tell { place, stays } => {
                let (said, _) = next.said[place];
                if stays {
                    next.said[place].1 = true;
                    next.said.sort_unstable();
                } else {
                    next.said.remove(place);
                }
                self.tell(&mut next, said);
            }
            Action::Lie(said) => self.tell(&mut next, said),
        }
        self.check_kept(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LAWS, |_, state: &State| state.wrong.is_none()),
            Property::always(BOUNDS, |link: &Link, state: &State| {
                state.sender.len() <= link.sender_bound
                    && state.sender.notes() <= NOTES
                    && state.receiver.len() <= link.receiver_bound
            }),
        ]
    }
}

/// What a search found.
struct Searched {
    broken: Vec<&'static str>,
    seen: BTreeSet<&'static str>,
    states: usize,
}

/// Searches everything, or up to the first law that is broken.
fn search(name: &str, link: Link) -> Searched {
    let searched = link.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken = searched.discoveries().into_keys().collect();
    let seen = std::mem::take(&mut *link.seen.lock().unwrap());
    let states = searched.unique_state_count();
    println!("{name}: {states} states, broken {broken:?}, seen {seen:?}");
    Searched { broken, seen, states }
}

/// Searches everything there is, of which there are at least so many states: no law is broken, and what is to be seen on
/// some way was.
fn holds(name: &str, link: Link, at_least: usize, on_some_way: &[&str]) {
    let Searched { broken, seen, states } = search(name, link);
    assert_eq!(broken, [] as [&str; 0], "{name}");
    assert!(states >= at_least, "{name}: {states} states");
    for what in on_some_way {
        assert!(seen.contains(what), "{name}: never seen: {what}");
    }
}

#[test]
fn l4_3_an_honest_reference_never_misses_however_frames_and_grants_are_ordered_lost_or_doubled() {
    let all = [RESOLVES, RENEWED, FULL];
    holds("one channel", link(), 150_000, &all);
    holds("two channels", Link { channels: 2, ticks: 4, ..link() }, 180_000, &all);
    holds("control frames twice", Link { twice: true, ..link() }, 400_000, &all);
    let three = Link { sender_bound: 2, receiver_bound: 2, delegations: 3, ..link() };
    holds("three delegations, two places", three, 350_000, &all);
}

#[test]
fn l4_8_where_a_delegation_ends_and_clocks_differ_only_what_is_over_misses() {
    holds("an end", Link { ends: Some(3), ahead: 1, ..link() }, 250_000, &[RESOLVES, RENEWED, FULL, MISSES, OVER]);
}

#[test]
fn l4_4_a_miss_needs_a_frame_that_is_late_and_is_never_taken_for_another() {
    let slow = Link { sender: LAZY, channels: 2, slow: true, ticks: 4, ..link() };
    holds("late frames", slow, 150_000, &[RESOLVES, FULL, MISSES]);
}

#[test]
fn l4_2_a_peer_that_lies_wastes_its_own_links_table_alone() {
    let receiver = Link { liar: Some(Liar::Receiver), ticks: 3, ..link() };
    holds("a receiver that says anything", receiver, 150_000, &[MISSES, RENEWED, GIVEN_UP]);
    holds("a sender that refers to anything", Link { liar: Some(Liar::Sender), ..link() }, 75_000, &[RESOLVES, MISSES]);
}

/// With rules that the laws do not have, the search finds its way to a miss.
#[test]
fn l4_3_without_two_delivery_bounds_or_with_a_lease_from_another_instant_an_honest_reference_misses() {
    let longer = Terms { lease: TERMS.lease + 2 * TERMS.delivery, ..LAZY };
    for (name, link) in [
        ("kept for a lease only", Link { sender: LAZY, receiver: LAZY, ..link() }),
        ("a lease as long as the entry is kept", Link { sender: longer, ..link() }),
    ] {
        let Searched { broken, seen, .. } = search(name, Link { channels: 2, ..link });
        assert_eq!(broken, [LAWS], "{name}");
        assert!(seen.contains(MISSES), "{name}: broken in another way");
    }
}
