//! The node that is measured: swarm, lanes, boundary, forwarding, and a handler that a test stalls.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admit_one::{
    clock::{Clock, ManualClock},
    identity::{Did, KeySigner},
    lanes::{Behaviour, Config, Outbound},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
        charging::Shares,
        forward::Forwarding,
        local::Namespace,
        reassembly::ReassemblyConfig,
    },
    link::Arrival,
    storage::{
        Memory,
        commit::{CommitConfig, GroupCommit},
    },
};
use futures::StreamExt;
use libp2p::{Multiaddr, PeerId, SwarmBuilder, identity::Keypair, noise, swarm::SwarmEvent, tcp, yamux};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};
use tower::{Layer, Service, ServiceExt, service_fn, util::MapRequest};

use crate::fixture::{NETWORK, START};

/// How long forwards may wait: longer than the test.
const PATIENCE: Duration = Duration::from_secs(300);

pub const NAMESPACE: &[u8] = b"n";

pub const REASSEMBLY: ReassemblyConfig = ReassemblyConfig {
    link_bytes: 4_000_000,
    bytes: 16_000_000,
    link_messages: 40,
    messages: 400,
    link_ids: 400,
    ids: 4_000,
    age: Duration::from_secs(300),
};

/// A slot may hold 64 streams.
pub fn admission() -> AdmissionConfig {
    let shares = Shares { slots: 4, floor: 16, pool: 48, ..Shares::default() };
    AdmissionConfig { birth_mark: false, shares, ..AdmissionConfig::default() }
}

pub struct Node {
    pub peer: PeerId,
    pub did: Did,
    pub address: Multiaddr,
    pub clock: Arc<ManualClock>,
    pub admission: Admission,
    pub outbound: Outbound,
    /// Whether handlers are done at once, or wait until this is set.
    pub open: watch::Sender<bool>,
    /// Frames that the layer was called with.
    pub called: Arc<AtomicUsize>,
    /// The layer once more, for a frame that came another way.
    pub beside: mpsc::UnboundedSender<Arrival>,
    /// Stops the swarm's own task while held.
    pub swarm: Arc<tokio::sync::Mutex<()>>,
    /// Its own threads.
    pub runtime: Handle,
}

impl Node {
    /// To be run on the node's own threads.
    pub async fn start(config: Config) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let commit = GroupCommit::open(Arc::new(Memory::new()), CommitConfig::volatile_for_tests());
        let commit = commit.await.expect("an empty store opens");
        let admission = Admission::open(&commit, clock.clone(), admission()).await.expect("the boundary opens");
        admission.register(Namespace::new(NAMESPACE).expect("short")).await.expect("registered");
        clock.advance(Duration::from_secs(3_600));

        let key = Keypair::generate_ed25519();
        let signer = KeySigner::from_keypair(&key).expect("an Ed25519 key");
        let config = config.links(Arc::new(admission.clone()));
        let (lanes, outbound, incoming) = Behaviour::new(config, clock.clone() as Arc<dyn Clock>);
        let mut swarm = SwarmBuilder::with_existing_identity(key)
            .with_tokio()
            .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
            .expect("a transport")
            .with_behaviour(|_| lanes)
            .expect("a behaviour")
            .with_swarm_config(|config| config.with_idle_connection_timeout(PATIENCE))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address")).expect("listens");
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        let peer = *swarm.local_peer_id();
        let runs = Arc::new(tokio::sync::Mutex::new(()));
        let may_run = Arc::clone(&runs);
        tokio::spawn(async move {
            loop {
                drop(may_run.lock().await);
                swarm.select_next_some().await;
            }
        });

        let (open, called) = (watch::Sender::new(true), Arc::new(AtomicUsize::new(0)));
        let many = NonZeroU32::new(1 << 20).expect("not zero");
        let forwarding = Forwarding::new(Arc::new(signer.clone()), outbound.clone()).rate(many, many).within(PATIENCE);
        let layer = AdmissionLayer::builder(NETWORK, signer.key(), admission.clone())
            .reassembly(REASSEMBLY)
            .forward(forwarding)
            .build();
        let gate = open.clone();
        let handler = service_fn(move |admitted: Admitted| {
            let mut gate = gate.subscribe();
            async move {
                gate.wait_for(|open| *open).await.expect("the node lives");
                drop(admitted);
                Ok::<_, Infallible>(())
            }
        });
        let mut again = layer.layer(handler.clone());
        let (beside, mut arrivals) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                let _refused = again.ready().await.expect("ready").call(arrival).await;
            }
        });
        let counted = Arc::clone(&called);
        let service = MapRequest::new(layer.layer(handler), move |arrival: Arrival| {
            counted.fetch_add(1, Ordering::Relaxed);
            arrival
        });
        tokio::spawn(incoming.serve(service));
        Self {
            peer,
            did: signer.key(),
            address,
            clock,
            admission,
            outbound,
            open,
            called,
            beside,
            swarm: runs,
            runtime: Handle::current(),
        }
    }
}
