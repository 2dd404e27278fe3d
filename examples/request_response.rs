//! The admission layer around a protocol of one's own: libp2p's request-response, over TCP on loopback. One node
//! serves; another sends a greeting, an exact copy of it, an altered one, and another. It ends by itself.

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use admit_one::clock::{Clock, SystemClock};
use admit_one::identity::{Did, KeySigner, Proof, Signer};
use admit_one::layer::boundary::{Admission, AdmissionConfig};
use admit_one::layer::{AdmissionLayer, Admitted};
use admit_one::link::{Arrival, LinkId};
use admit_one::message::{Class, Content, DEFAULT_TTL_MS, FRAME_LIMIT, Kind, NetworkId, Payload, StreamKey};
use admit_one::message::{Transaction, TxId};
use admit_one::storage::commit::{CommitConfig, GroupCommit};
use admit_one::storage::lease::{LeaseConfig, Leases};
use admit_one::storage::{Journal, JournalConfig};
use bytes::Bytes;
use futures::StreamExt;
use libp2p::request_response::{Config, Event, Message, ProtocolSupport, cbor};
use libp2p::{StreamProtocol, Swarm, SwarmBuilder, identity::Keypair, noise, swarm::SwarmEvent, tcp, yamux};
use tower::{Service, ServiceBuilder, service_fn};

const NETWORK: NetworkId = NetworkId(1);
type Failure = Box<dyn Error + Send + Sync>;
/// A frame in; what the handler says, or why it was refused, out.
type Protocol = cbor::Behaviour<Bytes, Result<String, String>>;

fn swarm(key: &Keypair) -> Result<Swarm<Protocol>, Failure> {
    let protocol = (StreamProtocol::new("/admit-one/example/1"), ProtocolSupport::Full);
    let builder = SwarmBuilder::with_existing_identity(key.clone()).with_tokio();
    let builder = builder.with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?;
    Ok(builder.with_behaviour(|_| Protocol::new([protocol], Config::default()))?.build())
}

/// Every request is an arrival, and what the layer answers is its response.
async fn serve(mut swarm: Swarm<Protocol>, layer: AdmissionLayer) {
    let mut service = ServiceBuilder::new().layer(layer).service(service_fn(async |admitted: Admitted| {
        Ok::<_, Infallible>(format!("sequence {} says {:?}", admitted.sequence(), admitted.data().slice(1..)))
    }));
    let (arrivals, mut inbox) = tokio::sync::mpsc::channel::<(Arrival, _)>(64);
    let (answers, mut outbox) = tokio::sync::mpsc::channel(64);
    // Beside the swarm: signatures are verified in this task, in the order that the requests came in.
    tokio::spawn(async move {
        while let Some((arrival, channel)) = inbox.recv().await {
            let (answer, answers) = (service.call(arrival), answers.clone());
            tokio::spawn(async move {
                let answer = answer.await.map(|outcome| format!("{outcome:?}")).map_err(|error| error.to_string());
                answers.send((channel, answer)).await
            });
        }
    });
    loop {
        tokio::select! {
            event = swarm.select_next_some() => if let SwarmEvent::Behaviour(Event::Message { peer, connection_id,
                message: Message::Request { request, channel, .. } }) = event {
                // Where 64 wait already the request is dropped, which its sender sees as a failure.
                drop(arrivals.try_send((Arrival::from_parts(peer, LinkId::of(connection_id), request), channel)));
            },
            Some((channel, response)) = outbox.recv() => drop(swarm.behaviour_mut().send_response(channel, response)),
        }
    }
}

/// Signs `text` for `destination`, under the next sequence that a durable lease covers.
async fn sign(signer: &KeySigner, leases: &Leases, destination: Did, text: &str) -> Result<Bytes, Failure> {
    let (origin, class, ttl) = (signer.key(), Class::E2e, DEFAULT_TTL_MS);
    let reserved = leases.reserve(&StreamKey { network: NETWORK, origin, destination, class }, ttl).await??;
    let (incarnation, sequence, issued_at) = (reserved.incarnation, reserved.sequence, SystemClock::new().wall());
    let (data, kind, tx_id) = ([&[class.lane()], text.as_bytes()].concat().into(), Kind::Whole, TxId::random());
    let content = Content { destination, tx_id, incarnation, sequence, issued_at, ttl, kind, data };
    let digest = content.digest(NETWORK, &origin, class);
    let prove = |message| Proof { slot: signer.slot(), signature: signer.sign_now(&message) };
    let (transaction, proof) = (prove(digest.0), prove(Payload::hop_digest(&digest, &destination, 0)));
    let transaction = Transaction { content, proof: transaction };
    Ok(Payload { transaction, next_hop: destination, hop_budget: 0, proof }.encode(FRAME_LIMIT)?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (directory, clock) = (tempfile::tempdir()?, Arc::new(SystemClock::new()));
    let store = |name| Journal::open(directory.path().join(name), JournalConfig::default()).map(Arc::new);
    // A new store refuses what was issued before it began, and for twice this tolerance after.
    let config = AdmissionConfig { sigma: 200, ..AdmissionConfig::default() };
    let receiving = GroupCommit::open(store("server")?, CommitConfig::default()).await?;
    let admission = Admission::open(&receiving, clock.clone(), config).await?;
    let sending = GroupCommit::open(store("client")?, CommitConfig::default()).await?;
    let leases = Leases::open(&sending, clock, LeaseConfig::default())?;
    while admission.health().refuses_fresh_until.is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (ours, theirs) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
    let (peer, local) = (ours.public().to_peer_id(), Did::try_from(&ours.public())?);
    let signer = KeySigner::from_keypair(&theirs)?;
    let (mut server, mut client) = (swarm(&ours)?, swarm(&theirs)?);
    server.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    let listening = server.select_next_some().await;
    let SwarmEvent::NewListenAddr { address, .. } = listening else { return Err("no address".into()) };
    client.add_peer_address(peer, address);
    tokio::spawn(serve(server, AdmissionLayer::builder(NETWORK, local, admission).build()));

    let greeting = sign(&signer, &leases, local, "good morning").await?;
    let altered = greeting[..greeting.len() - 1].iter().copied().chain([b'!']).collect();
    let another = sign(&signer, &leases, local, "good evening").await?;
    let mut taken = Vec::new();
    let steps = [("a greeting", greeting.clone()), ("a copy", greeting), ("altered", altered), ("another", another)];
    for (what, frame) in steps {
        client.behaviour_mut().send_request(&peer, frame);
        let answer = loop {
            let SwarmEvent::Behaviour(event) = client.select_next_some().await else { continue };
            match event {
                Event::Message { message: Message::Response { response, .. }, .. } => break response,
                Event::OutboundFailure { error, .. } => return Err(error.into()),
                _ => {}
            }
        };
        taken.push(answer.is_ok());
        println!("{what}: {}", answer.unwrap_or_else(|refused| refused));
    }
    if taken == [true, false, false, true] { Ok(()) } else { Err("this is not what was to happen".into()) }
}
