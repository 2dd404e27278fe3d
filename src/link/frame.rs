use std::time::Duration;

use super::CreditGuard;
use crate::message::{Class, Payload};

/// One payload on its way out, not yet encoded: how its slots are written is the link's choice (law L4.1).
#[derive(Debug)]
pub struct Frame {
    /// What to send, under this node's hop proof; `payload.next_hop` is the peer that it goes to.
    pub payload: Payload,
    /// The class, which is its lane. Derived by whoever signed or verified the payload.
    pub class: Class,
    /// How long it may wait, from when it is handed over, until it is written: the rest of its life for an origin's
    /// own, at most the delivery bound for a forwarded one (laws L3.7 and L3.9).
    pub write_within: Duration,
    /// For a forwarded frame, the credit of the inbound copy, given back when this one settles (law L3.4), which is then
    /// no later than `write_within` even where it was written.
    pub inbound: Option<CreditGuard>,
}
