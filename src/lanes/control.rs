//! An inbound link's control substream: writes what is to be said about delegations until the link is over, the opener
//! ends it or says anything on it, or it fails (law L4.7).

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use futures::{AsyncRead, AsyncWrite};
use libp2p::Stream;

use crate::link::references::ReceiverEnd;

/// Its hello is read, and answered. Ends with why.
pub(super) async fn carry(stream: Stream, end: &ReceiverEnd) -> std::io::Error {
    let mut control = Control { stream, end, out: BytesMut::new(), unflushed: false };
    std::future::poll_fn(|context| control.poll(context)).await
}

struct Control<'a> {
    stream: Stream,
    end: &'a ReceiverEnd,
    /// What was taken to be written: at most as many control frames as may be in flight.
    out: BytesMut,
    unflushed: bool,
}

impl Control<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<std::io::Error> {
        self.end.register(context.waker());
        if self.end.is_over() {
            return Poll::Ready(std::io::Error::other("the link is over"));
        }
        let mut byte = [0];
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, &mut byte) {
            return Poll::Ready(match read {
                Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => std::io::Error::other("an opener says nothing after its hello"),
                Err(error) => error,
            });
        }
        match ready!(self.write(context)) {
            Ok(never) => match never {},
            Err(error) => Poll::Ready(error),
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<std::convert::Infallible>> {
        loop {
            if self.out.is_empty() {
                self.end.take(&mut self.out);
            }
            if self.out.is_empty() {
                if self.unflushed {
                    ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
            self.unflushed = true;
        }
    }
}
