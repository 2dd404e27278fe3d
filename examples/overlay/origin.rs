//! The origin: signs and sends, one task a class, with a device's key on its account's behalf; half-way another
//! device takes over.

use std::sync::Arc;

use admit_one::{
    clock::{Clock as _, SystemClock},
    identity::{DEFAULT_DELEGATION_TTL_MS, Did, KeySigner},
    lanes::{self, Origin},
    link::Router,
    message::{Class, TagClassifier},
    storage::lease::{LeaseConfig, Leases},
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    Failure, node,
    protocol::{Event, NAMESPACE, NETWORK, NodeConfig, OriginConfig, Secret, tell},
};

/// A class's task goes on sending while so many of its sends are not settled.
const UNSETTLED: usize = 16;

/// Everything goes by way of one relay.
#[derive(Debug)]
struct By(Did);

impl Router for By {
    fn next_hop(&self, _destination: &Did) -> Option<Did> {
        Some(self.0)
    }
}

pub async fn run(config: &NodeConfig, role: OriginConfig) -> Result<(), Failure> {
    let mut node = node::start(config, lanes::Config::default())?;
    let clock = Arc::new(SystemClock::new());
    let lease_config = LeaseConfig { sigma: config.sigma_ms, ..LeaseConfig::default() };
    let leases = Leases::open(&node::commit(&role.store).await?, clock.clone(), lease_config)?;
    let device = |device: &Secret| -> Result<Arc<KeySigner>, Failure> {
        let delegation = role.account.signer().delegate(device.did(), clock.wall(), DEFAULT_DELEGATION_TTL_MS);
        Ok(Arc::new(device.signer().with_delegation(delegation)?))
    };
    let [first, second] = &role.devices;
    let half = role.transactions / 2;
    // An origin that is started again after the half-way mark goes on with the second device.
    let signer = device(if role.first.iter().all(|next| *next >= half) { second } else { first })?;
    let mut origins = Vec::new();
    for contact in &config.contacts {
        origins.push(
            Origin::builder(NETWORK, signer.clone(), leases.clone(), node.outbound.clone(), clock.clone())
                .hop_signer(Arc::new(config.secret.signer()))
                .router(Arc::new(By(contact.did)))
                .build()?,
        );
    }
    let swarm = tokio::spawn(async move { node::drive(&mut node.swarm).await });
    let second = device(second)?;
    let mut classes = tokio::task::JoinSet::new();
    for class in Class::ALL {
        // Control and storage by the first relay, the other two by the second.
        let origin = origins.get(usize::from(class.lane() / 2)).cloned().ok_or("an origin needs two relays")?;
        let first = role.first.get(usize::from(class.lane())).copied().unwrap_or(0);
        let (destination, transactions, seed) = (role.destination, role.transactions, role.seed);
        let second = second.clone();
        classes.spawn(async move {
            let mut open = FuturesUnordered::new();
            let mut rotated = false;
            for index in (first..transactions).step_by(Class::ALL.len()) {
                if index >= half && !rotated {
                    rotated = true;
                    if let Err(error) = origin.rotate(second.clone()).await {
                        tracing::error!(%error, "the second device was refused");
                    }
                }
                tell(&Event::Sending { index });
                match origin.send(destination, data(class, index, seed)).await {
                    Ok(settlement) => open.push(async move { (index, settlement.await) }),
                    Err(error) => tell(&Event::Settled { index, lost: Some(format!("not_sent: {error}")) }),
                }
                while open.len() >= UNSETTLED {
                    if let Some((index, settled)) = open.next().await {
                        tell(&Event::Settled { index, lost: settled.err().map(|lost| lost.to_string()) });
                    }
                }
            }
            while let Some((index, settled)) = open.next().await {
                tell(&Event::Settled { index, lost: settled.err().map(|lost| lost.to_string()) });
            }
        });
    }
    while let Some(class) = classes.join_next().await {
        class?;
    }
    tell(&Event::Finished);
    // Stays connected until the parent ends it.
    swarm.await?;
    Ok(())
}

/// The data of transaction `index`: its class's head, the index, and filler, from 16 bytes to 24 KiB in all, small
/// ones as often as large ones on a logarithmic scale.
fn data(class: Class, index: u64, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let size = 2f64.powf(random.random_range(4.0..(24f64 * 1024.0).log2())) as usize;
    let mut body = index.to_be_bytes().to_vec();
    let head = match class {
        Class::Application => 2 + NAMESPACE.len(),
        _ => 1,
    };
    body.resize(size.clamp(16, 24 * 1024).saturating_sub(head).max(8), 0);
    random.fill_bytes(&mut body[8..]);
    match class {
        Class::Application => TagClassifier::application(NAMESPACE, &body).expect("a short namespace"),
        _ => [&[class.lane()], body.as_slice()].concat(),
    }
}

/// Reads the index back from data.
pub fn index_of(class: Class, data: &[u8]) -> Option<u64> {
    let head = match class {
        Class::Application => 2 + usize::from(*data.get(1)?),
        _ => 1,
    };
    data.get(head..head + 8).and_then(|index| index.try_into().ok()).map(u64::from_be_bytes)
}
