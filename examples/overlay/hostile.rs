//! The hostile node: a relay that forwards honestly, records what it carries, and under a second identity presents
//! all of it to the destination again: copied, forked with a stolen key, stale, bent and broken.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use admit_one::{
    clock::{Clock as _, SystemClock},
    identity::{
        DEFAULT_DELEGATION_TTL_MS, Delegation, DelegationDigest, KeySigner, Proof, Signature, Signer as _, Slot,
    },
    lanes,
    link::Arrival,
    message::{Class, Classifier as _, Content, FRAME_LIMIT, NetworkId, Payload, TagClassifier, Transaction},
};
use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tower::{Layer, Service};

use crate::{
    Failure, node, origin,
    protocol::{Event, HostileConfig, NETWORK, NodeConfig, Order, tell},
    raw_lane::RawLanes,
};

/// How many recorded frames it keeps.
const RECORDED: usize = 4_096;

/// How many delegations it keeps. The origin has two devices, and signs anew under each when it is started again.
const DELEGATIONS: usize = 64;

/// A copy of a transaction so many places back in its class lies below the destination's window of 32.
const STALE_BY: usize = 96;

pub async fn run(config: &NodeConfig, role: HostileConfig) -> Result<(), Failure> {
    let mut node = node::start(config, lanes::Config::default())?;
    let record = Record::default();
    let relaying = node::relaying(config, &role.store, node.outbound).await?;
    tokio::spawn(node.incoming.serve(Recording { record: record.clone() }.layer(relaying)));
    tokio::spawn(async move { node::drive(&mut node.swarm).await });
    let destination = config.contacts.first().ok_or("the hostile node needs a destination")?;
    let mut lanes = RawLanes::start(config.transport, role.attacker.keypair(), destination)?;
    tell(&Event::Ready);

    let mut attacker = Attacker::new(&role);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await? {
        let Order::Admitted { index } = serde_json::from_str(&line)?;
        // Only what came this way is on record.
        let Some(frame) = record.take(index) else { continue };
        for (kind, class, frame) in attacker.attack(index, frame)? {
            lanes.send(class, frame).await;
            tell(&Event::Attacked { kind: kind.to_owned() });
        }
    }
    Ok(())
}

/// What was recorded on its way, by index, the oldest forgotten first.
#[derive(Debug, Clone, Default)]
struct Record(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    frames: HashMap<u64, Bytes>,
    order: VecDeque<u64>,
    /// Delegations that frames carried inline, which later ones refer to.
    delegations: HashMap<DelegationDigest, Arc<Delegation>>,
}

impl Record {
    fn keep(&self, frame: &Bytes) {
        let Ok(mut payload) = Payload::decode(frame.clone(), FRAME_LIMIT) else { return };
        let data = &payload.transaction.content.data;
        let Ok(classified) = TagClassifier.classify(data) else { return };
        let Some(index) = origin::index_of(classified.class, data) else { return };
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Recorded { frames, order, delegations } = &mut *record;
        // A reference means nothing on another link: the record holds what it stood for.
        for slot in [&mut payload.proof.slot, &mut payload.transaction.proof.slot] {
            match slot {
                Slot::Own(_) => {}
                Slot::Inline(delegation) => {
                    if delegations.len() < DELEGATIONS {
                        delegations.insert(delegation.digest(), Arc::clone(delegation));
                    }
                }
                Slot::Digest(digest) => {
                    let Some(delegation) = delegations.get(digest) else { return };
                    *slot = Slot::Inline(Arc::clone(delegation));
                }
            }
        }
        let Ok(frame) = payload.encode(FRAME_LIMIT) else { return };
        frames.insert(index, frame);
        order.push_back(index);
        if order.len() > RECORDED {
            order.pop_front().and_then(|oldest| frames.remove(&oldest));
        }
    }

    fn take(&self, index: u64) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).frames.remove(&index)
    }
}

/// Records every frame before the relay's own service sees it.
#[derive(Debug, Clone)]
struct Recording {
    record: Record,
}

impl<S> Layer<S> for Recording {
    type Service = Recorder<S>;

    fn layer(&self, inner: S) -> Recorder<S> {
        Recorder { record: self.record.clone(), inner }
    }
}

#[derive(Debug, Clone)]
struct Recorder<S> {
    record: Record,
    inner: S,
}

impl<S: Service<Arrival>> Service<Arrival> for Recorder<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, arrival: Arrival) -> S::Future {
        self.record.keep(&arrival.bytes);
        self.inner.call(arrival)
    }
}

struct Attacker {
    destination: admit_one::identity::Did,
    key: KeySigner,
    /// The origin's device key and account, stolen.
    device: KeySigner,
    account: KeySigner,
    /// A delegation by the attacker to the stolen device: anyone can sign one.
    own_delegation: Arc<Delegation>,
    /// Admitted transactions of each class, oldest first.
    admitted: [VecDeque<Transaction>; 4],
}

impl Attacker {
    fn new(role: &HostileConfig) -> Self {
        let key = role.attacker.signer();
        let now = SystemClock::new().wall();
        let own_delegation = Arc::new(key.delegate(role.device.did(), now, DEFAULT_DELEGATION_TTL_MS));
        Self {
            destination: role.destination,
            key,
            device: role.device.signer(),
            account: role.account.signer(),
            own_delegation,
            admitted: Default::default(),
        }
    }

    /// The frames of one attack, each with the class whose lane it goes on; the kind changes with the index.
    fn attack(&mut self, index: u64, frame: Bytes) -> Result<Vec<(&'static str, Class, Bytes)>, Failure> {
        let transaction = Payload::decode(frame.clone(), FRAME_LIMIT)?.transaction;
        let class = TagClassifier.classify(&transaction.content.data)?.class;
        let history = &mut self.admitted[usize::from(class.lane())];
        history.push_back(transaction.clone());
        let stale = if history.len() > STALE_BY { history.pop_front() } else { None };
        let garbage = || Bytes::from(blake3::hash(&frame).as_bytes().repeat(8));
        Ok(match index / 4 % 9 {
            0 => vec![("copy", class, self.reproved(transaction)?)],
            1 => vec![("fork", class, self.reproved(self.forked(transaction))?)],
            2 => match stale {
                Some(stale) => vec![("stale", class, self.reproved(stale)?)],
                None => Vec::new(),
            },
            3 => vec![(
                "other_network",
                class,
                self.reproved(self.signed(transaction.content, NetworkId(NETWORK.0 + 1)))?,
            )],
            4 => {
                let slot = Slot::Inline(self.own_delegation.clone());
                let proof = Proof { slot, signature: transaction.proof.signature };
                vec![("swapped_delegation", class, self.reproved(Transaction { proof, ..transaction })?)]
            }
            5 => {
                let mut bent = self.reproved(transaction)?.to_vec();
                let bit = usize::try_from(index)? * 7_919 % (bent.len() * 8);
                bent[bit / 8] ^= 1 << (bit % 8);
                vec![("flipped_bit", class, bent.into())]
            }
            6 => vec![("garbage", class, garbage())],
            7 => {
                let other = if class == Class::E2e { Class::Application } else { Class::E2e };
                vec![("wrong_lane", other, self.reproved(transaction)?)]
            }
            _ => vec![("as_recorded", class, frame)],
        })
    }

    /// The transaction under the attacker's own hop proof.
    fn reproved(&self, transaction: Transaction) -> Result<Bytes, Failure> {
        let origin = transaction.origin().ok_or("a recorded slot is never a reference")?;
        let class = TagClassifier.classify(&transaction.content.data)?.class;
        let digest = transaction.content.digest(NETWORK, &origin, class);
        let signature = self.key.sign_now(&Payload::hop_digest(&digest, &self.destination, 0));
        let proof = Proof { slot: self.key.slot(), signature };
        Ok(Payload { transaction, next_hop: self.destination, hop_budget: 0, proof }.encode(FRAME_LIMIT)?)
    }

    /// Other data under the same sequence, signed with the stolen key.
    fn forked(&self, transaction: Transaction) -> Transaction {
        let mut data = transaction.content.data.to_vec();
        if let Some(last) = data.last_mut() {
            *last ^= 1;
        }
        self.signed(Content { data: data.into(), ..transaction.content }, NETWORK)
    }

    fn signed(&self, content: Content, network: NetworkId) -> Transaction {
        let class = TagClassifier.classify(&content.data).map_or(Class::E2e, |classified| classified.class);
        let origin = self.account.key();
        let delegation = self.account.delegate(self.device.key(), content.issued_at, DEFAULT_DELEGATION_TTL_MS);
        let signature: Signature = self.device.sign_now(&content.digest(network, &origin, class).0);
        Transaction { content, proof: Proof { slot: Slot::Inline(Arc::new(delegation)), signature } }
    }
}
