//! A next hop that takes nothing over, or that is not there, beside one that does its duty, behind the same relay.

use std::{sync::Arc, time::Duration};

use admit_one::{identity::KeySigner, lanes::Config, message::Class};
use futures::{future::join_all, poll};
use tokio::sync::{Semaphore, mpsc};

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Handled, Site, Terms, counted, data, forwarded, next, rest, sequences},
    support::{FAILURE, Transport},
};

both_transports! {
    l3_9_a_next_hop_that_takes_nothing_over_holds_up_the_others_of_its_lane_no_longer_than_the_delivery_bound,
    l3_5_a_next_hop_whose_lane_is_full_holds_up_no_other_forward_of_the_channel,
    l13_2_next_hops_that_are_not_there_shut_out_no_peer_that_is_connected,
    l13_1_a_relay_that_carries_to_connected_peers_alone_dials_nobody,
    l3_7_a_relay_that_shuts_down_refuses_new_forwards_and_ends_the_accepted_ones,
}

/// An origin and a relay, and behind it a stalled destination, which is done with a transaction when the test lets it be, and
/// one that works.
struct Fork {
    origin: Site,
    relay: Site,
    stalled: Site,
    working: Site,
    permits: Arc<Semaphore>,
    handled: [mpsc::UnboundedReceiver<Handled>; 2],
    counters: Counters,
}

impl Fork {
    async fn start(transport: Transport, relay: Config) -> Self {
        let origin = Site::with(transport, Terms { config: Config::default().window(15), ..Terms::default() }).await;
        let relay = Site::with(transport, Terms { config: relay, ..Terms::default() }).await;
        let (mut stalled, mut working) = (Site::start(transport).await, Site::start(transport).await);
        origin.leads_by(&relay, &[&stalled, &working]);
        relay.leads_by(&stalled, &[]);
        relay.leads_by(&working, &[]);
        let permits = Arc::new(Semaphore::new(0));
        let handled = [stalled.serve_held(&permits), working.serve()];
        Self { origin, relay, stalled, working, permits, handled, counters: Counters::record() }
    }
}

async fn l3_9_a_next_hop_that_takes_nothing_over_holds_up_the_others_of_its_lane_no_longer_than_the_delivery_bound(
    transport: Transport,
) {
    const BESIDE: u64 = 40;
    let mut fork = Fork::start(transport, Config::default()).await;
    // Instead of the ten seconds that nodes have.
    let forwarding = fork.relay.forwarding().within(Duration::from_secs(2));
    drop(fork.relay.serve_by(forwarding));
    fork.relay.connect(&fork.working).await;
    fork.relay.connect(&fork.stalled).await;
    // Credit is counted in order, so one is enough to stop the link's window behind it.
    let to = fork.stalled.did();
    let first = fork.origin.origin.send(to, data(Class::E2e)).await.expect("accepted");
    fork.origin.send(Class::E2e, BESIDE, &[&fork.working]).await;
    let found = next(&mut fork.handled[1], BESIDE).await;
    assert_eq!(sequences(&found, &fork.origin, Class::E2e), (0..BESIDE).collect::<Vec<_>>());
    assert_eq!(first.await, Ok(()), "by the relay");
    assert_eq!(sequences(&rest(&mut fork.handled[0]), &fork.origin, Class::E2e), [0], "not done with to this moment");
    let lost = fork.counters.take("admit_one_sends_total", "outcome");
    assert_eq!(lost, [("taken_over".to_owned(), 1 + 2 * BESIDE), ("expired".to_owned(), 1)].into());
    assert_eq!((rest(&mut fork.handled[1]), fork.counters.refusals()), (vec![], [].into()));
}

async fn l3_5_a_next_hop_whose_lane_is_full_holds_up_no_other_forward_of_the_channel(transport: Transport) {
    let narrow = Config::default().window(1).lane_bound(1, 1024 * 1024).credit(32);
    let mut fork = Fork::start(transport, narrow).await;
    drop(fork.relay.serve());
    // One in flight, one queued, and three that wait for room; then others, within the window.
    let mut settlements = Vec::new();
    for sent in 0..15 {
        let to = if sent < 5 { fork.stalled.did() } else { fork.working.did() };
        settlements.push(fork.origin.origin.send(to, data(Class::E2e)).await.expect("accepted"));
    }
    let found = next(&mut fork.handled[1], 10).await;
    assert_eq!(sequences(&found, &fork.origin, Class::E2e), (0..10).collect::<Vec<_>>());
    assert_eq!(sequences(&rest(&mut fork.handled[0]), &fork.origin, Class::E2e), [0], "and the lane is full still");
    fork.permits.add_permits(5);
    assert!(join_all(settlements).await.iter().all(Result::is_ok));
    assert_eq!(sequences(&next(&mut fork.handled[0], 4).await, &fork.origin, Class::E2e), [1, 2, 3, 4]);
    assert_eq!(fork.counters.refusals(), [].into(), "nothing is lost either way");
}

async fn l13_2_next_hops_that_are_not_there_shut_out_no_peer_that_is_connected(transport: Transport) {
    let mut fork = Fork::start(transport, Config::default().peer_bound(4)).await;
    drop(fork.relay.serve());
    fork.origin.send(Class::E2e, 1, &[&fork.working]).await;
    forwarded(&fork.counters, 1).await;
    // Half of what the relay may wait for is for what strangers name; a third one is refused.
    for _ in 0..3 {
        let nobody = KeySigner::generate().key();
        fork.origin.ways.lead(nobody, fork.relay.did());
        drop(fork.origin.origin.send(nobody, data(Class::Storage)).await.expect("accepted"));
    }
    forwarded(&fork.counters, 2).await;
    counted(&fork.counters, "admit_one_refusals_total", 1).await;
    fork.origin.send(Class::E2e, 10, &[&fork.working]).await;
    let found = next(&mut fork.handled[1], 11).await;
    assert_eq!(sequences(&found, &fork.origin, Class::E2e), (0..11).collect::<Vec<_>>());
    assert_eq!(fork.counters.refusals(), [].into(), "the third stranger's alone was");
}

async fn l13_1_a_relay_that_carries_to_connected_peers_alone_dials_nobody(transport: Transport) {
    let mut fork = Fork::start(transport, Config::default()).await;
    let connected = Arc::new(fork.relay.node.outbound.connected());
    drop(fork.relay.serve_by(fork.relay.forwarding().router(connected)));
    // It knows where the destination is, and does not go there.
    fork.origin.send(Class::E2e, 3, &[&fork.working]).await;
    assert_eq!(fork.counters.refusals(), [("no_route".to_owned(), 3)].into());
    assert!(!fork.relay.node.is_connected(fork.working.node.peer).await);
    let (here, there) = (fork.relay.node.peer, fork.working.node.peer);
    fork.working.node.dial(here, fork.relay.node.address.clone());
    let connects = |seen| matches!(seen, crate::support::Seen::Connected(peer) if peer == there).then_some(());
    fork.relay.node.until(connects).await;
    fork.origin.send(Class::E2e, 3, &[&fork.working]).await;
    assert_eq!(sequences(&next(&mut fork.handled[1], 3).await, &fork.origin, Class::E2e), [3, 4, 5]);
    fork.relay.node.disconnect(there);
    let gone = |seen| matches!(seen, crate::support::Seen::Disconnected(peer) if peer == there).then_some(());
    fork.relay.node.until(gone).await;
    fork.origin.send(Class::E2e, 3, &[&fork.working]).await;
    assert_eq!(fork.counters.refusals(), [("no_route".to_owned(), 3)].into());
}

async fn l3_7_a_relay_that_shuts_down_refuses_new_forwards_and_ends_the_accepted_ones(transport: Transport) {
    let mut fork = Fork::start(transport, Config::default()).await;
    drop(fork.relay.serve());
    let to = fork.stalled.did();
    let mut settlements = Vec::new();
    for _ in 0..3 {
        settlements.push(fork.origin.origin.send(to, data(Class::E2e)).await.expect("accepted"));
    }
    forwarded(&fork.counters, 3).await;
    let outbound = fork.relay.node.outbound.clone();
    let mut shutdown = std::pin::pin!(outbound.shutdown(FAILURE));
    assert!(poll!(&mut shutdown).is_pending());
    // What comes now is taken over and refused, so that its sender is not held up.
    fork.origin.send(Class::Storage, 3, &[&fork.working]).await;
    assert_eq!(fork.counters.refusals(), [("forward_failed".to_owned(), 3)].into());
    assert!(poll!(&mut shutdown).is_pending());
    fork.permits.add_permits(3);
    assert_eq!(shutdown.await, 0);
    assert!(join_all(settlements).await.iter().all(Result::is_ok));
    assert_eq!(sequences(&next(&mut fork.handled[0], 3).await, &fork.origin, Class::E2e), [0, 1, 2]);
    assert_eq!(rest(&mut fork.handled[1]), []);
}
