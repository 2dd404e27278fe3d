//! Operations: first, exact, conflicting and concurrent presentations, and what becomes of their callers.

use std::{sync::Arc, time::Duration};

use admit_one::layer::{
    approval::ApprovalLayer,
    credential::CallError,
    operation::{Answer, OperationLayer},
    single_use::{Call, Consumed, SingleUseConfig},
};
use bytes::Bytes;
use futures::future::join_all;
use tower::{Service, ServiceBuilder};

use crate::{
    engine::{Gate, MockEngine},
    tool::{Places, Tool},
    world::{World, ask, encoded, journal, refused},
};

async fn world() -> World {
    World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await
}

type Answered = Result<Answer, CallError<&'static str>>;

pub fn operated(
    world: &World,
    tool: &Tool,
) -> impl Service<Bytes, Response = Answer, Error = CallError<&'static str>, Future: Send + 'static> + Clone + use<> {
    ServiceBuilder::new()
        .layer(world.nonces())
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone())
}

/// Begins a call in a task of its own.
fn begin<S>(service: &S, request: Bytes) -> tokio::task::JoinHandle<Answered>
where
    S: Service<Bytes, Response = Answer, Error = CallError<&'static str>, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
{
    let mut service = service.clone();
    tokio::spawn(async move { ask(&mut service, request).await })
}

#[tokio::test]
async fn l12_4_an_exact_retry_is_answered_with_the_same_bytes_and_nothing_runs() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let original = world.show(&call);
    let first = ask(&mut service, original.clone()).await.unwrap();
    assert!(!first.replayed());
    // By the same credentials, by fresh ones, and much later.
    for request in [original, world.show(&call)] {
        let retry = ask(&mut service, request).await.unwrap();
        assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    }
    world.clock.advance(Duration::from_secs(500));
    let retry = ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!(retry.into_outcome(), first.into_outcome());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_retry_consumes_nothing_more() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    ask(&mut service, world.show(&call)).await.unwrap();
    let nonces = world.single_use.health().nonces;
    for _ in 0..8 {
        ask(&mut service, world.show(&call)).await.unwrap();
    }
    assert_eq!(world.single_use.health().nonces, nonces);
}

#[tokio::test]
async fn l12_4_another_call_under_its_identity_is_a_conflict_and_the_original_is_intact() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let first = ask(&mut service, world.show(&call)).await.unwrap();
    let others = [
        Call { method: "notes/remove".into(), ..call.clone() },
        Call { intent: None, ..call.clone() },
        Call { deadline: Some(world.now() + 599), ..call.clone() },
        Call { issued_at: None, ..call.clone() },
    ];
    for other in others {
        assert_eq!(refused(ask(&mut service, world.show(&other)).await), ("conflict", Consumed::No), "{other:?}");
    }
    let another = admit_one::KeySigner::generate();
    let refusal = refused(ask(&mut service, world.show_by(&another, &call)).await);
    assert_eq!(refusal, ("conflict", Consumed::No), "another subject's");
    let retry = ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!(retry.outcome(), first.outcome());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_renamed_operation_does_not_revive_its_authority() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let nonce = world.nonce(&call, 60);
    ask(&mut service, encoded(&world.envelope(&call).nonce(nonce.clone()).proof(world.proof(&call, &nonce))))
        .await
        .unwrap();
    let renamed = Call { request_id: "reused-authority".into(), ..call.clone() };
    let proof = world.proof(&renamed, &nonce);
    let shown = encoded(&world.envelope(&renamed).nonce(nonce).proof(proof));
    assert_eq!(refused(ask(&mut service, shown).await), ("request_binding_mismatch", Consumed::No));
    assert!(ask(&mut service, world.show(&call)).await.unwrap().replayed(), "the original stays available");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_of_concurrent_exact_retries_one_runs_and_all_answer() {
    let (world, tool) = (world().await, Tool::new());
    let service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.let_end(false);
    let first = begin(&service, world.show(&call));
    tool.control.called(1).await;
    let retries: Vec<_> = (0..16).map(|_| begin(&service, world.show(&call))).collect();
    while world.single_use.health().waiters < 16 {
        tokio::task::yield_now().await;
    }
    tool.control.let_end(true);
    let first = first.await.unwrap().unwrap();
    for retry in join_all(retries).await {
        let retry = retry.unwrap().unwrap();
        assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    }
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_retries_that_wait_hold_no_place_of_the_handler() {
    let (world, tool) = (world().await, Tool::new());
    let service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(Places::new(2, tool.clone()));
    let call = world.call("review-1");
    tool.control.let_end(false);
    let first = begin(&service, world.show(&call));
    tool.control.called(1).await;
    let retries: Vec<_> = (0..4).map(|_| begin(&service, world.show(&call))).collect();
    while world.single_use.health().waiters < 4 {
        tokio::task::yield_now().await;
    }
    // The second place is free for another operation.
    let other = begin(&service, world.show(&world.call("review-2")));
    tool.control.called(2).await;
    tool.control.let_end(true);
    assert!(other.await.unwrap().is_ok() && first.await.unwrap().is_ok());
    assert!(join_all(retries).await.into_iter().all(|retry| retry.unwrap().is_ok()));
    assert_eq!(tool.control.runs(), 2);
}

#[tokio::test]
async fn l12_4_a_caller_that_was_superseded_gives_up_the_place_that_it_was_made_ready_with() {
    let (world, tool) = (world().await, Tool::new());
    let service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(Places::new(1, tool.clone()));
    tool.control.let_end(false);
    let other = begin(&service, world.show(&world.call("review-1")));
    tool.control.called(1).await;
    // Two callers of another operation wait for the one place, the older first; the newer has the operation.
    let call = world.call("review-2");
    let mut callers = Vec::new();
    for reserved in 2..4 {
        callers.push(begin(&service, world.show(&call)));
        while world.single_use.health().nonces < reserved {
            tokio::task::yield_now().await;
        }
    }
    tool.control.let_end(true);
    assert!(other.await.unwrap().is_ok());
    let answers: Vec<_> = join_all(callers).await.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    assert_eq!(answers[0].outcome(), answers[1].outcome());
    assert_eq!((answers[0].replayed(), answers[1].replayed()), (true, false));
    assert_eq!(tool.control.runs(), 2);
}

#[tokio::test]
async fn l12_4_while_it_is_reserved_a_retry_continues_it_and_the_first_gets_its_outcome() {
    let (world, tool) = (world().await, Tool::new());
    let service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.set_ready(false);
    let first = begin(&service, world.show(&call));
    tool.control.waited_for(1).await;
    let second = begin(&service, world.show(&call));
    tool.control.waited_for(2).await;
    tool.control.set_ready(true);
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first.outcome(), second.outcome());
    assert_eq!((first.replayed(), second.replayed()), (true, false), "the newer one ran it");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_first_caller_that_goes_away_before_it_began_leaves_the_operation_to_the_next() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let shown = world.show(&call);
    tool.control.set_ready(false);
    let first = begin(&service, shown.clone());
    tool.control.waited_for(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    tool.control.set_ready(true);
    assert!(!ask(&mut service, shown).await.unwrap().replayed(), "by the same credentials, which are unspent");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_caller_that_goes_away_while_it_runs_leaves_the_outcome_unknown_to_all() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.let_end(false);
    let first = begin(&service, world.show(&call));
    tool.control.called(1).await;
    let retry = begin(&service, world.show(&call));
    while world.single_use.health().waiters < 1 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert_eq!(refused(retry.await.unwrap()), ("outcome_unknown", Consumed::Yes));
    tool.control.let_end(true);
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("outcome_unknown", Consumed::Yes));
    assert_eq!(tool.control.runs(), 0, "neither sent again nor refunded");
    world.clock.advance(Duration::from_secs(600));
    let again = Call { deadline: Some(world.now() + 600), ..call.clone() };
    assert_eq!(refused(ask(&mut service, world.show(&call)).await).0, "deadline_passed");
    let code = refused(ask(&mut service, world.show(&again)).await).0;
    assert!(["conflict", "issued_before_mark", "below_floor"].contains(&code), "{code}");
}

#[tokio::test]
async fn a_detached_call_runs_to_its_end_though_its_caller_goes_away() {
    let (world, tool) = (world().await, Tool::new());
    let service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(OperationLayer::new(world.single_use.clone()).detached())
        .service(tool.clone());
    let call = world.call("review-1");
    tool.control.let_end(false);
    let first = begin(&service, world.show(&call));
    tool.control.called(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let retry = begin(&service, world.show(&call));
    while world.single_use.health().waiters < 1 {
        tokio::task::yield_now().await;
    }
    tool.control.let_end(true);
    assert!(retry.await.unwrap().unwrap().replayed());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_handler_that_fails_records_no_outcome_and_is_not_called_again() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.fail(true);
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("handler_failed", Consumed::Yes));
    tool.control.fail(false);
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("outcome_unknown", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_4_a_handler_that_is_not_ready_gives_everything_back() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let shown = world.show(&world.call("review-1"));
    tool.control.fail_ready(true);
    assert_eq!(refused(ask(&mut service, shown.clone()).await), ("handler_not_ready", Consumed::No));
    tool.control.fail_ready(false);
    assert!(ask(&mut service, shown).await.is_ok());
}

#[tokio::test]
async fn l12_4_an_outcome_of_the_greatest_length_is_kept_and_a_greater_one_is_unknown() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let greatest = world.single_use.config().outcome_max;
    tool.control.pad(greatest - "run 1".len());
    let call = world.call("review-1");
    let first = ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!(first.outcome().bytes.len(), greatest);
    assert_eq!(ask(&mut service, world.show(&call)).await.unwrap().outcome(), first.outcome());
    tool.control.pad(greatest);
    let call = world.call("review-2");
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("outcome_unknown", Consumed::Yes));
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("outcome_unknown", Consumed::Yes));
    assert_eq!(tool.control.runs(), 2);
}

#[tokio::test]
async fn l12_8_a_failure_to_record_is_outcome_unknown_and_the_answer_does_not_leave() {
    let engine = Arc::new(MockEngine::new());
    let (world, tool) = (World::on(engine.clone(), SingleUseConfig::new()).await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.let_end(false);
    let first = begin(&service, world.show(&call));
    tool.control.called(1).await;
    engine.set(Gate::Failing);
    tool.control.let_end(true);
    let error = first.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::OutcomeUnknown(_)), "{error}");
    engine.set(Gate::Open);
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("outcome_unknown", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_8_the_instance_that_was_polled_ready_is_called_for_an_operation_too() {
    let (world, tool) = (world().await, Tool::new());
    let service = operated(&world, &tool);
    // The mock asserts it, with handlers that are ready late.
    tool.control.set_ready(false);
    let calls: Vec<_> =
        (0..8).map(|place| begin(&service, world.show(&world.call(&format!("review-{place}"))))).collect();
    tool.control.waited_for(8).await;
    tool.control.set_ready(true);
    assert!(join_all(calls).await.into_iter().all(|answer| answer.unwrap().is_ok()));
    assert_eq!(tool.control.runs(), 8);
}

#[tokio::test]
async fn an_operation_costs_three_transitions_with_all_its_marks_and_a_retry_none() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(ApprovalLayer::new(world.single_use.clone(), [world.approver.key()]))
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone());
    let batches = || world.commit.health().batches;
    let (call, before) = (world.call("review-1"), batches());
    ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!(batches() - before, 3, "reserved, dispatching, finished");
    let before = batches();
    ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!(batches(), before);
}

#[tokio::test]
async fn l12_4_an_outcome_outlives_the_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, tool) = (directory.path().join("store"), Tool::new());
    let world = World::at(&path, SingleUseConfig::new()).await;
    let call = world.call("review-1");
    let first = ask(&mut operated(&world, &tool), world.show(&call)).await.unwrap();
    let world = world.again(|| journal(&path), SingleUseConfig::new()).await;
    world.clock.advance(Duration::from_secs(1));
    let retry = ask(&mut operated(&world, &tool), world.show(&call)).await.unwrap();
    assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    assert_eq!(tool.control.runs(), 1);
}
