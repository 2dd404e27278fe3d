//! Messages of several items: laws L3.6 to L3.8.

use std::collections::HashSet;

use proptest::prelude::*;

use super::{lane::MESSAGE_FRAMES, *};

const LIMITS: Limits = Limits { lane_items: 4, lane_bytes: 100, all_items: 6, all_bytes: 150, peers: 2 };
const LATER: Duration = Duration::from_secs(9);
const CLASS: Class = Class::E2e;

type Small = Queues<u8, u32, u32>;

fn terms(bytes: usize, traffic: Traffic) -> Terms {
    Terms { class: CLASS, bytes, deadline: LATER, traffic }
}

fn room(queues: &mut Small, bytes: usize, traffic: Traffic) -> Reserved<u8> {
    match queues.reserve(&1, terms(bytes, traffic), || 0) {
        Entry::Now(room) => room,
        other => panic!("{other:?}"),
    }
}

fn begin(queues: &mut Small, bytes: usize, notify: u32) -> u64 {
    let room = room(queues, bytes, Traffic::Message);
    open(queues, room, notify)
}

fn open(queues: &mut Small, room: Reserved<u8>, notify: u32) -> u64 {
    let name = queues.name();
    queues.begin(room, name, LATER, notify);
    name
}

fn append(queues: &mut Small, name: u64, items: impl IntoIterator<Item = u32>) {
    items.into_iter().for_each(|item| queues.append(&1, CLASS, name, item).unwrap());
}

fn all(queues: &mut Small) -> Vec<u32> {
    std::iter::from_fn(|| queues.pop(&1, CLASS, &mut Vec::new())).collect()
}

#[test]
fn l3_6_what_is_this_nodes_own_follows_an_open_message_and_what_is_forwarded_goes_between() {
    let mut queues = Small::new(LIMITS);
    let mut let_in = Vec::new();
    let early = room(&mut queues, 10, Traffic::Own);
    let message = begin(&mut queues, 10, 0);
    append(&mut queues, message, [1]);
    queues.fill(early, LATER, 20);
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Own), 21, || 21), Entry::Waiting(_)));
    assert_eq!(all(&mut queues), [1], "nothing of this node's own goes between");
    assert_eq!(queues.free(&1, CLASS, message), Some(3), "it grew to what the lane has room for");
    append(&mut queues, message, [2]);
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Forwarded), 30, || 30), Entry::Waiting(_)), "a full lane");
    queues.finish(&1, CLASS, message, &mut let_in);
    assert_eq!(let_in.iter().map(|one| one.notify).collect::<Vec<_>>(), [30, 21]);
    assert_eq!(all(&mut queues), [2, 20, 30, 21]);
    assert_eq!((queues.held(), queues.has_work(&1), queues.next_deadline()), ((0, 0), false, None));
}

#[test]
fn l3_6_what_is_forwarded_passes_those_who_wait_for_a_message() {
    let mut queues = Small::new(Limits { lane_items: 40, lane_bytes: 1_000, ..LIMITS });
    let message = begin(&mut queues, 10, 0);
    append(&mut queues, message, [1]);
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Own), 20, || 20), Entry::Waiting(_)));
    let limits = Limits { all_items: 40, all_bytes: 1_000, ..queues.common.limits };
    queues.common.limits = limits;
    assert_eq!(queues.offer(&1, terms(10, Traffic::Forwarded), 30, || 30), Entry::Now(()));
    append(&mut queues, message, [2]);
    assert_eq!(all(&mut queues), [1, 30, 2]);
    queues.finish(&1, CLASS, message, &mut Vec::new());
    assert_eq!(all(&mut queues), [20]);
}

#[test]
fn l3_7_messages_have_their_turns_one_by_one_in_order_with_the_others() {
    let mut queues = Small::new(LIMITS);
    let mut let_in = Vec::new();
    let first = begin(&mut queues, 10, 1);
    let second = |queues: &mut Small, notify| match queues.reserve(&1, terms(10, Traffic::Message), || notify) {
        Entry::Waiting(id) => id,
        other => panic!("{other:?}"),
    };
    let gone = second(&mut queues, 2);
    second(&mut queues, 3);
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Own), 4, || 4), Entry::Waiting(_)));
    second(&mut queues, 5);
    assert_eq!(queues.cancel(&1, CLASS, gone, &mut let_in), Some(Removed::Waiting { item: None, notify: 2 }));
    queues.finish(&1, CLASS, first, &mut let_in);
    assert_eq!(let_in.len(), 1);
    let third = open(&mut queues, let_in.pop().unwrap().room.unwrap(), 3);
    append(&mut queues, third, [10]);
    queues.finish(&1, CLASS, third, &mut let_in);
    let told: Vec<_> = let_in.iter().map(|one| one.notify).collect();
    assert_eq!(told, [4, 5]);
    queues.release(let_in.pop().unwrap().room.unwrap(), &mut let_in);
    assert_eq!(all(&mut queues), [10, 4]);
    assert_eq!((queues.held(), queues.has_work(&1), queues.next_deadline()), ((0, 0), false, None));
}

#[test]
fn l3_7_a_message_of_any_length_passes_a_full_lane_of_four_by_the_room_of_its_first_item() {
    let mut queues = Small::new(LIMITS);
    let rooms: Vec<_> = (0..3).map(|_| room(&mut queues, 10, Traffic::Own)).collect();
    let message = begin(&mut queues, 10, 0);
    rooms.into_iter().zip(100..).for_each(|(room, item)| queues.fill(room, LATER, item));
    for item in 0..1_000 {
        assert_eq!(queues.free(&1, CLASS, message), Some(1));
        append(&mut queues, message, [item]);
        assert_eq!(queues.append(&1, CLASS, message, item), Err(item), "it has no more room");
        assert_eq!(all(&mut queues), [item]);
        assert_eq!(queues.held(), (4, 40));
    }
    queues.finish(&1, CLASS, message, &mut Vec::new());
    assert_eq!(all(&mut queues), [100, 101, 102]);
}

#[test]
fn l3_7_a_message_takes_no_more_room_than_its_bound() {
    let limits = Limits { lane_items: 100, lane_bytes: 10_000, all_items: 100, all_bytes: 10_000, peers: 2 };
    let mut queues = Small::new(limits);
    let message = begin(&mut queues, 10, 0);
    assert_eq!(queues.free(&1, CLASS, message), Some(MESSAGE_FRAMES));
    assert_eq!(queues.held(), (MESSAGE_FRAMES, MESSAGE_FRAMES * 10));
}

#[test]
fn l3_7_a_message_expires_as_one_and_what_is_behind_it_goes_on() {
    let mut queues = Small::new(LIMITS);
    let mut let_in = Vec::new();
    let room = room(&mut queues, 10, Traffic::Message);
    let (name, soon) = (queues.name(), Duration::from_secs(1));
    queues.begin(room, name, soon, 7);
    append(&mut queues, name, [1, 2, 3]);
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Own), 4, || 4), Entry::Waiting(_)));
    assert_eq!(queues.pop(&1, CLASS, &mut let_in), Some(1));
    assert_eq!(queues.next_deadline(), Some(soon));
    let expired = queues.expire(soon, &mut let_in);
    assert_eq!(expired, Some((1, CLASS, Removed::Message { items: vec![2, 3], notify: 7, started: true })));
    assert_eq!(queues.free(&1, CLASS, name), None);
    assert_eq!(queues.append(&1, CLASS, name, 9), Err(9), "nothing of it is written any more");
    queues.finish(&1, CLASS, name, &mut let_in);
    assert_eq!(all(&mut queues), [4]);
    assert_eq!((queues.held(), queues.has_work(&1), queues.next_deadline()), ((0, 0), false, None));
}

#[test]
fn l3_8_a_link_that_ends_takes_a_message_with_it_of_which_some_was_popped_and_some_was_not() {
    let mut queues = Small::new(LIMITS);
    let mut let_in = Vec::new();
    let whole = begin(&mut queues, 10, 0);
    append(&mut queues, whole, [1]);
    assert_eq!(queues.interrupt(&1, CLASS, &mut let_in), None, "none was popped: it moves");
    assert_eq!(all(&mut queues), [1]);
    // All that is known of it was popped, and it has more to come.
    let interrupted = queues.interrupt(&1, CLASS, &mut let_in);
    assert_eq!(interrupted, Some(Removed::Message { items: vec![], notify: 0, started: true }));
    // All of it is known.
    let finished = begin(&mut queues, 10, 1);
    append(&mut queues, finished, [2, 3]);
    queues.finish(&1, CLASS, finished, &mut let_in);
    assert_eq!(queues.pop(&1, CLASS, &mut let_in), Some(2));
    let next = begin(&mut queues, 10, 2);
    append(&mut queues, next, [4]);
    let interrupted = queues.interrupt(&1, CLASS, &mut let_in);
    assert_eq!(interrupted, Some(Removed::Message { items: vec![3], notify: 1, started: true }));
    assert_eq!(queues.interrupt(&1, CLASS, &mut let_in), None, "the next one moves");
    queues.finish(&1, CLASS, next, &mut let_in);
    assert_eq!(all(&mut queues), [4]);
    assert_eq!(queues.interrupt(&1, CLASS, &mut let_in), None, "all of it was popped");
    assert_eq!((queues.held(), queues.has_work(&1), queues.next_deadline()), ((0, 0), false, None));
}

#[test]
fn l3_7_draining_a_peer_takes_a_message_and_all_that_wait_for_it() {
    let mut queues = Small::new(LIMITS);
    let early = room(&mut queues, 10, Traffic::Own);
    let message = begin(&mut queues, 10, 1);
    append(&mut queues, message, [2]);
    queues.fill(early, LATER, 3);
    assert!(matches!(queues.reserve(&1, terms(10, Traffic::Message), || 4), Entry::Waiting(_)));
    assert!(matches!(queues.offer(&1, terms(10, Traffic::Own), 5, || 5), Entry::Waiting(_)));
    let expected = [
        Removed::Message { items: vec![2], notify: 1, started: false },
        Removed::Queued(3),
        Removed::Waiting { item: None, notify: 4 },
        Removed::Waiting { item: Some(5), notify: 5 },
    ];
    assert_eq!(queues.drain(&1), expected);
    assert_eq!((queues.held(), queues.has_work(&1), queues.next_deadline()), ((0, 0), false, None));
    begin(&mut queues, 10, 6);
}

#[derive(Debug, Clone)]
enum Step {
    Offer { bytes: usize, own: bool },
    Ask { bytes: usize, message: bool },
    Fill(u8),
    Release(u8),
    Append,
    Finish,
    GiveUp(u8),
    Pop,
    Cancel(u8),
    Interrupt,
    Expire,
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..40_usize, any::<bool>()).prop_map(|(bytes, own)| Step::Offer { bytes, own }),
        4 => (1..40_usize, any::<bool>()).prop_map(|(bytes, message)| Step::Ask { bytes, message }),
        5 => any::<u8>().prop_map(Step::Fill),
        1 => any::<u8>().prop_map(Step::Release),
        8 => Just(Step::Append),
        2 => Just(Step::Finish),
        1 => any::<u8>().prop_map(Step::GiveUp),
        8 => Just(Step::Pop),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => Just(Step::Interrupt),
        1 => Just(Step::Expire),
        1 => Just(Step::Drain),
    ];
    prop::collection::vec(step, 1..300)
}

/// What one lane should do, kept without queues: what was accepted, in order.
#[derive(Debug, Default)]
struct Naive {
    /// What is to be popped, in order, each with its message.
    queue: Vec<(u32, Option<u64>)>,
    /// This node's own that had room before the open message.
    behind: Vec<u32>,
    open: Option<u64>,
    popped_of: HashSet<u64>,
}

impl Naive {
    fn accept(&mut self, item: u32, own: bool) {
        if own && self.open.is_some() { self.behind.push(item) } else { self.queue.push((item, None)) }
    }

    fn shut(&mut self, name: u64) {
        if self.open == Some(name) {
            self.open = None;
            self.queue.extend(self.behind.drain(..).map(|item| (item, None)));
        }
    }

    /// The items of a message that it still had, which is over.
    fn remove(&mut self, name: u64) -> Vec<u32> {
        let its = self.queue.iter().filter(|(_, of)| *of == Some(name)).map(|(item, _)| *item).collect();
        self.queue.retain(|(_, of)| *of != Some(name));
        self.shut(name);
        its
    }
}

proptest! {
    /// Against a list: items come out in the order of the list, nothing of this node's own between the items of a
    /// message; a message that loses one item by its deadline, by its maker or with its link leaves as one, and exactly
    /// those leave with a link that were popped in part; bounds hold; everything that went in comes out once.
    #[test]
    fn l3_6_messages_never_interleave_and_leave_as_one(steps in steps()) {
        let mut queues = Small::new(LIMITS);
        let (mut next, mut now) = (0_u32, 0_u64);
        let (mut inside, mut gone) = (Vec::new(), Vec::new());
        let mut naive = Naive::default();
        let mut rooms: Vec<(Reserved<u8>, bool)> = Vec::new();
        let mut waiting: Vec<u64> = Vec::new();
        // Whether the ones who wait are own items, forwarded ones, rooms, or messages.
        let mut asked: HashMap<u32, (Traffic, bool)> = HashMap::new();
        let mut messages: Vec<u64> = Vec::new();
        let mut names: HashMap<u32, u64> = HashMap::new();
        let mut out: Vec<(u32, Option<u64>, bool)> = Vec::new();
        let mut forwarded: HashSet<u32> = HashSet::new();
        let mut of: HashMap<u32, u64> = HashMap::new();
        for step in steps {
            let (mut let_in, mut removed) = (Vec::new(), Vec::new());
            next += 1;
            let deadline = Duration::from_secs(now + 15 + u64::from(next % 30));
            match step {
                Step::Offer { bytes, own } => {
                    let traffic = if own { Traffic::Own } else { Traffic::Forwarded };
                    if !own {
                        forwarded.insert(next);
                    }
                    inside.push(next);
                    asked.insert(next, (traffic, true));
                    match queues.offer(&1, Terms { class: CLASS, bytes, deadline, traffic }, next, || next) {
                        Entry::Now(()) => naive.accept(next, own),
                        Entry::Waiting(id) => waiting.push(id),
                        Entry::PeersFull(_) => prop_assert!(false),
                    }
                }
                Step::Ask { bytes, message } => {
                    let traffic = if message { Traffic::Message } else { Traffic::Own };
                    asked.insert(next, (traffic, false));
                    match queues.reserve(&1, Terms { class: CLASS, bytes, deadline, traffic }, || next) {
                        Entry::Now(room) => rooms.push((room, message)),
                        Entry::Waiting(id) => waiting.push(id),
                        Entry::PeersFull(()) => prop_assert!(false),
                    }
                }
                Step::Fill(choice) if !rooms.is_empty() => {
                    let (room, message) = rooms.swap_remove(usize::from(choice) % rooms.len());
                    if message {
                        let name = queues.name();
                        queues.begin(room, name, deadline, next);
                        names.insert(next, name);
                        messages.push(name);
                        prop_assert_eq!(naive.open.replace(name), None, "one at a time");
                    } else {
                        queues.fill(room, deadline, next);
                        inside.push(next);
                        naive.accept(next, true);
                    }
                }
                Step::Release(choice) if !rooms.is_empty() => {
                    let (room, _) = rooms.swap_remove(usize::from(choice) % rooms.len());
                    queues.release(room, &mut let_in);
                }
                Step::Append => {
                    if let Some(name) = naive.open {
                        let free = queues.free(&1, CLASS, name).expect("it is there");
                        let queued = naive.queue.iter().filter(|(_, of)| *of == Some(name)).count();
                        prop_assert!(queued > 0 || free > 0, "one always may");
                        let appended = queues.append(&1, CLASS, name, next);
                        prop_assert_eq!(appended, if free > 0 { Ok(()) } else { Err(next) });
                        if free > 0 {
                            inside.push(next);
                            of.insert(next, name);
                            naive.queue.push((next, Some(name)));
                        }
                    }
                }
                Step::Finish => {
                    if let Some(name) = naive.open {
                        queues.finish(&1, CLASS, name, &mut let_in);
                        naive.shut(name);
                    }
                }
                Step::GiveUp(choice) if !messages.is_empty() => {
                    let name = messages.swap_remove(usize::from(choice) % messages.len());
                    removed.extend(queues.remove(&1, CLASS, name, &mut let_in));
                }
                Step::Pop => {
                    let expected = (!naive.queue.is_empty()).then(|| naive.queue.remove(0));
                    prop_assert_eq!(queues.pop(&1, CLASS, &mut let_in), expected.map(|(item, _)| item));
                    if let Some((item, message)) = expected {
                        naive.popped_of.extend(message);
                        out.push((item, message, forwarded.contains(&item)));
                        gone.push(item);
                    }
                }
                Step::Cancel(choice) if !waiting.is_empty() => {
                    let id = waiting.swap_remove(usize::from(choice) % waiting.len());
                    removed.extend(queues.cancel(&1, CLASS, id, &mut let_in));
                }
                Step::Interrupt => {
                    let partly: Vec<u64> = naive
                        .popped_of
                        .iter()
                        .copied()
                        .filter(|name| naive.open == Some(*name) || naive.queue.iter().any(|(_, of)| *of == Some(*name)))
                        .collect();
                    prop_assert!(partly.len() <= 1);
                    let interrupted = queues.interrupt(&1, CLASS, &mut let_in);
                    let Some(Removed::Message { notify, started: true, .. }) = &interrupted else {
                        prop_assert_eq!(interrupted, None);
                        prop_assert!(partly.is_empty());
                        continue;
                    };
                    prop_assert_eq!(&partly, &[names[notify]]);
                    removed.extend(interrupted);
                }
                Step::Expire => {
                    now += 10;
                    // One by one, as what is let in may expire too.
                    while let Some((_, _, one)) = queues.expire(Duration::from_secs(now), &mut let_in) {
                        removed.push(one);
                    }
                }
                Step::Drain => removed.extend(queues.drain(&1)),
                Step::Fill(_) | Step::Release(_) | Step::GiveUp(_) | Step::Cancel(_) => {}
            }
            // What ends a message lets its followers go, and these may be let in, before or after others are removed:
            // the list is told of removed messages first, as those let in follow what was behind.
            let (over, others): (Vec<_>, Vec<_>) =
                removed.into_iter().partition(|one| matches!(one, Removed::Message { .. }));
            let mut dropped = HashSet::new();
            for one in over {
                let Removed::Message { items, notify, started } = one else { continue };
                let name = names[&notify];
                prop_assert_eq!(started, naive.popped_of.contains(&name));
                prop_assert_eq!(&naive.remove(name), &items, "all of what is left");
                gone.extend(items);
            }
            for one in others {
                match one {
                    Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } => {
                        dropped.insert(item);
                        gone.push(item);
                    }
                    _ => {}
                }
            }
            for LetIn { notify, room } in let_in {
                let (traffic, _) = asked[&notify];
                match room {
                    Some(room) => rooms.push((room, traffic == Traffic::Message)),
                    None => naive.accept(notify, traffic == Traffic::Own),
                }
            }
            naive.queue.retain(|(item, _)| !dropped.contains(item));
            naive.behind.retain(|item| !dropped.contains(item));
            let (items, bytes) = queues.held();
            prop_assert!(items <= LIMITS.lane_items);
            prop_assert!(items <= 1 || bytes <= LIMITS.lane_bytes);
        }
        // Between two items of a message that came out, nothing of this node's own came out.
        for (place, (_, message, _)) in out.iter().enumerate().filter(|(_, (_, message, _))| message.is_some()) {
            let last = out.iter().rposition(|(_, other, _)| other == message).unwrap_or(place);
            for (item, between, forwarded) in &out[place..last] {
                prop_assert!(between == message || *forwarded, "{} stands in message {:?}", item, message);
            }
        }
        for room in rooms {
            let mut let_in = Vec::new();
            queues.release(room.0, &mut let_in);
            for one in let_in.into_iter().filter_map(|one| one.room) {
                queues.release(one, &mut Vec::new());
            }
        }
        for one in queues.drain(&1) {
            match one {
                Removed::Queued(item) | Removed::Waiting { item: Some(item), .. } => gone.push(item),
                Removed::Message { items, .. } => gone.extend(items),
                Removed::Waiting { item: None, .. } => {}
            }
        }
        gone.sort_unstable();
        inside.sort_unstable();
        prop_assert_eq!(gone, inside);
    }
}
