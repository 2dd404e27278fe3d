use std::time::Duration;

/// A clock that never goes back, whatever it is read from.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::layer) struct Steady {
    latest: Duration,
}

/// An instant of a [`Steady`], at or after every earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::layer) struct Moment(Duration);

impl Steady {
    /// Takes a monotonic reading, and gives its moment.
    pub(in crate::layer) fn read(&mut self, monotonic: Duration) -> Moment {
        self.latest = self.latest.max(monotonic);
        self.now()
    }

    /// The moment of the last reading.
    pub(in crate::layer) const fn now(&self) -> Moment {
        Moment(self.latest)
    }
}

impl Moment {
    /// The time from `earlier` to this.
    pub(in crate::layer) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
