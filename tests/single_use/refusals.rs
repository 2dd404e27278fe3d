//! Each refusal by its code, what it consumes, and that what it did not consume is as good as before.

use std::{sync::Arc, time::Duration};

use admit_one::{
    KeySigner,
    layer::{
        approval::ApprovalLayer,
        credential::{CallError, Envelope, Nonce, Possession},
        effect::DispatchLayer,
        operation::OperationLayer,
        single_use::{Call, Consumed, Operation, Outcome, Places, Presentation, SingleUse, SingleUseConfig},
    },
    storage::{Batch, Store as _, Table, Write},
};
use bytes::Bytes;
use tower::{Service, ServiceBuilder};

use crate::{
    engine::{Gate, MockEngine},
    operations::operated,
    tool::Tool,
    world::{ARGUMENTS, START, World, ask, encoded, journal, refused},
};

async fn world() -> World {
    World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await
}

/// Behind a nonce and an approval, at the effect boundary.
fn approved(
    world: &World,
    tool: &Tool,
) -> impl Service<Bytes, Response = Outcome, Error = CallError<&'static str>> + use<> {
    ServiceBuilder::new()
        .layer(world.nonces())
        .layer(ApprovalLayer::new(world.single_use.clone(), [world.approver.key()]))
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone())
}

/// What is refused before the store is asked, by its code, with credentials that are good but for one thing.
#[tokio::test]
async fn l12_7_every_refusal_of_credentials_has_its_code_and_consumes_nothing() {
    let engine = Arc::new(MockEngine::new());
    let (world, tool) = (World::on(engine.clone(), SingleUseConfig::new()).await, Tool::new());
    let mut service = approved(&world, &tool);
    let call = world.call("pay-1");
    let good = world.envelope(&call);
    let now = world.now();
    let (subject, thief) = (world.subject.key(), KeySigner::generate());
    let nonce = |issued_at, expires_at| {
        let nonce = Nonce::new(world.issuer.key(), &call, subject, subject, issued_at, expires_at).sign(&world.issuer);
        encoded(&good.clone().proof(world.proof(&call, &nonce)).nonce(nonce))
    };
    let untrusted = Nonce::new(thief.key(), &call, subject, subject, now, now + 60).sign(&thief);
    let mut forged = world.nonce(&call, 60);
    forged.signature = admit_one::identity::Signature([1; 64]);
    let no_deadline = Call { deadline: None, ..call.clone() };
    let over = Call { deadline: Some(now), ..call.clone() };
    let bare = Envelope::new(call.clone(), Bytes::from_static(ARGUMENTS));
    let cases = [
        ("credential_missing", encoded(&bare)),
        (
            "credential_missing",
            encoded(&bare.clone().proof(Possession::new(&call, &subject, None, now, now + 9).sign(&world.subject))),
        ),
        ("credential_malformed", Bytes::from_static(b"A1EN and nothing that follows")),
        ("credential_malformed", Bytes::new()),
        ("expired", nonce(now - 60, now)),
        ("not_yet_valid", nonce(now + 4, now + 60)),
        ("lifetime_too_long", nonce(now, now + 3_601)),
        ("deadline_missing", world.show(&no_deadline)),
        ("deadline_passed", world.show(&over)),
        ("untrusted", encoded(&good.clone().proof(world.proof(&call, &untrusted)).nonce(untrusted))),
        (
            "request_binding_mismatch",
            encoded(&good.clone().proof(world.proof(&world.call("pay-2"), &world.nonce(&call, 60)))),
        ),
        ("bad_signature", encoded(&good.clone().proof(world.proof(&call, &forged)).nonce(forged))),
    ];
    for (code, shown) in cases {
        assert_eq!(refused(ask(&mut service, shown).await), (code, Consumed::No), "{code}");
    }
    assert_eq!(tool.control.runs(), 0);
    for table in [Table::Nonce, Table::Approval, Table::Operation] {
        assert_eq!(engine.count(table), 0, "a refusal stores nothing");
    }
    assert!(ask(&mut service, encoded(&good)).await.is_ok());
}

#[tokio::test]
async fn l12_4_an_operation_needs_a_deadline_and_ends_with_it() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let without = Call { deadline: None, ..call.clone() };
    assert_eq!(refused(ask(&mut service, world.show(&without)).await), ("deadline_missing", Consumed::No));
    let far = Call { deadline: Some(world.now() + 3_601), ..call.clone() };
    assert_eq!(refused(ask(&mut service, world.show(&far)).await), ("lifetime_too_long", Consumed::No));
    ask(&mut service, world.show(&call)).await.unwrap();
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(refused(ask(&mut service, world.show(&call)).await).0, "deadline_passed");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_6_a_clock_behind_the_high_water_mark_refuses_and_a_small_step_back_does_not() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    ask(&mut service, world.show(&world.call("review-1"))).await.unwrap();
    let high = START + 60_000;
    for (back, refuses) in [(1, false), (2_000, false), (3_600_000, true)] {
        world.clock.step_wall_to(high - back);
        let shown = world.show(&world.call(&format!("back-{back}")));
        let answer = ask(&mut service, shown.clone()).await;
        if refuses {
            // Where the instants that were signed are behind the mark too, that is what is said first.
            let (code, consumed) = refused(answer);
            assert_eq!(code, "clock_regressed");
            assert_eq!(consumed, Consumed::No);
            world.clock.step_wall_to(high);
        } else {
            let code = answer.as_ref().err().map(CallError::code);
            assert_eq!(code, None, "{back} ms back");
        }
    }
}

#[tokio::test]
async fn l9_9_what_was_issued_at_or_before_the_birth_of_the_store_is_refused() {
    // A store that began at `START`, and it is ten seconds later; its birth mark lies six after its beginning.
    let (world, tool) = (world().await, Tool::new());
    world.clock.step_wall_to(START + 10_000);
    let mut service = operated(&world, &tool);
    world.clock.step_wall_to(START);
    let shown = world.show(&world.call("review-1"));
    world.clock.step_wall_to(START + 10_000);
    assert_eq!(refused(ask(&mut service, shown).await).0, "issued_before_mark");
    let call = Call { issued_at: None, ..world.call("review-2") };
    assert_eq!(refused(ask(&mut service, world.show(&call)).await).0, "below_floor");
    assert!(ask(&mut service, world.show(&world.call("review-3"))).await.is_ok());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l9_2_a_store_that_fails_refuses_and_no_handler_runs() {
    let engine = Arc::new(MockEngine::new());
    let (world, tool) = (World::on(engine.clone(), SingleUseConfig::new()).await, Tool::new());
    let mut service = operated(&world, &tool);
    let shown = world.show(&world.call("review-1"));
    engine.set(Gate::Failing);
    assert_eq!(refused(ask(&mut service, shown.clone()).await), ("store_failed", Consumed::Unknown));
    assert_eq!(tool.control.runs(), 0);
    engine.set(Gate::Open);
    assert!(ask(&mut service, shown).await.is_ok(), "it was undone");
}

#[tokio::test]
async fn l12_1_capacity_refuses_operations_too_and_consumes_nothing() {
    let config = SingleUseConfig { operations: Places { per_subject: 2, in_all: 4 }, ..SingleUseConfig::new() };
    let (world, tool) = (World::on(Arc::new(MockEngine::new()), config).await, Tool::new());
    let mut service = operated(&world, &tool);
    for place in 0..2 {
        ask(&mut service, world.show(&world.call(&format!("review-{place}")))).await.unwrap();
    }
    let shown = world.show(&world.call("review-2"));
    assert_eq!(refused(ask(&mut service, shown).await), ("capacity", Consumed::No));
    assert!(ask(&mut service, world.show(&world.call("review-1"))).await.is_ok(), "a retry needs no place");
}

#[tokio::test]
async fn a_waiter_too_many_is_refused() {
    let config = SingleUseConfig { waiters_per_operation: 2, ..SingleUseConfig::new() };
    let (world, tool) = (World::on(Arc::new(MockEngine::new()), config).await, Tool::new());
    let service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.let_end(false);
    let begin = |shown: Bytes| {
        let mut service = service.clone();
        tokio::spawn(async move { ask(&mut service, shown).await })
    };
    let first = begin(world.show(&call));
    tool.control.called(1).await;
    let waiting = [begin(world.show(&call)), begin(world.show(&call))];
    while world.single_use.health().waiters < 2 {
        tokio::task::yield_now().await;
    }
    let refusal = refused(ask(&mut service.clone(), world.show(&call)).await);
    assert_eq!(refusal.0, "too_many_waiters");
    tool.control.let_end(true);
    assert!(first.await.unwrap().is_ok());
    for waiter in waiting {
        assert!(waiter.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn l11_2_a_damaged_record_counts_as_consumed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, tool) = (directory.path().join("store"), Tool::new());
    let world = World::at(&path, SingleUseConfig::new()).await;
    let stamped = world.show(&world.call("stamp-1"));
    let mut stamps = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    ask(&mut stamps, stamped.clone()).await.unwrap();
    drop(stamps);
    let call = world.call("review-1");
    ask(&mut operated(&world, &tool), world.show(&call)).await.unwrap();
    let World { clock, commit, single_use, issuer, approver, subject } = world;
    drop(single_use);
    commit.shutdown().await;
    drop(commit);
    // A real store, whose records of both tables someone wrote over.
    let engine = journal(&path);
    for table in [Table::Nonce, Table::Operation] {
        let writes = engine.scan(table).await.unwrap().records.into_iter();
        let writes: Vec<_> = writes.map(|(key, _)| Write { table, key, value: Some("damaged".into()) }).collect();
        assert!(!writes.is_empty());
        engine.commit(Batch { writes }).await.unwrap();
    }
    let commit = admit_one::GroupCommit::open(engine, admit_one::CommitConfig::default()).await.unwrap();
    let single_use = SingleUse::open(&commit, clock.clone(), SingleUseConfig::new());
    let single_use = single_use.await.unwrap();
    let world = World { clock, commit, single_use, issuer, approver, subject };
    let mut stamps = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    assert_eq!(refused(ask(&mut stamps, stamped).await), ("record_damaged", Consumed::Yes));
    let mut service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone());
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("record_damaged", Consumed::Yes));
    assert!(ask(&mut service, world.show(&world.call("review-2"))).await.is_ok(), "no other is refused for it");
    assert_eq!(tool.control.runs(), 3);
}

#[tokio::test]
async fn l11_2_damage_that_cannot_be_named_closes_its_table_and_no_other() {
    let engine = Arc::new(MockEngine::new());
    let (world, tool) = (World::on(engine.clone(), SingleUseConfig::new()).await, Tool::new());
    let World { clock, commit, single_use, issuer, approver, subject } = world;
    drop(single_use);
    commit.shutdown().await;
    drop(commit);
    // A record whose key is nobody's.
    let stray = Write { table: Table::Operation, key: "stray".into(), value: Some("damaged".into()) };
    engine.commit(Batch { writes: vec![stray] }).await.unwrap();
    let commit = admit_one::GroupCommit::open(engine, admit_one::CommitConfig::default()).await.unwrap();
    let single_use = SingleUse::open(&commit, clock.clone(), SingleUseConfig::new()).await.unwrap();
    let world = World { clock, commit, single_use, issuer, approver, subject };
    let refusal = refused(ask(&mut operated(&world, &tool), world.show(&world.call("review-1"))).await);
    assert_eq!(refusal, ("unavailable", Consumed::Unknown));
    let mut stamps = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    assert!(ask(&mut stamps, world.show(&world.call("stamp-1"))).await.is_ok());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_whoever_follows_an_operation_that_was_given_up_is_told_so() {
    let world = world().await;
    let operation = Operation::of(&world.call("review-1"), world.subject.key()).unwrap();
    let Presentation::Run(reservation) = world.single_use.present(&operation, &[], &[]).await.unwrap() else {
        panic!("it is fresh")
    };
    reservation.rollback().await.unwrap();
    let refusal = world.single_use.follow(&operation, &[]).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.consumed()), ("abandoned", Consumed::No));
}
