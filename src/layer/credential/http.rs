//! Credentials in the headers of an HTTP request.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    CredentialRefusal, Credentials, Envelope, Extractor, Malformation, PossessionProof, Presenter, SignedApproval,
    SignedNonce,
};
use crate::layer::single_use::{Call, WireError};

/// The call's tenant, in visible ASCII.
pub const TENANT: HeaderName = HeaderName::from_static("admit-tenant");
/// The call's request id, in visible ASCII.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("admit-request-id");
/// The call's intent, in visible ASCII.
pub const INTENT: HeaderName = HeaderName::from_static("admit-intent");
/// When the call was issued, in unix seconds.
pub const ISSUED_AT: HeaderName = HeaderName::from_static("admit-issued-at");
/// The call's deadline, in unix seconds.
pub const DEADLINE: HeaderName = HeaderName::from_static("admit-deadline");
/// A [`PossessionProof`], in base64url without padding.
pub const PROOF: HeaderName = HeaderName::from_static("admit-proof");
/// A [`SignedNonce`], in base64url without padding.
pub const NONCE: HeaderName = HeaderName::from_static("admit-nonce");
/// A [`SignedApproval`], in base64url without padding.
pub const APPROVAL: HeaderName = HeaderName::from_static("admit-approval");

/// Finds credentials in the headers of an HTTP request whose body was read whole.
///
/// The method of the call is the request's method, a space, its path and its query (`POST /notes?draft=1`), and its
/// arguments are the body. Other headers are covered by no signature: a handler must not act on them.
#[derive(Debug, Clone, Copy)]
pub struct HttpExtractor {
    method: fn(&http::Request<Bytes>) -> String,
}

impl HttpExtractor {
    /// With the method as above.
    pub const fn new() -> Self {
        Self { method: request_line }
    }

    /// With the method that `method` derives. It should cover whatever the handler acts on that is not in the body.
    #[must_use]
    pub const fn method(self, method: fn(&http::Request<Bytes>) -> String) -> Self {
        Self { method }
    }
}

impl Default for HttpExtractor {
    fn default() -> Self {
        Self::new()
    }
}

fn request_line(request: &http::Request<Bytes>) -> String {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    format!("{} {path}", request.method())
}

impl Extractor<http::Request<Bytes>> for HttpExtractor {
    fn extract(&self, request: &http::Request<Bytes>) -> Result<Credentials, CredentialRefusal> {
        let headers = request.headers();
        let owned = |name| text(headers, name).map(|text| text.map(str::to_owned));
        let call = Call {
            tenant: required(owned(&TENANT)?, "tenant")?,
            request_id: required(owned(&REQUEST_ID)?, "request id")?,
            method: (self.method)(request),
            arguments: [0; 32],
            intent: owned(&INTENT)?,
            issued_at: seconds(headers, &ISSUED_AT)?,
            deadline: seconds(headers, &DEADLINE)?,
        };
        let proof = credential(headers, &PROOF, PossessionProof::ENCODED_MAX, PossessionProof::decode)?;
        let presenter = Presenter::Proof(required(proof, "proof of possession")?);
        Ok(Credentials::new(call, request.body().clone(), presenter)
            .nonce(credential(headers, &NONCE, SignedNonce::ENCODED_MAX, SignedNonce::decode)?)
            .approval(credential(headers, &APPROVAL, SignedApproval::ENCODED_MAX, SignedApproval::decode)?))
    }
}

/// The headers that carry what an envelope does, but its method and its arguments: the request line and the body are to
/// be those.
///
/// # Errors
/// [`Malformation`] where a field is over its bound or, in a header, not visible ASCII.
pub fn to_headers(envelope: &Envelope) -> Result<HeaderMap, Malformation> {
    let call = envelope.call();
    call.check()?;
    let text = |value: &str| {
        HeaderValue::from_str(value).ok().filter(|value| value.to_str().is_ok()).ok_or(Malformation::NotAscii)
    };
    let base64 = |bytes: Vec<u8>| text(&URL_SAFE_NO_PAD.encode(bytes));
    let fields = [
        (TENANT, Some(text(&call.tenant)?)),
        (REQUEST_ID, Some(text(&call.request_id)?)),
        (INTENT, call.intent.as_deref().map(text).transpose()?),
        (ISSUED_AT, call.issued_at.map(HeaderValue::from)),
        (DEADLINE, call.deadline.map(HeaderValue::from)),
        (PROOF, envelope.proof.as_ref().map(|proof| base64(proof.encode()?)).transpose()?),
        (NONCE, envelope.nonce.as_ref().map(|nonce| base64(nonce.encode()?)).transpose()?),
        (APPROVAL, envelope.approval.as_ref().map(|approval| base64(approval.encode()?)).transpose()?),
    ];
    Ok(fields.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect())
}

fn required<T>(value: Option<T>, what: &'static str) -> Result<T, CredentialRefusal> {
    value.ok_or(CredentialRefusal::Missing { what })
}

/// What a refusal calls a header's value.
fn what(name: &HeaderName) -> &'static str {
    [
        (TENANT, "tenant"),
        (REQUEST_ID, "request id"),
        (INTENT, "intent"),
        (ISSUED_AT, "issued-at"),
        (DEADLINE, "deadline"),
        (PROOF, "proof of possession"),
        (NONCE, "signed nonce"),
    ]
    .into_iter()
    .find_map(|(named, what)| (named == name).then_some(what))
    .unwrap_or("signed approval")
}

/// The one value of a header, if it has one.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, CredentialRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(CredentialRefusal::Duplicate { what: what(name) });
    }
    value.to_str().map(Some).map_err(|_| malformed(name, Malformation::NotAscii))
}

fn seconds(headers: &HeaderMap, name: &HeaderName) -> Result<Option<i64>, CredentialRefusal> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    // Digits alone, and no zeros before them, so that an instant is written in one way.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let number = text.parse().ok().filter(|_| digits);
    number.map(Some).ok_or(malformed(name, Malformation::NotANumber))
}

fn credential<T>(
    headers: &HeaderMap,
    name: &HeaderName,
    bound: usize,
    decode: impl FnOnce(&[u8]) -> Result<T, WireError>,
) -> Result<Option<T>, CredentialRefusal> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    // Before anything is allocated: no encoding within the bound is longer.
    if text.len() > bound.div_ceil(3) * 4 {
        let oversize = WireError::Oversize { what: what(name), length: text.len() / 4 * 3, bound };
        return Err(malformed(name, oversize.into()));
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed(name, Malformation::NotBase64))?;
    decode(&bytes).map(Some).map_err(|error| malformed(name, error.into()))
}

fn malformed(name: &HeaderName, reason: Malformation) -> CredentialRefusal {
    CredentialRefusal::Malformed { what: what(name), reason }
}

/// The fuzz target of credentials in headers: its bytes are lines of a name, a colon and a value.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "http_headers",
    run: |data| {
        let mut headers = HeaderMap::new();
        for line in data.split(|byte| *byte == b'\n').take(32) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        }
        let mut request = http::Request::new(Bytes::from_static(b"a note"));
        *request.headers_mut() = headers;
        let Ok(found) = HttpExtractor::new().extract(&request) else { return false };
        // Whatever was found is written as one set of headers, and found there again.
        let Credentials { call, arguments, presenter, nonce, approval } = found.clone();
        let Presenter::Proof(proof) = presenter else { panic!("headers carry their own proof") };
        let mut envelope = Envelope::new(call, arguments).proof(proof);
        (envelope.nonce, envelope.approval) = (nonce, approval);
        if let Ok(headers) = to_headers(&envelope) {
            *request.headers_mut() = headers;
            assert_eq!(HttpExtractor::new().extract(&request), Ok(found));
        }
        true
    },
    seeds: || {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"].concat()
        };
        let [_, whole] = super::envelope::fuzzing::envelopes();
        let headers = to_headers(&whole).unwrap_or_default();
        let all = headers.iter().flat_map(line).collect::<Vec<_>>();
        let least = headers.iter().filter(|(name, _)| [TENANT, REQUEST_ID, PROOF].contains(name));
        let least = least.flat_map(line).collect::<Vec<_>>();
        vec![least, all.clone(), [&all[..], b"admit-tenant:again\n"].concat()]
    },
};
