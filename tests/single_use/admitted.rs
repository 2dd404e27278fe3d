//! Calls in transactions that this node admits: their origin is the subject, on the same store.

use std::sync::Arc;

use admit_one::{
    Admission, AdmissionConfig, AdmissionLayer, KeySigner, NetworkId,
    clock::Clock,
    identity::{Proof, Signer},
    layer::{
        AdmissionError, Outcome as Way,
        credential::{AdmittedExtractor, CallError, Envelope},
        effect::DispatchLayer,
        nonce::NonceLayer,
        operation::{Answer, OperationLayer},
        single_use::{Call, Consumed, SingleUseConfig},
    },
    link::{Arrival, LinkId},
    message::{
        Class, Content, DEFAULT_TTL_MS, FRAME_LIMIT, Incarnation, Kind, Payload, TagClassifier, Transaction, TxId,
    },
};
use bytes::Bytes;
use tower::{Service, ServiceBuilder};

use crate::{
    engine::MockEngine,
    operations::operated,
    tool::Tool,
    world::{ARGUMENTS, World, ask},
};

const NETWORK: NetworkId = NetworkId(7);

struct Node {
    world: World,
    admission: Admission,
    signer: KeySigner,
    next: u64,
}

impl Node {
    async fn start() -> Self {
        let world = World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await;
        // On the same group commit.
        let admission = Admission::open(&world.commit, world.clock.clone(), AdmissionConfig::default()).await;
        let admission = admission.expect("the boundary opens");
        world.clock.advance(std::time::Duration::from_secs(60));
        Self { world, admission, signer: KeySigner::generate(), next: 0 }
    }

    fn layer(&self) -> AdmissionLayer {
        AdmissionLayer::builder(NETWORK, self.signer.key(), self.admission.clone()).build()
    }

    fn operated(
        &self,
        tool: &Tool,
    ) -> impl Service<Arrival, Response = Way<Answer>, Error = AdmissionError<CallError<&'static str>>> + use<> {
        let single_use = self.world.single_use.clone();
        ServiceBuilder::new()
            .layer(self.layer())
            .layer(NonceLayer::new(single_use.clone(), AdmittedExtractor::new(), []))
            .layer(OperationLayer::new(single_use))
            .service(tool.clone())
    }

    /// A transaction by `origin` with this envelope, of class E2e or in the namespace.
    fn transaction(&mut self, origin: &KeySigner, envelope: &Envelope, namespace: Option<&str>) -> Arrival {
        let envelope = envelope.encode().expect("within its bounds");
        let (class, data) = match namespace {
            None => (Class::E2e, [&[Class::E2e.lane()], envelope.as_slice()].concat()),
            Some(name) => {
                (Class::Application, TagClassifier::application(name, &envelope).expect("a short name").to_vec())
            }
        };
        let (destination, issued_at) = (self.signer.key(), self.world.clock.wall());
        let sequence = self.next;
        self.next += 1;
        let content = Content {
            destination,
            tx_id: TxId::random(),
            incarnation: Incarnation::new(issued_at, 1),
            sequence,
            issued_at,
            ttl: DEFAULT_TTL_MS,
            kind: Kind::Whole,
            data: data.into(),
        };
        let speaker = origin.slot().speaker().expect("no reference");
        let digest = content.digest(NETWORK, &speaker, class);
        let prove = |message| Proof { slot: origin.slot(), signature: origin.sign_now(&message) };
        let (proof, hop) = (prove(digest.0), prove(Payload::hop_digest(&digest, &destination, 0)));
        let transaction = Transaction { content, proof };
        let payload = Payload { transaction, next_hop: destination, hop_budget: 0, proof: hop };
        let bytes = payload.encode(FRAME_LIMIT).expect("it fits a frame");
        Arrival::from_parts(origin.key().to_peer_id(), LinkId::of(0), bytes)
    }

    fn bare(&self, call: &Call) -> Envelope {
        Envelope::new(call.clone(), Bytes::from_static(ARGUMENTS))
    }
}

fn dispatched(answer: Result<Way<Answer>, AdmissionError<CallError<&'static str>>>) -> Answer {
    match answer {
        Ok(Way::Dispatched(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn l12_4_an_operation_is_one_over_both_ways_in() {
    let (mut node, tool) = (Node::start().await, Tool::new());
    let (mut by_transaction, mut by_request) = (node.operated(&tool), operated(&node.world, &tool));
    let subject = node.world.subject.clone();
    let call = node.world.call("review-1");
    let first = node.transaction(&subject, &node.bare(&call), None);
    let first = dispatched(ask(&mut by_transaction, first).await);
    assert!(!first.replayed());
    // Retried in another transaction, in a namespace, and in a request with a nonce and a proof.
    for namespace in [None, Some("tools")] {
        let retry = node.transaction(&subject, &node.bare(&call), namespace);
        let retry = dispatched(ask(&mut by_transaction, retry).await);
        assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    }
    let retry = ask(&mut by_request, node.world.show(&call)).await.unwrap();
    assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    assert_eq!(node.world.single_use.health().nonces, 0, "admission took each transaction once already");
    // And the other way about.
    let call = node.world.call("review-2");
    let first = ask(&mut by_request, node.world.show(&call)).await.unwrap();
    let retry = node.transaction(&subject, &node.bare(&call), None);
    assert_eq!(dispatched(ask(&mut by_transaction, retry).await).outcome(), first.outcome());
    assert_eq!(tool.control.runs(), 2);
}

#[tokio::test]
async fn l12_4_the_origin_is_the_subject_and_another_origin_meets_a_conflict() {
    let (mut node, tool) = (Node::start().await, Tool::new());
    let mut service = node.operated(&tool);
    let (subject, thief) = (node.world.subject.clone(), KeySigner::generate());
    let call = node.world.call("review-1");
    let first = node.transaction(&subject, &node.bare(&call), None);
    dispatched(ask(&mut service, first).await);
    let stolen = node.transaction(&thief, &node.bare(&call), None);
    let Err(AdmissionError::Handler(error)) = ask(&mut service, stolen).await else { panic!("it is refused") };
    assert_eq!((error.code(), error.consumed()), ("conflict", Consumed::No));
    // What a thief carries with the subject's own proof is the subject's call.
    let nonce = node.world.nonce(&call, 60);
    let proof = node.world.proof(&call, &nonce);
    let carried = node.bare(&call).proof(proof).nonce(nonce);
    let single_use = node.world.single_use.clone();
    let mut trusting = ServiceBuilder::new()
        .layer(node.layer())
        .layer(NonceLayer::new(single_use.clone(), AdmittedExtractor::new(), [node.world.issuer.key()]))
        .layer(OperationLayer::new(single_use))
        .service(tool.clone());
    let carried = node.transaction(&thief, &carried, None);
    assert!(dispatched(ask(&mut trusting, carried).await).replayed());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_1_where_issuers_are_trusted_a_transaction_needs_a_nonce_too() {
    let (mut node, tool) = (Node::start().await, Tool::new());
    let single_use = node.world.single_use.clone();
    let mut service = ServiceBuilder::new()
        .layer(node.layer())
        .layer(NonceLayer::new(single_use.clone(), AdmittedExtractor::new(), [node.world.issuer.key()]))
        .layer(DispatchLayer::new(single_use))
        .service(tool.clone());
    let (subject, call) = (node.world.subject.clone(), node.world.call("stamp-1"));
    let code = |answer: Result<_, AdmissionError<CallError<&'static str>>>| match answer {
        Ok(Way::Dispatched(_)) => "answered",
        Err(AdmissionError::Handler(error)) => error.code(),
        other => panic!("{other:?}"),
    };
    let bare = node.transaction(&subject, &node.bare(&call), None);
    assert_eq!(code(ask(&mut service, bare).await), "credential_missing");
    let with = node.bare(&call).nonce(node.world.nonce(&call, 60));
    let stolen = node.transaction(&KeySigner::generate(), &with, None);
    assert_eq!(code(ask(&mut service, stolen).await), "request_binding_mismatch");
    let shown = node.transaction(&subject, &with, None);
    assert_eq!(code(ask(&mut service, shown).await), "answered");
    // Another transaction, and the same nonce.
    let again = node.transaction(&subject, &with, None);
    assert_eq!(code(ask(&mut service, again).await), "replayed");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn a_delegated_key_calls_as_its_delegator() {
    let (mut node, tool) = (Node::start().await, Tool::new());
    let mut service = node.operated(&tool);
    let (account, device) = (node.world.subject.clone(), KeySigner::generate());
    let call = node.world.call("review-1");
    let own = node.transaction(&account, &node.bare(&call), None);
    let first = dispatched(ask(&mut service, own).await);
    let delegation = account.delegate(device.key(), node.world.clock.wall(), 60_000);
    let device = device.with_delegation(delegation).expect("it is for this key");
    let retry = node.transaction(&device, &node.bare(&call), None);
    assert_eq!(dispatched(ask(&mut service, retry).await).outcome(), first.outcome());
}

#[tokio::test]
async fn data_that_is_no_envelope_is_refused_and_a_shorter_head_than_data_harms_nobody() {
    let (mut node, tool) = (Node::start().await, Tool::new());
    let single_use = node.world.single_use.clone();
    let extractor = AdmittedExtractor::default().head(|_| usize::MAX).limit(64);
    let mut service = ServiceBuilder::new()
        .layer(node.layer())
        .layer(NonceLayer::new(single_use.clone(), extractor, []))
        .layer(OperationLayer::new(single_use))
        .service(tool.clone());
    let subject = node.world.subject.clone();
    let call = node.world.call("review-1");
    let arrival = node.transaction(&subject, &node.bare(&call), None);
    let Err(AdmissionError::Handler(error)) = ask(&mut service, arrival).await else { panic!("it is refused") };
    assert_eq!(error.code(), "credential_malformed");
    assert_eq!(tool.control.runs(), 0);
}
