//! Governed approvals, consumed with the nonce at the same boundary.

use std::sync::Arc;

use admit_one::layer::{
    approval::ApprovalLayer,
    credential::CallError,
    effect::DispatchLayer,
    operation::{Answer, OperationLayer},
    single_use::{Consumed, Outcome, SingleUseConfig},
};
use bytes::Bytes;
use tower::{Service, ServiceBuilder};

use crate::{
    engine::MockEngine,
    tool::Tool,
    world::{World, ask, encoded, refused},
};

async fn world() -> World {
    World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await
}

fn approved(world: &World) -> ApprovalLayer {
    ApprovalLayer::new(world.single_use.clone(), [world.approver.key()])
}

fn dispatched(
    world: &World,
    tool: &Tool,
) -> impl Service<Bytes, Response = Outcome, Error = CallError<&'static str>> + use<> {
    ServiceBuilder::new()
        .layer(world.nonces())
        .layer(approved(world))
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone())
}

fn operated(
    world: &World,
    tool: &Tool,
) -> impl Service<Bytes, Response = Answer, Error = CallError<&'static str>> + use<> {
    ServiceBuilder::new()
        .layer(world.nonces())
        .layer(approved(world))
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone())
}

#[tokio::test]
async fn l12_3_an_approval_is_for_one_dispatch_attempt() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = dispatched(&world, &tool);
    let call = world.call("pay-1");
    assert!(ask(&mut service, world.show(&call)).await.is_ok());
    // A fresh nonce, a fresh proof, and even a fresh approval of the same.
    assert_eq!(refused(ask(&mut service, world.show(&call)).await), ("replayed", Consumed::Yes));
    assert_eq!(tool.control.runs(), 1);
    assert!(ask(&mut service, world.show(&world.call("pay-2"))).await.is_ok());
}

#[tokio::test]
async fn l12_3_a_refused_approval_burns_neither_itself_nor_the_nonce() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = dispatched(&world, &tool);
    let call = world.call("pay-1");
    let shown = world.envelope(&call);
    let other = world.approval(&world.call("pay-2"), 60);
    let refusal = refused(ask(&mut service, encoded(&shown.clone().approval(other))).await);
    assert_eq!(refusal, ("request_binding_mismatch", Consumed::No));
    assert!(ask(&mut service, encoded(&shown)).await.is_ok());
}

#[tokio::test]
async fn l12_2_a_replayed_approval_leaves_the_nonce_beside_it_fresh() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = dispatched(&world, &tool);
    let call = world.call("pay-1");
    assert!(ask(&mut service, world.show(&call)).await.is_ok());
    // Both marks are one transition: the approval's refusal reserves no nonce.
    let again = world.show(&call);
    assert_eq!(refused(ask(&mut service, again.clone()).await), ("replayed", Consumed::Yes));
    let mut unapproved = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    assert!(ask(&mut unapproved, again).await.is_ok(), "that nonce is as good as before");
}

#[tokio::test]
async fn l12_4_an_exact_retry_of_an_approved_operation_is_answered_and_approved_no_more() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = operated(&world, &tool);
    let call = world.call("pay-1");
    let first = ask(&mut service, world.show(&call)).await.unwrap();
    let retry = ask(&mut service, world.show(&call)).await.unwrap();
    assert_eq!((retry.outcome(), retry.replayed()), (first.outcome(), true));
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn an_approval_is_asked_for_where_it_is_needed_and_nowhere_else() {
    let (world, tool) = (world().await, Tool::new());
    let mut service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(approved(&world).needed_where(|call| call.method.starts_with("payments/")))
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    let mut free = world.call("note-1");
    free.intent = None;
    assert!(ask(&mut service, world.show(&free)).await.is_ok());
    let mut governed = world.call("pay-1");
    governed.method = "payments/send".into();
    let shown = world.envelope(&governed);
    governed.intent = None;
    assert_eq!(refused(ask(&mut service, world.show(&governed)).await), ("credential_missing", Consumed::No));
    assert!(ask(&mut service, encoded(&shown)).await.is_ok());
}
