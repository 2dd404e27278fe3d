use std::{
    convert::Infallible,
    future::Ready,
    task::{Context, Poll},
};

use tower::Service;

use crate::link::Frame;

/// No way on: what a node forwards through that only receives. There is no value of it.
#[derive(Debug, Clone, Copy)]
pub enum NoForward {}

impl Service<Frame> for NoForward {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match *self {}
    }

    fn call(&mut self, _: Frame) -> Self::Future {
        match *self {}
    }
}
