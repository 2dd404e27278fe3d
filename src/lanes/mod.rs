//! Out: four class lanes, each pinned to an ordered channel, under credit.

mod activity;
mod backoff;
mod behaviour;
mod config;
mod credit;
mod event;
mod framing;
mod handler;
mod incoming;
mod origin;
mod outbound;
mod queue;
mod reader;
mod registry;
mod report;
mod scheduler;
mod settlement;
mod shared;
mod writer;

pub use behaviour::Behaviour;
pub use config::{Config, DEFAULT_CREDIT, DEFAULT_PROTOCOL, OUTBOUND_LANE_WINDOW};
pub use event::{Direction, Event, LinkEnd, Violation};
pub use handler::Handler;
pub use incoming::{Inbound, Incoming};
pub use origin::{DEFAULT_HOP_BUDGET, Origin, OriginBuilder, OriginError};
pub use outbound::{Outbound, SendRefused, Sending};
pub use settlement::{Fate, LossReason, Lost, Settlement};
