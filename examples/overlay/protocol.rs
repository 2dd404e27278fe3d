//! What the parent and its nodes say to each other: one JSON object a line, on the nodes' standard streams.

use std::{io::Write as _, path::PathBuf};

use admit_one::{
    identity::{Did, KeySigner},
    message::NetworkId,
};
use libp2p::{Multiaddr, identity::Keypair};
use serde::{Deserialize, Serialize};

/// The overlay's network.
pub const NETWORK: NetworkId = NetworkId(0x006f_7665_726c_6179);

/// The namespace of the example's Application traffic.
pub const NAMESPACE: &str = "overlay";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Tcp,
    Quic,
}

/// The secret half of a key, written to a child's standard input and nowhere else.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn generate() -> Self {
        let keypair = libp2p::identity::ed25519::Keypair::generate();
        let mut secret = [0; 32];
        secret.copy_from_slice(keypair.secret().as_ref());
        Self(secret)
    }

    pub fn signer(&self) -> KeySigner {
        KeySigner::from_secret(&self.0).expect("a drawn key is no weak one")
    }

    pub fn did(&self) -> Did {
        self.signer().key()
    }

    pub fn keypair(&self) -> Keypair {
        Keypair::ed25519_from_bytes(self.0).expect("32 bytes are a secret key")
    }
}

/// A node that others dial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contact {
    pub did: Did,
    pub address: Multiaddr,
}

/// Everything that a node is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeConfig {
    pub transport: Transport,
    pub secret: Secret,
    /// Where it listens; nodes that only dial have none.
    pub listen: Option<Multiaddr>,
    /// Whom it dials.
    pub contacts: Vec<Contact>,
    /// The clock tolerance in milliseconds.
    pub sigma_ms: u64,
    pub role: Role,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Origin(OriginConfig),
    Relay { store: PathBuf },
    Destination { store: PathBuf },
    Hostile(HostileConfig),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OriginConfig {
    pub store: PathBuf,
    /// The account that its devices speak for.
    pub account: Secret,
    /// The first device's key, and the one that takes over half-way.
    pub devices: [Secret; 2],
    pub destination: Did,
    /// Indices below this one are sent, `first` onwards in each class.
    pub transactions: u64,
    pub first: [u64; 4],
    pub seed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostileConfig {
    pub store: PathBuf,
    pub destination: Did,
    /// Under this identity it connects to the destination and attacks.
    pub attacker: Secret,
    /// A stolen copy of the origin's account and of its device key.
    pub account: Secret,
    pub device: Secret,
}

/// What a node tells the parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It listens, and admits what is issued from now on.
    Ready,
    /// The origin is about to send this transaction.
    Sending { index: u64 },
    /// The origin's send is settled: taken over, or lost with this reason.
    Settled { index: u64, lost: Option<String> },
    /// The origin has nothing left to send or settle.
    Finished,
    /// The destination's handler has this transaction, so long after its frame was read.
    Dispatched { index: u64, digest: String, micros: u64 },
    /// The destination refused a transaction that came from this peer.
    Refused { kind: String, peer: String },
    /// What the destination's group commit has written since its start.
    Committed { batches: u64 },
    /// What the node's links did with references to delegations since it last said so.
    References { hits: u64, misses: u64, bytes_saved: u64 },
    /// The attacker has presented another transaction of this kind.
    Attacked { kind: String },
}

/// What the parent tells a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// To the hostile node: this transaction was admitted, and is fair game.
    Admitted { index: u64 },
}

/// Writes one event to the parent, in one system call, before it returns.
pub fn tell(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("events are plain data");
    line.push(b'\n');
    // A parent that went away takes its nodes with it.
    if std::io::stdout().write_all(&line).and_then(|()| std::io::stdout().flush()).is_err() {
        std::process::exit(2);
    }
}
