//! The directory that a measurement makes and removes.

use std::path::{Path, PathBuf};

use crate::command::exit::{Exit, Failure};

/// A fresh directory, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    removed: bool,
}

impl Scratch {
    /// Makes one in `parent`, which is there already and is no store.
    pub(super) fn new(parent: &Path) -> Result<Self, Failure> {
        if !parent.is_dir() {
            let message = format!("{} is not a directory: give an existing one to measure in", parent.display());
            return Err(Failure::new(Exit::CannotOpen, "not_a_directory", message));
        }
        // What a killed run leaves would be a foreign directory in it.
        if parent.join("lock").exists() {
            let message = format!("{} is a store itself: give the directory that it is in", parent.display());
            return Err(Failure::new(Exit::Refused, "store", message));
        }
        // Fails where another run of the same process id left one behind, rather than to measure in it.
        let path = parent.join(format!("admit-one-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| Failure::io("make", &path, &error))?;
        Ok(Self { path, removed: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it and says whether that went well.
    pub(super) fn remove(mut self) -> Result<(), Failure> {
        self.removed = true;
        std::fs::remove_dir_all(&self.path)
            .map_err(|error| Failure { exit: Exit::Failed, ..Failure::io("remove", &self.path, &error) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.removed {
            // On the way out of another failure, which is the one to be told.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
