use std::{fmt, num::NonZeroUsize, sync::Arc};

use tower::Layer;

use super::{
    admit::{Admit, AdmitLayer},
    boundary::Admission,
    forward::{Forward, ForwardLayer, Forwarding, NoForward},
    inbox::Inbox,
    reassembly::{Reassemble, ReassemblyConfig, ReassemblyLayer},
    report::{Report, ReportLayer},
    resolve::{Resolve, ResolveLayer},
    verify::{Rules, Verify, VerifyLayer},
};
use crate::{
    identity::{Did, Signer},
    message::{Classifier, FRAME_LIMIT, NetworkId, TagClassifier},
};

/// The whole way in: [`Report`], then [`Resolve`], then [`Verify`], then [`Forward`], then [`Reassemble`], then
/// [`Admit`], around a handler.
///
/// The service it makes is a `tower::Service<Arrival>` that answers [`Outcome`](super::Outcome). It is ready but while
/// a message in chunks that it took the last of is joined. Its clones, and the services of one layer's clones, share
/// one boundary, one order of turns, what is gathered, and one memory of verified delegations.
///
/// Namespaces that delegate their replay protection (law L6) are registered on the boundary: with
/// [`Admission::open_delegating`] for the run, and while it runs with [`Admission::register`] and
/// [`Admission::withdraw`].
///
/// ```
/// use std::convert::Infallible;
///
/// use admit_one::identity::Did;
/// use admit_one::layer::{AdmissionLayer, Admitted, Outcome, boundary::Admission};
/// use admit_one::link::Arrival;
/// use admit_one::message::NetworkId;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// async fn take(admission: Admission, this_node: Did, frame: Arrival) {
///     let mut service = ServiceBuilder::new()
///         .layer(AdmissionLayer::builder(NetworkId(1), this_node, admission).build())
///         .service(service_fn(async |admitted: Admitted| Ok::<_, Infallible>(admitted.sequence())));
///     match service.ready().await.expect("always ready").call(frame).await {
///         Ok(Outcome::Dispatched(sequence)) => println!("handled {sequence}"),
///         Ok(_) => println!("sent on, or a part of more"),
///         Err(error) => println!("{error}"),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct AdmissionLayer<F = NoForward> {
    resolve: ResolveLayer,
    verify: VerifyLayer,
    forward: ForwardLayer<F>,
    reassembly: ReassemblyLayer,
    admit: AdmitLayer,
}

/// Makes an [`AdmissionLayer`].
#[must_use]
pub struct AdmissionLayerBuilder<F = NoForward> {
    network: NetworkId,
    local: Did,
    admission: Admission,
    classifier: Arc<dyn Classifier>,
    concurrency: NonZeroUsize,
    frame_limit: usize,
    reassembly: ReassemblyConfig,
    forwarding: Option<Forwarding<F>>,
    evidence: Option<Arc<dyn Signer>>,
}

impl AdmissionLayer {
    /// Admits through `admission` what is of `network` and for `local`, this node. The clock, its tolerance σ and
    /// the greatest time to live are the boundary's own.
    pub fn builder(network: NetworkId, local: Did, admission: Admission) -> AdmissionLayerBuilder {
        AdmissionLayerBuilder {
            network,
            local,
            admission,
            classifier: Arc::new(TagClassifier),
            concurrency: NonZeroUsize::MIN,
            frame_limit: FRAME_LIMIT,
            reassembly: ReassemblyConfig::default(),
            forwarding: None,
            evidence: None,
        }
    }
}

impl<F> AdmissionLayerBuilder<F> {
    /// Derives classes by `classifier`; default [`TagClassifier`]. Every node of an overlay needs the same one, and so do
    /// all layers over one boundary: once namespaces are registered on it, the first that reads anything of class
    /// Application is the run's, and what another one read is refused.
    pub fn classifier(mut self, classifier: Arc<dyn Classifier>) -> Self {
        self.classifier = classifier;
        self
    }

    /// Lets `concurrency` handlers of one channel run at once; default 1. They are called in admission order
    /// whatever it is (law L5.6).
    pub const fn concurrency(mut self, concurrency: NonZeroUsize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Refuses frames of more than `limit` bytes; default [`FRAME_LIMIT`].
    pub const fn frame_limit(mut self, limit: usize) -> Self {
        self.frame_limit = limit;
        self
    }

    /// Bounds what is held of messages in chunks; see [`ReassemblyConfig`].
    pub const fn reassembly(mut self, config: ReassemblyConfig) -> Self {
        self.reassembly = config;
        self
    }

    /// Carries transactions for other nodes on; without it they are refused.
    pub fn forward<G>(self, forwarding: Forwarding<G>) -> AdmissionLayerBuilder<G> {
        AdmissionLayerBuilder {
            network: self.network,
            local: self.local,
            admission: self.admission,
            classifier: self.classifier,
            concurrency: self.concurrency,
            frame_limit: self.frame_limit,
            reassembly: self.reassembly,
            forwarding: Some(forwarding),
            evidence: self.evidence,
        }
    }

    /// Signs evidence of forks with this node's key; without it a fork is refused with both digests alone.
    pub fn evidence(mut self, signer: Arc<dyn Signer>) -> Self {
        self.evidence = Some(signer);
        self
    }

    /// Makes the layer.
    #[must_use]
    pub fn build(self) -> AdmissionLayer<F> {
        let clock = Arc::clone(self.admission.clock());
        let classifier = self.classifier.identity();
        let slots = self.admission.config().shares.slots;
        let rules = Rules {
            network: self.network,
            local: self.local,
            classifier: self.classifier,
            sigma: self.admission.config().sigma,
            greatest_ttl: self.admission.config().greatest_ttl,
        };
        let verify = VerifyLayer::new(rules, Arc::clone(&clock));
        AdmissionLayer {
            resolve: ResolveLayer::new(self.frame_limit),
            reassembly: ReassemblyLayer::new(verify.clone(), Arc::clone(&clock), self.reassembly),
            verify,
            forward: ForwardLayer::new(self.local, clock, slots, self.forwarding),
            admit: AdmitLayer::new(self.local, classifier, self.admission, self.concurrency, self.evidence),
        }
    }
}

impl<F> AdmissionLayer<F> {
    /// Its five steps, for who has something to put between them: outermost first, to be wrapped in a [`ReportLayer`].
    pub fn into_steps(self) -> (ResolveLayer, VerifyLayer, ForwardLayer<F>, ReassemblyLayer, AdmitLayer) {
        (self.resolve, self.verify, self.forward, self.reassembly, self.admit)
    }
}

impl<F> AdmissionLayer<F> {
    /// What an application with a store-and-forward inbox of its own gives its mail to (law L10.6). It shares the layer's
    /// boundary, so that a transaction is admitted once whichever way its copies come.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.verify.clone(), self.admit.clone())
    }
}

impl<F> Clone for AdmissionLayer<F> {
    fn clone(&self) -> Self {
        Self {
            resolve: self.resolve.clone(),
            verify: self.verify.clone(),
            forward: self.forward.clone(),
            reassembly: self.reassembly.clone(),
            admit: self.admit.clone(),
        }
    }
}

impl<H, F> Layer<H> for AdmissionLayer<F> {
    type Service = Report<Resolve<Verify<Forward<Reassemble<Admit<H>>, F>>>>;

    fn layer(&self, handler: H) -> Self::Service {
        let gathered = self.reassembly.layer(self.admit.layer(handler));
        ReportLayer.layer(self.resolve.layer(self.verify.layer(self.forward.layer(gathered))))
    }
}

impl<F> fmt::Debug for AdmissionLayerBuilder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionLayerBuilder")
            .field("network", &self.network)
            .field("local", &self.local)
            .field("concurrency", &self.concurrency)
            .field("frame_limit", &self.frame_limit)
            .field("reassembly", &self.reassembly)
            .field("forwarding", &self.forwarding)
            .finish_non_exhaustive()
    }
}
