//! Shell completions and manual pages, from the same definitions as the arguments.

use std::path::Path;

use clap_complete::Shell;
use serde_json::json;

use super::{
    exit::{Exit, Failure},
    output::Done,
};

/// The completion script of `shell`.
pub(super) fn completions(mut command: clap::Command, shell: Shell) -> Result<Done, Failure> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    Ok(Done { exit: Exit::Done, json: json!({ "shell": shell.to_string(), "script": text }), text })
}

/// The command's own manual page, or a page of each command in the directory `into`.
pub(super) fn man(command: clap::Command, into: Option<&Path>) -> Result<Done, Failure> {
    if let Some(directory) = into {
        clap_mangen::generate_to(command, directory)
            .map_err(|error| Failure::io("write manual pages into", directory, &error))?;
        let text = format!("wrote the manual pages into {}\n", directory.display());
        return Ok(Done { exit: Exit::Done, json: json!({ "into": directory }), text });
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::new(Exit::Failed, "io", format!("cannot render the manual page: {error}")))?;
    let text = String::from_utf8_lossy(&page).into_owned();
    Ok(Done { exit: Exit::Done, json: json!({ "page": text }), text })
}
