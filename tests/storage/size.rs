//! Both tables of streams full, on real files: what was admitted is refused, and what was reserved is passed, after a
//! restart of 16,384 receiver streams and 16,384 sender streams (law L10.1).

use std::{path::Path, sync::Arc, time::Duration};

use admit_one::{
    clock::{Clock, DEFAULT_SIGMA_MS, ManualClock},
    identity::KeySigner,
    layer::{
        boundary::{Admission, AdmissionConfig, BoundaryRefusal, Carrier, Request, STREAMS_MAX},
        charging::Shares,
        window::{Verdict, WindowRefusal},
    },
    link::{LinkGuard, LinkId, Links},
    message::{Class, DEFAULT_TTL_MS, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        Journal, JournalConfig,
        commit::{CommitConfig, GroupCommit},
        lease::{LEASE, LeaseConfig, LeaseRefused, Leases, SENDER_STREAMS},
    },
};
use futures::future::join_all;
use libp2p::PeerId;

const START: u64 = 1_700_000_000_000;
const STREAMS: usize = 16_384;
/// The slots of 15 successors, whose shares come to the hard bound exactly (law L10.3). There is no inbox here, and this
/// node has its share.
const SHARES: Shares = Shares { slots: 2 * (160 + 15 + 1), floor: 32, pool: 3_328, inbox: 0, own: 768 + 1_024 };

const _: () = assert!(STREAMS == STREAMS_MAX && STREAMS == SENDER_STREAMS && SHARES.total() == STREAMS as u64);

struct Node {
    commit: GroupCommit,
    admission: Admission,
    leases: Leases,
}

async fn open(path: &Path, clock: &Arc<ManualClock>) -> Node {
    let path = path.to_owned();
    let journal = tokio::task::spawn_blocking(|| Journal::open(path, JournalConfig::default()));
    let journal = Arc::new(journal.await.expect("no panic").expect("it opens"));
    let commit = GroupCommit::open(journal, CommitConfig::new()).await.expect("it opens");
    let config = AdmissionConfig { shares: SHARES, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, clock.clone(), config).await.expect("it opens");
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("it opens");
    assert_eq!(commit.health().unrestorable, []);
    Node { commit, admission, leases }
}

/// Streams of one origin on as many networks: to the tables they are like any others, and cheaper to make.
fn streams() -> Vec<StreamKey> {
    let [origin, destination] = [1, 2].map(|secret| KeySigner::from_secret(&[secret; 32]).expect("a key").key());
    let stream = |number| StreamKey { network: NetworkId(number), origin, destination, class: Class::E2e };
    (0..STREAMS as u64 + 1).map(stream).collect()
}

fn request(stream: StreamKey, carrier: Carrier, issued_at: u64) -> Request {
    Request {
        stream,
        incarnation: Incarnation::new(START, 1),
        sequence: 5,
        digest: TransactionDigest([7; 32]),
        issued_at,
        ttl: DEFAULT_TTL_MS,
        bytes: 100,
        application: None,
        carrier,
    }
}

#[tokio::test]
async fn l10_1_both_tables_full_are_written_restored_and_refused_or_passed() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::new(START));
    let node = open(directory.path(), &clock).await;
    clock.advance(Duration::from_millis(2 * DEFAULT_SIGMA_MS + 1));
    let issued_at = clock.wall();
    let streams = streams();

    // Every link its floor, the first of them all of the pool, then this node.
    let links: Vec<LinkId> = (0..SHARES.slots).map(LinkId::of).collect();
    let guards: Vec<LinkGuard> =
        links.iter().map(|link| node.admission.open(PeerId::random(), *link).expect("a slot is free")).collect();
    let floors = links.iter().flat_map(|link| [Carrier::Link(*link); 32]);
    let pool = std::iter::repeat_n(Carrier::Link(links[0]), 3_328);
    let carriers = floors.chain(pool).chain(std::iter::repeat_n(Carrier::Own, 768 + 1_024));
    let requests: Vec<_> =
        streams.iter().zip(carriers).map(|(stream, carrier)| request(*stream, carrier, issued_at)).collect();
    assert_eq!(requests.len(), STREAMS);
    for answer in join_all(requests.iter().map(|request| node.admission.admit(*request))).await {
        assert_eq!(answer.expect("it is durable"), Ok(Verdict::First));
    }
    for carrier in [Carrier::Link(links[9]), Carrier::Own] {
        let one_more = node.admission.admit(request(streams[STREAMS], carrier, issued_at)).await.expect("no fault");
        assert!(matches!(one_more, Err(BoundaryRefusal::StreamCapacityExceeded { .. })), "{one_more:?}");
    }
    let reserve = |node: &Node| {
        let tickets: Vec<_> =
            streams[..STREAMS].iter().map(|stream| node.leases.reserve(stream, DEFAULT_TTL_MS)).collect();
        async {
            join_all(tickets).await.into_iter().map(|answer| answer.expect("it is durable").expect("there is room"))
        }
    };
    let first: Vec<_> = reserve(&node).await.collect();
    assert!(first.iter().all(|reservation| reservation.sequence == 0));
    let full = node.leases.reserve(&streams[STREAMS], DEFAULT_TTL_MS).await.expect("no fault");
    assert_eq!(full, Err(LeaseRefused::StreamCapacityExceeded { bound: STREAMS }));
    drop(guards);
    node.commit.shutdown().await;
    drop(node);

    let node = open(directory.path(), &clock).await;
    assert_eq!((node.admission.health().streams, node.leases.streams()), (STREAMS, STREAMS));
    for answer in join_all(requests.iter().map(|request| node.admission.admit(*request))).await {
        assert_eq!(answer.expect("no fault"), Err(WindowRefusal::Replay.into()));
    }
    for (again, first) in reserve(&node).await.zip(&first) {
        assert_eq!((again.incarnation, again.sequence), (first.incarnation, LEASE));
    }
    // Each goes on, too.
    let next = requests.iter().map(|request| Request { sequence: 6, ..*request });
    for answer in join_all(next.map(|request| node.admission.admit(request))).await {
        assert_eq!(answer.expect("it is durable"), Ok(Verdict::Advance));
    }
}
