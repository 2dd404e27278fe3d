//! The bytes of a channel, both ways. `docs/wire-lanes.md` has them field by field.
//!
//! Forward half: one [`Hello`], then frames, each behind its length. Reverse half: one [`Answer`], then credit counts, or
//! control frames on a control substream, which has no frames.
//!
//! **State.** [`Frames`] is between frames with up to 3 bytes of a length, or inside a body that it keeps, or inside
//! one that it discards. [`Replies`] holds the bytes of one unfinished answer or count.
//!
//! **Transitions.** Both take bytes as they come, cut anywhere, and give one item at a time. A frame over the limit is
//! reported once, when its length is known, and its body is passed over without being held, so that the next frame is
//! found where it begins.
//!
//! **Failures.** A frame of no bytes, an answer of an unknown kind and one that advertises no credit or accepts something else are reported to
//! the caller, who ends the link. Nothing else is malformed at this level. Memory: one frame of at most the limit.

use bytes::{BufMut, Bytes, BytesMut};

use super::credit::GREATEST_CREDIT;
use crate::link::Channel;

/// What the opener of a channel sends first (law L3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) channel: Channel,
    pub(crate) link: u64,
}

/// The receiver's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The channel is open, with this credit.
    Accepted { credit: u8 },
    /// The opener has a link of this number here, greater than or on another connection than the one it opens.
    Superseded { greatest: u64 },
    /// This channel of the link is open already.
    AlreadyOpen,
    /// The link's control substream is open.
    Control,
    /// The receiver has no slot for the connection now (law L10.3).
    NoSlot,
}

/// What comes back on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Answer),
    Credit(u64),
}

/// A first reply that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadAnswer {
    pub(crate) kind: u8,
    pub(crate) value: u64,
}

/// What a channel brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framed {
    Frame(Bytes),
    Oversize { length: usize },
    Empty,
}

const LENGTH: usize = 4;
const SUPERSEDED: u8 = 1;
const ALREADY_OPEN: u8 = 2;

impl Hello {
    /// Encoded length in bytes.
    pub(crate) const LEN: usize = 10;

    /// What a control substream names as its channel (law L4.7).
    pub(crate) const CONTROL: u8 = u8::MAX;

    /// The hello of the control substream of link `link`, whose opener has a pool of `pool` channels.
    pub(crate) const fn control(pool: u8, link: u64) -> Self {
        Self { channel: Channel { index: Self::CONTROL, pool }, link }
    }

    pub(crate) const fn is_control(self) -> bool {
        self.channel.index == Self::CONTROL
    }

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let [a, b, c, d, e, f, g, h] = self.link.to_be_bytes();
        [self.channel.index, self.channel.pool, a, b, c, d, e, f, g, h]
    }

    /// Reads a hello. Whether its channel exists is for the caller to judge.
    pub(crate) fn decode([index, pool, link @ ..]: [u8; Self::LEN]) -> Self {
        Self { channel: Channel { index, pool }, link: u64::from_be_bytes(link) }
    }
}

impl Answer {
    /// Encoded length in bytes.
    pub(crate) const LEN: usize = 9;

    /// The kind that accepts a channel.
    pub(crate) const ACCEPTED: u8 = 0;

    /// The kind that accepts a control substream.
    pub(crate) const CONTROL: u8 = 3;

    /// The kind that says that there is no slot.
    pub(crate) const NO_SLOT: u8 = 4;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let (kind, value) = match self {
            Answer::Accepted { credit } => (Self::ACCEPTED, u64::from(credit)),
            Answer::Superseded { greatest } => (SUPERSEDED, greatest),
            Answer::AlreadyOpen => (ALREADY_OPEN, 0),
            Answer::Control => (Self::CONTROL, 0),
            Answer::NoSlot => (Self::NO_SLOT, 0),
        };
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        [kind, a, b, c, d, e, f, g, h]
    }

    fn decode([kind, value @ ..]: [u8; Self::LEN]) -> Result<Self, BadAnswer> {
        let value = u64::from_be_bytes(value);
        match (kind, u8::try_from(value)) {
            (Self::ACCEPTED, Ok(credit @ 1..=GREATEST_CREDIT)) => Ok(Answer::Accepted { credit }),
            (SUPERSEDED, _) => Ok(Answer::Superseded { greatest: value }),
            (ALREADY_OPEN, Ok(0)) => Ok(Answer::AlreadyOpen),
            (Self::CONTROL, Ok(0)) => Ok(Answer::Control),
            (Self::NO_SLOT, Ok(0)) => Ok(Answer::NoSlot),
            _ => Err(BadAnswer { kind, value }),
        }
    }
}

/// Appends one frame behind its length.
pub(crate) fn put_frame(frame: &Bytes, out: &mut BytesMut) {
    // A frame is bounded by the frame limit, far below 4 GiB.
    out.put_u32(u32::try_from(frame.len()).unwrap_or(u32::MAX));
    out.put_slice(frame);
}

/// Finds frames in the bytes of a channel.
#[derive(Debug)]
pub(crate) struct Frames {
    limit: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Length { bytes: [u8; LENGTH], have: usize },
    Body { body: BytesMut, missing: usize },
    Discard { missing: usize },
}

const BETWEEN: State = State::Length { bytes: [0; LENGTH], have: 0 };

impl Frames {
    /// Frames of at most `limit` bytes.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, state: BETWEEN }
    }

    /// Takes bytes off the head of `input` until it has one item or none are left.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Framed> {
        loop {
            match &mut self.state {
                State::Length { bytes, have } => {
                    let (&byte, rest) = input.split_first()?;
                    *input = rest;
                    if let Some(place) = bytes.get_mut(*have) {
                        *place = byte;
                    }
                    *have += 1;
                    if *have == LENGTH {
                        let length = usize::try_from(u32::from_be_bytes(*bytes)).unwrap_or(usize::MAX);
                        if length == 0 {
                            self.state = BETWEEN;
                            return Some(Framed::Empty);
                        }
                        if length > self.limit {
                            self.state = State::Discard { missing: length };
                            return Some(Framed::Oversize { length });
                        }
                        self.state = State::Body { body: BytesMut::with_capacity(length), missing: length };
                    }
                }
                State::Body { body, missing } => {
                    let taken = take(input, missing)?;
                    body.put_slice(taken);
                    if *missing == 0 {
                        let frame = std::mem::take(body).freeze();
                        self.state = BETWEEN;
                        return Some(Framed::Frame(frame));
                    }
                }
                State::Discard { missing } => {
                    take(input, missing)?;
                    if *missing == 0 {
                        self.state = BETWEEN;
                    }
                }
            }
        }
    }
}

/// The next bytes of `input`, at most `missing`, which it lowers; `None` where there are none.
fn take<'a>(input: &mut &'a [u8], missing: &mut usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(*missing).unwrap_or((input, &[]));
    *input = rest;
    *missing -= taken.len();
    if taken.is_empty() { None } else { Some(taken) }
}

/// Finds the answer in the bytes that come back.
#[derive(Debug)]
pub(crate) struct Answering {
    bytes: [u8; Answer::LEN],
    have: usize,
}

impl Answering {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; Answer::LEN], have: 0 }
    }

    /// Takes bytes off the head of `input` until it has the answer or none are left.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Result<Answer, BadAnswer>> {
        fill(&mut self.bytes, &mut self.have, input)?;
        Some(Answer::decode(self.bytes))
    }
}

/// Finds the answer, then counts, in the bytes that come back on a channel.
#[derive(Debug)]
pub(crate) struct Replies {
    answering: Option<Answering>,
    bytes: [u8; 8],
    have: usize,
}

impl Replies {
    pub(crate) const fn new() -> Self {
        Self { answering: Some(Answering::new()), bytes: [0; 8], have: 0 }
    }

    /// Takes bytes off the head of `input` until it has one reply or none are left.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Result<Reply, BadAnswer>> {
        if let Some(answering) = &mut self.answering {
            let answer = answering.next(input)?;
            self.answering = None;
            return Some(answer.map(Reply::Answer));
        }
        fill(&mut self.bytes, &mut self.have, input)?;
        Some(Ok(Reply::Credit(u64::from_be_bytes(self.bytes))))
    }
}

/// Fills `bytes`, of which it has `have`, from the head of `input`; `None` while some are missing.
fn fill(bytes: &mut [u8], have: &mut usize, input: &mut &[u8]) -> Option<()> {
    while *have < bytes.len() {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        if let Some(place) = bytes.get_mut(*have) {
            *place = byte;
        }
        *have += 1;
    }
    *have = 0;
    Some(())
}

/// The fuzz targets of a channel's two halves, and of how it is opened.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: [crate::fuzzing::Target; 3] = [
    crate::fuzzing::Target {
        name: "hello",
        run: |data| {
            let Ok(bytes) = <[u8; Hello::LEN]>::try_from(data) else { return false };
            let hello = Hello::decode(bytes);
            assert_eq!(hello.encode(), bytes);
            if hello.is_control() {
                assert_eq!(Hello::control(hello.channel.pool, hello.link), hello);
            }
            true
        },
        seeds: || {
            let channel = Hello { channel: Channel { index: 2, pool: 3 }, link: 77 };
            [channel, Hello::control(4, 77)].map(|hello| hello.encode().to_vec()).into()
        },
    },
    crate::fuzzing::Target {
        name: "frames",
        run: |data| {
            const LIMIT: usize = 64;
            let found = crate::fuzzing::cut_anywhere(data, || Frames::new(LIMIT), Frames::next);
            // Up to the first that is passed over, frames are written as they were read.
            let mut written = BytesMut::new();
            for framed in &found {
                match framed {
                    Framed::Frame(frame) => {
                        assert!((1..=LIMIT).contains(&frame.len()));
                        put_frame(frame, &mut written);
                    }
                    Framed::Empty => written.put_u32(0),
                    Framed::Oversize { length } => {
                        assert!(*length > LIMIT);
                        break;
                    }
                }
            }
            assert!(data.get(8..).unwrap_or(data).starts_with(&written));
            found.iter().any(|framed| matches!(framed, Framed::Frame(_)))
        },
        seeds: || {
            let mut bytes = BytesMut::from(&[2, 3, 5, 7, 11, 13, 17, 19][..]);
            for length in [0, 1, 64, 65, 10] {
                put_frame(&vec![9; length].into(), &mut bytes);
            }
            vec![bytes.to_vec(), bytes[..40].to_vec()]
        },
    },
    crate::fuzzing::Target {
        name: "replies",
        run: |data| {
            let found = crate::fuzzing::cut_anywhere(data, Replies::new, Replies::next);
            let bytes = data.get(8..).unwrap_or(data);
            let mut written = Vec::new();
            for (place, reply) in found.iter().enumerate() {
                match reply {
                    Ok(Reply::Answer(answer)) => {
                        assert_eq!(place, 0, "only the first reply is an answer");
                        assert!(
                            !matches!(answer, Answer::Accepted { credit } if !(1..=GREATEST_CREDIT).contains(credit))
                        );
                        written.extend(answer.encode());
                    }
                    Ok(Reply::Credit(count)) => written.extend(count.to_be_bytes()),
                    Err(BadAnswer { kind, value }) => {
                        assert_eq!(place, 0);
                        written.push(*kind);
                        written.extend(value.to_be_bytes());
                    }
                }
            }
            assert!(bytes.starts_with(&written) && bytes.len() - written.len() < Answer::LEN);
            found.first().is_some_and(Result::is_ok)
        },
        seeds: || {
            let answers = [
                Answer::Accepted { credit: 16 },
                Answer::Superseded { greatest: 9 },
                Answer::AlreadyOpen,
                Answer::Control,
                Answer::NoSlot,
            ];
            let bytes = |answer: Answer| [&[3; 8], &answer.encode()[..], &77_u64.to_be_bytes()].concat();
            let mut seeds: Vec<_> = answers.map(bytes).into();
            seeds.push([&[3; 8], &[0; 9][..]].concat());
            seeds
        },
    },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 40;

    fn read(bytes: &[u8], cuts: &[usize]) -> Vec<Framed> {
        let (mut frames, mut found, mut rest) = (Frames::new(LIMIT), Vec::new(), bytes);
        for cut in cuts.iter().copied().chain([usize::MAX]) {
            let (mut piece, after) = rest.split_at(cut.min(rest.len()));
            rest = after;
            while let Some(framed) = frames.next(&mut piece) {
                found.push(framed);
            }
            assert!(piece.is_empty());
        }
        found
    }

    #[test]
    fn hello_and_answers_read_back() {
        let hello = Hello { channel: Channel { index: 2, pool: 3 }, link: 0x0102_0304_0506_0708 };
        assert_eq!(hello.encode(), [2, 3, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Hello::decode(hello.encode()), hello);
        for answer in [
            Answer::Accepted { credit: 16 },
            Answer::Superseded { greatest: u64::MAX },
            Answer::AlreadyOpen,
            Answer::Control,
            Answer::NoSlot,
        ] {
            let mut replies = Replies::new();
            assert_eq!(replies.next(&mut answer.encode().as_slice()), Some(Ok(Reply::Answer(answer))));
            assert_eq!(replies.next(&mut 77_u64.to_be_bytes().as_slice()), Some(Ok(Reply::Credit(77))));
        }
    }

    #[test]
    fn an_answer_of_unknown_kind_or_without_credit_is_bad() {
        for (kind, value) in [(0, 0), (0, 33), (0, 256 + 16), (2, 1), (3, 1), (4, 1), (5, 0)] {
            let mut bytes = vec![kind];
            bytes.extend(u64::to_be_bytes(value));
            assert_eq!(Replies::new().next(&mut bytes.as_slice()), Some(Err(BadAnswer { kind, value })));
        }
    }

    #[test]
    fn l2_7_an_oversize_frame_is_passed_over_and_the_next_one_found() {
        let mut bytes = BytesMut::new();
        put_frame(&Bytes::from(vec![1; LIMIT + 1]), &mut bytes);
        put_frame(&Bytes::from(vec![2; LIMIT]), &mut bytes);
        assert_eq!(
            read(&bytes, &[]),
            [Framed::Oversize { length: LIMIT + 1 }, Framed::Frame(Bytes::from(vec![2; LIMIT]))]
        );
    }

    #[test]
    fn a_length_near_4_gib_allocates_nothing() {
        let mut frames = Frames::new(LIMIT);
        let framed = frames.next(&mut [0xff; 100].as_slice());
        assert_eq!(framed, Some(Framed::Oversize { length: u32::MAX as usize }));
        assert!(matches!(frames.state, State::Discard { .. }));
    }

    proptest! {
        #[test]
        fn frames_are_found_however_the_bytes_are_cut(
            lengths in prop::collection::vec(0..2 * LIMIT, 0..20),
            cuts in prop::collection::vec(0..60_usize, 0..40),
        ) {
            let mut bytes = BytesMut::new();
            let mut expected = Vec::new();
            for (place, length) in lengths.into_iter().enumerate() {
                let frame = Bytes::from(vec![place as u8; length]);
                put_frame(&frame, &mut bytes);
                expected.push(match length {
                    0 => Framed::Empty,
                    length if length > LIMIT => Framed::Oversize { length },
                    _ => Framed::Frame(frame),
                });
            }
            prop_assert_eq!(read(&bytes, &cuts), expected);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic_and_within_one_frame_of_memory(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            cuts in prop::collection::vec(0..60_usize, 0..20),
        ) {
            for framed in read(&bytes, &cuts) {
                if let Framed::Frame(frame) = framed {
                    prop_assert!(frame.len() <= LIMIT);
                }
            }
        }
    }
}
