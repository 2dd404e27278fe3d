//! The swarm's part: which connection a peer's link is on, when to dial, and what to report.
//!
//! **State.** Per peer with work, a link or a connection: its connections in the order in which they came, the link
//! that writes to it, whether it is being dialled, and the pause before the next attempt.
//!
//! **Transitions.** A peer that gets work and has no link gets one on its oldest connection; without a connection it
//! is dialled (law L13.2). When a link ends, the next begins at once if this one ever opened, else after a pause.
//! Connections count from `ConnectionEstablished`; one that a sibling denies is never seen, and one whose link found
//! it dead is not used again, whether or not its close is ever heard of.
//!
//! **Failures.** A dial that fails is repeated after a pause, doubling, as long as there is work; what waits expires by
//! itself (law L3.7). A peer that does not speak the protocol loses what is queued for it, at once.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered, task::AtomicWaker};
use libp2p::{
    Multiaddr, PeerId,
    core::{ConnectedPoint, Endpoint, transport::PortUse},
    swarm::{
        CloseConnection, ConnectionDenied, ConnectionId, DialError, FromSwarm, NetworkBehaviour, NotifyHandler,
        PeerAddresses, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        behaviour::{ConnectionClosed, ConnectionEstablished, DialFailure},
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::sync::mpsc;

use super::{
    backoff::Backoff,
    config::Config,
    event::{Direction, Event, LinkEnd, Violation},
    handler::{Broken, Handler, Start},
    incoming::{CHANNELS, Incoming},
    outbound::Outbound,
    reader::{Receiving, Source},
    report::{REPORTS, Report, WriterEnd},
    scheduler::LANES,
    settlement::LossReason,
    shared::Shared,
    writer::{Wires, Writer},
};
use crate::{
    BoxFuture,
    clock::Clock,
    link::LinkId,
    task::{sleep, spawn},
};

/// How many peers' addresses are remembered, the ones used longest ago forgotten first; at most 10 each.
const ADDRESSES_OF: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// How many links a peer can begin in a millisecond before their numbers run ahead of the clock.
const NUMBERS_PER_MS: u64 = 1 << 16;

/// The lanes of a node, as a part of its swarm.
///
/// It only decides and negotiates: frames move in tasks beside the swarm, so the behaviour needs a tokio runtime once
/// its swarm runs. It dials peers that frames wait for, at addresses that it learnt from its swarm (as given by
/// `Swarm::add_peer_address`, or reached before) and those that its sibling behaviours know.
#[derive(Debug)]
pub struct Behaviour {
    shared: Arc<Shared>,
    receiving: Arc<Receiving>,
    reports: mpsc::Receiver<Report>,
    reporter: mpsc::Sender<Report>,
    peers: HashMap<PeerId, Peer>,
    addresses: PeerAddresses,
    actions: VecDeque<ToSwarm<Event, Start>>,
    pauses: FuturesUnordered<BoxFuture<'static, (PeerId, u64)>>,
    last_pause: u64,
    deadline: Option<Timer>,
}

/// Set to the earliest deadline of anything queued.
struct Timer {
    at: Duration,
    sleep: BoxFuture<'static, ()>,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.at).finish()
    }
}

#[derive(Debug)]
struct Peer {
    connections: Vec<ConnectionId>,
    link: Option<Link>,
    dialling: Option<ConnectionId>,
    /// The pause that the next attempt waits for.
    pausing: Option<u64>,
    backoff: Backoff,
    last_number: u64,
}

#[derive(Debug)]
struct Link {
    number: u64,
    connection: ConnectionId,
    opened: bool,
}

impl Behaviour {
    /// Lanes with these settings: the behaviour for the swarm, the handle that frames are sent by, and the channels
    /// that peers open.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> (Self, Outbound, Incoming) {
        let (reporter, reports) = mpsc::channel(REPORTS);
        let (incoming, channels) = mpsc::channel(CHANNELS);
        let shared = Arc::new(Shared::new(config.clone(), Arc::clone(&clock)));
        let behaviour = Self {
            shared: Arc::clone(&shared),
            receiving: Arc::new(Receiving::new(config, clock, incoming, reporter.clone())),
            reports,
            reporter,
            peers: HashMap::new(),
            addresses: PeerAddresses::new(ADDRESSES_OF),
            actions: VecDeque::new(),
            pauses: FuturesUnordered::new(),
            last_pause: 0,
            deadline: None,
        };
        (behaviour, Outbound::new(shared), Incoming::new(channels))
    }

    fn handler(&self, peer: PeerId, connection: ConnectionId) -> Handler {
        let source = Source { peer, connection, link: LinkId::of(connection) };
        Handler::new(self.shared.config.protocol.clone(), source, Arc::clone(&self.receiving))
    }

    fn peer(&mut self, peer: PeerId) -> &mut Peer {
        let config = &self.shared.config;
        self.peers.entry(peer).or_insert_with(|| Peer {
            connections: Vec::new(),
            link: None,
            dialling: None,
            pausing: None,
            backoff: Backoff::new(config.first_pause, config.longest_pause),
            last_number: 0,
        })
    }

    /// Gets `peer_id` a link, or a way to one, if there is work for it.
    fn ensure(&mut self, peer_id: PeerId) {
        if !self.shared.has_work(&peer_id) {
            if self.peers.get(&peer_id).is_some_and(Peer::is_unused) {
                self.peers.remove(&peer_id);
            }
            return;
        }
        let peer = self.peer(peer_id);
        if peer.link.is_some() || peer.pausing.is_some() {
            return;
        }
        if let Some(connection) = peer.connections.first().copied() {
            self.start(peer_id, connection);
        } else if peer.dialling.is_none() {
            let opts = DialOpts::peer_id(peer_id).condition(PeerCondition::DisconnectedAndNotDialing).build();
            peer.dialling = Some(opts.connection_id());
            self.actions.push_back(ToSwarm::Dial { opts });
        }
    }

    /// Begins a link to `peer_id` on `connection`.
    fn start(&mut self, peer_id: PeerId, connection: ConnectionId) {
        // Numbers of an earlier run of this node are lower, since it took them from an earlier clock.
        let least = self.shared.clock.wall().saturating_mul(NUMBERS_PER_MS);
        let peer = self.peer(peer_id);
        let number = least.max(peer.last_number.saturating_add(1));
        peer.last_number = number;
        peer.link = Some(Link { number, connection, opened: false });
        let (waker, activity) = (Arc::new(AtomicWaker::new()), Arc::default());
        // One request a channel, and one for the control substream.
        let (requests, requested) = mpsc::channel(LANES + 1);
        let (negotiated, substreams) = mpsc::channel(LANES + 1);
        self.shared.link_started(peer_id, Arc::clone(&waker));
        let wires = Wires { requests, negotiated: substreams, activity: Arc::clone(&activity) };
        let writer = Writer::new(peer_id, number, Arc::clone(&self.shared), waker, self.reporter.clone(), wires);
        spawn(Box::pin(writer.run()));
        self.actions.push_back(ToSwarm::NotifyHandler {
            peer_id,
            handler: NotifyHandler::One(connection),
            event: Start { number, requests: requested, negotiated, activity },
        });
    }

    /// Waits before the next attempt.
    fn pause(&mut self, peer_id: PeerId) {
        self.last_pause += 1;
        let name = self.last_pause;
        let peer = self.peer(peer_id);
        peer.pausing = Some(name);
        let pause = sleep(peer.backoff.failed());
        self.pauses.push(Box::pin(async move {
            pause.await;
            (peer_id, name)
        }));
    }

    fn paused(&mut self, peer_id: PeerId, name: u64) {
        if let Some(peer) = self.peers.get_mut(&peer_id).filter(|peer| peer.pausing == Some(name)) {
            peer.pausing = None;
            self.ensure(peer_id);
        }
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Event(event) => self.emit(event),
            Report::Violation { peer, connection, violation } => self.violated(peer, connection, violation),
            Report::LinkOpened { peer: peer_id, number } => {
                let Some(peer) = self.peers.get_mut(&peer_id) else { return };
                peer.backoff.succeeded();
                if let Some(link) = peer.link.as_mut().filter(|link| link.number == number) {
                    link.opened = true;
                    let link = LinkId::of(link.connection);
                    self.emit(Event::Opened { peer: peer_id, link, direction: Direction::Outward });
                }
            }
            Report::LinkEnded { peer, number, end } => self.link_ended(peer, number, end),
        }
    }

    fn link_ended(&mut self, peer_id: PeerId, number: u64, end: WriterEnd) {
        let Some(peer) = self.peers.get_mut(&peer_id) else { return };
        let Some(Link { connection, opened, .. }) = peer.link.take_if(|link| link.number == number) else { return };
        self.shared.link_ended(&peer_id);
        if matches!(end, WriterEnd::Closed | WriterEnd::Violation(_)) {
            peer.connections.retain(|other| *other != connection);
        }
        if let WriterEnd::Superseded { greatest } = end {
            peer.last_number = peer.last_number.max(greatest);
        }
        let again_at_once = opened && !peer.connections.is_empty() && !matches!(end, WriterEnd::Superseded { .. });
        let link = LinkId::of(connection);
        if opened {
            let reason = match end {
                WriterEnd::Closed => LinkEnd::Closed,
                WriterEnd::Unsupported => LinkEnd::Unsupported,
                WriterEnd::Superseded { .. } => LinkEnd::Superseded,
                WriterEnd::Violation(violation) => LinkEnd::Violation(violation),
                WriterEnd::Shutdown => LinkEnd::Shutdown,
            };
            self.emit(Event::Closed { peer: peer_id, link, direction: Direction::Outward, reason });
        }
        match end {
            WriterEnd::Violation(violation) => self.violated(peer_id, connection, violation),
            WriterEnd::Unsupported => {
                self.shared.drain(&peer_id, LossReason::Unsupported);
                self.emit(Event::Unsupported { peer: peer_id, link });
            }
            WriterEnd::Closed | WriterEnd::Superseded { .. } | WriterEnd::Shutdown => {}
        }
        if !again_at_once && self.shared.has_work(&peer_id) {
            self.pause(peer_id);
        }
        self.ensure(peer_id);
    }

    fn violated(&mut self, peer_id: PeerId, connection: ConnectionId, violation: Violation) {
        metrics::counter!("admit_one_lane_violations_total", "violation" => violation.label()).increment(1);
        tracing::debug!(peer = %peer_id, %violation, "a peer broke the protocol");
        self.emit(Event::Violation { peer: peer_id, link: LinkId::of(connection), violation });
        if violation.closes() {
            let connection = CloseConnection::One(connection);
            self.actions.push_back(ToSwarm::CloseConnection { peer_id, connection });
        }
    }

    fn emit(&mut self, event: Event) {
        self.actions.push_back(ToSwarm::GenerateEvent(event));
    }

    /// Loses what is past its time, and sets the timer to when the next will be.
    fn expire(&mut self, context: &mut Context<'_>) {
        loop {
            let now = self.shared.clock.monotonic();
            let next = self.shared.expire(now);
            if next != self.deadline.as_ref().map(|timer| timer.at) {
                self.deadline = next.map(|at| Timer { at, sleep: sleep(at.saturating_sub(now)) });
            }
            if self.deadline.as_mut().is_none_or(|timer| timer.sleep.as_mut().poll(context).is_pending()) {
                return;
            }
            self.deadline = None;
        }
    }
}

impl Peer {
    fn is_unused(&self) -> bool {
        self.connections.is_empty() && self.link.is_none() && self.dialling.is_none()
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Event;

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        Ok(peer.map(|peer| self.addresses.get(&peer).collect()).unwrap_or_default())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler(peer, connection))
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler(peer, connection))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished { peer_id, connection_id, endpoint, .. }) => {
                if let ConnectedPoint::Dialer { address, .. } = endpoint {
                    self.addresses.add(peer_id, address.clone());
                }
                self.receiving.connected(&peer_id);
                self.shared.set_connected(&peer_id, true);
                let peer = self.peer(peer_id);
                peer.connections.push(connection_id);
                peer.dialling.take_if(|dialling| *dialling == connection_id);
                // A pause was for want of a connection, or to spare one that is not the only one any more.
                peer.pausing = None;
                self.ensure(peer_id);
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, remaining_established, .. }) => {
                if let Some(peer) = self.peers.get_mut(&peer_id) {
                    peer.connections.retain(|other| *other != connection_id);
                }
                if remaining_established == 0 {
                    self.receiving.disconnected(&peer_id);
                    self.shared.set_connected(&peer_id, false);
                }
                self.ensure(peer_id);
            }
            FromSwarm::DialFailure(DialFailure { peer_id: Some(peer_id), error, connection_id }) => {
                let Some(peer) = self.peers.get_mut(&peer_id) else { return };
                if peer.dialling.take_if(|dialling| *dialling == connection_id).is_none() {
                    return;
                }
                tracing::debug!(peer = %peer_id, %error, "a dial failed");
                if let DialError::LocalPeerId { .. } = error {
                    self.shared.drain(&peer_id, LossReason::NotConnected);
                }
                if self.shared.has_work(&peer_id) {
                    self.pause(peer_id);
                }
                self.ensure(peer_id);
            }
            FromSwarm::NewExternalAddrOfPeer(new) => {
                // What the cache makes of dial failures, forgetting an address for good, is not wanted here: a peer
                // that restarts is at its old address again.
                if self.addresses.on_swarm_event(&event)
                    && let Some(peer) = self.peers.get_mut(&new.peer_id).filter(|peer| peer.connections.is_empty())
                {
                    peer.pausing = None;
                    self.ensure(new.peer_id);
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        Broken(violation): THandlerOutEvent<Self>,
    ) {
        self.violated(peer, connection, violation);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Event, THandlerInEvent<Self>>> {
        self.shared.behaviour.register(context.waker());
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Poll::Ready(action);
            }
            if let Poll::Ready(Some(report)) = self.reports.poll_recv(context) {
                self.reported(report);
                continue;
            }
            for peer in self.shared.wanting() {
                self.ensure(peer);
            }
            if let Poll::Ready(Some((peer, name))) = self.pauses.poll_next_unpin(context) {
                self.paused(peer, name);
                continue;
            }
            self.expire(context);
            if self.actions.is_empty() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Behaviour {
    /// Nothing can be sent without the swarm: what is queued is lost, and so is what is in flight.
    fn drop(&mut self) {
        self.shared.close();
    }
}
