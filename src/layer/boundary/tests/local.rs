//! Link-local transactions inside the boundary, and every way to change registrations around one.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::{
    layer::{
        boundary::{Application, RegistrationError},
        local::{HORIZON_AHEAD_MS, LINK_WINDOWS, NAMESPACES_MAX, Namespace},
        quota::{Bucket, Quota, Quotas, Rate},
        window::WindowRefusal,
    },
    link::{LinkGuard, Links},
    message::ClassifierId,
    storage::{
        Key, Table,
        commit::fault::{Fault, Records},
    },
};

const MARK: u64 = 2 * SIGMA;

fn name(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

async fn open(store: FaultStore, clock: Arc<ManualClock>, names: &[&str]) -> Node {
    open_with(store, clock, config(), names).await
}

async fn open_with(store: FaultStore, clock: Arc<ManualClock>, config: AdmissionConfig, names: &[&str]) -> Node {
    let names: Vec<_> = names.iter().map(|given| name(given)).collect();
    let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
    let admission = Admission::open_delegating(&commit, clock.clone(), config, &names).await.unwrap();
    Node { store, clock, commit, admission }
}

/// On an empty store, past the mark of its first registrations.
async fn delegating(names: &[&str]) -> Node {
    let node = open(FaultStore::new(), Arc::new(ManualClock::new(START)), names).await;
    node.pass(MARK + 1);
    node
}

impl Node {
    async fn start_again(&self, names: &[&str]) -> Node {
        open(FaultStore::holding(self.store.records()), self.clock.clone(), names).await
    }

    fn connect(&self, link: u64) -> LinkGuard {
        self.admission.open(libp2p::PeerId::random(), LinkId::of(link)).unwrap()
    }

    /// What is durable of streams.
    fn streams(&self) -> Records {
        self.store.records().into_iter().filter(|((table, _), _)| *table == Table::Receiver).collect()
    }

    /// A fresh transaction of "chat" on its origin's own link.
    fn chat(&self, sequence: u64, link: u64) -> Request {
        on(Some(link), self.fresh(stream(1, Class::Application), sequence))
    }

    async fn withdrawn(&self, request: Request) -> bool {
        matches!(self.answer(request).await, Err(BoundaryRefusal::NamespaceWithdrawn { .. }))
    }
}

/// As it comes on its origin's own link, or relayed.
fn on(link: Option<u64>, request: Request) -> Request {
    let classifier = ClassifierId::of("one");
    let own_link = link.map(LinkId::of);
    Request { application: Some(Application { classifier, namespace: Some(name("chat")), own_link }), ..request }
}

fn in_namespace(namespace: Option<Namespace>, request: Request) -> Request {
    let application = request.application.map(|application| Application { namespace, ..application });
    Request { application, ..request }
}

fn read_by(classifier: &str, request: Request) -> Request {
    let classifier = ClassifierId::of(classifier);
    Request { application: request.application.map(|application| Application { classifier, ..application }), ..request }
}

const REPLAY: Answer = Err(BoundaryRefusal::Window(WindowRefusal::Replay));

#[tokio::test]
async fn l6_2_a_link_admits_once_in_memory_and_a_relayed_copy_uses_the_durable_window() {
    let node = delegating(&["chat"]).await;
    let _links = [node.connect(1), node.connect(2)];
    let request = node.chat(5, 1);
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    assert_eq!(node.answer(request).await, REPLAY);
    assert_eq!(node.answer(node.chat(4, 1)).await, Ok(Verdict::Late));
    // Another link of the origin knows nothing of it: the namespace does.
    assert_eq!(node.answer(on(Some(2), request)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().link_local_windows, 2);
    assert_eq!((node.streams(), node.admission.health().streams), (Records::new(), 0));

    assert_eq!(node.answer(on(None, request)).await, Ok(Verdict::First));
    assert_eq!(node.streams().len(), 1);
    assert_eq!(node.answer(on(None, request)).await, REPLAY);
    assert_eq!(node.answer(request).await, REPLAY);
}

#[tokio::test]
async fn l6_1_without_any_of_the_conditions_the_durable_window_admits() {
    type Case = (&'static str, fn(Request) -> Request);
    let cases: [Case; 6] = [
        ("another class", |request| Request { stream: stream(1, Class::E2e), ..request }),
        ("no word of a namespace", |request| Request { application: None, ..request }),
        ("relayed", |request| on(None, request)),
        ("another namespace", |request| in_namespace(Some(name("other")), request)),
        ("a namespace too long to be registered", |request| in_namespace(None, request)),
        ("a link that nobody announced", |request| on(Some(9), request)),
    ];
    for (case, change) in cases {
        let node = delegating(&["chat"]).await;
        let _links = [node.connect(1), node.connect(2)];
        let request = change(node.chat(1, 1));
        assert_eq!(node.answer(request).await, Ok(Verdict::First), "{case}");
        assert_eq!((node.streams().len(), node.admission.health().link_local_windows), (1, 0), "{case}");
        assert_eq!(node.answer(request).await, REPLAY, "{case}");
    }
    // And issued no later than the registration's mark.
    let node = delegating(&[]).await;
    let _links = [node.connect(1), node.connect(2)];
    let before = node.chat(1, 1);
    assert_eq!(node.answer(before).await, Ok(Verdict::First));
    node.admission.register(name("chat")).await.unwrap();
    node.pass(MARK);
    assert_eq!(node.answer(node.chat(2, 1)).await, Ok(Verdict::Advance));
    assert_eq!((node.streams().len(), node.admission.health().link_local_windows), (1, 0));
    node.pass(1);
    assert_eq!(node.answer(on(Some(2), before)).await, REPLAY);
    assert_eq!(node.answer(node.chat(3, 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().link_local_windows, 1);
}

#[tokio::test]
async fn l6_2_the_fifth_stream_of_a_link_is_durable_and_a_links_end_releases_its_windows() {
    let node = delegating(&["chat"]).await;
    let (first, _second) = (node.connect(1), node.connect(2));
    let of = |origin, link| on(Some(link), node.fresh(stream(origin, Class::Application), 1));
    for origin in 1..=5 {
        assert_eq!(node.answer(of(origin, 1)).await, Ok(Verdict::First));
    }
    assert_eq!(node.admission.health().link_local_windows, LINK_WINDOWS);
    assert_eq!(node.streams().len(), 1);
    assert_eq!(node.answer(of(5, 1)).await, REPLAY);
    assert_eq!(node.answer(of(6, 2)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().link_local_windows, LINK_WINDOWS + 1);
    let again = node.connect(1);
    drop(first);
    assert_eq!(node.admission.health().link_local_windows, LINK_WINDOWS + 1, "it was announced twice");
    drop(again);
    assert_eq!(node.admission.health().link_local_windows, 1);
    // The origin reconnects, and a window of its own is there again; the retired link has none any more.
    let _third = node.connect(3);
    assert_eq!(node.answer(of(1, 3)).await, Ok(Verdict::First));
    assert_eq!(node.answer(of(7, 1)).await, Ok(Verdict::First));
    assert_eq!((node.admission.health().link_local_windows, node.streams().len()), (2, 2));
}

#[tokio::test]
async fn l6_4_a_withdrawal_refuses_what_a_link_admitted_for_good_and_what_is_issued_later_is_durable() {
    let node = delegating(&["chat"]).await;
    let _links = [node.connect(1), node.connect(2)];
    let request = node.chat(1, 1);
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    node.admission.withdraw(name("chat")).await.unwrap();
    assert_eq!(node.admission.delegating(), []);
    for copy in [request, on(Some(2), request), on(None, request), Request { application: None, ..request }] {
        assert!(node.withdrawn(copy).await);
    }
    assert_eq!(node.answer(in_namespace(Some(name("other")), node.chat(1, 1))).await, Ok(Verdict::First));

    node.pass(MARK);
    assert!(node.withdrawn(node.chat(2, 1)).await, "at the mark");
    node.pass(1);
    assert_eq!(node.answer(node.chat(3, 1)).await, Ok(Verdict::Advance));
    assert_eq!(node.admission.health().link_local_windows, 1, "the one from before");
    // Neither a registration nor a restart takes the mark away.
    node.admission.register(name("chat")).await.unwrap();
    assert!(node.withdrawn(on(Some(2), request)).await);
    for names in [&["chat"][..], &[]] {
        let node = node.start_again(names).await;
        assert!(node.withdrawn(on(None, request)).await);
    }
}

#[tokio::test]
async fn l6_4_a_start_with_the_namespace_goes_on_and_one_without_refuses_up_to_its_horizon() {
    let node = delegating(&["chat"]).await;
    let link = node.connect(1);
    let request = node.chat(1, 1);
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    let horizon = request.issued_at + HORIZON_AHEAD_MS;
    drop(link);

    let with = node.start_again(&["chat"]).await;
    let _link = with.connect(1);
    assert_eq!(with.answer(request).await, Ok(Verdict::First), "the same registration: the namespace knows it");
    assert_eq!(with.admission.health().link_local_windows, 1);

    let without = node.start_again(&[]).await;
    for _ in 0..2 {
        assert_eq!(without.answer(on(None, request)).await, Err(BoundaryRefusal::NamespaceWithdrawn { mark: horizon }));
    }
    // Registered again: its links have windows past the horizon only.
    without.admission.register(name("chat")).await.unwrap();
    let _links = [without.connect(1), without.connect(2)];
    without.pass(horizon - without.clock.wall());
    assert!(without.withdrawn(without.chat(2, 1)).await);
    without.pass(1);
    assert_eq!(without.answer(without.chat(3, 1)).await, Ok(Verdict::First));
    assert_eq!(without.admission.health().link_local_windows, 1);
}

#[tokio::test]
async fn l6_4_a_withdrawal_in_a_later_run_covers_what_a_clock_that_was_ahead_admitted() {
    let node = delegating(&["chat"]).await;
    let right = node.clock.wall();
    node.clock.step_wall_to(right + 100 * TTL);
    let _link = node.connect(1);
    let ahead = node.chat(1, 1);
    node.pass(MARK + 1);
    let ahead = Request { issued_at: node.clock.wall(), ..ahead };
    // What birth has to say of it is not the question here.
    let config = AdmissionConfig { birth_mark: false, ..config() };
    let node = open_with(FaultStore::holding(node.store.records()), node.clock.clone(), config, &["chat"]).await;
    let _link = node.connect(1);
    assert_eq!(node.answer(ahead).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().link_local_windows, 1);
    node.clock.step_wall_to(right);
    let node = open_with(FaultStore::holding(node.store.records()), node.clock.clone(), config, &["chat"]).await;
    node.admission.withdraw(name("chat")).await.unwrap();
    node.clock.step_wall_to(ahead.issued_at);
    assert!(node.withdrawn(on(None, ahead)).await);
}

#[tokio::test]
async fn l6_4_another_classifier_refuses_what_the_last_one_admitted_whatever_it_reads() {
    let node = delegating(&["chat"]).await;
    let link = node.connect(1);
    let request = node.chat(1, 1);
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    drop(link);
    let node = node.start_again(&["chat"]).await;
    let _links = [node.connect(1), node.connect(2)];
    let again = read_by("two", in_namespace(Some(name("other")), on(None, request)));
    let refusal = BoundaryRefusal::NamespaceWithdrawn { mark: request.issued_at + HORIZON_AHEAD_MS };
    assert_eq!(node.answer(again).await, Err(refusal));
    assert_eq!(node.answer(read_by("two", on(Some(2), request))).await, Err(refusal));
    let node = node.start_again(&["chat"]).await;
    assert_eq!(node.answer(again).await, Err(refusal), "the mark and the classifier are durable");
}

#[tokio::test]
async fn l6_4_of_two_classifiers_in_one_run_the_first_reads_on_and_the_other_sets_no_mark() {
    let node = delegating(&["chat"]).await;
    let _links = [node.connect(1), node.connect(2)];
    assert_eq!(node.answer(node.chat(1, 1)).await, Ok(Verdict::First));
    let records = node.store.records();
    for sequence in 2..10 {
        let other = on(None, node.fresh(stream(2, Class::Application), sequence));
        assert_eq!(node.answer(read_by("two", other)).await, Err(BoundaryRefusal::OtherClassifier));
        assert_eq!(node.answer(node.chat(sequence, 1)).await, Ok(Verdict::Advance));
        node.pass(1);
    }
    assert_eq!(node.store.records(), records);
}

#[tokio::test]
async fn l9_2_a_failed_batch_takes_back_the_windows_that_waited_for_it_and_no_other() {
    let node = delegating(&["chat"]).await;
    let _link = node.connect(1);
    assert_eq!(node.answer(node.chat(1, 1)).await, Ok(Verdict::First));
    // Handed out at once: nothing was unreleased.
    let at_once = node.chat(2, 1);
    assert_eq!(node.answer(at_once).await, Ok(Verdict::Advance));
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    node.store.stall();
    let durable = node.admission.admit(node.fresh(stream(2, Class::E2e), 1));
    let waits = node.chat(3, 1);
    let (third, fourth) = (node.admission.admit(waits), node.admission.admit(on(Some(1), node.chat(4, 1))));
    tokio::task::yield_now().await;
    node.store.resume();
    assert!(durable.await.is_err() && third.await.is_err() && fourth.await.is_err());
    assert_eq!(node.answer(at_once).await, REPLAY, "it was handed out");
    assert_eq!(node.answer(waits).await, Ok(Verdict::Advance));
    assert_eq!(node.answer(waits).await, REPLAY);
}

#[tokio::test]
async fn l13_5_gauges_follow_links_that_end_and_batches_that_fail() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let gauge = |name: &str| {
        let values = snapshotter.snapshot().into_vec().into_iter().filter(|(key, ..)| key.key().name() == name);
        values.map(|(.., value)| value).collect::<Vec<_>>()
    };
    // Reading a gauge sets it to zero, so that another value shows that it was set since.
    let is = |count: f64| vec![DebugValue::Gauge(count.into())];
    let node = delegating(&["chat"]).await;
    assert_eq!(gauge("admit_one_receiver_streams"), is(0.0), "from the start");
    let (link, _other) = (node.connect(1), node.connect(2));
    for link in [1, 2] {
        assert_eq!(node.answer(node.chat(1, link)).await, Ok(Verdict::First));
    }
    assert_eq!(gauge("admit_one_link_local_windows"), is(2.0));
    drop(link);
    assert_eq!(gauge("admit_one_link_local_windows"), is(1.0));
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    let durable = node.admission.admit(node.fresh(stream(3, Class::E2e), 1));
    assert_eq!(gauge("admit_one_receiver_streams"), is(2.0));
    assert!(durable.await.is_err());
    assert_eq!(gauge("admit_one_receiver_streams"), is(1.0));
}

#[tokio::test]
async fn l6_4_a_registration_or_withdrawal_whose_batch_fails_did_not_happen() {
    let node = delegating(&["chat"]).await;
    for change in [true, false] {
        node.store.fail_at(node.store.begun() + 1, Fault::Io);
        let changed = match change {
            true => node.admission.register(name("other")).await,
            false => node.admission.withdraw(name("chat")).await,
        };
        assert!(matches!(changed, Err(RegistrationError::StoreFailed(_))));
        assert_eq!(node.admission.delegating(), [name("chat")]);
    }
    let _link = node.connect(1);
    assert_eq!(node.answer(node.chat(1, 1)).await, Ok(Verdict::First));
    assert_eq!(node.admission.health().link_local_windows, 1);
}

#[tokio::test]
async fn l6_4_a_horizon_is_written_once_in_minutes_and_before_what_lies_past_it_is_handed_out() {
    let node = delegating(&["chat"]).await;
    let _link = node.connect(1);
    let place = (Table::Clock, Key::from_static(b"namespaces"));
    let mut records = vec![node.store.records()[&place].clone()];
    let mut sequence = 0;
    for _ in 0..=HORIZON_AHEAD_MS / 1_000 {
        sequence += 1;
        assert!(node.answer(node.chat(sequence, 1)).await.is_ok());
        records.push(node.store.records()[&place].clone());
        node.pass(1_000);
    }
    records.dedup();
    // Registered, and moved by the first admission.
    assert_eq!(records.len(), 2);
    node.store.stall();
    let mut past = std::pin::pin!(node.admit(node.chat(sequence + 1, 1)));
    for _ in 0..20 {
        assert!(futures::poll!(&mut past).is_pending());
        tokio::task::yield_now().await;
    }
    node.store.resume();
    assert_eq!(past.await.unwrap(), Ok(Verdict::Advance));
    assert_ne!(node.store.records().get(&place), records.last());
}

#[tokio::test]
async fn l7_2_a_link_local_quota_is_one_over_an_origins_links_and_leaves_its_windows_as_they_were() {
    let quota = Quota { messages: Rate::new(10, 2).unwrap(), ..Quota::OFFERED };
    let config = AdmissionConfig { quotas: Quotas::NONE.with(Class::Application, quota), ..config() };
    let node = open_with(FaultStore::new(), Arc::new(ManualClock::new(START)), config, &["chat"]).await;
    node.pass(MARK + 1);
    let (first, _second) = (node.connect(1), node.connect(2));
    assert_eq!(node.answer(node.chat(1, 1)).await, Ok(Verdict::First));
    assert_eq!(node.answer(node.chat(1, 1)).await, REPLAY);
    assert_eq!(node.answer(node.chat(5, 2)).await, Ok(Verdict::First));
    let key = stream(1, Class::Application);
    let over = Err(BoundaryRefusal::QuotaExceeded { key, bucket: Bucket::Messages, after_ms: Some(101) });
    assert_eq!(node.answer(node.chat(3, 1)).await, over);
    drop(first);
    let _third = node.connect(3);
    assert_eq!(node.answer(node.chat(6, 3)).await, over, "a reconnect fills nothing");
    node.pass(100);
    assert_eq!(node.answer(node.chat(4, 2)).await, Ok(Verdict::Late));
    assert_eq!(node.answer(node.chat(6, 3)).await, over);
}

#[tokio::test]
async fn l6_4_a_namespaces_record_that_cannot_be_restored_refuses_the_store() {
    let node = delegating(&["chat"]).await;
    let mut records = node.store.records();
    let place = (Table::Clock, Key::from_static(b"namespaces"));
    let cut = records[&place].slice(1..);
    records.insert(place, cut);
    let opened = Node::open(FaultStore::holding(records), node.clock.clone(), config()).await;
    assert!(matches!(opened.err(), Some(AdmissionOpenError::Damaged { what: "namespaces", .. })));
}

#[tokio::test]
async fn a_store_knows_a_bounded_number_of_namespaces_and_forgets_one_that_nothing_lives_below() {
    let names: Vec<_> = (0..=NAMESPACES_MAX).map(|number| format!("namespace {number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let node = delegating(&names[..NAMESPACES_MAX]).await;
    let last = name(names[NAMESPACES_MAX]);
    let full = |changed| matches!(changed, Err(RegistrationError::TooManyNamespaces));
    assert!(full(node.admission.register(last).await));
    node.admission.withdraw(name(names[0])).await.unwrap();
    assert!(full(node.admission.register(last).await));
    node.pass(MARK + TTL + SIGMA);
    node.admission.register(last).await.unwrap();
    assert_eq!(node.admission.health().delegating, NAMESPACES_MAX);
    let commit = GroupCommit::open(FaultStore::new().arc(), CommitConfig::new()).await.unwrap();
    let names: Vec<_> = names.into_iter().map(name).collect();
    let opened = Admission::open_delegating(&commit, node.clock.clone(), config(), &names).await;
    assert_eq!(opened.err(), Some(AdmissionOpenError::TooManyNamespaces));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_4_a_withdrawal_ends_only_once_no_handler_is_being_called_that_looked_before_it() {
    let node = delegating(&["chat"]).await;
    let _link = node.connect(1);
    let (marks, request) = (node.admission.marks(), node.chat(1, 1));
    assert_eq!(node.answer(request).await, Ok(Verdict::First));
    let (calling, called) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let admission = node.admission.clone();
    let runtime = tokio::runtime::Handle::current();
    let handing = tokio::task::spawn_blocking(move || {
        runtime.block_on(admission.hand_over(&request, marks, || {
            calling.send(()).unwrap();
            may_go_on.recv().unwrap();
        }))
    });
    tokio::task::spawn_blocking(move || called.recv().unwrap()).await.unwrap();

    let mut withdrawal = std::pin::pin!(node.admission.withdraw(name("chat")));
    let before = node.store.records();
    while node.store.records() == before || node.commit.health().unreleased {
        assert!(futures::poll!(&mut withdrawal).is_pending());
        tokio::task::yield_now().await;
    }
    // It is durable, and what looks now is dropped; who looked before is still at it.
    for _ in 0..100 {
        assert!(futures::poll!(&mut withdrawal).is_pending());
        tokio::task::yield_now().await;
    }
    go_on.send(()).unwrap();
    assert_eq!(handing.await.unwrap(), Ok(()), "handed over before the withdrawal ended");
    withdrawal.await.unwrap();
    let dropped = node.admission.hand_over(&request, marks, || unreachable!("it was withdrawn")).await;
    assert!(matches!(dropped, Err(BoundaryRefusal::NamespaceWithdrawn { .. })));
}

#[tokio::test]
async fn l9_9_a_reading_made_for_a_registration_raises_birth_durably() {
    for register in [true, false] {
        let node = delegating(&["chat"]).await;
        let before = node.admission.health().birth_mark;
        node.clock.step_wall_to(START + 500_000);
        match register {
            true => node.admission.register(name("other")).await.unwrap(),
            // Even where there is nothing to withdraw.
            false => node.admission.withdraw(name("other")).await.unwrap(),
        }
        node.clock.step_wall_to(START + 100);
        let mark = node.start_again(&["chat"]).await.admission.health().birth_mark;
        assert_eq!((before, mark), (Some(START + MARK), Some(START + 500_000 - 1)));
    }
}
