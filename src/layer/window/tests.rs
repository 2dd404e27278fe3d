use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Remembers everything that was ever admitted, and answers from that alone.
#[derive(Default)]
struct Naive {
    admitted: HashMap<(Incarnation, u64), TransactionDigest>,
}

impl Naive {
    fn judge(&mut self, incarnation: Incarnation, sequence: u64, digest: TransactionDigest) -> Answer {
        let Some(kept) = self.admitted.keys().map(|(incarnation, _)| *incarnation).max() else {
            self.admitted.insert((incarnation, sequence), digest);
            return Answer::Accepted(Verdict::First);
        };
        let high = self.admitted.keys().filter(|(of, _)| *of == kept).map(|(_, sequence)| *sequence).max().unwrap();
        // In 128 bits, where nothing wraps and nothing saturates.
        let lowest = u64::try_from((i128::from(high) - 31).max(0)).unwrap();
        let verdict = match incarnation.cmp(&kept) {
            std::cmp::Ordering::Greater => Verdict::Advance,
            std::cmp::Ordering::Less => return Answer::Refused(WindowRefusal::Stale { incarnation: kept, lowest }),
            std::cmp::Ordering::Equal if sequence > high => Verdict::Advance,
            std::cmp::Ordering::Equal if sequence < lowest => {
                return Answer::Refused(WindowRefusal::Stale { incarnation: kept, lowest });
            }
            std::cmp::Ordering::Equal => match self.admitted.get(&(incarnation, sequence)) {
                None => Verdict::Late,
                Some(same) if *same == digest => return Answer::Refused(WindowRefusal::Replay),
                Some(other) => return Answer::Refused(WindowRefusal::Fork { kept: *other, refused: digest }),
            },
        };
        self.admitted.insert((incarnation, sequence), digest);
        Answer::Accepted(verdict)
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Accepted(Verdict),
    Refused(WindowRefusal),
}

fn digest(byte: u8) -> TransactionDigest {
    TransactionDigest([byte; 32])
}

/// A sequence relative to what was presented before, so that walks stay at the window's edges.
#[derive(Debug, Clone, Copy)]
enum Step {
    By(i128),
    To(u64),
}

impl Step {
    fn from(self, last: u64) -> u64 {
        match self {
            Step::To(sequence) => sequence,
            Step::By(by) => u64::try_from((i128::from(last) + by).clamp(0, i128::from(u64::MAX))).unwrap(),
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let jumps = [1, 2, 30, 31, 32, 33, 1 << 63].map(|jump: u64| i128::from(jump));
    prop_oneof![
        8 => (-40_i128..=3).prop_map(Step::By),
        4 => proptest::sample::select(jumps.to_vec()).prop_map(Step::By),
        2 => proptest::sample::select(jumps.map(|jump| -jump).to_vec()).prop_map(Step::By),
        1 => proptest::sample::select(vec![0, 1, 31, 32, u64::MAX - 32, u64::MAX - 31, u64::MAX]).prop_map(Step::To),
    ]
}

fn walks() -> impl Strategy<Value = Vec<(u64, Step, u8)>> {
    // Mostly one incarnation, with changes both ways; three contents, so that replays and forks are common.
    let incarnation = prop_oneof![12 => Just(7_u64), 1 => Just(6), 1 => Just(8), 1 => Just(u64::MAX), 1 => Just(0)];
    proptest::collection::vec((incarnation, steps(), 0_u8..3), 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn l5_3_a_window_answers_as_if_it_remembered_everything(start in any::<u64>(), walk in walks()) {
        let (mut naive, mut state, mut last) = (Naive::default(), None::<Window>, start);
        for (incarnation, step, content) in walk {
            let (incarnation, sequence) = (Incarnation(incarnation), step.from(last));
            let before = state.clone();
            let answer = match observe(state.as_ref(), incarnation, sequence, digest(content)) {
                Ok((verdict, next)) => {
                    state = Some(next);
                    Answer::Accepted(verdict)
                }
                Err(refusal) => {
                    prop_assert_eq!(&state, &before);
                    Answer::Refused(refusal)
                }
            };
            prop_assert_eq!(answer, naive.judge(incarnation, sequence, digest(content)));
            last = sequence;
            // What it keeps is exactly what was admitted in its range, and its fields rebuild it.
            let window = state.as_ref().unwrap();
            for sequence in window.lowest()..=window.high() {
                prop_assert_eq!(
                    window.slot(sequence).as_ref(),
                    naive.admitted.get(&(window.incarnation(), sequence))
                );
            }
            let rebuilt = Window::from_parts(
                window.incarnation(), window.high(), window.filled(), window.digests().copied(),
            );
            prop_assert_eq!(rebuilt.as_ref(), Some(window));
        }
    }
}

fn admit(state: &mut Option<Window>, incarnation: u64, sequence: u64, content: u8) -> Answer {
    match observe(state.as_ref(), Incarnation(incarnation), sequence, digest(content)) {
        Ok((verdict, next)) => {
            *state = Some(next);
            Answer::Accepted(verdict)
        }
        Err(refusal) => Answer::Refused(refusal),
    }
}

#[test]
fn l5_2_the_exact_left_edge_is_kept_and_one_below_is_stale() {
    let mut state = None;
    assert_eq!(admit(&mut state, 1, 100, 1), Answer::Accepted(Verdict::First));
    assert_eq!(admit(&mut state, 1, 131, 2), Answer::Accepted(Verdict::Advance));
    assert_eq!(admit(&mut state, 1, 100, 1), Answer::Refused(WindowRefusal::Replay));
    let stale = WindowRefusal::Stale { incarnation: Incarnation(1), lowest: 100 };
    assert_eq!(admit(&mut state, 1, 99, 9), Answer::Refused(stale));
    assert_eq!(admit(&mut state, 1, 132, 3), Answer::Accepted(Verdict::Advance));
    let stale = WindowRefusal::Stale { incarnation: Incarnation(1), lowest: 101 };
    assert_eq!(admit(&mut state, 1, 100, 1), Answer::Refused(stale));
}

#[test]
fn l5_3_a_jump_forgets_exactly_what_falls_out_of_the_window() {
    for jump in [31_u64, 32, 33, 1 << 63] {
        let mut state = None;
        admit(&mut state, 1, 5, 1);
        assert_eq!(admit(&mut state, 1, 5 + jump, 2), Answer::Accepted(Verdict::Advance));
        let expected = if jump == 31 {
            WindowRefusal::Replay
        } else {
            WindowRefusal::Stale { incarnation: Incarnation(1), lowest: 5 + jump - 31 }
        };
        assert_eq!(admit(&mut state, 1, 5, 1), Answer::Refused(expected), "a jump of {jump}");
        // The slot that 5 shared with 37 is empty for a late one, not taken by what fell out.
        assert_eq!(admit(&mut state, 1, 5 + jump - 1, 7), Answer::Accepted(Verdict::Late), "a jump of {jump}");
    }
}

#[test]
fn l5_3_both_ends_of_the_numbering_are_sequences_like_any_other() {
    let mut state = None;
    assert_eq!(admit(&mut state, 1, 0, 1), Answer::Accepted(Verdict::First));
    assert_eq!(admit(&mut state, 1, 0, 1), Answer::Refused(WindowRefusal::Replay));
    assert_eq!(
        admit(&mut state, 1, 0, 2),
        Answer::Refused(WindowRefusal::Fork { kept: digest(1), refused: digest(2) })
    );
    assert_eq!(admit(&mut state, 1, u64::MAX, 3), Answer::Accepted(Verdict::Advance));
    assert_eq!(admit(&mut state, 1, u64::MAX, 3), Answer::Refused(WindowRefusal::Replay));
    assert_eq!(admit(&mut state, 1, u64::MAX - 31, 4), Answer::Accepted(Verdict::Late));
    let stale = WindowRefusal::Stale { incarnation: Incarnation(1), lowest: u64::MAX - 31 };
    assert_eq!(admit(&mut state, 1, u64::MAX - 32, 5), Answer::Refused(stale));
}

#[test]
fn l8_4_a_higher_incarnation_advances_onto_an_empty_window_and_a_lower_one_is_stale() {
    let mut state = None;
    admit(&mut state, 5, 1_000, 1);
    assert_eq!(admit(&mut state, 6, 3, 2), Answer::Accepted(Verdict::Advance));
    assert_eq!(admit(&mut state, 6, 2, 3), Answer::Accepted(Verdict::Late));
    let stale = WindowRefusal::Stale { incarnation: Incarnation(6), lowest: 0 };
    assert_eq!(admit(&mut state, 5, 1_000, 1), Answer::Refused(stale));
    assert_eq!(admit(&mut state, 5, 1_001, 9), Answer::Refused(stale));
}

#[test]
fn a_window_that_no_admission_reaches_is_not_built() {
    let one = || [digest(1)];
    assert!(Window::from_parts(Incarnation(1), 9, 1, one()).is_some());
    assert!(Window::from_parts(Incarnation(1), 9, 2, one()).is_none(), "the slot of high is empty");
    assert!(Window::from_parts(Incarnation(1), 0, 0b11, [digest(1); 2]).is_none(), "a sequence below zero");
    assert!(Window::from_parts(Incarnation(1), 9, 0b11, one()).is_none(), "a digest is missing");
    assert!(Window::from_parts(Incarnation(1), 9, 1, [digest(1); 2]).is_none(), "a digest too many");
}
