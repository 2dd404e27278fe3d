//! Every way in which one record can be bad, one at a time, in either table of streams (law L11): exactly its stream is
//! unavailable, every other one answers and is written as in a store that never held the record, it is counted and logged
//! once, it is kept as it is, and it takes one place of both tables' bounds.
//!
//! Two engines: a mock that gives back whatever value a test puts in its place, for each bit and each length of a value
//! (`values`); and the journal, for each bit of a record where it stands in the file, in memory and on a disk (`files`).

mod files;
mod values;

use std::{
    cell::RefCell,
    io,
    sync::{Arc, Once},
};

use bytes::{Bytes, BytesMut};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::{
    layer::{
        charging::{Bound, Introducer},
        window::WindowRefusal,
    },
    storage::{
        Key, RecordName, Store, Table,
        commit::fault::Records,
        lease::{LEASE, LeaseConfig, LeaseRefused, Leases, Reservation},
    },
};

/// Streams that are there, each in both tables; the record of the second one goes bad.
const HELD: [u8; 3] = [1, 2, 3];
const VICTIM: u8 = 2;
const ISSUED: u64 = START + 2 * SIGMA + 1;

fn key(origin: u8) -> StreamKey {
    stream(origin, Class::E2e)
}

fn place(table: Table, origin: u8) -> (Table, Key) {
    (table, Key::copy_from_slice(&key(origin).to_bytes()))
}

fn name(table: Table, origin: u8) -> RecordName {
    RecordName::of(table, &key(origin).to_bytes())
}

fn request(origin: u8, sequence: u64, digest: u8) -> Request {
    Request {
        stream: key(origin),
        incarnation: Incarnation::new(START, 1),
        sequence,
        digest: TransactionDigest([digest; 32]),
        issued_at: ISSUED,
        ttl: TTL,
        bytes: 0,
        application: None,
        carrier: carrier(1),
    }
}

/// One process over one store, with as many streams in each table as `bounds` says: receivers, senders.
struct Process {
    commit: GroupCommit,
    admission: Admission,
    leases: Leases,
}

impl Process {
    async fn open(store: &Arc<dyn Store>, bounds: (usize, usize)) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        clock.advance(Duration::from_millis(2 * SIGMA + 1));
        let commit = GroupCommit::open(store.clone(), CommitConfig::new()).await.unwrap();
        let admission = AdmissionConfig { streams: bounds.0, ..config() };
        let admission = Admission::open(&commit, clock.clone(), admission).await.unwrap();
        let leases = Leases::open(&commit, clock, LeaseConfig { sigma: SIGMA, streams: bounds.1 }).unwrap();
        Self { commit, admission, leases }
    }

    async fn admit(&self, request: Request) -> Answer {
        self.admission.admit(request).await.unwrap()
    }

    async fn reserve(&self, origin: u8) -> Result<Reservation, LeaseRefused> {
        self.leases.reserve(&key(origin), TTL).await.unwrap()
    }
}

/// What a store holds after one admission and one reservation of each stream.
async fn fill(store: &Arc<dyn Store>) {
    // The birth mark is that of the first opening, before any clock moved.
    let clock = Arc::new(ManualClock::new(START));
    let commit = GroupCommit::open(store.clone(), CommitConfig::new()).await.unwrap();
    drop(Admission::open(&commit, clock, config()).await.unwrap());
    commit.shutdown().await;
    let process = Process::open(store, (HELD.len(), HELD.len())).await;
    for origin in HELD {
        assert_eq!(process.admit(request(origin, 1, 1)).await, Ok(Verdict::First));
        assert_eq!(process.reserve(origin).await.unwrap().sequence, 0);
    }
    process.commit.shutdown().await;
}

async fn read(store: &Arc<dyn Store>) -> Records {
    let mut records = Records::new();
    for table in Table::ALL {
        let scan = store.scan(table).await.unwrap();
        records.extend(scan.records.into_iter().map(|(key, value)| ((table, key), value)));
    }
    records
}

/// Asks everything of a receiver stream that is there and holds sequence 1 alone.
async fn receives(process: &Process, origin: u8) -> [Answer; 6] {
    [
        process.admit(request(origin, 1, 1)).await,
        process.admit(request(origin, 1, 9)).await,
        process.admit(request(origin, 5, 5)).await,
        process.admit(request(origin, 3, 3)).await,
        process.admit(request(origin, 5, 5)).await,
        process.admit(Request { incarnation: Incarnation::new(START, 0), ..request(origin, 6, 6) }).await,
    ]
}

/// What [`receives`] gives where the record is whole.
fn as_ever() -> [Answer; 6] {
    let digest = |byte| TransactionDigest([byte; 32]);
    [
        Err(WindowRefusal::Replay.into()),
        Err(WindowRefusal::Fork { kept: digest(1), refused: digest(9) }.into()),
        Ok(Verdict::Advance),
        Ok(Verdict::Late),
        Err(WindowRefusal::Replay.into()),
        Err(WindowRefusal::Stale { incarnation: Incarnation::new(START, 1), lowest: 0 }.into()),
    ]
}

/// Runs the two streams that are not the victim's in both tables, and a new one where `fresh` says so, and gives what the
/// store then holds of the former.
async fn run_others(process: &Process, store: &Arc<dyn Store>, context: &str) -> Records {
    for origin in HELD.into_iter().filter(|origin| *origin != VICTIM) {
        assert_eq!(receives(process, origin).await, as_ever(), "{context}: receiver stream {origin}");
        for sequence in LEASE..LEASE + 2 {
            assert_eq!(process.reserve(origin).await.unwrap().sequence, sequence, "{context}: sender stream {origin}");
        }
    }
    let mut records = read(store).await;
    for table in [Table::Receiver, Table::Sender] {
        records.remove(&place(table, VICTIM));
    }
    records
}

/// What [`run_others`] leaves on a store that never held the victim's records.
async fn twin(records: &Records, table: Table) -> Records {
    let mut without = records.clone();
    without.remove(&place(table, VICTIM));
    let store = FaultStore::holding(without).arc();
    let process = Process::open(&store, (HELD.len(), HELD.len())).await;
    run_others(&process, &store, "the twin").await
}

/// Checks all of law L11 on a store of which exactly the victim's record in `table` is bad.
async fn check(store: &Arc<dyn Store>, table: Table, twin: &Records, log: &Log, context: &str) {
    let bad = name(table, VICTIM);
    let before = read(store).await.remove(&place(table, VICTIM));
    // Room for one new stream beside three that are whole, or two and the bad one; the bad one takes a place of both.
    let process =
        Process::open(store, (4 + usize::from(table == Table::Sender), 4 + usize::from(table == Table::Receiver)));
    let process = process.await;
    let unrestorable = process.commit.health().unrestorable;
    assert!(matches!(&unrestorable[..], [(name, reason)] if *name == bad && !reason.is_empty()), "{context}");
    assert_eq!(&run_others(&process, store, context).await, twin, "{context}: what the others wrote");

    let refusal = Err(BoundaryRefusal::StreamUnavailable { key: key(VICTIM), record: bad });
    let refused = Err(LeaseRefused::Unavailable { record: bad });
    let mut calls = 0;
    if table == Table::Receiver {
        assert_eq!(receives(&process, VICTIM).await, [refusal; 6], "{context}");
        calls += 6;
        // Its sender's record is another one.
        assert_eq!(process.reserve(VICTIM).await.unwrap().sequence, LEASE, "{context}");
    } else {
        for _ in 0..2 {
            assert_eq!(process.reserve(VICTIM).await, refused, "{context}");
            calls += 1;
        }
        assert_eq!(receives(&process, VICTIM).await, as_ever(), "{context}");
    }
    assert_eq!(process.admit(request(4, 1, 1)).await, Ok(Verdict::First), "{context}: the last place");
    assert_eq!(process.reserve(4).await.unwrap().sequence, 0, "{context}: the last place");
    let full = process.admit(request(5, 1, 1)).await;
    let bound = Bound::Store { streams: 4 + usize::from(table == Table::Sender) };
    assert!(
        matches!(full, Err(BoundaryRefusal::StreamCapacityExceeded { introducer: Introducer::Slot(_), bound: reached })
            if reached == bound),
        "{context}: {full:?}"
    );
    let bound = 4 + usize::from(table == Table::Receiver);
    assert_eq!(process.reserve(5).await, Err(LeaseRefused::StreamCapacityExceeded { bound }), "{context}");

    process.commit.shutdown().await;
    assert_eq!(read(store).await.remove(&place(table, VICTIM)), before, "{context}: it is kept as it is");
    assert_eq!(log.take(), Counted { errors: vec![bad.to_string()], unrestorable: 1, calls }, "{context}");
    drop(process);

    // The next process finds it as this one did.
    let process = Process::open(store, (6, 6)).await;
    assert_eq!(process.commit.health().unrestorable.len(), 1, "{context}: after a restart");
    if table == Table::Receiver {
        assert_eq!(process.admit(request(VICTIM, 7, 7)).await, refusal, "{context}: after a restart");
    } else {
        assert_eq!(process.reserve(VICTIM).await, refused, "{context}: after a restart");
    }
    process.commit.shutdown().await;
    log.take();
}

/// What was counted and logged.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    /// The records that error lines name.
    errors: Vec<String>,
    /// The gauge of records that cannot be restored.
    unrestorable: u64,
    /// Refused calls on unavailable streams.
    calls: u64,
}

/// Takes what this thread logs and counts.
struct Log {
    recorder: metrics_util::debugging::Snapshotter,
}

thread_local! {
    /// What this thread logged at the level of errors, where it is watched.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// One subscriber for the process, since those of threads come and go, and what one of them enables is cached for all.
static SUBSCRIBER: Once = Once::new();

struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// What there is since the last time.
    fn take(&self) -> Counted {
        let lines = LINES.with_borrow_mut(|lines| lines.as_mut().map(std::mem::take));
        let lines = String::from_utf8(lines.expect("this thread is watched")).unwrap();
        let named = lines.lines().filter_map(|line| line.split("record=").nth(1)?.split_whitespace().next());
        let mut counted = Counted { errors: named.map(str::to_owned).collect(), unrestorable: 0, calls: 0 };
        for (key, _, _, value) in self.recorder.snapshot().into_vec() {
            match (key.key().name(), value) {
                ("admit_one_unrestorable_records", DebugValue::Gauge(records)) => {
                    counted.unrestorable = records.0 as u64
                }
                ("admit_one_unavailable_calls_total", DebugValue::Counter(calls)) => counted.calls += calls,
                _ => {}
            }
        }
        counted
    }
}

/// Runs `test` on one thread, with all that it logs at the level of errors, and counts, taken.
fn watched<F: Future<Output = ()>>(test: impl FnOnce(Log) -> F) {
    SUBSCRIBER.call_once(|| {
        let errors = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR).with_ansi(false);
        let subscriber = errors.with_writer(|| Lines).finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other is set");
    });
    LINES.set(Some(Vec::new()));
    let recorder = DebuggingRecorder::new();
    let log = Log { recorder: recorder.snapshotter() };
    metrics::with_local_recorder(&recorder, || {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test(log));
    });
    LINES.set(None);
}

/// The seal of a record's kind over any body, so that what is wrong is not its checksum.
fn sealed(kind: &'static str, body: &[u8]) -> Bytes {
    crate::storage::seal::seal(kind, BytesMut::from(body))
}
