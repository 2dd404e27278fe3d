use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, Stream, StreamExt, stream::FuturesUnordered};
use libp2p::PeerId;
use tokio::sync::{mpsc, watch};
use tower::{Service, ServiceExt};

use super::reader;
use crate::{
    link::{Arrival, Channel, LinkId},
    task,
};

/// How many accepted channels wait to be taken; openers of more wait for their answers.
pub(crate) const CHANNELS: usize = 16;

/// The channels that peers open to this node. Dropped, the node stops offering the protocol.
#[derive(Debug)]
#[must_use = "without it no peer can send to this node"]
pub struct Incoming {
    channels: mpsc::Receiver<Inbound>,
}

/// One channel that a peer opened: its frames in the order in which the peer wrote them.
///
/// It ends when the peer, the link or the connection does. Dropped, the channel is closed at once, and what is left in
/// it is not taken over; nor may the sender hear any more of what was taken over just before.
#[must_use]
pub struct Inbound {
    peer: PeerId,
    link: LinkId,
    channel: Channel,
    credit: u8,
    shared: Arc<reader::Channel>,
    arrivals: mpsc::Receiver<Arrival>,
}

impl Incoming {
    pub(crate) const fn new(channels: mpsc::Receiver<Inbound>) -> Self {
        Self { channels }
    }

    /// Serves every channel in a task of its own until the node's behaviour is dropped.
    ///
    /// A channel's task calls its clone of `service` in frame order, one call at a time, and drives at most as many of
    /// the returned futures at once as the channel has credit. An error of a call, and a panic of its future, is counted
    /// (`admit_one_serve_errors_total`) and logged, and costs its frame alone; a service that is not ready any more ends its channel. When this
    /// future is dropped, so are the calls in progress.
    pub async fn serve<S>(mut self, service: S)
    where
        S: Service<Arrival, Error: fmt::Display, Future: Send> + Clone + Send + 'static,
    {
        let (running, stopped) = watch::channel(());
        while let Some(inbound) = self.next().await {
            let (service, mut stopped) = (service.clone(), stopped.clone());
            task::spawn(Box::pin(async move {
                let mut serving = std::pin::pin!(inbound.serve(service));
                tokio::select! {
                    finish = stopped.changed() => {
                        if finish.is_ok() {
                            serving.await;
                        }
                    }
                    () = &mut serving => {}
                }
            }));
        }
        // Nothing new comes; what is in progress finishes. Dropped without a word, `running` stops it instead.
        let _ = running.send(());
    }
}

impl Stream for Incoming {
    type Item = Inbound;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Inbound>> {
        self.channels.poll_recv(context)
    }
}

impl Inbound {
    pub(crate) const fn new(
        peer: PeerId,
        link: LinkId,
        channel: Channel,
        credit: u8,
        shared: Arc<reader::Channel>,
        arrivals: mpsc::Receiver<Arrival>,
    ) -> Self {
        Self { peer, link, channel, credit, shared, arrivals }
    }

    /// Who opened it.
    pub const fn peer(&self) -> PeerId {
        self.peer
    }

    /// The connection that it is on.
    pub const fn link(&self) -> LinkId {
        self.link
    }

    /// Which of the opener's channels it is.
    pub const fn channel(&self) -> Channel {
        self.channel
    }

    /// How many frames the peer may have in it at once.
    pub const fn credit(&self) -> u8 {
        self.credit
    }

    /// Serves this channel until it ends, as [`Incoming::serve`] does each.
    pub async fn serve<S>(mut self, mut service: S)
    where
        S: Service<Arrival, Error: fmt::Display>,
    {
        let mut calls = FuturesUnordered::new();
        let most = usize::from(self.credit);
        let mut open = true;
        while open || !calls.is_empty() {
            // Readiness may depend on calls in progress, so those go on while it is awaited.
            tokio::select! {
                biased;
                Some(called) = calls.next(), if !calls.is_empty() => match called {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => self.failed(&error),
                    Err(_) => self.failed(&"its call panicked"),
                },
                next = next(&mut self, &mut service), if open && calls.len() < most => match next {
                    // One that panics costs its own frame, not the others that this channel carries.
                    Ok(Some(arrival)) => calls.push(AssertUnwindSafe(service.call(arrival)).catch_unwind()),
                    Ok(None) => open = false,
                    Err(error) => {
                        self.failed(&error);
                        self.arrivals.close();
                        open = false;
                    }
                },
            }
        }
    }

    fn failed(&self, error: &dyn fmt::Display) {
        metrics::counter!("admit_one_serve_errors_total").increment(1);
        tracing::debug!(peer = %self.peer, channel = self.channel.index, %error, "a frame was not served");
    }
}

/// The next frame, once the service is ready for it. Cancelled in between it loses neither.
async fn next<S: Service<Arrival>>(inbound: &mut Inbound, service: &mut S) -> Result<Option<Arrival>, S::Error> {
    service.ready().await?;
    Ok(inbound.next().await)
}

impl Drop for Inbound {
    /// Before what is left in it is dropped, which would count it as taken over.
    fn drop(&mut self) {
        self.shared.drop_by_taker();
    }
}

impl Stream for Inbound {
    type Item = Arrival;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let arrival = ready!(self.arrivals.poll_recv(context));
        if !self.shared.is_superseded() {
            return Poll::Ready(arrival);
        }
        let mut dropped = u64::from(arrival.is_some());
        self.arrivals.close();
        while self.arrivals.try_recv().is_ok() {
            dropped += 1;
        }
        metrics::counter!("admit_one_lane_superseded_frames_total").increment(dropped);
        Poll::Ready(None)
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("peer", &self.peer)
            .field("link", &self.link)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
