//! What the benchmarks admit: requests to the boundary alone, and frames under both proofs.

use admit_one::{
    clock::WallMs,
    identity::{DEFAULT_DELEGATION_TTL_MS, Did, KeySigner, Proof, Signer as _},
    layer::boundary::{Carrier, Request},
    link::{Arrival, LinkId},
    message::{
        Class, Content, DEFAULT_TTL_MS, FRAME_LIMIT, Incarnation, Kind, NetworkId, Payload, StreamKey, Transaction,
        TransactionDigest, TxId,
    },
};

pub const NETWORK: NetworkId = NetworkId(1);
/// The data of a frame's transaction.
const DATA: usize = 256;
/// Devices' keys stand behind those of accounts.
const DEVICES: usize = 1_000_000;

pub fn directory() -> tempfile::TempDir {
    // Beside the build, not in a temporary file system that may live in memory, where a flush costs nothing.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory in the build's own")
}

fn key(number: usize) -> KeySigner {
    KeySigner::from_secret(blake3::hash(&number.to_be_bytes()).as_bytes()).expect("a key")
}

/// Streams of as many origins, to one destination.
pub fn streams(count: usize) -> Vec<StreamKey> {
    let destination = key(usize::MAX).key();
    let stream = |number| StreamKey { network: NETWORK, origin: key(number).key(), destination, class: Class::E2e };
    (0..count).map(stream).collect()
}

/// Makes the next request of one of so many streams in turn, by a link that nobody announced.
pub struct Requests {
    streams: Vec<StreamKey>,
    next: u64,
    issued_at: WallMs,
}

impl Requests {
    pub fn new(streams: usize, issued_at: WallMs) -> Self {
        Self { streams: self::streams(streams), next: 0, issued_at }
    }

    pub fn next(&mut self) -> Request {
        let count = self.streams.len() as u64;
        let (place, sequence) = ((self.next % count) as usize, self.next / count);
        self.next += 1;
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.next.to_be_bytes());
        Request {
            stream: self.streams[place],
            incarnation: Incarnation::new(self.issued_at, 0),
            sequence,
            digest: TransactionDigest(digest),
            issued_at: self.issued_at,
            ttl: DEFAULT_TTL_MS,
            bytes: 0,
            application: None,
            carrier: Carrier::Link(LinkId::of(0)),
        }
    }
}

/// Frames of fresh transactions, each under both proofs, of every class of so many origins in turn.
pub struct Frames {
    origins: Vec<(KeySigner, Did)>,
    classes: &'static [Class],
    /// Over how many connections they come.
    links: u64,
    hop: KeySigner,
    pub destination: Did,
    next: u64,
    issued_at: WallMs,
}

impl Frames {
    pub fn new(origins: usize, classes: &'static [Class], links: u64, issued_at: WallMs) -> Self {
        let origin = |number| {
            let (account, device) = (key(number), key(number + DEVICES));
            let delegation = account.delegate(device.key(), issued_at, DEFAULT_DELEGATION_TTL_MS);
            (device.with_delegation(delegation).expect("its own key"), account.key())
        };
        let (origins, destination) = ((0..origins).map(origin).collect(), key(usize::MAX).key());
        Self { origins, classes, links, hop: KeySigner::generate(), destination, next: 0, issued_at }
    }

    pub fn next(&mut self) -> Arrival {
        let (origins, classes) = (self.origins.len() as u64, self.classes.len() as u64);
        let (signer, origin) = &self.origins[(self.next % origins) as usize];
        let class = self.classes[(self.next / origins % classes) as usize];
        let sequence = self.next / (origins * classes);
        self.next += 1;
        let mut data = vec![0; DATA];
        data[0] = class.lane();
        let content = Content {
            destination: self.destination,
            tx_id: TxId([0; 16]),
            incarnation: Incarnation::new(self.issued_at, 0),
            sequence,
            issued_at: self.issued_at,
            ttl: DEFAULT_TTL_MS,
            kind: Kind::Whole,
            data: data.into(),
        };
        let digest = content.digest(NETWORK, origin, class);
        let proof = Proof { slot: signer.slot(), signature: signer.sign_now(&digest.0) };
        let signature = self.hop.sign_now(&Payload::hop_digest(&digest, &self.destination, 0));
        let payload = Payload {
            transaction: Transaction { content, proof },
            next_hop: self.destination,
            hop_budget: 0,
            proof: Proof { slot: self.hop.slot(), signature },
        };
        let frame = payload.encode(FRAME_LIMIT).expect("a small frame");
        Arrival::from_parts(self.hop.key().to_peer_id(), LinkId::of(self.next % self.links), frame)
    }
}
