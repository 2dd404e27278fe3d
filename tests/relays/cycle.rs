//! Relays and handlers that wait for each other in a circle: every wait ends.

use std::{sync::Arc, time::Duration};

use admit_one::{
    identity::KeySigner,
    lanes::{Config, Fate, LossReason, Lost, OriginError, SendRefused},
    message::Class,
};
use futures::future::join_all;
use tokio::sync::mpsc;

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Site, Terms, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l3_9_a_cycle_of_full_relays_comes_to_an_end_and_the_ways_beside_it_lose_nothing,
    l3_7_two_handlers_that_send_to_each_other_come_to_an_end,
}

/// One frame in flight, one queued, one taken at a time.
fn narrow(terms: Terms) -> Terms {
    Terms { config: Config::default().window(1).credit(1).lane_bound(1, 1024 * 1024), ..terms }
}

async fn l3_9_a_cycle_of_full_relays_comes_to_an_end_and_the_ways_beside_it_lose_nothing(transport: Transport) {
    const EACH: u64 = 3;
    const BESIDE: u64 = 30;
    // Instead of the ten seconds that nodes have.
    const DELIVERY_BOUND: Duration = Duration::from_secs(2);
    let nowhere = KeySigner::generate().key();
    let (mut relays, mut origins) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        relays.push(Site::with(transport, narrow(Terms::default())).await);
        origins.push(Site::with(transport, Terms { hop_budget: 64, ..Terms::default() }).await);
    }
    let (mut honest, mut destination) = (Site::start(transport).await, Site::start(transport).await);
    for place in 0..3 {
        let after = &relays[(place + 1) % 3];
        relays[place].leads_by(after, &[]);
        relays[place].ways.lead(nowhere, after.did());
        origins[place].leads_by(&relays[place], &[]);
        origins[place].ways.lead(nowhere, relays[place].did());
    }
    // One way beside the cycle, and one through two of its relays, in another lane.
    origins[0].leads_by(&honest, &[&destination]);
    honest.leads_by(&destination, &[&destination]);
    origins[1].leads_by(&relays[1], &[&destination]);
    relays[1].leads_by(&relays[2], &[&destination]);
    relays[2].leads_by(&destination, &[&destination]);
    for relay in &mut relays {
        let forwarding = relay.forwarding().within(DELIVERY_BOUND);
        drop(relay.serve_by(forwarding));
    }
    drop(honest.serve());
    let mut handled = destination.serve();
    let [_, second, third] = &mut relays[..] else { unreachable!("three relays") };
    second.connect(third).await;
    third.connect(&destination).await;
    let counters = Counters::record();

    let round = origins.iter().map(|origin| async move {
        let mut settlements = Vec::new();
        for _ in 0..EACH {
            let data = crate::overlay::data(Class::E2e);
            settlements.push(origin.origin.send(nowhere, data).await.expect("accepted"));
        }
        assert!(join_all(settlements).await.iter().all(Result::is_ok), "a relay that drops takes over");
    });
    let to = [&destination];
    let beside = [(0, Class::E2e), (1, Class::Storage)].map(|(place, class)| origins[place].send(class, BESIDE, &to));
    tokio::join!(join_all(round), join_all(beside));

    let found = next(&mut handled, 2 * BESIDE).await;
    assert_eq!(sequences(&found, &origins[0], Class::E2e), (0..BESIDE).collect::<Vec<_>>());
    assert_eq!(sequences(&found, &origins[1], Class::Storage), (0..BESIDE).collect::<Vec<_>>());
    assert_eq!(rest(&mut handled), []);
    let mut refused = counters.refusals();
    let queued = counters.take("admit_one_sends_total", "outcome").remove("forward_queue_full").unwrap_or_default();
    let in_line = refused.remove("forward_queue_full").unwrap_or_default();
    assert!(queued + in_line > 0, "the cycle was full: {refused:?}");
    refused.remove("hop_budget_spent");
    assert_eq!(refused, [].into(), "and everything else went round until its budget was spent");
}

async fn l3_7_two_handlers_that_send_to_each_other_come_to_an_end(transport: Transport) {
    const EACH: usize = 4;
    const TTL: u64 = 1_500;
    let question = vec![Class::E2e.lane(), b'?'];
    let terms = || narrow(Terms { ttl: TTL, ..Terms::default() });
    let mut relay = Site::with(transport, terms()).await;
    let (left, right) = (Site::with(transport, terms()).await, Site::with(transport, terms()).await);
    left.leads_by(&relay, &[&right]);
    right.leads_by(&relay, &[&left]);
    relay.leads_by(&left, &[&left]);
    relay.leads_by(&right, &[&right]);
    drop(relay.serve());
    let mut sides = [left, right];
    let (note, mut handled) = mpsc::unbounded_channel();
    for side in &mut sides {
        let (forwarding, origin, here, note) = (side.forwarding(), side.origin.clone(), side.did(), note.clone());
        let origin = Arc::new(origin);
        // A question is not handled before its answer is taken over.
        side.serve_with(forwarding, move |admitted| {
            let _ = note.send((here, admitted.origin(), admitted.sequence()));
            let (origin, back) = (origin.clone(), admitted.origin());
            let asks = admitted.data().last() == Some(&b'?');
            async move {
                if asks {
                    let _ = ended(&origin, back, vec![Class::E2e.lane(), b'!']).await;
                }
            }
        });
    }
    let asking = [(0, 1), (1, 0)].map(|(from, to)| {
        let (origin, to) = (&sides[from].origin, sides[to].did());
        join_all((0..EACH).map(|_| ended(origin, to, question.clone())))
    });
    join_all(asking).await;
    // Each wait has ended, so the two can speak again.
    let answered = async {
        while ended(&sides[0].origin, sides[1].did(), question.clone()).await.is_err() {}
        while ended(&sides[1].origin, sides[0].did(), question.clone()).await.is_err() {}
    };
    answered.await;
    let mut found: Vec<_> = std::iter::from_fn(|| handled.try_recv().ok()).collect();
    let count = found.len();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), count, "each at most once");
}

/// How a send ends. It is lost with its life, or accepted and taken over.
async fn ended(origin: &admit_one::lanes::Origin, to: admit_one::identity::Did, data: Vec<u8>) -> Result<(), Lost> {
    let ended = match origin.send(to, data).await {
        Ok(settlement) => settlement.await,
        Err(OriginError::Refused(SendRefused::Lost(lost))) => Err(lost),
        Err(other) => panic!("{other}"),
    };
    if let Err(lost) = ended {
        assert_eq!(lost.reason, LossReason::Expired, "{lost}");
        assert!(matches!(lost.fate, Fate::NeverWritten | Fate::MayHaveBeenReceived));
    }
    ended
}
