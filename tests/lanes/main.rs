//! Lanes between real swarms over loopback, on TCP with Noise and Yamux and on QUIC.

mod chunks;
mod events;
mod forced;
mod hostile;
mod keep_alive;
mod links;
mod loss;
mod metered;
mod order;
mod origin;
mod pools;
mod proxy;
mod reconnect;
mod references;
mod reroute;
mod reroute_failure;
mod serve;
mod slots;
mod stalls;
mod support;

/// Each test on both transports.
#[macro_export]
macro_rules! both_transports {
    ($($test:ident),+ $(,)?) => {
        mod tcp {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::support::Transport::Tcp).await;
                }
            )+
        }
        mod quic {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::support::Transport::Quic).await;
                }
            )+
        }
    };
}
