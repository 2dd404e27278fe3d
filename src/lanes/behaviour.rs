//! The swarm's part: it turns what the swarm and the tasks beside it say into decisions, which `links` makes, and these
//! into what the swarm is to do and report.
//!
//! **Failures.** Whatever has to be dialled, opened or written fails in `links` or in a link's own task. Nothing fails here.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use libp2p::{
    Multiaddr, PeerId,
    core::{ConnectedPoint, Endpoint, transport::PortUse},
    swarm::{
        CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, PeerAddresses, THandler,
        THandlerInEvent, THandlerOutEvent, ToSwarm,
        behaviour::{ConnectionClosed, ConnectionEstablished, DialFailure},
    },
};
use tokio::sync::mpsc;

use super::{
    config::Config,
    event::{Event, Violation},
    handler::{Broken, Handler, Start},
    incoming::{CHANNELS, Incoming},
    links::Peer,
    outbound::Outbound,
    reader::{Receiving, Source},
    report::{REPORTS, Report},
    shared::Shared,
};
use crate::{BoxFuture, clock::Clock, link::LinkId, task::sleep};

/// How many peers' addresses are remembered, the ones used longest ago forgotten first; at most 10 each.
const ADDRESSES_OF: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// The lanes of a node, as a part of its swarm.
///
/// It only decides and negotiates: frames move in tasks beside the swarm, so the behaviour needs a tokio runtime once
/// its swarm runs. It dials peers that frames wait for, at addresses that it learnt from its swarm (as given by
/// `Swarm::add_peer_address`, or reached before) and those that its sibling behaviours know.
#[derive(Debug)]
pub struct Behaviour {
    pub(super) shared: Arc<Shared>,
    receiving: Arc<Receiving>,
    reports: mpsc::Receiver<Report>,
    pub(super) reporter: mpsc::Sender<Report>,
    pub(super) peers: HashMap<PeerId, Peer>,
    addresses: PeerAddresses,
    pub(super) actions: VecDeque<ToSwarm<Event, Start>>,
    pub(super) pauses: FuturesUnordered<BoxFuture<'static, (PeerId, u64)>>,
    pub(super) last_pause: u64,
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
        Handler::new(&self.shared.config, source, Arc::clone(&self.receiving))
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Event(event) => self.emit(event),
            Report::Violation { peer, connection, violation } => self.violated(peer, connection, violation),
            Report::LinkOpened { peer, number } => self.link_opened(peer, number),
            Report::LinkRefused { peer, number } => self.link_refused(peer, number),
            Report::LinkSilent { peer, number } => self.link_silent(peer, number),
            Report::LinkEnded { peer, number, end } => self.link_ended(peer, number, end),
        }
    }

    pub(super) fn violated(&mut self, peer_id: PeerId, connection: ConnectionId, violation: Violation) {
        metrics::counter!("admit_one_lane_violations_total", "violation" => violation.label()).increment(1);
        tracing::debug!(peer = %peer_id, %violation, "a peer broke the protocol");
        self.emit(Event::Violation { peer: peer_id, link: LinkId::of(connection), violation });
        if violation.closes() {
            self.receiving.broken(&peer_id, LinkId::of(connection), violation);
            self.link_broken(&peer_id, connection, violation);
            let connection = CloseConnection::One(connection);
            self.actions.push_back(ToSwarm::CloseConnection { peer_id, connection });
        }
    }

    pub(super) fn emit(&mut self, event: Event) {
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
                self.connected(peer_id, connection_id);
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, remaining_established, .. }) => {
                self.receiving.closed_connection(&peer_id, LinkId::of(connection_id));
                if remaining_established == 0 {
                    self.receiving.disconnected(&peer_id);
                    self.shared.set_connected(&peer_id, false);
                }
                self.disconnected(peer_id, connection_id);
            }
            FromSwarm::DialFailure(DialFailure { peer_id: Some(peer_id), error, connection_id }) => {
                self.dial_failed(peer_id, connection_id, error);
            }
            // What the cache makes of dial failures, forgetting an address for good, is not wanted here: a peer that
            // restarts is at its old address again.
            FromSwarm::NewExternalAddrOfPeer(new) if self.addresses.on_swarm_event(&event) => self.found(new.peer_id),
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
