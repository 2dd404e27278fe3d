//! Lanes spoken by hand over raw substreams, so that anything can be put on them. The formats are in `docs/wire-lanes.md`.

use std::time::Duration;

use admit_one::{
    clock::{Clock as _, SystemClock},
    message::Class,
};
use bytes::Bytes;
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use libp2p::{PeerId, Stream, StreamProtocol, identity::Keypair};

use crate::{
    Failure, node,
    protocol::{Contact, Transport},
};

/// What a receiver advertises unless told otherwise; one frame more would end the link.
const CREDIT: u64 = 16;

/// How long it waits before it tries a destination again that is down.
const PAUSE: Duration = Duration::from_millis(50);

pub struct RawLanes {
    control: libp2p_stream::Control,
    protocol: StreamProtocol,
    peer: PeerId,
    link: u64,
    lanes: [Option<RawLane>; 4],
}

struct RawLane {
    stream: Stream,
    sent: u64,
    credited: u64,
}

impl RawLanes {
    /// Connects to `contact` under a peer's identity of its own.
    pub fn start(transport: Transport, keypair: Keypair, contact: &Contact) -> Result<Self, Failure> {
        let behaviour = libp2p_stream::Behaviour::new();
        let control = behaviour.new_control();
        let peer = contact.did.to_peer_id();
        let mut swarm = node::swarm(transport, keypair, behaviour)?;
        let address = contact.address.clone();
        tokio::spawn(async move {
            loop {
                if !swarm.is_connected(&peer) {
                    // It may be down: tried again after a pause.
                    let options = libp2p::swarm::dial_opts::DialOpts::peer_id(peer).addresses(vec![address.clone()]);
                    if let Err(error) = swarm.dial(options.build()) {
                        tracing::debug!(%error, "not dialled");
                    }
                }
                // Nothing but the pause ends this: the swarm runs on through it.
                let driven = node::drive(&mut swarm);
                let _ = tokio::time::timeout(PAUSE, driven).await;
            }
        });
        let protocol = admit_one::lanes::DEFAULT_PROTOCOL;
        Ok(Self { control, protocol, peer, link: SystemClock::new().wall(), lanes: [None, None, None, None] })
    }

    /// Puts one frame on the lane of `class`, as often as it takes to get it there.
    pub async fn send(&mut self, class: Class, frame: Bytes) {
        while let Err(error) = self.try_send(class, &frame).await {
            tracing::debug!(%error, "the attacker reconnects");
            self.lanes = [None, None, None, None];
            self.link += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_send(&mut self, class: Class, frame: &Bytes) -> Result<(), Failure> {
        let place = &mut self.lanes[usize::from(class.lane())];
        if place.is_none() {
            let stream = self.control.open_stream(self.peer, self.protocol.clone()).await?;
            *place = Some(RawLane::open(stream, class, self.link).await?);
        }
        match place {
            Some(lane) => lane.send(frame).await,
            None => Ok(()),
        }
    }
}

impl RawLane {
    async fn open(mut stream: Stream, class: Class, link: u64) -> Result<Self, Failure> {
        stream.write_all(&[class.lane(), 4]).await?;
        stream.write_all(&link.to_be_bytes()).await?;
        stream.flush().await?;
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await?;
        match answer {
            [0, ..] => Ok(Self { stream, sent: 0, credited: 0 }),
            [kind, ..] => Err(format!("the lane was refused with {kind}").into()),
        }
    }

    async fn send(&mut self, frame: &Bytes) -> Result<(), Failure> {
        while self.sent - self.credited >= CREDIT {
            let mut count = [0; 8];
            self.stream.read_exact(&mut count).await?;
            self.credited = u64::from_be_bytes(count).min(self.sent);
        }
        self.stream.write_all(&u32::try_from(frame.len())?.to_be_bytes()).await?;
        self.stream.write_all(frame).await?;
        self.stream.flush().await?;
        self.sent += 1;
        Ok(())
    }
}
