//! Overlays of several real nodes on loopback, over TCP with Noise and Yamux and over QUIC: relays that do their duty, and
//! relays, routers and origins that do not. Whatever these do, a destination dispatches each transaction at most once,
//! and a way beside theirs loses nothing.

mod chunks;
mod cycle;
#[path = "../layer/engine.rs"]
#[allow(dead_code, reason = "the fixture's, which uses it for nodes without a network")]
mod engine;
#[path = "../layer/fixture.rs"]
#[allow(dead_code, reason = "shared with tests/layer, which uses more of it")]
mod fixture;
mod flood;
mod hostile;
mod line;
mod overlay;
mod reroute;
mod stall;
#[path = "../lanes/support.rs"]
#[allow(dead_code, reason = "shared with tests/lanes, which uses more of it")]
mod support;

/// Each test on both transports. One thread, so that a test's counters are its own.
#[macro_export]
macro_rules! both_transports {
    ($($test:ident),+ $(,)?) => {
        mod tcp {
            $(
                #[tokio::test]
                async fn $test() {
                    $crate::support::in_time(super::$test($crate::support::Transport::Tcp)).await;
                }
            )+
        }
        mod quic {
            $(
                #[tokio::test]
                async fn $test() {
                    $crate::support::in_time(super::$test($crate::support::Transport::Quic)).await;
                }
            )+
        }
    };
}
