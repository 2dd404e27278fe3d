//! The scheduler alone, while lanes become ready and stop being so in every order, without end.

use stateright::{Model, Property};

use super::{breaks, holds};
use crate::lanes::scheduler::{CONTROL_RUN, LANES, Ready, Scheduler};

/// The most picks that go to others while a lane stays ready: each of the other two takes its turn, and control its run
/// before each of the three.
const ROUND: u8 = (CONTROL_RUN + 1) * (LANES as u8 - 1) - 1;

#[derive(Debug, Clone, Copy)]
struct Turns {
    /// Whether the scheduler is a new one at each pick, which knows of no turn.
    forgets: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    scheduler: Scheduler,
    /// Control frames in a row while another lane was ready.
    run: u8,
    /// How many picks each lane was ready and passed over, in a row.
    waited: [u8; LANES],
    sound: bool,
}

impl Model for Turns {
    type State = State;
    type Action = Ready;

    fn init_states(&self) -> Vec<State> {
        vec![State { scheduler: Scheduler::new(), run: 0, waited: [0; LANES], sound: true }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Ready>) {
        actions.extend((0..1_u8 << LANES).map(|set| std::array::from_fn(|lane| set >> lane & 1 == 1)));
    }

    fn next_state(&self, last: &State, ready: Ready) -> Option<State> {
        let mut state = last.clone();
        if self.forgets {
            state.scheduler = Scheduler::new();
        }
        let picked = state.scheduler.pick(ready).map(usize::from);
        state.sound = match picked {
            Some(lane) => ready.get(lane) == Some(&true),
            None => !ready.contains(&true),
        };
        let others = ready.iter().skip(1).any(|ready| *ready);
        if picked.is_some() {
            state.run = if picked == Some(0) && others { state.run + 1 } else { 0 };
        }
        for (lane, waited) in state.waited.iter_mut().enumerate() {
            *waited = if ready[lane] && picked != Some(lane) { *waited + 1 } else { 0 };
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a ready lane is picked, and only a ready one", |_, state: &State| state.sound),
            Property::always("at most four control frames in a row while another waits", |_, state: &State| {
                state.run <= CONTROL_RUN
            }),
            Property::always("control waits for one frame at most", |_, state: &State| state.waited[0] <= 1),
            Property::always("each of the others waits for one round at most", |_, state: &State| {
                state.waited.iter().skip(1).all(|waited| *waited <= ROUND)
            }),
            Property::sometimes("control has its whole run", |_, state: &State| state.run == CONTROL_RUN),
            Property::sometimes("one waits for a whole round", |_, state: &State| state.waited.contains(&ROUND)),
        ]
    }

    /// One step past the bounds shows that they are broken.
    fn within_boundary(&self, state: &State) -> bool {
        state.run <= CONTROL_RUN + 1 && state.waited.iter().all(|waited| *waited <= ROUND + 1)
    }
}

#[test]
fn l3_6_no_history_of_ready_lanes_starves_a_class() {
    holds("turns", Turns { forgets: false }, 1_000);
}

#[test]
fn l3_6_a_scheduler_that_forgets_whose_turn_it_is_finds_its_counterexample() {
    let forgets = || Turns { forgets: true };
    breaks(forgets(), "at most four control frames in a row while another waits");
    breaks(forgets(), "each of the others waits for one round at most");
}
