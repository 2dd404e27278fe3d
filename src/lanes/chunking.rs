//! One of a node's own transactions that is too large for a frame: signed whole, cut, and sent as one message of its
//! lane (law L2.8).
//!
//! Each has a task of its own, so that it moves whether or not its caller looks at it; it ends when the caller goes
//! away. The task waits for its turn and for room in its lane, and has the origin's task reserve the sequence and open
//! the message, in one order with every other send of the lane (law L3.2). It then signs the original, with that
//! sequence, and cuts it; and signs each chunk when there is room for its frame, a few at a time, so that a signer that
//! lives elsewhere is asked for several at once. The original is held once, encoded, until its last chunk is signed.
//!
//! What fails after the message was opened gives it up: its sequence is left out, and chunks that were written remain
//! without the others.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesOrdered};
use tokio::sync::{mpsc, oneshot};

use super::{
    origin::{Cargo, Draft, OriginError, Request, Terms, sign},
    parts::Message,
    passage::Stream,
    queue::Traffic,
    settlement::Settlement,
};
use crate::{
    identity::{Did, Proof, Signer},
    message::{Class, Content, Transaction, cut},
    task::spawn,
};

/// A transaction to be cut.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) destination: Did,
    pub(super) next_hop: Did,
    pub(super) class: Class,
    pub(super) head: usize,
    pub(super) data: Bytes,
}

/// A message that was opened in its order.
#[derive(Debug)]
pub(super) struct Begun {
    /// `None` where it was lost already.
    pub(super) message: Option<Message>,
    pub(super) settlement: Settlement,
    /// The original's, but for its data.
    pub(super) content: Content,
    pub(super) signer: Arc<dyn Signer>,
}

/// Sends it in a task. The receiver hears once all of it is queued, or it ended; dropped, it stops the rest.
pub(super) fn start(
    terms: Arc<Terms>,
    requests: mpsc::Sender<Request>,
    large: Large,
) -> oneshot::Receiver<Result<Settlement, OriginError>> {
    let (mut done, sent) = oneshot::channel();
    spawn(Box::pin(async move {
        let sent = tokio::select! {
            biased;
            () = done.closed() => return,
            sent = send(&terms, &requests, large) => sent,
        };
        // Dropped, the settlement changes nothing.
        drop(done.send(sent));
    }));
    sent
}

async fn send(terms: &Terms, requests: &mpsc::Sender<Request>, large: Large) -> Result<Settlement, OriginError> {
    let Large { destination, next_hop, class, head, data } = large;
    let (life, limit) = (Duration::from_millis(terms.ttl), terms.outbound.frame_limit());
    let stream = Stream { origin: Some(terms.origin), destination, class };
    let room = terms.outbound.room(next_hop.to_peer_id(), stream, limit, Traffic::Message, life).await?;
    let (begun, begins) = oneshot::channel();
    let draft = Box::new(Draft { destination, next_hop, class, room, cargo: Cargo::Large(begun) });
    requests.send(Request::Send(draft)).await.map_err(|_| OriginError::Stopped)?;
    let Begun { message, settlement, content, signer } = begins.await.unwrap_or(Err(OriginError::Stopped))?;
    let Some(message) = message else { return Ok(settlement) };
    let content = Content { data, ..content };
    let digest = content.digest(terms.network, &terms.origin, class);
    let signature = tokio::select! {
        signature = signer.sign(digest.0) => signature?,
        () = message.ended() => return Ok(settlement),
    };
    let original = Transaction { content, proof: Proof { slot: signer.slot(), signature } };
    let mut chunks = cut(&original, digest, head, limit)?;
    drop(original);
    let mut signing = FuturesOrdered::new();
    loop {
        let Some(free) = message.free() else { return Ok(settlement) };
        while signing.len() < free
            && let Some(content) = chunks.next()
        {
            signing.push_back(sign(terms, &*signer, content, next_hop, class));
        }
        if signing.is_empty() && chunks.len() == 0 {
            message.finish();
            return Ok(settlement);
        }
        tokio::select! {
            Some(frame) = signing.next(), if !signing.is_empty() => message.append(frame?),
            () = message.changed() => {}
        }
    }
}
