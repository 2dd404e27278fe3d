//! Link-local transactions, end to end: what a connection and an envelope make of one.

use std::{num::NonZeroUsize, time::Duration};

use admit_one::{
    clock::{Clock, DEFAULT_SIGMA_MS},
    identity::KeySigner,
    layer::{Outcome, Refusal, local::Namespace},
    link::{LinkGuard, LinkId, Links},
    message::{Class, Payload},
    storage::Table,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::{
    fixture::{Counters, NETWORK, Node, Sender, accept, chunks, frame_with, hop, refused},
    handler::{Gated, settle},
};

const DATA: &[u8] = b"\x03\x04chathello";

fn chat() -> Namespace {
    Namespace::new("chat").expect("short")
}

/// A node where "chat" is registered, past its mark.
async fn delegating() -> Node {
    let node = Node::start().await;
    node.admission.register(chat()).await.expect("durable");
    pass_mark(&node);
    node
}

fn pass_mark(node: &Node) {
    node.clock.advance(Duration::from_millis(2 * DEFAULT_SIGMA_MS + 1));
}

fn connect(node: &Node, sender: &Sender) -> LinkGuard {
    node.admission.open(sender.signer.key().to_peer_id(), sender.link).expect("a free slot")
}

/// The same transaction, under the hop proof of `relay`.
fn relayed(payload: &Payload, origin: &Sender, relay: &Sender, node: &Node) -> Payload {
    let transaction = payload.transaction.clone();
    let digest = transaction.content.digest(NETWORK, &origin.origin(), Class::Application);
    hop(transaction, digest, &relay.signer, node.did(), 0)
}

#[tokio::test]
async fn l6_1_the_own_connection_of_an_origin_or_its_delegatee_is_link_local_and_a_relayed_copy_is_not() {
    let counters = Counters::record();
    let node = delegating().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let windows = |counters: &Counters| counters.take("admit_one_verdicts_total", "window");
    let owner = KeySigner::generate();
    let key = KeySigner::generate();
    let delegation = owner.delegate(key.key(), node.clock.wall(), 1_000_000);
    let delegated = key.with_delegation(delegation).expect("its own key");
    for signer in [KeySigner::generate(), delegated] {
        let mut origin = Sender::with(&node.clock, signer);
        let link = connect(&node, &origin);
        let payload = origin.next(node.did(), DATA);
        assert_eq!(service.call(origin.arrival(&payload)).await.expect("admitted"), Outcome::Dispatched(()));
        assert_eq!(windows(&counters), [("link_local".into(), 1)].into());
        assert!(matches!(refused(service.call(origin.arrival(&payload)).await), Refusal::Replay));

        let relay = Sender::new(&node.clock);
        let _relays = connect(&node, &relay);
        let copy = relayed(&payload, &origin, &relay, &node);
        service.call(relay.arrival(&copy)).await.expect("the durable window knows nothing of it");
        assert!(matches!(refused(service.call(relay.arrival(&copy)).await), Refusal::Replay));
        assert_eq!(windows(&counters), [("durable".into(), 1)].into());

        drop(link);
        origin.link = LinkId::of((origin.signer.key().as_bytes(), "again"));
        let _link = connect(&node, &origin);
        service.call(origin.arrival(&payload)).await.expect("on a new connection it is the namespace's to know it");
        assert_eq!(windows(&counters), [("link_local".into(), 1)].into());
    }
}

/// By which link each chunk comes, and the window that the original is admitted in.
const WAYS: &[(&str, [Way; 3], &str)] = &[
    ("all by its own", [Way::Own, Way::Own, Way::Own], "link_local"),
    ("the first by a relay", [Way::Relay, Way::Own, Way::Own], "durable"),
    ("all but the last by a relay", [Way::Relay, Way::Relay, Way::Own], "durable"),
    ("the last by a relay", [Way::Own, Way::Own, Way::Relay], "durable"),
    ("the first by an earlier link of its own", [Way::Earlier, Way::Own, Way::Own], "durable"),
    ("all by its own, and copies by a relay", [Way::Own, Way::OwnAfterACopy, Way::Own], "link_local"),
];

#[derive(Debug, Clone, Copy)]
enum Way {
    Own,
    Earlier,
    Relay,
    OwnAfterACopy,
}

#[tokio::test]
async fn l6_1_an_original_is_link_local_only_if_all_its_chunks_came_on_one_link_of_its_origin() {
    let counters = Counters::record();
    let node = delegating().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    for (what, ways, window) in WAYS {
        let (mut origin, relay) = (Sender::new(&node.clock), Sender::new(&node.clock));
        let (earlier, _relays) = (connect(&node, &origin), connect(&node, &relay));
        let content = origin.content(node.did(), DATA);
        // Behind a head of six bytes.
        let chunks = chunks(&origin, content, node.did(), frame_with(5 + 70));
        assert_eq!(chunks.len(), 3, "{what}");
        let earlier_link = origin.link;
        origin.link = LinkId::of((origin.signer.key().as_bytes(), "later"));
        let _later = connect(&node, &origin);
        for (chunk, way) in chunks.iter().zip(ways) {
            let relayed = || relay.arrival(&relayed(chunk, &origin, &relay, &node));
            let arrival = match way {
                Way::Own => origin.arrival(chunk),
                Way::Earlier => admit_one::link::Arrival { link: earlier_link, ..origin.arrival(chunk) },
                Way::Relay => relayed(),
                Way::OwnAfterACopy => {
                    service.ready().await.expect("ready").call(relayed()).await.expect("stored");
                    origin.arrival(chunk)
                }
            };
            service.ready().await.expect("ready").call(arrival).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        drop(earlier);
        assert_eq!(counters.take("admit_one_verdicts_total", "window"), [((*window).into(), 1)].into(), "{what}");
    }
}

#[tokio::test]
async fn l6_1_another_class_another_namespace_and_a_connection_without_announcement_are_durable() {
    let counters = Counters::record();
    let node = delegating().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let mut announced = Sender::new(&node.clock);
    let _link = connect(&node, &announced);
    for data in [&b"\x02hello"[..], b"\x03\x05otherhello", b"\x03\x00hello"] {
        let payload = announced.next(node.did(), data);
        service.call(announced.arrival(&payload)).await.expect("admitted");
    }
    let mut unannounced = Sender::new(&node.clock);
    let payload = unannounced.next(node.did(), DATA);
    service.call(unannounced.arrival(&payload)).await.expect("admitted");
    assert_eq!(counters.take("admit_one_verdicts_total", "window"), [("durable".into(), 4)].into());
    assert_eq!((node.admission.health().link_local_windows, node.engine.count(Table::Receiver)), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn l6_4_what_waits_for_its_handler_when_its_namespace_is_withdrawn_is_dropped() {
    let counters = Counters::record();
    let node = delegating().await;
    let (handler, control) = Gated::new();
    let mut service = node.layer().concurrency(NonZeroUsize::MIN).build().layer(handler);
    let mut origin = Sender::new(&node.clock);
    let _link = connect(&node, &origin);
    let relay = Sender::new(&node.clock);
    let payloads: Vec<_> = (0..3).map(|_| origin.next(node.did(), DATA)).collect();
    let calls: Vec<_> = payloads.iter().map(|payload| tokio::spawn(service.call(origin.arrival(payload)))).collect();
    // One waits behind a relay's own, too.
    let copy = relayed(&payloads[2], &origin, &relay, &node);
    let other = origin.next(node.did(), b"\x03\x05otherhello");
    let others = tokio::spawn(service.call(origin.arrival(&other)));
    settle().await;
    assert_eq!(control.calls.sequences(), [0]);

    node.admission.withdraw(chat()).await.expect("durable");
    control.release(0..9);
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("no panic"));
    }
    assert_eq!(answers.remove(0).expect("handed over before"), Outcome::Dispatched(0));
    for answer in answers {
        assert!(matches!(refused(answer), Refusal::NamespaceWithdrawn { .. }));
    }
    assert!(matches!(refused(service.call(relay.arrival(&copy)).await), Refusal::NamespaceWithdrawn { .. }));
    assert_eq!(others.await.expect("no panic").expect("of another namespace"), Outcome::Dispatched(3));
    assert_eq!(control.calls.sequences(), [0, 3]);
    assert_eq!(counters.refusals(), [("namespace_withdrawn".into(), 3)].into());

    pass_mark(&node);
    let later = origin.next(node.did(), DATA);
    assert_eq!(service.call(origin.arrival(&later)).await.expect("durable now"), Outcome::Dispatched(4));
}

#[tokio::test]
async fn l6_3_a_namespace_of_a_run_that_never_names_it_is_durable_like_any_other() {
    let node = Node::start().await;
    let mut service = ServiceBuilder::new().layer(node.layer().build()).service(service_fn(accept));
    let mut origin = Sender::new(&node.clock);
    let _link = connect(&node, &origin);
    let payload = origin.next(node.did(), DATA);
    service.call(origin.arrival(&payload)).await.expect("admitted");
    assert_eq!((node.streams(), node.admission.health().link_local_windows), (1, 0));
}
