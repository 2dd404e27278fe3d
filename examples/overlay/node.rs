//! What every node of the overlay is made of.

use std::{convert::Infallible, fmt::Display, path::Path, sync::Arc, time::Duration};

use admit_one::{
    clock::{Clock, SystemClock},
    lanes::{self, Incoming, Outbound},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
        forward::Forwarding,
    },
    link::Arrival,
    storage::{
        Journal, JournalConfig,
        commit::{CommitConfig, GroupCommit},
    },
};
use futures::StreamExt as _;
use libp2p::{Swarm, SwarmBuilder, identify, ping, swarm::NetworkBehaviour};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower::{Layer as _, Service, service_fn};

use crate::{
    Failure,
    protocol::{Event, NETWORK, NodeConfig, Transport, tell},
};

/// The lanes beside two behaviours that every node has.
#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub lanes: lanes::Behaviour,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
}

pub struct Node {
    pub swarm: Swarm<Behaviour>,
    pub outbound: Outbound,
    pub incoming: Incoming,
}

/// Builds the swarm, listens, and learns where its contacts are.
pub fn start(config: &NodeConfig, lanes: lanes::Config) -> Result<Node, Failure> {
    let keypair = config.secret.keypair();
    let (lanes, outbound, incoming) = lanes::Behaviour::new(lanes, Arc::new(SystemClock::new()));
    let behaviour = Behaviour {
        lanes,
        identify: identify::Behaviour::new(identify::Config::new("/overlay".to_owned(), keypair.public())),
        ping: ping::Behaviour::default(),
    };
    let mut swarm = swarm(config.transport, keypair, behaviour)?;
    if let Some(address) = &config.listen {
        swarm.listen_on(address.clone())?;
    }
    for contact in &config.contacts {
        swarm.add_peer_address(contact.did.to_peer_id(), contact.address.clone());
    }
    Ok(Node { swarm, outbound, incoming })
}

/// A swarm over one transport.
pub fn swarm<B: NetworkBehaviour>(
    transport: Transport,
    keypair: libp2p::identity::Keypair,
    behaviour: B,
) -> Result<Swarm<B>, Failure> {
    let builder = SwarmBuilder::with_existing_identity(keypair).with_tokio();
    let idle = |config: libp2p::swarm::Config| config.with_idle_connection_timeout(Duration::from_secs(60));
    Ok(match transport {
        Transport::Tcp => builder
            .with_tcp(libp2p::tcp::Config::default(), libp2p::noise::Config::new, libp2p::yamux::Config::default)?
            .with_behaviour(|_| behaviour)
            .map_err(|never| never.to_string())?
            .with_swarm_config(idle)
            .build(),
        Transport::Quic => builder
            .with_quic_config(|mut quic| {
                // A killed peer says nothing over QUIC: it is noticed when it has been silent for so long.
                quic.max_idle_timeout = 1_000;
                quic.keep_alive_interval = Duration::from_millis(200);
                quic
            })
            .with_behaviour(|_| behaviour)
            .map_err(|never| never.to_string())?
            .with_swarm_config(idle)
            .build(),
    })
}

/// Tells the parent what links do with references, from when it is called. What a killed node did last goes untold.
pub fn tell_references() -> Result<(), Failure> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            // Looking at counters sets them back.
            let (mut hits, mut misses, mut bytes_saved) = (0, 0, 0);
            for (key, _, _, value) in snapshotter.snapshot().into_vec() {
                let DebugValue::Counter(count) = value else { continue };
                match key.key().name() {
                    "admit_one_link_table_hits_total" => hits = count,
                    "admit_one_link_table_misses_total" => misses = count,
                    "admit_one_link_bytes_saved_total" => bytes_saved = count,
                    _ => {}
                }
            }
            if (hits, misses, bytes_saved) != (0, 0, 0) {
                tell(&Event::References { hits, misses, bytes_saved });
            }
        }
    });
    Ok(())
}

/// Polls the swarm for as long as the node lives.
pub async fn drive<B: NetworkBehaviour>(swarm: &mut Swarm<B>)
where
    B::ToSwarm: std::fmt::Debug,
{
    loop {
        let event = swarm.select_next_some().await;
        tracing::debug!(?event);
    }
}

/// The durable store and its group commit.
pub async fn commit(store: &Path) -> Result<GroupCommit, Failure> {
    let journal = Journal::open(store, JournalConfig::default())?;
    Ok(GroupCommit::open(Arc::new(journal), CommitConfig::default()).await?)
}

/// The service of a node that forwards: what is addressed to the node itself ends in a handler that does nothing.
pub async fn relaying(
    config: &NodeConfig,
    store: &Path,
    outbound: Outbound,
) -> Result<impl Service<Arrival, Error = impl Display, Future = impl Send> + Clone + Send + 'static, Failure> {
    let admission = admission(&commit(store).await?, Arc::new(SystemClock::new()), config.sigma_ms).await?;
    let layer = AdmissionLayer::builder(NETWORK, config.secret.did(), admission)
        .forward(Forwarding::new(Arc::new(config.secret.signer()), outbound))
        .build();
    Ok(layer.layer(service_fn(|_: Admitted| std::future::ready(Ok::<_, Infallible>(())))))
}

/// What a node admits by.
pub async fn admission(commit: &GroupCommit, clock: Arc<dyn Clock>, sigma_ms: u64) -> Result<Admission, Failure> {
    let config = AdmissionConfig { sigma: sigma_ms, ..AdmissionConfig::default() };
    Ok(Admission::open(commit, clock, config).await?)
}
