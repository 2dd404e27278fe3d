//! One group commit an engine: two over one would each keep tables of their own, and each admit (law L9.8).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::storage::Store;

/// The addresses of the engines that are in use in this process. Bounded by the group commits that are alive.
static IN_USE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// An engine that nothing else in this process can open, as long as this lives. It holds the engine, so that its address
/// is not another's meanwhile.
#[derive(Debug)]
pub(super) struct Claim(Arc<dyn Store>);

impl Claim {
    /// Claims the engine; `None` where it is in use.
    pub(super) fn take(store: Arc<dyn Store>) -> Option<Self> {
        in_use().insert(address(&store)).then(|| Self(store))
    }

    /// The engine.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        in_use().remove(&address(&self.0));
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

fn in_use() -> MutexGuard<'static, BTreeSet<usize>> {
    // Nothing panics between the lock and its end.
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}
