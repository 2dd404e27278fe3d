//! Messages in chunks, end to end: what is gathered, admitted once, refused by name, and given back (law L2.8).

use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use admit_one::{
    clock::Clock,
    layer::{
        Admitted, Outcome, Refusal,
        reassembly::{CHUNK_OVERHEAD, MESSAGE_OVERHEAD, ReassemblyConfig},
    },
    link::{Arrival, Channel, LinkId},
    message::{Class, Content, FRAME_LIMIT, Kind, MESSAGE_LIMIT, Payload, TransactionDigest},
    storage::Table,
};
use bytes::Bytes;
use futures::FutureExt;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::fixture::{Calls, Counters, NETWORK, Node, Sender, accept, chunks, frame_with, hop, refused};
use crate::handler::{Credit, Gated, settle};

/// A message that is cut into seven chunks in frames of [`FRAME`].
const DATA: &[u8] = &[2; 500];
const FRAME: usize = frame_with(100);

/// Who sends a message in chunks, and where to.
struct Pair {
    node: Node,
    origin: Sender,
    credit: Credit,
}

impl Pair {
    async fn start() -> Self {
        let node = Node::start().await;
        let origin = Sender::new(&node.clock);
        Self { node, origin, credit: Credit::default() }
    }

    /// The next message, and its chunks.
    fn message(&mut self) -> (Content, Vec<Payload>) {
        let content = self.origin.content(self.node.did(), DATA);
        let chunks = chunks(&self.origin, content.clone(), self.node.did(), FRAME);
        assert_eq!(chunks.len(), 7);
        (content, chunks)
    }

    fn arrival(&self, payload: &Payload) -> Arrival {
        Arrival { credit: self.credit.guard(), ..self.origin.arrival(payload) }
    }

    /// The same transaction by way of `relay`.
    fn by(&self, relay: &Sender, payload: &Payload) -> Arrival {
        let content = &payload.transaction.content;
        let digest = content.digest(NETWORK, &self.origin.origin(), Class::E2e);
        relay.arrival(&hop(payload.transaction.clone(), digest, &relay.signer, self.node.did(), 0))
    }
}

#[tokio::test]
async fn l2_8_a_message_of_60_mb_is_gathered_and_admitted_once() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let mut content = pair.origin.content(pair.node.did(), b"");
    // What its encoding has beside its data: its content, its proof with an own slot, and its data's length.
    let data = MESSAGE_LIMIT - (32 + 16 + 32 + 1) - (1 + 32 + 64) - 4;
    content.data = [&[2], vec![7; data - 1].as_slice()].concat().into();
    let chunks = chunks(&pair.origin, content.clone(), pair.node.did(), FRAME_LIMIT);
    assert!(matches!(chunks[0].transaction.content.kind, Kind::Chunk { length: 60_000_000, .. }));

    let seen = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&seen);
    let mut service = pair.node.layer().build().layer(service_fn(move |admitted: Admitted| {
        let data = (admitted.sequence(), admitted.tx_id(), admitted.class(), admitted.data().clone());
        assert!(noted.lock().expect("no panic").replace(data).is_none(), "once");
        ready(Ok::<_, Infallible>(()))
    }));
    let (last, first) = chunks.split_last().expect("many");
    for (stored, chunk) in (1..).zip(first) {
        let answer = service.ready().await.expect("ready").call(pair.arrival(chunk)).await;
        assert_eq!(answer.expect("stored"), Outcome::Gathering);
        assert_eq!(pair.credit.given_back(), stored, "its credit is released at storing");
    }
    assert_eq!(pair.node.streams(), 0, "no chunk touches the window");
    let answer = service.ready().await.expect("ready").call(pair.arrival(last)).await;
    assert_eq!(answer.expect("admitted"), Outcome::Dispatched(()));
    assert_eq!(pair.credit.given_back(), chunks.len());
    let (sequence, tx_id, class, data) = seen.lock().expect("no panic").take().expect("handled");
    assert_eq!((sequence, tx_id, class), (content.sequence, content.tx_id, Class::E2e));
    assert!(data == content.data);
    assert_eq!(counters.take("admit_one_verdicts_total", "class"), HashMap::from([("e2e".into(), 1)]));
    assert_eq!((pair.node.streams(), pair.node.engine.count(Table::Receiver)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn l3_4_the_last_chunks_credit_travels_with_the_original() {
    let mut pair = Pair::start().await;
    let (handler, control) = Gated::new();
    let mut service = pair.node.layer().build().layer(handler);
    let (content, chunks) = pair.message();
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        assert_eq!(service.call(pair.arrival(chunk)).await.expect("stored"), Outcome::Gathering);
    }
    let handled = tokio::spawn(service.call(pair.arrival(last)));
    service.ready().await.expect("once the original is staged");
    settle().await;
    assert_eq!((control.calls.sequences(), pair.credit.given_back()), (vec![content.sequence], first.len()));
    control.release([content.sequence]);
    assert_eq!(handled.await.expect("no panic").expect("handled"), Outcome::Dispatched(content.sequence));
    assert_eq!(pair.credit.given_back(), chunks.len());
}

#[tokio::test]
async fn l2_8_chunks_in_any_order_repeated_or_lost() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let calls = Calls::default();
    let noted = calls.clone();
    let mut service = pair.node.layer().build().layer(service_fn(move |admitted| {
        noted.note(&admitted);
        ready(Ok(()))
    }));
    let (lost, chunks_of_lost) = pair.message();
    for chunk in &chunks_of_lost[1..] {
        assert_eq!(service.call(pair.arrival(chunk)).await.expect("stored"), Outcome::Gathering);
    }
    let (content, chunks) = pair.message();
    for place in [5, 2, 0, 6, 1, 3] {
        assert_eq!(service.call(pair.arrival(&chunks[place])).await.expect("stored"), Outcome::Gathering);
        assert_eq!(refused(service.call(pair.arrival(&chunks[place])).await).label(), "chunk_repeated");
    }
    assert_eq!(counters.refusals(), HashMap::from([("chunk_repeated".into(), 6)]));
    assert_eq!(service.call(pair.arrival(&chunks[4])).await.expect("admitted"), Outcome::Dispatched(()));
    service.ready().await.expect("ready");
    for chunk in &chunks {
        assert_eq!(refused(service.call(pair.arrival(chunk)).await).label(), "chunk_of_finished");
    }
    assert_eq!(counters.refusals(), HashMap::from([("chunk_of_finished".into(), 7)]));
    assert_eq!(calls.sequences(), [content.sequence], "what lost a chunk is not admitted");
    let arrival = pair.arrival(&chunks_of_lost[0]);
    assert_eq!(service.call(arrival).await.expect("late, and in the window"), Outcome::Dispatched(()));
    assert_eq!(calls.sequences(), [content.sequence, lost.sequence]);
    assert_eq!(pair.credit.given_back(), 6 + 7 + 6 + 7 + 1);
}

#[tokio::test]
async fn l2_8_the_sequence_is_used_once_by_the_original_whole_or_in_chunks_and_after_a_restart() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let mut service = pair.node.layer().build().layer(service_fn(accept));
    let (content, chunks) = pair.message();
    for chunk in &chunks {
        service.call(pair.arrival(chunk)).await.expect("taken");
    }
    let whole = pair.origin.sign(content.clone(), pair.node.did(), 0);
    let mut again = service.clone();
    assert!(matches!(refused(again.call(pair.arrival(&whole)).await), Refusal::Replay), "a copy in one frame");

    // What reassembly remembers is gone with the layer; the window is not.
    let mut restarted = pair.node.layer().build().layer(service_fn(accept));
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        assert_eq!(restarted.call(pair.arrival(chunk)).await.expect("stored"), Outcome::Gathering);
    }
    assert!(matches!(refused(restarted.call(pair.arrival(last)).await), Refusal::Replay));
    assert_eq!(counters.refusals(), HashMap::from([("replay".into(), 2)]));
    assert_eq!(pair.credit.given_back(), 2 * chunks.len() + 1);
}

#[tokio::test]
async fn l2_8_a_message_by_two_relays_at_once_is_admitted_once_and_each_chunk_stored_once() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let (first, second) = (Sender::new(&pair.node.clock), Sender::new(&pair.node.clock));
    let layer = pair.node.layer().build();
    let (mut by_first, mut by_second) = (layer.layer(service_fn(accept)), layer.layer(service_fn(accept)));
    let (_, chunks) = pair.message();
    let mut dispatched = 0;
    for chunk in &chunks {
        for answer in [by_first.call(pair.by(&first, chunk)).await, by_second.call(pair.by(&second, chunk)).await] {
            dispatched += usize::from(matches!(answer, Ok(Outcome::Dispatched(()))));
        }
    }
    assert_eq!(dispatched, 1);
    assert_eq!(counters.refusals(), HashMap::from([("chunk_of_finished".into(), 1)]), "the second's last");

    // One by turns: a relay that changes in the middle.
    let (_, chunks) = pair.message();
    by_first.ready().await.expect("ready");
    for (place, chunk) in chunks.iter().enumerate() {
        let answer = match place {
            0..3 => by_first.call(pair.by(&first, chunk)).await,
            _ => by_second.call(pair.by(&second, chunk)).await,
        };
        let outcome = if place + 1 == chunks.len() { Outcome::Dispatched(()) } else { Outcome::Gathering };
        assert_eq!(answer.expect("taken"), outcome);
    }
}

#[tokio::test]
async fn l5_6_an_original_keeps_its_place_in_its_channel_and_no_other_channel_waits() {
    let mut pair = Pair::start().await;
    let calls = Calls::default();
    let noted = calls.clone();
    let mut service = pair.node.layer().build().layer(service_fn(move |admitted| {
        noted.note(&admitted);
        ready(Ok::<_, Infallible>(()))
    }));
    let on = |index| Some(Channel { index, pool: 4 });
    let (content, chunks) = pair.message();
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        service.call(Arrival { channel: on(2), ..pair.arrival(chunk) }).await.expect("stored");
    }
    let last = service.call(Arrival { channel: on(2), ..pair.arrival(last) });
    assert!(service.ready().now_or_never().is_none(), "the original is not staged");
    let other = pair.origin.next(pair.node.did(), b"\x01another lane's");
    let mut another_channel = service.clone();
    another_channel.ready().now_or_never().expect("at once").expect("ready");
    another_channel.call(Arrival { channel: on(1), ..pair.arrival(&other) }).await.expect("admitted meanwhile");

    let last = tokio::spawn(last);
    service.ready().await.expect("ready");
    let next = pair.origin.next(pair.node.did(), b"\x02the next");
    service.call(Arrival { channel: on(2), ..pair.arrival(&next) }).await.expect("admitted");
    last.await.expect("no panic").expect("admitted");
    assert_eq!(calls.sequences(), [content.sequence + 1, content.sequence, content.sequence + 2]);
}

#[tokio::test]
async fn l9_3_a_caller_that_goes_away_while_a_message_is_joined_lets_the_next_go_on() {
    let mut pair = Pair::start().await;
    let mut service = pair.node.layer().build().layer(service_fn(accept));
    let (_, chunks) = pair.message();
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        service.call(pair.arrival(chunk)).await.expect("stored");
    }
    drop(service.call(pair.arrival(last)));
    service.ready().await.expect("ready");
    assert_eq!(pair.credit.given_back(), chunks.len());
    assert_eq!(pair.node.streams(), 0, "it was not staged");
}

#[tokio::test]
async fn l2_8_a_conflicting_chunk_fails_its_message_and_no_other() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let mut service = pair.node.layer().build().layer(service_fn(accept));
    let (_, chunks) = pair.message();
    let (_, others) = pair.message();
    for chunk in chunks[..3].iter().chain(&others[..3]) {
        service.call(pair.arrival(chunk)).await.expect("stored");
    }
    let mut conflicting = chunks[1].transaction.content.clone();
    let mut data = conflicting.data.to_vec();
    data[9] ^= 1;
    conflicting.data = data.into();
    let conflicting = pair.origin.sign(conflicting, pair.node.did(), 0);
    assert_eq!(refused(service.call(pair.arrival(&conflicting)).await).label(), "chunk_conflict");
    for chunk in &chunks[3..] {
        assert_eq!(refused(service.call(pair.arrival(chunk)).await).label(), "chunk_of_failed");
    }
    let refusals = HashMap::from([("chunk_conflict".into(), 1), ("chunk_of_failed".into(), 4)]);
    assert_eq!(counters.refusals(), refusals, "each counted once");
    for chunk in &others[3..6] {
        service.call(pair.arrival(chunk)).await.expect("stored");
    }
    assert_eq!(service.call(pair.arrival(&others[6])).await.expect("admitted"), Outcome::Dispatched(()));
}

/// Whose bound is reached after how many chunks of `from` different messages, and by what name the next is refused.
async fn bound(config: ReassemblyConfig, taken: usize, label: &str) {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let mut service = pair.node.layer().reassembly(config).build().layer(service_fn(accept));
    for _ in 0..taken {
        let (_, chunks) = pair.message();
        service.call(pair.arrival(&chunks[0])).await.expect("stored");
    }
    let (_, chunks) = pair.message();
    assert_eq!(refused(service.call(pair.arrival(&chunks[0])).await).label(), label);
    assert_eq!(counters.refusals(), HashMap::from([(label.into(), 1)]));
    assert_eq!(pair.credit.given_back(), taken + 1);
    let whole = pair.origin.next(pair.node.did(), b"\x02whole");
    service.call(pair.arrival(&whole)).await.expect("what is whole passes");
}

#[tokio::test]
async fn l2_8_each_bound_refuses_by_its_name() {
    let wide = ReassemblyConfig::default();
    // A first chunk takes somewhat more than 2,200 bytes.
    bound(ReassemblyConfig { link_bytes: 5_000, ..wide }, 2, "reassembly_link_bytes").await;
    bound(ReassemblyConfig { bytes: 5_000, ..wide }, 2, "reassembly_bytes").await;
    bound(ReassemblyConfig { link_messages: 2, ..wide }, 2, "reassembly_link_messages").await;
    bound(ReassemblyConfig { messages: 2, ..wide }, 2, "reassembly_messages").await;
    bound(ReassemblyConfig { link_ids: 2, ..wide }, 2, "reassembly_link_ids").await;
    bound(ReassemblyConfig { ids: 2, ..wide }, 2, "reassembly_ids").await;
}

#[tokio::test]
async fn l2_8_a_message_is_accounted_until_its_handler_is_done_with_it() {
    let mut pair = Pair::start().await;
    let (handler, control) = Gated::new();
    let config = ReassemblyConfig { link_bytes: 4_000, ..ReassemblyConfig::default() };
    let mut service = pair.node.layer().reassembly(config).build().layer(handler);
    let (content, chunks) = pair.message();
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        service.call(pair.arrival(chunk)).await.expect("stored");
    }
    let handled = tokio::spawn(service.call(pair.arrival(last)));
    service.ready().await.expect("ready");
    let (_, next) = pair.message();
    let refusal = refused(service.call(pair.arrival(&next[0])).await);
    assert_eq!(refusal.label(), "reassembly_link_bytes");
    control.release([content.sequence]);
    handled.await.expect("no panic").expect("handled");
    let (_, after) = pair.message();
    assert_eq!(service.call(pair.arrival(&after[0])).await.expect("stored"), Outcome::Gathering);
}

#[tokio::test]
async fn l2_8_a_handler_may_let_a_message_go_on_a_thread_without_a_runtime() {
    let mut pair = Pair::start().await;
    let config = ReassemblyConfig { link_bytes: 4_000, ..ReassemblyConfig::default() };
    let mut service = pair.node.layer().reassembly(config).build().layer(service_fn(async |admitted: Admitted| {
        std::thread::spawn(move || drop(admitted)).join().expect("no panic");
        Ok::<_, Infallible>(())
    }));
    for _ in 0..3 {
        let (_, chunks) = pair.message();
        for chunk in &chunks {
            service.ready().await.expect("ready").call(pair.arrival(chunk)).await.expect("taken");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l2_8_nothing_is_held_past_expiry_though_nothing_more_comes() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let failures = || counters.take("admit_one_reassembly_failures_total", "reason");
    let mut service = pair.node.layer().build().layer(service_fn(accept));
    let mut content = pair.origin.content(pair.node.did(), DATA);
    content.ttl = 2_500;
    let brief = chunks(&pair.origin, content, pair.node.did(), FRAME);
    let (_, long) = pair.message();
    for chunk in brief[..6].iter().chain(&long[..6]) {
        service.call(pair.arrival(chunk)).await.expect("stored");
    }
    let pass = async |tenths: u64| {
        for _ in 0..tenths {
            tokio::time::sleep(Duration::from_millis(100)).await;
            pair.node.clock.advance(Duration::from_millis(100));
        }
    };
    pass(24).await;
    assert_eq!(failures(), HashMap::new(), "it lives");
    // One step for the clocks, which do not move at the same instant.
    pass(2).await;
    assert_eq!(failures(), HashMap::from([("expired".into(), 1)]), "gone with its expiry");
    pass(3_000 - 27).await;
    assert_eq!(failures(), HashMap::new(), "and the other is not too old");
    pass(2).await;
    assert_eq!(failures(), HashMap::from([("age".into(), 1)]));
    assert_eq!(refused(service.call(pair.arrival(&long[6])).await).label(), "chunk_of_failed");
    pass(3_000).await;
    assert_eq!(refused(service.call(pair.arrival(&long[6])).await).label(), "expired");
}

#[tokio::test]
async fn l2_8_chunks_of_another_class_are_refused_on_this_ones_lane() {
    let mut pair = Pair::start().await;
    let mut service = pair.node.layer().build().layer(service_fn(accept));
    let (_, chunks) = pair.message();
    let arrival = Arrival { channel: Some(Channel { index: 1, pool: 4 }), ..pair.arrival(&chunks[0]) };
    assert_eq!(refused(service.call(arrival).await).label(), "wrong_lane");
}

#[tokio::test]
async fn l2_8_without_the_reassembly_step_no_chunk_is_admitted() {
    let mut pair = Pair::start().await;
    let counters = Counters::record();
    let (resolve, verify, forward, _, admit) = pair.node.layer().build().into_steps();
    let mut service = resolve.layer(verify.layer(forward.layer(admit.layer(service_fn(accept)))));
    let (_, chunks) = pair.message();
    assert_eq!(refused(service.call(pair.arrival(&chunks[0])).await).label(), "chunk_not_joined");
    assert_eq!(counters.refusals(), HashMap::from([("chunk_not_joined".into(), 1)]));
    assert_eq!(pair.node.streams(), 0);
}

#[tokio::test]
async fn l5_4_without_the_forward_step_a_chunk_for_another_node_is_not_gathered() {
    let mut pair = Pair::start().await;
    let (resolve, verify, _, reassembly, admit) = pair.node.layer().build().into_steps();
    let mut service = resolve.layer(verify.layer(reassembly.layer(admit.layer(service_fn(accept)))));
    let elsewhere = Sender::new(&pair.node.clock).origin();
    let mut content = pair.origin.content(elsewhere, DATA);
    content.issued_at = pair.node.clock.wall();
    for chunk in chunks(&pair.origin, content, pair.node.did(), FRAME) {
        assert_eq!(refused(service.call(pair.arrival(&chunk)).await).label(), "no_route");
    }
}

#[tokio::test]
async fn l2_8_a_flood_of_first_chunks_holds_no_more_than_the_bounds_and_an_honest_link_none_less() {
    let mut pair = Pair::start().await;
    let config = ReassemblyConfig { link_bytes: 40_000, bytes: 80_000, ..ReassemblyConfig::default() };
    let layer = pair.node.layer().reassembly(config).build();
    let mut flood = Sender::new(&pair.node.clock);
    let mut flooded = layer.layer(service_fn(accept));
    let mut refusals = 0;
    for id in 0..=99 {
        let mut content = flood.content(pair.node.did(), &[2; 100]);
        content.kind = Kind::Chunk { index: 0, count: 9, original: TransactionDigest([id; 32]), length: 9 * 99 };
        content.data = Bytes::from_static(&[2; 100]);
        let payload = flood.sign(content, pair.node.did(), 0);
        let arrival = Arrival { link: LinkId::of(id), ..flood.arrival(&payload) };
        refusals += usize::from(flooded.call(arrival).await.is_err());
    }
    assert_eq!(
        refusals,
        100 - 40_000 / (MESSAGE_OVERHEAD + 1 + CHUNK_OVERHEAD + 99),
        "a new connection gains it nothing"
    );
    let mut service = layer.layer(service_fn(accept));
    let (_, chunks) = pair.message();
    let (last, first) = chunks.split_last().expect("many");
    for chunk in first {
        assert_eq!(service.call(pair.arrival(chunk)).await.expect("stored"), Outcome::Gathering);
    }
    assert_eq!(service.call(pair.arrival(last)).await.expect("admitted"), Outcome::Dispatched(()));
}
