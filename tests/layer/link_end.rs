//! What the layer does where one link of a peer follows another, and what it says back (laws L3.8, L5.6, L13.3).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use admit_one::{
    layer::{AdmissionLayer, Outcome},
    link::{Arrival, Channel, Feedback, LinkId},
};
use bytes::Bytes;
use futures::FutureExt;
use tower::{Layer, Service};

use crate::{
    fixture::{Counters, Node, Sender, accept, refused},
    handler::{Gated, settle},
};

const CHANNEL: Option<Channel> = Some(Channel { index: 2, pool: 4 });

/// A transport's end of one channel.
#[derive(Debug, Default)]
struct Way {
    superseded: AtomicBool,
    refusals: Mutex<Vec<&'static str>>,
}

impl Feedback for Way {
    fn unless_superseded(&self, admit: &mut dyn FnMut()) -> bool {
        let goes = !self.superseded.load(Ordering::SeqCst);
        if goes {
            admit();
        }
        goes
    }

    fn refused(&self, reason: &'static str) {
        self.refusals.lock().expect("no panic in here").push(reason);
    }
}

impl Way {
    fn brings(self: &Arc<Self>, link: &str, arrival: Arrival) -> Arrival {
        Arrival { link: LinkId::of(link), channel: CHANNEL, feedback: Some(self.clone()), ..arrival }
    }

    fn refusals(&self) -> Vec<&'static str> {
        self.refusals.lock().expect("no panic in here").clone()
    }
}

fn layer(node: &Node) -> AdmissionLayer {
    node.layer().build()
}

#[tokio::test(start_paused = true)]
async fn l3_8_a_frame_of_a_replaced_channel_is_refused_by_name_and_stages_nothing() {
    let counters = Counters::record();
    let node = Node::start().await;
    let mut service = layer(&node).layer(tower::service_fn(accept));
    let mut sender = Sender::new(&node.clock);
    let way = Arc::new(Way::default());
    let [first, late] = [0; 2].map(|_| sender.next(node.did(), b"\x02hello"));
    assert!(service.call(way.brings("old", sender.arrival(&first))).await.is_ok());
    way.superseded.store(true, Ordering::SeqCst);
    let answer = service.call(way.brings("old", sender.arrival(&late))).now_or_never().expect("at once");
    assert_eq!(refused(answer).label(), "superseded");
    assert_eq!((counters.refusals(), way.refusals()), ([("superseded".into(), 1)].into(), vec!["superseded"]));
    // Nothing of it was kept, so the very same transaction may come by the next link.
    let again = Arc::new(Way::default()).brings("new", sender.arrival(&late));
    assert_eq!(service.call(again).await.expect("admitted"), Outcome::Dispatched(()));
}

#[tokio::test(start_paused = true)]
async fn l5_6_handlers_are_called_in_the_order_of_admission_over_the_links_of_a_peers_channel() {
    let node = Node::start().await;
    let (handler, control) = Gated::new();
    let mut service = layer(&node).layer(handler);
    let mut sender = Sender::new(&node.clock);
    let mut calls = Vec::new();
    for link in ["old", "old", "new", "new"] {
        let payload = sender.next(node.did(), b"\x02hello");
        let way = Arc::new(Way::default());
        calls.push(tokio::spawn(service.call(way.brings(link, sender.arrival(&payload)))));
    }
    settle().await;
    assert_eq!(control.calls.sequences(), [0], "the new link waits for what the old one had admitted");
    control.release(0..4);
    for call in calls {
        assert!(call.await.expect("no panic").is_ok());
    }
    assert_eq!(control.calls.sequences(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn l13_3_each_refusal_is_said_back_once_whichever_step_refused() {
    let node = Node::start().await;
    let mut service = layer(&node).layer(tower::service_fn(accept));
    let mut sender = Sender::new(&node.clock);
    let way = Arc::new(Way::default());
    let payload = sender.next(node.did(), b"\x02hello");
    let elsewhere = sender.content(Sender::new(&node.clock).origin(), b"\x02hello");
    let elsewhere = sender.sign(elsewhere, node.did(), 3);
    let frames = [
        sender.raw(Bytes::from_static(b"garbage")),
        sender.arrival(&payload),
        sender.arrival(&payload),
        sender.arrival(&elsewhere),
    ];
    for frame in frames {
        let _ = service.call(way.brings("link", frame)).await;
    }
    assert_eq!(way.refusals(), ["wrong_marker", "replay", "no_route"]);
    // What the handler itself answers is no refusal.
    let mut failing = layer(&node).layer(tower::service_fn(async |_| Err::<(), _>("on purpose")));
    let payload = sender.next(node.did(), b"\x02hello");
    assert!(failing.call(way.brings("link", sender.arrival(&payload))).await.is_err());
    assert_eq!(way.refusals().len(), 3);
}
