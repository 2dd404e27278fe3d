//! One connection's part in the swarm: it negotiates substreams and hands them to the tasks beside it, and nothing
//! else.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use libp2p::{
    Stream, StreamProtocol,
    core::upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo},
    swarm::{
        ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};
use tokio::sync::{mpsc, watch};

use super::{
    activity::Activity,
    config::Config,
    event::Violation,
    reader::{Connection, Receiving, Source},
    refusals::Refusals,
    scheduler::LANES,
    slot::Slot,
    writer::{Negotiated, Unopened},
};
use crate::task;

/// How many inbound substreams of the protocol a connection may have at once: a pool and its control substream, and their
/// successors while the old ones' end is on its way. One that ended counts as long as a frame of it is not taken over, so that opening a channel
/// again is no way past its credit (law L3.4).
pub(crate) const INBOUND_CHANNELS: usize = 2 * (LANES + 1);

/// Asked for as if it were a channel, it asks whether the connection answers: see [`silence`](super::silence). Never
/// written anywhere.
pub(crate) const QUESTION: u8 = u8::MAX - 1;

/// A link is to write on this connection.
#[derive(Debug)]
pub struct Start {
    pub(crate) number: u64,
    pub(crate) requests: mpsc::Receiver<u8>,
    pub(crate) negotiated: mpsc::Sender<Negotiated>,
    pub(crate) activity: Arc<Activity>,
}

/// What a connection's handler tells its behaviour.
#[derive(Debug)]
pub struct Broken(pub(crate) Violation);

/// The connection handler of [`Behaviour`](super::Behaviour).
#[derive(Debug)]
pub struct Handler {
    protocol: StreamProtocol,
    /// What nobody speaks.
    question: Option<StreamProtocol>,
    /// How long a substream may take.
    patience: Duration,
    source: Source,
    receiving: Arc<Receiving>,
    /// Reasons of the inbound side to stay connected.
    inward: Arc<Activity>,
    /// Each live inbound channel listens, and ends when this is dropped.
    channels: watch::Sender<()>,
    refusals: Arc<Refusals>,
    /// One more is held by each inbound channel, live or with frames that were not taken over yet. The connection keeps
    /// its slot as long.
    places: Arc<Slot>,
    outward: Option<Start>,
    broken: VecDeque<Broken>,
}

impl Handler {
    pub(crate) fn new(config: &Config, source: Source, receiving: Arc<Receiving>) -> Self {
        let refusals = receiving.refusals(source.peer, source.link);
        Self {
            protocol: config.protocol.clone(),
            question: StreamProtocol::try_from_owned(format!("{}/question", config.protocol)).ok(),
            patience: config.silence,
            source,
            receiving,
            refusals,
            inward: Arc::default(),
            channels: watch::channel(()).0,
            places: Arc::default(),
            outward: None,
            broken: VecDeque::new(),
        }
    }

    fn accept(&mut self, mut stream: Stream) {
        stream.ignore_for_keep_alive();
        if Arc::strong_count(&self.places) > INBOUND_CHANNELS {
            // Said once; the connection is closed for it.
            if self.broken.is_empty() {
                self.broken.push_back(Broken(Violation::TooManyChannels { bound: INBOUND_CHANNELS }));
            }
            return;
        }
        let connection = Connection {
            activity: Arc::clone(&self.inward),
            refusals: Arc::clone(&self.refusals),
            place: Arc::clone(&self.places),
            gone: self.channels.subscribe(),
        };
        let serving = Arc::clone(&self.receiving).serve(stream, self.source, connection);
        task::spawn(Box::pin(serving));
    }

    fn opened(&self, (number, channel): (u64, u8), stream: Result<Stream, Unopened>) {
        // One request a channel is on its way at most, so there is room for the answer, unless the link has ended.
        if let Some(outward) = self.outward.as_ref().filter(|outward| outward.number == number) {
            let _ = outward.negotiated.try_send(Negotiated { channel, stream });
        }
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Start;
    type ToBehaviour = Broken;
    type InboundProtocol = Speaks;
    type OutboundProtocol = Speaks;
    type InboundOpenInfo = ();
    /// The link's number and the channel: answers come in any order, and after their link has ended.
    type OutboundOpenInfo = (u64, u8);

    fn listen_protocol(&self) -> SubstreamProtocol<Speaks> {
        // A node that takes no channels says so by not speaking the protocol.
        SubstreamProtocol::new(Speaks(self.receiving.is_open().then(|| self.protocol.clone())), ())
    }

    fn connection_keep_alive(&self) -> bool {
        self.inward.is_busy() || self.outward.as_ref().is_some_and(|outward| outward.activity.is_busy())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Speaks, (u64, u8), Broken>> {
        self.inward.register(context.waker());
        if let Some(broken) = self.broken.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(broken));
        }
        if let Some(outward) = &mut self.outward {
            outward.activity.register(context.waker());
            match outward.requests.poll_recv(context) {
                Poll::Ready(Some(channel)) => {
                    let name = if channel == QUESTION { &self.question } else { &Some(self.protocol.clone()) };
                    let protocol = SubstreamProtocol::new(Speaks(name.clone()), (outward.number, channel))
                        .with_timeout(self.patience);
                    return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
                }
                Poll::Ready(None) => self.outward = None,
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, start: Start) {
        self.outward = Some(start);
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Speaks, Speaks, (), (u64, u8)>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, info: () }) => {
                self.accept(protocol);
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: mut stream, info }) => {
                stream.ignore_for_keep_alive();
                self.opened(info, Ok(stream));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let unopened = match error {
                    StreamUpgradeError::NegotiationFailed => Unopened::Unsupported,
                    StreamUpgradeError::Timeout => Unopened::Unanswered,
                    StreamUpgradeError::Io(error) => Unopened::Failed(error.to_string()),
                    StreamUpgradeError::Apply(never) => match never {},
                };
                self.opened(info, Err(unopened));
            }
            _ => {}
        }
    }
}

/// Negotiates the protocol by its name, or nothing.
#[derive(Debug, Clone)]
pub struct Speaks(Option<StreamProtocol>);

impl UpgradeInfo for Speaks {
    type Info = StreamProtocol;
    type InfoIter = std::option::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.clone().into_iter()
    }
}

impl InboundUpgrade<Stream> for Speaks {
    type Output = Stream;
    type Error = Infallible;
    type Future = Ready<Result<Stream, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, _: StreamProtocol) -> Self::Future {
        ready(Ok(stream))
    }
}

impl OutboundUpgrade<Stream> for Speaks {
    type Output = Stream;
    type Error = Infallible;
    type Future = Ready<Result<Stream, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, _: StreamProtocol) -> Self::Future {
        ready(Ok(stream))
    }
}
