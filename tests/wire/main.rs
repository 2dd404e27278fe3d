//! The wire format of laws L1 and L2, as `docs/wire.md` has it: golden vectors, refusals, and what mutation can do.

mod malleability;
mod mutation;
mod refusals;
mod roundtrip;
mod samples;
mod vectors;
