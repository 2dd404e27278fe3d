//! Which connection a peer's link outward is on, and when to dial.
//!
//! **State.** Per peer with work, a link or a connection: its connections, the one to prefer first; the link that writes
//! to it; whether it is being dialled; and the pause before the next attempt.
//!
//! **Transitions.** A peer that gets work and has no link gets one on its oldest connection, which both ends know
//! longest; without a connection it is dialled (law L13.2). When a link ends, the next begins at once if this one ever
//! opened, else after a pause. Connections count from `ConnectionEstablished`; one that a sibling denies is never seen,
//! and one whose link found it dead is not used again, whether or not its close is ever heard of.
//!
//! **A newer connection changes nothing for a link whose own one answers**, since a move costs what is in flight; two
//! nodes that dial each other at once keep both. A link that is silent (see `silence`) moves to another connection, at
//! once or when there is one, and its old one goes to the end of the line. Meanwhile the peer is dialled beside it: the
//! silent connection is others' too, and is not closed.
//!
//! **Failures.** A dial that fails is repeated after a pause, doubling, as long as there is work; what waits expires by
//! itself (law L3.7). A peer that does not speak the protocol loses what is queued for it, at once.

use std::sync::Arc;

use futures::task::AtomicWaker;
use libp2p::{
    PeerId,
    swarm::{
        ConnectionId, DialError, NotifyHandler, ToSwarm,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::sync::mpsc;

use super::{
    backoff::Backoff,
    behaviour::Behaviour,
    event::{Direction, Event, LinkEnd, Violation},
    handler::Start,
    report::WriterEnd,
    scheduler::LANES,
    settlement::LossReason,
    silence::Standing,
    writer::{Wires, Writer},
};
use crate::{
    link::LinkId,
    task::{sleep, spawn},
};

/// How many links a peer can begin in a millisecond before their numbers run ahead of the clock.
const NUMBERS_PER_MS: u64 = 1 << 16;

/// What is on its way between a link's task and the handler at once: a channel each, the control
/// substream, and a question.
const REQUESTS: usize = LANES + 2;

#[derive(Debug)]
pub(super) struct Peer {
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
    broken: Option<Violation>,
    standing: Arc<Standing>,
    waker: Arc<AtomicWaker>,
}

impl Behaviour {
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
    pub(super) fn ensure(&mut self, peer_id: PeerId) {
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
        match peer.connections.first().copied() {
            Some(connection) => self.start(peer_id, connection),
            None => self.dial(peer_id, PeerCondition::DisconnectedAndNotDialing),
        }
    }

    fn dial(&mut self, peer_id: PeerId, condition: PeerCondition) {
        let peer = self.peer(peer_id);
        if peer.dialling.is_none() {
            let opts = DialOpts::peer_id(peer_id).condition(condition).build();
            peer.dialling = Some(opts.connection_id());
            self.actions.push_back(ToSwarm::Dial { opts });
        }
    }

    /// Begins a link to `peer_id` on `connection`.
    fn start(&mut self, peer_id: PeerId, connection: ConnectionId) {
        // Numbers of an earlier run of this node are lower, since it took them from an earlier clock.
        let least = self.shared.clock.wall().saturating_mul(NUMBERS_PER_MS);
        let (waker, activity, standing) = (Arc::new(AtomicWaker::new()), Arc::default(), Arc::<Standing>::default());
        let peer = self.peer(peer_id);
        let number = least.max(peer.last_number.saturating_add(1));
        peer.last_number = number;
        peer.link = Some(Link {
            number,
            connection,
            opened: false,
            broken: None,
            standing: Arc::clone(&standing),
            waker: Arc::clone(&waker),
        });
        let (requests, requested) = mpsc::channel(REQUESTS);
        let (negotiated, substreams) = mpsc::channel(REQUESTS);
        self.shared.link_started(peer_id, Arc::clone(&waker));
        let wires = Wires { requests, negotiated: substreams, activity: Arc::clone(&activity), standing };
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

    pub(super) fn paused(&mut self, peer_id: PeerId, name: u64) {
        if let Some(peer) = self.peers.get_mut(&peer_id).filter(|peer| peer.pausing == Some(name)) {
            peer.pausing = None;
            self.ensure(peer_id);
        }
    }

    pub(super) fn connected(&mut self, peer_id: PeerId, connection: ConnectionId) {
        let peer = self.peer(peer_id);
        peer.connections.push(connection);
        peer.dialling.take_if(|dialling| *dialling == connection);
        // A pause was for want of a connection, or to spare one that is not the only one any more.
        peer.pausing = None;
        if let Some(link) = peer.link.as_ref().filter(|link| link.standing.is_silent()) {
            link.leave();
        }
        self.ensure(peer_id);
    }

    pub(super) fn disconnected(&mut self, peer_id: PeerId, connection: ConnectionId) {
        if let Some(peer) = self.peers.get_mut(&peer_id) {
            peer.connections.retain(|other| *other != connection);
        }
        self.ensure(peer_id);
    }

    pub(super) fn dial_failed(&mut self, peer_id: PeerId, connection: ConnectionId, error: &DialError) {
        let Some(peer) = self.peers.get_mut(&peer_id) else { return };
        if peer.dialling.take_if(|dialling| *dialling == connection).is_none() {
            return;
        }
        tracing::debug!(peer = %peer_id, %error, "a dial failed");
        if peer.link.is_some() {
            // It was for a silent link, which asks again in its own time.
            return;
        }
        if let DialError::LocalPeerId { .. } = error {
            self.shared.drain(&peer_id, LossReason::NotConnected);
        }
        if self.shared.has_work(&peer_id) {
            self.pause(peer_id);
        }
        self.ensure(peer_id);
    }

    /// An address of `peer_id` was found.
    pub(super) fn found(&mut self, peer_id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&peer_id).filter(|peer| peer.connections.is_empty()) {
            peer.pausing = None;
            self.ensure(peer_id);
        }
    }

    pub(super) fn link_opened(&mut self, peer_id: PeerId, number: u64) {
        let Some(peer) = self.peers.get_mut(&peer_id) else { return };
        peer.backoff.succeeded();
        if let Some(link) = peer.link.as_mut().filter(|link| link.number == number) {
            link.opened = true;
            let link = LinkId::of(link.connection);
            self.emit(Event::Opened { peer: peer_id, link, direction: Direction::Outward });
        }
    }

    /// The receiver has no slot for the link now.
    pub(super) fn link_refused(&mut self, peer_id: PeerId, number: u64) {
        let link = self.peers.get(&peer_id).and_then(|peer| peer.link.as_ref());
        if let Some(link) = link.filter(|link| link.number == number) {
            let link = LinkId::of(link.connection);
            self.emit(Event::NoSlot { peer: peer_id, link, direction: Direction::Outward });
        }
    }

    /// The link's connection does not answer.
    pub(super) fn link_silent(&mut self, peer_id: PeerId, number: u64) {
        let Some(peer) = self.peers.get(&peer_id) else { return };
        let Some(link) = peer.link.as_ref().filter(|link| link.number == number) else { return };
        if peer.connections.iter().any(|other| *other != link.connection) {
            link.leave();
        } else {
            self.dial(peer_id, PeerCondition::NotDialing);
        }
    }

    /// The protocol was broken on a connection, which is being closed for it.
    pub(super) fn link_broken(&mut self, peer_id: &PeerId, connection: ConnectionId, violation: Violation) {
        let link = self.peers.get_mut(peer_id).and_then(|peer| peer.link.as_mut());
        if let Some(link) = link.filter(|link| link.connection == connection) {
            link.broken = link.broken.or(Some(violation));
        }
    }

    pub(super) fn link_ended(&mut self, peer_id: PeerId, number: u64, end: WriterEnd) {
        let Some(peer) = self.peers.get_mut(&peer_id) else { return };
        let Some(link) = peer.link.take_if(|link| link.number == number) else { return };
        let Link { connection, opened, broken, .. } = link;
        self.shared.link_ended(&peer_id);
        let known = peer.connections.contains(&connection);
        if matches!(end, WriterEnd::Closed | WriterEnd::Violation(_) | WriterEnd::Silent) {
            peer.connections.retain(|other| *other != connection);
        }
        if let WriterEnd::Superseded { greatest } = end {
            peer.last_number = peer.last_number.max(greatest);
        }
        let sound = !peer.connections.is_empty() && !matches!(end, WriterEnd::Superseded { .. });
        let again_at_once = sound && (opened || end == WriterEnd::Silent);
        if end == WriterEnd::Silent && known {
            // Not forgotten: it may be the last one.
            peer.connections.push(connection);
        }
        let link = LinkId::of(connection);
        if opened {
            let reason = match end {
                WriterEnd::Closed => broken.map_or(LinkEnd::Closed, LinkEnd::Violation),
                WriterEnd::Unsupported => LinkEnd::Unsupported,
                WriterEnd::Superseded { .. } => LinkEnd::Superseded,
                WriterEnd::Violation(violation) => LinkEnd::Violation(violation),
                WriterEnd::Silent => LinkEnd::Silent,
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
            WriterEnd::Closed | WriterEnd::Superseded { .. } | WriterEnd::Silent | WriterEnd::Shutdown => {}
        }
        if !again_at_once && self.shared.has_work(&peer_id) {
            self.pause(peer_id);
        }
        self.ensure(peer_id);
    }
}

impl Peer {
    fn is_unused(&self) -> bool {
        self.connections.is_empty() && self.link.is_none() && self.dialling.is_none()
    }
}

impl Link {
    fn leave(&self) {
        self.standing.leave();
        self.waker.wake();
    }
}
