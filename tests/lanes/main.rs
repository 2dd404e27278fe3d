//! Lanes between real swarms over loopback, on TCP with Noise and Yamux and on QUIC.

mod order;
mod support;
