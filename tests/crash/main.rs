//! A node killed with SIGKILL at random moments, fifty times, on one store of each engine: nothing is admitted twice, no
//! sequence is handed out twice, and what was released is recognised in every later life.
//!
//! The test is its own child: with `ADMIT_ONE_CRASH_STORE` set it runs a node on that store until it is killed, and
//! says on standard output what its callers were told.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use admit_one::{
    StoreUrl,
    clock::{Clock as _, SystemClock, WallMs},
    identity::{Did, KeySigner},
    layer::boundary::{Admission, AdmissionConfig, Carrier, Request},
    link::LinkId,
    message::{Class, DEFAULT_TTL_MS, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::{
        Journal, JournalConfig, OpenError, Store,
        commit::{CommitConfig, GroupCommit},
        lease::{LeaseConfig, Leases},
    },
};
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

const KILLS: usize = 50;
const STREAMS: usize = 4;
const IN_FLIGHT: usize = 64;
/// Each life presents again so many of the last transactions of each stream, past the window of 32.
const AGAIN: u64 = 48;
const STORE: &str = "ADMIT_ONE_CRASH_STORE";
const PLAN: &str = "ADMIT_ONE_CRASH_PLAN";
const ENGINE: &str = "ADMIT_ONE_CRASH_ENGINE";

fn main() {
    if let (Ok(store), Ok(plan), Ok(engine)) = (std::env::var(STORE), std::env::var(PLAN), std::env::var(ENGINE)) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(node(&engine, Path::new(&store), &serde_json::from_str(&plan).expect("a plan")));
        return;
    }
    // Built without the standard harness, so its filter is honoured here.
    let name = "a_node_killed_fifty_times_admits_once_and_never_reuses_a_sequence";
    let asked = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect::<Vec<_>>();
    if asked.is_empty() || asked.iter().any(|filter| name.contains(filter.as_str())) {
        for engine in StoreUrl::engines() {
            killed_fifty_times(engine);
            println!("test {name} ({engine}) ... ok");
        }
    }
}

/// What a life of the node is told: the keys, when everything was issued, and where each stream goes on.
#[derive(serde::Serialize, serde::Deserialize)]
struct Plan {
    origins: Vec<Did>,
    destination: Did,
    issued_at: WallMs,
    next: Vec<u64>,
}

#[derive(Debug, Default)]
struct Seen {
    admitted: HashMap<(usize, u64), usize>,
    reserved: HashMap<(u64, u64), usize>,
    refused: HashMap<String, usize>,
    ready: bool,
    killed_while_opening: usize,
}

fn killed_fifty_times(engine: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store");
    let mut random = StdRng::seed_from_u64(50);
    let mut plan = Plan {
        origins: (0..STREAMS).map(|_| KeySigner::generate().key()).collect(),
        destination: KeySigner::generate().key(),
        // Past the birth mark of the store that the first life makes.
        issued_at: SystemClock::new().wall() + 1_000,
        next: vec![0; STREAMS],
    };
    let mut seen = Seen::default();
    for life in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("this test's path"))
            .env(ENGINE, engine)
            .env(STORE, &store)
            .env(PLAN, serde_json::to_string(&plan).expect("plain data"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // Killed after so many answers, in the middle of batches and of leases; every seventh life at some instant of
        // its opening instead.
        let answers = if life % 7 == 6 { 0 } else { random.random_range(1..3_000) };
        if answers == 0 {
            // The first at once, which no opening outruns; the later ones later and later.
            let at_most = 4_000 * (life as u64 / 7);
            std::thread::sleep(std::time::Duration::from_micros(random.random_range(0..=at_most)));
        }
        let mut read = 0;
        while read < answers {
            let line = lines.next().expect("the node lives until it is killed").expect("text");
            read += usize::from(take(&line, &mut seen, &mut plan));
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("a dead child");
        // What it had said before it died, it has said; a last line may be cut.
        for line in lines.map_while(Result::ok) {
            take(&line, &mut seen, &mut plan);
        }
        seen.killed_while_opening += usize::from(!seen.ready);
        seen.ready = false;
    }
    assert!(seen.admitted.values().all(|count| *count == 1), "admitted in two lives");
    assert!(seen.reserved.values().all(|count| *count == 1), "a sequence handed out twice");
    // The run is worth something only if it did all of these.
    assert!(seen.admitted.len() > 10_000, "{} admitted", seen.admitted.len());
    assert!(seen.killed_while_opening > 0);
    assert!(seen.reserved.len() > 1_000, "{} reserved", seen.reserved.len());
    assert!(seen.refused.get("replay").is_some_and(|count| *count > 1_000), "{:?}", seen.refused);
    assert!(seen.refused.get("stale").is_some_and(|count| *count > 100), "{:?}", seen.refused);
    assert!(seen.refused.keys().all(|kind| kind == "replay" || kind == "stale"), "{:?}", seen.refused);
    println!(
        "{engine}: {KILLS} kills, {} while it opened: {} admitted, {} sequences reserved, refused {:?}",
        seen.killed_while_opening,
        seen.admitted.len(),
        seen.reserved.len(),
        seen.refused
    );
}

/// Takes one answer of the node; false for a line that is none.
fn take(line: &str, seen: &mut Seen, plan: &mut Plan) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().ok();
    match words.as_slice() {
        ["ready", "."] => seen.ready = true,
        ["admitted", stream, sequence, "."] => {
            let (Some(stream), Some(sequence)) = (number(stream), number(sequence)) else { return false };
            let stream = usize::try_from(stream).expect("a small number");
            *seen.admitted.entry((stream, sequence)).or_default() += 1;
            plan.next[stream] = plan.next[stream].max(sequence + 1);
        }
        ["refused", kind, "."] => *seen.refused.entry((*kind).to_owned()).or_default() += 1,
        ["reserved", incarnation, sequence, "."] => {
            let (Some(incarnation), Some(sequence)) = (number(incarnation), number(sequence)) else { return false };
            *seen.reserved.entry((incarnation, sequence)).or_default() += 1;
        }
        _ => return false,
    }
    true
}

/// One life: presents the tail of what it had admitted again, then goes on, and reserves sequences beside it.
async fn node(engine: &str, store: &Path, plan: &Plan) {
    let clock = Arc::new(SystemClock::new());
    let store = open(engine, store).await.expect("the store opens after any kill");
    let commit = GroupCommit::open(store, CommitConfig::default()).await.expect("group commit opens");
    let leases = Leases::open(&commit, clock.clone(), LeaseConfig::default()).expect("leases open");
    let config = AdmissionConfig { sigma: 100, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, clock.clone(), config).await.expect("admission opens");
    while clock.wall() <= plan.issued_at {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    say("ready .");
    let stream = |stream: usize| StreamKey {
        network: NetworkId(1),
        origin: plan.origins[stream],
        destination: plan.destination,
        class: Class::ALL[stream],
    };
    let own = StreamKey { origin: plan.destination, destination: plan.origins[0], ..stream(0) };
    let mut next: Vec<u64> = plan.next.iter().map(|next| next.saturating_sub(AGAIN)).collect();
    let mut open = FuturesUnordered::new();
    for turn in 0.. {
        let place = turn % STREAMS;
        let sequence = next[place];
        next[place] += 1;
        let request = Request {
            stream: stream(place),
            incarnation: Incarnation::new(plan.issued_at, 7),
            sequence,
            digest: TransactionDigest(blake3::hash(format!("{place} {sequence}").as_bytes()).into()),
            issued_at: plan.issued_at,
            ttl: DEFAULT_TTL_MS,
            bytes: 0,
            application: None,
            carrier: Carrier::Link(LinkId::of(0)),
        };
        let answer = admission.admit(request).map(move |answer| match answer.expect("the disk is sound") {
            Ok(_) => format!("admitted {place} {sequence} ."),
            Err(refusal) => format!("refused {} .", refusal.label()),
        });
        open.push(answer.boxed());
        if turn % 8 == 0 {
            let reservation = leases.reserve(&own, DEFAULT_TTL_MS).map(|answer| {
                let reserved = answer.expect("the disk is sound").expect("the one stream has room");
                format!("reserved {} {} .", reserved.incarnation.0, reserved.sequence)
            });
            open.push(reservation.boxed());
        }
        while open.len() >= IN_FLIGHT {
            say(&open.next().await.expect("some are open"));
        }
    }
}

async fn open(engine: &str, path: &Path) -> Result<Arc<dyn Store>, OpenError> {
    match engine {
        // Short segments and early compaction, so that kills hit both.
        "journal" => {
            let short =
                JournalConfig { segment_bytes: 256 << 10, compact_floor_bytes: 1 << 20, ..JournalConfig::default() };
            Ok(Arc::new(Journal::open(path, short)?))
        }
        _ => format!("{engine}:{}", path.display()).parse::<StoreUrl>().expect("an engine of this build").open().await,
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the parent reads");
}
