//! A run's directory cut at every operation, in every state that a crash may leave.

use std::{
    num::NonZero,
    ops::AddAssign,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::storage::directory::{
    enumerate::{Crash, EXHAUSTIVE, Medium},
    simulated::{Image, Operation},
};

/// States that are sampled at a crash point which has more than can be tried one by one, unless the environment says.
const SAMPLES: usize = 50;
/// The variable that says it.
const SAMPLES_VARIABLE: &str = "ADMIT_ONE_CRASH_SAMPLES";

/// How many states of a crash point are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// All of them, where they are no more than this.
    whole: usize,
    /// So many otherwise.
    samples: usize,
}

impl Depth {
    /// At the crash points of a run.
    pub(crate) fn first() -> Self {
        let samples = std::env::var(SAMPLES_VARIABLE)
            .map_or(SAMPLES, |value| value.parse().unwrap_or_else(|_| panic!("{SAMPLES_VARIABLE} is a number")));
        Self { whole: EXHAUSTIVE, samples }
    }

    /// At crash points that follow an earlier crash, kill or failure, which are many more.
    pub(crate) fn second() -> Self {
        let Self { samples, .. } = Self::first();
        Self { whole: samples.min(EXHAUSTIVE), samples: samples / 5 }
    }
}

/// How much was tried.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tried {
    /// Instants at which the machine may have stopped.
    pub(crate) points: usize,
    /// Of these, the ones whose states were tried one and all.
    pub(crate) whole_points: usize,
    /// Different states, counted at each point anew.
    pub(crate) states: usize,
}

impl AddAssign for Tried {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.whole_points += other.whole_points;
        self.states += other.states;
    }
}

impl Medium {
    /// Hands `check` each state that a crash may leave now.
    pub(crate) fn each_state(&self, depth: Depth, seed: u64, mut check: impl FnMut(&Crash, &Image)) -> Tried {
        let states = self.states(depth.whole, depth.samples, seed);
        states.crashes.iter().for_each(|crash| check(crash, &self.image(crash)));
        Tried { points: 1, whole_points: usize::from(states.all), states: states.crashes.len() }
    }
}

/// Hands `check` the number of operations done and the medium then, from none to all of them, on every processor. What it
/// returns comes back in no order.
pub(crate) fn at_each_cut<T: Send>(
    begin: &Medium,
    operations: &[Operation],
    check: impl Fn(usize, &Medium) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut medium, mut done, mut found) = (begin.clone(), 0, Vec::new());
        loop {
            let cut = next.fetch_add(1, Ordering::Relaxed);
            if cut > operations.len() {
                return found;
            }
            operations[done..cut].iter().for_each(|operation| medium.apply(operation));
            done = cut;
            found.push(check(cut, &medium));
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The sum of what was tried.
pub(crate) fn sum(tried: impl IntoIterator<Item = Tried>) -> Tried {
    let mut all = Tried::default();
    tried.into_iter().for_each(|some| all += some);
    all
}
