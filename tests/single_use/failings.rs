//! What is known to go wrong elsewhere, one test each.

use std::{sync::Arc, time::Duration};

use admit_one::{
    Journal, JournalConfig, KeySigner,
    layer::{
        credential::{EnvelopeExtractor, Nonce},
        effect::DispatchLayer,
        nonce::NonceLayer,
        operation::OperationLayer,
        single_use::{
            Consumed, Operation, Places, Presentation, Refusal, SingleUse, SingleUseConfig, SingleUseOpenError,
        },
    },
    storage::OpenError,
};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::{
    engine::MockEngine,
    operations::operated,
    tool::Tool,
    world::{World, ask, encoded, journal, refused},
};

async fn world(config: SingleUseConfig) -> World {
    World::on(Arc::new(MockEngine::new()), config).await
}

macro_rules! stamps {
    ($world:expr, $tool:expr) => {
        ServiceBuilder::new()
            .layer($world.nonces())
            .layer(DispatchLayer::new($world.single_use.clone()))
            .service($tool.clone())
    };
}

#[tokio::test]
async fn at_capacity_no_live_mark_is_evicted_and_the_newcomer_is_refused() {
    let config = SingleUseConfig { nonces: Places { per_subject: 4, in_all: 4 }, ..SingleUseConfig::new() };
    let (world, tool) = (world(config).await, Tool::new());
    let mut service = stamps!(world, tool);
    let shown: Vec<_> = (0..5).map(|place| world.show(&world.call(&format!("stamp-{place}")))).collect();
    for request in &shown[..4] {
        assert!(ask(&mut service, request.clone()).await.is_ok());
    }
    for _ in 0..3 {
        assert_eq!(refused(ask(&mut service, shown[4].clone()).await), ("capacity", Consumed::No));
    }
    for request in &shown[..4] {
        assert_eq!(refused(ask(&mut service, request.clone()).await), ("replayed", Consumed::Yes));
    }
    assert_eq!(tool.control.runs(), 4);
}

#[tokio::test]
async fn one_subject_does_not_fill_the_store_for_all() {
    let config = SingleUseConfig { nonces: Places { per_subject: 2, in_all: 64 }, ..SingleUseConfig::new() };
    let (world, tool) = (world(config).await, Tool::new());
    let mut service = stamps!(world, tool);
    for place in 0..2 {
        assert!(ask(&mut service, world.show(&world.call(&format!("stamp-{place}")))).await.is_ok());
    }
    let refusal = refused(ask(&mut service, world.show(&world.call("stamp-2"))).await);
    assert_eq!(refusal, ("capacity", Consumed::No));
    let other = KeySigner::generate();
    assert!(ask(&mut service, world.show_by(&other, &world.call("stamp-3"))).await.is_ok());
}

#[tokio::test]
async fn a_mark_lasts_by_the_signed_expiry_however_long_ago_it_was_made_and_over_restarts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, tool) = (directory.path().join("store"), Tool::new());
    let mut world = World::at(&path, SingleUseConfig::new()).await;
    let call = admit_one::layer::single_use::Call { deadline: None, ..world.call("stamp-1") };
    let nonce = world.nonce(&call, 3_000);
    let show = |world: &World| {
        let proof = world.proof(&call, &nonce);
        encoded(&world.envelope(&call).nonce(nonce.clone()).proof(proof))
    };
    assert!(ask(&mut stamps!(world, tool), show(&world)).await.is_ok());
    for _ in 0..2 {
        world.clock.advance(Duration::from_secs(1_499));
        assert_eq!(refused(ask(&mut stamps!(world, tool), show(&world)).await), ("replayed", Consumed::Yes));
        world = world.again(|| journal(&path), SingleUseConfig::new()).await;
        assert_eq!(refused(ask(&mut stamps!(world, tool), show(&world)).await), ("replayed", Consumed::Yes));
    }
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(refused(ask(&mut stamps!(world, tool), show(&world)).await), ("expired", Consumed::No));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn a_late_rollback_does_not_reopen_what_another_has_used() {
    let (world, tool) = (world(SingleUseConfig::new()).await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let shown = world.show(&call);
    // The first caller reserves, and is still there when an exact retry continues and ends what it began.
    tool.control.set_ready(false);
    let first = {
        let (mut service, shown) = (service.clone(), shown.clone());
        tokio::spawn(async move { ask(&mut service, shown).await })
    };
    tool.control.waited_for(1).await;
    let operation = Operation::of(&call, world.subject.key()).unwrap();
    let Presentation::Run(reservation) = world.single_use.present(&operation, &[], &[]).await.unwrap() else {
        panic!("it has not begun")
    };
    let dispatching = reservation.begin(&[]).await.unwrap();
    // Now it goes away: what it gives back is not its own any more.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    tool.control.set_ready(true);
    let outcome = admit_one::layer::single_use::Outcome {
        kind: admit_one::layer::single_use::OutcomeKind::Receipt,
        bytes: "by the second".into(),
    };
    dispatching.finish(outcome.clone()).await.unwrap().release(&[]).unwrap();
    assert_eq!(ask(&mut service, shown.clone()).await.unwrap().into_outcome(), outcome);
    assert_eq!(refused(ask(&mut stamps!(world, tool), shown).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 0);
}

#[tokio::test]
async fn a_policy_rollout_does_not_turn_an_honest_retry_into_a_conflict() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, tool) = (directory.path().join("store"), Tool::new());
    let mut world = World::at(&path, SingleUseConfig::new()).await;
    let call = world.call("review-1");
    let first = ask(&mut operated(&world, &tool), world.show(&call)).await.unwrap();
    // Another issuer, other bounds, another process, and a token that was issued anew.
    world.issuer = KeySigner::generate();
    let config = SingleUseConfig { outcome_max: 64, waiters: 1, ..SingleUseConfig::new() };
    let world = world.again(|| journal(&path), config).await;
    let layer = NonceLayer::new(world.single_use.clone(), EnvelopeExtractor::new(), [world.issuer.key()]);
    let mut service = ServiceBuilder::new()
        .layer(layer.possession_lifetime(600))
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone());
    let retry = ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn what_expires_between_the_check_and_the_lock_is_refused_under_the_lock() {
    let (world, tool) = (world(SingleUseConfig::new()).await, Tool::new());
    let call = world.call("stamp-1");
    let nonce = world.nonce(&call, 30);
    let shown = encoded(&world.envelope(&call).nonce(nonce.clone()).proof(world.proof(&call, &nonce)));
    let mut service = stamps!(world, tool);
    // Checked when it is called, and taken up once its time is over.
    let answer = service.ready().await.unwrap().call(shown);
    world.clock.advance(Duration::from_secs(30));
    assert_eq!(refused(answer.await), ("expired", Consumed::No));
    assert_eq!(tool.control.runs(), 0);
}

#[tokio::test]
async fn what_expires_between_the_lock_and_the_dispatch_is_rolled_back() {
    let (world, tool) = (world(SingleUseConfig::new()).await, Tool::new());
    let call = world.call("review-1");
    // The proof ends before the nonce: it is the proof that must hold when the call begins.
    let nonce = world.nonce(&call, 300);
    let shown = encoded(&world.envelope(&call).nonce(nonce.clone()).proof(world.proof(&call, &nonce)));
    let service = operated(&world, &tool);
    tool.control.set_ready(false);
    let answer = {
        let mut service = service.clone();
        tokio::spawn(async move { ask(&mut service, shown).await })
    };
    tool.control.waited_for(1).await;
    world.clock.advance(Duration::from_secs(60));
    tool.control.set_ready(true);
    assert_eq!(refused(answer.await.unwrap()), ("expired", Consumed::No));
    assert_eq!(tool.control.runs(), 0);
    // The nonce was given back, and a fresh proof with it is taken.
    let shown = encoded(&world.envelope(&call).nonce(nonce.clone()).proof(world.proof(&call, &nonce)));
    assert!(ask(&mut service.clone(), shown).await.is_ok());
}

#[tokio::test]
async fn a_store_that_is_owned_is_refused_clearly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let world = World::at(&path, SingleUseConfig::new()).await;
    let error = Journal::open(&path, JournalConfig::default()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let error = SingleUse::open(&world.commit, world.clock.clone(), SingleUseConfig::new()).await.unwrap_err();
    assert_eq!(error, SingleUseOpenError::Taken);
}

#[tokio::test]
async fn a_nonce_signed_anew_with_a_later_expiry_is_the_same_nonce() {
    let (world, tool) = (world(SingleUseConfig::new()).await, Tool::new());
    let mut service = stamps!(world, tool);
    let call = world.call("stamp-1");
    let nonce = world.nonce(&call, 60);
    let show = |nonce: Nonce| {
        let nonce = nonce.sign(&world.issuer);
        let proof = world.proof(&call, &nonce);
        encoded(&world.envelope(&call).nonce(nonce).proof(proof))
    };
    assert!(ask(&mut service, show(nonce.nonce.clone())).await.is_ok());
    let later = Nonce { expires_at: nonce.nonce.expires_at + 300, ..nonce.nonce };
    assert_eq!(refused(ask(&mut service, show(later)).await), ("replayed", Consumed::Yes));
}

#[tokio::test]
async fn a_reservation_is_begun_by_its_owner_alone() {
    let world = world(SingleUseConfig::new()).await;
    let operation = Operation::of(&world.call("review-1"), world.subject.key()).unwrap();
    let reserve = async || match world.single_use.present(&operation, &[], &[]).await.unwrap() {
        Presentation::Run(reservation) => reservation,
        Presentation::Recorded(_) => panic!("it has not run"),
    };
    let (first, second) = (reserve().await, reserve().await);
    assert_eq!(first.begin(&[]).await.unwrap_err(), Refusal::Superseded);
    assert!(second.begin(&[]).await.is_ok());
}
