//! What admission costs, beside what it stands on and what would be written today, all in one run:
//!
//! - the boundary alone and the whole path (both proofs verified), by transactions in flight and by streams, on the
//!   volatile and on the durable engine;
//! - raw appends to the journal in batches of the same size, and the disk's flush floor;
//! - one SQLite transaction a message, and one flush an admission.
//!
//! `cargo bench --bench admission` prints criterion's figures and then the ratios; `-- FILTER` runs a part, and ratios
//! are printed where both sides ran.

mod load;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use admit_one::{
    clock::{Clock as _, SystemClock, WallMs},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig},
        charging::Shares,
    },
    message::Class,
    storage::{
        Batch, Journal, JournalConfig, Memory, Store, Table, Write,
        commit::{CommitConfig, GroupCommit},
    },
};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::runtime::Runtime;
use tower::{Layer as _, Service as _, service_fn};

use load::{Frames, NETWORK, Requests, directory};

const IN_FLIGHT: [usize; 5] = [1, 8, 64, 512, 4_096];
const STREAMS: [usize; 3] = [1, 64, 4_096];
/// What a receiver's record takes with a full window, about.
const RECORD: usize = 1_200;
/// Over how many connections whole-path transactions come: a link has at most some hundred in flight, so thousands in
/// flight are many links.
const LINKS: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Engine {
    Memory,
    Journal,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Memory => "memory",
            Engine::Journal => "journal",
        })
    }
}

/// The best time of one operation in each benchmark, in seconds, for the ratios.
#[derive(Debug, Clone, Default)]
struct Figures(Rc<RefCell<BTreeMap<String, f64>>>);

impl Figures {
    fn record(&self, name: &str, elapsed: Duration, operations: u64) {
        let each = elapsed.as_secs_f64() / operations.max(1) as f64;
        let mut figures = self.0.borrow_mut();
        let best = figures.entry(name.to_owned()).or_insert(f64::INFINITY);
        *best = best.min(each);
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.borrow().get(name).copied()
    }
}

/// A receiver over one engine, in a directory of its own.
struct Receiver {
    _directory: tempfile::TempDir,
    commit: GroupCommit,
    admission: Admission,
    issued_at: WallMs,
}

impl Receiver {
    async fn start(engine: Engine) -> Self {
        let directory = directory();
        let clock = Arc::new(SystemClock::new());
        let (store, config): (Arc<dyn Store>, _) = match engine {
            Engine::Memory => (Arc::new(Memory::new()), CommitConfig::volatile_for_tests()),
            Engine::Journal => {
                let journal = Journal::open(directory.path().join("store"), JournalConfig::default());
                (Arc::new(journal.expect("a fresh store")), CommitConfig::new())
            }
        };
        let commit = GroupCommit::open(store, config).await.expect("a fresh store");
        // All streams come by links that nobody announced, which share a slot.
        let shares = Shares { floor: 4_096, ..Shares::default() };
        let config = AdmissionConfig { sigma: 10, shares, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.expect("a fresh store");
        while admission.health().refuses_fresh_until.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The mark follows a wall clock that is being slewed: what is issued from here on stays clear of it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Self { _directory: directory, commit, admission, issued_at: clock.wall() }
    }
}

/// Keeps `in_flight` operations going until `count` are done; the time from the first to the last.
async fn keep_in_flight<F: Future<Output = ()>>(
    in_flight: usize,
    count: u64,
    mut start: impl FnMut() -> F,
) -> Duration {
    let began = Instant::now();
    let mut open = FuturesUnordered::new();
    for _ in 0..count {
        if open.len() == in_flight {
            open.next().await;
        }
        open.push(start());
    }
    while open.next().await.is_some() {}
    began.elapsed()
}

fn boundary(criterion: &mut Criterion, runtime: &Runtime, figures: &Figures) {
    let mut group = criterion.benchmark_group("boundary");
    group.throughput(Throughput::Elements(1));
    // What a ratio compares is measured back to back, since a machine's speed drifts over minutes.
    for streams in STREAMS {
        for in_flight in IN_FLIGHT {
            for engine in [Engine::Memory, Engine::Journal] {
                let name = format!("boundary/{engine}/{streams}/{in_flight}");
                group.bench_function(BenchmarkId::new(format!("{engine}/{streams} streams"), in_flight), |bencher| {
                    let receiver = runtime.block_on(Receiver::start(engine));
                    let mut requests = Requests::new(streams, receiver.issued_at);
                    bencher.iter_custom(|count| {
                        let batches = receiver.commit.health().batches;
                        let elapsed = runtime.block_on(keep_in_flight(in_flight, count, || {
                            receiver.admission.admit(requests.next()).map(|answer| {
                                answer.expect("the store works").expect("the next of its stream");
                            })
                        }));
                        figures.record(&name, elapsed, count);
                        let batches = receiver.commit.health().batches - batches;
                        if batches > 0 {
                            let mean = count as f64 / batches as f64;
                            figures.0.borrow_mut().insert(format!("{name}/batch"), mean);
                        }
                        elapsed
                    });
                });
            }
        }
    }
    group.finish();
}

fn whole_path(criterion: &mut Criterion, runtime: &Runtime, figures: &Figures) {
    let mut group = criterion.benchmark_group("whole path");
    group.throughput(Throughput::Elements(1));
    // What a ratio compares is measured back to back, since a machine's speed drifts over minutes.
    for streams in STREAMS {
        for in_flight in IN_FLIGHT {
            for engine in [Engine::Memory, Engine::Journal] {
                let name = format!("whole path/{engine}/{streams}/{in_flight}");
                group.bench_function(BenchmarkId::new(format!("{engine}/{streams} streams"), in_flight), |bencher| {
                    let receiver = runtime.block_on(Receiver::start(engine));
                    let mut frames = Frames::new(streams, &[Class::E2e], LINKS, receiver.issued_at);
                    let layer =
                        AdmissionLayer::builder(NETWORK, frames.destination, receiver.admission.clone()).build();
                    let mut service = layer
                        .layer(service_fn(|_: Admitted| std::future::ready(Ok::<_, std::convert::Infallible>(()))));
                    bencher.iter_custom(|count| {
                        // Signed before the clock starts.
                        let mut arrivals = (0..count).map(|_| frames.next()).collect::<Vec<_>>().into_iter();
                        let elapsed = runtime.block_on(keep_in_flight(in_flight, count, || {
                            let answer = service.call(arrivals.next().expect("one an operation"));
                            async move {
                                answer.await.expect("admitted");
                            }
                        }));
                        figures.record(&name, elapsed, count);
                        elapsed
                    });
                });
            }
        }
    }
    group.finish();
}

/// Batches of records straight into the journal, without group commit or windows.
fn raw_appends(criterion: &mut Criterion, runtime: &Runtime, figures: &Figures) {
    let mut group = criterion.benchmark_group("raw appends");
    group.throughput(Throughput::Elements(1));
    for size in IN_FLIGHT {
        let name = format!("raw/{size}");
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            let directory = directory();
            let journal =
                Journal::open(directory.path().join("store"), JournalConfig::default()).expect("a fresh store");
            let mut next = 0u64;
            bencher.iter_custom(|count| {
                let batches = count.div_ceil(size as u64);
                let writes: Vec<Batch> = (0..batches)
                    .map(|_| Batch {
                        writes: (0..size)
                            .map(|_| {
                                next += 1;
                                Write {
                                    table: Table::Receiver,
                                    key: Bytes::copy_from_slice(&(next % 4_096).to_be_bytes()),
                                    value: Some(vec![next as u8; RECORD].into()),
                                }
                            })
                            .collect(),
                    })
                    .collect();
                let began = Instant::now();
                runtime.block_on(async {
                    for batch in writes {
                        journal.commit(batch).await.expect("the disk works");
                    }
                });
                let elapsed = began.elapsed();
                figures.record(&name, elapsed, batches * size as u64);
                elapsed.mul_f64(count as f64 / (batches * size as u64) as f64)
            });
        });
    }
    group.finish();
}

/// What the disk itself takes to make 4 KiB durable in a file of fixed size.
fn flush_floor(criterion: &mut Criterion, figures: &Figures) {
    use std::io::{Seek as _, SeekFrom, Write as _};
    criterion.bench_function("flush floor", |bencher| {
        let directory = directory();
        let mut file = std::fs::File::create(directory.path().join("floor")).expect("a file");
        file.write_all(&vec![0; 1 << 22]).and_then(|()| file.sync_all()).expect("4 MiB");
        bencher.iter_custom(|count| {
            let began = Instant::now();
            for turn in 0..count {
                file.seek(SeekFrom::Start(turn % 1_024 * 4_096)).expect("within the file");
                file.write_all(&[turn as u8; 4_096]).expect("written");
                file.sync_data().expect("flushed");
            }
            let elapsed = began.elapsed();
            figures.record("flush floor", elapsed, count);
            elapsed
        });
    });
}

/// What would be written today: a transaction of SQLite a message, durable.
fn sqlite(criterion: &mut Criterion, figures: &Figures) {
    criterion.bench_function("sqlite, one transaction a message", |bencher| {
        let directory = directory();
        let database = rusqlite::Connection::open(directory.path().join("windows.sqlite")).expect("a database");
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE windows (stream BLOB PRIMARY KEY, window BLOB NOT NULL);",
            )
            .expect("a table");
        let mut statement = database.prepare("INSERT OR REPLACE INTO windows VALUES (?1, ?2)").expect("a statement");
        bencher.iter_custom(|count| {
            let began = Instant::now();
            for turn in 0..count {
                let window = vec![turn as u8; RECORD];
                statement.execute((&(turn % 64).to_be_bytes()[..], &window[..])).expect("a row");
            }
            let elapsed = began.elapsed();
            figures.record("sqlite", elapsed, count);
            elapsed
        });
    });
}

fn print_ratios(figures: &Figures) {
    let per_second = |name: &str| figures.get(name).map(|each| 1.0 / each);
    let ratio = |label: &str, one: Option<f64>, other: Option<f64>, target: &str| {
        if let (Some(one), Some(other)) = (one, other) {
            println!("{label:<72} {:>8.2}  {target}", one / other);
        }
    };
    println!("\nratios, of one run");
    for streams in STREAMS {
        ratio(
            &format!("whole path, 512 in flight, {streams} streams: journal / memory"),
            per_second(&format!("whole path/journal/{streams}/512")),
            per_second(&format!("whole path/memory/{streams}/512")),
            "target: at least 0.9",
        );
    }
    for streams in STREAMS {
        for in_flight in [64, 512, 4_096] {
            let name = format!("boundary/journal/{streams}/{in_flight}");
            ratio(
                &format!("boundary on journal, {in_flight} in flight, {streams} streams / raw appends"),
                per_second(&name),
                per_second(&format!("raw/{in_flight}")),
                "target: at least 0.5",
            );
        }
    }
    if let (Some(alone), Some(floor)) = (figures.get("boundary/journal/1/1"), figures.get("flush floor")) {
        println!(
            "one admission alone: {:.0} µs; two flush floors and 100 µs: {:.0} µs",
            alone * 1e6,
            floor * 2e6 + 100.0,
        );
    }
    for in_flight in [1, 64, 512, 4_096] {
        let journal = per_second(&format!("boundary/journal/64/{in_flight}"));
        ratio(
            &format!("boundary on journal, {in_flight} in flight / SQLite a message"),
            journal,
            per_second("sqlite"),
            "",
        );
        ratio(
            &format!("boundary on journal, {in_flight} in flight / one flush an admission"),
            journal,
            per_second("boundary/journal/64/1"),
            "",
        );
        ratio(
            &format!("whole path on journal, {in_flight} in flight / SQLite a message"),
            per_second(&format!("whole path/journal/64/{in_flight}")),
            per_second("sqlite"),
            "",
        );
    }
    for (name, mean) in figures.0.borrow().iter().filter(|(name, _)| name.ends_with("/batch")) {
        println!("{:<72} {mean:>8.1}", format!("mean batch, {}", name.trim_end_matches("/batch")));
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let figures = Figures::default();
    flush_floor(&mut criterion, &figures);
    sqlite(&mut criterion, &figures);
    raw_appends(&mut criterion, &runtime, &figures);
    boundary(&mut criterion, &runtime, &figures);
    whole_path(&mut criterion, &runtime, &figures);
    criterion.final_summary();
    print_ratios(&figures);
}
