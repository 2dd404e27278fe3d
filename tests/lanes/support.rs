//! Real nodes on 127.0.0.1: a swarm each, with lanes composed with identify and ping.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use admit_one::{
    clock::SystemClock,
    identity::{Did, KeySigner, Proof, Signature, Signer, Slot},
    lanes::{
        Behaviour, Config, DEFAULT_PROTOCOL, Event, Inbound, Incoming, OUTBOUND_LANE_WINDOW, Outbound, Settlement,
    },
    link::{Arrival, Frame},
    message::{Class, Content, FRAME_LIMIT, Incarnation, Kind, Payload, Transaction, TxId},
};
use bytes::Bytes;
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Stream, Swarm, SwarmBuilder, identify,
    identity::Keypair,
    noise, ping,
    swarm::{
        NetworkBehaviour, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
    tcp, yamux,
};
use tokio::sync::{mpsc, oneshot};

/// No test waits this long unless it fails.
pub const FAILURE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Quic,
}

#[derive(NetworkBehaviour)]
pub struct Composed<L: NetworkBehaviour> {
    pub lanes: L,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
}

/// What the node's swarm said that is of interest here.
#[derive(Debug)]
pub enum Seen {
    Lanes(Event),
    Connected(PeerId),
    Disconnected(PeerId),
    Identified(PeerId),
    Pinged(PeerId),
}

enum Command {
    Know(PeerId, Multiaddr),
    Dial(PeerId, Multiaddr),
    Disconnect(PeerId),
    /// Closes the connection that came after this many others, if it is there.
    Close(PeerId, usize),
    Connected(PeerId, oneshot::Sender<bool>),
}

/// A swarm that runs in a task.
pub struct Running {
    pub peer: PeerId,
    pub did: Did,
    pub address: Multiaddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    commands: mpsc::UnboundedSender<Command>,
    task: tokio::task::JoinHandle<()>,
}

/// A node of the crate.
pub struct Node {
    pub running: Running,
    pub outbound: Outbound,
    pub incoming: Option<Incoming>,
}

/// A peer that speaks to nodes by raw substreams, as well or as badly as a test makes it.
pub struct Raw {
    pub running: Running,
    pub streams: libp2p_stream::Control,
}

impl Deref for Node {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

impl Deref for Raw {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

pub struct Options {
    pub config: Config,
    pub key: Keypair,
    pub listen: Option<Multiaddr>,
    pub idle: Duration,
    pub ping_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: Config::default(),
            key: Keypair::generate_ed25519(),
            listen: None,
            idle: Duration::from_secs(600),
            ping_every: Duration::from_secs(15),
        }
    }
}

pub fn swarm<L>(transport: Transport, options: Options, lanes: L) -> Swarm<Composed<L>>
where
    L: NetworkBehaviour,
    Composed<L>: NetworkBehaviour,
{
    let Options { key, idle, ping_every, .. } = options;
    let composed = |key: &Keypair| Composed {
        lanes,
        identify: identify::Behaviour::new(identify::Config::new("/lanes-test/1".into(), key.public())),
        ping: ping::Behaviour::new(ping::Config::new().with_interval(ping_every)),
    };
    let builder = SwarmBuilder::with_existing_identity(key).with_tokio();
    match transport {
        Transport::Tcp => builder
            .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
            .unwrap()
            .with_behaviour(composed)
            .unwrap()
            .with_swarm_config(|config| config.with_idle_connection_timeout(idle))
            .build(),
        Transport::Quic => builder
            .with_quic()
            .with_behaviour(composed)
            .unwrap()
            .with_swarm_config(|config| config.with_idle_connection_timeout(idle))
            .build(),
    }
}

async fn listen<B: NetworkBehaviour>(swarm: &mut Swarm<B>, transport: Transport, at: Option<Multiaddr>) -> Multiaddr {
    let at = at.unwrap_or_else(|| match transport {
        Transport::Tcp => "/ip4/127.0.0.1/tcp/0".parse().unwrap(),
        Transport::Quic => "/ip4/127.0.0.1/udp/0/quic-v1".parse().unwrap(),
    });
    // The port of a node that was just killed is free once the system has seen its sockets go.
    in_time(async {
        while swarm.listen_on(at.clone()).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            return address;
        }
    }
}

impl Running {
    pub async fn start<L>(
        mut swarm: Swarm<Composed<L>>,
        transport: Transport,
        at: Option<Multiaddr>,
        lanes: impl Fn(L::ToSwarm) -> Option<Event> + Send + 'static,
    ) -> Self
    where
        L: NetworkBehaviour<ConnectionHandler: 'static, ToSwarm: std::fmt::Debug> + Send,
        Composed<L>: NetworkBehaviour<ToSwarm = ComposedEvent<L>>,
    {
        let peer = *swarm.local_peer_id();
        let did = Did::try_from(&peer).unwrap();
        let address = listen(&mut swarm, transport, at).await;
        let (commands, mut commanded) = mpsc::unbounded_channel();
        let (seer, seen) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut connections = Vec::new();
            loop {
                tokio::select! {
                    event = swarm.select_next_some() => {
                        match &event {
                            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                                connections.push((*peer_id, *connection_id));
                            }
                            SwarmEvent::ConnectionClosed { connection_id, .. } => {
                                connections.retain(|(_, other)| other != connection_id);
                            }
                            _ => {}
                        }
                        let one = match event {
                            SwarmEvent::Behaviour(ComposedEvent::Lanes(event)) => lanes(event).map(Seen::Lanes),
                            SwarmEvent::Behaviour(ComposedEvent::Identify(identify::Event::Received { peer_id, .. })) => {
                                Some(Seen::Identified(peer_id))
                            }
                            SwarmEvent::Behaviour(ComposedEvent::Ping(ping::Event { peer, result: Ok(_), .. })) => {
                                Some(Seen::Pinged(peer))
                            }
                            SwarmEvent::ConnectionEstablished { peer_id, .. } => Some(Seen::Connected(peer_id)),
                            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                                Some(Seen::Disconnected(peer_id))
                            }
                            _ => None,
                        };
                        one.map(|one| seer.send(one));
                    }
                    command = commanded.recv() => match command {
                        Some(Command::Know(peer, address)) => swarm.add_peer_address(peer, address),
                        Some(Command::Dial(peer, address)) => {
                            let opts =
                                DialOpts::peer_id(peer).condition(PeerCondition::Always).addresses(vec![address]).build();
                            swarm.dial(opts).unwrap();
                        }
                        Some(Command::Disconnect(peer)) => drop(swarm.disconnect_peer_id(peer)),
                        Some(Command::Close(peer, place)) => {
                            let mut of_peer = connections.iter().filter(|(other, _)| *other == peer);
                            of_peer.nth(place).map(|(_, connection)| swarm.close_connection(*connection));
                        }
                        Some(Command::Connected(peer, answer)) => drop(answer.send(swarm.is_connected(&peer))),
                        None => return,
                    },
                }
            }
        });
        Self { peer, did, address, seen, commands, task }
    }

    /// Tells this node where `other` is, and nothing more.
    pub fn know(&self, other: &Running) {
        self.know_at(other.peer, other.address.clone());
    }

    pub fn know_at(&self, peer: PeerId, address: Multiaddr) {
        self.command(Command::Know(peer, address));
    }

    pub fn dial(&self, peer: PeerId, address: Multiaddr) {
        self.command(Command::Dial(peer, address));
    }

    pub fn disconnect(&self, peer: PeerId) {
        self.command(Command::Disconnect(peer));
    }

    /// Closes one of the connections to `peer`: the one that came after `place` others that are still there.
    pub fn close(&self, peer: PeerId, place: usize) {
        self.command(Command::Close(peer, place));
    }

    pub async fn is_connected(&self, peer: PeerId) -> bool {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Connected(peer, answer));
        answered.await.unwrap()
    }

    /// Waits until the swarm says what `of_interest` picks.
    pub async fn until<T>(&mut self, mut of_interest: impl FnMut(Seen) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let seen = self.seen.recv().await.expect("the node runs");
                if let Some(found) = of_interest(seen) {
                    return found;
                }
            }
        };
        tokio::time::timeout(FAILURE, waiting).await.expect("the swarm says it in time")
    }

    /// Kills the node: its swarm is gone, with everything in it.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    fn command(&self, command: Command) {
        assert!(self.commands.send(command).is_ok(), "the node runs");
    }
}

impl Node {
    pub async fn start(transport: Transport) -> Self {
        Self::with(transport, Options::default()).await
    }

    pub async fn with(transport: Transport, options: Options) -> Self {
        let (lanes, outbound, incoming) = Behaviour::new(options.config.clone(), Arc::new(SystemClock::new()));
        let listen = options.listen.clone();
        let running = Running::start(swarm(transport, options, lanes), transport, listen, Some).await;
        Self { running, outbound, incoming: Some(incoming) }
    }

    pub fn incoming(&mut self) -> Incoming {
        self.incoming.take().expect("taken once")
    }

    /// The next channel that a peer opens.
    pub async fn channel(&mut self) -> Inbound {
        in_time(self.incoming.as_mut().expect("not taken").next()).await.expect("the node runs")
    }
}

impl Raw {
    pub async fn start(transport: Transport) -> Self {
        Self::with(transport, Options::default()).await
    }

    pub async fn with(transport: Transport, options: Options) -> Self {
        let behaviour = libp2p_stream::Behaviour::new();
        let streams = behaviour.new_control();
        let listen = options.listen.clone();
        let running = Running::start(swarm(transport, options, behaviour), transport, listen, |()| None).await;
        Self { running, streams }
    }

    /// Connects to `node` and waits until both know.
    pub async fn connect(&mut self, node: &mut Running) {
        self.dial(node.peer, node.address.clone());
        let (here, there) = (self.peer, node.peer);
        self.until(|seen| matches!(seen, Seen::Connected(peer) if peer == there).then_some(())).await;
        node.until(|seen| matches!(seen, Seen::Connected(peer) if peer == here).then_some(())).await;
    }

    pub async fn open(&mut self, peer: PeerId) -> Stream {
        in_time(self.streams.open_stream(peer, DEFAULT_PROTOCOL)).await.expect("the node speaks the protocol")
    }
}

/// A frame to `next_hop` with `sequence` and `length` bytes of data in it. Lanes verify nothing, so it is not signed.
pub fn frame(next_hop: Did, class: Class, sequence: u64, length: usize) -> Frame {
    frame_within(next_hop, class, sequence, length, FAILURE)
}

pub fn frame_within(next_hop: Did, class: Class, sequence: u64, length: usize, write_within: Duration) -> Frame {
    let signer = KeySigner::from_secret(&[7; 32]).unwrap();
    let proof = Proof { slot: signer.slot(), signature: Signature([0; 64]) };
    let content = Content {
        destination: next_hop,
        tx_id: TxId([0; 16]),
        incarnation: Incarnation(1),
        sequence,
        issued_at: 0,
        ttl: 0,
        kind: Kind::Whole,
        data: Bytes::from(vec![class.lane(); length]),
    };
    let transaction = Transaction { content, proof: proof.clone() };
    let payload = Payload { transaction, next_hop, hop_budget: 0, proof };
    Frame { payload, class, write_within, inbound: None }
}

/// A frame of the stream from `origin` to `destination`, by way of `next_hop`.
pub fn frame_by(next_hop: Did, origin: Did, destination: Did, class: Class, sequence: u64) -> Frame {
    let mut frame = frame(next_hop, class, sequence, 10);
    frame.payload.transaction.proof.slot = Slot::Own(origin);
    frame.payload.transaction.content.destination = destination;
    frame
}

/// The class and sequence of a frame that came in.
pub fn read(arrival: &Arrival) -> (Class, u64) {
    let payload = Payload::decode(arrival.bytes.clone(), FRAME_LIMIT).expect("the frame is whole");
    let content = payload.transaction.content;
    (Class::from_lane(content.data[0]).unwrap(), content.sequence)
}

pub async fn in_time<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(FAILURE, work).await.expect("in time")
}

/// So many sends of one lane, of which a window is written and not taken over; it is held.
pub async fn full_window(sender: &Node, receiver: &mut Node, sends: u64) -> (Vec<Settlement>, Vec<Arrival>, Inbound) {
    let mut settlements = Vec::new();
    for sequence in 0..sends {
        settlements.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for _ in 0..OUTBOUND_LANE_WINDOW {
        held.push(in_time(inbound.next()).await.unwrap());
    }
    (settlements, held, inbound)
}
