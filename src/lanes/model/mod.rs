//! The protocol of one link as exhaustive models: every state that small sizes can reach, by every interleaving.
//!
//! The models drive the cores themselves ([`Spending`](super::credit::Spending), [`Granting`](super::credit::Granting),
//! [`Scheduler`](super::scheduler::Scheduler)), not copies of them; what stands around the cores here is what lies
//! between two ends: frames and counts in transit, and whoever takes frames over.
//!
//! - [`channel`]: one channel, both ends; counts late, repeated, out of order and passed over (laws L3.3 and L3.4).
//! - [`turns`]: the scheduler under every history of which lanes can write, of any length (law L3.6).
//! - [`link`]: four lanes on a pool of channels, one class never served (laws L3.1, L3.5 and L3.6).
//! - [`duplex`]: both ends write to each other through pipes of bounded room (law L3.5).
//!
//! **Liveness.** No action of a model is taken back and none that changes nothing is followed, so that a run of any but
//! [`turns`] is finite: whoever is never stuck before the end reaches it. "Everything settles" is looked at where a run
//! ends, and stays true once it is, which is where the checker's `eventually` is exact.
//!
//! Each model is run with a broken rule too, and must then find a counterexample.

mod channel;
mod duplex;
mod link;
mod turns;

use std::{fmt::Debug, hash::Hash};

use stateright::{Checker, Model};

/// Searches every state of `model`, of which there are at least `floor`, and finds no property broken.
fn holds<M>(name: &str, model: M, floor: usize)
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let checker = model.checker().spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, {depth} steps deep");
    checker.assert_properties();
    assert!(states >= floor, "{name}: {states} states are too few to show anything");
}

/// Finds a run of `model` that breaks `property`.
fn breaks<M>(model: M, property: &'static str)
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "nothing breaks {property:?}");
}
