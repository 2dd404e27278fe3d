//! Which engine a store has and where it is, as one line of a configuration.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use super::{Journal, JournalConfig, OpenError, Store};
#[cfg(feature = "sqlite")]
use super::{Sqlite, SqliteConfig};

/// A store's engine and path, written `ENGINE:PATH`: `journal:/var/lib/node/admitted`, or `journal:admitted` from the
/// working directory. With the features of the same name there are `files:` and `sqlite:` too.
///
/// Everything behind the first colon is the path, as it is; every engine wants a directory of its own there. Parsing
/// touches no file. An engine that this build does not have is refused by [`FromStr`], whatever it is asked for later.
///
/// ```
/// use admit_one::StoreUrl;
///
/// let url: StoreUrl = "journal:/var/lib/node/admitted".parse()?;
/// assert_eq!(url.engine(), "journal");
/// assert_eq!(url.path(), std::path::Path::new("/var/lib/node/admitted"));
/// # Ok::<(), admit_one::storage::StoreUrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreUrl {
    engine: Engine,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Engine {
    Journal,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Engine {
    /// The engines that this build has.
    const ALL: &[Engine] = &[
        Engine::Journal,
        #[cfg(feature = "sqlite")]
        Engine::Sqlite,
    ];

    const fn name(self) -> &'static str {
        match self {
            Engine::Journal => "journal",
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => "sqlite",
        }
    }
}

/// The engines that a feature of the same name adds, so that a build without one can say what is missing.
const WITH_FEATURES: [&str; 1] = ["sqlite"];

impl StoreUrl {
    /// The engines that this build has, as they are written before the colon.
    pub fn engines() -> impl Iterator<Item = &'static str> {
        Engine::ALL.iter().map(|engine| engine.name())
    }

    /// The engine's name, as it is written before the colon.
    pub fn engine(&self) -> &'static str {
        self.engine.name()
    }

    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same engine, somewhere else.
    #[must_use]
    pub fn with_path(&self, path: impl Into<PathBuf>) -> Self {
        Self { engine: self.engine, path: path.into() }
    }

    /// Opens the store with the engine's defaults, or makes one where there is nothing. The work is done on a thread
    /// that may block (law L9.5); it needs a tokio runtime.
    ///
    /// # Errors
    /// [`OpenError`], as the engine says it.
    pub async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        self.open_as(None).await
    }

    /// Opens the store as [`StoreUrl::open`] does, under a budget in bytes of keys and values (law L9.7).
    ///
    /// # Errors
    /// [`OpenError`], as the engine says it; [`OpenError::OverBudget`] where more is held.
    pub async fn open_with_budget(&self, bytes: u64) -> Result<Arc<dyn Store>, OpenError> {
        self.open_as(Some(bytes)).await
    }

    async fn open_as(&self, budget: Option<u64>) -> Result<Arc<dyn Store>, OpenError> {
        let Self { engine, path } = self.clone();
        let opened = tokio::task::spawn_blocking(move || open(engine, path, budget)).await;
        opened.unwrap_or_else(|gone| {
            Err(OpenError::Io { action: "open", path: self.path.clone(), source: std::io::Error::other(gone) })
        })
    }
}

fn open(engine: Engine, path: PathBuf, budget: Option<u64>) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match engine {
        Engine::Journal => {
            let defaults = JournalConfig::default();
            let budget_bytes = budget.unwrap_or(defaults.budget_bytes);
            Arc::new(Journal::open(path, JournalConfig { budget_bytes, ..defaults })?)
        }
        #[cfg(feature = "sqlite")]
        Engine::Sqlite => {
            let mut config = SqliteConfig::new(path);
            config.budget_bytes = budget.unwrap_or(config.budget_bytes);
            Arc::new(Sqlite::open(config)?)
        }
    })
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(url: &str) -> Result<Self, StoreUrlError> {
        let Some((name, path)) = url.split_once(':') else {
            return Err(StoreUrlError::NoEngine { url: url.to_owned(), engines: engines() });
        };
        let Some(engine) = Engine::ALL.iter().find(|engine| engine.name() == name) else {
            let name = name.to_owned();
            return Err(if WITH_FEATURES.contains(&&*name) {
                StoreUrlError::NotBuilt { engine: name, engines: engines() }
            } else {
                StoreUrlError::UnknownEngine { engine: name, engines: engines() }
            });
        };
        if path.is_empty() {
            return Err(StoreUrlError::NoPath { engine: engine.name() });
        }
        if path.starts_with("//") && !path.starts_with("///") {
            return Err(StoreUrlError::Host { url: url.to_owned() });
        }
        Ok(Self { engine: *engine, path: path.into() })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.engine(), self.path.display())
    }
}

fn engines() -> String {
    StoreUrl::engines().collect::<Vec<_>>().join(", ")
}

/// Why a line is not a store's URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// There is no colon, so that nothing says which engine is meant.
    #[error("`{url}` names no engine: write ENGINE:PATH, with one of {engines}")]
    NoEngine {
        /// What was given.
        url: String,
        /// The engines that this build has.
        engines: String,
    },
    /// What stands before the colon is no engine.
    #[error("there is no engine `{engine}`: this build has {engines}")]
    UnknownEngine {
        /// What was given before the colon.
        engine: String,
        /// The engines that this build has.
        engines: String,
    },
    /// The engine's feature is off.
    #[error("this build has no engine `{engine}`, only {engines}: build it with the feature `{engine}`")]
    NotBuilt {
        /// The engine, and the feature that it needs.
        engine: String,
        /// The engines that this build has.
        engines: String,
    },
    /// There is nothing behind the colon.
    #[error("`{engine}:` has no path: write {engine}:/path/to/a/directory")]
    NoPath {
        /// The engine.
        engine: &'static str,
    },
    /// Two slashes announce a host, and every engine is on this machine.
    #[error("`{url}` names a host, and a store is a directory of this machine: write ENGINE:/path")]
    Host {
        /// What was given.
        url: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> StoreUrlError {
        url.parse::<StoreUrl>().expect_err("refused")
    }

    #[test]
    fn every_engine_is_read_and_written_back_as_it_was() {
        for engine in StoreUrl::engines() {
            for path in ["/var/lib/store", "store", "./a b/c:d", "///abs"] {
                let url = format!("{engine}:{path}");
                let read: StoreUrl = url.parse().expect("a URL");
                assert_eq!((read.engine(), read.path(), read.to_string()), (engine, Path::new(path), url));
            }
        }
    }

    #[test]
    fn what_is_no_url_is_refused_by_cause_and_names_what_there_is() {
        assert!(error("/var/lib/store").to_string().contains("journal"));
        let unknown = error("postgres:/x");
        assert!(matches!(&unknown, StoreUrlError::UnknownEngine { engine, .. } if engine == "postgres"), "{unknown}");
        assert!(matches!(error("JOURNAL:/x"), StoreUrlError::UnknownEngine { .. }), "names are lower case");
        assert_eq!(error("journal:"), StoreUrlError::NoPath { engine: "journal" });
        assert!(matches!(error("journal://host/x"), StoreUrlError::Host { .. }));
        assert!(matches!(error(""), StoreUrlError::NoEngine { .. }));
    }

    #[test]
    fn an_engine_whose_feature_is_off_says_which_feature() {
        for engine in WITH_FEATURES.iter().filter(|engine| !StoreUrl::engines().any(|built| built == **engine)) {
            let error = error(&format!("{engine}:/x"));
            assert!(matches!(error, StoreUrlError::NotBuilt { .. }) && error.to_string().contains(engine), "{error}");
        }
    }

    #[tokio::test]
    async fn a_store_opens_by_its_url_and_keeps_to_its_budget() {
        for engine in StoreUrl::engines() {
            let directory = tempfile::tempdir().expect("a directory");
            let url: StoreUrl =
                format!("{engine}:{}", directory.path().join("store").display()).parse().expect("a URL");
            let store = url.open().await.expect("opens");
            let error = url.open().await.expect_err("in use");
            assert!(matches!(error, OpenError::Locked { .. }), "{error}");
            let value = Some(vec![7; 100].into());
            let write = crate::storage::Write { table: crate::storage::Table::Sender, key: "k".into(), value };
            store.commit(crate::storage::Batch { writes: vec![write] }).await.expect("commits");
            drop(store);
            let error = url.open_with_budget(100).await.expect_err("over budget");
            assert!(matches!(error, OpenError::OverBudget { held: 101, budget: 100, .. }), "{engine}: {error}");
            assert!(url.open_with_budget(101).await.expect("opens").durable());
        }
    }
}
