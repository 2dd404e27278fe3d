//! Every engine through one conformance suite, and the journal's own refusals, on real files.

mod conformance;
#[cfg(feature = "files")]
mod files;
mod journal;
mod size;

mod memory {
    use std::sync::Arc;

    use admit_one::storage::{Memory, Store};

    use crate::conformance::Engine;

    /// Memory has nothing to open: its one store is opened again by asking it to.
    struct InMemory(Arc<Memory>);

    impl Engine for InMemory {
        const DURABLE: bool = false;

        fn new() -> Self {
            Self(Arc::new(Memory::new()))
        }

        async fn open(&mut self) -> Arc<dyn Store> {
            let store: Arc<dyn Store> = self.0.clone();
            store.reopen().await.expect("memory reopens");
            store
        }
    }

    crate::conformance::suite!(InMemory);
}
