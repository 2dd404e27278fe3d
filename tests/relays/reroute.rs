//! A relay whose router changes its mind, through the real forward step: no stream loses its order (law L3.9).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admit_one::{identity::Did, lanes::Config, link::Router, message::Class};
use futures::future::join_all;
use tokio::sync::{Semaphore, mpsc};

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Site, Terms, carried, data, forwarded, frame, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l3_9_forwards_under_a_router_that_flips_keep_every_stream_in_order,
    l3_9_forwards_that_wait_for_the_old_hop_go_by_the_new_one_in_order_once_it_let_go,
    l3_9_an_old_hop_that_never_lets_go_keeps_a_stream_no_longer_than_the_delivery_bound,
    l3_9_an_old_hop_that_is_gone_lets_its_streams_go,
}

/// Origin, a relay with a choice of two ways, and the destination.
struct Diamond {
    origin: Site,
    relay: Site,
    ways: [Site; 2],
    destination: Site,
}

impl Diamond {
    async fn start(transport: Transport) -> Self {
        let wide = || Terms { config: Config::default().window(31).credit(32), ..Terms::default() };
        let (origin, relay) = (Site::with(transport, wide()).await, Site::with(transport, wide()).await);
        let ways = [Site::with(transport, wide()).await, Site::with(transport, wide()).await];
        let destination = Site::with(transport, wide()).await;
        origin.leads_by(&relay, &[&destination]);
        for way in &ways {
            relay.leads_by(way, &[]);
            way.leads_by(&destination, &[&destination]);
        }
        relay.ways.lead(destination.did(), ways[0].did());
        Self { origin, relay, ways, destination }
    }

    /// The first way holds every frame until the test lets it go.
    fn hold(&mut self) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        let (signer, to) = (self.ways[0].signer.clone(), self.destination.did());
        let _ = self.ways[0].forge(Some(&permits), move |payload, credit| {
            let budget = payload.hop_budget - 1;
            vec![frame(carried(payload, &signer, to, budget), credit)]
        });
        permits
    }

    fn change(&self) {
        self.relay.ways.lead(self.destination.did(), self.ways[1].did());
    }
}

/// Runs of one to four by each of two ways in turn.
#[derive(Debug)]
struct Flips {
    ways: [Did; 2],
    asked: AtomicU64,
}

impl Router for Flips {
    fn next_hop(&self, _: &Did) -> Option<Did> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Some(self.ways[[0, 1, 1, 0, 0, 0, 1, 1, 1, 1][usize::try_from(asked % 10).expect("below ten")]])
    }
}

async fn l3_9_forwards_under_a_router_that_flips_keep_every_stream_in_order(transport: Transport) {
    const EACH: u64 = 400;
    let Diamond { origin, mut relay, mut ways, mut destination } = Diamond::start(transport).await;
    let flips = Flips { ways: ways.each_ref().map(Site::did), asked: AtomicU64::new(0) };
    drop(relay.serve_by(relay.forwarding().router(Arc::new(flips))));
    ways.iter_mut().for_each(|way| drop(way.serve()));
    let (note, mut handled) = mpsc::unbounded_channel();
    destination.serve_with(destination.forwarding(), move |admitted| {
        let _ = note.send((admitted.peer(), admitted.class(), admitted.sequence()));
        std::future::ready(())
    });
    let counters = Counters::record();
    let to = [&destination];
    join_all([Class::E2e, Class::Storage].map(|class| origin.send(class, EACH, &to))).await;
    let mut found = Vec::new();
    while let Ok(one) = handled.try_recv() {
        found.push(one);
    }
    for class in [Class::E2e, Class::Storage] {
        let of_class: Vec<_> = found.iter().filter(|one| one.1 == class).collect();
        let sequences: Vec<_> = of_class.iter().map(|one| one.2).collect();
        assert_eq!(sequences, (0..EACH).collect::<Vec<_>>(), "{class:?}: each once, in order");
        let changes = of_class.windows(2).filter(|two| two[0].0 != two[1].0).count() as u64;
        assert!(changes >= EACH / 5, "{changes} changes");
    }
    assert_eq!((found.len() as u64, counters.refusals()), (2 * EACH, [].into()));
}

async fn l3_9_forwards_that_wait_for_the_old_hop_go_by_the_new_one_in_order_once_it_let_go(transport: Transport) {
    const OLD: u64 = 5;
    const NEW: u64 = 20;
    let mut diamond = Diamond::start(transport).await;
    let permits = diamond.hold();
    drop((diamond.relay.serve(), diamond.ways[1].serve()));
    let mut handled = diamond.destination.serve();
    let counters = Counters::record();
    let mut settlements = Vec::new();
    for sent in 0..OLD + NEW {
        if sent == OLD {
            forwarded(&counters, OLD).await;
            diamond.change();
        }
        let to = diamond.destination.did();
        settlements.push(diamond.origin.origin.send(to, data(Class::E2e)).await.expect("accepted"));
    }
    // The relay has all, and what is for the new hop waits for the old one's.
    forwarded(&counters, NEW).await;
    assert_eq!(rest(&mut handled), []);
    permits.add_permits(OLD as usize);
    let found = next(&mut handled, OLD + NEW).await;
    assert_eq!(sequences(&found, &diamond.origin, Class::E2e), (0..OLD + NEW).collect::<Vec<_>>());
    assert!(join_all(settlements).await.iter().all(Result::is_ok));
    assert_eq!((rest(&mut handled), counters.refusals()), (vec![], [].into()));
}

async fn l3_9_an_old_hop_that_never_lets_go_keeps_a_stream_no_longer_than_the_delivery_bound(transport: Transport) {
    const LATER: u64 = 20;
    let mut diamond = Diamond::start(transport).await;
    let _permits = diamond.hold();
    // Instead of the ten seconds that nodes have.
    let forwarding = diamond.relay.forwarding().within(Duration::from_secs(1));
    drop((diamond.relay.serve_by(forwarding), diamond.ways[1].serve()));
    let mut handled = diamond.destination.serve();
    let counters = Counters::record();
    let (origin, to) = (&diamond.origin.origin, diamond.destination.did());
    for _ in 0..3 {
        drop(origin.send(to, data(Class::E2e)).await.expect("accepted"));
    }
    forwarded(&counters, 3).await;
    diamond.change();
    // What waits for the old hop is dropped with the bound, or just makes it; what comes later goes.
    let (mut sent, mut found) = (3, Vec::new());
    while found.is_empty() {
        origin.send(to, data(Class::E2e)).await.expect("accepted").await.expect("taken over, or dropped by the relay");
        sent += 1;
        found = rest(&mut handled);
    }
    diamond.origin.send(Class::E2e, LATER, &[&diamond.destination]).await;
    let last = (diamond.origin.did(), Class::E2e, sent + LATER - 1);
    while found.last() != Some(&last) {
        found.extend(next(&mut handled, 1).await);
    }
    let sequences = sequences(&found, &diamond.origin, Class::E2e);
    assert!(sequences.is_sorted_by(|before, after| before < after), "once and in order: {sequences:?}");
    assert!(sequences.ends_with(&(sent..sent + LATER).collect::<Vec<_>>()), "no more is lost: {sequences:?}");
    assert_eq!((rest(&mut handled), counters.refusals()), (vec![], [].into()));
}

async fn l3_9_an_old_hop_that_is_gone_lets_its_streams_go(transport: Transport) {
    const NEW: u64 = 20;
    let mut diamond = Diamond::start(transport).await;
    let _permits = diamond.hold();
    drop((diamond.relay.serve(), diamond.ways[1].serve()));
    let mut handled = diamond.destination.serve();
    let counters = Counters::record();
    let (origin, to) = (&diamond.origin.origin, diamond.destination.did());
    let mut settlements = Vec::new();
    for sent in 0..3 + NEW {
        if sent == 3 {
            forwarded(&counters, 3).await;
            diamond.change();
        }
        settlements.push(origin.send(to, data(Class::E2e)).await.expect("accepted"));
    }
    forwarded(&counters, NEW).await;
    assert_eq!(rest(&mut handled), []);
    diamond.relay.node.disconnect(diamond.ways[0].node.peer);
    let found = next(&mut handled, NEW).await;
    assert_eq!(sequences(&found, &diamond.origin, Class::E2e), (3..3 + NEW).collect::<Vec<_>>());
    assert!(join_all(settlements).await.iter().all(Result::is_ok));
    assert_eq!((rest(&mut handled), counters.refusals()), (vec![], [].into()));
}
