//! The main job, as a real overlay of separate processes on loopback: an origin sends signed transactions of four
//! classes to a destination, half of the classes through a relay and half through a second relay that records what it
//! carries and presents it again, forged and bent in every way, while the destination is killed three times under
//! load and the origin once. Every call of the destination's handler is counted outside of it.
//!
//! ```text
//! cargo run --release --example overlay -- [--transport tcp|quic] [--transactions N] [--kills N] [--json]
//! ```
//!
//! Exit code 1 if anything was dispatched twice, an honest transaction was refused, or more was lost than was in
//! flight at a kill.

#[path = "overlay/destination.rs"]
mod destination;
#[path = "overlay/hostile.rs"]
mod hostile;
#[path = "overlay/node.rs"]
mod node;
#[path = "overlay/origin.rs"]
mod origin;
#[path = "overlay/parent.rs"]
mod parent;
#[path = "overlay/protocol.rs"]
mod protocol;
#[path = "overlay/raw_lane.rs"]
mod raw_lane;
#[path = "overlay/relay.rs"]
mod relay;
#[path = "overlay/report.rs"]
mod report;

use std::{io::BufRead as _, process::ExitCode};

use clap::Parser as _;
use protocol::{NodeConfig, Role, Transport};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, clap::Parser)]
#[command(about = "Signed once, admitted once: across a relay, a replayer and a killed destination")]
struct Options {
    /// What the nodes talk over.
    #[arg(long, value_enum, default_value = "tcp")]
    transport: Transport,
    /// How many transactions the origin sends.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..))]
    transactions: u64,
    /// How often the destination is killed; the origin is killed once if this is not 0.
    #[arg(long, default_value_t = 3)]
    kills: u64,
    /// The clock tolerance, in milliseconds.
    #[arg(long, default_value_t = 100)]
    sigma_ms: u64,
    /// Decides payload sizes and contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of the table, and no progress bar.
    #[arg(long)]
    json: bool,
    /// Run as one of the overlay's nodes, configured by the first line of standard input.
    #[arg(long, hide = true)]
    node: bool,
}

fn main() -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    if options.node {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        let config: NodeConfig = serde_json::from_str(&line)?;
        runtime.block_on(async {
            node::tell_references()?;
            match config.role.clone() {
                Role::Origin(role) => origin::run(&config, role).await,
                Role::Relay { store } => relay::run(&config, &store).await,
                Role::Destination { store } => destination::run(&config, &store).await,
                Role::Hostile(role) => hostile::run(&config, role).await,
            }
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = runtime.block_on(parent::run(&options))?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
