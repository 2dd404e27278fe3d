//! Which incarnations a draw must exceed, and which lie too far ahead to be exceeded yet (law L8.4). Pure.

use super::Clocks;
use crate::message::Incarnation;

/// The most incarnations that are remembered at once.
pub(super) const KNOWN_MAX: usize = 5;

/// Incarnations that were used or removed, greatest first. Those more than the tolerance ahead of the clock are set
/// aside; a draw exceeds the others.
///
/// A sixth one drops the least, or the least that is set aside where only one is not. So one that was dropped is
/// exceeded as long as the clock does not step back below all that are kept; where it does, a stream may run below
/// the dropped one until the clock reaches the next that is kept, and the fresh random bits of every draw keep the
/// dropped one from being drawn again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known(Vec<Incarnation>);

impl Known {
    /// Takes a decoded list; `None` unless it is strictly descending and not too long.
    pub(super) fn from_list(list: Vec<Incarnation>) -> Option<Self> {
        let descending = list.iter().zip(list.iter().skip(1)).all(|(greater, smaller)| greater > smaller);
        (descending && list.len() <= KNOWN_MAX).then_some(Self(list))
    }

    pub(super) fn list(&self) -> &[Incarnation] {
        &self.0
    }

    /// Remembers one more, as the clock stands.
    pub(super) fn note(&mut self, incarnation: Incarnation, now: Clocks) {
        if let Err(place) = self.0.binary_search_by(|known| incarnation.cmp(known)) {
            self.0.insert(place, incarnation);
        }
        if self.0.len() > KNOWN_MAX {
            // The least goes, unless it is the only one that the clock has reached: a draw needs that one.
            let least = self.0.len() - 1;
            self.0.remove(if self.ahead(now) == least { least - 1 } else { least });
        }
    }

    /// How many are set aside: they are the first ones.
    fn ahead(&self, now: Clocks) -> usize {
        self.0.partition_point(|known| known.wall() > now.wall.saturating_add(now.sigma))
    }

    /// Whether one that was set aside above `running` has been reached, so that its stream must draw again.
    pub(super) fn overtakes(&self, running: Incarnation, now: Clocks) -> bool {
        self.0.iter().any(|known| *known > running && known.wall() <= now.wall)
    }

    /// A fresh incarnation above all that is not set aside; `None` once the milliseconds pass 48 bits.
    pub(super) fn draw(&self, now: Clocks, random: u16) -> Option<Incarnation> {
        let above = self.0.get(self.ahead(now)).map_or(0, |known| known.wall() + 1);
        let wall = now.wall.max(above);
        // One that is set aside may lie in the very millisecond drawn: five are known at most, so a sixth is free.
        let mut drawn = (0..).map(|step| Incarnation::new(wall, random.wrapping_add(step)));
        (wall < 1 << 48).then(|| drawn.find(|drawn| !self.0.contains(drawn)))?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(wall: u64) -> Clocks {
        Clocks { wall, monotonic: Duration::ZERO, sigma: 10 }
    }

    fn known(walls: &[u64], now: u64) -> Known {
        let mut known = Known::default();
        for wall in walls {
            known.note(Incarnation::new(*wall, 7), at(now));
        }
        known
    }

    #[test]
    fn l8_4_a_draw_is_above_the_clock_and_what_is_known() {
        assert_eq!(known(&[], 100).draw(at(100), 3), Some(Incarnation::new(100, 3)));
        assert_eq!(known(&[100], 100).draw(at(100), 0), Some(Incarnation::new(101, 0)));
        assert_eq!(known(&[110, 50], 100).draw(at(100), 0), Some(Incarnation::new(111, 0)), "the tolerance's edge");
    }

    #[test]
    fn l8_4_what_lies_too_far_ahead_is_set_aside_and_drawn_above_once_reached() {
        let known = known(&[111, 50], 100);
        let drawn = known.draw(at(100), 0).unwrap();
        assert_eq!(drawn, Incarnation::new(100, 0));
        assert!(!known.overtakes(drawn, at(110)));
        assert!(known.overtakes(drawn, at(111)));
        assert_eq!(known.draw(at(111), 0), Some(Incarnation::new(112, 0)));
    }

    #[test]
    fn l8_4_the_list_is_bounded_and_keeps_the_greatest() {
        let known = known(&[90, 200, 300, 400, 500, 600, 80], 100);
        let walls: Vec<u64> = known.list().iter().map(|known| known.wall()).collect();
        assert_eq!(walls, [600, 500, 400, 300, 90]);
        assert_eq!(known.list().len(), KNOWN_MAX);
    }

    #[test]
    fn l8_4_a_step_back_below_the_greatest_still_exceeds_the_others() {
        let known = known(&[500, 40, 300, 50], 600);
        assert_eq!(known.draw(at(100), 0), Some(Incarnation::new(100, 0)));
        assert_eq!(known.draw(at(45), 0), Some(Incarnation::new(51, 0)), "50 is within the tolerance");
        assert_eq!(known.draw(at(35), 0), Some(Incarnation::new(41, 0)), "50 is set aside");
    }

    #[test]
    fn l8_4_milliseconds_past_48_bits_fail_closed() {
        assert_eq!(Known::default().draw(at(1 << 48), 0), None);
        assert_eq!(known(&[(1 << 48) - 1], (1 << 48) - 1).draw(at((1 << 48) - 1), 0), None);
        assert!(Known::default().draw(at((1 << 48) - 1), 0).is_some());
    }

    #[test]
    fn a_list_out_of_order_or_too_long_is_refused() {
        let list = |walls: &[u64]| Known::from_list(walls.iter().map(|wall| Incarnation(*wall)).collect());
        assert!(list(&[5, 4, 3, 2, 1]).is_some());
        assert!(list(&[1, 2]).is_none());
        assert!(list(&[2, 2]).is_none());
        assert!(list(&[6, 5, 4, 3, 2, 1]).is_none());
    }
}
