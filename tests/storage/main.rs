//! Every engine through one conformance suite, and each engine's own refusals, on real files.

mod conformance;
mod journal;
mod size;
#[cfg(feature = "sqlite")]
mod sqlite;

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

/// The suite on an engine as an operator names it, with its defaults.
macro_rules! by_url {
    ($name:ident, $engine:literal) => {
        mod $name {
            use std::sync::Arc;

            use admit_one::{StoreUrl, storage::Store};
            use tempfile::TempDir;

            use crate::conformance::Engine;

            struct ByUrl(TempDir);

            impl Engine for ByUrl {
                const DURABLE: bool = true;

                fn new() -> Self {
                    Self(tempfile::tempdir().expect("a directory"))
                }

                async fn open(&mut self) -> Arc<dyn Store> {
                    let url = format!("{}:{}", $engine, self.0.path().join("store").display());
                    let url: StoreUrl = url.parse().expect("an engine of this build");
                    url.open().await.expect("opens")
                }
            }

            crate::conformance::suite!(ByUrl);
        }
    };
}

by_url!(journal_by_url, "journal");
#[cfg(feature = "sqlite")]
by_url!(sqlite_by_url, "sqlite");
