//! A receiver over a fresh store, and transactions for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admit_one::{
    Admission, AdmissionConfig, CommitConfig, GroupCommit, NetworkId, SystemClock,
    clock::Clock as _,
    identity::KeySigner,
    layer::{
        boundary::{Carrier, Request},
        charging::Shares,
    },
    link::LinkId,
    message::{Class, DEFAULT_TTL_MS, Incarnation, StreamKey, TransactionDigest},
    storage::Store,
};
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};

use super::figures::{Admissions, Times};
use crate::command::exit::{Exit, Failure};

/// Streams that the transactions take turns in.
const STREAMS: u32 = 64;
/// The tolerance of a store whose clock is its only sender's: what is issued is taken soon after birth.
const SIGMA_MS: u64 = 10;
/// How far behind birth's mark what is issued keeps.
const CLEAR_OF_MARK_MS: u64 = 50;
/// The most admissions that one count measures: their times are held in memory.
const ADMISSIONS_MAX: usize = 1 << 22;

/// The boundary over group commit over a fresh store.
pub(super) struct Receiver {
    commit: GroupCommit,
    admission: Admission,
    clock: Arc<SystemClock>,
    streams: Vec<StreamKey>,
    incarnation: Incarnation,
    next: u64,
}

impl Receiver {
    pub(super) async fn start(store: Arc<dyn Store>) -> Result<Self, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::new(Exit::Failed, "open", error.to_string());
        let clock = Arc::new(SystemClock::new());
        let commit = GroupCommit::open(store, CommitConfig::new()).await.map_err(|error| failed(&error))?;
        // All streams come by one link that nobody announced.
        let shares = Shares { floor: 4_096, ..Shares::default() };
        let config = AdmissionConfig { sigma: SIGMA_MS, shares, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.map_err(|error| failed(&error))?;
        // What is issued at or before the birth mark is refused, and the mark follows a wall clock that is being slewed.
        while admission.health().birth_mark.is_some_and(|mark| clock.wall() <= mark.saturating_add(CLEAR_OF_MARK_MS)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let key = |number: u32| {
            let secret = blake3::hash(&number.to_be_bytes());
            KeySigner::from_secret(secret.as_bytes()).map(|signer| signer.key()).map_err(|error| failed(&error))
        };
        let destination = key(STREAMS)?;
        let stream =
            |number| Ok(StreamKey { network: NetworkId(0), origin: key(number)?, destination, class: Class::E2e });
        let streams = (0..STREAMS).map(stream).collect::<Result<_, Failure>>()?;
        let incarnation = Incarnation::new(clock.wall(), 0);
        Ok(Self { commit, admission, clock, streams, incarnation, next: 0 })
    }

    /// Keeps `in_flight` admissions going for `time`.
    pub(super) async fn measure(&mut self, in_flight: usize, time: Duration) -> Result<Admissions, Failure> {
        let before = self.commit.health().batches;
        let mut samples = Vec::new();
        let began = Instant::now();
        let mut open = FuturesUnordered::new();
        loop {
            while open.len() < in_flight
                && samples.len().saturating_add(open.len()) < ADMISSIONS_MAX
                && began.elapsed() < time
            {
                let started = Instant::now();
                let Some(request) = self.request() else { break };
                open.push(self.admission.admit(request).map(move |answer| (answer, started.elapsed())));
            }
            match open.next().await {
                None => break,
                Some((Ok(Ok(_)), elapsed)) => samples.push(elapsed),
                Some((Ok(Err(refused)), _)) => return Err(Failure::new(Exit::Failed, "refused", refused)),
                Some((Err(failed), _)) => return Err(Failure::new(Exit::Failed, "store_failed", failed)),
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let batches = self.commit.health().batches.saturating_sub(before);
        let admitted = samples.len() as u64;
        Ok(Admissions { in_flight, admitted, seconds, batches, latency: Times::of(samples) })
    }

    /// The next transaction of the streams in turn.
    fn request(&mut self) -> Option<Request> {
        let count = self.streams.len() as u64;
        let place = usize::try_from(self.next.checked_rem(count)?).ok()?;
        let sequence = self.next / count;
        let stream = *self.streams.get(place)?;
        self.next += 1;
        Some(Request {
            stream,
            incarnation: self.incarnation,
            sequence,
            digest: TransactionDigest(blake3::hash(&self.next.to_be_bytes()).into()),
            issued_at: self.clock.wall(),
            ttl: DEFAULT_TTL_MS,
            bytes: 0,
            application: None,
            carrier: Carrier::Link(LinkId::of(0)),
        })
    }

    /// Lets go of the store.
    pub(super) async fn stop(self) {
        self.commit.shutdown().await;
    }
}
