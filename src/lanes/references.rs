//! A link's references, at the end that sends frames: the table, and the control substream that tells it what the
//! receiver holds (law L4.7).
//!
//! **State.** The control substream is not asked for, asked for, open with its unanswered hello or after it, or gone.
//! It is asked for when the first frame that carries a delegation is written on a link whose receiver has answered, so
//! that a node without delegations never opens one.
//!
//! **Failures.** A control substream that cannot be opened, or fails, is not opened again on this link: every delegation
//! goes inline from then on, and the channels go on. One that is never answered changes nothing either: there are no
//! grants. A receiver that says what is no control frame, or more than two for each frame, breaks the protocol.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use futures::{AsyncRead, AsyncWrite};
use libp2p::Stream;

use super::{
    event::Violation,
    framing::{Answer, Answering, Hello},
    report::WriterEnd,
};
use crate::{
    clock::Clock,
    identity::{Delegation, Slot},
    link::references::{
        BadControl, ControlAhead, Controls, FrameName, INLINE_FRAMES, Now, SENDER_BOUND, SenderTable, Terms, Told,
        Write,
    },
    message::Payload,
};

/// How many times control frames are read before the channels have their turn.
const READS_PER_ROUND: usize = 4;

/// What writing by reference saves, in bytes a slot.
const SAVED: u64 = Delegation::LEN as u64 - 32;

pub(super) struct References {
    clock: Arc<dyn Clock>,
    table: SenderTable,
    control: Control,
}

enum Control {
    Unasked,
    /// A frame carried a delegation.
    Wanted,
    Asked,
    Open(Box<Open>),
    Gone,
}

struct Open {
    stream: Stream,
    out: BytesMut,
    unflushed: bool,
    answering: Option<Answering>,
    controls: Controls,
}

/// Why a control substream is done.
enum Done {
    Gone(String),
    End(WriterEnd),
}

impl References {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let table = SenderTable::new(Terms::default(), SENDER_BOUND, INLINE_FRAMES);
        Self { clock, table, control: Control::Unasked }
    }

    /// Chooses how the slots of a payload are written (law L4.1). To be called just before it is.
    pub(super) fn choose(&mut self, payload: &mut Payload, frame: FrameName) {
        let slot = |slot: &Slot| {
            let delegation = slot.delegation()?;
            Some((delegation.digest(), delegation.issued_at().saturating_add(delegation.ttl())))
        };
        let (hop, origin) = (&payload.proof.slot, &payload.transaction.proof.slot);
        let carried = slot(hop);
        // On a direct link the origin is the hop: one digest does for both.
        let slots = [carried, if hop == origin { carried } else { slot(origin) }];
        if slots == [None; 2] {
            self.table.wrote_plain();
            return;
        }
        if matches!(self.control, Control::Unasked) {
            self.control = Control::Wanted;
        }
        let writes = self.table.write(frame, slots, now(&*self.clock));
        let targets = [&mut payload.proof.slot, &mut payload.transaction.proof.slot];
        for ((target, carried), how) in targets.into_iter().zip(slots).zip(writes) {
            if let (Some((digest, _)), Write::Reference) = (carried, how) {
                *target = Slot::Digest(digest);
                metrics::counter!("admit_one_link_bytes_saved_total").increment(SAVED);
            }
        }
    }

    /// A channel that frames were written on ended; the link goes on.
    pub(super) fn channel_ended(&mut self, channel: u8) {
        self.table.channel_ended(channel);
    }

    /// Asks for the control substream by `ask`, if one is wanted.
    pub(super) fn ask(&mut self, ask: impl FnOnce() -> bool) -> bool {
        let asked = matches!(self.control, Control::Wanted) && ask();
        if asked {
            self.control = Control::Asked;
        }
        asked
    }

    /// The control substream was opened, or could not be.
    pub(super) fn negotiated(&mut self, stream: Option<Stream>, hello: Hello) {
        if !matches!(self.control, Control::Asked) {
            return;
        }
        match stream {
            Some(stream) => {
                let out = BytesMut::from(hello.encode().as_slice());
                let (answering, controls) = (Some(Answering::new()), Controls::new());
                self.control = Control::Open(Box::new(Open { stream, out, unflushed: false, answering, controls }));
            }
            None => self.give_up("it was not opened"),
        }
    }

    /// Writes the hello, and takes what the receiver says. Whether anything came.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Result<bool, WriterEnd> {
        let Control::Open(open) = &mut self.control else { return Ok(false) };
        match open.write(context).and_then(|()| open.read(&mut self.table, &*self.clock, context)) {
            Ok(moved) => Ok(moved),
            Err(Done::Gone(why)) => {
                self.give_up(&why);
                Ok(true)
            }
            Err(Done::End(end)) => Err(end),
        }
    }

    /// From now on everything goes inline: what the table holds could be disclaimed, and nobody would hear of it.
    fn give_up(&mut self, why: &str) {
        tracing::debug!(why, "a link has no references any more");
        self.control = Control::Gone;
        self.table = SenderTable::new(Terms::default(), 0, 0);
    }
}

fn now(clock: &dyn Clock) -> Now {
    Now { at: clock.monotonic(), wall: clock.wall() }
}

impl Open {
    fn write(&mut self, context: &mut Context<'_>) -> Result<(), Done> {
        while !self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.out) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(Done::gone(&io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.out.advance(written),
                Poll::Ready(Err(error)) => return Err(Done::gone(&error)),
            }
            self.unflushed = true;
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(Done::gone(&error)),
            }
        }
        Ok(())
    }

    fn read(&mut self, table: &mut SenderTable, clock: &dyn Clock, context: &mut Context<'_>) -> Result<bool, Done> {
        let (mut buffer, mut moved) = ([0; 512], false);
        for _ in 0..READS_PER_ROUND {
            let read = match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Err(Done::gone(&io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(error)) => return Err(Done::gone(&error)),
            };
            moved = true;
            let mut bytes = buffer.get(..read).unwrap_or_default();
            if let Some(answering) = &mut self.answering {
                match answering.next(&mut bytes) {
                    None => continue,
                    Some(Ok(Answer::Control)) => self.answering = None,
                    Some(Ok(Answer::Superseded { greatest })) => {
                        return Err(Done::End(WriterEnd::Superseded { greatest }));
                    }
                    Some(Ok(Answer::AlreadyOpen)) => {
                        return Err(Done::Gone("the receiver has another control substream of this link".into()));
                    }
                    Some(Ok(Answer::Accepted { credit })) => {
                        return Err(Done::bad_answer(Answer::ACCEPTED, u64::from(credit)));
                    }
                    Some(Ok(Answer::NoSlot)) => return Err(Done::bad_answer(Answer::NO_SLOT, 0)),
                    Some(Err(bad)) => return Err(Done::bad_answer(bad.kind, bad.value)),
                }
            }
            while let Some(control) = self.controls.next(&mut bytes) {
                let control = control.map_err(|BadControl { kind }| Done::violated(Violation::BadControl { kind }))?;
                let told = table.take(&control, now(clock)).map_err(|ControlAhead { count, written }| {
                    Done::violated(Violation::ControlAhead { count, written })
                })?;
                tracing::trace!(?control, ?told, "the receiver speaks of a delegation");
                if told == Told::Disclaimed {
                    tracing::debug!("a delegation goes inline again, since the receiver does not hold it");
                }
            }
        }
        Ok(moved)
    }
}

impl Done {
    fn gone(error: &io::Error) -> Self {
        Done::Gone(error.to_string())
    }

    const fn violated(violation: Violation) -> Self {
        Done::End(WriterEnd::Violation(violation))
    }

    const fn bad_answer(kind: u8, value: u64) -> Self {
        Self::violated(Violation::BadAnswer { channel: Hello::CONTROL, kind, value })
    }
}
