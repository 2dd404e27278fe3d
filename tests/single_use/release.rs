//! What leaves: stop and revocation, before anything and last before the answer.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use admit_one::{
    clock::{BootId, Clock, WallMs},
    layer::{
        credential::CallError,
        effect::DispatchLayer,
        single_use::{Authority, Capability, Consumed, SingleUse, SingleUseConfig},
    },
};
use bytes::Bytes;
use tower::ServiceBuilder;

use crate::{
    engine::MockEngine,
    operations::operated,
    tool::Tool,
    world::{World, ask, refused},
};

/// An authority that a test turns on and off.
#[derive(Debug, Default)]
struct Switch {
    stopped: AtomicBool,
    revoked: Mutex<HashSet<Capability>>,
}

impl Switch {
    fn revoke(&self, capability: Capability, revoked: bool) {
        let mut all = self.revoked.lock().expect("no panics in here");
        if revoked {
            all.insert(capability)
        } else {
            all.remove(&capability)
        };
    }
}

impl Authority for Switch {
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn revoked(&self, capability: &Capability) -> bool {
        self.revoked.lock().expect("no panics in here").contains(capability)
    }
}

async fn world() -> (World, Arc<Switch>) {
    let switch = Arc::new(Switch::default());
    let config = SingleUseConfig::new().with_authority(switch.clone());
    (World::on(Arc::new(MockEngine::new()), config).await, switch)
}

#[tokio::test]
async fn l12_5_under_a_stop_nothing_runs_and_no_recorded_outcome_leaves() {
    let (world, _) = world().await;
    let tool = Tool::new();
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let first = ask(&mut service, world.show(&call)).await.unwrap();
    world.single_use.stop().await.unwrap();
    assert_eq!(refused(ask(&mut service, world.show(&call)).await).0, "stopped");
    let fresh = world.show(&world.call("review-2"));
    assert_eq!(refused(ask(&mut service, fresh.clone()).await), ("stopped", Consumed::No));
    world.single_use.resume().await.unwrap();
    assert_eq!(ask(&mut service, world.show(&call)).await.unwrap().outcome(), first.outcome());
    assert!(ask(&mut service, fresh).await.is_ok());
    assert_eq!(tool.control.runs(), 2);
}

#[tokio::test]
async fn l12_5_a_stop_that_comes_while_the_handler_runs_withholds_its_answer_and_keeps_it() {
    let (world, switch) = world().await;
    let tool = Tool::new();
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    tool.control.let_end(false);
    let answer = {
        let (mut service, shown) = (service.clone(), world.show(&call));
        tokio::spawn(async move { ask(&mut service, shown).await })
    };
    tool.control.called(1).await;
    switch.stopped.store(true, Ordering::SeqCst);
    tool.control.let_end(true);
    assert_eq!(refused(answer.await.unwrap()), ("stopped", Consumed::Yes));
    switch.stopped.store(false, Ordering::SeqCst);
    let retry = ask(&mut service, world.show(&call)).await.unwrap();
    assert!(retry.replayed(), "it was recorded all the same");
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_5_a_key_that_was_revoked_after_it_called_gets_no_answer() {
    let (world, switch) = world().await;
    let tool = Tool::new();
    let mut service = operated(&world, &tool);
    let call = world.call("review-1");
    let first = ask(&mut service, world.show(&call)).await.unwrap();
    for key in [world.subject.key(), world.issuer.key()] {
        let capability = Capability(*key.as_bytes());
        switch.revoke(capability, true);
        assert_eq!(refused(ask(&mut service, world.show(&call)).await).0, "revoked");
        assert_eq!(refused(ask(&mut service, world.show(&world.call("review-2"))).await), ("revoked", Consumed::No));
        switch.revoke(capability, false);
    }
    assert_eq!(ask(&mut service, world.show(&call)).await.unwrap().outcome(), first.outcome());
    assert_eq!(tool.control.runs(), 1);
}

#[tokio::test]
async fn l12_5_revocation_is_read_last_also_where_no_operation_keeps_the_answer() {
    let (world, switch) = world().await;
    let tool = Tool::new();
    let mut service = ServiceBuilder::new()
        .layer(world.nonces())
        .layer(DispatchLayer::new(world.single_use.clone()))
        .service(tool.clone());
    tool.control.let_end(false);
    let shown = world.show(&world.call("stamp-1"));
    let answer = {
        let (mut service, shown) = (service.clone(), shown.clone());
        tokio::spawn(async move { ask(&mut service, shown).await })
    };
    tool.control.called(1).await;
    switch.revoke(Capability(*world.subject.key().as_bytes()), true);
    tool.control.let_end(true);
    assert_eq!(refused(answer.await.unwrap()), ("revoked", Consumed::Yes));
    switch.revoke(Capability(*world.subject.key().as_bytes()), false);
    assert_eq!(refused(ask(&mut service, shown).await), ("replayed", Consumed::Yes));
}

#[tokio::test]
async fn l12_5_a_handlers_failure_does_not_leave_under_a_stop_either() {
    let (world, switch) = world().await;
    let tool = Tool::new();
    let mut service = operated(&world, &tool);
    tool.control.fail(true);
    tool.control.let_end(false);
    let shown = world.show(&world.call("review-1"));
    let answer = tokio::spawn(async move { ask(&mut service, shown).await });
    tool.control.called(1).await;
    switch.stopped.store(true, Ordering::SeqCst);
    tool.control.let_end(true);
    let error = answer.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Refused(_)) && error.code() == "stopped", "{error}");
}

/// A clock that counts how often it is read.
#[derive(Debug)]
struct Counting {
    clock: Arc<dyn Clock>,
    reads: AtomicUsize,
}

impl Clock for Counting {
    fn wall(&self) -> WallMs {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.clock.wall()
    }

    fn monotonic(&self) -> Duration {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.clock.monotonic()
    }

    fn boot(&self) -> Option<BootId> {
        self.clock.boot()
    }
}

#[tokio::test]
async fn l12_5_the_latch_is_read_before_the_clock_and_before_the_request() {
    let (mut world, switch) = world().await;
    let clock = Arc::new(Counting { clock: world.clock.clone(), reads: AtomicUsize::new(0) });
    let commit = admit_one::GroupCommit::open(Arc::new(MockEngine::new()), admit_one::CommitConfig::default());
    let commit = commit.await.unwrap();
    let config = SingleUseConfig::new().with_authority(switch.clone());
    world.single_use = SingleUse::open(&commit, clock.clone(), config).await.unwrap();
    world.clock.advance(Duration::from_secs(60));
    let tool = Tool::new();
    let mut service = operated(&world, &tool);
    let shown = world.show(&world.call("review-1"));
    switch.stopped.store(true, Ordering::SeqCst);
    let before = clock.reads.load(Ordering::SeqCst);
    assert_eq!(refused(ask(&mut service, shown.clone()).await), ("stopped", Consumed::No));
    assert_eq!(refused(ask(&mut service, Bytes::from_static(b"nonsense")).await), ("stopped", Consumed::No));
    assert_eq!(clock.reads.load(Ordering::SeqCst), before);
    switch.stopped.store(false, Ordering::SeqCst);
    assert!(ask(&mut service, shown).await.is_ok());
    assert!(clock.reads.load(Ordering::SeqCst) > before);
}
