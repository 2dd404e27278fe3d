//! The operator's command: parse, run, write.
//!
//! Every command gives a [`Done`] or a [`Failure`], and only `output` writes them, so that `--json`, exit codes and
//! colours are the same everywhere.

mod arguments;
mod bench;
mod exit;
mod generate;
mod output;
mod progress;
mod store;
mod wire;

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

use self::{
    arguments::{Cli, Command, WireCommand},
    exit::{Exit, Failure},
    output::Done,
};

/// Runs the command that `arguments` ask for, and gives what the process ends with.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> std::process::ExitCode {
    let arguments = arguments.collect::<Vec<_>>();
    let exit = match Cli::try_parse_from(&arguments) {
        Ok(cli) => output::finish(cli.json, dispatch(cli.command)),
        Err(error) => refuse_arguments(&arguments, &error),
    };
    exit.code().into()
}

fn refuse_arguments(arguments: &[OsString], error: &clap::Error) -> Exit {
    let asked_for_text = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if !asked_for_text && arguments.iter().any(|argument| argument == "--json") {
        let text = error.render().to_string();
        let text = text.trim_end().trim_start_matches("error: ");
        return output::finish(true, Err(Failure::new(Exit::Usage, "usage", text)));
    }
    // Help that nobody reads, or an error that nobody hears, changes nothing about the exit code.
    let _ = error.print();
    if asked_for_text { Exit::Done } else { Exit::Usage }
}

fn dispatch(command: Command) -> Result<Done, Failure> {
    match command {
        Command::Store(asked) => store::run(&asked),
        Command::Wire(WireCommand::Decode(asked)) => wire::decode(&asked),
        Command::Completions { shell } => generate::completions(Cli::command(), shell),
        Command::Man { into } => generate::man(Cli::command(), into.as_deref()),
    }
}

/// The runtime that stores are opened on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "io", format!("cannot start threads: {error}")))
}
