use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { lane_items: 3, lane_bytes: 100, all_items: 6, all_bytes: 150, peers: 2 };
const LATER: Duration = Duration::from_secs(9);

type Small = Queues<u8, u32, u32>;

fn own(class: Class, bytes: usize, deadline: Duration) -> Terms {
    Terms { class, bytes, deadline, traffic: Traffic::Own }
}

fn offer(queues: &mut Small, peer: u8, class: Class, bytes: usize, item: u32) -> Entry<(), u32> {
    queues.offer(&peer, own(class, bytes, LATER), item, || item)
}

#[test]
fn l3_7_a_full_lane_makes_callers_wait_and_lets_them_in_first_come_first_served() {
    let mut queues = Small::new(LIMITS);
    for item in 0..3 {
        assert_eq!(offer(&mut queues, 1, Class::E2e, 10, item), Entry::Now(()));
    }
    assert!(matches!(offer(&mut queues, 1, Class::E2e, 10, 3), Entry::Waiting(_)));
    assert!(matches!(offer(&mut queues, 1, Class::E2e, 1, 4), Entry::Waiting(_)), "nobody passes the line");
    assert_eq!(offer(&mut queues, 1, Class::Storage, 10, 9), Entry::Now(()), "another lane has room of its own");
    let mut let_in = Vec::new();
    assert_eq!(queues.pop(&1, Class::E2e, &mut let_in), Some(0));
    assert_eq!(let_in, [LetIn { notify: 3, room: None }]);
    let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
    assert_eq!(order, [1, 2, 3, 4]);
}

#[test]
fn l3_7_bytes_bound_a_lane_and_one_large_item_is_not_passed_by_small_ones() {
    let mut queues = Small::new(LIMITS);
    assert_eq!(offer(&mut queues, 1, Class::E2e, 60, 0), Entry::Now(()));
    assert!(matches!(offer(&mut queues, 1, Class::E2e, 60, 1), Entry::Waiting(_)));
    assert!(matches!(offer(&mut queues, 1, Class::E2e, 1, 2), Entry::Waiting(_)));
    let mut let_in = Vec::new();
    queues.pop(&1, Class::E2e, &mut let_in);
    assert_eq!(let_in.iter().map(|one| one.notify).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn l3_5_the_common_bound_never_shuts_out_an_empty_lane() {
    let mut queues = Small::new(LIMITS);
    for item in 0..3 {
        assert_eq!(offer(&mut queues, 1, Class::E2e, 25, item), Entry::Now(()));
        assert_eq!(offer(&mut queues, 1, Class::Storage, 25, item), Entry::Now(()));
    }
    assert_eq!(queues.held(), (LIMITS.all_items, LIMITS.all_bytes));
    assert_eq!(offer(&mut queues, 2, Class::E2e, 25, 7), Entry::Now(()));
    assert!(matches!(offer(&mut queues, 2, Class::E2e, 25, 8), Entry::Waiting(_)));
}

#[test]
fn l3_7_a_peer_past_the_bound_is_refused_with_its_item_and_an_idle_one_makes_place() {
    let mut queues = Small::new(LIMITS);
    offer(&mut queues, 1, Class::E2e, 1, 1);
    offer(&mut queues, 2, Class::E2e, 1, 2);
    assert_eq!(offer(&mut queues, 3, Class::E2e, 1, 3), Entry::PeersFull(3));
    queues.pop(&1, Class::E2e, &mut Vec::new());
    assert_eq!(offer(&mut queues, 3, Class::E2e, 1, 3), Entry::Now(()));
}

#[test]
fn l3_2_room_is_taken_before_the_item_exists_and_given_back_to_the_line() {
    let mut queues = Small::new(LIMITS);
    let rooms: Vec<_> = (0..3)
        .map(|_| match queues.reserve(&1, own(Class::E2e, 10, LATER), || 0) {
            Entry::Now(room) => room,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(matches!(queues.reserve(&1, own(Class::E2e, 10, LATER), || 77), Entry::Waiting(_)));
    let mut let_in = Vec::new();
    for (item, room) in rooms.into_iter().enumerate() {
        if item == 1 { queues.release(room, &mut let_in) } else { queues.fill(room, LATER, item as u32) }
    }
    let waited = let_in.pop().unwrap();
    assert_eq!(waited.notify, 77);
    queues.fill(waited.room.unwrap(), LATER, 9);
    let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
    assert_eq!(order, [0, 2, 9]);
    assert!(!queues.has_work(&1));
}

#[test]
fn l3_7_waiting_for_room_ends_at_its_deadline_and_lets_the_next_in() {
    let mut queues = Small::new(LIMITS);
    let soon = Duration::from_secs(1);
    queues.offer(&1, own(Class::E2e, 90, LATER), 0, || 0);
    queues.offer(&1, own(Class::E2e, 90, soon), 1, || 1);
    queues.offer(&1, own(Class::E2e, 5, LATER), 2, || 2);
    assert_eq!(queues.next_deadline(), Some(soon));
    let mut let_in = Vec::new();
    assert_eq!(queues.expire(Duration::ZERO, &mut let_in), None);
    let expired = queues.expire(soon, &mut let_in);
    assert_eq!(expired, Some((1, Class::E2e, Removed::Waiting { item: Some(1), notify: 1 })));
    assert_eq!(let_in, [LetIn { notify: 2, room: None }]);
    assert_eq!(queues.expire(LATER, &mut let_in), Some((1, Class::E2e, Removed::Queued(0))));
    assert_eq!(queues.expire(LATER, &mut let_in), Some((1, Class::E2e, Removed::Queued(2))));
    assert_eq!(queues.expire(LATER, &mut let_in), None);
    assert_eq!((queues.held(), queues.has_work(&1)), ((0, 0), false));
}

#[test]
fn l3_9_what_is_aside_takes_no_room_and_joins_the_end_of_the_line() {
    let mut queues = Small::new(LIMITS);
    let aside = queues.name();
    assert_eq!(queues.set_aside(&1, own(Class::E2e, 10, LATER), aside, Some(0), 0), Ok(()));
    assert_eq!((queues.held(), queues.has_work(&1), queues.ready(&1)), ((0, 0), true, [false; LANES]));
    for item in 1..4 {
        assert_eq!(offer(&mut queues, 1, Class::E2e, 10, item), Entry::Now(()), "it holds up nobody");
    }
    assert!(matches!(offer(&mut queues, 1, Class::E2e, 10, 4), Entry::Waiting(_)));
    let mut let_in = Vec::new();
    queues.join(&1, Class::E2e, aside, &mut let_in);
    assert_eq!(let_in, []);
    let order: Vec<_> = std::iter::from_fn(|| queues.pop(&1, Class::E2e, &mut let_in)).collect();
    assert_eq!(order, [1, 2, 3, 4, 0]);
    assert_eq!(let_in.iter().map(|one| one.notify).collect::<Vec<_>>(), [4, 0]);
}

#[test]
fn l3_9_what_is_aside_ends_by_its_deadline_by_its_caller_or_with_its_peer() {
    let mut queues = Small::new(LIMITS);
    let mut let_in = Vec::new();
    let names: Vec<u64> = (0..3)
        .map(|item| {
            let (name, deadline) = (queues.name(), Duration::from_secs(1 + u64::from(item)));
            assert_eq!(queues.set_aside(&1, own(Class::E2e, 10, deadline), name, Some(item), item), Ok(()));
            name
        })
        .collect();
    let gone = |item| Removed::Waiting { item: Some(item), notify: item };
    assert_eq!(queues.expire(Duration::from_secs(1), &mut let_in), Some((1, Class::E2e, gone(0))));
    assert_eq!(queues.cancel(&1, Class::E2e, names[1], &mut let_in), Some(gone(1)));
    assert_eq!(queues.drain(&1), [gone(2)]);
    queues.join(&1, Class::E2e, names[2], &mut let_in);
    assert_eq!((let_in.len(), queues.has_work(&1), queues.next_deadline()), (0, false, None));
    // A third peer is past the bound.
    offer(&mut queues, 1, Class::E2e, 1, 1);
    offer(&mut queues, 2, Class::E2e, 1, 2);
    let name = queues.name();
    assert_eq!(queues.set_aside(&3, own(Class::E2e, 1, LATER), name, Some(3), 3), Err((Some(3), 3)));
}

#[derive(Debug, Clone)]
enum Step {
    Offer { peer: u8, class: Class, bytes: usize, deadline: u64 },
    Reserve { peer: u8, class: Class, bytes: usize },
    SetAside { peer: u8, class: Class, bytes: usize, deadline: u64, item: bool },
    Join(u8),
    Fill(u8),
    Release(u8),
    Pop { peer: u8, class: Class },
    Cancel(u8),
    Expire,
    Drain(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = prop_oneof![Just(Class::DhtControl), Just(Class::E2e)];
    let step = prop_oneof![
        4 => (0..3_u8, class.clone(), 1..60_usize, 1..50_u64)
            .prop_map(|(peer, class, bytes, deadline)| Step::Offer { peer, class, bytes, deadline }),
        2 => (0..3_u8, class.clone(), 1..60_usize)
            .prop_map(|(peer, class, bytes)| Step::Reserve { peer, class, bytes }),
        2 => (0..3_u8, class.clone(), 1..60_usize, 1..50_u64, any::<bool>()).prop_map(
            |(peer, class, bytes, deadline, item)| Step::SetAside { peer, class, bytes, deadline, item }
        ),
        2 => any::<u8>().prop_map(Step::Join),
        2 => any::<u8>().prop_map(Step::Fill),
        1 => any::<u8>().prop_map(Step::Release),
        3 => (0..3_u8, class).prop_map(|(peer, class)| Step::Pop { peer, class }),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => Just(Step::Expire),
        1 => (0..3_u8).prop_map(Step::Drain),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Bounds hold at every step; whatever goes in comes out exactly once; a lane's items come out in the order
    /// in which they were let in; nobody waits before an empty lane.
    #[test]
    fn l3_7_everything_leaves_once_in_order_and_within_the_bounds(steps in steps()) {
        let mut queues = Small::new(LIMITS);
        let (mut next, mut now, mut gone, mut inside) = (0_u32, 0_u64, Vec::new(), Vec::new());
        let mut rooms: Vec<Reserved<u8>> = Vec::new();
        let mut waiting: Vec<(u8, Class, u64)> = Vec::new();
        let mut aside: Vec<(u8, Class, u64)> = Vec::new();
        let mut model: HashMap<(u8, u8), VecDeque<u32>> = HashMap::new();
        let place: std::cell::RefCell<HashMap<u32, (u8, Class)>> = Default::default();
        for step in steps {
            let mut let_in = Vec::new();
            let mut removed = Vec::new();
            match step {
                Step::Offer { peer, class, bytes, deadline } => {
                    next += 1;
                    let deadline = Duration::from_secs(now + deadline);
                    match queues.offer(&peer, own(class, bytes, deadline), next, || next) {
                        Entry::Now(()) => {
                            model.entry((peer, class.lane())).or_default().push_back(next);
                            inside.push(next);
                        }
                        Entry::Waiting(id) => {
                            waiting.push((peer, class, id));
                            inside.push(next);
                        }
                        Entry::PeersFull(item) => prop_assert_eq!(item, next),
                    }
                    place.borrow_mut().insert(next, (peer, class));
                }
                Step::Reserve { peer, class, bytes } => {
                    next += 1;
                    let deadline = Duration::from_secs(now + 20);
                    match queues.reserve(&peer, own(class, bytes, deadline), || next) {
                        Entry::Now(room) => rooms.push(room),
                        Entry::Waiting(id) => waiting.push((peer, class, id)),
                        Entry::PeersFull(()) => {}
                    }
                }
                Step::SetAside { peer, class, bytes, deadline, item } => {
                    next += 1;
                    let name = queues.name();
                    let (held, terms) = (queues.held(), own(class, bytes, Duration::from_secs(now + deadline)));
                    let kept = queues.set_aside(&peer, terms, name, item.then_some(next), next);
                    prop_assert_eq!(queues.held(), held, "it takes no room");
                    place.borrow_mut().insert(next, (peer, class));
                    match kept {
                        Ok(()) => {
                            inside.extend(item.then_some(next));
                            waiting.push((peer, class, name));
                            aside.push((peer, class, name));
                        }
                        Err(back) => prop_assert_eq!(back, (item.then_some(next), next)),
                    }
                }
                Step::Join(choice) if !aside.is_empty() => {
                    let (peer, class, name) = aside.swap_remove(usize::from(choice) % aside.len());
                    queues.join(&peer, class, name, &mut let_in);
                }
                Step::Fill(choice) if !rooms.is_empty() => {
                    next += 1;
                    let room = rooms.swap_remove(usize::from(choice) % rooms.len());
                    model.entry((room.peer, room.class.lane())).or_default().push_back(next);
                    place.borrow_mut().insert(next, (room.peer, room.class));
                    inside.push(next);
                    queues.fill(room, Duration::from_secs(now + 20), next);
                }
                Step::Release(choice) if !rooms.is_empty() => {
                    let room = rooms.swap_remove(usize::from(choice) % rooms.len());
                    queues.release(room, &mut let_in);
                }
                Step::Pop { peer, class } => {
                    let popped = queues.pop(&peer, class, &mut let_in);
                    let expected = model.entry((peer, class.lane())).or_default().pop_front();
                    prop_assert_eq!(popped, expected);
                    gone.extend(popped);
                }
                Step::Cancel(choice) if !waiting.is_empty() => {
                    let (peer, class, id) = waiting.swap_remove(usize::from(choice) % waiting.len());
                    removed.extend(queues.cancel(&peer, class, id, &mut let_in));
                }
                Step::Expire => {
                    now += 10;
                    while let Some((_, _, one)) = queues.expire(Duration::from_secs(now), &mut let_in) {
                        removed.push(one);
                    }
                    prop_assert!(queues.next_deadline().is_none_or(|next| next > Duration::from_secs(now)));
                }
                Step::Drain(peer) => removed.extend(queues.drain(&peer)),
                Step::Join(_) | Step::Fill(_) | Step::Release(_) | Step::Cancel(_) => {}
            }
            // Let in before removed: an item may be let in and expire within one step.
            for one in let_in {
                match one.room {
                    Some(room) => rooms.push(room),
                    None => {
                        let (peer, class) = place.borrow()[&one.notify];
                        model.entry((peer, class.lane())).or_default().push_back(one.notify);
                    }
                }
            }
            for one in removed {
                if let Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } = one {
                    let (peer, class) = place.borrow()[&item];
                    model.entry((peer, class.lane())).or_default().retain(|other| *other != item);
                    gone.push(item);
                }
            }
            let (items, bytes) = queues.held();
            let lanes = || queues.peers.values().flatten();
            prop_assert_eq!(items, lanes().map(|lane| lane.items).sum::<usize>());
            prop_assert_eq!(bytes, lanes().map(|lane| lane.bytes).sum::<usize>());
            prop_assert!(queues.peers.len() <= LIMITS.peers);
            prop_assert!(items <= LIMITS.all_items + LIMITS.peers * LANES);
            for lane in lanes() {
                prop_assert!(lane.items <= LIMITS.lane_items);
                prop_assert!(lane.items <= 1 || lane.bytes <= LIMITS.lane_bytes);
                prop_assert!(lane.items > 0 || lane.line.is_empty());
            }
            let entries = lanes().map(|lane| lane.queued.len() + lane.line.len() + lane.aside.len()).sum::<usize>();
            prop_assert_eq!(queues.deadlines.len(), entries);
        }
        while let Some(room) = rooms.pop() {
            let mut let_in = Vec::new();
            queues.release(room, &mut let_in);
            rooms.extend(let_in.into_iter().filter_map(|one| one.room));
        }
        for peer in 0..3 {
            for one in queues.drain(&peer) {
                if let Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } = one {
                    gone.push(item);
                }
            }
        }
        gone.sort_unstable();
        inside.sort_unstable();
        prop_assert_eq!(gone, inside);
        prop_assert_eq!((queues.held(), queues.peers.len(), queues.deadlines.len()), ((0, 0), 0, 0));
    }
}
