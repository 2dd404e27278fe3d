//! The server: one store, and the tool behind it for HTTP and for libp2p.

use std::{convert::Infallible, io, net::Ipv4Addr, sync::Arc, time::Duration};

use admit_one::{
    Admission, AdmissionConfig, AdmissionLayer, CommitConfig, GroupCommit, Journal, JournalConfig, KeySigner,
    SystemClock,
    clock::Clock,
    layer::{
        credential::{AdmittedExtractor, CallError, HttpExtractor},
        effect::{DispatchLayer, DispatchService},
        nonce::{NonceLayer, NonceService},
        operation::{Answer, OperationLayer, OperationService},
        single_use::{Consumed, Outcome, SingleUse, SingleUseConfig},
    },
};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Response, StatusCode},
    routing::post,
};
use bytes::Bytes;
use tower::{Service as _, ServiceBuilder, ServiceExt as _};

use crate::{
    Failure,
    protocol::{Event, Point, Refused, SIGMA_MS, ServerConfig, hold, tell},
    swarm,
    tool::Notes,
};

/// The most bytes of a request's body.
const BODY_MAX: usize = 64 * 1024;

/// What stands before the tool: with an operation, or at the effect boundary alone.
#[derive(Clone)]
struct App {
    operations: NonceService<HttpExtractor, OperationService<Notes>>,
    stamps: NonceService<HttpExtractor, DispatchService<Notes>>,
    single_use: SingleUse,
    hold: Option<Point>,
}

pub async fn run(config: ServerConfig) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock::new());
    let journal = Arc::new(Journal::open(&config.store, JournalConfig::default())?);
    let commit = GroupCommit::open(journal, CommitConfig::default()).await?;
    let admission_config = AdmissionConfig { sigma: SIGMA_MS, ..AdmissionConfig::default() };
    let admission = Admission::open(&commit, clock.clone(), admission_config).await?;
    let single_use_config = SingleUseConfig { sigma_ms: SIGMA_MS, ..SingleUseConfig::new() };
    let single_use = SingleUse::open(&commit, clock.clone(), single_use_config).await?;
    // What a crash left reserved is released at leisure; a retry does not wait for it.
    let recovering = single_use.clone();
    tokio::spawn(async move { recovering.recover().await });

    let tool = Notes::new(config.notes, config.hold);
    let nonces = NonceLayer::new(single_use.clone(), HttpExtractor::new(), [config.issuer]);
    // Detached, so that a caller that hangs up costs it the answer and nothing else.
    let operations = OperationLayer::new(single_use.clone()).detached();
    let app = App {
        operations: ServiceBuilder::new().layer(nonces.clone()).layer(operations.clone()).service(tool.clone()),
        stamps: ServiceBuilder::new().layer(nonces).layer(DispatchLayer::new(single_use.clone())).service(tool.clone()),
        single_use: single_use.clone(),
        hold: config.hold,
    };
    let routes = Router::new()
        .route("/notes/append", post(append))
        .route("/notes/stamp", post(stamp))
        .route("/operator/stop", post(stop))
        .route("/operator/resume", post(resume))
        .with_state(app);

    // An admitted transaction is proven by its origin's signature, and no issuer is asked.
    let signer = KeySigner::from_secret(&config.secret)?;
    let transactions = AdmissionLayer::builder(swarm::NETWORK, signer.key(), admission.clone()).build();
    let called = ServiceBuilder::new()
        .layer(transactions)
        .layer(NonceLayer::new(single_use.clone(), AdmittedExtractor::new(), []))
        .layer(operations)
        .service(tool);
    let (swarm, libp2p) = swarm::listen(&config.secret).await?;
    tokio::spawn(swarm::serve(swarm, called));

    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let http = listener.local_addr()?;
    // A new store refuses what was issued before it began, in the whole seconds that calls are issued in.
    let in_seconds = || clock.wall() / 1_000 * 1_000;
    while admission.health().refuses_fresh_until.is_some()
        || single_use.health().birth_mark.is_some_and(|mark| in_seconds() <= mark)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tell(&Event::Ready { http, libp2p });
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn append(State(mut app): State<App>, request: Request) -> Result<Response<Body>, Infallible> {
    let request = match whole(request).await {
        Ok(request) => request,
        Err(refused) => return Ok(refused),
    };
    let answer = match app.operations.ready().await {
        Ok(service) => service.call(request).await,
        Err(error) => Err(error),
    };
    if let (Some(Point::Recorded), Ok(answer)) = (app.hold, &answer) {
        hold(Point::Recorded, Some(text(answer.outcome()))).await;
    }
    Ok(answered(answer))
}

async fn stamp(State(mut app): State<App>, request: Request) -> Result<Response<Body>, Infallible> {
    let request = match whole(request).await {
        Ok(request) => request,
        Err(refused) => return Ok(refused),
    };
    let answer = match app.stamps.ready().await {
        Ok(service) => service.call(request).await,
        Err(error) => Err(error),
    };
    Ok(match answer {
        Ok(outcome) => ran(outcome.bytes, false),
        Err(error) => refuse(&error),
    })
}

async fn stop(State(app): State<App>) -> Result<(), (StatusCode, String)> {
    app.single_use.stop().await.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn resume(State(app): State<App>) -> Result<(), (StatusCode, String)> {
    app.single_use.resume().await.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

/// The request with its body read whole, since that is what is signed.
async fn whole(request: Request) -> Result<axum::http::Request<Bytes>, Response<Body>> {
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_MAX).await {
        Ok(body) => Ok(axum::http::Request::from_parts(parts, body)),
        Err(_) => Err(with(StatusCode::PAYLOAD_TOO_LARGE, Body::empty())),
    }
}

fn answered(answer: Result<Answer, CallError<io::Error>>) -> Response<Body> {
    match answer {
        Ok(answer) => {
            let replayed = answer.replayed();
            ran(answer.into_outcome().bytes, replayed)
        }
        Err(error) => refuse(&error),
    }
}

fn ran(bytes: Bytes, replayed: bool) -> Response<Body> {
    let mut response = with(StatusCode::OK, bytes.into());
    let value = if replayed { "true" } else { "false" };
    response.headers_mut().insert("admit-replayed", axum::http::HeaderValue::from_static(value));
    response
}

fn refuse(error: &CallError<io::Error>) -> Response<Body> {
    let status = match error.code() {
        code if code.starts_with("credential_") => StatusCode::BAD_REQUEST,
        "replayed" | "conflict" | "outcome_unknown" => StatusCode::CONFLICT,
        "stopped" | "store_failed" | "unavailable" | "clock_regressed" | "capacity" | "too_many_waiters" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        "handler_failed" | "handler_not_ready" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::FORBIDDEN,
    };
    with(status, serde_json::to_vec(&refused(error)).unwrap_or_default().into())
}

fn with(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Why a call brought no answer, for either transport.
pub fn refused<E: std::fmt::Display>(error: &CallError<E>) -> Refused {
    let consumed = match error.consumed() {
        Consumed::No => "no",
        Consumed::Yes => "yes",
        Consumed::Unknown => "unknown",
    };
    Refused { code: error.code().to_owned(), consumed: consumed.to_owned(), reason: error.to_string() }
}

/// What a tool says is text.
pub fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.bytes).into_owned()
}
