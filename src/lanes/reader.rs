//! One inbound channel: a task that reads its frames and writes its credits.
//!
//! It is started by the handler with the substream, reads the hello, and has the registry judge it. It then waits until
//! whoever serves takes the channel, and only then answers, so that nothing is sent into a channel that nobody reads.
//! From then on it reads frames as fast as they come (the credit bounds how many) and returns the count of frames taken
//! over whenever it advanced; a count that cannot be written yet is overtaken by the next one.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, task::AtomicWaker};
use libp2p::{PeerId, Stream, swarm::ConnectionId};
use tokio::sync::{mpsc, watch};

use super::{
    activity::{Activity, Busy},
    config::Config,
    control,
    credit::Granting,
    event::{Direction, Event, LinkEnd, Violation},
    framing::{Answer, Framed, Frames, Hello},
    incoming::Inbound,
    refusals::Refusals,
    registry::{Opened, Registry, Token, Unopened},
    report::Report,
    slot::Slot,
};
use crate::{
    clock::Clock,
    link::{
        Arrival, CreditGuard, Feedback, LinkId,
        references::{FrameName, ReceiverEnd},
    },
    task::within,
};

/// How long an opener may take for its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How much is read at a time.
pub(crate) const READ_BYTES: usize = 16 * 1024;

/// How many times a task reads before it lets others run.
const READS_PER_TURN: usize = 32;

/// What all inbound channels of a node share.
#[derive(Debug)]
pub(crate) struct Receiving {
    config: Config,
    clock: Arc<dyn Clock>,
    registry: Mutex<Registry<PeerId, LinkId, Weak<Channel>, Arc<ReceiverEnd>>>,
    incoming: mpsc::Sender<Inbound>,
    reports: mpsc::Sender<Report>,
}

/// Where an inbound channel comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) peer: PeerId,
    pub(crate) connection: ConnectionId,
    pub(crate) link: LinkId,
}

/// One inbound channel, as its task, its frames' guards and its taker share it.
#[derive(Debug)]
pub(crate) struct Channel {
    granting: Mutex<Granting>,
    task: AtomicWaker,
    /// Held while a frame of it takes its place in the order of admissions, and when it is superseded.
    gate: Mutex<()>,
    /// A greater link took over, or the channel was opened again: what was not admitted yet is dropped (law L3.8).
    superseded: AtomicBool,
    /// Its taker dropped it: what is left in it is not taken over.
    dropped: AtomicBool,
    activity: Arc<Activity>,
    refusals: Arc<Refusals>,
    /// Its place among the connection's channels, which shares the connection's slot.
    place: Arc<Slot>,
}

/// What a connection's handler shares with its channels.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) activity: Arc<Activity>,
    pub(crate) refusals: Arc<Refusals>,
    /// Counts the channels, each as long as it or a frame of it is there.
    pub(crate) place: Arc<Slot>,
    /// Fails when the connection's handler is gone.
    pub(crate) gone: watch::Receiver<()>,
}

impl Channel {
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// Another channel takes its place: from now on nothing more of it is admitted, nor credited.
    fn supersede(&self) {
        let admitting = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.superseded.store(true, Ordering::Release);
        drop(admitting);
        self.task.wake();
    }

    /// Ends the channel at the count that it has: what its taker leaves in it is not taken over.
    pub(crate) fn drop_by_taker(&self) {
        let granting = self.granting();
        self.dropped.store(true, Ordering::Release);
        drop(granting);
        self.task.wake();
    }

    fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    fn granting(&self) -> MutexGuard<'_, Granting> {
        self.granting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self, frame: u64) {
        let mut granting = self.granting();
        let advanced = !self.is_dropped() && !self.is_superseded() && granting.taken(frame).is_some();
        drop(granting);
        if advanced {
            self.task.wake();
        }
    }
}

impl Feedback for Channel {
    fn unless_superseded(&self, admit: &mut dyn FnMut()) -> bool {
        let _admitting = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let goes = !self.is_superseded();
        if goes {
            admit();
        } else {
            metrics::counter!("admit_one_lane_superseded_frames_total").increment(1);
        }
        goes
    }

    fn refused(&self, reason: &'static str) {
        self.refusals.refused(reason);
    }
}

impl Token for Weak<Channel> {
    fn is_over(&self) -> bool {
        self.strong_count() == 0
    }
}

impl Receiving {
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        incoming: mpsc::Sender<Inbound>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self { config, clock, registry: Mutex::new(Registry::new()), incoming, reports }
    }

    /// Whether anybody takes channels. While nobody does, the protocol is not offered, so that an opener learns it
    /// at once.
    pub(crate) fn is_open(&self) -> bool {
        !self.incoming.is_closed()
    }

    pub(crate) fn connected(&self, peer: &PeerId) {
        self.registry().connected(peer);
    }

    pub(crate) fn disconnected(&self, peer: &PeerId) {
        self.registry().disconnected(peer);
    }

    /// A connection of `peer` closed: the references of a link on it are let go, although its number is kept (law L4.2).
    pub(crate) fn closed_connection(&self, peer: &PeerId, link: LinkId) {
        let references = self.registry().shared_on(peer, link);
        if let Some(references) = references {
            references.end();
        }
    }

    /// The protocol was broken on a connection, which is being closed for it.
    pub(crate) fn broken(&self, peer: &PeerId, link: LinkId, violation: Violation) {
        self.registry().broken(peer, link, violation);
    }

    /// What a connection's channels count their refusals by.
    pub(crate) fn refusals(&self, peer: PeerId, link: LinkId) -> Arc<Refusals> {
        Arc::new(Refusals::new(peer, link, Arc::clone(&self.clock), self.reports.clone()))
    }

    /// Runs one channel to its end, which is no later than its connection's: `gone` fails when that is dropped. A
    /// stream alone might keep its connection alive for ever.
    pub(crate) async fn serve(self: Arc<Self>, stream: Stream, source: Source, connection: Connection) {
        let Connection { activity, refusals, place, gone } = connection;
        let opening = activity.busy();
        let channel = Arc::new(Channel {
            granting: Mutex::new(Granting::new(self.config.credit)),
            task: AtomicWaker::new(),
            gate: Mutex::new(()),
            superseded: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            activity,
            refusals,
            place,
        });
        if let Err(violation) = self.run(stream, source, Arc::clone(&channel), opening, gone).await {
            self.report(Report::Violation { peer: source.peer, connection: source.connection, violation }).await;
        }
        // Until what it broke is heard of, it counts as a substream of its connection: else a peer could have any number
        // of them wait here while the swarm is held up.
        drop(channel);
    }

    async fn run(
        &self,
        mut stream: Stream,
        source: Source,
        channel: Arc<Channel>,
        opening: Busy,
        mut gone: watch::Receiver<()>,
    ) -> Result<(), Violation> {
        let mut hello = [0; Hello::LEN];
        match within(HELLO_WITHIN, stream.read_exact(&mut hello)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::debug!(peer = %source.peer, %error, "a channel ended before its hello");
                return Ok(());
            }
            None => {
                tracing::debug!(peer = %source.peer, "a channel without a hello");
                return Ok(());
            }
        }
        let hello = Hello::decode(hello);
        if hello.is_control() {
            return self.control(stream, source, hello, opening, gone).await;
        }
        let index = hello.channel.index;
        let opened = channel.place.open(self.config.links.as_deref(), (source.peer, source.link), || {
            self.open(source, hello, Arc::downgrade(&channel))
        });
        match opened {
            Ok(Opened { first, superseded, shared: references, replaced, .. }) => {
                let mut registered = Registered { receiving: self, source, hello, closed: false };
                replaced.into_iter().for_each(|references| references.end());
                if let Some(link) = superseded {
                    self.closed(source.peer, link, LinkEnd::Superseded).await;
                }
                if first {
                    let event = Event::Opened { peer: source.peer, link: source.link, direction: Direction::Inward };
                    self.report(Report::Event(event)).await;
                }
                let ended = tokio::select! {
                    _ = gone.changed() => Ok(()),
                    ended = self.carry(stream, source, &channel, references, hello, opening) => ended,
                };
                if let Some(reason) = registered.close(ended.err()) {
                    self.closed(source.peer, source.link, reason).await;
                }
                ended
            }
            Err(Unopened::Superseded { greatest }) => {
                self.answer(&mut stream, Answer::Superseded { greatest }).await;
                Ok(())
            }
            Err(Unopened::AlreadyOpen) => {
                self.answer(&mut stream, Answer::AlreadyOpen).await;
                Err(Violation::AlreadyOpen { channel: index })
            }
            Err(Unopened::NoSlot(error)) => {
                tracing::debug!(peer = %source.peer, %error, "a channel is refused");
                self.answer(&mut stream, Answer::NoSlot).await;
                if channel.place.is_first_refusal() {
                    let event = Event::NoSlot { peer: source.peer, link: source.link, direction: Direction::Inward };
                    self.report(Report::Event(event)).await;
                }
                Ok(())
            }
            Err(Unopened::UnknownChannel) => Err(Violation::UnknownChannel { index, pool: hello.channel.pool }),
        }
    }

    /// Opens a channel and ends those that it replaces, before any other channel can be opened: else frames of a new link
    /// could be admitted before the old one's channels were ended, and frames of these after them (law L3.8).
    fn open(
        &self,
        source: Source,
        hello: Hello,
        token: Weak<Channel>,
    ) -> Result<Opened<LinkId, Weak<Channel>, Arc<ReceiverEnd>>, Unopened> {
        let fresh = || Arc::new(ReceiverEnd::new(Arc::clone(&self.clock)));
        let mut registry = self.registry();
        let opened = registry.open(&source.peer, source.link, hello, token, fresh)?;
        // Whatever goes with the last hold on one goes after the lock.
        let ended: Vec<_> = opened.ended.iter().filter_map(Weak::upgrade).collect();
        ended.iter().for_each(|old| old.supersede());
        drop(registry);
        Ok(opened)
    }

    /// Answers a control substream, and writes what there is to say of delegations until it ends.
    async fn control(
        &self,
        mut stream: Stream,
        source: Source,
        hello: Hello,
        opening: Busy,
        mut gone: watch::Receiver<()>,
    ) -> Result<(), Violation> {
        let opened = self.registry().control(&source.peer, source.link, hello);
        let references = match opened {
            Ok(references) => references,
            Err(Unopened::Superseded { greatest }) => {
                self.answer(&mut stream, Answer::Superseded { greatest }).await;
                return Ok(());
            }
            Err(Unopened::AlreadyOpen) => {
                self.answer(&mut stream, Answer::AlreadyOpen).await;
                return Err(Violation::AlreadyOpen { channel: Hello::CONTROL });
            }
            // No lane, so it takes no slot.
            Err(Unopened::UnknownChannel | Unopened::NoSlot(_)) => {
                return Err(Violation::UnknownChannel { index: Hello::CONTROL, pool: hello.channel.pool });
            }
        };
        self.answer(&mut stream, Answer::Control).await;
        drop(opening);
        tokio::select! {
            _ = gone.changed() => {}
            why = control::carry(stream, &references) => {
                tracing::debug!(peer = %source.peer, %why, "a control substream ended");
            }
        }
        references.mute();
        Ok(())
    }

    /// Hands the channel over, answers, and carries its frames until it ends.
    async fn carry(
        &self,
        mut stream: Stream,
        source: Source,
        channel: &Arc<Channel>,
        references: Arc<ReceiverEnd>,
        hello: Hello,
        opening: Busy,
    ) -> Result<(), Violation> {
        let credit = self.config.credit;
        // As many places as there is credit: an honest peer never fills it, and one over its credit is ended.
        let (arrivals, taker) = mpsc::channel(usize::from(credit));
        let inbound = Inbound::new(source.peer, source.link, hello.channel, credit, Arc::clone(channel), taker);
        // Until it is taken the opener has no answer and sends nothing.
        if self.incoming.send(inbound).await.is_err() {
            return Ok(());
        }
        self.answer(&mut stream, Answer::Accepted { credit }).await;
        drop(opening);
        let mut carrying = Carrying {
            stream,
            source,
            hello,
            channel: Arc::clone(channel),
            references,
            arrivals,
            frames: Frames::new(self.config.frame_limit),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            count: 0,
            out: [0; 8],
            unwritten: 0,
            unflushed: false,
            credit,
            clock: &*self.clock,
        };
        std::future::poll_fn(|context| carrying.poll(context)).await
    }

    /// An answer that cannot be written ends the channel at its next read.
    async fn answer(&self, stream: &mut Stream, answer: Answer) {
        let written = async {
            stream.write_all(&answer.encode()).await?;
            stream.flush().await
        };
        if let Some(Err(error)) = within(HELLO_WITHIN, written).await {
            tracing::debug!(%error, "a channel ended before its answer");
        }
    }

    async fn closed(&self, peer: PeerId, link: LinkId, reason: LinkEnd) {
        self.report(Report::Event(Event::Closed { peer, link, direction: Direction::Inward, reason })).await;
    }

    async fn report(&self, report: Report) {
        // Without a behaviour nobody is left to hear of it.
        let _ = self.reports.send(report).await;
    }

    fn registry(&self) -> MutexGuard<'_, Registry<PeerId, LinkId, Weak<Channel>, Arc<ReceiverEnd>>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel's entry in the registry, removed also when its task is dropped.
struct Registered<'a> {
    receiving: &'a Receiving,
    source: Source,
    hello: Hello,
    /// Its successor may have its entry by now.
    closed: bool,
}

impl Registered<'_> {
    fn close(&mut self, violation: Option<Violation>) -> Option<LinkEnd> {
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        self.receiving.registry().close(&self.source.peer, self.source.link, self.hello, violation)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.close(None);
    }
}

struct Carrying<'a> {
    stream: Stream,
    source: Source,
    hello: Hello,
    channel: Arc<Channel>,
    references: Arc<ReceiverEnd>,
    arrivals: mpsc::Sender<Arrival>,
    frames: Frames,
    buffer: Box<[u8]>,
    /// The count that was written last, or is in `out`.
    count: u64,
    out: [u8; 8],
    unwritten: usize,
    unflushed: bool,
    credit: u8,
    clock: &'a dyn Clock,
}

impl Carrying<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Violation>> {
        self.channel.task.register(context.waker());
        if self.channel.is_superseded() {
            return Poll::Ready(Ok(()));
        }
        let dropped = self.channel.is_dropped();
        if let Poll::Ready(Err(error)) = self.write(context) {
            return Poll::Ready(self.ended(&error));
        }
        if dropped {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..READS_PER_TURN {
            let read = match ready!(Pin::new(&mut self.stream).poll_read(context, &mut self.buffer)) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(read) => read,
                Err(error) => return Poll::Ready(self.ended(&error)),
            };
            let buffer = std::mem::take(&mut self.buffer);
            let taken = self.take(buffer.get(..read).unwrap_or_default());
            self.buffer = buffer;
            match taken {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(())),
                Err(violation) => return Poll::Ready(Err(violation)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands on the frames in `bytes`. `false` once nobody takes them.
    fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Violation> {
        let channel = self.hello.channel.index;
        while let Some(framed) = self.frames.next(&mut bytes) {
            if framed == Framed::Empty {
                return Err(Violation::EmptyFrame { channel });
            }
            let exceeded = Violation::CreditExceeded { channel, credit: self.credit };
            let frame = self.channel.granting().read().map_err(|_| exceeded)?;
            let Framed::Frame(bytes) = framed else {
                metrics::counter!("admit_one_lane_oversize_frames_total").increment(1);
                tracing::debug!(peer = %self.source.peer, channel, ?framed, "an oversize frame was passed over");
                self.channel.refused("oversize");
                self.channel.taken(frame);
                continue;
            };
            let (owner, busy) = (Arc::clone(&self.channel), self.channel.activity.busy());
            let credit = CreditGuard::new(move || {
                owner.taken(frame);
                drop(busy);
            });
            let read_at = self.clock.monotonic();
            let references = self.references.read(FrameName { channel, number: frame }, &bytes, read_at);
            let arrival = Arrival {
                peer: self.source.peer,
                link: self.source.link,
                channel: Some(self.hello.channel),
                bytes,
                read_at: Some(read_at),
                credit: Some(credit),
                references: Some(references),
                feedback: Some(Arc::clone(&self.channel) as Arc<dyn Feedback>),
            };
            match self.arrivals.try_send(arrival) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(false),
                // Frames that are taken over leave their places first, so a full queue is a spent credit.
                Err(mpsc::error::TrySendError::Full(_)) => return Err(exceeded),
            }
        }
        Ok(true)
    }

    /// Writes the newest count, as far as it goes.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            if self.unwritten == 0 {
                let count = self.channel.granting().count();
                if count == self.count {
                    if self.unflushed {
                        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                        self.unflushed = false;
                    }
                    return Poll::Ready(Ok(()));
                }
                (self.count, self.out, self.unwritten) = (count, count.to_be_bytes(), 8);
            }
            let rest = self.out.get(8 - self.unwritten..).unwrap_or_default();
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.unwritten -= written;
            self.unflushed = true;
        }
    }

    fn ended(&self, error: &std::io::Error) -> Result<(), Violation> {
        tracing::debug!(peer = %self.source.peer, channel = self.hello.channel.index, %error, "a channel ended");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
