//! What a run came to, as a table and as one JSON object.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{Options, protocol::Transport};

/// At a kill of the destination, each of the four lanes that lead to it has at most a window of 8 in flight: written,
/// and perhaps admitted, without its handler having run to its end (laws L3.3 and L5.5).
const IN_FLIGHT_AT_A_KILL: u64 = 4 * 8;

#[derive(Debug, Serialize)]
pub struct Report {
    pub transport: Transport,
    pub sent: u64,
    pub dispatched: u64,
    pub dispatched_twice: u64,
    /// Dispatched, and never sent by the origin, or with other content than it sent.
    pub forged: u64,
    pub lost: u64,
    /// The most that may be lost: in flight at a kill.
    pub lost_allowed: u64,
    pub refused: BTreeMap<String, u64>,
    pub honest_refused: u64,
    pub honest_refusals: BTreeMap<String, u64>,
    pub attacks: BTreeMap<String, u64>,
    pub settled_as_lost: BTreeMap<String, u64>,
    pub kills: u64,
    /// Sends begun and not settled when the origin was killed.
    pub open_at_origin_kill: u64,
    /// As last heard of each life of the destination.
    pub batches: u64,
    /// References to delegations that a node's link resolved, and did not; bent frames name delegations that never were.
    pub reference_hits: u64,
    pub reference_misses: u64,
    /// Bytes not written, since a link referred.
    pub reference_bytes_saved: u64,
    pub latency_micros: Quantiles,
    pub seconds: f64,
    /// Everything was sent, every kill and every kind of attack happened.
    pub complete: bool,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            sent: 0,
            dispatched: 0,
            dispatched_twice: 0,
            forged: 0,
            lost: 0,
            lost_allowed: 0,
            refused: BTreeMap::new(),
            honest_refused: 0,
            honest_refusals: BTreeMap::new(),
            attacks: BTreeMap::new(),
            settled_as_lost: BTreeMap::new(),
            kills: 0,
            open_at_origin_kill: 0,
            batches: 0,
            reference_hits: 0,
            reference_misses: 0,
            reference_bytes_saved: 0,
            latency_micros: Quantiles::default(),
            seconds: 0.0,
            complete: false,
        }
    }
}

impl Report {
    /// Works out the bound on losses, and whether the run was what was asked for, once everything else is known.
    pub fn conclude(&mut self, options: &Options) {
        self.lost_allowed = options.kills * IN_FLIGHT_AT_A_KILL + self.open_at_origin_kill;
        // A run without its attacks or its kills would show nothing.
        let attacked = |kind: &str| self.attacks.get(kind).is_some_and(|count| *count > 0);
        let refused = |kind: &str| self.refused.get(kind).is_some_and(|count| *count > 0);
        self.complete = self.sent == options.transactions
            && self.kills == options.kills + u64::from(options.kills > 0)
            && ["copy", "fork", "other_network", "swapped_delegation", "flipped_bit", "garbage", "wrong_lane"]
                .into_iter()
                .all(attacked)
            && ["replay", "fork", "origin_signature", "wrong_marker", "wrong_lane"].into_iter().all(refused);
    }

    /// Whether the run was complete and kept what the crate promises.
    pub fn holds(&self) -> bool {
        self.complete
            && self.dispatched_twice == 0
            && self.forged == 0
            && self.honest_refused == 0
            && self.lost <= self.lost_allowed
    }

    fn mean_batch(&self) -> f64 {
        if self.batches == 0 { 0.0 } else { self.dispatched as f64 / self.batches as f64 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<34} {value:>12}");
        row("sent", &self.sent)?;
        row("dispatched", &self.dispatched)?;
        row("dispatched twice", &self.dispatched_twice)?;
        row("dispatched, never sent", &self.forged)?;
        row("kills", &self.kills)?;
        row("every attack and kill happened", &self.complete)?;
        row("lost in a crash", &self.lost)?;
        row("  at most, by law", &self.lost_allowed)?;
        row("honest transactions refused", &self.honest_refused)?;
        for (kind, count) in &self.honest_refusals {
            row(&format!("  {kind}"), count)?;
        }
        row("attacks presented", &self.attacks.values().sum::<u64>())?;
        for (kind, count) in &self.attacks {
            row(&format!("  {kind}"), count)?;
        }
        row("refused", &self.refused.values().sum::<u64>())?;
        for (kind, count) in &self.refused {
            row(&format!("  {kind}"), count)?;
        }
        for (reason, count) in &self.settled_as_lost {
            row(&format!("sends settled as {reason}"), count)?;
        }
        row("references resolved", &self.reference_hits)?;
        row("  missed", &self.reference_misses)?;
        row("  bytes saved", &self.reference_bytes_saved)?;
        row("batches", &self.batches)?;
        row("mean batch size", &format!("{:.1}", self.mean_batch()))?;
        row("admission latency p50, ms", &format!("{:.2}", self.latency_micros.p50 as f64 / 1e3))?;
        row("admission latency p99, ms", &format!("{:.2}", self.latency_micros.p99 as f64 / 1e3))?;
        row("seconds", &format!("{:.1}", self.seconds))
    }
}

/// From a frame's reading to its handler, in microseconds.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
}

#[derive(Debug, Default)]
pub struct Latency(Vec<u64>);

impl Latency {
    pub fn record(&mut self, micros: u64) {
        self.0.push(micros);
    }

    pub fn quantiles(mut self) -> Quantiles {
        self.0.sort_unstable();
        let at = |percent: usize| self.0.get(self.0.len() * percent / 100).copied().unwrap_or(0);
        Quantiles { p50: at(50), p99: at(99) }
    }
}
