//! `store …`: what an operator does to a store whose node is stopped. Opening it takes its lock.

mod clear;
mod inspect;
mod migrate;
mod renew;
mod verify;

use std::sync::Arc;

use admit_one::{StoreUrl, storage::Store};
use indicatif::ProgressBar;

use super::{
    arguments::StoreCommand,
    bench,
    exit::{Exit, Failure},
    output::Done,
    progress, runtime,
};

/// Does what is asked for.
pub(super) fn run(command: &StoreCommand) -> Result<Done, Failure> {
    if let StoreCommand::Bench(asked) = command {
        return bench::run(asked);
    }
    runtime()?.block_on(async {
        match command {
            StoreCommand::Inspect(asked) => inspect::run(asked).await,
            StoreCommand::Verify(asked) => verify::run(asked).await,
            StoreCommand::Clear(asked) => clear::run(asked).await,
            StoreCommand::Renew(asked) => renew::run(asked).await,
            StoreCommand::Migrate(asked) => migrate::run(asked).await,
            StoreCommand::Bench(asked) => bench::run(asked),
        }
    })
}

/// Opens a store that is there: an engine would make one where there is none, and a mistyped path would look like a
/// store that lost everything.
async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, Failure> {
    let path = url.path();
    let nothing = match std::fs::read_dir(path) {
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        // The engine says what is wrong with it.
        Err(_) => false,
    };
    if nothing {
        let message = format!("there is no store at {}: give the path of one", path.display());
        return Err(Failure::new(Exit::CannotOpen, "no_store", message));
    }
    Ok(url.open().await?)
}

/// Moves a bar along with an operator function.
fn follow(bar: &ProgressBar) -> impl FnMut(admit_one::operator::Progress) + Send {
    let bar = bar.clone();
    move |progress| {
        bar.set_message(format!("{:?}", progress.table).to_lowercase());
        bar.set_length(progress.of);
        bar.set_position(progress.done);
    }
}

/// A bar for work whose length shows on the way.
fn bar() -> ProgressBar {
    progress::bar(0, "")
}

/// What an operator function gave, as the document of `--json`.
fn document(value: &impl serde::Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(Exit::Failed, "json", error))
}
