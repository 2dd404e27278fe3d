//! What an operator does to stores that nodes left, on every engine of the build, and on one that fails on demand.

use std::{path::Path, sync::Arc, time::Duration};

use super::*;
use crate::{
    Admission, AdmissionConfig, StoreUrl,
    clock::{Clock as _, ManualClock},
    identity::KeySigner,
    layer::{
        boundary::{BoundaryRefusal, Carrier, Request},
        window::WindowRefusal,
    },
    message::{Class, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        Batch, Store, Write,
        birth::BIRTH_KEY,
        commit::{
            CommitConfig, CommitOpenError, GroupCommit,
            fault::{Fault, FaultStore},
        },
        lease::{LeaseConfig, Leases},
    },
};

const START: u64 = 1_000_000_000;
const SIGMA: u64 = 10;
const TTL: u64 = 1_000;

fn stream(number: u8) -> StreamKey {
    let key = |number| KeySigner::from_secret(&[number; 32]).unwrap().key();
    StreamKey { network: NetworkId(1), origin: key(number), destination: key(255), class: Class::E2e }
}

fn request(number: u8, sequence: u64, clock: &ManualClock) -> Request {
    Request {
        stream: stream(number),
        incarnation: Incarnation(1),
        sequence,
        digest: TransactionDigest([u8::try_from(sequence).unwrap(); 32]),
        issued_at: clock.wall(),
        ttl: TTL,
        carrier: Carrier::Own,
        bytes: 0,
        application: None,
    }
}

struct Node {
    commit: GroupCommit,
    admission: Admission,
    leases: Leases,
}

impl Node {
    async fn start(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> Self {
        let commit = GroupCommit::open(store, CommitConfig::new()).await.unwrap();
        let config = AdmissionConfig { sigma: SIGMA, greatest_ttl: TTL, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.unwrap();
        let leases = LeaseConfig { sigma: SIGMA, ..LeaseConfig::default() };
        Self { admission, leases: Leases::open(&commit, clock.clone(), leases).unwrap(), commit }
    }

    async fn admit(&self, request: Request) -> Result<(), BoundaryRefusal> {
        self.admission.admit(request).await.unwrap().map(drop)
    }

    async fn reserve(&self, number: u8) -> crate::storage::lease::Reservation {
        self.leases.reserve(&stream(number), TTL).await.unwrap().unwrap()
    }
}

/// Three windows and three leases. Gives what the first stream admitted.
async fn fill(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> Request {
    let node = Node::start(store, clock).await;
    clock.advance(Duration::from_millis(2 * SIGMA + 1));
    for number in 1..=3 {
        for sequence in 4..6 {
            node.admit(request(number, sequence, clock)).await.unwrap();
        }
        node.reserve(number).await;
    }
    let first = request(1, 4, clock);
    node.commit.shutdown().await;
    first
}

async fn open(engine: &str, directory: &Path, name: &str) -> Arc<dyn Store> {
    let url: StoreUrl = format!("{engine}:{}", directory.join(name).display()).parse().unwrap();
    url.open().await.unwrap()
}

#[tokio::test]
async fn an_inspection_shows_every_stream_and_a_verification_every_bad_record() {
    for engine in StoreUrl::engines() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START)));
        fill(open(engine, directory.path(), "store").await, &clock).await;
        let store = open(engine, directory.path(), "store").await;
        let found = inspect(&*store, clock.wall()).await.unwrap();
        assert_eq!((found.receivers.len(), found.senders.len(), found.unavailable.len()), (3, 3, 0), "{engine}");
        assert_eq!(found.birth_mark, Some(START + 2 * SIGMA));
        let first = found.receivers.iter().find(|of| of.origin == stream(1).origin).unwrap();
        assert_eq!((first.high, first.filled, first.class, &*first.introducer), (5, 2, "e2e", "this node"));
        assert!(!first.expired && inspect(&*store, clock.wall() + 2 * TTL).await.unwrap().receivers[0].expired);
        let verified = verify(&*store, |_| ()).await.unwrap();
        assert!(verified.bad.is_empty() && verified.records >= 7);
        let key = stream(2).to_bytes().to_vec();
        let write = Write { table: Table::Receiver, key: key.clone().into(), value: Some("none".into()) };
        store.commit(Batch { writes: vec![write] }).await.unwrap();
        let name = RecordName::of(Table::Receiver, &key);
        let bad = verify(&*store, |_| ()).await.unwrap().bad;
        assert_eq!(bad.iter().map(|bad| bad.record).collect::<Vec<_>>(), [name]);
        let found = inspect(&*store, clock.wall()).await.unwrap();
        assert_eq!((found.receivers.len(), found.unavailable[0].record), (2, name));
    }
}

#[tokio::test]
async fn l11_5_a_cleared_sender_draws_above_what_it_was_and_other_records_are_refused() {
    for engine in StoreUrl::engines() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START)));
        fill(open(engine, directory.path(), "store").await, &clock).await;
        let node = Node::start(open(engine, directory.path(), "store").await, &clock).await;
        let (one, two) = (node.reserve(1).await, node.reserve(2).await);
        node.commit.shutdown().await;
        drop(node);
        let store = open(engine, directory.path(), "store").await;
        let name = |table, key: &[u8]| RecordName::of(table, key);
        let sender = name(Table::Sender, &stream(1).to_bytes());
        assert_eq!(cost_of_clearing(&*store, sender).await.unwrap().lost, Lost::Numbering);
        assert_eq!(clear(&store, sender, &*clock).await.unwrap(), Cleared { record: sender, mark: None });
        assert!(matches!(clear(&store, sender, &*clock).await, Err(ClearError::NoRecord { .. })));
        let birth = name(Table::Clock, BIRTH_KEY);
        let refused = clear(&store, birth, &*clock).await.unwrap_err();
        assert!(matches!(refused, ClearError::RenewInstead { .. }) && refused.to_string().contains("store renew"));
        let node = Node::start(store, &clock).await;
        assert!(node.reserve(1).await.incarnation > one.incarnation, "{engine}");
        assert_eq!(node.reserve(2).await.incarnation, two.incarnation, "another stream goes on");
        node.commit.shutdown().await;
    }
}

#[tokio::test]
async fn l9_9_a_restored_store_admits_again_unless_it_is_renewed() {
    for renewing in [false, true] {
        let (store, clock) = (FaultStore::new(), Arc::new(ManualClock::new(START)));
        fill(store.arc(), &clock).await;
        let backup = store.records();
        let node = Node::start(store.arc(), &clock).await;
        let after = request(1, 9, &clock);
        node.admit(after).await.unwrap();
        assert_eq!(node.admit(after).await, Err(BoundaryRefusal::Window(WindowRefusal::Replay)));
        let reserved = node.reserve(1).await;
        node.commit.shutdown().await;
        let restored = FaultStore::holding(backup).arc();
        if renewing {
            let renewed = renew(&restored, &*clock).await.unwrap();
            assert_eq!((renewed.senders, renewed.birth_mark), (3, clock.wall() + 6_000));
        }
        let node = Node::start(restored, &clock).await;
        let (again, next) = (node.admit(after).await, node.reserve(1).await);
        if renewing {
            assert!(matches!(again, Err(BoundaryRefusal::BeforeMark { .. })), "{again:?}");
            assert!(next.incarnation > reserved.incarnation);
            clock.advance(Duration::from_millis(6_001));
            node.admit(request(1, 10, &clock)).await.unwrap();
        } else {
            assert_eq!(again, Ok(()), "without it a restored receiver admits again");
            assert_eq!(next.incarnation, reserved.incarnation, "and a sender goes on in the old numbering");
        }
    }
}

#[tokio::test]
async fn l9_9_a_renewal_stands_for_records_of_the_whole_store_that_are_lost() {
    for key in ["birth", "floor", "namespaces", "sender", "cleared"] {
        let (store, clock) = (FaultStore::new(), Arc::new(ManualClock::new(START)));
        let first = fill(store.arc(), &clock).await;
        let mut records = store.records();
        records.insert((Table::Clock, key.into()), "damaged".into());
        records.insert((Table::Sender, stream(2).to_bytes().to_vec().into()), "damaged".into());
        let store = FaultStore::holding(records).arc();
        let renewed = renew(&store, &*clock).await.unwrap();
        assert_eq!((renewed.senders, renewed.discarded), (2, 2), "{key}");
        assert!(verify(&*store, |_| ()).await.unwrap().bad.is_empty(), "{key}");
        let node = Node::start(store, &clock).await;
        assert!(matches!(node.admit(first).await, Err(BoundaryRefusal::BeforeMark { .. })), "{key}");
        node.reserve(2).await;
    }
}

#[tokio::test]
async fn a_migration_moves_every_record_between_any_two_engines() {
    for from in StoreUrl::engines() {
        for to in StoreUrl::engines() {
            let (directory, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START)));
            let first = fill(open(from, directory.path(), "from").await, &clock).await;
            let (source, target) = (open(from, directory.path(), "from").await, open(to, directory.path(), "to").await);
            let mut seen = Vec::new();
            let migrated = migrate(&*source, &*target, |progress| seen.push(progress)).await.unwrap();
            assert_eq!((migrated.copied, migrated.removed), (migrated.records, 0));
            assert!(seen.iter().any(|progress| progress.table == Table::Receiver && progress.done == 3));
            compare(&*source, &*target, |_| ()).await.unwrap();
            assert!(matches!(migrate(&*source, &*target, |_| ()).await, Err(MigrateError::TargetInUse)));
            drop(target);
            let node = Node::start(open(to, directory.path(), "to").await, &clock).await;
            let again = node.admit(first).await;
            assert_eq!(again, Err(BoundaryRefusal::Window(WindowRefusal::Replay)), "{from} to {to}");
            node.commit.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_migration_that_fails_at_any_batch_is_refused_by_nodes_until_another_ends_it() {
    let (source, clock) = (FaultStore::new(), Arc::new(ManualClock::new(START)));
    fill(source.arc(), &clock).await;
    for failing in 1.. {
        let target = FaultStore::new();
        target.fail_at(failing, Fault::Io);
        let ended = migrate(&*source.arc(), &*target.arc(), |_| ()).await;
        if ended.is_ok() {
            assert!(failing > 4, "a batch a table, the mark and its end");
            break;
        }
        assert!(matches!(ended, Err(MigrateError::Commit(_))), "{ended:?}");
        if failing > 1 {
            let opened = GroupCommit::open(target.arc(), CommitConfig::new()).await;
            assert!(matches!(opened, Err(CommitOpenError::Migrating)));
            assert!(matches!(renew(&target.arc(), &*clock).await, Err(RenewError::Migrating)));
            let from_it = migrate(&*target.arc(), &*FaultStore::new().arc(), |_| ()).await;
            assert!(matches!(from_it, Err(MigrateError::SourceMigrating)));
        }
        migrate(&*source.arc(), &*target.arc(), |_| ()).await.unwrap();
        assert_eq!(target.records(), source.records());
        GroupCommit::open(target.arc(), CommitConfig::new()).await.unwrap().shutdown().await;
    }
}

#[tokio::test]
async fn a_migration_takes_over_what_changed_in_the_source_since_it_was_cut_off_and_refuses_what_it_cannot_read() {
    let (source, clock) = (FaultStore::new(), Arc::new(ManualClock::new(START)));
    fill(source.arc(), &clock).await;
    let target = FaultStore::new();
    target.fail_at(4, Fault::Io);
    assert!(migrate(&*source.arc(), &*target.arc(), |_| ()).await.is_err());
    let key = stream(1).to_bytes().to_vec();
    let gone = Write { table: Table::Sender, key: key.clone().into(), value: None };
    source.arc().commit(Batch { writes: vec![gone] }).await.unwrap();
    migrate(&*source.arc(), &*target.arc(), |_| ()).await.unwrap();
    assert_eq!(target.records(), source.records());
    let name = RecordName::of(Table::Receiver, b"x");
    source.add_bad(Table::Receiver, crate::storage::BadRecord { name, reason: "torn".into() });
    let refused = migrate(&*source.arc(), &*FaultStore::new().arc(), |_| ()).await;
    assert!(matches!(refused, Err(MigrateError::Unreadable { count: 1, first }) if first == name));
}
