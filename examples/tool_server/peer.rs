//! Who calls over libp2p: the subject's own node, whose transactions the server admits.

use std::{path::Path, sync::Arc};

use admit_one::{
    CommitConfig, Did, GroupCommit, Journal, JournalConfig, KeySigner, LeaseConfig, Leases, SystemClock,
    clock::Clock,
    identity::{Proof, Signer as _},
    layer::credential::Envelope,
    message::{Class, Content, DEFAULT_TTL_MS, FRAME_LIMIT, Kind, Payload, StreamKey, Transaction, TxId},
};
use bytes::Bytes;
use futures::StreamExt as _;
use libp2p::{
    Multiaddr, Swarm,
    request_response::{Event, Message},
    swarm::SwarmEvent,
};

use crate::{
    Failure,
    protocol::Reply,
    swarm::{NETWORK, Protocol, swarm},
};

pub struct Peer {
    signer: KeySigner,
    leases: Leases,
    swarm: Swarm<Protocol>,
    server: Did,
}

impl Peer {
    /// A node with this key, and a store of its own for the sequences that it signs.
    pub async fn start(secret: &[u8; 32], store: &Path, server: Did, address: Multiaddr) -> Result<Self, Failure> {
        let journal = Arc::new(Journal::open(store, JournalConfig::default())?);
        let commit = GroupCommit::open(journal, CommitConfig::default()).await?;
        let leases = Leases::open(&commit, Arc::new(SystemClock::new()), LeaseConfig::default())?;
        let mut swarm = swarm(secret)?;
        swarm.add_peer_address(server.to_peer_id(), address);
        Ok(Self { signer: KeySigner::from_secret(secret)?, leases, swarm, server })
    }

    /// A transaction that carries the envelope, under the next sequence that a durable lease covers.
    pub async fn sign(&self, envelope: &Envelope) -> Result<Bytes, Failure> {
        let (origin, destination, class, ttl) = (self.signer.key(), self.server, Class::E2e, DEFAULT_TTL_MS);
        let stream = StreamKey { network: NETWORK, origin, destination, class };
        let reserved = self.leases.reserve(&stream, ttl).await??;
        let (incarnation, sequence, issued_at) = (reserved.incarnation, reserved.sequence, SystemClock::new().wall());
        let data = [&[class.lane()], envelope.encode()?.as_slice()].concat().into();
        let (kind, tx_id) = (Kind::Whole, TxId::random());
        let content = Content { destination, tx_id, incarnation, sequence, issued_at, ttl, kind, data };
        let digest = content.digest(NETWORK, &origin, class);
        let prove = |message| Proof { slot: self.signer.slot(), signature: self.signer.sign_now(&message) };
        let (transaction, proof) = (prove(digest.0), prove(Payload::hop_digest(&digest, &destination, 0)));
        let transaction = Transaction { content, proof: transaction };
        Ok(Payload { transaction, next_hop: destination, hop_budget: 0, proof }.encode(FRAME_LIMIT)?)
    }

    /// Sends a frame, and waits for what became of it.
    pub async fn ask(&mut self, frame: Bytes) -> Result<Reply, Failure> {
        self.swarm.behaviour_mut().send_request(&self.server.to_peer_id(), frame);
        loop {
            let SwarmEvent::Behaviour(event) = self.swarm.select_next_some().await else { continue };
            match event {
                Event::Message { message: Message::Response { response, .. }, .. } => return Ok(response),
                Event::OutboundFailure { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
    }
}
