//! One link outward: a task that takes frames off its peer's lanes, writes them, and reads the credits that come back.
//!
//! **State.** One entry a channel of the pool: closed (perhaps until a pause is over), being opened by the handler, or
//! open with its unanswered hello or its credit, its bytes to write, and its sends in flight, oldest first. Beside them
//! the link's references, which choose how the slots of a frame are written when it is (law L4.1).
//!
//! **Transitions.** Every turn, in this order and until nothing moves: what the handler opened or could not; answers
//! and credits; frames off the queues in the scheduler's order, for channels whose window, credit and buffer leave
//! room; a request for each closed channel that a frame waits for; writes and flushes. Credits are read whether or not
//! writes go through, so that two full sides cannot stop each other.
//!
//! **Failures.** A channel that fails loses its own sends in flight and is opened again after a pause, doubling; its
//! queue stays. They are lost although the link goes on, since nothing can settle them any more: their credit would have
//! come on that substream alone, its successor counts anew, and the receiver admits nothing of the old one after the new
//! one is open. So it is with one that the receiver has no slot for, which has none in flight. The link ends when its
//! connection does, when the peer does not speak the protocol, when the receiver
//! has a greater link, when the receiver breaks the protocol, and at shutdown; its sends in flight are lost, and what
//! is queued stays queued (law L3.8). It ends too when its connection does not answer (see `silence`) and the behaviour
//! has another. The behaviour hears of the end last of all. A send in flight that its receiver
//! does not credit while its transaction lives, or a forwarded one within its delivery bound, is lost as expired; its
//! place in the window stays taken until it is credited after all (law L3.7).

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use futures::{AsyncRead, AsyncWrite, task::AtomicWaker};
use libp2p::{PeerId, Stream};
use tokio::sync::mpsc;

use super::{
    activity::{Activity, Busy},
    backoff::Backoff,
    credit::{CreditAhead, Spending},
    event::Violation,
    framing::{Answer, Hello, Replies, Reply, put_frame},
    handler::QUESTION,
    meters::{CreditWaits, credit_waits},
    references::References,
    report::{Report, WriterEnd},
    scheduler::{LANES, Ready, Scheduler},
    settlement::{LossReason, Settle},
    shared::{Item, Picker, Shared},
    silence::{Silence, Standing},
};
use crate::{
    BoxFuture,
    link::{Channel, references::FrameName},
    message::{Class, FrameTooLarge},
    task::sleep,
};

/// How long a receiver may take to answer a hello. Longer than most things, since a receiver answers once it serves.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// No more frames are taken for a channel with this many bytes to write: they wait in their lanes instead, where they
/// can still expire unwritten and be overtaken by control.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// How many times a task goes round before it lets others run.
const ROUNDS_PER_TURN: usize = 16;

/// How many times a channel's answers and credits are read before the others have their turn.
const READS_PER_ROUND: usize = 8;

/// What the handler says of a channel that was asked for.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) channel: u8,
    pub(crate) stream: Result<Stream, Unopened>,
}

/// Why a substream was not opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    Unsupported,
    /// In all the time that it had.
    Unanswered,
    Failed(String),
}

/// The task's ends of what it shares with the handler.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) requests: mpsc::Sender<u8>,
    pub(crate) negotiated: mpsc::Receiver<Negotiated>,
    pub(crate) activity: Arc<Activity>,
    /// Shared with the behaviour.
    pub(crate) standing: Arc<Standing>,
}

pub(crate) struct Writer {
    peer: PeerId,
    number: u64,
    shared: Arc<Shared>,
    waker: Arc<AtomicWaker>,
    reports: mpsc::Sender<Report>,
    wires: Wires,
    busy: Option<Busy>,
    scheduler: Scheduler,
    channels: Vec<Link>,
    references: References,
    opened: bool,
    announced: bool,
    silence: Silence,
    /// Set to when it is to be asked about.
    listening: Option<BoxFuture<'static, ()>>,
    /// Whether the receiver had no slot for a channel, and whether that is still to be said.
    refused: bool,
    refusal_untold: bool,
    taken: Vec<Item>,
    waits: CreditWaits,
    /// Set no later than when the first of the sends in flight is past its life.
    overdue: Option<(Duration, BoxFuture<'static, ()>)>,
}

/// One channel of the pool.
struct Link {
    index: u8,
    backoff: Backoff,
    state: State,
}

enum State {
    Closed { pause: Option<BoxFuture<'static, ()>> },
    Asked,
    Open(Box<Open>),
}

struct Open {
    stream: Stream,
    replies: Replies,
    /// The hello's time; gone once it is answered.
    unanswered: Option<BoxFuture<'static, ()>>,
    credit: Option<Spending>,
    /// How many frames were put into `out` ever.
    frames: u64,
    out: BytesMut,
    unflushed: bool,
    /// Bytes put into `out` ever, and bytes of it ever written.
    put: u64,
    written: u64,
    in_flight: VecDeque<InFlight>,
}

struct InFlight {
    /// Where its first byte stands in the channel.
    starts_at: u64,
    /// When its life is over, on the clock's monotonic time.
    until: Duration,
    /// Gone once it was lost as expired.
    settle: Option<Settle>,
}

/// Why a channel ended. The link goes on.
enum ChannelEnd {
    Io(io::Error),
    AlreadyOpen,
    NoSlot,
    Unanswered,
}

/// What the behaviour is to hear.
enum Said {
    Opened,
    /// The receiver has no slot.
    Refused,
    Silent,
    End(WriterEnd),
}

enum Step {
    Moved(bool),
    Failed(ChannelEnd),
    End(WriterEnd),
}

impl Writer {
    pub(crate) fn new(
        peer: PeerId,
        number: u64,
        shared: Arc<Shared>,
        waker: Arc<AtomicWaker>,
        reports: mpsc::Sender<Report>,
        wires: Wires,
    ) -> Self {
        let (first, longest) = (shared.config.first_pause, shared.config.longest_pause);
        let closed =
            |index| Link { index, backoff: Backoff::new(first, longest), state: State::Closed { pause: None } };
        let channels = (0..shared.config.pool).map(closed).collect();
        let silence = Silence::new(shared.config.silence, shared.clock.monotonic());
        // It was started because there is work.
        let busy = Some(wires.activity.busy());
        let references = References::new(Arc::clone(&shared.clock));
        Self {
            peer,
            number,
            shared,
            waker,
            reports,
            wires,
            busy,
            scheduler: Scheduler::new(),
            channels,
            references,
            opened: false,
            announced: false,
            silence,
            listening: None,
            refused: false,
            refusal_untold: false,
            taken: Vec::new(),
            waits: CreditWaits::default(),
            overdue: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let (peer, number) = (self.peer, self.number);
        let end = loop {
            match std::future::poll_fn(|context| self.poll(context)).await {
                Said::Opened => {
                    self.announced = true;
                    self.report(Report::LinkOpened { peer, number }).await;
                }
                Said::Refused => self.report(Report::LinkRefused { peer, number }).await,
                Said::Silent => self.report(Report::LinkSilent { peer, number }).await,
                Said::End(end) => break end,
            }
        };
        let reason = if end == WriterEnd::Shutdown { LossReason::Shutdown } else { LossReason::LinkClosed };
        for channel in self.channels.drain(..) {
            if let State::Open(open) = channel.state {
                open.lose(reason);
            }
        }
        self.shared.interrupt(&self.peer, |_| true, reason);
        self.busy = None;
        self.report(Report::LinkEnded { peer, number, end }).await;
    }

    async fn report(&mut self, report: Report) {
        // Without a behaviour nobody is left to hear of it.
        let _ = self.reports.send(report).await;
    }

    /// Runs until the link ends, or something of it is to be told.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Said> {
        self.waker.register(context.waker());
        for _ in 0..ROUNDS_PER_TURN {
            let mut moved = match self.negotiated(context) {
                Ok(moved) => moved,
                Err(said) => return Poll::Ready(said),
            };
            for place in 0..self.channels.len() {
                match self.read(place, context) {
                    Step::Moved(false) => {}
                    Step::Moved(true) => {
                        moved = true;
                        self.heard();
                    }
                    Step::Failed(why) => {
                        if let ChannelEnd::NoSlot | ChannelEnd::AlreadyOpen = why {
                            self.heard();
                        }
                        self.failed(place, &why);
                    }
                    Step::End(end) => return Poll::Ready(Said::End(end)),
                }
            }
            if self.opened && !self.announced {
                return Poll::Ready(Said::Opened);
            }
            if std::mem::take(&mut self.refusal_untold) {
                return Poll::Ready(Said::Refused);
            }
            if self.wires.standing.is_to_leave() && self.silence.is_silent() {
                return Poll::Ready(Said::End(WriterEnd::Silent));
            }
            match self.references.poll(context) {
                Ok(told) => moved |= told,
                Err(end) => return Poll::Ready(Said::End(end)),
            }
            self.expire(context);
            match self.take(context) {
                Ok(took) => moved |= took,
                Err(end) => return Poll::Ready(Said::End(end)),
            }
            self.listen(context);
            for place in 0..self.channels.len() {
                match self.write(place, context) {
                    Poll::Ready(Ok(wrote)) => moved |= wrote,
                    Poll::Ready(Err(error)) => self.failed(place, &ChannelEnd::Io(error)),
                    Poll::Pending => {}
                }
            }
            if !moved {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes what the handler says.
    fn negotiated(&mut self, context: &mut Context<'_>) -> Result<bool, Said> {
        let mut moved = false;
        while let Poll::Ready(negotiated) = self.wires.negotiated.poll_recv(context) {
            let Some(Negotiated { channel, stream }) = negotiated else { return Err(Said::End(WriterEnd::Closed)) };
            moved = true;
            let now = self.shared.clock.monotonic();
            if channel == QUESTION {
                self.listening = None;
                match stream {
                    Ok(_) | Err(Unopened::Unsupported) => {
                        self.silence.answered(now);
                        self.wires.standing.set_silent(false);
                    }
                    Err(Unopened::Failed(_)) => self.silence.failed(now),
                    Err(Unopened::Unanswered) if self.silence.unanswered(now) => return Err(self.silent()),
                    Err(Unopened::Unanswered) => {}
                }
                continue;
            }
            let (pool, place) = (self.shared.config.pool, usize::from(channel));
            if channel == Hello::CONTROL {
                self.references.negotiated(stream.ok(), Hello::control(pool, self.number));
                continue;
            }
            let Some(link) = self.channels.get_mut(place).filter(|link| matches!(link.state, State::Asked)) else {
                continue;
            };
            let failed = match stream {
                Ok(stream) => {
                    let hello = Hello { channel: Channel { index: channel, pool }, link: self.number };
                    link.state = State::Open(Box::new(Open::new(stream, hello)));
                    self.heard();
                    continue;
                }
                Err(Unopened::Unsupported) => return Err(Said::End(WriterEnd::Unsupported)),
                Err(Unopened::Failed(reason)) => Some(reason),
                Err(Unopened::Unanswered) => None,
            };
            tracing::debug!(peer = %self.peer, channel, reason = failed, "a channel was not opened");
            link.state = State::Closed { pause: Some(sleep(link.backoff.failed())) };
            if failed.is_none() && self.silence.unopened(now) {
                return Err(self.silent());
            }
        }
        Ok(moved)
    }

    fn heard(&mut self) {
        self.silence.heard(self.shared.clock.monotonic());
        self.wires.standing.set_silent(false);
    }

    fn silent(&self) -> Said {
        tracing::debug!(peer = %self.peer, "a connection does not answer");
        self.wires.standing.set_silent(true);
        Said::Silent
    }

    /// Asks whether the connection answers, where it said nothing for long while there is work.
    fn listen(&mut self, context: &mut Context<'_>) {
        if self.busy.is_none() {
            self.listening = None;
            return;
        }
        loop {
            let Some(due) = self.silence.due(self.shared.clock.monotonic()) else { return };
            if due.is_zero() {
                // There is room for it beside the channels' requests, unless the handler is gone.
                if self.wires.requests.try_send(QUESTION).is_ok() {
                    self.silence.asked();
                    self.listening = None;
                }
                return;
            }
            let listening = self.listening.get_or_insert_with(|| sleep(due));
            if listening.as_mut().poll(context).is_pending() {
                return;
            }
            self.listening = None;
        }
    }

    /// Reads answers and credits.
    fn read(&mut self, place: usize, context: &mut Context<'_>) -> Step {
        let Some(Link { index, state: State::Open(open), backoff }) = self.channels.get_mut(place) else {
            return Step::Moved(false);
        };
        let (channel, mut moved) = (*index, false);
        let mut buffer = [0; 256];
        // Bounded, so that a peer that sends credits without end holds up neither the other channels nor the writes.
        for _ in 0..READS_PER_ROUND {
            let read = match Pin::new(&mut open.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Step::Failed(ChannelEnd::Io(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(error)) => return Step::Failed(ChannelEnd::Io(error)),
            };
            moved = true;
            let mut bytes = buffer.get(..read).unwrap_or_default();
            while let Some(reply) = open.replies.next(&mut bytes) {
                match reply {
                    Ok(Reply::Answer(Answer::Accepted { credit })) => {
                        open.unanswered = None;
                        open.credit = Some(Spending::new(credit, self.shared.config.window));
                        backoff.succeeded();
                        self.opened = true;
                    }
                    Ok(Reply::Answer(Answer::Superseded { greatest })) => {
                        return Step::End(WriterEnd::Superseded { greatest });
                    }
                    Ok(Reply::Answer(Answer::NoSlot)) => {
                        metrics::counter!("admit_one_lane_no_slot_answers_total").increment(1);
                        self.refusal_untold |= !std::mem::replace(&mut self.refused, true);
                        return Step::Failed(ChannelEnd::NoSlot);
                    }
                    Ok(Reply::Answer(Answer::AlreadyOpen)) => return Step::Failed(ChannelEnd::AlreadyOpen),
                    // It is no control substream.
                    Ok(Reply::Answer(Answer::Control)) => {
                        let violation = Violation::BadAnswer { channel, kind: Answer::CONTROL, value: 0 };
                        return Step::End(WriterEnd::Violation(violation));
                    }
                    Ok(Reply::Credit(count)) => match open.credited(count) {
                        Ok(()) => {}
                        Err(CreditAhead { count, written }) => {
                            let violation = Violation::CreditAhead { channel, count, written };
                            return Step::End(WriterEnd::Violation(violation));
                        }
                    },
                    Err(bad) => {
                        let violation = Violation::BadAnswer { channel, kind: bad.kind, value: bad.value };
                        return Step::End(WriterEnd::Violation(violation));
                    }
                }
            }
        }
        if let Some(unanswered) = &mut open.unanswered
            && unanswered.as_mut().poll(context).is_ready()
        {
            return Step::Failed(ChannelEnd::Unanswered);
        }
        Step::Moved(moved)
    }

    /// Takes frames off the queues, and asks for the channels that others wait for.
    fn take(&mut self, context: &mut Context<'_>) -> Result<bool, WriterEnd> {
        let Self { scheduler, channels, shared, peer, taken, .. } = self;
        let mut picking = Picking { scheduler, channels, planned: [0; LANES] };
        let lanes = shared.take(peer, &mut picking, taken);
        if lanes.closed {
            return Err(WriterEnd::Shutdown);
        }
        self.meter(lanes.ready);
        let Self { channels, references, shared, taken, overdue, .. } = self;
        let (mut moved, mut broken) = (!taken.is_empty(), None);
        // Its first poll is in the next round, which follows since something moved.
        let now = if moved { shared.clock.monotonic() } else { Duration::ZERO };
        for item in taken.drain(..) {
            let place = usize::from(item.class.lane()) % channels.len();
            let until = shared.until(&item, now);
            if overdue.as_ref().is_none_or(|(at, _)| until < *at) {
                *overdue = Some((until, sleep(until.saturating_sub(now))));
            }
            if let Some(Link { state: State::Open(open), index, .. }) = channels.get_mut(place)
                && let Err(too_large) = open.put(item, until, *index, references)
            {
                broken = Some((place, too_large));
            }
        }
        // Like a channel's, this request has room unless the handler is gone.
        moved |= self.references.ask(|| self.wires.requests.try_send(Hello::CONTROL).is_ok());
        let channels = &mut self.channels;
        for (lane, _) in lanes.ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let place = lane % channels.len();
            let Some(link) = channels.get_mut(place) else { continue };
            if let State::Closed { pause } = &mut link.state {
                let paused = pause.as_mut().is_some_and(|pause| pause.as_mut().poll(context).is_pending());
                // One request a channel is on its way at most, so there is room for it, unless the handler is gone.
                if !paused && self.wires.requests.try_send(link.index).is_ok() {
                    link.state = State::Asked;
                    moved = true;
                }
            }
        }
        // No frame over the limit is ever queued; if one were, its credit would be out of step.
        if let Some((place, too_large)) = broken {
            self.failed(place, &ChannelEnd::Io(io::Error::other(too_large)));
        }
        let in_flight = self.channels.iter().any(|link| matches!(&link.state, State::Open(open) if open.is_busy()));
        if !(lanes.work || in_flight) {
            self.busy = None;
        } else if self.busy.is_none() {
            self.busy = Some(self.wires.activity.busy());
            // What was not said while there was nothing to say is no silence.
            self.silence.heard(self.shared.clock.monotonic());
        }
        Ok(moved)
    }

    /// Meters the lanes that wait for credit, after frames were taken and with `ready` still there.
    fn meter(&mut self, ready: Ready) {
        let held_up: Ready = std::array::from_fn(|lane| {
            let channel = self.channels.get(lane % self.channels.len()).map(|link| &link.state);
            let spent = |open: &Open| open.credit.as_ref().is_some_and(|credit| !credit.may_write());
            ready.get(lane) == Some(&true) && matches!(channel, Some(State::Open(open)) if spent(open))
        });
        if self.waits.is_empty() && !held_up.contains(&true) {
            return;
        }
        let took = std::array::from_fn(|lane| self.taken.iter().any(|item| usize::from(item.class.lane()) == lane));
        credit_waits(self.waits.turn(held_up, took, self.shared.clock.monotonic()));
    }

    /// Settles what is in flight past its life.
    fn expire(&mut self, context: &mut Context<'_>) {
        while let Some((_, timer)) = &mut self.overdue
            && timer.as_mut().poll(context).is_ready()
        {
            let now = self.shared.clock.monotonic();
            let open = self.channels.iter_mut().filter_map(|link| match &mut link.state {
                State::Open(open) => open.expire(now),
                State::Closed { .. } | State::Asked => None,
            });
            self.overdue = open.min().map(|at| (at, sleep(at.saturating_sub(now))));
        }
    }

    fn write(&mut self, place: usize, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match self.channels.get_mut(place) {
            Some(Link { state: State::Open(open), .. }) => open.write(context),
            _ => Poll::Pending,
        }
    }

    fn failed(&mut self, place: usize, why: &ChannelEnd) {
        let Some(link) = self.channels.get_mut(place) else { return };
        let reason = match why {
            ChannelEnd::Io(error) => error.to_string(),
            ChannelEnd::NoSlot => "the receiver has no slot for the connection".into(),
            ChannelEnd::AlreadyOpen => "the receiver has not seen the earlier one end".into(),
            ChannelEnd::Unanswered => "the receiver does not answer".into(),
        };
        tracing::debug!(peer = %self.peer, channel = link.index, reason, "a channel ended");
        let pause = link.backoff.failed();
        if let State::Open(open) = std::mem::replace(&mut link.state, State::Closed { pause: Some(sleep(pause)) }) {
            if open.frames > 0 {
                self.references.channel_ended(link.index);
            }
            open.lose(LossReason::LinkClosed);
            let channels = self.channels.len();
            self.shared.interrupt(&self.peer, |lane| lane % channels == place, LossReason::LinkClosed);
        }
        // The pause has to be polled to wake this task.
        self.waker.wake();
    }
}

/// Picks lanes whose channel has room.
struct Picking<'a> {
    scheduler: &'a mut Scheduler,
    channels: &'a mut [Link],
    /// Bytes of frames picked in this turn, by channel.
    planned: [usize; LANES],
}

impl Picking<'_> {
    fn may_write(&self, lane: usize) -> bool {
        let place = lane % self.channels.len();
        let planned = self.planned.get(place).copied().unwrap_or_default();
        match self.channels.get(place) {
            Some(Link { state: State::Open(open), .. }) => {
                open.credit.as_ref().is_some_and(Spending::may_write) && open.out.len() + planned < BUFFER_BYTES
            }
            _ => false,
        }
    }
}

impl Picker for Picking<'_> {
    fn pick(&mut self, mut ready: Ready) -> Option<Class> {
        for (lane, ready) in ready.iter_mut().enumerate() {
            *ready = *ready && self.may_write(lane);
        }
        self.scheduler.pick(ready).and_then(Class::from_lane)
    }

    fn picked(&mut self, item: &Item) {
        let place = usize::from(item.class.lane()) % self.channels.len();
        if let Some(planned) = self.planned.get_mut(place) {
            *planned += item.bytes;
        }
        if let Some(Link { state: State::Open(open), .. }) = self.channels.get_mut(place)
            && let Some(credit) = &mut open.credit
        {
            credit.wrote();
        }
    }
}

impl Open {
    fn new(stream: Stream, hello: Hello) -> Self {
        Self {
            stream,
            replies: Replies::new(),
            unanswered: Some(sleep(ANSWER_WITHIN)),
            credit: None,
            frames: 0,
            out: BytesMut::from(hello.encode().as_slice()),
            unflushed: false,
            put: Hello::LEN as u64,
            written: 0,
            in_flight: VecDeque::new(),
        }
    }

    fn is_busy(&self) -> bool {
        !self.out.is_empty() || self.in_flight.iter().any(|one| one.settle.is_some())
    }

    /// Encodes a frame behind those that are to be written.
    fn put(
        &mut self,
        mut item: Item,
        until: Duration,
        channel: u8,
        references: &mut References,
    ) -> Result<(), FrameTooLarge> {
        item.settle.leaves_its_lane();
        references.choose(&mut item.payload, FrameName { channel, number: self.frames });
        self.frames += 1;
        let frame = item.payload.encode(usize::MAX)?;
        let before = self.out.len();
        put_frame(&frame, &mut self.out);
        self.in_flight.push_back(InFlight { starts_at: self.put, until, settle: Some(item.settle) });
        self.put += (self.out.len() - before) as u64;
        Ok(())
    }

    /// Settles what a credit covers, oldest first.
    fn credited(&mut self, count: u64) -> Result<(), CreditAhead> {
        let Some(credit) = &mut self.credit else { return Ok(()) };
        for _ in 0..credit.credit(count)? {
            if let Some(settle) = self.in_flight.pop_front().and_then(|settled| settled.settle) {
                settle.taken_over();
            }
        }
        Ok(())
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut wrote = false;
        while !self.out.is_empty() {
            let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, &self.out)? else { break };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
            self.written += written as u64;
            (wrote, self.unflushed) = (true, true);
        }
        if self.unflushed && self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_flush(context)? {
                Poll::Ready(()) => self.unflushed = false,
                Poll::Pending => {}
            }
        }
        if wrote { Poll::Ready(Ok(true)) } else { Poll::Pending }
    }

    /// Settles what is past its life at `now` as lost, and says when the next will be.
    fn expire(&mut self, now: Duration) -> Option<Duration> {
        for one in self.in_flight.iter_mut().filter(|one| one.until <= now) {
            // What stands in the buffer is still written: credit counts it.
            one.lose(u64::MAX, LossReason::Expired);
        }
        self.in_flight.iter().filter(|one| one.settle.is_some()).map(|one| one.until).min()
    }

    /// Settles everything in flight as lost.
    fn lose(mut self, reason: LossReason) {
        self.in_flight.iter_mut().for_each(|one| one.lose(self.written, reason));
    }
}

impl InFlight {
    /// Settles it as lost, unless it was before, in a channel that `written` bytes were written of.
    fn lose(&mut self, written: u64, reason: LossReason) {
        let Some(mut settle) = self.settle.take() else { return };
        if self.starts_at < written {
            settle.being_written();
        }
        settle.lost(reason);
    }
}
