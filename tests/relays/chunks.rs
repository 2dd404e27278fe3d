//! A transaction in chunks over two relays, from an origin that falls silent in the middle of it (law L2.8).

use std::sync::Arc;

use admit_one::{
    clock::{Clock, ManualClock, SystemClock},
    lanes::Settlement,
    message::Classifier,
    message::{Class, Content, FRAME_LIMIT, Payload, TagClassifier, cut},
};
use futures::future::join_all;

use crate::{
    both_transports,
    fixture::{Counters, NETWORK, Sender},
    overlay::{Site, class_of, data, frame, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l2_8_an_origin_that_falls_silent_in_the_middle_of_a_message_holds_up_nobody_and_is_dispatched_once_if_it_resumes,
}

/// An origin that signs by hand, at its node.
struct ByHand {
    site: Site,
    sender: Sender,
}

impl ByHand {
    async fn start(transport: Transport) -> Self {
        let site = Site::start(transport).await;
        let clock = Arc::new(ManualClock::new(SystemClock::new().wall()));
        let sender = Sender::with(&clock, (*site.signer).clone());
        Self { site, sender }
    }

    /// The chunks of its next transaction, of `length` bytes, by way of `relay`.
    fn message(&mut self, to: &Site, relay: &Site, length: usize) -> Vec<Payload> {
        let mut data = data(Class::E2e);
        data.resize(length, 7);
        let content = Content { data: data.into(), ..self.sender.content(to.did(), b"") };
        let classified = TagClassifier.classify(&content.data).expect("of a class");
        let digest = content.digest(NETWORK, &self.site.did(), classified.class);
        let original = self.sender.sign(content, relay.did(), 3).transaction;
        let chunks = cut(&original, digest, classified.head, FRAME_LIMIT).expect("is cut");
        chunks.map(|chunk| self.sender.sign(chunk, relay.did(), 3)).collect()
    }

    async fn send(&self, payloads: &[Payload]) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        for payload in payloads {
            assert_eq!(class_of(payload), Class::E2e);
            let sent = self.site.node.outbound.send(frame(payload.clone(), None)).await;
            settlements.push(sent.expect("accepted"));
        }
        settlements
    }

    /// Sends, and waits until all are taken over.
    async fn pass(&self, payloads: &[Payload]) {
        for settlement in self.send(payloads).await {
            settlement.await.expect("taken over");
        }
    }
}

async fn l2_8_an_origin_that_falls_silent_in_the_middle_of_a_message_holds_up_nobody_and_is_dispatched_once_if_it_resumes(
    transport: Transport,
) {
    const LENGTH: usize = 300_000;
    let mut silent = ByHand::start(transport).await;
    let mut honest = ByHand::start(transport).await;
    let (mut relays, mut destination) =
        ([Site::start(transport).await, Site::start(transport).await], Site::start(transport).await);
    let [first, second] = &relays;
    for origin in [&silent.site, &honest.site] {
        origin.leads_by(first, &[&destination]);
    }
    first.leads_by(second, &[&destination]);
    second.leads_by(&destination, &[&destination]);
    relays.iter_mut().for_each(|relay| drop(relay.serve()));
    let mut handled = destination.serve();
    let counters = Counters::record();

    let message = silent.message(&destination, &relays[0], LENGTH);
    let (last, head) = message.split_last().expect("chunks");
    assert!(head.len() > 8, "more than a window");
    // Each chunk is taken over when it is stored, so the lane is free behind what is missing.
    silent.pass(head).await;
    assert_eq!((rest(&mut handled), destination.admission.health().streams), (vec![], 0));

    // By the same relays and in the same lane: whole messages, another one in chunks, and more of the silent one's own.
    let chunked = honest.message(&destination, &relays[0], LENGTH);
    let settlements = honest.send(&chunked).await;
    let whole: Vec<_> = (0..20).map(|_| honest.message(&destination, &relays[0], 10)).collect();
    assert!(whole.iter().all(|chunks| chunks.len() == 1), "a chunk is the least that is cut");
    honest.pass(&whole.concat()).await;
    assert!(join_all(settlements).await.iter().all(Result::is_ok));
    let own = silent.message(&destination, &relays[0], 10);
    silent.pass(&own).await;
    let found = next(&mut handled, 22).await;
    assert_eq!(sequences(&found, &honest.site, Class::E2e), (0..21).collect::<Vec<_>>());
    assert_eq!(sequences(&found, &silent.site, Class::E2e), [1]);

    // It speaks again: once. And once more: what is finished stays so.
    silent.pass(std::slice::from_ref(last)).await;
    assert_eq!(sequences(&next(&mut handled, 1).await, &silent.site, Class::E2e), [0]);
    assert_eq!(counters.refusals(), [].into());
    silent.pass(&message).await;
    assert_eq!(counters.refusals(), [("chunk_of_finished".to_owned(), message.len() as u64)].into());
    let streams: Vec<_> = relays.iter().map(|relay| relay.admission.health().streams).collect();
    assert_eq!((rest(&mut handled), streams), (vec![], vec![0, 0]));
}
