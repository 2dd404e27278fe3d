//! What peers can make this node hold, in bytes: the figures of `docs/memory.md`, from the bounds that the rooms keep.
//!
//! Each function adds up bounds that are enforced elsewhere, and stated sums for the bookkeeping around them. A *link*
//! is one connection with lanes. What libp2p holds for a connection, what the store's engine keeps, and what a handler
//! makes of a message are not in any of them. `tests/memory` holds a node against a peer that uses all of it at once.

use crate::{
    lanes::{self, BUFFER_BYTES, INBOUND_CHANNELS, LANES, READ_BYTES, SWEEP_AT},
    layer::{
        boundary::AdmissionConfig,
        forward::FORWARD_LINKS,
        local::{LINK_WINDOWS, LINKS_MAX},
        reassembly::ReassemblyConfig,
        verify::KNOWN_DELEGATIONS,
    },
    link::references::{CONTROL_FRAMES, INLINE_FRAMES, RECEIVER_BOUND, SENDER_BOUND},
    message::MESSAGE_LIMIT,
};

/// Beside the bytes of an inbound frame that is not taken over: its call's future, its turn, its place in a next hop's
/// lane with an entry of that hop's, and what undoes and writes its admission until that is durable.
pub const FRAME_OVERHEAD: usize = 10 * 1024;

/// Beside its frames, for an inbound channel: its two tasks and the places that its frames wait in.
pub const CHANNEL_OVERHEAD: usize = 48 * 1024;

/// Beside its channels, for an inbound link: its handler, its slot, and how many of its frames were refused, by reason.
pub const LINK_OVERHEAD: usize = 32 * 1024;

/// A delegation in a table of references, and what is remembered of one frame or lease at the sender's end.
pub const REFERENCE: usize = 512;

/// One volatile window of a link and its quota's account.
pub const LINK_WINDOW: usize = 4 * 1024;

/// A stream in memory: its window, its places in the orders, and the spare room of the tables, also while they grow.
pub const STREAM: usize = 6 * 1024;

/// What is remembered of a message in chunks that finished or failed, until it expires.
pub const TOMBSTONE: usize = 512;

/// Beside its bytes, for a frame of this node's own or a forwarded one that waits in a lane outward or is in flight.
pub const QUEUED_OVERHEAD: usize = 3 * 1024;

/// The digest of a delegation that verified, and a bucket of a link's forwarding rate.
const REMEMBERED: usize = 192;

/// One table of references of an inbound link, and what it has to say.
const TABLE: usize = (RECEIVER_BOUND + CONTROL_FRAMES) * REFERENCE;

/// What an inbound link can make this node hold of frames, references and link-local windows: not of messages in chunks
/// ([`messages_of_link`]) nor of streams ([`streams_of_link`]).
pub const fn inbound_link(config: &lanes::Config) -> usize {
    let frame = config.frame_limit + FRAME_OVERHEAD;
    let channel = CHANNEL_OVERHEAD + READ_BYTES + config.frame_limit + config.credit as usize * frame;
    LINK_OVERHEAD + TABLE + LINK_WINDOWS * LINK_WINDOW + INBOUND_CHANNELS * channel
}

/// What all links of one peer can make this node hold of messages in chunks, until they expire.
pub const fn messages_of_link(config: &ReassemblyConfig) -> usize {
    config.link_bytes + config.link_ids * TOMBSTONE
}

/// What the streams of a slot can take at most, the other slots within their floors. They stay when the link goes.
pub const fn streams_of_link(config: &AdmissionConfig) -> usize {
    (config.shares.floor as usize + config.shares.pool as usize) * STREAM
}

/// What a link outward can hold, to a peer that takes nothing: full lanes with one frame more in each, a window in
/// flight, and what is encoded to be written, with the spare room of a buffer that grew.
pub const fn outbound_link(config: &lanes::Config) -> usize {
    let in_lane = config.limits.lane_bytes + config.frame_limit;
    let overhead = (config.limits.lane_items + 1 + config.window as usize) * QUEUED_OVERHEAD;
    let written = 2 * (BUFFER_BYTES + config.frame_limit);
    LINK_OVERHEAD + (SENDER_BOUND + INLINE_FRAMES) * REFERENCE + LANES * (in_lane + overhead + written)
}

/// What all peers share, whoever fills it: delegations that verified, forwarding rates, quotas of link-local streams, and
/// tables of links that are over and not forgotten yet.
pub const fn shared() -> usize {
    (KNOWN_DELEGATIONS + FORWARD_LINKS + 4 * LINKS_MAX * LINK_WINDOWS) * REMEMBERED + SWEEP_AT * LINK_OVERHEAD
}

/// What peers can make a node hold in all, every slot taken by a link that does all it may, with `outbound_links` links
/// outward that take nothing.
pub const fn node(
    lanes: &lanes::Config,
    reassembly: &ReassemblyConfig,
    admission: &AdmissionConfig,
    outbound_links: usize,
) -> usize {
    let limits = &lanes.limits;
    let messages = reassembly.bytes + MESSAGE_LIMIT + reassembly.ids * TOMBSTONE;
    let queued = limits.all_bytes + limits.all_items * QUEUED_OVERHEAD + outbound_links * LANES * lanes.frame_limit;
    let written = LANES * (2 * (BUFFER_BYTES + lanes.frame_limit) + lanes.window as usize * QUEUED_OVERHEAD);
    let outward = queued + outbound_links * (LINK_OVERHEAD + (SENDER_BOUND + INLINE_FRAMES) * REFERENCE + written);
    admission.shares.slots as usize * inbound_link(lanes) + messages + admission.streams * STREAM + outward + shared()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bytes` in KiB, with commas.
    fn kib(bytes: usize) -> String {
        assert_eq!(bytes % 1_024, 0);
        let digits = (bytes / 1_024).to_string();
        let grouped = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect::<Vec<_>>();
        format!("{} KiB", grouped.join(","))
    }

    #[test]
    fn the_document_says_what_the_functions_give_by_default() {
        let lanes = lanes::Config::default();
        let (reassembly, admission) = (ReassemblyConfig::default(), AdmissionConfig::default());
        let document = include_str!("../docs/memory.md");
        for (name, bytes) in [
            ("inbound_link", inbound_link(&lanes)),
            ("messages_of_link", messages_of_link(&reassembly)),
            ("streams_of_link", streams_of_link(&admission)),
            ("outbound_link", outbound_link(&lanes)),
            ("shared", shared()),
        ] {
            let row = format!("| `{name}` | {} |", kib(bytes));
            assert!(document.contains(&row), "{row}");
        }
        let node = node(&lanes, &reassembly, &admission, 328) >> 20;
        assert!(document.contains(&format!("`node`, 328 links each way | {node} MiB |")), "{node}");
    }
}
