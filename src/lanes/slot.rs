//! A connection's slot at its receiver (law L10.3).
//!
//! **State.** Nothing, or the guard of the slot; and whether it was said that there was none. **Transitions.** The first
//! lane that opens takes the slot. It is kept until the connection, its channels and all their frames are gone, so that
//! no stream is charged to a slot that another connection has by then. **Failures.** Without a free slot nothing opens,
//! and the next lane asks again; a lane that does not open for another reason takes no slot.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use libp2p::PeerId;

use crate::link::{LinkGuard, LinkId, Links, NoSlot};

/// Held by a connection's handler, its inbound channels and their frames.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    guard: Mutex<Option<LinkGuard>>,
    refused: AtomicBool,
}

impl Slot {
    /// Opens a lane by `open`, with the slot that `links` gives the connection.
    pub(crate) fn open<T, E: From<NoSlot>>(
        &self,
        links: Option<&dyn Links>,
        (peer, link): (PeerId, LinkId),
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(links) = links.filter(|_| guard.is_none()) else { return open() };
        let taken = links.open(peer, link)?;
        let opened = open()?;
        *guard = Some(taken);
        Ok(opened)
    }

    /// Whether this is the first time that the connection found no slot.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.refused.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

    use super::*;

    /// A count of slots.
    #[derive(Debug)]
    struct Free(Arc<AtomicUsize>);

    impl Links for Free {
        fn open(&self, _: PeerId, _: LinkId) -> Result<LinkGuard, NoSlot> {
            self.0
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(1))
                .map_err(|_| NoSlot { slots: 1 })?;
            let free = Arc::clone(&self.0);
            Ok(LinkGuard::new(move || {
                free.fetch_add(1, Ordering::AcqRel);
            }))
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Unopened {
        NoSlot,
        Other,
    }

    impl From<NoSlot> for Unopened {
        fn from(_: NoSlot) -> Self {
            Self::NoSlot
        }
    }

    #[test]
    fn l10_3_the_first_lane_takes_the_slot_and_the_last_holder_gives_it_back() {
        let free = Arc::new(AtomicUsize::new(1));
        let links = Free(Arc::clone(&free));
        let whose = (PeerId::random(), LinkId::of(1));
        let (first, second) = (Arc::new(Slot::default()), Slot::default());
        let open = |slot: &Slot| slot.open(Some(&links), whose, || Ok::<_, Unopened>(()));
        assert_eq!(first.open(Some(&links), whose, || Err::<(), _>(Unopened::Other)), Err(Unopened::Other));
        assert_eq!(free.load(Ordering::Acquire), 1, "what does not open takes none");
        assert_eq!((open(&first), open(&first)), (Ok(()), Ok(())));
        assert_eq!((open(&second), second.is_first_refusal()), (Err(Unopened::NoSlot), true));
        assert_eq!((open(&second), second.is_first_refusal()), (Err(Unopened::NoSlot), false));
        let frame = Arc::clone(&first);
        drop(first);
        assert_eq!(open(&second), Err(Unopened::NoSlot), "a frame is not taken over yet");
        drop(frame);
        assert_eq!(open(&second), Ok(()));
    }

    #[test]
    fn without_links_to_tell_every_lane_opens() {
        let opened = Slot::default().open(None, (PeerId::random(), LinkId::of(1)), || Ok::<_, NoSlot>(1));
        assert_eq!(opened, Ok(1));
    }
}
