use std::{fmt, sync::Weak};

use super::shared::Shared;
use crate::{identity::Did, link::Frame, message::Class};

/// Which frames keep their order across a change of next hop (law L3.9). Lanes know no network, so streams of two
/// networks that are alike in all else wait for each other, as do all those whose origin is still a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) origin: Option<Did>,
    pub(crate) destination: Did,
    pub(crate) class: Class,
}

impl Stream {
    pub(crate) fn of(frame: &Frame) -> Self {
        let transaction = &frame.payload.transaction;
        Self { origin: transaction.origin(), destination: transaction.content.destination, class: frame.class }
    }
}

/// A frame's part in its stream, from when it was offered or room was asked for it, until it settles or is given up:
/// dropped then, it lets go those that wait for it. Never dropped under the lock of the queues.
pub(crate) struct Passage {
    stream: Stream,
    name: u64,
    /// Weak, since the queues hold it.
    shared: Weak<Shared>,
}

impl Passage {
    pub(super) const fn new(stream: Stream, name: u64, shared: Weak<Shared>) -> Self {
        Self { stream, name, shared }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // Without the queues nothing waits.
        if let Some(shared) = self.shared.upgrade() {
            shared.leave(&self.stream, self.name);
        }
    }
}

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passage").field("stream", &self.stream).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

    use bytes::Bytes;
    use futures::FutureExt;
    use libp2p::PeerId;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BoxFuture,
        clock::ManualClock,
        identity::{KeySigner, Proof, Signature, Slot},
        lanes::{
            Config, LossReason, Outbound, SendRefused, Sending, Settlement,
            queue::Traffic,
            scheduler::Ready,
            shared::{Item, Picker, Room},
        },
        link::CreditGuard,
        message::{Content, Incarnation, Kind, Payload, Transaction, TxId},
    };

    #[derive(Debug, Clone)]
    enum Step {
        Call { stream: u8, hop: u8, within: u64, forwarded: bool },
        Ask { stream: u8, hop: u8, within: u64 },
        Fill(u8),
        GiveUp(u8),
        Take { hop: u8, most: u8 },
        Settle { choice: u8, lost: bool },
        Expire,
        Drain(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..3_u8, 0..3_u8, 1..60_u64, any::<bool>())
                .prop_map(|(stream, hop, within, forwarded)| Step::Call { stream, hop, within, forwarded }),
            3 => (0..3_u8, 0..3_u8, 1..60_u64).prop_map(|(stream, hop, within)| Step::Ask { stream, hop, within }),
            3 => any::<u8>().prop_map(Step::Fill),
            2 => any::<u8>().prop_map(Step::GiveUp),
            4 => (0..3_u8, 1..4_u8).prop_map(|(hop, most)| Step::Take { hop, most }),
            4 => (any::<u8>(), any::<bool>()).prop_map(|(choice, lost)| Step::Settle { choice, lost }),
            1 => Just(Step::Expire),
            1 => (0..3_u8).prop_map(Step::Drain),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// Where a frame is, as its sender sees it.
    enum Stage {
        Calling(Sending),
        Asking(BoxFuture<'static, Result<Room, SendRefused>>),
        Room(Room),
        Accepted(Settlement),
    }

    /// Takes at most so many, of any lane.
    struct AtMost(u8);

    impl Picker for AtMost {
        fn pick(&mut self, ready: Ready) -> Option<Class> {
            self.0 = self.0.checked_sub(1)?;
            ready.iter().position(|ready| *ready).and_then(|lane| Class::from_lane(u8::try_from(lane).ok()?))
        }

        fn picked(&mut self, _: &Item) {}
    }

    fn did(seed: u8) -> Did {
        KeySigner::from_secret(&[seed; 32]).expect("a key").key()
    }

    fn frame(origin: Did, hop: Did, name: u64, within: u64, forwarded: bool) -> Frame {
        let proof = Proof { slot: Slot::Own(origin), signature: Signature([0; 64]) };
        let content = Content {
            destination: did(9),
            tx_id: TxId([0; 16]),
            incarnation: Incarnation(1),
            sequence: name,
            issued_at: 0,
            ttl: 0,
            kind: Kind::Whole,
            data: Bytes::new(),
        };
        let transaction = Transaction { content, proof: proof.clone() };
        let payload = Payload { transaction, next_hop: hop, hop_budget: 0, proof };
        let inbound = forwarded.then(|| CreditGuard::new(|| {}));
        Frame { payload, class: Class::E2e, write_within: Duration::from_secs(within), inbound }
    }

    /// A small node: what a sender and its links see of the queues. No runtime and no swarm: each future is polled once
    /// a step.
    struct World {
        clock: Arc<ManualClock>,
        shared: Arc<Shared>,
        outbound: Outbound,
        origins: [Did; 3],
        hops: [Did; 3],
        frames: HashMap<u64, Stage>,
        /// Per stream, the unsettled ones in order, each with its hop.
        streams: [Vec<(u64, u8)>; 3],
        in_flight: Vec<Item>,
    }

    impl World {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::new(0));
            let config = Config::default().lane_bound(2, 1 << 20).common_bound(4, 1 << 20).peer_bound(2);
            let shared = Arc::new(Shared::new(config, clock.clone()));
            let outbound = Outbound::new(Arc::clone(&shared));
            let (origins, hops) = ([1, 2, 3].map(did), [4, 5, 6].map(did));
            let (frames, in_flight) = (HashMap::new(), Vec::new());
            Self { clock, shared, outbound, origins, hops, frames, streams: Default::default(), in_flight }
        }

        fn peer(&self, hop: u8) -> PeerId {
            self.hops[usize::from(hop)].to_peer_id()
        }

        fn find(&self, name: u64) -> (u8, u8) {
            let of = |stream: &Vec<(u64, u8)>| stream.iter().find(|frame| frame.0 == name).map(|frame| frame.1);
            (0..3).find_map(|stream| Some((stream, of(&self.streams[usize::from(stream)])?))).expect("unsettled")
        }

        fn pick(&self, choice: u8, of: impl Fn(&Stage) -> bool) -> Option<u64> {
            let mut names: Vec<u64> =
                self.frames.iter().filter(|(_, stage)| of(stage)).map(|(name, _)| *name).collect();
            names.sort_unstable();
            (!names.is_empty()).then(|| names[usize::from(choice) % names.len()])
        }

        fn forget(&mut self, name: u64) {
            self.frames.remove(&name);
            self.streams.iter_mut().for_each(|stream| stream.retain(|frame| frame.0 != name));
        }

        /// Polls everything until nothing moves.
        fn settle(&mut self) {
            let mut names: Vec<u64> = self.frames.keys().copied().collect();
            while let Some(name) = names.pop() {
                let next = match self.frames.get_mut(&name).expect("kept") {
                    Stage::Calling(sending) => once(Pin::new(sending)).map(|sent| sent.map(Stage::Accepted).ok()),
                    Stage::Asking(asking) => once(asking.as_mut()).map(|room| room.map(Stage::Room).ok()),
                    Stage::Room(_) => None,
                    Stage::Accepted(settlement) => once(Pin::new(settlement)).map(|_| None),
                };
                match next {
                    Some(Some(stage)) => {
                        self.frames.insert(name, stage);
                        names.push(name);
                    }
                    Some(None) => self.forget(name),
                    None => {}
                }
            }
        }

        fn step(&mut self, name: u64, step: Step) -> Result<(), TestCaseError> {
            match step {
                Step::Call { stream, hop, within, forwarded } => {
                    let (origin, to) = (self.origins[usize::from(stream)], self.hops[usize::from(hop)]);
                    let sending = self.outbound.send(frame(origin, to, name, within, forwarded));
                    self.streams[usize::from(stream)].push((name, hop));
                    self.frames.insert(name, Stage::Calling(sending));
                }
                Step::Ask { stream, hop, within } => {
                    let (outbound, peer, origin) =
                        (self.outbound.clone(), self.peer(hop), self.origins[usize::from(stream)]);
                    let stream_of = Stream { origin: Some(origin), destination: did(9), class: Class::E2e };
                    let asking = async move {
                        outbound.room(peer, stream_of, 400, Traffic::Own, Duration::from_secs(within)).await
                    };
                    self.streams[usize::from(stream)].push((name, hop));
                    self.frames.insert(name, Stage::Asking(Box::pin(asking)));
                }
                Step::Fill(choice) => {
                    let Some(name) = self.pick(choice, |stage| matches!(stage, Stage::Room(_))) else { return Ok(()) };
                    let (stream, hop) = self.find(name);
                    let frame = frame(self.origins[usize::from(stream)], self.hops[usize::from(hop)], name, 40, false);
                    let Some(Stage::Room(room)) = self.frames.remove(&name) else { return Ok(()) };
                    self.frames.insert(name, Stage::Accepted(self.outbound.send_in(room, frame)));
                }
                Step::GiveUp(choice) => {
                    let waits = |stage: &Stage| !matches!(stage, Stage::Accepted(_));
                    if let Some(name) = self.pick(choice, waits) {
                        self.forget(name);
                    }
                }
                Step::Take { hop, most } => {
                    let mut taken = Vec::new();
                    self.shared.take(&self.peer(hop), &mut AtMost(most), &mut taken);
                    for item in taken {
                        let name = item.payload.transaction.content.sequence;
                        let (stream, by) = self.find(name);
                        prop_assert_eq!(by, hop);
                        let before = self.streams[usize::from(stream)].iter().take_while(|frame| frame.0 != name);
                        for (earlier, by) in before {
                            prop_assert_eq!(*by, hop, "{} overtakes {}", name, earlier);
                        }
                        self.in_flight.push(item);
                    }
                }
                Step::Settle { choice, lost } if !self.in_flight.is_empty() => {
                    let item = self.in_flight.remove(usize::from(choice) % self.in_flight.len());
                    if lost { item.settle.lost(LossReason::LinkClosed) } else { item.settle.taken_over() }
                }
                Step::Settle { .. } => {}
                Step::Expire => {
                    self.clock.advance(Duration::from_secs(20));
                    self.shared.expire(crate::clock::Clock::monotonic(&*self.clock));
                }
                Step::Drain(hop) => self.shared.drain(&self.peer(hop), LossReason::Unsupported),
            }
            Ok(())
        }
    }

    fn once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut future).poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        })
        .now_or_never()
        .flatten()
    }

    proptest! {
        /// By whatever calls, rooms, losses and people who go away: no frame is written while an earlier one of its
        /// stream is unsettled on another hop; while only what is in flight is left to settle, everything that waits
        /// gets there; and nothing of a stream is kept once its frames are gone. One hop in three is past the bound on
        /// peers.
        #[test]
        fn l3_9_no_frame_is_written_while_its_stream_has_an_older_one_on_another_hop(
            steps in steps(),
            drains in any::<bool>(),
        ) {
            let mut world = World::new();
            for (name, step) in (1..).zip(steps) {
                world.step(name, step)?;
                world.settle();
                let streams = world.streams.iter().filter(|stream| !stream.is_empty()).count();
                prop_assert_eq!(world.shared.streams(), streams);
            }
            if drains {
                for round in 0.. {
                    prop_assert!(round < 1_000, "stuck: {:?}", world.streams);
                    if world.frames.is_empty() {
                        break;
                    }
                    world.step(0, Step::Fill(0))?;
                    for hop in 0..3 {
                        world.step(0, Step::Take { hop, most: 9 })?;
                    }
                    world.step(0, Step::Settle { choice: 0, lost: false })?;
                    world.settle();
                }
            }
            world.shared.close();
            world.in_flight.clear();
            world.settle();
            prop_assert!(world.frames.values().all(|stage| matches!(stage, Stage::Room(_))));
            world.frames.clear();
            prop_assert_eq!(world.shared.streams(), 0);
            prop_assert!(world.shared.is_idle());
        }
    }
}
