use std::time::Duration;

use super::*;
use crate::{
    identity::KeySigner,
    layer::{
        quota::{Quota, Steady},
        window::observe,
    },
    link::LinkId,
    message::{Class, ClassifierId, Incarnation, NetworkId, StreamKey, TransactionDigest},
    storage::guard::Guards,
};

fn did(secret: u8) -> Did {
    KeySigner::from_secret(&[secret; 32]).unwrap().key()
}

fn stream(origin: u8) -> StreamKey {
    StreamKey { network: NetworkId(7), origin: did(origin), destination: did(255), class: Class::Application }
}

fn name(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn registered(registry: &Registry, namespace: &str, mark: u64) -> Registry {
    registry.registered(name(namespace), mark, 0, Guards::default()).unwrap()
}

fn volatile() -> Volatile {
    let (_, window) = observe(None, Incarnation(1), 1, TransactionDigest([1; 32])).unwrap();
    Volatile { window, touched: 0 }
}

#[test]
fn l6_1_a_connection_is_its_origins_own_by_the_origins_key_or_its_delegatees() {
    let (origin, delegatee, relay) = (did(1), did(2), did(3));
    assert!(is_own_connection(&origin, &origin, None));
    assert!(is_own_connection(&origin, &origin, Some(&delegatee)));
    assert!(is_own_connection(&delegatee, &origin, Some(&delegatee)));
    assert!(!is_own_connection(&delegatee, &origin, None), "not without the delegation");
    assert!(!is_own_connection(&relay, &origin, Some(&delegatee)));
}

#[test]
fn a_namespace_is_bounded_and_shown_as_text() {
    let longest = [b'n'; NAMESPACE_LEN_MAX];
    assert_eq!(Namespace::new(longest).unwrap().as_bytes(), longest);
    assert_eq!(Namespace::new([0; NAMESPACE_LEN_MAX + 1]), Err(NamespaceTooLong { length: NAMESPACE_LEN_MAX + 1 }));
    assert_eq!(Namespace::new([0; 300]), Err(NamespaceTooLong { length: 300 }));
    assert_eq!((name("").as_bytes(), format!("{:?}", name("a\n"))), (&b""[..], "\"a\\n\"".into()));
    assert_ne!(name("a"), name("a\0"));
}

#[test]
fn l6_4_a_registration_counts_past_its_mark_and_a_withdrawals_mark_stays() {
    let guards = Guards::default();
    let registry = registered(&Registry::default(), "chat", 100);
    assert!(!registry.delegates(&name("chat"), 100, guards) && registry.delegates(&name("chat"), 101, guards));
    assert!(!registry.delegates(&name("other"), 101, guards));
    assert_eq!(registered(&registry, "chat", 500), registry, "it goes on");

    let withdrawn = registry.withdrawn(&name("chat"), 300, guards);
    assert!(!withdrawn.delegates(&name("chat"), 400, guards));
    assert_eq!((withdrawn.mark(Some(&name("chat"))), withdrawn.mark(Some(&name("other")))), (300, 0));
    assert_eq!(withdrawn.withdrawn(&name("chat"), 900, guards), withdrawn, "once");
    let again = registered(&withdrawn, "chat", 350);
    assert_eq!((again.mark(Some(&name("chat"))), again.greatest_mark()), (300, 300));
    assert!(!again.delegates(&name("chat"), 350, guards) && again.delegates(&name("chat"), 351, guards));
}

#[test]
fn l6_4_a_start_keeps_what_it_names_and_withdraws_the_rest_past_its_horizon() {
    let guards = Guards::default();
    let registry = registered(&registered(&Registry::default(), "kept", 100), "left", 100);
    let registry = registry.extended(&name("left"), 1_000, 50);
    assert!(!registry.past_horizon(&name("left"), 1_050) && registry.past_horizon(&name("left"), 1_051));
    let read = Registry::decode(&registry.encode()).unwrap();
    let started = read.started(&[name("kept"), name("new")], 200, 0, guards).unwrap();
    assert_eq!(started.names().copied().collect::<Vec<_>>(), [name("kept"), name("new")]);
    assert_eq!(started.mark(Some(&name("left"))), 1_050, "its horizon, though nothing that far was admitted by now");
    assert!(started.delegates(&name("kept"), 101, guards), "the same registration");
    assert!(!started.delegates(&name("new"), 200, guards), "a new one");
}

#[test]
fn l6_4_in_the_run_that_admitted_a_mark_covers_what_was_reached_and_not_the_horizon() {
    let guards = Guards::default();
    let mut registry = registered(&Registry::default(), "chat", 100).extended(&name("chat"), 1_000, 5_000);
    registry.reach(&name("chat"), 1_000);
    assert_eq!(registry.withdrawn(&name("chat"), 600, guards).mark(Some(&name("chat"))), 1_000);
    assert_eq!(registry.withdrawn(&name("chat"), 1_200, guards).mark(Some(&name("chat"))), 1_200);
}

#[test]
fn l6_4_another_classifier_marks_every_namespace_listed_or_not() {
    let guards = Guards::default();
    let [one, two] = ["one", "two"].map(ClassifierId::of);
    assert_eq!(Registry::default().read_by(one, 100, guards), None, "nothing was ever link-local");
    let registry = registered(&Registry::default(), "chat", 100);
    let registry = registry.read_by(one, 150, guards).unwrap();
    assert_eq!((registry.mark(Some(&name("chat"))), registry.read_by(one, 200, guards)), (0, None));
    let registry = Registry::decode(&registry.extended(&name("chat"), 300, 40).encode()).unwrap();
    let registry = registry.read_by(two, 200, guards).unwrap();
    for namespace in [Some(name("chat")), Some(name("never")), None] {
        assert_eq!(registry.mark(namespace.as_ref()), 340);
    }
}

#[test]
fn l6_4_a_full_registry_takes_one_more_in_the_place_of_one_whose_mark_nothing_lives_below() {
    let guards = Guards::default();
    let names: Vec<_> = (0..NAMESPACES_MAX).map(|number| format!("namespace {number}")).collect();
    let full = names.iter().fold(Registry::default(), |registry, name| registered(&registry, name, 10));
    let more = |registry: &Registry, dead| registry.registered(name("more"), 900, dead, guards);
    assert_eq!(more(&full, u64::MAX), Err(TooManyNamespaces), "registered ones stay");
    let full = full.withdrawn(&name(&names[3]), 500, guards).withdrawn(&name(&names[5]), 400, guards);
    assert_eq!(more(&full, 399), Err(TooManyNamespaces), "something may live below both marks");
    let next = more(&full, 400).unwrap();
    assert!(next.names().any(|known| *known == name("more")));
    // What the forgotten one refused is refused still.
    assert_eq!((next.mark(Some(&name(&names[5]))), next.mark(Some(&name(&names[3])))), (400, 500));
}

#[test]
fn l9_1_a_registry_is_read_back_whole_or_not_at_all() {
    let guards = Guards::default();
    let registry = registered(&registered(&Registry::default(), "", 100), &"n".repeat(NAMESPACE_LEN_MAX), 200);
    let registry = registry.read_by(ClassifierId::of("one"), 5, guards).unwrap().withdrawn(&name(""), 300, guards);
    let bytes = registry.encode();
    assert_eq!(Registry::decode(&bytes), Some(registry));
    for place in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[place] ^= 0x10;
        assert_eq!(Registry::decode(&damaged), None);
        assert_eq!(Registry::decode(&bytes[..place]), None);
    }
}

#[test]
fn l6_2_a_link_has_four_windows_and_its_end_releases_them() {
    let mut windows = Windows::default();
    let links: Vec<_> = (0..=LINKS_MAX).map(LinkId::of).collect();
    let now = Steady::default().now();
    assert_eq!(windows.room(&links[0], &stream(1), false), Room::None, "nobody announced it");
    links.iter().for_each(|link| windows.open(*link));
    assert_eq!(windows.room(&links[LINKS_MAX], &stream(1), false), Room::None, "one link too many");
    for link in &links[..2] {
        for origin in 1..=4 {
            assert_eq!(windows.room(link, &stream(origin), false), Room::Free);
            windows.put(link, stream(origin), volatile(), None);
            assert_eq!(windows.room(link, &stream(origin), false), Room::Window(&volatile()));
        }
        assert_eq!(windows.room(link, &stream(5), false), Room::None, "the fifth");
    }
    assert_eq!(windows.held(), (LINKS_MAX, 8));
    windows.retire(&links[0], now);
    assert_eq!(windows.held(), (LINKS_MAX - 1, 4));
    assert_eq!(windows.room(&links[0], &stream(1), false), Room::None);
    windows.open(links[LINKS_MAX]);
    assert_eq!(windows.room(&links[LINKS_MAX], &stream(1), false), Room::Free, "in its place");
    // What comes late, of a transition or of an undo, finds nothing.
    windows.put(&links[0], stream(1), volatile(), None);
    windows.restore(&links[0], stream(1), Some(volatile()), None, now);
    assert_eq!(windows.held().1, 4);
    windows.retire(&links[1], now);
    assert_eq!((windows.held().1, windows.accounts()), (0, 0));
}

#[test]
fn l7_2_a_link_local_quota_outlives_its_links_until_it_is_full_and_is_one_over_all_links() {
    let (mut windows, mut steady) = (Windows::default(), Steady::default());
    let fill = Duration::from_secs(16);
    let [one, two, three] = [1, 2, 3].map(LinkId::of);
    [one, two, three].into_iter().for_each(|link| windows.open(link));
    let charge = |windows: &mut Windows, link: &LinkId, now| {
        let buckets = Quota::OFFERED.charge(windows.buckets(&stream(1)), 1, now)?;
        windows.put(link, stream(1), volatile(), Some(buckets));
        Ok::<_, crate::layer::quota::TooLittle>(())
    };
    let now = steady.read(Duration::from_secs(1));
    (0..16).for_each(|_| charge(&mut windows, &one, now).unwrap());
    (0..16).for_each(|_| charge(&mut windows, &two, now).unwrap());
    assert!(charge(&mut windows, &one, now).is_err());
    windows.retire(&one, now);
    windows.retire(&two, now);
    assert_eq!((windows.held().1, windows.accounts()), (0, 1));
    assert!(charge(&mut windows, &three, now).is_err(), "a reconnect does not fill it");
    let almost = steady.read(Duration::from_secs(17) - Duration::from_nanos(1));
    windows.sweep(almost, fill);
    assert_eq!(windows.accounts(), 1);
    windows.sweep(steady.read(Duration::from_secs(17)), fill);
    assert_eq!(windows.accounts(), 0);
}

#[test]
fn l7_2_where_no_account_is_free_a_stream_is_durable() {
    let mut windows = Windows::default();
    let now = Steady::default().now();
    let buckets = Quota::OFFERED.charge(None, 1, now).unwrap();
    let of = |number: usize| StreamKey { network: NetworkId(number as u64), ..stream(1) };
    for number in 0..accounts::ACCOUNTS_MAX {
        let link = LinkId::of(number);
        windows.open(link);
        assert_eq!(windows.room(&link, &of(number), true), Room::Free);
        windows.put(&link, of(number), volatile(), Some(buckets));
        windows.retire(&link, now);
    }
    let link = LinkId::of("another");
    windows.open(link);
    assert_eq!(windows.accounts(), accounts::ACCOUNTS_MAX);
    assert_eq!(windows.room(&link, &of(usize::MAX), true), Room::None);
    assert_eq!(windows.room(&link, &of(0), true), Room::Free, "its account is there");
    windows.sweep(now, Duration::ZERO);
    assert_eq!(windows.room(&link, &of(usize::MAX), true), Room::Free);
}
