//! Two ends that write frames to each other through pipes of bounded room, which carry the counts for the other way too.

use std::collections::VecDeque;

use stateright::{Model, Property};

use super::{breaks, holds};
use crate::lanes::credit::{Granting, Spending};

#[derive(Debug, Clone, Copy)]
struct Duplex {
    frames: u8,
    window: u8,
    /// How many frames and counts a pipe holds that were written and not read.
    room: usize,
    /// Whether an end reads nothing while something of its own cannot be written: a broken rule.
    writes_first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    ends: [End; 2],
    /// What each end wrote and the other has not read.
    pipes: [VecDeque<Message>; 2],
    refused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct End {
    spending: Spending,
    granting: Granting,
    to_write: u8,
    settled: u64,
    /// The count that was written last.
    count: u64,
    held: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Message {
    Frame,
    Credit(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Frame(usize),
    Credit(usize),
    Read(usize),
    Take(usize, usize),
}

impl End {
    fn has_frame(&self) -> bool {
        self.to_write > 0 && self.spending.may_write()
    }

    fn has_credit(&self) -> bool {
        self.granting.count() > self.count
    }
}

impl State {
    fn done(&self, model: &Duplex) -> bool {
        self.ends.iter().all(|end| end.settled == u64::from(model.frames))
    }
}

impl Model for Duplex {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let end = End {
            spending: Spending::new(self.window, self.window),
            granting: Granting::new(self.window),
            to_write: self.frames,
            settled: 0,
            count: 0,
            held: Vec::new(),
        };
        vec![State { ends: [end.clone(), end], pipes: [VecDeque::new(), VecDeque::new()], refused: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (place, end) in state.ends.iter().enumerate() {
            let has_room = state.pipes[place].len() < self.room;
            if has_room && end.has_frame() {
                actions.push(Action::Frame(place));
            }
            if has_room && end.has_credit() {
                actions.push(Action::Credit(place));
            }
            let held_up = self.writes_first && !has_room && (end.has_frame() || end.has_credit());
            if !held_up && !state.pipes[1 - place].is_empty() {
                actions.push(Action::Read(place));
            }
            actions.extend((0..end.held.len()).map(|which| Action::Take(place, which)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Frame(place) => {
                let end = &mut state.ends[place];
                end.spending.wrote();
                end.to_write -= 1;
                state.pipes[place].push_back(Message::Frame);
            }
            Action::Credit(place) => {
                let end = &mut state.ends[place];
                end.count = end.granting.count();
                state.pipes[place].push_back(Message::Credit(end.count));
            }
            Action::Read(place) => {
                let end = &mut state.ends[place];
                match state.pipes[1 - place].pop_front()? {
                    Message::Frame => match end.granting.read() {
                        Ok(frame) => end.held.push(frame),
                        Err(_) => state.refused = true,
                    },
                    Message::Credit(count) => match end.spending.credit(count) {
                        Ok(settled) => end.settled += settled,
                        Err(_) => state.refused = true,
                    },
                }
            }
            Action::Take(place, which) => {
                let end = &mut state.ends[place];
                let frame = end.held.remove(which);
                end.granting.taken(frame);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody is refused", |_, state: &State| !state.refused),
            Property::always("the window and the pipes' room are kept", |model: &Self, state: &State| {
                let keeps = |end: &End| end.spending.in_flight() <= u64::from(model.window);
                state.ends.iter().all(keeps) && state.pipes.iter().all(|pipe| pipe.len() <= model.room)
            }),
            Property::always("two full ends do not stop each other", |model: &Self, state: &State| {
                state.done(model) || !model.next_states(state).is_empty()
            }),
            Property::eventually("both ends settle everything", |model, state: &State| state.done(model)),
            Property::sometimes(
                "both pipes are full while both ends have more to write",
                |model: &Self, state: &State| {
                    let full = state.pipes.iter().all(|pipe| pipe.len() == model.room);
                    full && state.ends.iter().all(|end| end.has_frame() || end.has_credit())
                },
            ),
        ]
    }
}

#[test]
fn l3_5_two_ends_that_write_to_each_other_through_full_pipes_settle_everything() {
    for (frames, window, room, floor) in [(3, 2, 1, 1_000), (4, 3, 2, 10_000)] {
        let name = format!("duplex, {frames} frames each way, window {window}, room {room}");
        holds(&name, Duplex { frames, window, room, writes_first: false }, floor);
    }
}

#[test]
fn l3_5_ends_that_read_only_once_they_wrote_find_their_counterexample() {
    let stops = Duplex { frames: 3, window: 2, room: 1, writes_first: true };
    breaks(stops, "two full ends do not stop each other");
    breaks(stops, "both ends settle everything");
}
