//! One inbound link that floods a relay with frames to forward.

use std::num::NonZeroU32;

use admit_one::message::Class;

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Site, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l3_9_a_link_that_floods_forwards_is_held_to_its_rate_and_the_others_lose_nothing,
}

async fn l3_9_a_link_that_floods_forwards_is_held_to_its_rate_and_the_others_lose_nothing(transport: Transport) {
    const BURST: u64 = 100;
    const FLOOD: u64 = 400;
    let (mut relay, mut destination) = (Site::start(transport).await, Site::start(transport).await);
    let (flooding, honest) = (Site::start(transport).await, Site::start(transport).await);
    for site in [&flooding, &honest] {
        site.leads_by(&relay, &[&destination]);
    }
    relay.leads_by(&destination, &[&destination]);
    // Once the burst is spent, a frame a second.
    let (slowly, burst) = (NonZeroU32::MIN, NonZeroU32::new(BURST as u32).expect("not zero"));
    let started = tokio::time::Instant::now();
    drop(relay.serve_by(relay.forwarding().rate(slowly, burst)));
    let mut handled = destination.serve();
    let counters = Counters::record();
    // The flood in all lanes, the honest one in two of them.
    let to = [&destination];
    let flood = futures::future::join_all(Class::ALL.map(|class| flooding.send(class, FLOOD / 4, &to)));
    let beside = [Class::E2e, Class::Storage].map(|class| honest.send(class, BURST / 2, &to));
    tokio::join!(flood, futures::future::join_all(beside));
    let found = next(&mut handled, BURST * 2).await;
    let refused = counters.refusals();
    // One a second came on top.
    let since = started.elapsed().as_secs() + 1;
    let over = refused.get("forward_rate_exceeded").copied().expect("the flood is refused");
    assert!((FLOOD - BURST - since..=FLOOD - BURST).contains(&over), "{refused:?} within {since} s");
    assert_eq!(refused.len(), 1, "{refused:?}");
    let found: Vec<_> = found.into_iter().chain(rest(&mut handled)).collect();
    assert_eq!(found.len() as u64, BURST + FLOOD - over, "what was not refused was dispatched");
    for class in [Class::E2e, Class::Storage] {
        assert_eq!(sequences(&found, &honest, class), (0..BURST / 2).collect::<Vec<_>>(), "the honest link");
    }
    for class in Class::ALL {
        let of_flood = sequences(&found, &flooding, class);
        assert!(of_flood.is_sorted_by(|before, after| before < after), "once and in order: {of_flood:?}");
    }
}
