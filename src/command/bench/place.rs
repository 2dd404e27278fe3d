//! Where to measure: an engine and the directory under which its store is made.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use admit_one::{
    StoreUrl,
    storage::{Store, StoreUrlError},
};

use crate::command::exit::Failure;

/// An engine and a directory, written as a store's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place(StoreUrl);

impl FromStr for Place {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        text.parse().map(Self)
    }
}

impl Place {
    /// The engine's name.
    pub(super) fn engine(&self) -> &'static str {
        self.0.engine()
    }

    /// The directory.
    pub(super) fn directory(&self) -> &Path {
        self.0.path()
    }

    /// Opens a fresh store of the engine in `directory`.
    pub(super) async fn open(&self, directory: PathBuf) -> Result<Arc<dyn Store>, Failure> {
        Ok(self.0.with_path(directory).open().await?)
    }
}
