use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use libp2p::PeerId;
use tokio::sync::oneshot;
use tower::Service;

use super::{
    connected::ConnectedRouter,
    parts::Message,
    passage::Stream,
    queue::{Terms, Traffic},
    settlement::{Ending, LossReason, Lost, Settle, Settlement},
    shared::{Asked, Item, Room, Shared},
};
use crate::{
    link::Frame,
    message::{Class, FrameTooLarge},
    task::within,
};

/// Where frames are handed over for their next hop. Cheap to clone.
///
/// A frame is accepted when there is room in its lane; until then its caller waits, first come, first served. Calls
/// take their places in the order in which they are made, not in which their futures are polled.
///
/// A frame whose stream (its origin, destination and class) still has unsettled frames on another next hop waits for
/// these, and those behind it wait for it, so that a stream that changes its next hop keeps its order (law L3.9). It is
/// not in its lane meanwhile, and holds up no other stream. Its time to be written runs on. With an inbound credit it
/// counts as accepted, since that credit bounds how many wait; without one, its caller waits.
#[derive(Debug, Clone)]
pub struct Outbound {
    shared: Arc<Shared>,
}

/// A frame that was not accepted. It was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendRefused {
    /// It is over the frame limit, with its slots as they stand.
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
    /// Frames wait for too many other peers.
    #[error("frames wait for {bound} other peers, the most that may: raise the bound, or send again later")]
    TooManyPeers {
        /// The bound.
        bound: usize,
    },
    /// There was no room for it before its time was over, or the lanes were shut down.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl Outbound {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Hands over one frame, waits for room in its lane, and returns how to learn what becomes of it.
    ///
    /// # Errors
    /// The future's, [`SendRefused`]. Dropped before it is ready, it takes the frame out of the line.
    pub fn send(&self, frame: Frame) -> Sending {
        self.begin(frame)
    }

    /// A router by which only peers that this node is connected to are reached.
    pub fn connected(&self) -> ConnectedRouter {
        ConnectedRouter::new(Arc::clone(&self.shared))
    }

    /// Accepts nothing new, waits at most `bound` until everything accepted has settled, then ends what has not: what
    /// is queued as never written, what is in flight as perhaps received. Returns how many sends it ended so.
    pub async fn shutdown(&self, bound: Duration) -> usize {
        self.shared.drain_only();
        let drained = async {
            loop {
                let changed = self.shared.outstanding.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.shared.is_idle() {
                    return;
                }
                changed.await;
            }
        };
        let in_time = within(bound, drained).await.is_some();
        let ended = if in_time { 0 } else { self.shared.outstanding.count() };
        self.shared.close();
        ended
    }

    /// Takes room for a frame of `stream` of `bytes` to `peer`, waiting at most `within` for the stream and for the room;
    /// for a message, room for its first frame, of at most `bytes` as all of its frames.
    pub(crate) async fn room(
        &self,
        peer: PeerId,
        stream: Stream,
        bytes: usize,
        traffic: Traffic,
        within: Duration,
    ) -> Result<Room, SendRefused> {
        let deadline = self.shared.clock.monotonic().saturating_add(within);
        match self.shared.reserve(&peer, stream, Terms { class: stream.class, bytes, deadline, traffic }) {
            Asked::Now(room) => Ok(room),
            Asked::Waiting { id, told } => {
                let mut line = Line { place: Some((peer, stream.class, id)), shared: Arc::clone(&self.shared), told };
                Ok(std::future::poll_fn(|context| line.poll(context)).await?)
            }
            Asked::PeersFull => Err(SendRefused::TooManyPeers { bound: self.shared.config.limits.peers }),
            Asked::Shutdown => Err(Lost::never_written(LossReason::Shutdown).into()),
        }
    }

    /// Queues a frame in room taken before.
    pub(crate) fn send_in(&self, room: Room, frame: Frame) -> Settlement {
        let (item, settlement) = self.item(frame);
        room.fill(item);
        settlement
    }

    /// Opens a message in room taken before, to be written `within`. `None` where it is lost already.
    pub(crate) fn begin_in(&self, room: Room, class: Class, within: Duration) -> (Option<Message>, Settlement) {
        let (mut ending, settlement) = Ending::new(class, None, &self.shared.outstanding);
        // Its frames are counted, each by itself.
        ending.leaves_its_lane();
        let deadline = self.shared.clock.monotonic().saturating_add(within);
        (room.begin(deadline, ending), settlement)
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The most bytes that a frame may have.
    pub(crate) fn frame_limit(&self) -> usize {
        self.shared.config.frame_limit
    }

    fn begin(&self, frame: Frame) -> Sending {
        let (length, limit) = (frame.payload.encoded_len(), self.frame_limit());
        if length > limit {
            return Sending(State::Done(Some(Err(FrameTooLarge { length, limit }.into()))));
        }
        let peer = frame.payload.next_hop.to_peer_id();
        let (class, stream) = (frame.class, Stream::of(&frame));
        let (item, settlement) = self.item(frame);
        let bound = self.shared.peer_bound(&item);
        Sending(match self.shared.offer(&peer, stream, item) {
            Asked::Now(()) => State::Done(Some(Ok(settlement))),
            Asked::Waiting { id, told } => {
                let line = Line { place: Some((peer, class, id)), shared: Arc::clone(&self.shared), told };
                State::Waiting { line, settlement: Some(settlement) }
            }
            Asked::PeersFull => State::Done(Some(Err(SendRefused::TooManyPeers { bound }))),
            Asked::Shutdown => State::Done(Some(Err(Lost::never_written(LossReason::Shutdown).into()))),
        })
    }

    fn item(&self, frame: Frame) -> (Item, Settlement) {
        let Frame { payload, class, write_within, inbound } = frame;
        let (ending, settlement) = Ending::new(class, inbound, &self.shared.outstanding);
        let deadline = self.shared.clock.monotonic().saturating_add(write_within);
        let bytes = payload.encoded_len();
        (Item { payload, class, bytes, deadline, settle: Settle::Alone(ending) }, settlement)
    }
}

impl Service<Frame> for Outbound {
    type Response = Settlement;
    type Error = SendRefused;
    type Future = Sending;

    /// Always ready: room belongs to a lane, and which lane is known only with the frame.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendRefused>> {
        Poll::Ready(Ok(()))
    }

    /// Takes the frame's place before it returns; the future is ready once the frame is queued.
    fn call(&mut self, frame: Frame) -> Sending {
        self.begin(frame)
    }
}

/// A frame that is queued, or waits for room. Dropping it takes a waiting frame out of the line.
#[derive(Debug)]
#[must_use = "a frame that waits for room leaves the line when this is dropped"]
pub struct Sending(State);

#[derive(Debug)]
enum State {
    Done(Option<Result<Settlement, SendRefused>>),
    Waiting { line: Line<()>, settlement: Option<Settlement> },
}

impl Future for Sending {
    type Output = Result<Settlement, SendRefused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = match &mut self.0 {
            State::Done(done) => done.take(),
            State::Waiting { line, settlement } => {
                let told = ready!(line.poll(context));
                settlement.take().map(|settlement| told.map(|()| settlement).map_err(SendRefused::from))
            }
        };
        match done {
            Some(done) => Poll::Ready(done),
            None => panic!("polled after it was ready"),
        }
    }
}

/// A place in a lane's line, left when dropped.
#[derive(Debug)]
struct Line<T> {
    place: Option<(PeerId, Class, u64)>,
    shared: Arc<Shared>,
    told: Option<oneshot::Receiver<Result<T, Lost>>>,
}

impl<T> Line<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Lost>> {
        let told = match &mut self.told {
            Some(told) => ready!(Pin::new(told).poll(context)).ok(),
            None => None,
        };
        self.place = None;
        Poll::Ready(told.unwrap_or(Err(Lost::never_written(LossReason::Shutdown))))
    }
}

impl<T> Drop for Line<T> {
    fn drop(&mut self) {
        if let Some((peer, class, id)) = self.place.take() {
            self.shared.cancel(&peer, class, id);
        }
    }
}
