//! The operator's command: see `admit-one --help`.

#[cfg(not(target_family = "wasm"))]
mod command;

#[cfg(not(target_family = "wasm"))]
fn main() -> std::process::ExitCode {
    command::run(std::env::args_os())
}

#[cfg(target_family = "wasm")]
fn main() {}
