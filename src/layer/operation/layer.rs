use tower::Layer;

use super::OperationService;
use crate::layer::single_use::SingleUse;

/// Runs each operation once, and answers its retries. See the [module](super).
///
/// ```
/// use std::{convert::Infallible, sync::Arc};
///
/// use admit_one::layer::credential::{Envelope, EnvelopeExtractor, Nonce, Permitted, Possession};
/// use admit_one::layer::single_use::{Call, Outcome, OutcomeKind, SingleUse, SingleUseConfig};
/// use admit_one::layer::{nonce::NonceLayer, operation::OperationLayer};
/// use admit_one::{CommitConfig, GroupCommit, Journal, JournalConfig, KeySigner, SystemClock, clock::Clock};
/// use bytes::Bytes;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("tools.store");
/// // The store: one directory, one group commit. It may be the one that admission runs on.
/// let clock = Arc::new(SystemClock::new());
/// let commit = GroupCommit::open(Arc::new(Journal::open(path, JournalConfig::default())?), CommitConfig::default()).await?;
/// let single_use = SingleUse::open(&commit, clock.clone(), SingleUseConfig::new()).await?;
/// # let single_use = {
/// #     drop(single_use);
/// #     let store = Arc::new(Journal::open(directory.path().join("other"), JournalConfig::default())?);
/// #     let commit = GroupCommit::open(store, CommitConfig::default()).await?;
/// #     // A new store refuses what was issued before it began, and for some seconds after; not here.
/// #     let config = SingleUseConfig { birth_mark: false, ..SingleUseConfig::new() };
/// #     SingleUse::open(&commit, clock.clone(), config).await?
/// # };
///
/// // The tool: it runs once for each operation.
/// let (issuer, subject) = (KeySigner::generate(), KeySigner::generate());
/// let mut tool = ServiceBuilder::new()
///     .layer(NonceLayer::new(single_use.clone(), EnvelopeExtractor::new(), [issuer.key()]))
///     .layer(OperationLayer::new(single_use))
///     .service(service_fn(async |call: Permitted<Bytes>| {
///         let bytes = Bytes::from(format!("kept {} bytes", call.arguments().len()));
///         Ok::<_, Infallible>(Outcome { kind: OutcomeKind::Receipt, bytes })
///     }));
///
/// // A call, the issuer's leave for it, and the subject's proof: once for each attempt.
/// let now = i64::try_from(clock.wall() / 1_000)?;
/// let arguments = Bytes::from_static(b"a note");
/// let call = Call {
///     tenant: "acme".into(),
///     request_id: "review-1".into(),
///     method: "notes/append".into(),
///     arguments: Call::hash_arguments(&arguments),
///     intent: None,
///     issued_at: Some(now),
///     deadline: Some(now + 600),
/// };
/// let attempt = || {
///     let leave = Nonce::new(issuer.key(), &call, subject.key(), subject.key(), now, now + 60).sign(&issuer);
///     let proof = Possession::new(&call, &subject.key(), Some(leave.digest()), now, now + 60).sign(&subject);
///     Envelope::new(call.clone(), arguments.clone()).nonce(leave).proof(proof).encode().map(Bytes::from)
/// };
///
/// let first = tool.ready().await?.call(attempt()?).await?;
/// assert_eq!(first.outcome().bytes, "kept 6 bytes");
/// let retry = tool.ready().await?.call(attempt()?).await?;
/// assert!(!first.replayed() && retry.replayed());
/// assert_eq!(retry.outcome(), first.outcome());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OperationLayer {
    pub(super) single_use: SingleUse,
    pub(super) detached: bool,
}

impl OperationLayer {
    /// Over this store, which the layers in front of it must share.
    pub const fn new(single_use: SingleUse) -> Self {
        Self { single_use, detached: false }
    }

    /// Runs each call in a task of its own, so that the handler runs to its end and its outcome is recorded though the
    /// caller goes away; a retry waits for it. Without this a caller that goes away once its call began takes the handler
    /// with it, and the outcome is unknown until the deadline.
    ///
    /// A handler that never ends then holds its operation until the process does: give it a timeout.
    #[must_use]
    pub const fn detached(mut self) -> Self {
        self.detached = true;
        self
    }
}

impl<S> Layer<S> for OperationLayer {
    type Service = OperationService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        OperationService::new(self.clone(), inner)
    }
}
