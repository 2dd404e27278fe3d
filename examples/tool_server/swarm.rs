//! The server's libp2p side: every request is an arrival, admitted once, and what the tool says is its response.

use std::io;

use admit_one::{
    NetworkId,
    layer::{AdmissionError, Outcome, credential::CallError, operation::Answer},
    link::{Arrival, LinkId},
};
use bytes::Bytes;
use futures::StreamExt as _;
use libp2p::{
    Multiaddr, StreamProtocol, Swarm, SwarmBuilder,
    identity::Keypair,
    noise,
    request_response::{Config, Event, Message, ProtocolSupport, cbor},
    swarm::SwarmEvent,
    tcp, yamux,
};
use tower::Service;

use crate::{
    Failure,
    protocol::{Refused, Reply},
    server::{refused, text},
};

pub const NETWORK: NetworkId = NetworkId(12);

/// How many requests may wait for verification.
const ARRIVALS: usize = 64;

/// A frame in, and what became of it out.
pub type Protocol = cbor::Behaviour<Bytes, Reply>;

/// A swarm with this Ed25519 key.
pub fn swarm(secret: &[u8; 32]) -> Result<Swarm<Protocol>, Failure> {
    let protocol = (StreamProtocol::new("/admit-one/tool-server/1"), ProtocolSupport::Full);
    let builder = SwarmBuilder::with_existing_identity(Keypair::ed25519_from_bytes(*secret)?).with_tokio();
    let builder = builder.with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?;
    Ok(builder.with_behaviour(|_| Protocol::new([protocol], Config::default()))?.build())
}

/// A swarm that listens on loopback, and where.
pub async fn listen(secret: &[u8; 32]) -> Result<(Swarm<Protocol>, Multiaddr), Failure> {
    let mut swarm = swarm(secret)?;
    swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            return Ok((swarm, address));
        }
    }
}

/// Answers requests with what `service` says. Signatures are verified beside the swarm, in the order that requests came.
pub async fn serve<S>(mut swarm: Swarm<Protocol>, mut service: S)
where
    S: Service<Arrival, Response = Outcome<Answer>, Error = AdmissionError<CallError<io::Error>>> + Send + 'static,
    S::Future: Send,
{
    let (arrivals, mut inbox) = tokio::sync::mpsc::channel::<(Arrival, _)>(ARRIVALS);
    let (answers, mut outbox) = tokio::sync::mpsc::channel(ARRIVALS);
    tokio::spawn(async move {
        while let Some((arrival, channel)) = inbox.recv().await {
            // It is ready but while a message in chunks is joined, and these requests are whole.
            let (answer, answers) = (service.call(arrival), answers.clone());
            tokio::spawn(async move { answers.send((channel, reply(answer.await))).await });
        }
    });
    loop {
        tokio::select! {
            event = swarm.select_next_some() => if let SwarmEvent::Behaviour(Event::Message { peer, connection_id,
                message: Message::Request { request, channel, .. } }) = event {
                // Where so many wait already the request is dropped, which its sender sees as a failure.
                drop(arrivals.try_send((Arrival::from_parts(peer, LinkId::of(connection_id), request), channel)));
            },
            Some((channel, response)) = outbox.recv() => drop(swarm.behaviour_mut().send_response(channel, response)),
        }
    }
}

fn reply(answer: Result<Outcome<Answer>, AdmissionError<CallError<io::Error>>>) -> Reply {
    let refuse = |refused| Reply { answer: Err(refused), replayed: false };
    match answer {
        Ok(Outcome::Dispatched(answer)) => Reply { answer: Ok(text(answer.outcome())), replayed: answer.replayed() },
        Ok(_) => refuse(Refused { code: "not_whole".into(), consumed: "no".into(), reason: "send it whole".into() }),
        Err(AdmissionError::Handler(error)) => refuse(refused(&error)),
        Err(AdmissionError::Refused(refusal)) => refuse(Refused {
            code: format!("admission: {}", refusal.label()),
            consumed: "no".into(),
            reason: refusal.to_string(),
        }),
    }
}
