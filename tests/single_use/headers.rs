//! Credentials in HTTP headers, end to end: what is doubled or does not decode burns nothing.

use std::sync::Arc;

use admit_one::layer::{
    credential::{
        Envelope, HttpExtractor,
        http::{APPROVAL, DEADLINE, INTENT, ISSUED_AT, NONCE, PROOF, REQUEST_ID, TENANT, to_headers},
    },
    nonce::NonceLayer,
    operation::OperationLayer,
    single_use::{Call, Consumed, SingleUseConfig},
};
use bytes::Bytes;
use http::{HeaderValue, Request};
use tower::ServiceBuilder;

use crate::{
    engine::MockEngine,
    tool::Tool,
    world::{ARGUMENTS, World, ask, refused},
};

fn request(path: &str, envelope: &Envelope) -> Request<Bytes> {
    let mut request = Request::post(path).body(envelope.arguments().clone()).expect("a request");
    *request.headers_mut() = to_headers(envelope).expect("visible ASCII");
    request
}

#[tokio::test]
async fn l12_8_duplicate_and_undecodable_headers_are_refused_and_burn_nothing() {
    let (world, tool) = (World::on(Arc::new(MockEngine::new()), SingleUseConfig::new()).await, Tool::new());
    let mut service = ServiceBuilder::new()
        .layer(NonceLayer::new(world.single_use.clone(), HttpExtractor::new(), [world.issuer.key()]))
        .layer(OperationLayer::new(world.single_use.clone()))
        .service(tool.clone());
    let call = Call { method: "POST /notes?draft=1".into(), ..world.call("review-1") };
    let shown = world.envelope(&call);
    for name in [TENANT, REQUEST_ID, INTENT, ISSUED_AT, DEADLINE, PROOF, NONCE, APPROVAL] {
        let mut doubled = request("/notes?draft=1", &shown);
        let value = doubled.headers().get(&name).expect("it is there").clone();
        doubled.headers_mut().append(name.clone(), value);
        assert_eq!(refused(ask(&mut service, doubled).await), ("credential_duplicate", Consumed::No), "{name}");
        let mut bent = request("/notes?draft=1", &shown);
        bent.headers_mut().insert(name.clone(), HeaderValue::from_bytes(b"\xff").expect("a value"));
        assert_eq!(refused(ask(&mut service, bent).await), ("credential_malformed", Consumed::No), "{name}");
    }
    let mismatch = ("request_binding_mismatch", Consumed::No);
    let elsewhere = request("/notes?draft=0", &shown);
    assert_eq!(refused(ask(&mut service, elsewhere).await), mismatch, "the query is a part of the method");
    let mut fetched = request("/notes?draft=1", &shown);
    *fetched.method_mut() = http::Method::PUT;
    assert_eq!(refused(ask(&mut service, fetched).await), mismatch);
    let mut changed = request("/notes?draft=1", &shown);
    *changed.body_mut() = Bytes::from_static(b"another note");
    assert_eq!(refused(ask(&mut service, changed).await), mismatch);
    assert_eq!(tool.control.runs(), 0);
    assert!(ask(&mut service, request("/notes?draft=1", &shown)).await.is_ok());
    assert_eq!(shown.arguments(), &Bytes::from_static(ARGUMENTS));
}
