//! A node with single-use authority, and who calls it: real keys, real signatures, the ledger over group commit.

use std::{path::Path, sync::Arc, time::Duration};

use admit_one::{
    CommitConfig, GroupCommit, Journal, JournalConfig, KeySigner,
    clock::{Clock, ManualClock, WallMs},
    layer::{
        credential::{
            Approval, CallError, Envelope, EnvelopeExtractor, Nonce, Possession, PossessionProof, SignedApproval,
            SignedNonce,
        },
        nonce::NonceLayer,
        single_use::{Call, Consumed, SingleUse, SingleUseConfig},
    },
    storage::Store,
};
use bytes::Bytes;
use tower::{Service, ServiceExt};

pub const START: WallMs = 1_700_000_000_000;

/// What every call here has as its arguments, unless it says otherwise.
pub const ARGUMENTS: &[u8] = b"a note";

pub struct World {
    pub clock: Arc<ManualClock>,
    pub commit: GroupCommit,
    pub single_use: SingleUse,
    pub issuer: KeySigner,
    pub approver: KeySigner,
    pub subject: KeySigner,
}

impl World {
    /// On this engine, its birth mark passed.
    pub async fn on(engine: Arc<dyn Store>, config: SingleUseConfig) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let [issuer, approver, subject] = [KeySigner::generate(), KeySigner::generate(), KeySigner::generate()];
        let (commit, single_use) = open(engine, &clock, config).await;
        clock.advance(Duration::from_secs(60));
        Self { clock, commit, single_use, issuer, approver, subject }
    }

    /// On a journal at `path`.
    pub async fn at(path: &Path, config: SingleUseConfig) -> Self {
        Self::on(journal(path), config).await
    }

    /// The next run of the same node on the same store, in the same boot.
    pub async fn again(self, engine: impl FnOnce() -> Arc<dyn Store>, config: SingleUseConfig) -> Self {
        let Self { clock, commit, single_use, issuer, approver, subject } = self;
        drop(single_use);
        commit.shutdown().await;
        drop(commit);
        let (commit, single_use) = open(engine(), &clock, config).await;
        Self { clock, commit, single_use, issuer, approver, subject }
    }

    pub fn now(&self) -> i64 {
        i64::try_from(self.clock.wall() / 1_000).expect("this century")
    }

    pub fn nonces(&self) -> NonceLayer<EnvelopeExtractor> {
        NonceLayer::new(self.single_use.clone(), EnvelopeExtractor::new(), [self.issuer.key()])
    }

    /// A call issued now, with an intent, and a deadline in ten minutes.
    pub fn call(&self, request_id: &str) -> Call {
        Call {
            tenant: "acme".into(),
            request_id: request_id.into(),
            method: "notes/append".into(),
            arguments: Call::hash_arguments(ARGUMENTS),
            intent: Some("append a note".into()),
            issued_at: Some(self.now()),
            deadline: Some(self.now() + 600),
        }
    }

    /// A nonce for `call` that lives for `seconds`.
    pub fn nonce(&self, call: &Call, seconds: i64) -> SignedNonce {
        self.nonce_for(&self.subject, call, seconds)
    }

    pub fn nonce_for(&self, subject: &KeySigner, call: &Call, seconds: i64) -> SignedNonce {
        let (now, subject) = (self.now(), subject.key());
        Nonce::new(self.issuer.key(), call, subject, subject, now, now + seconds).sign(&self.issuer)
    }

    /// A proof for `call` with `nonce`, for a minute.
    pub fn proof(&self, call: &Call, nonce: &SignedNonce) -> PossessionProof {
        self.proof_by(&self.subject, call, nonce)
    }

    pub fn proof_by(&self, subject: &KeySigner, call: &Call, nonce: &SignedNonce) -> PossessionProof {
        let now = self.now();
        Possession::new(call, &subject.key(), Some(nonce.digest()), now, now + 60).sign(subject)
    }

    pub fn approval(&self, call: &Call, seconds: i64) -> SignedApproval {
        let (now, subject) = (self.now(), self.subject.key());
        let approval = Approval::new(self.approver.key(), call, subject, now, now + seconds);
        approval.expect("the call has an intent").sign(&self.approver)
    }

    /// `call` with a fresh nonce, proof and approval.
    pub fn envelope(&self, call: &Call) -> Envelope {
        let nonce = self.nonce(call, 60);
        let proof = self.proof(call, &nonce);
        let shown = Envelope::new(call.clone(), Bytes::from_static(ARGUMENTS)).nonce(nonce).proof(proof);
        if call.intent.is_some() { shown.approval(self.approval(call, 60)) } else { shown }
    }

    pub fn show(&self, call: &Call) -> Bytes {
        encoded(&self.envelope(call))
    }

    /// `call` by another subject, with a fresh nonce and proof.
    pub fn show_by(&self, subject: &KeySigner, call: &Call) -> Bytes {
        let nonce = self.nonce_for(subject, call, 60);
        let proof = self.proof_by(subject, call, &nonce);
        encoded(&Envelope::new(call.clone(), Bytes::from_static(ARGUMENTS)).nonce(nonce).proof(proof))
    }
}

pub fn encoded(envelope: &Envelope) -> Bytes {
    envelope.encode().expect("within its bounds").into()
}

pub fn journal(path: &Path) -> Arc<dyn Store> {
    Arc::new(Journal::open(path, JournalConfig::default()).expect("the journal opens"))
}

async fn open(engine: Arc<dyn Store>, clock: &Arc<ManualClock>, config: SingleUseConfig) -> (GroupCommit, SingleUse) {
    let commit = GroupCommit::open(engine, CommitConfig::default()).await.expect("group commit opens");
    let single_use = SingleUse::open(&commit, clock.clone(), config).await.expect("single-use authority opens");
    (commit, single_use)
}

/// Makes `service` ready, and calls it.
pub async fn ask<R, S: Service<R>>(service: &mut S, request: R) -> Result<S::Response, S::Error> {
    service.ready().await?.call(request).await
}

/// The code of what must have failed, and whether it consumed anything.
pub fn refused<T: std::fmt::Debug, E: std::fmt::Debug>(answer: Result<T, CallError<E>>) -> (&'static str, Consumed) {
    match answer {
        Ok(answer) => panic!("answered {answer:?}"),
        Err(error) => (error.code(), error.consumed()),
    }
}
