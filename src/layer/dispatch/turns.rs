use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use libp2p::PeerId;

use super::queue::{Place, Queue};
use crate::{
    layer::{Refusal, Verified},
    link::{LinkId, unless_superseded},
};

/// The most places that one channel may hold at a time, of transactions that wait or whose handlers run.
pub(crate) const CHANNEL_PLACES: usize = 1_024;

/// The most places that all channels together may hold, at the least: 4 channels of 32 frames for each of 328
/// connections, and half as much again.
pub(crate) const ALL_PLACES: usize = 65_536;

/// The most places that all channels together may hold where `slots` connections may have lanes: as many as these can
/// fill with credit alone, and half as much again, so that no number of them takes the places of the others.
const fn all_places(slots: u16) -> usize {
    let places = slots as usize * (4 * 32) * 3 / 2;
    if places > ALL_PLACES { places } else { ALL_PLACES }
}

/// Whose line it is: a peer's channel, whichever link it is on at the time, or the link itself on a transport without
/// channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Channel(PeerId, u8),
    Link(LinkId),
}

/// The turns of all channels (law L5.6). Cheap to clone.
///
/// A channel has an entry while somebody holds a place in it. Both bounds refuse the newcomer and nobody else.
#[derive(Clone)]
pub(crate) struct Turns {
    table: Arc<Table>,
}

struct Table {
    concurrency: NonZeroUsize,
    channel_places: usize,
    all_places: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    channels: HashMap<Key, Entry>,
    places: usize,
}

struct Entry {
    line: Arc<Mutex<Line>>,
    holders: usize,
}

struct Line {
    queue: Queue,
    wakers: HashMap<Place, Waker>,
}

/// Too many places are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnsFull {
    /// How many.
    pub(crate) held: usize,
}

/// A place in a channel's line. Dropping it leaves, at any time.
#[must_use]
pub(crate) struct Turn {
    table: Arc<Table>,
    key: Key,
    line: Arc<Mutex<Line>>,
    place: Place,
}

impl Turns {
    /// Of a node where `slots` connections may have lanes.
    pub(crate) fn new(concurrency: NonZeroUsize, slots: u16) -> Self {
        Self::bounded(concurrency, CHANNEL_PLACES, all_places(slots))
    }

    fn bounded(concurrency: NonZeroUsize, channel_places: usize, all_places: usize) -> Self {
        let entries = Mutex::default();
        Self { table: Arc::new(Table { concurrency, channel_places, all_places, entries }) }
    }

    /// Takes the last place in the line of the channel that `verified` came on and runs `stage` at the same instant:
    /// nobody else takes a place of that channel between the two, so that the order of places is the order of stages.
    /// `stage` must be short.
    ///
    /// A peer's channel has one line over all its links, so that the order goes on where one link follows another; what
    /// comes of a channel that was replaced meanwhile gets no place (law L3.8).
    pub(in crate::layer) fn take<R>(
        &self,
        verified: &Verified,
        stage: impl FnOnce() -> R,
    ) -> Result<(Turn, R), Refusal> {
        let key = match verified.channel() {
            Some(channel) => Key::Channel(verified.peer(), channel.index),
            None => Key::Link(verified.link()),
        };
        match unless_superseded(verified.feedback(), || self.take_in(key, stage)) {
            Some(taken) => taken.map_err(|full| Refusal::DispatchFull { held: full.held }),
            None => Err(Refusal::Superseded),
        }
    }

    fn take_in<R>(&self, key: Key, stage: impl FnOnce() -> R) -> Result<(Turn, R), TurnsFull> {
        let line = self.hold(key)?;
        // Named before the lock, so that a panic of `stage` unlocks first and gives the place back then.
        let turn;
        let mut locked = lock(&line);
        turn = Turn { table: Arc::clone(&self.table), key, line: Arc::clone(&line), place: locked.queue.take() };
        let staged = stage();
        drop(locked);
        Ok((turn, staged))
    }

    fn hold(&self, key: Key) -> Result<Arc<Mutex<Line>>, TurnsFull> {
        let mut entries = lock(&self.table.entries);
        if entries.places >= self.table.all_places {
            return Err(TurnsFull { held: entries.places });
        }
        let entry = entries.channels.entry(key).or_insert_with(|| Entry {
            line: Arc::new(Mutex::new(Line { queue: Queue::new(self.table.concurrency), wakers: HashMap::new() })),
            holders: 0,
        });
        if entry.holders >= self.table.channel_places {
            return Err(TurnsFull { held: entry.holders });
        }
        entry.holders += 1;
        let line = Arc::clone(&entry.line);
        entries.places += 1;
        Ok(line)
    }

    /// How many channels have an entry, and how many places are held in all.
    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        let entries = lock(&self.table.entries);
        (entries.channels.len(), entries.places)
    }
}

impl Turn {
    /// Waits until it is this place's turn to call its handler.
    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            let mut line = lock(&self.line);
            if line.queue.try_turn(self.place) {
                line.wakers.remove(&self.place);
                return Poll::Ready(());
            }
            line.wakers.entry(self.place).insert_entry(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Says that the handler was called: the next may be, if as many may run.
    pub(crate) fn called(&self) {
        self.pass_on(|queue| queue.called(self.place));
    }

    fn pass_on(&self, event: impl FnOnce(&mut Queue) -> Option<Place>) {
        let mut line = lock(&self.line);
        let waker = event(&mut line.queue).and_then(|next| line.wakers.remove(&next));
        drop(line);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.line).wakers.remove(&self.place);
        self.pass_on(|queue| queue.leave(self.place));
        let mut entries = lock(&self.table.entries);
        entries.places -= 1;
        if let Some(entry) = entries.channels.get_mut(&self.key) {
            entry.holders -= 1;
            if entry.holders == 0 {
                entries.channels.remove(&self.key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No event leaves a queue half changed, so one that a panic passed through is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("concurrency", &self.table.concurrency).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const CHANNEL: Option<u8> = Some(0);

    fn turns(channel_places: usize, all_places: usize) -> Turns {
        Turns::bounded(NonZeroUsize::MIN, channel_places, all_places)
    }

    fn key(peer: u64, channel: Option<u8>) -> Key {
        let secret = [u8::try_from(peer).expect("small"); 32];
        let peer = crate::identity::KeySigner::from_secret(&secret).expect("a key").key().to_peer_id();
        channel.map_or(Key::Link(LinkId::of(peer)), |channel| Key::Channel(peer, channel))
    }

    fn take(turns: &Turns, peer: u64, channel: Option<u8>) -> Result<Turn, TurnsFull> {
        turns.take_in(key(peer, channel), || ()).map(|(turn, ())| turn)
    }

    #[test]
    fn an_entry_vanishes_with_its_last_holder() {
        let turns = turns(8, 8);
        let first = take(&turns, 1, CHANNEL).expect("room");
        let second = take(&turns, 1, CHANNEL).expect("room");
        let other = take(&turns, 1, None).expect("room");
        assert_eq!(turns.held(), (2, 3));
        drop((first, other));
        assert_eq!(turns.held(), (1, 1));
        drop(second);
        assert_eq!(turns.held(), (0, 0));
    }

    #[test]
    fn both_bounds_refuse_the_newcomer_alone_and_room_comes_back() {
        let turns = turns(2, 3);
        let mut held: Vec<_> = (0..2).map(|_| take(&turns, 1, CHANNEL).expect("room")).collect();
        assert_eq!(take(&turns, 1, CHANNEL).err(), Some(TurnsFull { held: 2 }), "the channel's bound");
        held.push(take(&turns, 2, CHANNEL).expect("another peer has room"));
        assert_eq!(take(&turns, 3, CHANNEL).err(), Some(TurnsFull { held: 3 }), "the bound of all");
        assert_eq!(turns.held(), (2, 3), "a refused newcomer holds nothing");
        drop(held.remove(0));
        assert!(take(&turns, 3, CHANNEL).is_ok());
    }

    #[test]
    fn connections_that_have_slots_cannot_take_all_places_however_many_slots_there_are() {
        for slots in [0, 328, 600, u16::MAX] {
            let turns = Turns::new(NonZeroUsize::MIN, slots);
            assert!(turns.table.all_places > usize::from(slots) * 128, "{slots} slots");
        }
        assert_eq!(all_places(328), ALL_PLACES);
    }

    #[test]
    fn l5_6_channels_and_peers_take_turns_apart() {
        let turns = turns(8, 8);
        let stalled = take(&turns, 1, CHANNEL).expect("room");
        for (peer, channel) in [(1, Some(1)), (1, None), (2, CHANNEL)] {
            let other = take(&turns, peer, channel).expect("room");
            assert!(other.wait().now_or_never().is_some(), "{peer} {channel:?} does not wait for another's line");
        }
        drop(stalled);
    }

    #[tokio::test]
    async fn l5_6_a_waiter_is_woken_when_the_one_before_leaves_and_when_the_one_between_goes_away() {
        let turns = turns(8, 8);
        let [first, second, third] = [0; 3].map(|_| take(&turns, 1, CHANNEL).expect("room"));
        first.wait().await;
        first.called();
        let waiter = tokio::spawn(async move {
            third.wait().await;
            third
        });
        let mut abandoned = Box::pin(second.wait());
        assert!(abandoned.as_mut().now_or_never().is_none());
        drop(abandoned);
        drop(second);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(first);
        let third = waiter.await.expect("woken");
        third.called();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn l5_6_on_many_threads_with_callers_that_go_away_nobody_is_forgotten_or_called_out_of_order() {
        const CONCURRENCY: usize = 2;
        const PLACES: usize = 3_000;
        /// One handler that runs; dropped before its place is given up, since it is made after it.
        struct Running(Arc<Mutex<usize>>);
        impl Drop for Running {
            fn drop(&mut self) {
                *lock(&self.0) -= 1;
            }
        }

        let turns = Turns::bounded(NonZeroUsize::new(CONCURRENCY).expect("not zero"), PLACES, PLACES);
        let (called, running) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let tasks: Vec<_> = (0..PLACES)
            .map(|number| {
                let turn = take(&turns, 1, CHANNEL).expect("room");
                let (called, running) = (Arc::clone(&called), Arc::clone(&running));
                tokio::spawn(async move {
                    turn.wait().await;
                    let counted = {
                        let mut count = lock(&running);
                        *count += 1;
                        assert!(*count <= CONCURRENCY);
                        Running(Arc::clone(&running))
                    };
                    lock(&called).push(number);
                    turn.called();
                    tokio::task::yield_now().await;
                    drop(counted);
                    drop(turn);
                })
            })
            .collect();
        tasks.iter().step_by(3).for_each(tokio::task::JoinHandle::abort);
        let mut finished = 0;
        for task in tasks {
            match task.await {
                Ok(()) => finished += 1,
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        assert!(finished >= PLACES / 3 * 2, "only a third was told to go away, {finished} finished");
        let called = lock(&called);
        assert!(called.is_sorted() && called.len() >= finished, "called in order, none forgotten");
        assert_eq!((turns.held(), *lock(&running)), ((0, 0), 0));
    }

    #[test]
    fn a_stage_that_panics_leaves_its_place_to_others() {
        let turns = turns(8, 8);
        let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            turns.take_in(key(1, CHANNEL), || panic!("on purpose")).map(|(turn, ())| turn)
        }));
        assert!(panicking.is_err());
        assert_eq!(turns.held(), (0, 0));
    }
}
