//! What was measured.

use std::{path::PathBuf, time::Duration};

/// How long operations took, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Times {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) greatest: f64,
}

impl Times {
    /// Of so many operations; zeros of none.
    pub(super) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| {
            let place = (samples.len() * percent).div_ceil(100).saturating_sub(1);
            samples.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self { p50: at(50), p99: at(99), greatest: at(100) }
    }
}

/// A bare loop of writes and flushes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Floor {
    pub(super) flushes: u64,
    pub(super) seconds: f64,
    pub(super) latency: Times,
}

impl Floor {
    pub(super) fn per_second(&self) -> f64 {
        self.flushes as f64 / self.seconds
    }
}

/// Admissions with so many in flight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Admissions {
    pub(super) in_flight: usize,
    pub(super) admitted: u64,
    pub(super) seconds: f64,
    pub(super) batches: u64,
    pub(super) latency: Times,
}

impl Admissions {
    pub(super) fn per_second(&self) -> f64 {
        self.admitted as f64 / self.seconds
    }

    /// How many admissions shared a flush.
    pub(super) fn batch(&self) -> f64 {
        self.admitted as f64 / self.batches.max(1) as f64
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    pub(super) engine: &'static str,
    pub(super) directory: PathBuf,
    pub(super) floor: Floor,
    pub(super) admissions: Vec<Admissions>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_samples_themselves() {
        let samples = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Times::of(samples), Times { p50: 100.0, p99: 198.0, greatest: 200.0 });
        assert_eq!(Times::of(vec![Duration::from_millis(3)]), Times { p50: 3.0, p99: 3.0, greatest: 3.0 });
        assert_eq!(Times::of(Vec::new()), Times::default());
    }
}
