//! Three hops on a line: an origin, two relays, and the destination.

use admit_one::message::Class;

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Handled, Site, Terms, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l3_9_over_three_hops_each_lane_is_dispatched_once_and_in_order,
    l5_4_relays_keep_no_window_and_a_node_may_be_relay_origin_and_destination_at_once,
    l2_5_a_hop_budget_that_ends_at_a_relay_is_refused_there_by_name,
}

/// Origin, relay, relay, destination, each knowing the next alone.
struct Line {
    sites: Vec<Site>,
    handled: Vec<tokio::sync::mpsc::UnboundedReceiver<Handled>>,
}

impl Line {
    async fn start(transport: Transport, hop_budget: u8) -> Self {
        let (mut sites, mut handled) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let mut site = Site::with(transport, Terms { hop_budget, ..Terms::default() }).await;
            handled.push(site.serve());
            sites.push(site);
        }
        for place in 0..4_usize {
            for destination in 0..4 {
                let by = if destination > place { place + 1 } else { place.saturating_sub(1) };
                sites[place].leads_by(&sites[by], &[&sites[destination]]);
            }
        }
        Self { sites, handled }
    }
}

async fn l3_9_over_three_hops_each_lane_is_dispatched_once_and_in_order(transport: Transport) {
    const EACH: u64 = 60;
    let mut line = Line::start(transport, 2).await;
    let counters = Counters::record();
    let (origin, to) = (&line.sites[0], [&line.sites[3]]);
    futures::future::join_all(Class::ALL.map(|class| origin.send(class, EACH, &to))).await;
    let found = next(&mut line.handled[3], EACH * 4).await;
    for class in Class::ALL {
        assert_eq!(sequences(&found, origin, class), (0..EACH).collect::<Vec<_>>(), "{class:?}");
    }
    assert_eq!(rest(&mut line.handled[3]), []);
    let forwarded = counters.take("admit_one_forwarded_total", "class");
    assert_eq!(forwarded, Class::ALL.map(|class| (class.label().to_owned(), 2 * EACH)).into());
    let streams: Vec<_> = line.sites.iter().map(|site| site.admission.health().streams).collect();
    assert_eq!(streams, [0, 0, 0, 4], "law L5.4");
}

async fn l5_4_relays_keep_no_window_and_a_node_may_be_relay_origin_and_destination_at_once(transport: Transport) {
    const EACH: u64 = 20;
    let mut line = Line::start(transport, 8).await;
    let counters = Counters::record();
    let all: Vec<_> = line.sites.iter().collect();
    let others =
        |place: usize| -> Vec<&Site> { all.iter().copied().filter(|site| !std::ptr::eq(*site, all[place])).collect() };
    let sends = (0..4).map(|place| {
        let (site, others) = (all[place], others(place));
        async move { site.send(Class::E2e, EACH, &others).await }
    });
    futures::future::join_all(sends).await;
    for (place, handled) in line.handled.iter_mut().enumerate() {
        let found = next(handled, EACH * 3).await;
        for from in others(place) {
            assert_eq!(sequences(&found, from, Class::E2e), (0..EACH).collect::<Vec<_>>());
        }
        assert_eq!((rest(handled), all[place].admission.health().streams), (vec![], 3));
    }
    assert_eq!(counters.refusals(), [].into());
}

async fn l2_5_a_hop_budget_that_ends_at_a_relay_is_refused_there_by_name(transport: Transport) {
    let mut line = Line::start(transport, 1).await;
    let counters = Counters::record();
    let (origin, relay, destination) = (&line.sites[0], &line.sites[2], &line.sites[3]);
    // The second relay may not forward it; for that relay itself the budget is enough.
    origin.send(Class::E2e, 3, &[destination, relay]).await;
    assert_eq!(sequences(&next(&mut line.handled[2], 3).await, origin, Class::E2e), [0, 1, 2]);
    assert_eq!(counters.refusals(), [("hop_budget_spent".to_owned(), 3)].into());
    assert_eq!(rest(&mut line.handled[3]), []);
}
