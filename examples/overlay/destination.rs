//! The destination: admits through its durable store, and tells the parent of every call of its handler.

use std::{
    path::Path,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use admit_one::{
    clock::{Clock, SystemClock},
    lanes,
    layer::{AdmissionError, AdmissionLayer, Admitted},
    link::Arrival,
};
use futures::future::BoxFuture;
use tower::{Layer, Service, ServiceBuilder, service_fn};

use crate::{
    Failure, node, origin,
    protocol::{Event, NETWORK, NodeConfig, tell},
};

pub async fn run(config: &NodeConfig, store: &Path) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock::new());
    let commit = node::commit(store).await?;
    let admission = node::admission(&commit, clock.clone(), config.sigma_ms).await?;
    let mut node = node::start(config, lanes::Config::default().links(Arc::new(admission.clone())))?;
    let read = clock.clone();
    let handler = service_fn(move |admitted: Admitted| {
        let micros = admitted.read_at().map_or(0, |at| read.monotonic().saturating_sub(at).as_micros());
        let index = origin::index_of(admitted.class(), admitted.data()).unwrap_or(u64::MAX);
        // Written before the handler returns: a kill after this line has been counted, one before it has not.
        tell(&Event::Dispatched {
            index,
            digest: admitted.digest().to_string(),
            micros: u64::try_from(micros).unwrap_or(u64::MAX),
        });
        std::future::ready(Ok::<_, std::convert::Infallible>(()))
    });
    let service = ServiceBuilder::new()
        .layer(TellRefusals)
        .layer(AdmissionLayer::builder(NETWORK, config.secret.did(), admission.clone()).build())
        .service(handler);
    tokio::spawn(node.incoming.serve(service));
    tokio::spawn(async move {
        while let Some(until) = admission.health().refuses_fresh_until {
            tokio::time::sleep(Duration::from_millis(until.saturating_sub(clock.wall()).clamp(1, 50))).await;
        }
        tell(&Event::Ready);
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let health = commit.health();
            tell(&Event::Committed { batches: health.batches });
        }
    });
    node::drive(&mut node.swarm).await;
    Ok(())
}

/// Tells the parent of every refusal, and from whom the frame came.
#[derive(Debug, Clone, Copy)]
struct TellRefusals;

impl<S> Layer<S> for TellRefusals {
    type Service = Telling<S>;

    fn layer(&self, inner: S) -> Telling<S> {
        Telling(inner)
    }
}

#[derive(Debug, Clone)]
struct Telling<S>(S);

impl<S, E> Service<Arrival> for Telling<S>
where
    S: Service<Arrival, Error = AdmissionError<E>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let peer = arrival.peer.to_string();
        let answer = self.0.call(arrival);
        Box::pin(async move {
            let answer = answer.await;
            if let Err(AdmissionError::Refused(refusal)) = &answer {
                tell(&Event::Refused { kind: refusal.label().to_owned(), peer });
            }
            answer
        })
    }
}
