//! Where to measure: an engine and the directory in which its store is made.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use admit_one::{Journal, JournalConfig, storage::Store};

use crate::command::exit::{Exit, Failure};

/// An engine and a directory, written `ENGINE:DIRECTORY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) engine: &'static str,
    pub(super) directory: PathBuf,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("journal", directory)) if !directory.is_empty() => {
                Ok(Self { engine: "journal", directory: directory.into() })
            }
            _ => Err("give an engine and a directory, such as journal:/var/lib/node".to_owned()),
        }
    }
}

impl Place {
    /// Opens a store of the engine at `path`.
    pub(super) async fn open(&self, path: &Path) -> Result<Arc<dyn Store>, Failure> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Journal::open(path, JournalConfig::default())).await;
        match opened {
            Ok(journal) => Ok(Arc::new(journal?)),
            Err(error) => Err(Failure::new(Exit::Failed, "open", error)),
        }
    }
}
