//! How often what happens in a world.

use super::super::model::Draw;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Pass,
    PassLong,
    StepClock,
    RightClock,
    Reserve,
    SenderLands,
    SenderFails,
    SenderCrashes,
    SenderLoses,
    SenderDamage,
    SenderClock,
    Forge,
    Deliver,
    Land,
    Fail,
    Crash,
    Reboot,
    Lose,
    Damage,
    OpenLink,
    CloseLink,
    Register,
    Withdraw,
    HandOver,
}

/// Every action, and how often it happens at most.
const ACTIONS: [(Action, u64); 24] = [
    (Action::Pass, 50),
    (Action::PassLong, 8),
    (Action::StepClock, 8),
    (Action::RightClock, 8),
    (Action::Reserve, 60),
    (Action::SenderLands, 60),
    (Action::SenderFails, 3),
    (Action::SenderCrashes, 4),
    (Action::SenderLoses, 2),
    (Action::SenderDamage, 2),
    (Action::SenderClock, 4),
    (Action::Forge, 40),
    (Action::Deliver, 220),
    (Action::Land, 120),
    (Action::Fail, 14),
    (Action::Crash, 5),
    (Action::Reboot, 3),
    (Action::Lose, 2),
    (Action::Damage, 3),
    (Action::OpenLink, 20),
    (Action::CloseLink, 6),
    (Action::Register, 5),
    (Action::Withdraw, 3),
    (Action::HandOver, 120),
];

/// Without these a world stands still.
const ALWAYS: [Action; 7] = [
    Action::Pass,
    Action::Reserve,
    Action::SenderLands,
    Action::Deliver,
    Action::Land,
    Action::OpenLink,
    Action::HandOver,
];

/// Drawn anew for each world, so that some are all crashes and some have none.
#[derive(Debug)]
pub(super) struct Weather([u64; ACTIONS.len()]);

impl Weather {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        Self(ACTIONS.map(|(action, most)| {
            let never = draw.one_in(if most < 9 { 3 } else { 6 });
            let weight = 1 + draw.below(most);
            match (ALWAYS.contains(&action), never) {
                (true, _) => weight.max(5),
                (false, true) => 0,
                (false, false) => weight,
            }
        }))
    }

    pub(super) fn next(&self, draw: &mut Draw) -> Action {
        let mut at = draw.below(self.0.iter().sum());
        for (weight, (action, _)) in self.0.iter().zip(ACTIONS) {
            match at.checked_sub(*weight) {
                Some(past) => at = past,
                None => return action,
            }
        }
        Action::Pass
    }
}
