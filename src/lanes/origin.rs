//! A node's own transactions: numbered, signed and queued in one order (law L3.2).
//!
//! A send first takes queue room in its lane, in its caller's task, so that a full lane holds up its own callers and
//! nobody else (law L3.5). Where its stream still has unsettled sends on another next hop, it waits for these first, in
//! the same way, so that none is numbered that could overtake them (law L3.9). Then it goes to the origin's one task, which does the rest in the order in which sends reach
//! it: it reads the clock, reserves the sequence, waits until a durable lease covers it (law L8.1), signs, and queues.
//! Reservations are staged one after another without waiting for their leases, so that one flush serves many, and
//! signatures are made as leases come; but frames are queued strictly in the order of their reservations, so lane order
//! is signing order.
//!
//! A signer that lives elsewhere and does not answer holds up those behind it no longer than a transaction lives.
//! What fails after a sequence was reserved leaves a gap, which no receiver minds.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesOrdered};
use tokio::sync::{mpsc, oneshot};

use super::{
    outbound::{Outbound, SendRefused},
    passage::Stream,
    settlement::Settlement,
    shared::Room,
};
use crate::{
    BoxFuture,
    clock::Clock,
    identity::{Did, Proof, SignError, Signer},
    link::{DirectRouter, Frame, Router},
    message::{
        Class, Classifier, ClassifyError, Content, DEFAULT_TTL_MS, FrameTooLarge, GREATEST_TTL_MS, Kind,
        MAX_HOP_BUDGET, NetworkId, Payload, StreamKey, TagClassifier, Transaction, TxId,
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
    /// It does not fit one frame, both proofs taken as long as they can get.
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
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
    /// The transaction or its hop could not be signed. Its sequence is left out.
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
struct Terms {
    network: NetworkId,
    origin: Did,
    router: Arc<dyn Router>,
    classifier: Arc<dyn Classifier>,
    outbound: Outbound,
    clock: Arc<dyn Clock>,
    hop_signer: Arc<dyn Signer>,
    hop_budget: u8,
    ttl: u64,
}

#[derive(Debug)]
enum Request {
    Send(Box<Draft>),
    Rotate { signer: Arc<dyn Signer>, done: oneshot::Sender<()> },
}

/// A send that has its room and waits for its turn.
#[derive(Debug)]
struct Draft {
    destination: Did,
    next_hop: Did,
    class: Class,
    data: Bytes,
    room: Room,
    done: oneshot::Sender<Result<Settlement, OriginError>>,
}

/// A send whose sequence is reserved.
struct Signed {
    room: Room,
    done: oneshot::Sender<Result<Settlement, OriginError>>,
    frame: Result<Frame, OriginError>,
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
    /// # Errors
    /// [`OriginError`]. Dropped while it waits for room, it sends nothing; dropped later, it may still send.
    pub async fn send(&self, destination: Did, data: impl Into<Bytes>) -> Result<Settlement, OriginError> {
        let terms = &*self.terms;
        let data = data.into();
        let class = terms.classifier.classify(&data)?.class;
        let (length, limit) = (Payload::OVERHEAD.saturating_add(data.len()), terms.outbound.frame_limit());
        if length > limit {
            return Err(FrameTooLarge { length, limit }.into());
        }
        let next_hop = terms.router.next_hop(&destination).ok_or(OriginError::NoRoute { destination })?;
        let within = Duration::from_millis(terms.ttl);
        let stream = Stream { origin: Some(terms.origin), destination, class };
        let room = terms.outbound.room(next_hop.to_peer_id(), stream, length, within).await?;
        let (done, sent) = oneshot::channel();
        let draft = Box::new(Draft { destination, next_hop, class, data, room, done });
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
            Some(signed) = pipeline.next(), if !pipeline.is_empty() => queue(&terms, signed),
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

/// Reserves the draft's sequence before it returns; the future signs.
fn stage(terms: &Arc<Terms>, signer: &Arc<dyn Signer>, leases: &Leases, draft: Draft) -> BoxFuture<'static, Signed> {
    let (terms, signer) = (Arc::clone(terms), Arc::clone(signer));
    let Draft { destination, next_hop, class, data, room, done } = draft;
    let stream = StreamKey { network: terms.network, origin: terms.origin, destination, class };
    // Before the reservation, whose own reading decides when the stream may retire.
    let issued_at = terms.clock.wall();
    let ticket = leases.reserve(&stream, terms.ttl);
    Box::pin(async move {
        let frame = async {
            let reservation = ticket.await??;
            let content = Content {
                destination,
                tx_id: TxId::random(),
                incarnation: reservation.incarnation,
                sequence: reservation.sequence,
                issued_at,
                ttl: terms.ttl,
                kind: Kind::Whole,
                data,
            };
            let life = Duration::from_millis(terms.ttl);
            let overdue = || SignError { reason: format!("it did not sign within {} ms", terms.ttl) };
            within(life, sign(&terms, &*signer, content, next_hop, class))
                .await
                .unwrap_or_else(|| Err(overdue().into()))
        };
        let frame = frame.await;
        Signed { room, done, frame }
    })
}

async fn sign(
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

fn queue(terms: &Terms, signed: Signed) {
    let Signed { room, done, frame } = signed;
    let sent = frame.map(|frame| terms.outbound.send_in(room, frame));
    // Dropped, the settlement changes nothing: whoever sent it may have stopped listening.
    drop(done.send(sent));
}
