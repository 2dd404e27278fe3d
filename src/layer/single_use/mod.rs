//! Single-use authority: nonces, approvals and operations that act once (law section 12).

mod call;
mod config;
mod consumed;
mod handle;
mod health;
mod mark;
mod operation;
mod refusal;
mod shell;
pub(in crate::layer) mod wire;

pub use self::{
    call::{Call, Commitment, INTENT_MAX, METHOD_MAX, REQUEST_ID_MAX, TENANT_MAX},
    config::{DEFAULT_LIFETIME_S, LIFETIME_MAX_S, Places, SingleUseConfig, SingleUseOpenError},
    consumed::Consumed,
    handle::{Dispatching, Presentation, Recorded, Released, Reservation},
    health::{Recovery, SingleUseHealth},
    mark::{Authority, Capability, Mark, MarkId, MarkKind, MarkState, NothingRevoked},
    operation::{OUTCOME_MAX, Operation, OperationId, Outcome, OutcomeKind},
    refusal::{Capacity, OutcomeUnknown, Refusal, ResumeError, StopNotRecorded},
    shell::SingleUse,
    wire::{INSTANT_MAX, WireError},
};

/// The most marks that one presentation may bring.
pub const MARKS_MAX: usize = 4;

/// The room's fuzz targets.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 1] = [call::FUZZ];
#[cfg(any(test, fuzzing))]
pub(in crate::layer) use call::fuzzing;
