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
//! what was in flight is lost, and nothing is sent again (law L3.8).
//!
//! **A change of next hop.** A stream (origin, destination and class) goes by one next hop at a time. Frames for another
//! one wait, in order, until every earlier frame of the stream has settled, whatever became of it, or until their own
//! time is over; other streams do not wait with them (law L3.9). A frame lost on the old hop after it was written may
//! still be on its way there, and arrive after what follows it. A forwarded frame settles within its delivery bound at the
//! latest, whatever the old hop does: by then it is taken over, or lost though it was written.
//!
//! **How it is made.** The pure cores are `scheduler`, `credit`, `queue`, `routes`, `registry`, `framing` and `backoff`; each
//! says in its head what its state, transitions and failures are. Around them, `behaviour` and `handler` only decide and
//! negotiate, inside the swarm; `writer` (one task a link outward) and `reader` (one task an inbound channel) move the
//! frames beside it. The bytes are in `docs/wire-lanes.md`.
//!
//! **Memory.** Outward at most the common bound of [`Config::common_bound`] and one frame more in each lane, and in
//! each channel of a link a window of frames. What waits for room or for its stream is held by its caller, or counts
//! against the credit that it came in under. Inward, for each connection, at most 8 substreams, each with its credit of
//! frames of the frame limit, one more that is being read, and 16 KiB to read into.
//!
//! **Metrics.** `admit_one_sends_total{class, outcome}`, `admit_one_lane_violations_total{violation}`,
//! `admit_one_lane_oversize_frames_total`, `admit_one_lane_superseded_frames_total`, `admit_one_serve_errors_total`.

mod activity;
mod backoff;
mod behaviour;
mod config;
mod connected;
mod credit;
mod event;
mod framing;
mod handler;
mod incoming;
mod origin;
mod outbound;
mod passage;
mod queue;
mod reader;
mod registry;
mod report;
mod routes;
mod scheduler;
mod settlement;
mod shared;
mod writer;

pub use behaviour::Behaviour;
pub use config::{Config, DEFAULT_CREDIT, DEFAULT_PROTOCOL, OUTBOUND_LANE_WINDOW};
pub use connected::ConnectedRouter;
pub use event::{Direction, Event, LinkEnd, Violation};
pub use handler::Handler;
pub use incoming::{Inbound, Incoming};
pub use origin::{DEFAULT_HOP_BUDGET, Origin, OriginBuilder, OriginError};
pub use outbound::{Outbound, SendRefused, Sending};
pub use settlement::{Fate, LossReason, Lost, Settlement};
