//! Mail, end to end: real keys and signatures, custody over group commit, restarts on the same engine.

use std::{sync::Arc, time::Duration};

use admit_one::{
    clock::{Clock, ManualClock},
    identity::{Did, KeySigner, Proof, Slot},
    layer::{
        AdmissionLayer, Refusal,
        boundary::{Admission, AdmissionConfig},
        custody::{CUSTODY_MAX, MailRefusal},
        inbox::{Inbox, Mail},
        window::Verdict,
    },
    message::{Class, Content, CutError, DecodeError, MAIL_HOLD_MS, NetworkId, Transaction},
    storage::{
        Table,
        commit::{CommitConfig, GroupCommit},
    },
};
use bytes::Bytes;
use tower::{Layer, Service};

use crate::{
    engine::{Gate, MockEngine},
    fixture::{Counters, NETWORK, START, Sender, accept, refused},
};

const LETTER: &[u8] = b"\x03\x04postgood morning";
/// Where a slot's tag stands in a self-contained encoding of a whole transaction: after the content.
const SLOT_AT: usize = 32 + 16 + 4 * 8 + 1;

/// A node that takes mail.
struct Node {
    signer: KeySigner,
    clock: Arc<ManualClock>,
    engine: Arc<MockEngine>,
    commit: GroupCommit,
    layer: AdmissionLayer,
    inbox: Inbox,
}

impl Node {
    async fn start() -> Self {
        let (clock, engine) = (Arc::new(ManualClock::new(START)), Arc::new(MockEngine::new()));
        let node = Self::open(KeySigner::generate(), clock, engine).await;
        node.clock.advance(Duration::from_secs(60));
        node
    }

    async fn open(signer: KeySigner, clock: Arc<ManualClock>, engine: Arc<MockEngine>) -> Self {
        let commit = GroupCommit::open(engine.clone(), CommitConfig::default()).await.expect("opens");
        let config = AdmissionConfig { custody: true, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, clock.clone(), config).await.expect("the boundary opens");
        let layer = AdmissionLayer::builder(NETWORK, signer.key(), admission);
        let layer = layer.evidence(Arc::new(signer.clone())).build();
        Self { inbox: layer.inbox(), signer, clock, engine, commit, layer }
    }

    /// The process ends, and another starts on what is durable.
    async fn restart(self) -> Self {
        let Self { signer, clock, engine, commit, layer, inbox } = self;
        drop((layer, inbox));
        commit.shutdown().await;
        Self::open(signer, clock, engine).await
    }

    fn did(&self) -> Did {
        self.signer.key()
    }

    async fn refuses(&self, mail: &Mail) -> Refusal {
        self.inbox.receive(mail.clone()).await.expect_err("refused")
    }
}

fn letter(sender: &mut Sender, node: &Node) -> Transaction {
    let content = sender.content(node.did(), LETTER);
    sender.sign(content, node.did(), 0).transaction
}

fn mail(node: &Node, transaction: &Transaction) -> Mail {
    Mail { transaction: Mail::encode(transaction).expect("self-contained"), held_at: node.clock.wall() }
}

/// The same under other bytes.
fn altered(mail: &Mail, alter: impl FnOnce(&mut Vec<u8>)) -> Mail {
    let mut bytes = mail.transaction.to_vec();
    alter(&mut bytes);
    Mail { transaction: bytes.into(), ..mail.clone() }
}

#[tokio::test]
async fn l10_6_mail_is_redelivered_across_a_restart_until_it_is_taken() {
    let counters = Counters::record();
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let transaction = letter(&mut sender, &node);
    let held = mail(&node, &transaction);
    let offered = node.inbox.receive(held.clone()).await.expect("admitted");
    assert_eq!((offered.origin(), offered.namespace()), (sender.origin(), Some(b"post".as_slice())));
    assert_eq!(offered.verdict(), Verdict::First);
    assert_eq!(node.refuses(&held).await.label(), "replay", "it is pending");
    drop(offered);
    // Long past its expiry.
    node.clock.advance(Duration::from_secs(6 * 24 * 3_600));
    let node = node.restart().await;
    let offered = node.inbox.receive(held.clone()).await.expect("redelivered");
    assert_eq!(offered.verdict(), Verdict::Redelivered);
    let taken = offered.take().await.expect("in custody");
    assert_eq!((taken.data().as_ref(), taken.held_at()), (LETTER, held.held_at));
    assert_eq!((taken.digest(), taken.sequence()), (digest(&sender, &transaction.content), 0));
    assert_eq!(node.refuses(&held).await.label(), "replay");
    let node = node.restart().await;
    assert_eq!(node.refuses(&held).await.label(), "replay");
    let verdicts = counters.take("admit_one_verdicts_total", "verdict");
    assert_eq!(verdicts, [("first".into(), 1), ("redelivered".into(), 1)].into());
}

fn digest(sender: &Sender, content: &Content) -> admit_one::message::TransactionDigest {
    content.digest(NETWORK, &sender.origin(), Class::Application)
}

#[tokio::test]
async fn l10_6_a_copy_by_a_link_is_a_replay_of_mail_and_the_other_way_round() {
    let node = Node::start().await;
    let mut service = node.layer.clone().layer(tower::service_fn(accept));
    let mut sender = Sender::new(&node.clock);
    let (first, second) = (sender.next(node.did(), LETTER), sender.next(node.did(), LETTER));
    drop(node.inbox.receive(mail(&node, &first.transaction)).await.expect("admitted"));
    assert_eq!(refused(service.call(sender.arrival(&first)).await).label(), "replay");
    assert!(service.call(sender.arrival(&second)).await.is_ok());
    assert_eq!(node.refuses(&mail(&node, &second.transaction)).await.label(), "replay");
    assert!(node.inbox.receive(mail(&node, &first.transaction)).await.is_ok(), "in custody still");
}

#[tokio::test]
async fn l4_8_mail_refuses_a_reference() {
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let transaction = letter(&mut sender, &node);
    let reference = altered(&mail(&node, &transaction), |bytes| {
        assert_eq!(bytes[SLOT_AT], 0, "a slot of one's own");
        bytes[SLOT_AT] = 2;
    });
    let refusal = node.refuses(&reference).await;
    assert!(matches!(refusal, Refusal::Mail(MailRefusal::Encoding(DecodeError::Reference))), "{refusal}");
    assert_eq!(refusal.label(), "mail_reference");
    let delegation = sender.signer.delegate(KeySigner::generate().key(), START, 1).digest();
    let proof = Proof { slot: Slot::Digest(delegation), ..transaction.proof };
    assert_eq!(Mail::encode(&Transaction { proof, ..transaction }), Err(CutError::Reference));
}

#[tokio::test]
async fn l1_2_a_delegation_is_judged_at_the_hold_instant_of_mail_and_at_its_issue() {
    let node = Node::start().await;
    let now = node.clock.wall();
    let account = KeySigner::generate();
    // Valid for a minute from the mail's issue, and only then.
    let device = KeySigner::generate();
    let delegation = account.delegate(device.key(), now, 60_000);
    let mut sender = Sender::with(&node.clock, device.with_delegation(delegation).expect("its own"));
    let transactions: Vec<_> = (0..3).map(|_| letter(&mut sender, &node)).collect();
    let held = |place: usize, held_at| Mail { held_at, ..mail(&node, &transactions[place]) };
    let (within, at_its_end) = (held(0, now + 59_999), held(1, now + 60_000));
    node.clock.advance(Duration::from_secs(3 * 24 * 3_600));
    let offered = node.inbox.receive(within).await.expect("valid when it was held, whatever it is now");
    assert_eq!(offered.origin(), account.key());
    let expired = node.refuses(&at_its_end).await;
    assert!(matches!(expired, Refusal::DelegationExpired { judged_at, .. } if judged_at == now + 60_000), "{expired}");

    // Begun after the issue.
    let device = KeySigner::generate();
    let later = account.delegate(device.key(), node.clock.wall() + 60_000, 1 << 40);
    let mut sender = Sender::with(&node.clock, device.with_delegation(later).expect("its own"));
    let early = Mail { held_at: node.clock.wall() + 120_000, ..mail(&node, &letter(&mut sender, &node)) };
    node.clock.advance(Duration::from_secs(180));
    assert_eq!(node.refuses(&early).await.label(), "delegation_not_yet_valid");
}

#[tokio::test]
async fn l2_5_mail_stands_on_its_origins_proof_and_is_for_this_node_of_this_network() {
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let transaction = letter(&mut sender, &node);
    let good = mail(&node, &transaction);
    let last = good.transaction.len() - 1;
    let tampered = altered(&good, |bytes| bytes[last] ^= 1);
    let cut = Mail { transaction: good.transaction.slice(..last), ..good.clone() };
    let content = sender.content(KeySigner::generate().key(), LETTER);
    let elsewhere = mail(&node, &sender.sign(content, node.did(), 0).transaction);
    let content = sender.content(node.did(), LETTER);
    let network = mail(&node, &sender.sign_for(NetworkId(8), content, node.did(), 0).transaction);
    let content = Content { data: Bytes::from_static(b"\x02hello"), ..sender.content(node.did(), LETTER) };
    let class = mail(&node, &sender.sign(content, node.did(), 0).transaction);
    for (mail, label) in [
        (tampered, "origin_signature"),
        (cut, "mail_encoding"),
        (elsewhere, "no_route"),
        (network, "origin_signature"),
        (class, "mail_not_application"),
        (Mail { held_at: good.held_at + 600_000, ..good.clone() }, "held_after_expiry"),
        (Mail { held_at: good.held_at - 3_001, ..good.clone() }, "held_before_issue"),
        (Mail { held_at: good.held_at + 3_001, ..good.clone() }, "held_in_the_future"),
    ] {
        assert_eq!(node.refuses(&mail).await.label(), label);
    }
    assert_eq!(node.engine.count(Table::Receiver), 0, "refusals store nothing");
    node.clock.advance(Duration::from_millis(MAIL_HOLD_MS));
    assert_eq!(node.refuses(&good).await.label(), "held_too_long");
}

#[tokio::test]
async fn l5_3_two_mails_at_one_sequence_are_a_fork_with_evidence() {
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let first = letter(&mut sender, &node);
    sender.next = 0;
    let second = letter(&mut sender, &node);
    drop(node.inbox.receive(mail(&node, &first)).await.expect("admitted"));
    match node.refuses(&mail(&node, &second)).await {
        Refusal::Fork { evidence: Some(evidence), .. } => assert_eq!(evidence.verify(3_000), Ok(())),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn l10_6_the_65th_waits_until_one_is_taken() {
    let counters = Counters::record();
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let mails: Vec<_> = (0..=CUSTODY_MAX).map(|_| mail(&node, &letter(&mut sender, &node))).collect();
    let mut offers = Vec::new();
    for mail in mails.iter().take(CUSTODY_MAX) {
        offers.push(node.inbox.receive(mail.clone()).await.expect("a place"));
    }
    let full = node.refuses(&mails[CUSTODY_MAX]).await;
    assert!(matches!(full, Refusal::Mail(MailRefusal::RelayCustodyFull { held: CUSTODY_MAX })), "{full}");
    assert_eq!(counters.refusals(), [("relay_custody_full".into(), 1)].into());
    offers.remove(7).take().await.expect("in custody");
    assert!(node.inbox.receive(mails[CUSTODY_MAX].clone()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn l9_2_mail_is_offered_and_shown_only_once_it_is_durable_and_a_failed_take_shows_nothing() {
    let node = Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let held = mail(&node, &letter(&mut sender, &node));
    node.engine.set(Gate::Stalled);
    let mut receiving = Box::pin(node.inbox.receive(held.clone()));
    for _ in 0..20 {
        assert!(futures::poll!(&mut receiving).is_pending());
        tokio::task::yield_now().await;
    }
    node.engine.set(Gate::Open);
    let offered = receiving.await.expect("durable");
    node.engine.set(Gate::Failing);
    assert_eq!(offered.take().await.expect_err("nothing is shown").label(), "store_failed");
    node.engine.set(Gate::Open);
    node.commit.reopen().await.expect("works again");
    let offered = node.inbox.receive(held.clone()).await.expect("in custody again");
    assert_eq!(offered.verdict(), Verdict::Redelivered);

    // Who stops waiting for a take may lose the mail, and never sees it twice.
    node.engine.set(Gate::Stalled);
    let mut taking = Box::pin(offered.take());
    assert!(futures::poll!(&mut taking).is_pending());
    drop(taking);
    node.engine.set(Gate::Open);
    assert_eq!(node.refuses(&held).await.label(), "replay");
}

#[tokio::test]
async fn l10_6_without_custody_mail_is_refused() {
    let node = crate::fixture::Node::start().await;
    let mut sender = Sender::new(&node.clock);
    let content = sender.content(node.did(), LETTER);
    let transaction = sender.sign(content, node.did(), 0).transaction;
    let mail = Mail { transaction: Mail::encode(&transaction).expect("whole"), held_at: node.clock.wall() };
    let refusal = node.layer().build().inbox().receive(mail).await.expect_err("refused");
    assert!(matches!(refusal, Refusal::Mail(MailRefusal::CustodyDisabled)), "{refusal}");
}

/// Law L10.5: the transaction's own life decides when a stream is spent, never a delegation's. So what a removed stream
/// admitted stays refused under any other delegation over the same key, however the clock stands.
#[tokio::test]
async fn l10_5_what_a_removed_stream_admitted_is_refused_under_any_delegation_at_any_instant() {
    let node = Node::start().await;
    let began = node.clock.wall();
    let (account, device) = (KeySigner::generate(), KeySigner::generate());
    let year = 365 * 24 * 3_600_000;
    let delegations: Vec<_> = [601_000, 30 * 24 * 3_600_000, year]
        .map(|ttl| account.delegate(device.key(), began - 600_000, ttl))
        .map(|delegation| device.clone().with_delegation(delegation).expect("its own"))
        .into();
    let mut senders: Vec<_> = delegations.into_iter().map(|signer| Sender::with(&node.clock, signer)).collect();
    let mut service = node.layer.clone().layer(tower::service_fn(accept));
    let contents: Vec<_> = (0..4)
        .map(|place| {
            let data: &'static [u8] = if place % 2 == 0 { b"\x02hello" } else { LETTER };
            let mut content = senders[0].content(node.did(), data);
            content.ttl = 1_000 + 199_000 * place;
            content
        })
        .collect();
    for content in &contents {
        let payload = senders[0].sign(content.clone(), node.did(), 0);
        assert!(service.call(senders[0].arrival(&payload)).await.is_ok());
    }
    // Both streams are spent, and another's admission removes them.
    node.clock.advance(Duration::from_millis(600_000 + 3_000 + MAIL_HOLD_MS));
    let mut other = Sender::new(&node.clock);
    for _ in 0..2 {
        let payload = other.next(node.did(), b"\x01other");
        assert!(service.call(other.arrival(&payload)).await.is_ok());
    }
    assert_eq!(node.engine.count(Table::Receiver), 1);
    let right = node.clock.wall();
    let mut reasons = std::collections::HashMap::<_, u64>::new();
    let instants = [began - 4_000, began, began + 1, began + 500, began + 300_000, began + 599_999, began + 700_000];
    for wall in instants.into_iter().chain([right, right + 1, began + 10, right + year, began + 2]) {
        node.clock.step_wall_to(wall);
        for (sender, content) in senders.iter().flat_map(|sender| contents.iter().map(move |of| (sender, of))) {
            let payload = sender.sign(content.clone(), node.did(), 0);
            *reasons.entry(refused(service.call(sender.arrival(&payload)).await).label()).or_default() += 1;
            let held = mail(&node, &payload.transaction);
            for held_at in [wall, content.issued_at, content.expires_at() - 1] {
                *reasons.entry(node.refuses(&Mail { held_at, ..held.clone() }).await.label()).or_default() += 1;
            }
        }
    }
    for window in ["replay", "stale", "fork"] {
        assert!(!reasons.contains_key(window), "the windows are gone: {reasons:?}");
    }
    for reason in ["below_floor", "expired", "from_the_future", "held_too_long", "delegation_expired"] {
        assert!(reasons.contains_key(reason), "{reason}: {reasons:?}");
    }
}
