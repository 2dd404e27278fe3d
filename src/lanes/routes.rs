//! Which next hop each stream goes by, so that a stream changes it only when nothing of it is left on the old one
//! (law L3.9). Else what went by the new hop could overtake what is still on its way by the old one, until the
//! destination's window refuses the latter as stale.
//!
//! **State.** Per stream with unsettled frames: the hop `P` that they go by, how many they are, and the frames that wait
//! for their stream because they are to go by another hop, in the order in which they came, each under the name that it
//! came with. In other words: of a stream's unsettled frames, in order, the longest run from the oldest on that
//! has one hop goes, and what comes after that run waits.
//!
//! **Transitions.** [`Routes::enter`] takes a frame, or room for one that is not signed yet, and says whether it goes.
//! [`Routes::leave`] is called once for each, when it settles or is given up, whatever became of it and whether or not
//! it had gone. It hands back those that may go now: once the old hop has nothing left, the first that waited and those
//! right behind it with the same hop. Nothing passes what waits, not even a frame for the hop that the stream is still
//! on, so a router that goes to and fro starves nobody. What goes never waits again.
//!
//! **Bounds.** An entry goes with its last frame, so there are at most as many as frames, and these are bounded by the
//! queues, the windows and the callers. Keeping one's hop costs one look into the table on entering and one on leaving.
//!
//! **Failures.** A hop that takes nothing keeps its stream until the frames there are past their time. What waits ends
//! by its own deadline, as everything in the queues does; this table knows no time. Two streams cannot stop each other
//! here, since a frame waits for older frames of its own stream only.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// The hops `P` that streams `K` go by.
#[derive(Debug)]
pub(crate) struct Routes<K, P> {
    streams: HashMap<K, Stream<P>>,
}

#[derive(Debug)]
struct Stream<P> {
    hop: P,
    going: usize,
    /// By rising name.
    waiting: VecDeque<(u64, P)>,
}

impl<K: Eq + Hash, P: Clone + Eq> Routes<K, P> {
    pub(crate) fn new() -> Self {
        Self { streams: HashMap::new() }
    }

    /// A frame of `stream` is to go by `hop`. Whether it may go now; else [`Routes::leave`] says when. Each `name` must be
    /// greater than all before it.
    pub(crate) fn enter(&mut self, stream: K, hop: &P, name: u64) -> bool {
        let stream = self.streams.entry(stream).or_insert_with(|| Stream {
            hop: hop.clone(),
            going: 0,
            waiting: VecDeque::new(),
        });
        let goes = stream.waiting.is_empty() && stream.hop == *hop;
        if goes {
            stream.going += 1;
        } else {
            stream.waiting.push_back((name, hop.clone()));
        }
        goes
    }

    /// The frame that entered as `name` settled or was given up. The names of those that may go now, in order, are put
    /// into `released`; all go by the hop returned.
    pub(crate) fn leave(&mut self, key: &K, name: u64, released: &mut Vec<u64>) -> Option<P> {
        let stream = self.streams.get_mut(key)?;
        match stream.waiting.binary_search_by_key(&name, |(name, _)| *name) {
            Ok(place) => drop(stream.waiting.remove(place)),
            Err(_) => stream.going -= 1,
        }
        let before = released.len();
        while let Some((_, hop)) = stream.waiting.front() {
            if stream.going == 0 {
                stream.hop = hop.clone();
            } else if stream.hop != *hop {
                break;
            }
            stream.going += 1;
            released.extend(stream.waiting.pop_front().map(|(name, _)| name));
        }
        let hop = (released.len() > before).then(|| stream.hop.clone());
        if stream.going == 0 {
            self.streams.remove(key);
        }
        hop
    }

    /// How many streams have unsettled frames.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn leave(routes: &mut Routes<u8, char>, name: u64) -> Vec<u64> {
        let mut released = Vec::new();
        routes.leave(&1, name, &mut released);
        released
    }

    #[test]
    fn l3_9_a_stream_changes_its_hop_once_nothing_is_left_on_the_old_one() {
        let mut routes = Routes::new();
        assert!(routes.enter(1, &'a', 1) && routes.enter(1, &'a', 2));
        assert!(!routes.enter(1, &'b', 3) && !routes.enter(1, &'b', 4));
        assert!(routes.enter(2, &'b', 5), "another stream goes its own way");
        assert!(leave(&mut routes, 2).is_empty());
        assert_eq!(leave(&mut routes, 1), [3, 4]);
        assert!(routes.enter(1, &'b', 6));
    }

    #[test]
    fn l3_9_nothing_passes_what_waits_so_a_router_that_goes_to_and_fro_starves_nobody() {
        let mut routes = Routes::new();
        assert!(routes.enter(1, &'a', 1));
        assert!(!routes.enter(1, &'b', 2) && !routes.enter(1, &'a', 3) && !routes.enter(1, &'b', 4));
        assert_eq!(leave(&mut routes, 1), [2]);
        assert_eq!(leave(&mut routes, 2), [3]);
        assert_eq!(leave(&mut routes, 3), [4]);
    }

    #[test]
    fn what_is_given_up_while_it_waits_no_longer_parts_those_before_and_behind_it() {
        let mut routes = Routes::new();
        assert!(routes.enter(1, &'a', 1));
        assert!(!routes.enter(1, &'b', 2) && !routes.enter(1, &'a', 3));
        assert_eq!(leave(&mut routes, 2), [3]);
        assert_eq!((leave(&mut routes, 3), leave(&mut routes, 1), routes.len()), (vec![], vec![], 0));
    }

    proptest! {
        /// Against a list of each stream's unsettled frames: at every step exactly the longest run of one hop from the
        /// oldest on goes, each is released once and in order, and nothing is kept of a stream without frames.
        #[test]
        fn l3_9_what_goes_is_the_oldest_run_of_one_hop(
            steps in prop::collection::vec((0..3_u8, 0..3_u8, any::<u8>(), 0..5_u8), 1..300),
        ) {
            let mut routes = Routes::new();
            let mut model: BTreeMap<u8, Vec<(u64, u8)>> = BTreeMap::new();
            let mut going: HashSet<u64> = HashSet::new();
            for (name, (key, hop, choice, kind)) in (1_u64..).zip(steps) {
                let frames = model.entry(key).or_default();
                if kind < 3 || frames.is_empty() {
                    frames.push((name, hop));
                    if routes.enter(key, &hop, name) {
                        going.insert(name);
                    }
                } else {
                    let (gone, _) = frames.remove(usize::from(choice) % frames.len());
                    going.remove(&gone);
                    let mut released = Vec::new();
                    let by = routes.leave(&key, gone, &mut released);
                    prop_assert!(released.is_sorted());
                    prop_assert_eq!(by.is_some(), !released.is_empty());
                    for name in released {
                        prop_assert!(frames.contains(&(name, by.unwrap_or(u8::MAX))));
                        prop_assert!(going.insert(name), "released twice, or had gone");
                    }
                }
                let expected: HashSet<u64> = model
                    .values()
                    .flat_map(|frames| frames.iter().take_while(|frame| frame.1 == frames[0].1))
                    .map(|(name, _)| *name)
                    .collect();
                prop_assert_eq!(&going, &expected);
                prop_assert_eq!(routes.len(), model.values().filter(|frames| !frames.is_empty()).count());
            }
        }
    }
}
