//! What a receiver and a sender cost when both tables of streams are full, 16,384 each: how long a restart takes, what
//! they hold in memory, and what an admission costs beside the same at 64 streams: the whole of it, from the frame to the
//! handler, both proofs verified; and the boundary's part alone.
//!
//! `cargo bench --bench size` prints a table with a target a row, and fails where one is missed. Ratios are of rounds
//! that take turns, since a machine's speed drifts.

#[expect(dead_code, reason = "shared with tests, which use all of it")]
#[path = "../tests/allocation/counting.rs"]
mod counting;
mod load;

use std::{
    fmt,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use admit_one::{
    clock::{Clock as _, SystemClock, WallMs},
    layer::{
        AdmissionLayer, Admitted,
        boundary::{Admission, AdmissionConfig, STREAMS_MAX},
        charging::Shares,
    },
    link::Arrival,
    message::{Class, DEFAULT_TTL_MS, StreamKey},
    storage::{
        Journal, JournalConfig, Memory, Store,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases, SENDER_STREAMS},
    },
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tower::{Layer as _, Service, service_fn};

use load::{Frames, NETWORK, Requests, directory, streams};

const STREAMS: usize = STREAMS_MAX;
const FEW: usize = 64;
/// What a full window holds.
const WINDOW: u64 = 32;
const IN_FLIGHT: usize = 64;
/// Restarts, and rounds of admissions at either size.
const RESTARTS: usize = 7;
const ROUNDS: usize = 9;
/// Admissions of one round.
const ROUND: u64 = 8_192;

const RESTORE_TARGET: Duration = Duration::from_millis(500);
const RATIO_TARGET: f64 = 1.2;

const _: () = assert!(STREAMS == 16_384 && SENDER_STREAMS == STREAMS);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Memory,
    Journal,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Memory => "in memory",
            Engine::Journal => "on the journal",
        })
    }
}

/// The rows so far, and whether all met their targets.
struct Table {
    met: bool,
}

impl Table {
    fn begin() -> Self {
        println!("{:<90} {:>12} {:>9}", "what", "figure", "target");
        Self { met: true }
    }

    fn row(&mut self, what: &str, figure: &str, target: &str, met: bool) {
        self.met &= met;
        println!("{what:<90} {figure:>12} {target:>9}{}", if met { "" } else { "  MISSED" });
    }
}

/// One process over one store.
struct Node {
    commit: GroupCommit,
    admission: Admission,
    leases: Leases,
}

/// How long each part of a start took.
struct Start {
    engine: Duration,
    scan: Duration,
    leases: Duration,
    boundary: Duration,
}

impl Start {
    fn total(&self) -> Duration {
        self.engine + self.scan + self.leases + self.boundary
    }
}

async fn start(engine: Engine, path: &Path) -> (Node, Start) {
    let clock = Arc::new(SystemClock::new());
    let began = Instant::now();
    let (store, config): (Arc<dyn Store>, _) = match engine {
        Engine::Memory => (Arc::new(Memory::new()), CommitConfig::volatile_for_tests()),
        Engine::Journal => {
            let journal = Journal::open(path, JournalConfig::default());
            (Arc::new(journal.expect("the journal opens")), CommitConfig::new())
        }
    };
    let engine = began.elapsed();
    let began = Instant::now();
    let commit = GroupCommit::open(store, config).await.expect("group commit opens");
    let scan = began.elapsed();
    let began = Instant::now();
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("the leases open");
    let restored = began.elapsed();
    let began = Instant::now();
    // All streams come by a link that nobody announced, which has one slot.
    let shares = Shares { floor: STREAMS as u32, ..Shares::default() };
    let config = AdmissionConfig { sigma: 10, shares, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, clock, config).await.expect("the boundary opens");
    let boundary = began.elapsed();
    (Node { commit, admission, leases }, Start { engine, scan, leases: restored, boundary })
}

impl Node {
    /// Waits until fresh messages are admitted; what is issued from here on stays clear of the birth mark.
    async fn past_birth(&self) -> WallMs {
        while self.admission.health().refuses_fresh_until.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        SystemClock::new().wall()
    }

    async fn reserve_all(&self, streams: &[StreamKey]) {
        let mut open: FuturesUnordered<_> =
            streams.iter().map(|stream| self.leases.reserve(stream, DEFAULT_TTL_MS)).collect();
        while let Some(reserved) = open.next().await {
            reserved.expect("the store works").expect("there is room");
        }
    }
}

/// Admits `count` with `in_flight` under way at once, and gives the time that each took.
async fn admit(node: &Node, requests: &mut Requests, count: u64, in_flight: usize) -> Duration {
    let began = Instant::now();
    let mut open = FuturesUnordered::new();
    for _ in 0..count {
        if open.len() == in_flight
            && let Some(answer) = open.next().await
        {
            let answer: Result<Result<_, _>, _> = answer;
            answer.expect("the store works").expect("the next of its stream");
        }
        open.push(node.admission.admit(requests.next()));
    }
    while let Some(answer) = open.next().await {
        answer.expect("the store works").expect("the next of its stream");
    }
    began.elapsed() / u32::try_from(count).expect("few enough")
}

/// A node whose streams all have full windows.
async fn filled(engine: Engine, count: usize, path: &Path) -> (Node, Requests) {
    let (node, _) = start(engine, path).await;
    let issued_at = node.past_birth().await;
    let mut requests = Requests::new(count, issued_at);
    admit(&node, &mut requests, count as u64 * WINDOW, STREAMS).await;
    (node, requests)
}

async fn restore(table: &mut Table) {
    let directory = directory();
    let path = directory.path().join("store");
    let (node, _) = filled(Engine::Journal, STREAMS, &path).await;
    node.reserve_all(&streams(STREAMS)).await;
    node.commit.shutdown().await;
    drop(node);
    let mut starts = Vec::new();
    let mut held = 0;
    for _ in 0..RESTARTS {
        let before = counting::held();
        let (node, start) = start(Engine::Journal, &path).await;
        held = counting::held().saturating_sub(before);
        assert_eq!((node.admission.health().streams, node.leases.streams()), (STREAMS, STREAMS));
        node.commit.shutdown().await;
        starts.push(start);
    }
    starts.sort_by_key(Start::total);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let median = &starts[starts.len() / 2];
    for (what, time) in [
        ("restore: the journal reads and copies", median.engine),
        ("restore: group commit scans", median.scan),
        ("restore: 16,384 leases", median.leases),
        ("restore: 16,384 full windows, and birth is written", median.boundary),
    ] {
        table.row(what, &ms(time), "", true);
    }
    let what = format!("restore: in all, median of {RESTARTS}");
    table.row(&what, &ms(median.total()), "< 500 ms", median.total() < RESTORE_TARGET);
    let slowest = starts.last().map_or(Duration::ZERO, Start::total);
    table.row("restore: in all, the slowest", &ms(slowest), "", true);
    let mib = held as f64 / (1 << 20) as f64;
    table.row("memory held after it: engine, group commit, both tables", &format!("{mib:.1} MiB"), "", true);
    table.row("memory: of that a stream, receiver and sender", &format!("{} B", held / STREAMS), "", true);
}

/// Takes in `count` frames from first to last, signed before the clock starts, and gives the time that each took.
async fn take_in<S>(service: &mut S, frames: &mut Frames, count: u64) -> Duration
where
    S: Service<Arrival, Error: fmt::Debug>,
{
    let arrivals: Vec<_> = (0..count).map(|_| frames.next()).collect();
    let began = Instant::now();
    let mut open = FuturesUnordered::new();
    for arrival in arrivals {
        if open.len() == IN_FLIGHT
            && let Some(answer) = open.next().await
        {
            let answer: Result<S::Response, S::Error> = answer;
            answer.expect("the next of its stream");
        }
        open.push(service.call(arrival));
    }
    while let Some(answer) = open.next().await {
        answer.expect("the next of its stream");
    }
    began.elapsed() / u32::try_from(count).expect("few enough")
}

/// The whole of an admission at `STREAMS` streams beside the same at `FEW`. Each stream has been heard once.
async fn whole(table: &mut Table, engine: Engine) {
    let directory = directory();
    let handler = || service_fn(|_: Admitted| std::future::ready(Ok::<_, std::convert::Infallible>(())));
    let mut sides = Vec::new();
    for count in [FEW, STREAMS] {
        let (node, _) = start(engine, &directory.path().join(count.to_string())).await;
        let mut frames = Frames::new(count / Class::ALL.len(), &Class::ALL, 1, node.past_birth().await);
        let layer = AdmissionLayer::builder(NETWORK, frames.destination, node.admission.clone()).build();
        let mut service = layer.layer(handler());
        take_in(&mut service, &mut frames, count as u64).await;
        assert_eq!(node.admission.health().streams, count);
        sides.push((node, service, frames, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (_, service, frames, times) in &mut sides {
            times.push(take_in(service, frames, ROUND).await);
        }
    }
    let [(.., few), (.., many)] = &sides[..] else { unreachable!("two sides") };
    compare(table, &format!("an admission, from its frame to its handler, {engine}"), few, many, Some(RATIO_TARGET));
}

/// The rows of two kinds of rounds that took turns.
fn compare(table: &mut Table, what: &str, few: &[Duration], many: &[Duration], target: Option<f64>) {
    let mut ratios: Vec<f64> = many.iter().zip(few).map(|(many, few)| many.as_secs_f64() / few.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    for (streams, times) in [(FEW, few), (STREAMS, many)] {
        let mut times = times.to_vec();
        times.sort();
        let figure = format!("{:.2} us", times[ROUNDS / 2].as_secs_f64() * 1e6);
        table.row(&format!("{what}, at {streams} streams"), &figure, "", true);
    }
    let (median, least, most) = (ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    let name = format!("{what}: {STREAMS} to {FEW} ({least:.2} to {most:.2})");
    let (asked, met) = target.map_or((String::new(), true), |target| (format!("<= {target}"), median <= target));
    table.row(&name, &format!("{median:.3}"), &asked, met);
}

async fn ratio(table: &mut Table, engine: Engine) {
    let directory = directory();
    let before = counting::held();
    let (many, mut of_many) = filled(engine, STREAMS, &directory.path().join("many")).await;
    if engine == Engine::Memory {
        let held = counting::held().saturating_sub(before) as f64 / (1 << 20) as f64;
        table.row("memory held by 16,384 receiver streams alone", &format!("{held:.1} MiB"), "", true);
    }
    let (few, mut of_few) = filled(engine, FEW, &directory.path().join("few")).await;
    let (mut at_many, mut at_few) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_few.push(admit(&few, &mut of_few, ROUND, IN_FLIGHT).await);
        at_many.push(admit(&many, &mut of_many, ROUND, IN_FLIGHT).await);
    }
    compare(table, &format!("the boundary's part of an admission, {engine}"), &at_few, &at_many, None);
}

fn main() -> ExitCode {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("run it by `cargo bench --bench size`");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut table = Table::begin();
    runtime.block_on(async {
        restore(&mut table).await;
        for engine in [Engine::Memory, Engine::Journal] {
            ratio(&mut table, engine).await;
            whole(&mut table, engine).await;
        }
    });
    if table.met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
