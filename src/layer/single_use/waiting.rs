//! Who waits for a running operation, within bounds. Volatile: it lives under the ledger's lock, and no failure touches it.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::OperationId;

/// A place among those who wait.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) operation: OperationId,
    number: u64,
    pub(super) ended: oneshot::Receiver<()>,
}

/// Wakes those who waited, once the lock is not held any more.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Woken(Vec<(u64, oneshot::Sender<()>)>);

impl Woken {
    pub(super) fn wake(self) {
        for (_, waiter) in self.0 {
            // One that went away meanwhile needs no waking.
            let _ = waiter.send(());
        }
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    of: HashMap<OperationId, Vec<(u64, oneshot::Sender<()>)>>,
    count: usize,
    next: u64,
    per_operation: usize,
    in_all: usize,
}

impl Waiting {
    pub(super) fn new(per_operation: usize, in_all: usize) -> Self {
        Self { of: HashMap::new(), count: 0, next: 0, per_operation, in_all }
    }

    /// How many wait.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Takes a place.
    ///
    /// # Errors
    /// The bound that is reached.
    pub(super) fn join(&mut self, operation: OperationId) -> Result<Place, usize> {
        if self.count >= self.in_all {
            return Err(self.in_all);
        }
        let waiting = self.of.get(&operation).map_or(0, Vec::len);
        if waiting >= self.per_operation {
            return Err(self.per_operation);
        }
        let (wake, ended) = oneshot::channel();
        self.next += 1;
        self.count += 1;
        self.of.entry(operation).or_default().push((self.next, wake));
        Ok(Place { operation, number: self.next, ended })
    }

    /// Gives a place back, unless its operation ended.
    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(waiting) = self.of.get_mut(&place.operation) {
            let before = waiting.len();
            waiting.retain(|(number, _)| *number != place.number);
            self.count = self.count.saturating_sub(before - waiting.len());
            if waiting.is_empty() {
                self.of.remove(&place.operation);
            }
        }
    }

    /// The operation ended, or is free again: everyone who waits for it looks again.
    pub(super) fn end(&mut self, operation: OperationId) -> Woken {
        let woken = self.of.remove(&operation).unwrap_or_default();
        self.count = self.count.saturating_sub(woken.len());
        Woken(woken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_are_reached_and_places_come_back() {
        let mut waiting = Waiting::new(2, 3);
        let [one, other, third] = [1, 2, 3].map(|id| OperationId([id; 32]));
        let first = waiting.join(one).unwrap();
        let _second = waiting.join(one).unwrap();
        assert_eq!(waiting.join(one).unwrap_err(), 2);
        let mut elsewhere = waiting.join(other).unwrap();
        assert_eq!(waiting.join(third).unwrap_err(), 3);
        waiting.leave(&first);
        waiting.leave(&first);
        assert_eq!(waiting.count(), 2);
        waiting.join(one).unwrap();
        waiting.end(other).wake();
        assert_eq!(elsewhere.ended.try_recv(), Ok(()));
        waiting.leave(&elsewhere);
        assert_eq!(waiting.count(), 2);
        waiting.end(one).wake();
        assert_eq!(waiting.count(), 0);
    }
}
