//! What becomes of a message whose joining takes long, is given up by its caller, or fails (law L2.8). The fault is injected
//! by a classifier, the one code of a user's that runs there.

use std::sync::{Arc, Mutex, mpsc};

use admit_one::{
    layer::{Outcome, reassembly::ReassemblyConfig},
    message::{Classified, Classifier, ClassifierId, ClassifyError, Payload, TagClassifier},
};
use futures::FutureExt;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::fixture::{Counters, Node, Sender, accept, chunks, frame_with, refused};

/// A message that is cut into seven chunks.
const DATA: &[u8] = &[2; 500];

/// Reads an original only once the test lets it, and panics when the test is gone. Reads chunks at once.
#[derive(Debug)]
struct Held {
    entered: mpsc::Sender<()>,
    let_on: Mutex<mpsc::Receiver<()>>,
}

impl Held {
    fn new() -> (Arc<Self>, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((entered, enters), (lets_on, let_on)) = (mpsc::channel(), mpsc::channel());
        (Arc::new(Self { entered, let_on: Mutex::new(let_on) }), enters, lets_on)
    }
}

impl Classifier for Held {
    fn identity(&self) -> ClassifierId {
        TagClassifier.identity()
    }

    fn classify(&self, data: &[u8]) -> Result<Classified, ClassifyError> {
        if data.len() == DATA.len() {
            let _ = self.entered.send(());
            let let_on = self.let_on.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
            let_on.expect("the fault");
        }
        TagClassifier.classify(data)
    }
}

fn message(from: &mut Sender, to: &Node) -> Vec<Payload> {
    let content = from.content(to.did(), DATA);
    let chunks = chunks(from, content, to.did(), frame_with(100));
    assert_eq!(chunks.len(), 7);
    chunks
}

#[tokio::test]
async fn l2_8_a_message_whose_joining_panics_fails_by_name_and_the_next_is_joined() {
    let node = Node::start().await;
    let counters = Counters::record();
    let (classifier, _enters, lets_on) = Held::new();
    let config = ReassemblyConfig { link_bytes: 4_000, ..ReassemblyConfig::default() };
    let mut service = node.layer().classifier(classifier).reassembly(config).build().layer(service_fn(accept));
    let mut from = Sender::new(&node.clock);
    drop(lets_on);
    for _ in 0..2 {
        let chunks = message(&mut from, &node);
        let (last, first) = chunks.split_last().expect("many");
        for chunk in first {
            let answer = service.ready().await.expect("ready").call(from.arrival(chunk)).await;
            assert_eq!(answer.expect("there is room: the one before is let go"), Outcome::Gathering);
        }
        assert_eq!(refused(service.call(from.arrival(last)).await).label(), "joining_interrupted");
        service.ready().await.expect("ready");
        assert_eq!(refused(service.call(from.arrival(last)).await).label(), "chunk_of_failed");
    }
    let refusals = [("joining_interrupted".to_owned(), 2), ("chunk_of_failed".to_owned(), 2)];
    assert_eq!((counters.refusals(), node.streams()), (refusals.into(), 0));
}

#[tokio::test]
async fn l2_8_what_is_joined_stays_accounted_and_alone_though_its_caller_went_away() {
    let node = Node::start().await;
    let (classifier, enters, lets_on) = Held::new();
    let config = ReassemblyConfig { link_bytes: 4_000, ..ReassemblyConfig::default() };
    let layer = node.layer().classifier(classifier).reassembly(config).build();
    let (mut from, mut other) = (Sender::new(&node.clock), Sender::new(&node.clock));
    let (mut service, mut others) = (layer.layer(service_fn(accept)), layer.layer(service_fn(accept)));
    let (gone, joined) = (message(&mut from, &node), message(&mut other, &node));
    for (chunk, another) in gone.iter().zip(&joined).take(6) {
        service.call(from.arrival(chunk)).await.expect("stored");
        others.call(other.arrival(another)).await.expect("stored");
    }
    let mut joining = service.call(from.arrival(&gone[6]));
    assert!((&mut joining).now_or_never().is_none());
    enters.recv().expect("it is being joined");
    drop(joining);

    service.ready().await.expect("ready");
    let next = message(&mut from, &node);
    let refusal = refused(service.call(from.arrival(&next[0])).await);
    assert_eq!(refusal.label(), "reassembly_link_bytes", "it is in memory still");
    let last = tokio::spawn(others.call(other.arrival(&joined[6])));
    tokio::task::yield_now().await;
    assert!(enters.try_recv().is_err(), "one is joined at a time");
    lets_on.send(()).expect("held");
    lets_on.send(()).expect("held");
    last.await.expect("no panic").expect("admitted");
    let next = message(&mut from, &node);
    service.call(from.arrival(&next[0])).await.expect("stored: what was joined is let go");
    assert_eq!(node.streams(), 1);
}
