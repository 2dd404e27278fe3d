//! What a crash leaves of an engine of files, at every operation and in every state that the model of
//! [`enumerate`](super::directory::enumerate) allows: what was released is there, each record is whole at its old or its
//! new value, and the store opens. `docs/crashes.md` tells the figures.

pub(crate) mod cuts;
pub(crate) mod engine;
mod laws;
mod model;
mod run;

pub(crate) use super::{
    directory::{
        enumerate::Medium,
        simulated::{Image, Model, Operation, Simulated},
    },
    journal::simulated::OnJournal,
};
