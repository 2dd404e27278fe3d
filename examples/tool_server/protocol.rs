//! What the parent tells the server, and the server the parent: one line of JSON each.

use std::{io::Write as _, net::SocketAddr, path::PathBuf};

use admit_one::identity::Did;
use libp2p::Multiaddr;
use serde::{Deserialize, Serialize};

/// The clock tolerance, in milliseconds: short, since a new store refuses everything for twice as long.
pub const SIGMA_MS: u64 = 200;

/// How a server is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerConfig {
    pub store: PathBuf,
    /// What the tool does, outside of the store: one line for each time that it ran.
    pub notes: PathBuf,
    /// Whose nonces are trusted.
    pub issuer: Did,
    /// The server's libp2p identity.
    pub secret: [u8; 32],
    /// Where a call stops until the server is killed.
    pub hold: Option<Point>,
}

/// A point of a call, after which the server is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Reserved, and not begun.
    Reserved,
    /// Begun, and nothing done.
    Begun,
    /// Done, and not recorded.
    Effect,
    /// Recorded, and not answered.
    Recorded,
}

/// What a server says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Ready {
        http: SocketAddr,
        libp2p: Multiaddr,
    },
    /// A call has come to where it stops, with the outcome where there is one.
    At {
        point: Point,
        outcome: Option<String>,
    },
}

/// What a libp2p request is answered with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    pub answer: Result<String, Refused>,
    /// Whether nothing ran for it.
    pub replayed: bool,
}

/// Why a call brought no answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refused {
    pub code: String,
    /// Whether what was shown is spent.
    pub consumed: String,
    pub reason: String,
}

/// Tells the parent, before anything else is done.
pub fn tell(event: &Event) {
    let line = serde_json::to_string(event).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Without a parent nobody is told.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Stops here until the process is killed.
pub async fn hold(point: Point, outcome: Option<String>) {
    tell(&Event::At { point, outcome });
    std::future::pending::<()>().await;
}
