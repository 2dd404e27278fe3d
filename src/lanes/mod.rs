//! Out, and the way in: four class lanes, each pinned to an ordered channel, under credit (law L3).
//!
//! [`Behaviour::new`] gives the three ends of a node's lanes: the [`Behaviour`] for its swarm, the [`Outbound`] handle
//! that frames are sent by, and the [`Incoming`] channels that peers open. [`Origin`] numbers and signs a node's own
//! transactions and sends them by an `Outbound`; a relay's forward layer is given a clone of the same.
//!
//! ```no_run
//! use std::{convert::Infallible, sync::Arc};
//!
//! use admit_one::{clock::SystemClock, lanes, link::Arrival};
//!
//! # async fn example(swarm: impl FnOnce(lanes::Behaviour)) {
//! let (behaviour, outbound, incoming) = lanes::Behaviour::new(lanes::Config::default(), Arc::new(SystemClock::new()));
//! // Into the swarm, alone or composed with others by `#[derive(NetworkBehaviour)]`:
//! swarm(behaviour);
//! // Any `tower::Service<Arrival>`; a node serves an `AdmissionLayer` around its handler.
//! let service = tower::service_fn(|arrival: Arrival| async move {
//!     println!("{} bytes of {}", arrival.bytes.len(), arrival.peer);
//!     Ok::<_, Infallible>(())
//! });
//! tokio::spawn(incoming.serve(service));
//! # drop(outbound);
//! # }
//! ```
//!
//! **A send** is accepted once there is room in its lane, and then resolves exactly once, by its [`Settlement`]: taken
//! over by the peer, or [`Lost`] with the reason and what is known. A peer that is not connected is dialled, and what
//! waits for it is held until it expires (law L13.2). When a link ends, what is queued moves to the next one in order;
//! what was in flight is lost, and nothing is sent again (law L3.8). The receiver admits nothing of a link, or of one of
//! its channels, once the next one is open, so order holds across the move. A link moves to another connection of its
//! peer only when its own closes or does not answer any more; a receiver that is slow is no reason.
//!
//! **Large transactions.** What does not fit one frame is cut into chunks by its [`Origin`] (law L2.8), which are one
//! message of their lane: nothing else of this node's own in that lane stands between them, while other classes, and
//! what is forwarded, go on between them (law L3.6). They settle as one, taken over when each was. When the first of them is
//! lost or expires, the rest is dropped and never written; when a channel ends while some were written and some were
//! not, the message is lost, and one of which none was written moves to the next link whole (law L3.8). Meanwhile the
//! node's own other sends of the lane wait, each at most until its own time is over.
//!
//! **A change of next hop.** A stream (origin, destination and class) goes by one next hop at a time. Frames for another
//! one wait, in order, until every earlier frame of the stream has settled, whatever became of it, or until their own
//! time is over; other streams do not wait with them (law L3.9). A frame lost on the old hop after it was written may
//! still be on its way there, and arrive after what follows it. A forwarded frame settles within its delivery bound at the
//! latest, whatever the old hop does: by then it is taken over, or lost though it was written.
//!
//! **How it is made.** The pure cores are `scheduler`, `credit`, `queue`, `routes`, `registry`, `framing`, `silence`,
//! `refusals` and `backoff`; each says in its head what its state, transitions and failures are; `parts` says how the
//! frames of a message settle as one. Around them, `behaviour`, `links` and `handler` only decide and negotiate, inside
//! the swarm; `writer` (one task a link outward, with `references`) and `reader` (one task an inbound channel, and
//! `control` for what is said back about delegations) move the frames beside it. A large transaction is signed, cut and
//! queued by a task of its own, `chunking`. The bytes are in `docs/wire-lanes.md`.
//!
//! **What a node hears.** [`Event`]s of its behaviour: links opened and closed with the reason, peers that broke the
//! protocol, and a sample of what was refused of a peer's frames (law L13.3). [`Outbound::health`] says what waits.
//!
//! **Memory.** Outward at most the common bound of [`Config::common_bound`] and one frame more in each lane, and in
//! each channel of a link a window of frames. What waits for room or for its stream is held by its caller, or counts
//! against the credit that it came in under. A large transaction is held once, in its encoding, from when it has its
//! turn until its last chunk is signed; until then its caller's data is all there is of it. Of its frames at most 8 are
//! signed or queued at once. Inward, for each connection, at most 10 substreams, each with its credit of frames of the
//! frame limit, one more that is being read, and 16 KiB to read into; and for each link at most 128 delegations and 128
//! control frames. [`memory`](crate::memory) and `docs/memory.md` have the figures.
//!
//! **References.** On a link a delegation is carried once, and named by its digest from then on (law L4); see
//! `docs/wire-lanes.md`. It needs nothing to be set, and an `AdmissionLayer` around the handler at the other end.
//!
//! **Slots.** A node that is given a [`Links`](crate::link::Links) by [`Config::links`], as every node that admits should
//! be, tells it of each connection's first lane to this node. Where there is no slot for it, lanes of that connection are
//! refused by name and the connection stays; its opener keeps what is queued and tries again, with longer and longer
//! pauses. Both sides say so ([`Event::NoSlot`]).
//!
//! **Metrics.** `admit_one_sends_total{class, outcome}`, `admit_one_lane_violations_total{violation}`,
//! `admit_one_lane_oversize_frames_total`, `admit_one_lane_superseded_frames_total`,
//! `admit_one_lane_no_slot_answers_total` (a peer had no slot for a lane), `admit_one_serve_errors_total`;
//! a gauge `admit_one_lane_depth{class}`, how many frames wait to be written to all peers, those in line and set aside
//! included; a histogram `admit_one_lane_credit_wait_seconds{class}`, how long a link's lane had frames and waited for
//! its window or credit, one value each time that a frame ended such a wait. Of references, each counted where it is
//! decided: `admit_one_link_bytes_saved_total` by who sends; `admit_one_link_table_hits_total`,
//! `admit_one_link_table_misses_total`, `admit_one_link_grants_total`, `admit_one_link_disclaims_total` and
//! `admit_one_link_control_dropped_total` (what could not be said) by who receives.
//!
//! **Keep-alive.** A connection is kept while a frame is queued for its link or in flight on it, or came in on it and is
//! not taken over. Otherwise the swarm's idle timeout closes it, open lanes or not. That timeout has to be longer than
//! the way to the peer and back: a receiver that closes at once takes the last credits with it.

mod activity;
mod backoff;
mod behaviour;
mod chunking;
mod config;
mod connected;
mod control;
mod credit;
mod event;
mod framing;
mod handler;
mod health;
mod incoming;
mod links;
mod meters;
#[cfg(test)]
mod model;
mod origin;
mod outbound;
mod parts;
mod passage;
mod queue;
mod reader;
mod references;
mod refusals;
mod registry;
mod report;
mod routes;
mod scheduler;
mod settlement;
mod shared;
mod silence;
mod slot;
mod writer;

pub use behaviour::Behaviour;
pub use config::{Config, DEFAULT_CREDIT, DEFAULT_PROTOCOL, OUTBOUND_LANE_WINDOW};
pub use connected::ConnectedRouter;
pub use event::{Direction, Event, LinkEnd, Violation};
pub use handler::Handler;
pub use health::LanesHealth;
pub use incoming::{Inbound, Incoming};
pub use origin::{DEFAULT_HOP_BUDGET, Origin, OriginBuilder, OriginError};
pub use outbound::{Outbound, SendRefused, Sending};
pub use settlement::{Fate, LossReason, Lost, Settlement};
pub(crate) use {
    handler::INBOUND_CHANNELS, reader::READ_BYTES, registry::SWEEP_AT, scheduler::LANES, writer::BUFFER_BYTES,
};

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) const FUZZ: [crate::fuzzing::Target; 4] = {
    let [hello, frames, replies] = framing::FUZZ;
    [hello, frames, replies, credit::FUZZ]
};
