//! One channel: a sender, a receiver, frames in order between them, and counts in any order, any number of times.

use stateright::{Model, Property};

use super::{breaks, holds};
use crate::lanes::credit::{Granting, Spending};

/// A rule that a model breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kept,
    /// The sender looks at neither its window nor the advertised credit.
    NoBound,
    /// The sender uses its window, whatever was advertised.
    NoCredit,
    /// A lower count than before is taken at its word.
    CreditGoesBack,
    /// The receiver counts every frame that is taken over, gap or not.
    CountsPastGaps,
}

#[derive(Debug, Clone, Copy)]
struct Channel {
    frames: u64,
    advertised: u8,
    window: u8,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    sender: Sender,
    receiver: Granting,
    written: u64,
    in_transit: u64,
    /// Frames read and not taken over, and frames taken over, as sets of bits.
    held: u64,
    taken: u64,
    /// Every count that was ever sent, as a set of bits: each may come at any time from then on, and again, or never
    /// while a greater one does.
    sent: u64,
    settled: u64,
    broken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sender {
    Core(Spending),
    /// The rule that a count never goes back, broken: the only thing here that is no core.
    Forgetful {
        written: u64,
        credited: u64,
        bound: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Write,
    Read,
    Take(u64),
    Credit(u64),
}

impl Sender {
    fn may_write(&self) -> bool {
        match self {
            Sender::Core(spending) => spending.may_write(),
            Sender::Forgetful { written, credited, bound } => written - credited < *bound,
        }
    }

    fn wrote(&mut self) {
        match self {
            Sender::Core(spending) => spending.wrote(),
            Sender::Forgetful { written, .. } => *written += 1,
        }
    }

    /// How many frames it settles; nothing for a count past what was written.
    fn credit(&mut self, count: u64) -> Option<u64> {
        match self {
            Sender::Core(spending) => spending.credit(count).ok(),
            Sender::Forgetful { credited, .. } => {
                let settled = count.saturating_sub(*credited);
                *credited = count;
                Some(settled)
            }
        }
    }
}

impl Channel {
    fn bound(&self) -> u64 {
        u64::from(self.window.min(self.advertised))
    }
}

impl State {
    /// How many frames are taken over without a gap.
    fn prefix(&self) -> u64 {
        u64::from(self.taken.trailing_ones())
    }

    fn done(&self, model: &Channel) -> bool {
        self.settled == model.frames
    }
}

fn bits(set: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| set >> bit & 1 == 1)
}

impl Model for Channel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sender = match self.rule {
            Rule::Kept | Rule::CountsPastGaps => Sender::Core(Spending::new(self.advertised, self.window)),
            Rule::NoBound => Sender::Core(Spending::new(u8::MAX, u8::MAX)),
            Rule::NoCredit => Sender::Core(Spending::new(u8::MAX, self.window)),
            Rule::CreditGoesBack => Sender::Forgetful { written: 0, credited: 0, bound: self.bound() },
        };
        let receiver = Granting::new(self.advertised);
        let (written, in_transit, held, taken, sent, settled) = (0, 0, 0, 0, 1, 0);
        vec![State { sender, receiver, written, in_transit, held, taken, sent, settled, broken: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken {
            return;
        }
        if state.written < self.frames && state.sender.may_write() {
            actions.push(Action::Write);
        }
        if state.in_transit > 0 {
            actions.push(Action::Read);
        }
        actions.extend(bits(state.held).map(Action::Take));
        actions.extend(bits(state.sent).map(Action::Credit));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write => {
                state.sender.wrote();
                state.written += 1;
                state.in_transit += 1;
            }
            Action::Read => {
                state.in_transit -= 1;
                match state.receiver.read() {
                    Ok(frame) => state.held |= 1 << frame,
                    Err(_) => state.broken = true,
                }
            }
            Action::Take(frame) => {
                state.held &= !(1 << frame);
                state.taken |= 1 << frame;
                let count = state.receiver.taken(frame);
                match self.rule {
                    Rule::CountsPastGaps => state.sent |= 1 << state.taken.count_ones(),
                    _ => state.sent |= count.map_or(0, |count| 1 << count),
                }
            }
            Action::Credit(count) => match state.sender.credit(count) {
                Some(settled) => state.settled += settled,
                None => state.broken = true,
            },
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody is refused", |_, state: &State| !state.broken),
            Property::always("the window and the credit are kept", |model: &Self, state: &State| {
                state.written - state.prefix() <= model.bound()
                    && !matches!(&state.sender, Sender::Core(core) if core.in_flight() > model.bound())
            }),
            Property::always("the receiver holds no more than it advertised", |model: &Self, state: &State| {
                state.receiver.unsettled() <= u64::from(model.advertised)
                    && state.held.count_ones() <= u32::from(model.advertised)
            }),
            Property::always("only what was taken over settles", |_, state: &State| state.settled <= state.prefix()),
            Property::always("the sender knows what it has in flight", |_, state: &State| match &state.sender {
                Sender::Core(core) => core.in_flight() + state.settled == state.written,
                Sender::Forgetful { written, credited, .. } => *credited == state.settled && credited <= written,
            }),
            Property::always("nobody is stuck", |model: &Self, state: &State| {
                state.done(model) || !model.next_states(state).is_empty()
            }),
            Property::eventually("everything settles", |model, state: &State| state.done(model)),
            Property::sometimes("the window is full", |model: &Self, state: &State| {
                state.settled + model.bound() == state.written && state.written < model.frames
            }),
            Property::sometimes("an old count is there to come after a newer one", |_, state: &State| {
                state.settled > 1 && bits(state.sent).any(|count| 0 < count && count < state.settled)
            }),
        ]
    }

    /// A broken rule may settle without end.
    fn within_boundary(&self, state: &State) -> bool {
        state.settled <= self.frames + 1
    }
}

#[test]
fn l3_4_every_interleaving_keeps_window_and_credit_and_settles_everything() {
    for (advertised, window, frames, floor) in [
        (1, 1, 12, 45),
        (2, 3, 12, 3_500),
        (3, 2, 12, 3_500),
        (3, 3, 12, 16_000),
        (4, 4, 12, 33_000),
        (6, 6, 10, 17_000),
        (32, 5, 12, 50_000),
    ] {
        let name = format!("channel, credit {advertised}, window {window}, {frames} frames");
        holds(&name, Channel { frames, advertised, window, rule: Rule::Kept }, floor);
    }
}

#[test]
fn l3_4_a_channel_model_with_a_broken_rule_finds_its_counterexample() {
    let with = |rule| Channel { frames: 5, advertised: 2, window: 3, rule };
    breaks(with(Rule::NoBound), "the window and the credit are kept");
    breaks(with(Rule::NoBound), "nobody is refused");
    breaks(with(Rule::NoCredit), "nobody is refused");
    breaks(with(Rule::CreditGoesBack), "only what was taken over settles");
    breaks(with(Rule::CreditGoesBack), "the sender knows what it has in flight");
    breaks(with(Rule::CountsPastGaps), "only what was taken over settles");
}
