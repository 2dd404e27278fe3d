//! A tool that runs each call once, as a real server: over HTTP with axum, and over libp2p behind admission, on one store.
//! It shows what single-use authority does with copied, changed and repeated requests, and what a retry gets after the
//! server was killed at each point of a call. The server is a process of its own; kills are real.
//!
//! ```text
//! cargo run --release --features http --example tool_server -- [--json]
//! ```
//!
//! Exit code 1 if any step went otherwise than it must.

#[path = "tool_server/caller.rs"]
mod caller;
#[path = "tool_server/parent.rs"]
mod parent;
#[path = "tool_server/peer.rs"]
mod peer;
#[path = "tool_server/protocol.rs"]
mod protocol;
#[path = "tool_server/report.rs"]
mod report;
#[path = "tool_server/server.rs"]
mod server;
#[path = "tool_server/swarm.rs"]
mod swarm;
#[path = "tool_server/tool.rs"]
mod tool;

use std::{io::BufRead as _, process::ExitCode};

use clap::Parser as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, clap::Parser)]
#[command(about = "Each call runs once: copied, changed, repeated, and across kills")]
struct Options {
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Run as the server, configured by the first line of standard input.
    #[arg(long, hide = true)]
    server: bool,
}

fn main() -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    if options.server {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        runtime.block_on(server::run(serde_json::from_str(&line)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = runtime.block_on(parent::run())?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
