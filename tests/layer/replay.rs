//! What the boundary refuses, as the layer answers it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admit_one::{
    clock::DEFAULT_SIGMA_MS,
    identity::KeySigner,
    layer::{Outcome, Refusal},
    message::{Class, Incarnation},
};
use tower::{Service, ServiceBuilder, service_fn};

use crate::fixture::{Calls, Counters, Node, Sender, accept, refused};

#[tokio::test]
async fn l5_3_a_transaction_is_dispatched_once_however_it_is_signed_or_carried_again() {
    let counters = Counters::record();
    let node = Node::start().await;
    let calls = Calls::default();
    let noted = calls.clone();
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(move |admitted| {
        noted.note(&admitted);
        std::future::ready(Ok(admitted.sequence()))
    }));
    let mut origin = Sender::new(&node.clock);
    let payload = origin.next(node.did(), b"\x01stored");
    assert_eq!(service.call(origin.arrival(&payload)).await.expect("the first"), Outcome::Dispatched(0));
    assert_eq!(counters.take("admit_one_verdicts_total", "class"), HashMap::from([("storage".into(), 1)]));

    assert!(matches!(refused(service.call(origin.arrival(&payload)).await), Refusal::Replay), "an exact copy");
    let again = origin.sign(payload.transaction.content.clone(), node.did(), 3);
    assert!(matches!(refused(service.call(origin.arrival(&again)).await), Refusal::Replay), "with another budget");
    let relay = Sender::new(&node.clock);
    let content = &payload.transaction.content;
    let digest = content.digest(crate::fixture::NETWORK, &origin.origin(), Class::Storage);
    let relayed = crate::fixture::hop(payload.transaction.clone(), digest, &relay.signer, node.did(), 0);
    assert!(matches!(refused(service.call(relay.arrival(&relayed)).await), Refusal::Replay), "by another's way");
    assert_eq!(counters.refusals(), HashMap::from([("replay".into(), 3)]), "each counted once");
    assert_eq!(calls.sequences(), [0]);
}

#[tokio::test]
async fn l5_3_a_fork_is_refused_with_evidence_that_this_node_signed() {
    let node = Node::start().await;
    let layer = node.layer().evidence(Arc::new(node.signer.clone())).build();
    let mut service = ServiceBuilder::new().layer(layer).service(service_fn(accept));
    let mut origin = Sender::new(&node.clock);
    let first = origin.next(node.did(), b"\x02one");
    let kept = first.transaction.content.digest(crate::fixture::NETWORK, &origin.origin(), Class::E2e);
    service.call(origin.arrival(&first)).await.expect("admitted");
    origin.next = 0;
    let second = origin.next(node.did(), b"\x02two");
    match refused(service.call(origin.arrival(&second)).await) {
        Refusal::Fork { kept: shown, refused, evidence: Some(evidence) } => {
            assert_eq!((shown, evidence.kept, evidence.refused_digest()), (kept, kept, refused));
            assert_eq!(evidence.refused, second.transaction);
            assert_eq!(evidence.verify(DEFAULT_SIGMA_MS), Ok(()));
        }
        other => panic!("no fork with evidence: {other:?}"),
    }
}

#[tokio::test]
async fn l5_3_without_a_key_for_evidence_a_fork_is_refused_all_the_same() {
    let node = Node::start().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let mut origin = Sender::new(&node.clock);
    let first = origin.next(node.did(), b"\x02one");
    service.call(origin.arrival(&first)).await.expect("admitted");
    origin.next = 0;
    let second = origin.next(node.did(), b"\x02two");
    let refusal = refused(service.call(origin.arrival(&second)).await);
    assert!(matches!(refusal, Refusal::Fork { evidence: None, .. }), "{refusal}");
}

#[tokio::test]
async fn every_refusal_of_the_boundary_keeps_its_name() {
    let node = Node::start().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let mut origin = Sender::new(&node.clock);
    origin.next = 100;
    let payload = origin.next(node.did(), b"\x02hundred");
    service.call(origin.arrival(&payload)).await.expect("admitted");

    origin.next = 100 - 32;
    let payload = origin.next(node.did(), b"\x02late");
    let refusal = refused(service.call(origin.arrival(&payload)).await);
    assert!(
        matches!(refusal, Refusal::Stale { lowest: 69, incarnation } if incarnation == origin.incarnation),
        "{refusal}"
    );

    origin.incarnation = Incarnation::new(payload.transaction.content.issued_at + DEFAULT_SIGMA_MS + 1, 0);
    let payload = origin.next(node.did(), b"\x02ahead");
    assert_eq!(refused(service.call(origin.arrival(&payload)).await).label(), "incarnation_ahead");

    // A second node opens later than this was issued.
    let young = Node::start().await;
    let mut early = Sender::new(&young.clock);
    let mut content = early.content(young.did(), b"\x02early");
    content.issued_at -= Duration::from_secs(60).as_millis() as u64;
    let payload = early.sign(content, young.did(), 0);
    let mut service = ServiceBuilder::new().layer(young.layer().build()).service(service_fn(accept));
    assert_eq!(refused(service.call(early.arrival(&payload)).await).label(), "before_mark");
}

#[tokio::test]
async fn l1_3_a_rotated_delegatee_keeps_its_stream() {
    let node = Node::start().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let account = KeySigner::generate();
    let device = || {
        let key = KeySigner::generate();
        let now = admit_one::clock::Clock::wall(&*node.clock);
        let delegation = account.delegate(key.key(), now, 60_000);
        Sender::with(&node.clock, key.with_delegation(delegation).expect("for this key"))
    };
    let mut first = device();
    let payload = first.next(node.did(), b"\x02before");
    service.call(first.arrival(&payload)).await.expect("admitted");
    let mut second = device();
    (second.next, second.incarnation) = (0, first.incarnation);
    let payload = second.next(node.did(), b"\x02again");
    assert_eq!(
        refused(service.call(second.arrival(&payload)).await).label(),
        "fork",
        "the same sequence of one stream"
    );
    let payload = second.next(node.did(), b"\x02after");
    service.call(second.arrival(&payload)).await.expect("admitted");
    assert_eq!(node.streams(), 1);
}
