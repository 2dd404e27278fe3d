//! Nonces without an operation: consumed at the effect boundary.

use std::sync::Arc;

use admit_one::layer::{
    credential::{CallError, EnvelopeExtractor, Nonce, Possession},
    effect::DispatchLayer,
    nonce::NonceLayer,
    single_use::{Call, Consumed, Outcome, SingleUseConfig},
};
use bytes::Bytes;
use tower::{Service, ServiceBuilder, ServiceExt, util::MapRequestLayer};

use crate::{
    engine::{Gate, MockEngine},
    tool::Tool,
    world::{ARGUMENTS, World, ask, encoded, refused},
};

async fn world() -> World {
    World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await
}

fn stamp(
    world: &World,
    tool: &Tool,
) -> impl Service<Bytes, Response = Outcome, Error = CallError<&'static str>, Future: Send + 'static> + Clone + use<> {
    ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone())
}

#[tokio::test]
async fn l12_1_a_proof_is_accepted_once_and_a_fresh_one_again() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let call = world.call("stamp-1");
    let original = world.show(&call);
    assert_eq!(ask(&mut service, original.clone()).await.unwrap().bytes, "run 1");
    assert_eq!(refused(ask(&mut service, original).await), ("replayed", Consumed::Yes));
    assert_eq!(ask(&mut service, world.show(&call)).await.unwrap().bytes, "run 2");
}

#[tokio::test]
async fn l12_1_a_nonce_that_met_a_wrong_binding_is_not_burnt() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let call = world.call("stamp-1");
    let nonce = world.nonce(&call, 60);
    let show = |call: &Call, arguments: &'static [u8]| {
        let call = Call { arguments: Call::hash_arguments(arguments), ..call.clone() };
        let proof = world.proof(&call, &nonce);
        let envelope = admit_one::layer::credential::Envelope::new(call, Bytes::from_static(arguments));
        encoded(&envelope.nonce(nonce.clone()).proof(proof))
    };
    let mismatch = ("request_binding_mismatch", Consumed::No);
    assert_eq!(refused(ask(&mut service, show(&call, b"another note")).await), mismatch);
    let renamed = Call { request_id: "stamp-2".into(), ..call.clone() };
    assert_eq!(refused(ask(&mut service, show(&renamed, ARGUMENTS)).await), mismatch);
    assert_eq!(tool.control.runs(), 0);
    assert!(ask(&mut service, show(&call, ARGUMENTS)).await.is_ok());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_1_another_key_is_refused_and_burns_nothing() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let (call, thief) = (world.call("stamp-1"), admit_one::KeySigner::generate());
    let nonce = world.nonce(&call, 60);
    let now = world.now();
    let proof = Possession::new(&call, &world.subject.key(), Some(nonce.digest()), now, now + 60).sign(&thief);
    let envelope = world.envelope(&call).nonce(nonce.clone());
    let refusal = refused(ask(&mut service, encoded(&envelope.clone().proof(proof))).await);
    assert_eq!(refusal, ("request_binding_mismatch", Consumed::No));
    let own = encoded(&envelope.proof(world.proof(&call, &nonce)));
    assert!(ask(&mut service, own).await.is_ok());
}

#[tokio::test]
async fn l12_1_without_trusted_issuers_a_proof_alone_is_taken_once() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = ServiceBuilder::new()
        .layer(NonceLayer::new(world.single_use.clone(), EnvelopeExtractor::new(), []))
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    let (call, now) = (world.call("stamp-1"), world.now());
    let show = |until| {
        let proof = Possession::new(&call, &world.subject.key(), None, now, until).sign(&world.subject);
        let envelope = admit_one::layer::credential::Envelope::new(call.clone(), Bytes::from_static(ARGUMENTS));
        encoded(&envelope.proof(proof))
    };
    let original = show(now + 60);
    assert!(ask(&mut service, original.clone()).await.is_ok());
    assert_eq!(refused(ask(&mut service, original).await), ("replayed", Consumed::Yes));
    assert!(ask(&mut service, show(now + 60)).await.is_ok());
    assert_eq!(refused(ask(&mut service, show(now + 61)).await), ("lifetime_too_long", Consumed::No));
    let patient = NonceLayer::new(world.single_use.clone(), EnvelopeExtractor::new(), []).possession_lifetime(120);
    let mut service =
        ServiceBuilder::new().layer(patient).layer(DispatchLayer::new(world.single_use.clone())).service(tool);
    assert!(ask(&mut service, show(now + 120)).await.is_ok());
}

#[tokio::test]
async fn any_handler_can_stand_behind_the_boundary() {
    let world = world().await;
    let mut service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .layer(MapRequestLayer::new(admit_one::layer::credential::Permitted::into_request))
        .service(tower::service_fn(async |request: Bytes| Ok::<_, std::convert::Infallible>(request.len())));
    let shown = world.show(&world.call("stamp-1"));
    assert_eq!(ask(&mut service, shown.clone()).await.unwrap(), shown.len());
}

#[tokio::test]
async fn l12_8_the_instance_that_was_polled_ready_is_the_one_that_is_called() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    // The mock asserts it; several calls of one service, and of its clones.
    for request in 0..3 {
        let shown = world.show(&world.call(&format!("stamp-{request}")));
        assert!(ask(&mut service, shown).await.is_ok());
        let shown = world.show(&world.call(&format!("cloned-{request}")));
        assert!(ask(&mut service.clone(), shown).await.is_ok());
    }
    assert_eq!(tool.control.runs(), 6);
}

#[tokio::test]
async fn a_handler_that_is_not_ready_consumes_nothing_and_one_that_fails_consumes_all() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let shown = world.show(&world.call("stamp-1"));
    tool.control.fail_ready(true);
    assert_eq!(refused(ask(&mut service, shown.clone()).await), ("handler_not_ready", Consumed::No));
    tool.control.fail_ready(false);
    tool.control.fail(true);
    assert_eq!(refused(ask(&mut service, shown.clone()).await), ("handler_failed", Consumed::Yes));
    tool.control.fail(false);
    assert_eq!(refused(ask(&mut service, shown).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_8_a_failure_to_record_after_the_call_is_outcome_unknown_and_the_mark_stays() {
    let engine = Arc::new(MockEngine::new());
    let (world, tool) = (World::on(engine.clone(), SingleUseConfig::new()).await, Tool::new());
    let mut service = stamp(&world, &tool);
    let shown = world.show(&world.call("stamp-1"));
    tool.control.let_end(false);
    let answer = tokio::spawn(service.ready().await.unwrap().call(shown.clone()));
    tool.control.called(1).await;
    engine.set(Gate::Failing);
    tool.control.let_end(true);
    assert_eq!(refused(answer.await.unwrap()), ("outcome_unknown", Consumed::Yes));
    engine.set(Gate::Open);
    assert_eq!(refused(ask(&mut service, shown).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_2_a_caller_that_goes_away_once_it_was_dispatched_gives_nothing_back() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let shown = world.show(&world.call("stamp-1"));
    tool.control.let_end(false);
    let answer = tokio::spawn(service.ready().await.unwrap().call(shown.clone()));
    tool.control.called(1).await;
    answer.abort();
    assert!(answer.await.unwrap_err().is_cancelled());
    tool.control.let_end(true);
    assert_eq!(refused(ask(&mut service, shown).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 0);
}

#[tokio::test]
async fn l12_1_two_nonces_of_one_id_by_one_issuer_are_one() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = stamp(&world, &tool);
    let call = world.call("stamp-1");
    let nonce = world.nonce(&call, 60).nonce;
    let show = |seconds| {
        let nonce = Nonce { expires_at: world.now() + seconds, ..nonce.clone() }.sign(&world.issuer);
        let proof = world.proof(&call, &nonce);
        encoded(&world.envelope(&call).nonce(nonce).proof(proof))
    };
    assert!(ask(&mut service, show(30)).await.is_ok());
    assert_eq!(refused(ask(&mut service, show(120)).await), ("replayed", Consumed::Yes));
    // The later expiry, though refused, is how long the mark is kept.
    world.clock.advance(std::time::Duration::from_secs(60));
    let last = Nonce { issued_at: world.now(), expires_at: nonce.expires_at + 55, ..nonce.clone() }.sign(&world.issuer);
    let proof = world.proof(&call, &last);
    let shown = encoded(&world.envelope(&call).nonce(last).proof(proof));
    assert_eq!(refused(ask(&mut service, shown).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
}
