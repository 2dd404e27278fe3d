//! Mail: admitted, kept in custody, redelivered, taken.

use super::*;
use crate::{
    layer::{
        boundary::Pending,
        custody::{CUSTODY_MAX, MailRefusal, key},
        quota::{Bucket, Quota, Quotas, Rate},
        window::WindowRefusal,
    },
    message::MAIL_HOLD_MS,
    storage::{RecordName, Table, commit::fault::Fault},
};

fn with_custody() -> AdmissionConfig {
    AdmissionConfig { custody: true, ..config() }
}

const REPLAY: BoundaryRefusal = BoundaryRefusal::Window(WindowRefusal::Replay);

type Delivered = Result<(Verdict, Pending), BoundaryRefusal>;

impl Node {
    async fn with_custody() -> Self {
        Self::new(with_custody()).await
    }

    /// Fresh mail that is held now.
    fn mail(&self, origin: u8, sequence: u64) -> Request {
        let mut digest = [origin; 32];
        digest[..8].copy_from_slice(&sequence.to_be_bytes());
        let digest = TransactionDigest(digest);
        Request { digest, carrier: self.inbox(), ..self.fresh(stream(origin, Class::Application), sequence) }
    }

    async fn deliver(&self, request: Request) -> Delivered {
        let (ticket, pending) = self.admission.offer(request);
        ticket.await.unwrap().map(|verdict| (verdict, pending.unwrap()))
    }

    /// What became of a delivery that the application does not take.
    async fn drops(&self, request: Request) -> Answer {
        self.deliver(request).await.map(|(verdict, _)| verdict)
    }

    async fn take(&self, request: &Request) -> Result<(), BoundaryRefusal> {
        self.admission.take(request).await.unwrap()
    }

    fn custody(&self) -> usize {
        self.admission.health().custody
    }

    async fn reopened(&self) -> Self {
        self.restart(with_custody()).await.unwrap()
    }
}

fn refused(refusal: MailRefusal) -> Answer {
    Err(refusal.into())
}

#[tokio::test]
async fn l10_6_mail_is_redelivered_until_it_is_taken_and_never_after() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    let (verdict, pending) = node.deliver(mail).await.unwrap();
    assert_eq!((verdict, node.custody()), (Verdict::First, 1));
    assert_eq!(node.drops(mail).await, Err(REPLAY), "it is pending");
    drop(pending);
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));

    let node = node.reopened().await;
    assert_eq!(node.custody(), 1);
    let (verdict, pending) = node.deliver(mail).await.unwrap();
    assert_eq!(verdict, Verdict::Redelivered);
    assert_eq!(node.take(&mail).await, Ok(()));
    assert_eq!(node.custody(), 0);
    drop(pending);
    for node in [&node, &node.reopened().await] {
        assert_eq!(node.drops(mail).await, Err(REPLAY));
        assert_eq!(node.take(&mail).await, Err(MailRefusal::NotInCustody.into()));
    }
}

#[tokio::test]
async fn l10_6_only_the_same_incarnation_sequence_and_digest_by_the_inbox_is_redelivered() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 40);
    assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    let fork = Request { digest: node.mail(2, 9).digest, ..mail };
    assert!(matches!(node.drops(fork).await, Err(BoundaryRefusal::Window(WindowRefusal::Fork { .. }))));
    for other in [Request { sequence: 1, ..mail }, Request { incarnation: Incarnation(0), ..mail }] {
        let stale = BoundaryRefusal::Window(WindowRefusal::Stale { incarnation: mail.incarnation, lowest: 9 });
        assert_eq!(node.drops(other).await, Err(stale));
    }
    for other in [carrier(1), Carrier::Own] {
        assert_eq!(node.answer(Request { carrier: other, ..mail }).await, Err(REPLAY));
    }
    // What came by a link is a replay as mail.
    let by_link = Request { carrier: carrier(1), ..node.mail(1, 41) };
    assert_eq!(node.answer(by_link).await, Ok(Verdict::Advance));
    assert_eq!(node.drops(Request { carrier: node.inbox(), ..by_link }).await, Err(REPLAY));
    assert_eq!(node.custody(), 1);
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));
}

#[tokio::test]
async fn l10_6_mail_that_its_window_has_passed_is_redelivered_and_any_other_copy_stale() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    let ahead = Request { carrier: carrier(1), ..node.mail(1, 100) };
    assert_eq!(node.answer(ahead).await, Ok(Verdict::Advance));
    let stale = BoundaryRefusal::Window(WindowRefusal::Stale { incarnation: mail.incarnation, lowest: 69 });
    let (verdict, _pending) = node.deliver(mail).await.unwrap();
    assert_eq!(verdict, Verdict::Redelivered);
    assert_eq!(node.drops(mail).await, Err(stale), "while it is pending");
    assert_eq!(node.take(&mail).await, Ok(()));
    assert_eq!(node.drops(mail).await, Err(stale));
}

#[tokio::test]
async fn l2_4_the_boundary_judges_mail_as_of_its_hold_instant() {
    let node = Node::with_custody().await;
    let issued = node.fresh(stream(1, Class::Application), 1).issued_at;
    let mail =
        |origin, held_at| Request { issued_at: issued, carrier: Carrier::Inbox { held_at }, ..node.mail(origin, 1) };
    let before = issued - SIGMA - 1;
    let refusal = MailRefusal::HeldBeforeIssue { held_at: before, issued_at: issued };
    assert_eq!(node.drops(mail(1, before)).await, refused(refusal));
    let future = MailRefusal::HeldInTheFuture { held_at: issued + SIGMA + 1, sigma: SIGMA };
    assert_eq!(node.drops(mail(1, issued + SIGMA + 1)).await, refused(future));
    assert_eq!(node.drops(mail(1, issued - SIGMA)).await, Ok(Verdict::First));
    assert_eq!(node.drops(mail(2, issued + SIGMA)).await, Ok(Verdict::First));
    let ahead = Request { issued_at: issued + SIGMA + 1, ..mail(3, issued) };
    let future = BoundaryRefusal::FromTheFuture { issued_at: issued + SIGMA + 1, sigma: SIGMA };
    assert_eq!(node.drops(ahead).await, Err(future));

    // Long after its expiry, to the last instant.
    let (held_at, expires_at) = (issued + TTL - 1, issued + TTL);
    node.pass(held_at + MAIL_HOLD_MS - 1 - issued);
    let late = MailRefusal::HeldAfterExpiry { held_at: expires_at, expires_at };
    assert_eq!(node.drops(mail(3, expires_at)).await, refused(late));
    assert_eq!(node.drops(mail(3, held_at)).await, Ok(Verdict::First));
    let expired = BoundaryRefusal::Expired { expired: expires_at };
    assert_eq!(node.answer(Request { carrier: carrier(1), ..mail(4, held_at) }).await, Err(expired));
    node.pass(1);
    let too_long = MailRefusal::HeldTooLong { held_at, hold: MAIL_HOLD_MS };
    assert_eq!(node.drops(mail(4, held_at)).await, refused(too_long));
    assert_eq!(node.drops(mail(3, held_at)).await, refused(too_long), "in custody or not");
}

#[tokio::test]
async fn l10_6_without_custody_there_is_no_mail_and_only_class_application_has_any() {
    let node = Node::new(config()).await;
    assert_eq!(node.drops(node.mail(1, 1)).await, refused(MailRefusal::CustodyDisabled));
    let node = Node::with_custody().await;
    for class in [Class::DhtControl, Class::Storage, Class::E2e] {
        let mail = Request { stream: stream(1, class), ..node.mail(1, 1) };
        assert_eq!(node.drops(mail).await, refused(MailRefusal::NotApplication { class }));
    }
    assert_eq!(node.admission.health().streams, 0);
}

#[tokio::test]
async fn l10_6_the_65th_waits_and_leaves_everything_as_it_was() {
    let node = Node::with_custody().await;
    let mails: Vec<_> = (1..=64).map(|origin| node.mail(origin, 1)).collect();
    for mail in &mails {
        assert_eq!(node.drops(*mail).await, Ok(Verdict::First));
    }
    let full = MailRefusal::RelayCustodyFull { held: CUSTODY_MAX };
    let (known, new) = (node.mail(1, 90), node.mail(99, 1));
    for node in [&node, &node.reopened().await] {
        let before = node.store.records();
        for mail in [known, new] {
            assert_eq!(node.drops(mail).await, refused(full));
        }
        assert_eq!(node.store.records(), before);
        assert_eq!(node.drops(mails[5]).await, Ok(Verdict::Redelivered));
        assert_eq!(node.drops(Request { digest: new.digest, ..mails[5] }).await.unwrap_err().label(), "fork");
        // What comes by a link needs no place.
        let by_link = Request { carrier: carrier(1), ..node.mail(77, 1 + node.store.begun()) };
        assert!(node.answer(by_link).await.is_ok());
    }
    assert_eq!(node.take(&mails[5]).await, Ok(()));
    assert_eq!(node.drops(new).await, Ok(Verdict::First));
    assert_eq!(node.drops(known).await.unwrap_err().label(), "relay_custody_full");
    assert_eq!(node.custody(), CUSTODY_MAX);
}

#[tokio::test]
async fn l10_6_the_next_admission_drops_what_is_spent_and_nothing_earlier() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    node.pass(TTL + MAIL_HOLD_MS + SIGMA - 1);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert_eq!(node.custody(), 1, "one millisecond short");
    node.pass(1);
    assert_eq!(node.drops(mail).await.unwrap_err().label(), "held_too_long");
    assert_eq!(node.custody(), 1, "a refusal drops nothing");
    let node = node.reopened().await;
    assert_eq!(node.custody(), 1, "nor does a start");
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 2)).await, Ok(Verdict::Advance));
    assert_eq!(node.custody(), 0);
    assert_eq!(node.reopened().await.custody(), 0);
    assert_eq!(node.take(&mail).await, Err(MailRefusal::NotInCustody.into()));
}

#[tokio::test]
async fn l10_6_spent_mail_makes_room_for_the_65th_in_its_own_admission() {
    let node = Node::with_custody().await;
    assert_eq!(node.drops(node.mail(1, 1)).await, Ok(Verdict::First));
    node.pass(100);
    for origin in 2..=64 {
        assert_eq!(node.drops(node.mail(origin, 1)).await, Ok(Verdict::First));
    }
    assert_eq!(node.drops(node.mail(65, 1)).await.unwrap_err().label(), "relay_custody_full");
    node.pass(TTL + MAIL_HOLD_MS + SIGMA - 100);
    assert_eq!(node.drops(node.mail(65, 1)).await, Ok(Verdict::First));
    assert_eq!(node.custody(), CUSTODY_MAX);
}

#[tokio::test]
async fn l10_6_a_pass_that_finds_nothing_removes_nothing() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    let (records, begun) = (node.store.records(), node.store.begun());
    // Nothing is delivered for days: there is nothing to call.
    node.pass(3 * 24 * 3_600 * 1_000);
    assert_eq!((node.store.records(), node.store.begun(), node.custody()), (records.clone(), begun, 1));
    let node = node.reopened().await;
    node.pass(3 * 24 * 3_600 * 1_000);
    let custody = |records: crate::storage::commit::fault::Records| {
        records.into_iter().filter(|((table, _), _)| *table == Table::Custody).collect::<Vec<_>>()
    };
    assert_eq!(custody(node.store.records()), custody(records));
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));
}

#[tokio::test]
async fn l10_6_a_crash_around_a_take_loses_the_mail_or_keeps_it_and_never_shows_it_twice() {
    let node = Node::with_custody().await;
    let (shown, unshown) = (node.mail(1, 1), node.mail(2, 1));
    for mail in [shown, unshown] {
        assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    }
    node.store.stall();
    let mut taking = std::pin::pin!(node.admission.take(&unshown));
    for _ in 0..20 {
        assert!(futures::poll!(&mut taking).is_pending(), "shown before its removal is durable");
        tokio::task::yield_now().await;
    }
    // Before it is durable: it is in custody still.
    let before = node.reopened().await;
    assert_eq!(before.drops(unshown).await, Ok(Verdict::Redelivered));
    node.store.resume();
    assert_eq!(taking.await.unwrap(), Ok(()));
    // After it, whether anybody saw it or not: it is gone.
    let after = node.reopened().await;
    assert_eq!(after.drops(unshown).await, Err(REPLAY));
    assert_eq!(after.drops(shown).await, Ok(Verdict::Redelivered));
}

#[tokio::test]
async fn l9_2_a_failed_admission_leaves_no_custody_and_its_end_ends_no_later_offer() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    let (ticket, failed) = node.admission.offer(mail);
    assert_eq!(node.custody(), 1);
    assert!(ticket.await.is_err());
    assert_eq!(node.custody(), 0);
    let (verdict, pending) = node.deliver(mail).await.unwrap();
    assert_eq!(verdict, Verdict::First);
    drop(failed);
    assert_eq!(node.drops(mail).await, Err(REPLAY), "the second offer is pending");
    drop(pending);
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));
}

#[tokio::test]
async fn l9_2_a_failed_take_shows_nothing_and_the_mail_is_in_custody_again() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    let (_, pending) = node.deliver(mail).await.unwrap();
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert!(node.admission.take(&mail).await.is_err());
    assert_eq!(node.custody(), 1);
    drop(pending);
    assert_eq!(node.drops(mail).await, Ok(Verdict::Redelivered));
    assert_eq!(node.take(&mail).await, Ok(()));
    assert_eq!(node.reopened().await.drops(mail).await, Err(REPLAY));
}

#[tokio::test]
async fn l9_2_a_failed_batch_brings_back_the_spent_mail_that_it_dropped() {
    let node = Node::with_custody().await;
    assert_eq!(node.drops(node.mail(1, 1)).await, Ok(Verdict::First));
    node.pass(TTL + MAIL_HOLD_MS + SIGMA);
    node.store.fail_at(node.store.begun() + 1, Fault::Io);
    assert!(node.admit(node.fresh(stream(2, Class::E2e), 1)).await.is_err());
    assert_eq!(node.custody(), 1);
}

/// The records without those of one table, as a torn batch leaves them.
fn torn(node: &Node, lost: Table) -> FaultStore {
    FaultStore::holding(node.store.records().into_iter().filter(|((table, _), _)| *table != lost).collect())
}

#[tokio::test]
async fn l10_6_custody_whose_window_did_not_land_is_admitted_anew_and_shown_once() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    let by_mail = Node::open(torn(&node, Table::Receiver), node.clock.clone(), with_custody()).await.unwrap();
    assert_eq!(by_mail.custody(), 1);
    assert_eq!(by_mail.drops(mail).await, Ok(Verdict::First), "its window does not know it");
    assert_eq!(by_mail.take(&mail).await, Ok(()));
    assert_eq!(by_mail.answer(Request { carrier: carrier(1), ..mail }).await, Err(REPLAY));

    // Where it comes by a link first, that shows it, and custody does not.
    let by_link = Node::open(torn(&node, Table::Receiver), node.clock.clone(), with_custody()).await.unwrap();
    assert_eq!(by_link.answer(Request { carrier: carrier(1), ..mail }).await, Ok(Verdict::First));
    for node in [&by_link, &by_link.reopened().await] {
        assert_eq!((node.drops(mail).await, node.custody()), (Err(REPLAY), 0));
    }
    // And the other half: the mail is lost.
    let lost = Node::open(torn(&node, Table::Custody), node.clock.clone(), with_custody()).await.unwrap();
    assert_eq!(lost.drops(mail).await, Err(REPLAY));
}

#[tokio::test]
async fn l11_a_bad_custody_record_keeps_its_place_and_costs_its_own_mail_alone() {
    let node = Node::with_custody().await;
    let mails = [node.mail(1, 1), node.mail(2, 1), node.mail(3, 1), node.mail(4, 1)];
    for mail in mails {
        assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    }
    let mut records = node.store.records();
    let places = mails.map(|mail| (Table::Custody, key(&mail.digest)));
    // One torn, one another mail's, one that the engine cannot read.
    let (cut, misfiled) = (records[&places[0]].slice(..50), records[&places[3]].clone());
    records.insert(places[0].clone(), cut);
    records.insert(places[1].clone(), misfiled);
    records.remove(&places[2]);
    let store = FaultStore::holding(records.clone());
    let unreadable = RecordName::of(Table::Custody, &places[2].1);
    store.add_bad(Table::Custody, crate::storage::BadRecord { name: unreadable, reason: "a bad sector".into() });
    let node = Node::open(store, node.clock.clone(), with_custody()).await.unwrap();
    assert_eq!((node.custody(), node.commit.health().unrestorable.len()), (4, 3));
    for mail in &mails[..3] {
        assert_eq!(node.drops(*mail).await, Err(REPLAY));
        assert_eq!(node.answer(node.fresh(mail.stream, 2)).await, Ok(Verdict::Advance), "its stream is available");
    }
    assert_eq!(node.drops(mails[3]).await, Ok(Verdict::Redelivered));
    for origin in 11..=70 {
        assert_eq!(node.drops(node.mail(origin, 1)).await, Ok(Verdict::First), "{origin}");
    }
    assert_eq!(node.drops(node.mail(71, 1)).await, refused(MailRefusal::RelayCustodyFull { held: CUSTODY_MAX }));
    // They are kept as they are.
    for place in &places[..2] {
        assert_eq!(node.store.records()[place], records[place]);
    }
}

#[tokio::test]
async fn l10_6_an_open_that_was_refused_leaves_custody_for_the_next() {
    let node = Node::with_custody().await;
    let mail = node.mail(1, 1);
    for mail in [mail, node.mail(2, 1)] {
        assert_eq!(node.drops(mail).await, Ok(Verdict::First));
    }
    let store = FaultStore::holding(node.store.records());
    let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
    let lowered = AdmissionConfig { streams: 1, ..with_custody() };
    assert!(Admission::open(&commit, node.clock.clone(), lowered).await.is_err());
    let admission = Admission::open(&commit, node.clock.clone(), with_custody()).await.unwrap();
    assert_eq!(admission.admit(mail).await.unwrap(), Ok(Verdict::Redelivered));
}

#[tokio::test]
async fn l7_2_mail_is_charged_when_it_is_admitted_and_not_again() {
    let rate = Rate::new(1, 2).unwrap();
    let quotas = Quotas::NONE.with(Class::Application, Quota { messages: rate, bytes: Rate::new(100, 100).unwrap() });
    let node = Node::new(AdmissionConfig { quotas, ..with_custody() }).await;
    let (first, second) = (node.mail(1, 1), node.mail(1, 2));
    assert_eq!(node.drops(first).await, Ok(Verdict::First));
    for _ in 0..5 {
        assert_eq!(node.drops(first).await, Ok(Verdict::Redelivered));
    }
    assert_eq!(node.drops(second).await, Ok(Verdict::Advance));
    let over = node.drops(node.mail(1, 3)).await;
    assert!(matches!(over, Err(BoundaryRefusal::QuotaExceeded { bucket: Bucket::Messages, .. })), "{over:?}");
    assert_eq!(node.custody(), 2);
}

#[tokio::test]
async fn l9_9_enabling_custody_takes_birth_anew_and_birth_settles_7_days_later() {
    let node = Node::new(config()).await;
    let old = node.mail(1, 1);
    node.pass(TTL + 3 * SIGMA);
    assert_eq!(node.answer(node.fresh(stream(2, Class::E2e), 1)).await, Ok(Verdict::First));
    assert!(node.admission.health().birth_settled);

    let node = node.reopened().await;
    let health = node.admission.health();
    assert_eq!((health.birth_settled, health.birth_mark), (false, Some(node.clock.wall() + 2 * SIGMA)));
    assert_eq!(node.drops(old).await, Err(BoundaryRefusal::BeforeMark { mark: node.clock.wall() + 2 * SIGMA }));
    let enabled = node.clock.wall();
    node.pass(TTL + 3 * SIGMA + MAIL_HOLD_MS - 1);
    assert_eq!(node.drops(node.mail(1, 2)).await, Ok(Verdict::First));
    assert!(!node.admission.health().birth_settled, "one millisecond short");
    node.pass(1);
    assert_eq!(node.drops(node.mail(1, 3)).await, Ok(Verdict::Advance));
    assert!(node.admission.health().birth_settled);
    // What it settled under holds, with custody and without.
    for again in [config(), with_custody()] {
        let health = node.restart(again).await.unwrap().admission.health();
        assert_eq!((health.birth_settled, health.birth_mark), (true, Some(enabled + 2 * SIGMA)));
    }
}

#[tokio::test]
async fn l6_4_mail_whose_namespace_was_withdrawn_since_is_not_shown_and_leaves_custody() {
    use crate::{layer::boundary::Application, layer::local::Namespace, message::ClassifierId};
    let node = Node::with_custody().await;
    let chat = Namespace::new("chat").unwrap();
    node.admission.register(chat).await.unwrap();
    let application = Application { classifier: ClassifierId::of("tests"), namespace: Some(chat), own_link: None };
    let mail = Request { application: Some(application), ..node.mail(1, 1) };
    let (_, _pending) = node.deliver(mail).await.unwrap();
    node.admission.withdraw(chat).await.unwrap();
    let withdrawn = node.take(&mail).await;
    assert!(matches!(withdrawn, Err(BoundaryRefusal::NamespaceWithdrawn { .. })), "{withdrawn:?}");
    assert_eq!((node.custody(), node.reopened().await.custody()), (0, 0));
    assert_eq!(node.take(&mail).await, Err(MailRefusal::NotInCustody.into()));
}
