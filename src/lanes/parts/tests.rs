use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::{
    BoxFuture,
    clock::{Clock, ManualClock},
    identity::{Did, KeySigner, Proof, Signature, Slot},
    lanes::{
        Config, Fate, Lost, Outbound, SendRefused, Settlement,
        passage::Stream,
        queue::Traffic,
        scheduler::Ready,
        shared::{Picker, Room},
    },
    message::{Content, Incarnation, Kind, Payload, Transaction, TxId},
};

const CLASS: Class = Class::E2e;

#[derive(Debug, Clone)]
enum Step {
    Ask { message: bool, within: u64 },
    Begin(u8),
    Append,
    Finish,
    GiveUp,
    Drop(u8),
    Take(u8),
    Credit(u8),
    LinkEnds { written: u8 },
    Expire,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 10..90_u64).prop_map(|(message, within)| Step::Ask { message, within }),
        4 => any::<u8>().prop_map(Step::Begin),
        8 => Just(Step::Append),
        3 => Just(Step::Finish),
        1 => Just(Step::GiveUp),
        1 => any::<u8>().prop_map(Step::Drop),
        5 => (1..4_u8).prop_map(Step::Take),
        5 => (1..4_u8).prop_map(Step::Credit),
        1 => (0..4_u8).prop_map(|written| Step::LinkEnds { written }),
        1 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 1..250)
}

struct AtMost(u8);

impl Picker for AtMost {
    fn pick(&mut self, ready: Ready) -> Option<Class> {
        self.0 = self.0.checked_sub(1)?;
        ready[usize::from(CLASS.lane())].then_some(CLASS)
    }

    fn picked(&mut self, _: &Item) {}
}

fn did(seed: u8) -> Did {
    KeySigner::from_secret(&[seed; 32]).expect("a key").key()
}

fn stream() -> Stream {
    Stream { origin: Some(did(1)), destination: did(9), class: CLASS }
}

fn frame(send: u64, within: u64) -> Frame {
    let proof = Proof { slot: Slot::Own(did(1)), signature: Signature([0; 64]) };
    let content = Content {
        destination: did(9),
        tx_id: TxId([0; 16]),
        incarnation: Incarnation(1),
        sequence: send,
        issued_at: 0,
        ttl: 0,
        kind: Kind::Whole,
        data: Bytes::new(),
    };
    let transaction = Transaction { content, proof: proof.clone() };
    let payload = Payload { transaction, next_hop: did(2), hop_budget: 0, proof };
    Frame { payload, class: CLASS, write_within: Duration::from_secs(within), inbound: None }
}

/// What is known of one send: how many frames it has so far, and how each of them went.
#[derive(Debug, Default)]
struct Known {
    frames: usize,
    complete: bool,
    taken: usize,
    written: bool,
    credited: usize,
    given_up: bool,
    outcome: Option<Result<(), Lost>>,
}

struct World {
    clock: Arc<ManualClock>,
    shared: Arc<Shared>,
    outbound: Outbound,
    peer: PeerId,
    asking: BTreeMap<u64, (bool, BoxFuture<'static, Result<Room, SendRefused>>)>,
    rooms: BTreeMap<u64, (bool, Room)>,
    open: Option<(u64, Message)>,
    settlements: BTreeMap<u64, Settlement>,
    known: BTreeMap<u64, Known>,
    in_flight: VecDeque<Item>,
    /// The sends whose frames were taken, in order.
    order: Vec<u64>,
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

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let config = Config::default().lane_bound(3, 1 << 20).common_bound(5, 1 << 20).peer_bound(1);
        let shared = Arc::new(Shared::new(config, clock.clone()));
        Self {
            clock,
            outbound: Outbound::new(Arc::clone(&shared)),
            shared,
            peer: did(2).to_peer_id(),
            asking: BTreeMap::new(),
            rooms: BTreeMap::new(),
            open: None,
            settlements: BTreeMap::new(),
            known: BTreeMap::new(),
            in_flight: VecDeque::new(),
            order: Vec::new(),
        }
    }

    fn known(&mut self, send: u64) -> &mut Known {
        self.known.entry(send).or_default()
    }

    fn step(&mut self, name: u64, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask { message, within } => {
                let (outbound, peer) = (self.outbound.clone(), self.peer);
                let traffic = if message { Traffic::Message } else { Traffic::Own };
                let asking =
                    async move { outbound.room(peer, stream(), 400, traffic, Duration::from_secs(within)).await };
                self.asking.insert(name, (message, Box::pin(asking)));
            }
            Step::Begin(choice) if !self.rooms.is_empty() => {
                let send = *self.rooms.keys().nth(usize::from(choice) % self.rooms.len()).expect("one");
                let Some((message, room)) = self.rooms.remove(&send) else { return Ok(()) };
                let settlement = if message {
                    prop_assert!(self.open.is_none(), "one at a time");
                    let (open, settlement) = self.outbound.begin_in(room, CLASS, Duration::from_secs(60));
                    self.open = open.map(|open| (send, open));
                    settlement
                } else {
                    let known = self.known(send);
                    (known.frames, known.complete) = (1, true);
                    self.outbound.send_in(room, frame(send, 60))
                };
                self.known(send);
                self.settlements.insert(send, settlement);
            }
            Step::Append => {
                if let Some((send, open)) = &self.open
                    && open.free().is_some_and(|free| free > 0)
                {
                    open.append(frame(*send, 60));
                    let send = *send;
                    self.known(send).frames += 1;
                }
            }
            Step::Finish => {
                // A message has a frame.
                if let Some((send, open)) = self.open.take_if(|(send, _)| self.known[send].frames > 0) {
                    self.known(send).complete = true;
                    open.finish();
                }
            }
            Step::GiveUp => {
                if let Some((send, _)) = self.open.take() {
                    self.settlements.remove(&send);
                    self.known(send).given_up = true;
                }
            }
            Step::Drop(choice) => {
                let names: Vec<u64> = self.asking.keys().chain(self.rooms.keys()).copied().collect();
                if !names.is_empty() {
                    let name = names[usize::from(choice) % names.len()];
                    self.asking.remove(&name);
                    self.rooms.remove(&name);
                }
            }
            Step::Take(most) => {
                let mut taken = Vec::new();
                self.shared.take(&self.peer, &mut AtMost(most), &mut taken);
                for item in taken {
                    let send = item.payload.transaction.content.sequence;
                    let known = self.known(send);
                    prop_assert!(known.outcome.is_none() && !known.given_up, "{} was over when it was written", send);
                    known.taken += 1;
                    self.order.push(send);
                    self.in_flight.push_back(item);
                }
            }
            Step::Credit(most) => {
                for _ in 0..most {
                    let Some(item) = self.in_flight.pop_front() else { break };
                    let known = self.known(item.payload.transaction.content.sequence);
                    known.credited += 1;
                    known.written = true;
                    item.settle.taken_over();
                }
            }
            Step::LinkEnds { written } => {
                for (place, mut item) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
                    if place < usize::from(written) {
                        self.known(item.payload.transaction.content.sequence).written = true;
                        item.settle.being_written();
                    }
                    item.settle.lost(LossReason::LinkClosed);
                }
                self.shared.interrupt(&self.peer, |_| true, LossReason::LinkClosed);
                // What goes on over the next link has nothing written on the one that ended.
                self.settle()?;
                for (send, known) in &self.known {
                    let over = known.outcome.is_some() || known.given_up;
                    prop_assert!(over || known.taken == 0, "{} goes on: {:?}", send, known);
                }
            }
            Step::Expire => {
                self.clock.advance(Duration::from_secs(20));
                self.shared.expire(self.clock.monotonic());
            }
            Step::Begin(_) => {}
        }
        self.settle()
    }

    fn settle(&mut self) -> Result<(), TestCaseError> {
        for (name, (message, mut asking)) in std::mem::take(&mut self.asking) {
            match once(asking.as_mut()) {
                Some(Ok(room)) => drop(self.rooms.insert(name, (message, room))),
                Some(Err(_)) => {}
                None => drop(self.asking.insert(name, (message, asking))),
            }
        }
        for (send, mut settlement) in std::mem::take(&mut self.settlements) {
            let Some(outcome) = once(&mut settlement) else {
                self.settlements.insert(send, settlement);
                continue;
            };
            let known = self.known(send);
            prop_assert_eq!(known.outcome.replace(outcome), None, "once");
            match outcome {
                Ok(()) => {
                    prop_assert!(
                        known.complete && known.credited == known.frames,
                        "{} is not taken over: {:?}",
                        send,
                        known
                    );
                }
                Err(lost) => {
                    prop_assert!(!known.complete || known.credited < known.frames, "{} was taken over", send);
                    if lost.fate == Fate::NeverWritten {
                        prop_assert!(!known.written, "{} was written: {:?}", send, known);
                    } else {
                        prop_assert!(known.taken > 0, "nothing of {} left the queue", send);
                    }
                }
            }
            if self.open.as_ref().is_some_and(|(open, _)| *open == send) {
                prop_assert!(self.open.take().is_some_and(|(_, open)| open.free().is_none()), "its maker hears of it");
            }
        }
        Ok(())
    }
}

proptest! {
    /// By whatever rooms, frames, callers who go away, links that end, credits and expiries: a message is taken over when
    /// every frame of it was, and lost otherwise, once; of a lost one no further frame is written; what is known of it
    /// is true; none is written in part on one link and in part on the next; no two interleave; and nothing is left over.
    #[test]
    fn l3_7_a_message_is_taken_over_whole_or_lost_and_settles_once(steps in steps(), drains in any::<bool>()) {
        let mut world = World::new();
        for (name, step) in (1..).zip(steps) {
            world.step(name, step)?;
        }
        if drains {
            for round in 0.. {
                prop_assert!(round < 1_000, "stuck: {:?}", world.known);
                if world.asking.is_empty() && world.rooms.is_empty() && world.settlements.is_empty() {
                    break;
                }
                for step in [Step::Append, Step::Finish, Step::Begin(0), Step::Take(3), Step::Credit(3)] {
                    world.step(0, step)?;
                }
            }
            prop_assert!(world.shared.is_idle());
        }
        let spans = world.order.chunk_by(|one, other| one == other).map(|span| span[0]);
        let mut spans: Vec<u64> = spans.collect();
        let all = spans.len();
        spans.sort_unstable();
        spans.dedup();
        prop_assert_eq!(spans.len(), all, "interleaved: {:?}", world.order);
        world.shared.close();
        world.asking.clear();
        world.rooms.clear();
        drop(world.open.take());
        world.in_flight.clear();
        world.settle()?;
        prop_assert!(world.settlements.is_empty());
        prop_assert!(world.shared.is_idle());
        prop_assert_eq!(world.shared.streams(), 0);
    }
}
