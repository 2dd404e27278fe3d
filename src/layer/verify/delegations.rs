use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::identity::DelegationDigest;

/// How many verified delegations are remembered unless told otherwise, about 100 bytes each.
pub(crate) const KNOWN_DELEGATIONS: usize = 4_096;

/// The digests of delegations whose signature held, so that a stream's delegation is verified once and not with
/// every transaction.
///
/// At its bound the one remembered longest is forgotten. Nothing is decided by what is forgotten: it is verified
/// again. So a peer that mints delegations can cost others a signature check, and no more.
#[derive(Debug)]
pub(crate) struct KnownDelegations {
    bound: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    digests: HashSet<DelegationDigest>,
    oldest_first: VecDeque<DelegationDigest>,
}

impl KnownDelegations {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, known: Mutex::default() }
    }

    pub(crate) fn contains(&self, digest: &DelegationDigest) -> bool {
        self.lock().digests.contains(digest)
    }

    pub(crate) fn insert(&self, digest: DelegationDigest) {
        let mut known = self.lock();
        if self.bound == 0 || !known.digests.insert(digest) {
            return;
        }
        known.oldest_first.push_back(digest);
        if known.oldest_first.len() > self.bound
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.digests.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Whatever a panic left behind is a set of digests that verified: at worst one is verified again.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_its_bound_the_one_remembered_longest_is_forgotten() {
        let digest = |byte| DelegationDigest([byte; 32]);
        let known = KnownDelegations::new(3);
        for byte in [1, 2, 3, 2, 4] {
            known.insert(digest(byte));
        }
        assert_eq!([1, 2, 3, 4].map(|byte| known.contains(&digest(byte))), [false, true, true, true]);
        let inside = known.lock();
        assert_eq!((inside.digests.len(), inside.oldest_first.len()), (3, 3));
    }

    #[test]
    fn a_bound_of_zero_remembers_nothing() {
        let known = KnownDelegations::new(0);
        known.insert(DelegationDigest([1; 32]));
        assert!(!known.contains(&DelegationDigest([1; 32])));
    }
}
