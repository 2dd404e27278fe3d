//! The pure core of turns: one channel's places, in the order they were taken.
//!
//! A place is *waiting*, then *calling* (it has the turn: its handler is being readied and called), then *running*
//! (its handler was called), and may leave in any state.
//!
//! - A place gets the turn when all before it have had theirs or left, nobody is calling, and fewer than
//!   `concurrency` are calling or running. So handlers are *called* one after the other in order, whatever number
//!   of them runs at once.
//! - Leaving frees whatever the place held: its place in line, the turn, or its share of the concurrency. A caller
//!   that goes away, a refusal and a failed batch all leave alike.
//! - Every event says who has the turn now, if that changed: there is one, and the shell wakes it.

use std::{collections::BTreeSet, num::NonZeroUsize};

/// A place in one queue; a smaller one was taken earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u64);

#[derive(Debug)]
pub(super) struct Queue {
    concurrency: NonZeroUsize,
    next: u64,
    waiting: BTreeSet<Place>,
    calling: Option<Place>,
    running: BTreeSet<Place>,
}

impl Queue {
    pub(super) const fn new(concurrency: NonZeroUsize) -> Self {
        Self { concurrency, next: 0, waiting: BTreeSet::new(), calling: None, running: BTreeSet::new() }
    }

    /// Takes the last place in line.
    pub(super) fn take(&mut self) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.waiting.insert(place);
        place
    }

    /// Takes the turn if it is this place's.
    pub(super) fn try_turn(&mut self, place: Place) -> bool {
        if self.calling == Some(place) {
            return true;
        }
        let granted = self.turn() == Some(place);
        if granted {
            self.waiting.remove(&place);
            self.calling = Some(place);
        }
        granted
    }

    /// The handler of `place` was called: the turn passes on. Says whose it is now.
    pub(super) fn called(&mut self, place: Place) -> Option<Place> {
        if self.calling == Some(place) {
            self.calling = None;
            self.running.insert(place);
        }
        self.turn()
    }

    /// The place is given up, whatever it held. Says whose turn it is now.
    pub(super) fn leave(&mut self, place: Place) -> Option<Place> {
        if self.calling == Some(place) {
            self.calling = None;
        }
        self.waiting.remove(&place);
        self.running.remove(&place);
        self.turn()
    }

    /// Who may take the turn, if anybody.
    fn turn(&self) -> Option<Place> {
        if self.calling.is_some() || self.running.len() >= self.concurrency.get() {
            return None;
        }
        self.waiting.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(concurrency: usize) -> Queue {
        Queue::new(NonZeroUsize::new(concurrency).expect("not zero"))
    }

    #[test]
    fn l5_6_one_runs_at_a_time_and_in_order() {
        let mut queue = queue(1);
        let [first, second, third] = [queue.take(), queue.take(), queue.take()];
        assert!(!queue.try_turn(second), "not before the first");
        assert!(queue.try_turn(first));
        assert_eq!(queue.called(first), None, "the first runs");
        assert!(!queue.try_turn(second));
        assert_eq!(queue.leave(first), Some(second));
        assert!(queue.try_turn(second));
        assert_eq!(queue.leave(third), None, "somebody in the middle goes away");
        assert_eq!(queue.leave(second), None);
    }

    #[test]
    fn l5_6_with_concurrency_two_the_second_is_called_after_the_first_was_called() {
        let mut queue = queue(2);
        let [first, second, third] = [queue.take(), queue.take(), queue.take()];
        assert!(queue.try_turn(first));
        assert!(!queue.try_turn(second), "the first is being readied still");
        assert_eq!(queue.called(first), Some(second));
        assert!(queue.try_turn(second));
        assert_eq!(queue.called(second), None, "two run");
        assert!(!queue.try_turn(third));
        assert_eq!(queue.leave(second), Some(third));
    }

    #[test]
    fn l5_6_leaving_in_any_state_frees_what_the_place_held() {
        let mut queue = queue(1);
        let [first, second, third] = [queue.take(), queue.take(), queue.take()];
        assert_eq!(queue.leave(first), Some(second), "left while waiting");
        assert!(queue.try_turn(second));
        assert_eq!(queue.leave(second), Some(third), "left while calling");
        assert!(queue.try_turn(third));
        queue.called(third);
        let fourth = queue.take();
        assert_eq!(queue.leave(third), Some(fourth), "left while running");
    }

    proptest! {
        /// Places take, turn, call and leave at random: calls come in order, never too many run, and whenever
        /// somebody waits and there is room, exactly the first in line may go.
        #[test]
        fn l5_6_random_walk(concurrency in 1usize..4, steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200)) {
            let mut queue = queue(concurrency);
            let mut held: Vec<Place> = Vec::new();
            let (mut called, mut running, mut last) = (BTreeSet::new(), BTreeSet::new(), None);
            for (step, which) in steps {
                if step == 0 {
                    held.push(queue.take());
                } else if !held.is_empty() {
                    let at = which.index(held.len());
                    let place = held[at];
                    match step {
                        1 => { queue.try_turn(place); }
                        2 => if queue.calling == Some(place) {
                            queue.called(place);
                            prop_assert!(last < Some(place), "called in order");
                            last = Some(place);
                            called.insert(place);
                            running.insert(place);
                        }
                        _ => {
                            queue.leave(place);
                            running.remove(&place);
                            held.remove(at);
                        }
                    }
                }
                prop_assert_eq!(&queue.running, &running);
                prop_assert!(queue.running.len() <= concurrency);
                let first = held.iter().copied().find(|place| !called.contains(place) && queue.calling != Some(*place));
                let room = queue.calling.is_none() && running.len() < concurrency;
                prop_assert_eq!(queue.turn(), first.filter(|_| room));
            }
        }
    }
}
