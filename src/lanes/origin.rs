//! A node's own transactions: numbered, signed and queued in one order (law L3.2).
//!
//! A send first takes queue room in its lane, in its caller's task, so that a full lane holds up its own callers and
//! nobody else (law L3.5). Where its stream still has unsettled sends on another next hop, it waits for these first, in
//! the same way, so that none is numbered that could overtake them (law L3.9). Then it goes to the origin's one task,
//! which does the rest in the order in which sends reach it: it reads the clock, reserves the sequence, waits until a durable lease covers it (law L8.1), signs, and queues.
//! Reservations are staged one after another without waiting for their leases, so that one flush serves many, and
//! signatures are made as leases come; but frames are queued strictly in the order of their reservations, so lane order
//! is signing order.
//!
//! What does not fit one frame is sent as a message of several by a task of its own (`chunking`), which has the
//! origin's task reserve its sequence and open the message in the same order.
//!
//! A signer that lives elsewhere and does not answer holds up those behind it no longer than a transaction lives.
//! What fails after a sequence was reserved leaves a gap, which no receiver minds.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesOrdered};
use tokio::sync::{mpsc, oneshot};

use super::{
    chunking::{self, Begun, Large},
    outbound::{Outbound, SendRefused},
    passage::Stream,
    queue::Traffic,
    settlement::Settlement,
    shared::Room,
};
use crate::{
    BoxFuture,
    clock::Clock,
    identity::{Did, Proof, SignError, Signer},
    link::{DirectRouter, Frame, Router},
    message::{
        Class, Classified, Classifier, ClassifyError, Content, CutError, DEFAULT_TTL_MS, GREATEST_TTL_MS, Kind,
        MAX_HOP_BUDGET, NetworkId, Payload, StreamKey, TagClassifier, Transaction, TxId, check_cut,
    },
    storage::{
        commit::StoreFailed,
        lease::{LeaseRefused, Leases},
    },
    task::{spawn, within},
};

/// How many times a transaction may be forwarded unless told otherwise.
pub const DEFAULT_HOP_BUDGET: u8 = 8;

/// How many sends are between their reservation and their queue at once.
const PIPELINE: usize = 256;

/// Sends this node's own transactions. Cheap to clone; all clones share one order.
///
/// Each network and origin of a node has one of its own: two over the same leases number without a clash, but neither
/// knows the other's order.
#[derive(Debug, Clone)]
pub struct Origin {
    terms: Arc<Terms>,
    requests: mpsc::Sender<Request>,
}

/// Why a transaction was not sent. Unless it says otherwise, no sequence was used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The data has no class.
    #[error("the data has no class: {0}")]
    Unclassified(#[from] ClassifyError),
    /// It does not fit one frame, both proofs taken as long as they can get, and cannot be cut into several: it is over
    /// [`MESSAGE_LIMIT`](crate::message::MESSAGE_LIMIT), or the classifier's head leaves no room.
    #[error(transparent)]
    TooLarge(#[from] CutError),
    /// No way to the destination is known.
    #[error("no way to {destination} is known")]
    NoRoute {
        /// The destination.
        destination: Did,
    },
    /// There was no room for it in its lane before its time was over, or the lanes were shut down.
    #[error(transparent)]
    Refused(#[from] SendRefused),
    /// No sequence was reserved.
    #[error(transparent)]
    Lease(#[from] LeaseRefused),
    /// The store failed before a lease covered the sequence, which is not used again.
    #[error(transparent)]
    Store(#[from] StoreFailed),
    /// The transaction, a chunk of it, or its hop could not be signed. Its sequence is left out; chunks signed before may
    /// have been written, which without the others are nothing.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The signer speaks for nobody known (its slot is a reference), or for another origin than this one's.
    #[error("the signer does not speak for {}", .origin.map_or_else(|| "anyone known".to_owned(), |origin| origin.to_string()))]
    OtherOrigin {
        /// Whom it should speak for, where that is fixed.
        origin: Option<Did>,
    },
    /// The task that numbers and signs is gone, with its runtime.
    #[error("the runtime that this origin was built on is gone")]
    Stopped,
}

/// What stays the same for all of an origin's transactions.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) network: NetworkId,
    pub(super) origin: Did,
    router: Arc<dyn Router>,
    classifier: Arc<dyn Classifier>,
    pub(super) outbound: Outbound,
    clock: Arc<dyn Clock>,
    hop_signer: Arc<dyn Signer>,
    hop_budget: u8,
    pub(super) ttl: u64,
}

#[derive(Debug)]
pub(super) enum Request {
    Send(Box<Draft>),
    Rotate { signer: Arc<dyn Signer>, done: oneshot::Sender<()> },
}

/// A send that has its room and waits for its turn.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) destination: Did,
    pub(super) next_hop: Did,
    pub(super) class: Class,
    pub(super) room: Room,
    pub(super) cargo: Cargo,
}

/// What a send is of.
#[derive(Debug)]
pub(super) enum Cargo {
    /// One frame.
    Whole { data: Bytes, done: oneshot::Sender<Result<Settlement, OriginError>> },
    /// Several, made by whoever hears that the message was opened.
    Large(oneshot::Sender<Result<Begun, OriginError>>),
}

/// A send whose sequence is reserved under a durable lease, or that failed.
enum Staged {
    Whole {
        room: Room,
        done: oneshot::Sender<Result<Settlement, OriginError>>,
        frame: Result<Box<Frame>, OriginError>,
    },
    Large {
        room: Room,
        class: Class,
        begun: oneshot::Sender<Result<Begun, OriginError>>,
        content: Result<Content, OriginError>,
        signer: Arc<dyn Signer>,
    },
}

impl Origin {
    /// An origin on `network` that signs with `signer`, numbers by `leases` and sends by `outbound`.
    pub fn builder(
        network: NetworkId,
        signer: Arc<dyn Signer>,
        leases: Leases,
        outbound: Outbound,
        clock: Arc<dyn Clock>,
    ) -> OriginBuilder {
        OriginBuilder {
            network,
            hop_signer: Arc::clone(&signer),
            signer,
            leases,
            outbound,
            clock,
            router: Arc::new(DirectRouter),
            classifier: Arc::new(TagClassifier),
            hop_budget: DEFAULT_HOP_BUDGET,
            ttl: DEFAULT_TTL_MS,
        }
    }

    /// Whom its transactions are from.
    pub fn origin(&self) -> Did {
        self.terms.origin
    }

    /// Sends `data` to `destination`: waits for room in its lane, signs it, queues it, and returns how to learn what
    /// becomes of it. Sends that one task makes one after another keep their order within a class.
    ///
    /// What does not fit one frame, up to [`MESSAGE_LIMIT`](crate::message::MESSAGE_LIMIT), is cut into chunks (law
    /// L2.8). They go one behind the other, with nothing else of this node's own in their lane between them, and settle
    /// as one: taken over once each was, lost with the first that is. This returns when the last is queued, or when it
    /// is lost before. Meanwhile other sends of the lane wait, each at most until its own expiry.
    ///
    /// # Errors
    /// [`OriginError`]. Dropped while it waits for room, it sends nothing; dropped later, it may still send what fits one
    /// frame, and stops sending what does not.
    ///
    /// # Panics
    /// Outside a tokio runtime, for data that does not fit one frame.
    pub async fn send(&self, destination: Did, data: impl Into<Bytes>) -> Result<Settlement, OriginError> {
        let terms = &*self.terms;
        let data = data.into();
        let Classified { class, head, .. } = terms.classifier.classify(&data)?;
        let (length, limit) = (Payload::OVERHEAD.saturating_add(data.len()), terms.outbound.frame_limit());
        let cuts = length > limit;
        if cuts {
            check_cut(data.len(), head, limit)?;
        }
        let next_hop = terms.router.next_hop(&destination).ok_or(OriginError::NoRoute { destination })?;
        if cuts {
            let large = Large { destination, next_hop, class, head, data };
            let sent = chunking::start(Arc::clone(&self.terms), self.requests.clone(), large);
            return sent.await.unwrap_or(Err(OriginError::Stopped));
        }
        let within = Duration::from_millis(terms.ttl);
        let stream = Stream { origin: Some(terms.origin), destination, class };
        let room = terms.outbound.room(next_hop.to_peer_id(), stream, length, Traffic::Own, within).await?;
        let (done, sent) = oneshot::channel();
        let draft = Box::new(Draft { destination, next_hop, class, room, cargo: Cargo::Whole { data, done } });
        self.requests.send(Request::Send(draft)).await.map_err(|_| OriginError::Stopped)?;
        sent.await.unwrap_or(Err(OriginError::Stopped))
    }

    /// Signs with `signer` from now on: the account's key, or another device of it under a delegation (law L1.3).
    /// Everything that reached the origin before is signed with the one before; order and numbering go on.
    ///
    /// # Errors
    /// [`OriginError::OtherOrigin`] when it speaks for someone else; the old signer stays.
    pub async fn rotate(&self, signer: Arc<dyn Signer>) -> Result<(), OriginError> {
        let origin = self.terms.origin;
        if signer.slot().speaker() != Some(origin) {
            return Err(OriginError::OtherOrigin { origin: Some(origin) });
        }
        let (done, rotated) = oneshot::channel();
        self.requests.send(Request::Rotate { signer, done }).await.map_err(|_| OriginError::Stopped)?;
        rotated.await.map_err(|_| OriginError::Stopped)
    }
}

/// Settings of an [`Origin`].
#[must_use]
pub struct OriginBuilder {
    network: NetworkId,
    signer: Arc<dyn Signer>,
    hop_signer: Arc<dyn Signer>,
    leases: Leases,
    outbound: Outbound,
    clock: Arc<dyn Clock>,
    router: Arc<dyn Router>,
    classifier: Arc<dyn Classifier>,
    hop_budget: u8,
    ttl: u64,
}

impl OriginBuilder {
    /// Chooses next hops by `router`; by default every destination is its own.
    pub fn router(mut self, router: Arc<dyn Router>) -> Self {
        self.router = router;
        self
    }

    /// Derives classes by `classifier`, which every node of the overlay must share (law L2.6).
    pub fn classifier(mut self, classifier: Arc<dyn Classifier>) -> Self {
        self.classifier = classifier;
        self
    }

    /// Proves this node's hop with `signer`, who must speak for the node's connection key (law L2.5); by default the
    /// signer of the transactions, which [`Origin::rotate`] then leaves alone.
    pub fn hop_signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.hop_signer = signer;
        self
    }

    /// How many times a transaction may be forwarded, at most [`MAX_HOP_BUDGET`].
    ///
    /// # Panics
    /// Over that.
    pub fn hop_budget(mut self, hops: u8) -> Self {
        assert!(hops <= MAX_HOP_BUDGET, "a hop budget is at most {MAX_HOP_BUDGET}");
        self.hop_budget = hops;
        self
    }

    /// How long transactions live, in milliseconds, at most [`GREATEST_TTL_MS`]; also how long a send waits for room,
    /// and then to be written.
    ///
    /// # Panics
    /// Over that.
    pub fn ttl(mut self, milliseconds: u64) -> Self {
        assert!(milliseconds <= GREATEST_TTL_MS, "a transaction lives at most {GREATEST_TTL_MS} ms");
        self.ttl = milliseconds;
        self
    }

    /// Starts the origin's task on the current tokio runtime. It ends when the last clone is gone.
    ///
    /// # Errors
    /// [`OriginError::OtherOrigin`] for a signer whose slot does not say whom it speaks for.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn build(self) -> Result<Origin, OriginError> {
        let origin = self.signer.slot().speaker().ok_or(OriginError::OtherOrigin { origin: None })?;
        let terms = Arc::new(Terms {
            network: self.network,
            origin,
            router: self.router,
            classifier: self.classifier,
            outbound: self.outbound,
            clock: self.clock,
            hop_signer: self.hop_signer,
            hop_budget: self.hop_budget,
            ttl: self.ttl,
        });
        let (requests, requested) = mpsc::channel(PIPELINE);
        spawn(Box::pin(run(Arc::clone(&terms), self.signer, self.leases, requested)));
        Ok(Origin { terms, requests })
    }
}

impl fmt::Debug for OriginBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginBuilder")
            .field("network", &self.network)
            .field("signer", &self.signer)
            .finish_non_exhaustive()
    }
}

async fn run(terms: Arc<Terms>, mut signer: Arc<dyn Signer>, leases: Leases, mut requests: mpsc::Receiver<Request>) {
    let mut pipeline = FuturesOrdered::new();
    let mut open = true;
    while open || !pipeline.is_empty() {
        tokio::select! {
            biased;
            Some(staged) = pipeline.next(), if !pipeline.is_empty() => queue(&terms, staged),
            request = requests.recv(), if open && pipeline.len() < PIPELINE => match request {
                Some(Request::Send(draft)) => pipeline.push_back(stage(&terms, &signer, &leases, *draft)),
                Some(Request::Rotate { signer: next, done }) => {
                    signer = next;
                    // Whoever asked may have gone.
                    let _ = done.send(());
                }
                None => open = false,
            },
        }
    }
}

/// Reserves the draft's sequence before it returns; the future signs it, unless it is to be cut.
fn stage(terms: &Arc<Terms>, signer: &Arc<dyn Signer>, leases: &Leases, draft: Draft) -> BoxFuture<'static, Staged> {
    let (terms, signer) = (Arc::clone(terms), Arc::clone(signer));
    let Draft { destination, next_hop, class, room, cargo } = draft;
    let stream = StreamKey { network: terms.network, origin: terms.origin, destination, class };
    // Before the reservation, whose own reading decides when the stream may retire.
    let issued_at = terms.clock.wall();
    let ticket = leases.reserve(&stream, terms.ttl);
    Box::pin(async move {
        let content = async {
            let reservation = ticket.await??;
            Ok(Content {
                destination,
                tx_id: TxId::random(),
                incarnation: reservation.incarnation,
                sequence: reservation.sequence,
                issued_at,
                ttl: terms.ttl,
                kind: Kind::Whole,
                data: Bytes::new(),
            })
        };
        let content = content.await;
        match cargo {
            Cargo::Whole { data, done } => {
                let frame = match content {
                    Ok(content) => sign_in_time(&terms, &*signer, Content { data, ..content }, next_hop, class).await,
                    Err(error) => Err(error),
                };
                Staged::Whole { room, done, frame: frame.map(Box::new) }
            }
            Cargo::Large(begun) => Staged::Large { room, class, begun, content, signer },
        }
    })
}

async fn sign_in_time(
    terms: &Terms,
    signer: &dyn Signer,
    content: Content,
    next_hop: Did,
    class: Class,
) -> Result<Frame, OriginError> {
    let life = Duration::from_millis(terms.ttl);
    let overdue = || SignError { reason: format!("it did not sign within {} ms", terms.ttl) };
    within(life, sign(terms, signer, content, next_hop, class)).await.unwrap_or_else(|| Err(overdue().into()))
}

pub(super) async fn sign(
    terms: &Terms,
    signer: &dyn Signer,
    content: Content,
    next_hop: Did,
    class: Class,
) -> Result<Frame, OriginError> {
    let digest = content.digest(terms.network, &terms.origin, class);
    let proof = Proof { slot: signer.slot(), signature: signer.sign(digest.0).await? };
    let hop_digest = Payload::hop_digest(&digest, &next_hop, terms.hop_budget);
    let hop_proof = Proof { slot: terms.hop_signer.slot(), signature: terms.hop_signer.sign(hop_digest).await? };
    let left = content.expires_at().saturating_sub(terms.clock.wall());
    let transaction = Transaction { content, proof };
    let payload = Payload { transaction, next_hop, hop_budget: terms.hop_budget, proof: hop_proof };
    Ok(Frame { payload, class, write_within: Duration::from_millis(left), inbound: None })
}

/// Queues a frame, or opens a message.
fn queue(terms: &Terms, staged: Staged) {
    // Whoever sent it may have stopped listening: a settlement that is dropped changes nothing, and a message that is
    // dropped is given up.
    match staged {
        Staged::Whole { room, done, frame } => drop(done.send(frame.map(|frame| terms.outbound.send_in(room, *frame)))),
        Staged::Large { room, class, begun, content, signer } => {
            let open = content.map(|content| {
                let left = content.expires_at().saturating_sub(terms.clock.wall());
                let (message, settlement) = terms.outbound.begin_in(room, class, Duration::from_millis(left));
                Begun { message, settlement, content, signer }
            });
            drop(begun.send(open));
        }
    }
}
