//! Who calls: the issuer's leave and the subject's proof for each attempt, over HTTP.

use std::net::SocketAddr;

use admit_one::{
    KeySigner, SystemClock,
    clock::Clock,
    layer::{
        credential::{Envelope, Nonce, Possession, http::to_headers},
        single_use::Call,
    },
};
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;

use crate::{
    Failure,
    protocol::{Refused, Reply},
};

/// How long a proof holds, in seconds.
const PROOF_S: i64 = 60;

/// How long after it was issued a call may run, in seconds.
const DEADLINE_S: i64 = 600;

/// An issuer and a subject, in one hand here.
pub struct Caller {
    pub issuer: KeySigner,
    pub subject: KeySigner,
}

impl Caller {
    /// A call of the tool at `path`, issued now.
    pub fn call(&self, path: &str, request_id: &str, text: &str) -> Call {
        let now = now();
        Call {
            tenant: "acme".into(),
            request_id: request_id.into(),
            method: format!("POST {path}"),
            arguments: Call::hash_arguments(text.as_bytes()),
            intent: None,
            issued_at: Some(now),
            deadline: Some(now + DEADLINE_S),
        }
    }

    /// The call with a fresh nonce and a fresh proof.
    pub fn show(&self, call: &Call, text: &str) -> Envelope {
        self.show_as(&self.subject, call, text)
    }

    /// The call with a fresh nonce for the subject, and a proof by `signer`.
    pub fn show_as(&self, signer: &KeySigner, call: &Call, text: &str) -> Envelope {
        let (now, subject) = (now(), self.subject.key());
        let nonce = Nonce::new(self.issuer.key(), call, subject, subject, now, now + PROOF_S).sign(&self.issuer);
        let proof = Possession::new(call, &subject, Some(nonce.digest()), now, now + PROOF_S).sign(signer);
        self.bare(call, text).nonce(nonce).proof(proof)
    }

    /// The call with nothing shown for it: its transaction does.
    pub fn bare(&self, call: &Call, text: &str) -> Envelope {
        Envelope::new(call.clone(), text.to_owned().into())
    }
}

fn now() -> i64 {
    i64::try_from(SystemClock::new().wall() / 1_000).unwrap_or(i64::MAX)
}

/// Posts what an envelope carries: its credentials in headers, its arguments as the body.
pub async fn post(http: SocketAddr, path: &str, envelope: &Envelope) -> Result<Reply, Failure> {
    send(http, path, to_headers(envelope)?, envelope.arguments().clone()).await
}

/// Posts these headers and this body.
pub async fn send(http: SocketAddr, path: &str, headers: HeaderMap, body: Bytes) -> Result<Reply, Failure> {
    let stream = tokio::net::TcpStream::connect(http).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::post(path).body(Full::new(body))?;
    *request.headers_mut() = headers;
    request.headers_mut().insert("host", http.to_string().parse()?);
    let response = sender.send_request(request).await?;
    let replayed = response.headers().get("admit-replayed").is_some_and(|value| value == "true");
    let accepted = response.status().is_success();
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    drop(sender);
    connection.await??;
    if accepted {
        return Ok(Reply { answer: Ok(String::from_utf8_lossy(&body).into_owned()), replayed });
    }
    let refused: Refused = serde_json::from_slice(&body).map_err(|error| format!("{status}: {error}"))?;
    Ok(Reply { answer: Err(refused), replayed })
}
