//! In: the steps between a frame and an application's handler, as tower layers.

pub mod boundary;
pub mod window;
