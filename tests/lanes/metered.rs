//! What lanes say of themselves in metrics (law L13.5).

use std::time::{Duration, Instant};

use admit_one::message::Class;
use futures::{StreamExt, future::join_all};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::support::{Node, Transport, frame, in_time};

#[test]
fn l13_5_depth_and_credit_waits_are_metered_by_class_over_tcp() {
    metered(Transport::Tcp);
}

#[test]
fn l13_5_depth_and_credit_waits_are_metered_by_class_over_quic() {
    metered(Transport::Quic);
}

/// On one thread, which the recorder belongs to.
fn metered(transport: Transport) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(waits(transport, &snapshotter)));
}

/// Values with the label of their class.
type ByClass = Vec<(String, f64)>;

/// What changed of each class since the last look: by how many more frames wait, and how long each wait for credit was
/// that ended.
fn look(snapshotter: &Snapshotter) -> (ByClass, ByClass) {
    let (mut depths, mut waits) = (ByClass::new(), ByClass::new());
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let class = key.key().labels().find(|label| label.key() == "class").map(|label| label.value().to_owned());
        match (key.key().name(), value) {
            ("admit_one_lane_depth", DebugValue::Gauge(depth)) => depths.push((class.unwrap(), depth.0)),
            ("admit_one_lane_credit_wait_seconds", DebugValue::Histogram(values)) => {
                waits.extend(values.into_iter().map(|wait| (class.clone().unwrap(), wait.0)));
            }
            _ => {}
        }
    }
    (depths, waits)
}

async fn waits(transport: Transport, snapshotter: &Snapshotter) {
    let (sender, mut receiver) = (Node::start(transport).await, Node::start(transport).await);
    let began = Instant::now();
    let mut settlements = Vec::new();
    for sequence in 0..20 {
        settlements.push(in_time(sender.outbound.send(frame(receiver.did, Class::E2e, sequence, 10))).await.unwrap());
    }
    let label = Class::E2e.label().to_owned();
    assert_eq!(look(snapshotter), (vec![(label.clone(), 20.0)], vec![]), "all wait, and none of them for credit");
    sender.know(&receiver);
    let mut inbound = receiver.channel().await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(in_time(inbound.next()).await.unwrap());
    }
    let (depths, waits) = look(snapshotter);
    assert_eq!(depths, [(label.clone(), -8.0)], "a window of 8 is in flight, and 12 wait");
    assert_eq!(waits, [], "the wait goes on");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let stalled = Duration::from_millis(20);
    held.clear();
    for _ in 8..20 {
        drop(in_time(inbound.next()).await.unwrap());
    }
    assert!(in_time(join_all(settlements)).await.iter().all(Result::is_ok));
    let (depths, waits) = look(snapshotter);
    assert_eq!(depths, [(label.clone(), -12.0)], "none waits any more");
    let most = began.elapsed().as_secs_f64();
    assert!(waits.iter().all(|(class, wait)| *class == label && (0.0..most).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|(_, wait)| *wait >= stalled.as_secs_f64()), "{waits:?}");
}
