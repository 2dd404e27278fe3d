//! Four lanes with frames queued, on a pool of channels, and a receiver that serves all classes but perhaps one.

use std::collections::VecDeque;

use stateright::{Model, Property};

use super::{breaks, holds};
use crate::lanes::{
    credit::{Granting, Spending},
    scheduler::{LANES, Scheduler},
};

#[derive(Debug, Clone, Copy)]
struct Link {
    pool: usize,
    /// Frames to send, by lane.
    frames: [u8; LANES],
    window: u8,
    advertised: u8,
    /// The class that the receiver's handler never gets done with.
    stalled: Option<u8>,
    /// Whether the sender picks a lane by its queue alone, and then waits for its channel: a broken rule.
    waits_in_turn: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    scheduler: Scheduler,
    queued: [u8; LANES],
    settled: [u8; LANES],
    channels: Vec<Channel>,
    refused: bool,
    /// The lane that waits for its channel, where the rule is broken.
    in_turn: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Channel {
    spending: Spending,
    granting: Granting,
    /// Lanes of the frames that are on their way, of those in flight in all, and of those read with their numbers.
    in_transit: VecDeque<u8>,
    in_flight: VecDeque<u8>,
    held: Vec<(u64, u8)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Write,
    Read(usize),
    /// The handler is done with this one of those that it holds.
    Take(usize, usize),
    /// The newest count comes.
    Credit(usize),
}

impl Link {
    fn channel(&self, lane: usize) -> usize {
        lane % self.pool
    }

    /// Whether a lane shares no channel with a stalled one.
    fn is_free(&self, lane: usize) -> bool {
        self.stalled.is_none_or(|stalled| self.channel(usize::from(stalled)) != self.channel(lane))
    }

    fn write(&self, state: &mut State) {
        let may_write: [bool; LANES] =
            std::array::from_fn(|lane| state.channels[self.channel(lane)].spending.may_write());
        let queued = state.queued.map(|queued| queued > 0);
        let lane = if self.waits_in_turn {
            let picked = state.in_turn.or_else(|| state.scheduler.pick(queued));
            state.in_turn = picked.filter(|lane| !may_write[usize::from(*lane)]);
            picked.filter(|_| state.in_turn.is_none())
        } else {
            state.scheduler.pick(std::array::from_fn(|lane| queued[lane] && may_write[lane]))
        };
        let Some(lane) = lane else { return };
        state.queued[usize::from(lane)] -= 1;
        let channel = &mut state.channels[self.channel(usize::from(lane))];
        channel.spending.wrote();
        channel.in_transit.push_back(lane);
        channel.in_flight.push_back(lane);
    }
}

impl State {
    fn done(&self, model: &Link) -> bool {
        (0..LANES).all(|lane| !model.is_free(lane) || self.settled[lane] == model.frames[lane])
    }
}

impl Model for Link {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let channel = Channel {
            spending: Spending::new(self.advertised, self.window),
            granting: Granting::new(self.advertised),
            in_transit: VecDeque::new(),
            in_flight: VecDeque::new(),
            held: Vec::new(),
        };
        vec![State {
            scheduler: Scheduler::new(),
            queued: self.frames,
            settled: [0; LANES],
            channels: vec![channel; self.pool],
            refused: false,
            in_turn: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Write);
        for (place, channel) in state.channels.iter().enumerate() {
            if !channel.in_transit.is_empty() {
                actions.push(Action::Read(place));
            }
            let served = channel.held.iter().enumerate().filter(|(_, (_, lane))| self.stalled != Some(*lane));
            actions.extend(served.map(|(which, _)| Action::Take(place, which)));
            actions.push(Action::Credit(place));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write => self.write(&mut state),
            Action::Read(place) => {
                let channel = &mut state.channels[place];
                let lane = channel.in_transit.pop_front()?;
                match channel.granting.read() {
                    Ok(frame) => channel.held.push((frame, lane)),
                    Err(_) => state.refused = true,
                }
            }
            Action::Take(place, which) => {
                let channel = &mut state.channels[place];
                let (frame, _) = channel.held.remove(which);
                channel.granting.taken(frame);
            }
            Action::Credit(place) => {
                let channel = &mut state.channels[place];
                match channel.spending.credit(channel.granting.count()) {
                    Ok(count) => {
                        for _ in 0..count {
                            state.settled[usize::from(channel.in_flight.pop_front()?)] += 1;
                        }
                    }
                    Err(_) => state.refused = true,
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody is refused", |_, state: &State| !state.refused),
            Property::always("the window and the credit are kept", |model: &Self, state: &State| {
                let bound = usize::from(model.window.min(model.advertised));
                state.channels.iter().all(|channel| channel.in_flight.len() <= bound && channel.held.len() <= bound)
            }),
            Property::always("no lane but those of the stalled channel is stuck", |model: &Self, state: &State| {
                state.done(model) || !model.next_states(state).is_empty()
            }),
            Property::eventually("every free lane settles", |model, state: &State| state.done(model)),
            Property::sometimes("a lane waits for credit while another writes", |model: &Self, state: &State| {
                let may_write = |lane: usize| state.channels[model.channel(lane)].spending.may_write();
                let waits = |lane: usize| state.queued[lane] > 0 && !may_write(lane);
                // One channel for all is one credit for all.
                model.pool == 1
                    || (0..LANES).any(waits) && (0..LANES).any(|lane| state.queued[lane] > 0 && may_write(lane))
            }),
        ]
    }
}

#[test]
fn l3_5_every_interleaving_serves_all_lanes_but_those_of_a_stalled_channel() {
    let link = Link { pool: 4, frames: [0; 4], window: 1, advertised: 3, stalled: None, waits_in_turn: false };
    for (pool, window, stalled, frames, floor) in [
        (4, 1, None, [2, 2, 2, 2], 7_000),
        (4, 1, Some(1), [6, 3, 2, 2], 6_000),
        (4, 1, Some(0), [3, 2, 2, 2], 1_500),
        (4, 2, None, [3, 3, 1, 1], 10_000),
        (3, 1, Some(2), [6, 2, 3, 2], 1_500),
        (2, 2, Some(1), [3, 2, 3, 2], 400),
        (2, 2, Some(0), [2, 3, 2, 3], 100),
        (1, 2, None, [6, 2, 2, 2], 50),
    ] {
        let name = format!("link, pool {pool}, window {window}, stalled {stalled:?}, frames {frames:?}");
        holds(&name, Link { pool, window, stalled, frames, ..link }, floor);
    }
}

#[test]
fn l3_5_a_link_that_waits_for_the_lane_in_turn_finds_its_counterexample() {
    let frames = [2, 3, 2, 2];
    let link = Link { pool: 4, frames, window: 1, advertised: 1, stalled: Some(1), waits_in_turn: true };
    breaks(link, "no lane but those of the stalled channel is stuck");
    breaks(link, "every free lane settles");
}
