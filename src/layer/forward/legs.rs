//! Which next hop a stream's frames are with: a stream changes it only once none is left on the old one (law L3.9).
//!
//! **State.** For each stream with frames handed over that have not settled: their next hop, and how many they are.
//!
//! **Transitions.** A frame enters a leg at once if its stream has no frame with another next hop, else it waits until
//! the last of those settled. The table says so to all who wait whenever a stream's last frame left. Leaving is
//! dropping [`OnLeg`], which travels with the frame.
//!
//! **Failures.** None. Waiting is bounded by the caller's delivery bound, and entries by the frames handed over.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{identity::Did, message::StreamKey};

/// The legs of all streams. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Legs(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    legs: Mutex<HashMap<StreamKey, Leg>>,
    ended: Notify,
}

#[derive(Debug)]
struct Leg {
    next_hop: Did,
    frames: usize,
}

/// A frame's place on its stream's leg, left when dropped.
#[derive(Debug)]
pub(super) struct OnLeg {
    table: Arc<Table>,
    stream: StreamKey,
}

impl Legs {
    /// Waits until no frame of `stream` is with another next hop, and enters.
    pub(super) async fn enter(&self, stream: StreamKey, next_hop: Did) -> OnLeg {
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if let Some(on_leg) = self.try_enter(stream, next_hop) {
                return on_leg;
            }
            ended.await;
        }
    }

    fn try_enter(&self, stream: StreamKey, next_hop: Did) -> Option<OnLeg> {
        let mut legs = self.0.lock();
        let leg = legs.entry(stream).or_insert(Leg { next_hop, frames: 0 });
        if leg.next_hop != next_hop {
            return None;
        }
        leg.frames += 1;
        Some(OnLeg { table: Arc::clone(&self.0), stream })
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<StreamKey, Leg>> {
        // No code of others runs under the lock.
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnLeg {
    fn drop(&mut self) {
        let mut legs = self.table.lock();
        let Some(leg) = legs.get_mut(&self.stream) else { return };
        leg.frames -= 1;
        if leg.frames == 0 {
            legs.remove(&self.stream);
            drop(legs);
            self.table.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::{
        identity::KeySigner,
        message::{Class, NetworkId},
    };

    #[tokio::test]
    async fn l3_9_a_stream_changes_its_next_hop_once_nothing_is_left_on_the_old_one() {
        let did = |seed| KeySigner::from_secret(&[seed; 32]).unwrap().key();
        let stream = |class| StreamKey { network: NetworkId(1), origin: did(1), destination: did(2), class };
        let (legs, e2e, storage) = (Legs::default(), stream(Class::E2e), stream(Class::Storage));
        let first = legs.enter(e2e, did(3)).await;
        let second = legs.enter(e2e, did(3)).await;
        let mut other = std::pin::pin!(legs.enter(e2e, did(4)));
        assert!(other.as_mut().now_or_never().is_none());
        assert!(legs.enter(storage, did(4)).now_or_never().is_some(), "another stream does not wait");
        drop(first);
        assert!(other.as_mut().now_or_never().is_none());
        drop(second);
        let moved = other.as_mut().now_or_never().expect("the old leg has ended");
        assert!(legs.enter(e2e, did(3)).now_or_never().is_none(), "and back likewise");
        drop(moved);
        assert!(legs.0.lock().is_empty());
    }
}
