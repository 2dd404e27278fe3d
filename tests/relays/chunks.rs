//! Transactions in chunks over two relays (law L2.8): the greatest there is, one whose origin falls silent in the middle, and
//! some whose link ends in the middle.

use std::sync::Arc;

use admit_one::{
    clock::{Clock, ManualClock, SystemClock},
    lanes::Settlement,
    message::{Class, Classifier, Content, FRAME_LIMIT, MESSAGE_LIMIT, Payload, TagClassifier, cut},
};
use futures::future::join_all;
use tokio::sync::{Semaphore, mpsc};

use crate::{
    both_transports,
    fixture::{Counters, NETWORK, Sender},
    overlay::{Site, carried, class_of, data, forwarded, frame, next, rest, sequences},
    support::Transport,
};

both_transports! {
    l2_8_an_origin_that_falls_silent_in_the_middle_of_a_message_holds_up_nobody_and_is_dispatched_once_if_it_resumes,
    l2_8_the_greatest_message_of_an_origin_passes_two_relays_whole_and_once,
    l3_8_a_link_between_relays_that_ends_in_the_middle_of_messages_costs_these_at_most,
}

/// What an original's encoding has beside its data, its delegation inline: its content, its proof, and the data's length.
const BESIDE: usize = (32 + 16 + 32 + 1) + 209 + 4;

/// An origin, two relays and a destination on a line.
struct Line {
    origin: Site,
    relays: [Site; 2],
    destination: Site,
}

impl Line {
    async fn start(transport: Transport) -> Self {
        let mut line = Self::bare(transport).await;
        line.relays.iter_mut().for_each(|relay| drop(relay.serve()));
        line
    }

    /// Relays that do not serve yet.
    async fn bare(transport: Transport) -> Self {
        let (origin, destination) = (Site::start(transport).await, Site::start(transport).await);
        let relays = [Site::start(transport).await, Site::start(transport).await];
        origin.leads_by(&relays[0], &[&destination]);
        relays[0].leads_by(&relays[1], &[&destination]);
        relays[1].leads_by(&destination, &[&destination]);
        Self { origin, relays, destination }
    }

    /// Serves at the destination. The sequences of what was handled, each as [`numbered`] made it.
    fn serve(&mut self, length: usize) -> mpsc::UnboundedReceiver<u64> {
        let (note, handled) = mpsc::unbounded_channel();
        let forwarding = self.destination.forwarding();
        self.destination.serve_with(forwarding, move |admitted| {
            assert!(*admitted.data() == numbered(admitted.sequence(), length), "whole");
            let _ = note.send(admitted.sequence());
            std::future::ready(())
        });
        handled
    }
}

/// Data of `length` bytes that tell which transaction it is of.
fn numbered(sequence: u64, length: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (sequence..).take(length).map(|place| (place % 251) as u8).collect();
    data[0] = Class::E2e.lane();
    data
}

async fn l2_8_the_greatest_message_of_an_origin_passes_two_relays_whole_and_once(transport: Transport) {
    let mut line = Line::start(transport).await;
    let mut handled = line.serve(MESSAGE_LIMIT - BESIDE);
    let counters = Counters::record();
    let (origin, to) = (&line.origin.origin, line.destination.did());
    let over = origin.send(to, numbered(0, MESSAGE_LIMIT - BESIDE + 1)).await;
    assert!(over.is_err(), "one byte more is refused");
    let sent = origin.send(to, numbered(0, MESSAGE_LIMIT - BESIDE)).await.expect("accepted");
    sent.await.expect("taken over");
    assert_eq!(handled.recv().await, Some(0));
    assert_eq!((handled.try_recv().ok(), counters.refusals()), (None, [].into()));
    let streams: Vec<_> = line.relays.iter().map(|relay| relay.admission.health().streams).collect();
    assert_eq!((streams, line.destination.admission.health().streams), (vec![0, 0], 1), "law L5.4");
}

async fn l3_8_a_link_between_relays_that_ends_in_the_middle_of_messages_costs_these_at_most(transport: Transport) {
    const MESSAGES: u64 = 20;
    const LENGTH: usize = 20 * FRAME_LIMIT;
    let mut line = Line::bare(transport).await;
    let [first, second] = &mut line.relays;
    drop(first.serve());
    // It carries on as it should, as fast as the test lets it.
    let (permits, signer, to) = (Arc::new(Semaphore::new(0)), second.signer.clone(), line.destination.did());
    let _carried = second.forge(Some(&permits), move |payload, credit| {
        let hop_budget = payload.hop_budget - 1;
        vec![frame(carried(payload, &signer, to, hop_budget), credit)]
    });
    let mut handled = line.serve(LENGTH);
    let counters = Counters::record();
    for sequence in 0..MESSAGES {
        let origin = line.origin.origin.clone();
        let sending = tokio::spawn(async move { origin.send(to, numbered(sequence, LENGTH)).await });
        if sequence % 2 == 0 {
            permits.forget_permits(permits.available_permits());
            permits.add_permits(6);
            // Six are taken over, and a window is in flight.
            forwarded(&counters, 6 + 8).await;
            line.relays[0].node.disconnect(line.relays[1].node.peer);
        }
        permits.add_permits(1_000);
        // The relay takes each chunk over, whatever becomes of its copy.
        sending.await.expect("no panic").expect("accepted").await.expect("taken over");
        counters.take("admit_one_forwarded_total", "");
    }
    let mut found = Vec::new();
    while found.last() != Some(&(MESSAGES - 1)) {
        found.push(handled.recv().await.expect("the node runs"));
    }
    let lost = counters.take("admit_one_sends_total", "outcome").get("link_closed").copied();
    println!("{} of {MESSAGES} messages; {lost:?} chunks in flight where a link ended", found.len());
    assert!(lost.is_some(), "links ended in the middle");
    found.sort_unstable();
    assert!(found.is_sorted_by(|before, after| before < after), "once: {found:?}");
    assert!((1..MESSAGES).step_by(2).all(|undisturbed| found.contains(&undisturbed)), "no more is lost: {found:?}");
    assert!(handled.try_recv().is_err());
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
