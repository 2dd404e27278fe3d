//! A peer by raw substreams that uses every allowance that a node gives it.

use std::{sync::Arc, time::Duration};

use admit_one::{
    clock::{Clock, ManualClock},
    identity::{DelegationDigest, KeySigner, Slot},
    lanes::DEFAULT_PROTOCOL,
    message::{Class, FRAME_LIMIT, Kind, Payload, TransactionDigest},
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream, identity::Keypair};

use crate::{
    fixture::Sender,
    node::{NAMESPACE, Node},
    support::{Options, Raw, Seen, Transport, in_time},
};

const CONTROL: u8 = 255;
const LANES: u8 = 4;
const ACCEPTED: u8 = 0;
const ALREADY_OPEN: u8 = 2;

pub struct Attacker {
    pub raw: Raw,
    pub signer: KeySigner,
    pub own: Sender,
    clock: Arc<ManualClock>,
    to: PeerId,
    link: u64,
}

/// A channel, with its credit.
pub struct Channel {
    pub lane: u8,
    pub stream: Stream,
    credit: u64,
    written: u64,
    credited: u64,
}

impl Channel {
    /// Writes one frame once there is credit for it.
    pub async fn send(&mut self, frame: &[u8]) {
        while self.written - self.credited == self.credit {
            self.read_credit().await;
        }
        self.written += 1;
        let length = u32::try_from(frame.len()).expect("small").to_be_bytes();
        in_time(self.stream.write_all(&length)).await.expect("writes");
        in_time(self.stream.write_all(frame)).await.expect("writes");
        in_time(self.stream.flush()).await.expect("flushes");
    }

    /// Waits until everything is taken over.
    pub async fn drained(&mut self) {
        while self.credited < self.written {
            self.read_credit().await;
        }
    }

    async fn read_credit(&mut self) {
        let mut count = [0; 8];
        in_time(self.stream.read_exact(&mut count)).await.expect("a credit");
        self.credited = u64::from_be_bytes(count);
    }

    /// How many more frames it may write.
    pub const fn credit(&self) -> u64 {
        self.credit - (self.written - self.credited)
    }

    /// Writes what is no whole frame.
    pub async fn write(&mut self, bytes: &[u8]) {
        in_time(self.stream.write_all(bytes)).await.expect("writes");
        in_time(self.stream.flush()).await.expect("flushes");
    }
}

impl Attacker {
    /// Connected to `node`.
    pub async fn start(node: &Node) -> Self {
        let key = Keypair::generate_ed25519();
        let signer = KeySigner::from_keypair(&key).expect("an Ed25519 key");
        let mut raw = Raw::with(Transport::Tcp, Options { key, ..Options::default() }).await;
        raw.dial(node.peer, node.address.clone());
        let there = node.peer;
        raw.until(|seen| matches!(seen, Seen::Connected(peer) if peer == there).then_some(())).await;
        let own = Sender::with(&node.clock, signer.clone());
        Self { raw, signer, own, clock: node.clock.clone(), to: node.peer, link: 7 }
    }

    fn hello(&self, channel: u8) -> Vec<u8> {
        [[channel, LANES].as_slice(), &self.link.to_be_bytes()].concat()
    }

    /// Opens a substream and writes the hello of `channel`; the answer, unless the node ends it without one.
    pub async fn hail(&mut self, channel: u8) -> Option<(Stream, [u8; 9])> {
        let (hello, mut answer) = (self.hello(channel), [0; 9]);
        let mut stream = in_time(self.raw.streams.open_stream(self.to, DEFAULT_PROTOCOL)).await.ok()?;
        in_time(stream.write_all(&hello)).await.ok()?;
        in_time(stream.flush()).await.ok()?;
        in_time(stream.read_exact(&mut answer)).await.ok()?;
        Some((stream, answer))
    }

    /// Opens a channel, as soon as the node has seen the end of the one before it.
    pub async fn open(&mut self, lane: u8) -> Channel {
        loop {
            let (stream, answer) = self.hail(lane).await.expect("answered");
            if answer[0] == ACCEPTED {
                return Channel { lane, stream, credit: u64::from(answer[8]), written: 0, credited: 0 };
            }
            assert_eq!(answer[0], ALREADY_OPEN);
        }
    }

    pub async fn control(&mut self) -> Stream {
        let (stream, answer) = self.hail(CONTROL).await.expect("answered");
        assert_eq!(answer[0], 3);
        stream
    }

    /// A substream whose hello never ends.
    pub async fn half_hello(&mut self) -> Stream {
        let hello = self.hello(0);
        let mut stream = self.raw.open(self.to).await;
        in_time(stream.write_all(&hello[..5])).await.expect("writes");
        in_time(stream.flush()).await.expect("flushes");
        stream
    }

    /// Someone else's key that delegates to this peer's.
    pub fn delegated(&self) -> Sender {
        let delegation = KeySigner::generate().delegate(self.signer.key(), self.clock.wall() - 1, 1 << 40);
        Sender::with(&self.clock, self.signer.clone().with_delegation(delegation).expect("to this key"))
    }

    /// The least of `lane`, from `sender`.
    pub fn small(node: &Node, sender: &mut Sender, lane: u8) -> Vec<u8> {
        let mut content = sender.content(node.did, b"");
        content.data = data(lane, 0).into();
        encoded(&sender.sign(content, node.did, 3))
    }

    /// A frame of the limit, for the node or to be forwarded to a destination of its own that nobody knows.
    pub fn full(&mut self, node: &Node, lane: u8, forward: bool) -> Vec<u8> {
        let destination = if forward { KeySigner::generate().key() } else { node.did };
        let mut content = self.own.content(destination, b"");
        content.data = data(lane, 0).into();
        let least = encoded(&self.own.sign(content.clone(), node.did, 3)).len();
        content.data = data(lane, FRAME_LIMIT - least).into();
        let frame = encoded(&self.own.sign(content, node.did, 3));
        assert_eq!(frame.len(), FRAME_LIMIT);
        frame
    }

    /// Chunk `index` of a message that never becomes whole.
    pub fn chunk(&mut self, node: &Node, lane: u8, message: u16, index: u32, slice: usize) -> Vec<u8> {
        let mut original = [0; 32];
        original[..2].copy_from_slice(&message.to_be_bytes());
        let mut content = self.own.content(node.did, b"");
        // All chunks of a message are of its sequence.
        content.sequence = u64::from(message);
        content.tx_id.0 = original[..16].try_into().expect("16 bytes");
        content.data = data(lane, slice).into();
        let length = 1_000 * slice as u64;
        content.kind = Kind::Chunk { index, count: 1_000, original: TransactionDigest(original), length };
        encoded(&self.own.sign(content, node.did, 3))
    }

    /// A frame under two delegations that were never carried, made of another.
    pub fn referring(payload: &Payload, number: u32) -> Vec<u8> {
        let mut payload = payload.clone();
        let digest = |place: u8| {
            let mut digest = [place; 32];
            digest[..4].copy_from_slice(&number.to_be_bytes());
            Slot::Digest(DelegationDigest(digest))
        };
        (payload.proof.slot, payload.transaction.proof.slot) = (digest(1), digest(2));
        encoded(&payload)
    }

    /// Takes the four channels that the node opens to this peer, grants them all credit, and takes nothing over.
    pub async fn take_nothing(&mut self, mut opened: libp2p_stream::IncomingStreams) -> Vec<Stream> {
        let mut taken = Vec::new();
        while taken.len() < Class::ALL.len() {
            let (_, mut stream) = in_time(opened.next()).await.expect("the peer runs");
            let mut hello = [0; 10];
            in_time(stream.read_exact(&mut hello)).await.expect("a hello");
            in_time(stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 0, 32])).await.expect("writes");
            in_time(stream.flush()).await.expect("flushes");
            taken.push(stream);
        }
        taken
    }

    pub fn accept(&mut self) -> libp2p_stream::IncomingStreams {
        self.raw.streams.accept(DEFAULT_PROTOCOL).expect("once")
    }

    /// One substream more than there may be: the node closes the connection.
    pub async fn one_too_many(&mut self) {
        let there = self.to;
        // It may be closed before it is opened.
        let _stream = in_time(self.raw.streams.open_stream(there, DEFAULT_PROTOCOL)).await;
        self.raw.until(|seen| matches!(seen, Seen::Disconnected(peer) if peer == there).then_some(())).await;
    }

    /// Lets the node's part go on.
    pub async fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(40), waiting).await.is_ok(), "{what}");
    }
}

/// Data of `lane`'s class, with `more` bytes behind its head.
fn data(lane: u8, more: usize) -> Vec<u8> {
    let head = match Class::from_lane(lane) {
        Some(Class::Application) => [[lane, 1].as_slice(), NAMESPACE].concat(),
        _ => vec![lane],
    };
    let body = vec![lane; more];
    [head, body].concat()
}

pub fn encoded(payload: &Payload) -> Vec<u8> {
    payload.encode(2 * FRAME_LIMIT).expect("fits").to_vec()
}
