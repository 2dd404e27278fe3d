//! Every refusal of the boundary is counted once, under its own name (law L13.5).

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::{
    layer::{
        boundary::Application,
        charging::Shares,
        local::Namespace,
        quota::{Quota, Quotas, Rate},
    },
    link::Links,
    message::ClassifierId,
    operator,
    storage::{RecordName, Table, commit::Budget},
};

/// One of everything, and a short life in all.
fn tight() -> AdmissionConfig {
    let quota = Quota { bytes: Rate::new(1, 10).unwrap(), ..Quota::OFFERED };
    AdmissionConfig {
        shares: Shares { slots: 1, floor: 8, pool: 0, inbox: 1, own: 1 },
        quotas: Quotas::NONE.with(Class::DhtControl, quota),
        ..config()
    }
}

#[tokio::test]
async fn l13_5_every_refusal_of_the_boundary_is_counted_once_under_its_own_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let mut counted = BTreeMap::new();
    let mut count = || {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let DebugValue::Counter(value @ 1..) = value else { continue };
            let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
            let name = format!("{} {}", key.key().name(), labels.join(" "));
            *counted.entry(name).or_insert(0) += value;
        }
    };

    let node = Node::new(tight()).await;
    let link = node.admission.open(libp2p::PeerId::random(), LinkId::of(1_u64)).unwrap();
    assert!(node.admission.open(libp2p::PeerId::random(), LinkId::of(2_u64)).is_err());
    let first = node.fresh(stream(1, Class::E2e), 100);
    assert!(node.answer(first).await.is_ok());
    assert!(node.answer(Request { carrier: Carrier::Own, ..node.fresh(stream(2, Class::E2e), 1) }).await.is_ok());
    node.admission.register(Namespace::new("chat").unwrap()).await.unwrap();
    let application = Application { classifier: ClassifierId::of("one"), namespace: None, own_link: None };
    let chat = Request { application: Some(application), ..node.fresh(stream(1, Class::Application), 1) };
    assert!(node.answer(chat).await.is_ok());
    count();
    let another = Application { classifier: ClassifierId::of("two"), ..application };
    let refused = [
        Request { ttl: TTL + 1, ..first },
        Request { issued_at: first.issued_at - 2 * SIGMA, ttl: 1, ..first },
        Request { issued_at: first.issued_at + SIGMA + 1, ..first },
        Request { issued_at: first.issued_at - 1, ..first },
        Request { incarnation: Incarnation::new(node.clock.wall() + SIGMA + 1, 0), ..first },
        first,
        Request { digest: TransactionDigest([1; 32]), ..first },
        Request { sequence: 1, ..first },
        Request { carrier: carrier(2), ..node.fresh(stream(3, Class::E2e), 1) },
        Request { carrier: Carrier::Own, ..node.fresh(stream(3, Class::E2e), 1) },
        Request { bytes: 11, ..node.fresh(stream(3, Class::DhtControl), 1) },
        Request { application: Some(another), sequence: 2, ..chat },
    ];
    for request in refused {
        assert!(node.answer(request).await.is_err());
    }
    node.admission.withdraw(Namespace::new("chat").unwrap()).await.unwrap();
    let namespace = Some(Namespace::new("chat").unwrap());
    let withdrawn = Application { namespace, ..application };
    assert!(node.answer(Request { application: Some(withdrawn), sequence: 3, ..chat }).await.is_err());
    count();
    drop(link);

    // Spent streams go, once their buckets are full, and what its class's floor refuses lives again by a clock that went back.
    let floor = first.expires_at();
    node.pass(10_001);
    assert!(node.answer(Request { carrier: Carrier::Own, ..node.fresh(stream(4, Class::E2e), 1) }).await.is_ok());
    node.clock.step_wall_to(floor - 2);
    let below = Request { issued_at: floor - 2, ttl: 2, ..node.fresh(stream(1, Class::E2e), 101) };
    count();
    assert!(matches!(node.answer(below).await, Err(BoundaryRefusal::BelowFloor { .. })));
    count();

    let mut records = node.store.records();
    let (place, value) = records.iter().find(|((table, _), _)| *table == Table::Receiver).unwrap();
    let (place, cut) = (place.clone(), value.slice(1..));
    let key = StreamKey::from_bytes(&place.1).unwrap();
    records.insert(place, cut);
    let damaged = Node::open(FaultStore::holding(records), node.clock.clone(), tight()).await.unwrap();
    assert!(damaged.answer(damaged.fresh(key, 1)).await.is_err());

    // Its record is cleared, and what was issued by then is refused for it.
    damaged.commit.shutdown().await;
    let name = RecordName::of(Table::Receiver, &key.to_bytes());
    operator::clear(&damaged.store.arc(), name, &*damaged.clock).await.unwrap();
    let cleared = Node::open(damaged.store.clone(), damaged.clock.clone(), tight()).await.unwrap();
    assert!(cleared.answer(cleared.fresh(key, 1)).await.is_err());

    let budget = CommitConfig::new().with_budget(Table::Receiver, Budget { records: 0, bytes: 0 });
    let commit = GroupCommit::open(FaultStore::new().arc(), budget).await.unwrap();
    let full = Admission::open(&commit, node.clock.clone(), tight()).await.unwrap();
    node.pass(2 * SIGMA + 1);
    assert!(full.admit(node.fresh(stream(1, Class::E2e), 1)).await.unwrap().is_err());
    count();

    let reasons = [
        "before_mark",
        "below_floor",
        "budget_exhausted",
        "expired",
        "fork",
        "from_the_future",
        "incarnation_ahead",
        "namespace_withdrawn",
        "no_slot",
        "other_classifier",
        "quota_exceeded",
        "replay",
        "stale",
        "stream_cleared",
        "stream_capacity_exceeded",
        "stream_unavailable",
        "ttl_too_long",
    ];
    counted.retain(|name, _| !name.contains("verdicts"));
    let mut expected: BTreeMap<_, _> =
        reasons.iter().map(|reason| (format!("admit_one_refusals_total {reason}"), 1)).collect();
    expected.insert("admit_one_charge_refusals_total share".into(), 1);
    expected.insert("admit_one_slot_refusals_total ".into(), 1);
    expected.insert("admit_one_unavailable_calls_total receiver".into(), 1);
    assert_eq!(counted, expected);
}
