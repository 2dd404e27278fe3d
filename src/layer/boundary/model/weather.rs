//! How often what happens in a world.

use super::disk::Draw;

/// How often things happen in a world. Drawn anew for each, so that some worlds are all crashes and some have none.
#[derive(Debug)]
pub(super) struct Weather {
    pub(super) steps: [u64; ACTIONS.len()],
    pub(super) honest: u64,
    /// Whether the clock falls behind with a lost store.
    pub(super) losses: bool,
    /// Whether batches with a removal in them meet crashes and failures more often.
    pub(super) removals_meet_trouble: bool,
    pub(super) sigmas: Vec<u64>,
    pub(super) ttls: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Pass,
    PassLong,
    StepClock,
    RightClock,
    Sign,
    Present,
    Flush,
    Fail,
    Crash,
    Reboot,
    Lose,
    Damage,
}

pub(super) const ACTIONS: [Action; 12] = [
    Action::Pass,
    Action::PassLong,
    Action::StepClock,
    Action::RightClock,
    Action::Sign,
    Action::Present,
    Action::Flush,
    Action::Fail,
    Action::Crash,
    Action::Reboot,
    Action::Lose,
    Action::Damage,
];

/// How often each happens at most, in the order of [`ACTIONS`].
const USUAL: [u64; ACTIONS.len()] = [50, 6, 9, 9, 80, 200, 150, 5, 6, 5, 3, 2];

/// The same for worlds that are about losses: a clock that falls behind with the store, and comes right again.
const LOSSES: [u64; ACTIONS.len()] = [90, 0, 1, 8, 60, 250, 200, 1, 10, 6, 6, 0];

/// The same with little else than that, and restarts.
const CALM: [u64; ACTIONS.len()] = [90, 0, 0, 9, 60, 250, 200, 0, 16, 2, 5, 0];

impl Weather {
    /// Draws one kind of weather, how often each thing happens in it, and what the configuration changes between.
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (losses, calm) = (draw.one_in(2), draw.one_in(2));
        let mut steps = match (losses, calm) {
            (true, true) => CALM,
            (true, false) => LOSSES,
            (false, _) => USUAL,
        };
        for weight in &mut steps {
            *weight = if draw.one_in(if *weight < 8 { 3 } else { 6 }) { 0 } else { 1 + draw.below(*weight) };
        }
        // A world without these stands still.
        for action in [Action::Pass, Action::Sign, Action::Present, Action::Flush] {
            steps[action as usize] = steps[action as usize].max(4);
        }
        Self {
            steps,
            honest: draw.below(4),
            losses,
            removals_meet_trouble: draw.one_in(2),
            // Two to choose from at each start make them rise and fall.
            sigmas: match draw.below(3) {
                _ if losses && calm => vec![1],
                0 => vec![1],
                1 => vec![1 + draw.below(4)],
                _ => vec![1, 3 + draw.below(5)],
            },
            ttls: match draw.below(3) {
                _ if losses && calm => vec![2 + draw.below(2), 20 + draw.below(20)],
                0 => vec![2 + draw.below(4)],
                1 => vec![2 + draw.below(24)],
                _ => vec![2 + draw.below(4), 14 + draw.below(20)],
            },
        }
    }
}
