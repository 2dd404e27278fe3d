//! What the command takes.

use std::{num::NonZeroUsize, path::PathBuf};

use admit_one::{StoreUrl, clock::DEFAULT_SIGMA_MS, identity::Did, message::FRAME_LIMIT, storage::RecordName};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use super::{bench::Place, exit::CODES};

/// The command of the operator of a node that admits with admit-one.
#[derive(Debug, Parser)]
#[command(name = "admit-one", version, after_help = CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Write one JSON document to standard output instead of text, also where it fails
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at, check, repair, move and measure stores; the node must be stopped
    #[command(subcommand, after_help = CODES)]
    Store(StoreCommand),
    /// Read what nodes send each other
    #[command(subcommand, after_help = CODES)]
    Wire(WireCommand),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page of each command into this directory instead
        #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
        into: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show what a store holds: streams, windows, leases, sizes, and what is unavailable
    #[command(after_help = CODES)]
    Inspect(Inspect),
    /// Read and decode every record; ends with 1 if one is bad
    #[command(after_help = CODES)]
    Verify(Verify),
    /// Remove the record of one stream, after saying what that costs
    #[command(after_help = CODES)]
    Clear(Clear),
    /// Give a store a new birth and new incarnations, after a restore from a backup
    ///
    /// Without it a restored receiver admits again what it had admitted since the backup, and a restored sender signs
    /// sequences again. The price is the messages in flight at that moment.
    #[command(after_help = CODES)]
    Renew(Renew),
    /// Copy every record to another engine or place, and compare; run again after an interruption, it goes on
    #[command(after_help = CODES)]
    Migrate(Migrate),
    /// Measure this machine's durable admission rate and latency
    ///
    /// It makes a fresh store in the directory, admits into it through the same code as a node does, and removes it
    /// again. The flush floor beside it is a bare loop that writes 4 KiB and flushes, in the same directory: no engine
    /// that flushes can answer faster.
    #[command(after_help = CODES)]
    Bench(Bench),
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The store, such as journal:/var/lib/node/store
    #[arg(value_name = "ENGINE:PATH")]
    pub(crate) store: StoreUrl,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The store, such as journal:/var/lib/node/store
    #[arg(value_name = "ENGINE:PATH")]
    pub(crate) store: StoreUrl,
}

#[derive(Debug, Args)]
pub(crate) struct Clear {
    /// The store, such as journal:/var/lib/node/store
    #[arg(value_name = "ENGINE:PATH")]
    pub(crate) store: StoreUrl,
    /// The record, as errors and `store inspect` name it
    #[arg(long, value_name = "NAME")]
    pub(crate) record: RecordName,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The store, such as journal:/var/lib/node/store
    #[arg(value_name = "ENGINE:PATH")]
    pub(crate) store: StoreUrl,
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// The store to copy from
    #[arg(value_name = "FROM")]
    pub(crate) from: StoreUrl,
    /// The store to copy to; made where there is none
    #[arg(value_name = "TO")]
    pub(crate) to: StoreUrl,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The engine and an existing directory for its store, such as journal:/var/lib/node
    #[arg(value_name = "ENGINE:DIRECTORY")]
    pub(crate) place: Place,
    /// How many admissions are in flight at once
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,8,64,512,4096")]
    pub(crate) in_flight: Vec<NonZeroUsize>,
    /// For how many milliseconds each count is measured, and the floor
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) time: u64,
    /// Draw the figures into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WireCommand {
    /// Read one frame field by field, and say which check refuses it
    #[command(after_help = CODES)]
    Decode(Decode),
}

#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// The file that holds the frame; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "hex")]
    pub(crate) file: Option<PathBuf>,
    /// The frame in hex digits; white space between them is passed over
    #[arg(long, value_name = "DIGITS", conflicts_with = "file")]
    pub(crate) hex: Option<String>,
    /// The file holds hex digits, not the frame itself
    #[arg(long, requires = "file")]
    pub(crate) text: bool,
    /// The bytes are what chunks join to: a transaction by itself, without a hop
    #[arg(long)]
    pub(crate) original: bool,
    /// The most bytes that the receiver takes as one frame
    #[arg(long, value_name = "BYTES", default_value_t = FRAME_LIMIT)]
    pub(crate) limit: usize,
    /// Verify signatures as a node of this network does
    #[arg(long, value_name = "NUMBER")]
    pub(crate) network: Option<u64>,
    /// Check that this node is the next hop
    #[arg(long, value_name = "KEY")]
    pub(crate) node: Option<Did>,
    /// Check what has a lifetime at this instant, in milliseconds since the Unix epoch
    #[arg(long, value_name = "MS")]
    pub(crate) at: Option<u64>,
    /// The clock tolerance of these checks, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_SIGMA_MS)]
    pub(crate) sigma: u64,
}
