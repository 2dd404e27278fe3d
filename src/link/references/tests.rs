//! Both ends of a link and what lies between them, in virtual time: control frames that come late, twice, out of order
//! or never, clocks that began at other instants, tables too small for what is sent.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::identity::DelegationDigest;

pub(super) const TERMS: Terms =
    Terms { lease: Duration::from_secs(60), delivery: Duration::from_secs(10), sigma: 3_000 };
pub(super) const NEVER: WallMs = WallMs::MAX;

pub(super) fn digest(of: u8) -> DelegationDigest {
    DelegationDigest([of; 32])
}

pub(super) fn at(seconds: u64) -> Now {
    Now { at: Duration::from_secs(seconds), wall: 1_000_000 + seconds * 1_000 }
}

/// A frame with one delegation in its origin's slot.
#[derive(Debug, Clone, Copy)]
struct Frame {
    name: FrameName,
    of: u8,
    how: Write,
    written_at: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Write {
        of: u8,
        channel: u8,
    },
    /// Reads the oldest frame of a channel.
    Read(u8),
    /// Verifies any frame that was read and waits.
    Verify(u8),
    /// Delivers any control frame ever sent, which stays to be delivered again.
    Tell(u8),
    Reopen(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..12_u64).prop_map(Step::Pass),
        6 => (0..4_u8, 0..2_u8).prop_map(|(of, channel)| Step::Write { of, channel }),
        6 => (0..2_u8).prop_map(Step::Read),
        5 => any::<u8>().prop_map(Step::Verify),
        6 => any::<u8>().prop_map(Step::Tell),
        1 => (0..2_u8).prop_map(Step::Reopen),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Law L4.3, with the sender's end, the receiver's end and everything that may happen between them: a reference
    /// whose frame is read less than two delivery bounds after it was written resolves, and to the right delegation.
    #[test]
    fn l4_3_an_honest_reference_whose_way_takes_less_than_two_delivery_bounds_never_misses(
        (sender_bound, receiver_bound) in (1..4_usize, 1..4_usize),
        (sender_began, receiver_began) in (0..1_000_u64, 0..1_000_u64),
        steps in steps(),
    ) {
        let at = |began: u64, now: u64| Now { at: Duration::from_secs(began + now), wall: 5_000 };
        let mut sender = SenderTable::new(TERMS, sender_bound, 4);
        let mut receiver = ReceiverTable::new(TERMS, receiver_bound);
        let (mut now, mut numbers) = (0_u64, [0_u64; 2]);
        let mut on_the_way: [Vec<Frame>; 2] = Default::default();
        let mut read_numbers = [0_u64; 2];
        let mut waiting: Vec<(Frame, u64, FrameName)> = Vec::new();
        let mut controls: Vec<Control> = Vec::new();
        let (mut hits, mut misses) = (HashMap::<u8, u64>::new(), 0_u64);
        for step in steps {
            match step {
                Step::Pass(seconds) => now += seconds,
                Step::Write { of, channel } => {
                    let place = usize::from(channel);
                    let name = FrameName { channel, number: numbers[place] };
                    numbers[place] += 1;
                    let slots = [None, Some((digest(of), NEVER))];
                    let [_, how] = sender.write(name, slots, at(sender_began, now));
                    on_the_way[place].push(Frame { name, of, how, written_at: now });
                }
                Step::Read(channel) => {
                    let place = usize::from(channel);
                    if on_the_way[place].is_empty() {
                        continue;
                    }
                    let frame = on_the_way[place].remove(0);
                    let name = FrameName { channel, number: read_numbers[place] };
                    read_numbers[place] += 1;
                    prop_assert_eq!(name, frame.name);
                    match frame.how {
                        Write::Inline => waiting.push((frame, now, name)),
                        Write::Reference => match receiver.resolve(&digest(frame.of), at(receiver_began, now)) {
                            Some(of) => {
                                prop_assert_eq!(of, frame.of);
                                *hits.entry(of).or_default() += 1;
                            }
                            None => {
                                let took = now - frame.written_at;
                                prop_assert!(took >= 20, "missed after {} s", took);
                                misses += 1;
                                controls.push(Control::Disclaim { digest: digest(frame.of) });
                            }
                        },
                    }
                }
                Step::Verify(choice) => {
                    if waiting.is_empty() {
                        continue;
                    }
                    let (frame, read_at, name) = waiting.remove(usize::from(choice) % waiting.len());
                    let read_at = Duration::from_secs(receiver_began + read_at);
                    let of = frame.of;
                    if receiver.verified(&digest(of), || of, NEVER, read_at, at(receiver_began, now)) {
                        controls.push(Control::Grant { digest: digest(of), frame: name });
                    }
                }
                Step::Tell(choice) => {
                    if !controls.is_empty() {
                        let control = controls[usize::from(choice) % controls.len()];
                        // Delivered more often than an honest receiver can, it is not looked at.
                        let _ = sender.take(&control, at(sender_began, now));
                    }
                }
                Step::Reopen(channel) => {
                    // What was on its way is lost, and both ends number from 0 again.
                    let place = usize::from(channel);
                    on_the_way[place].clear();
                    (numbers[place], read_numbers[place]) = (0, 0);
                    sender.channel_ended(channel);
                }
            }
            prop_assert!(sender.len() <= sender_bound && sender.notes() <= 4);
            prop_assert!(receiver.len() <= receiver_bound);
        }
        prop_assert!(misses == 0 || now >= 20);
    }
}

#[test]
fn l4_3_the_first_frame_goes_inline_and_what_follows_its_grant_by_reference() {
    let mut sender = SenderTable::new(Terms::default(), SENDER_BOUND, INLINE_FRAMES);
    let mut receiver = ReceiverTable::new(Terms::default(), RECEIVER_BOUND);
    let now = |seconds| Now { at: Duration::from_secs(seconds), wall: 1_000 * seconds };
    let slots = [None, Some((digest(1), NEVER))];
    let mut inline = Vec::new();
    for second in 0..600 {
        let name = FrameName { channel: 0, number: second };
        match sender.write(name, slots, now(second)) {
            [Write::Inline, Write::Inline] => {
                inline.push(second);
                assert!(receiver.verified(&digest(1), || 1, NEVER, now(second).at, now(second)));
                let grant = Control::Grant { digest: digest(1), frame: name };
                assert_eq!(sender.take(&grant, now(second)), Ok(Told::Leased));
            }
            _ => assert_eq!(receiver.resolve(&digest(1), now(second)), Some(1)),
        }
    }
    assert_eq!(inline, (0..600).step_by(40).collect::<Vec<_>>(), "renewed two delivery bounds before each end");
}
