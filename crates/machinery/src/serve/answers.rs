//! Bodies, the shapes of answers, and the decoding of paths.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;

use crate::client::BoxError;

/// The body of a request, as handlers get it.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// What answers requests for a path. The caller is in the request's extensions: [`super::UserInfo::of`].
pub type PageHandler =
    Arc<dyn Fn(Request<RequestBody>) -> BoxFuture<'static, Response<AnswerBody>> + Send + Sync>;

/// A handler that answers at once, from what it has.
pub fn sync_handler(
    answer: impl Fn(&Request<RequestBody>) -> Response<AnswerBody> + Send + Sync + 'static,
) -> PageHandler {
    Arc::new(move |request| std::future::ready(answer(&request)).boxed())
}

/// A handler made of an async function.
pub fn handler<F>(answer: impl Fn(Request<RequestBody>) -> F + Send + Sync + 'static) -> PageHandler
where
    F: Future<Output = Response<AnswerBody>> + Send + 'static,
{
    Arc::new(move |request| answer(request).boxed())
}

pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// A body that is all there.
pub fn full(body: impl Into<Bytes>) -> AnswerBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer of a given type.
pub fn respond(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<AnswerBody> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A plain text answer.
pub fn text(status: StatusCode, body: impl Into<String>) -> Response<AnswerBody> {
    respond(status, TEXT, body.into())
}

/// The answer for a path that nobody handles.
pub(super) fn not_found() -> Response<AnswerBody> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The headers that every answer carries.
pub(super) fn finish(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// `meta/v1 Status`, as the API server writes errors.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failure<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: serde_json::Map<String, serde_json::Value>,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<serde_json::Map<String, serde_json::Value>>,
    code: u16,
}

/// An error as a `Status`.
pub(super) fn failure<'a>(code: StatusCode, reason: &'a str, message: &'a str) -> Failure<'a> {
    Failure {
        kind: "Status",
        api_version: "v1",
        metadata: serde_json::Map::new(),
        status: "Failure",
        message,
        reason,
        details: (code == StatusCode::FORBIDDEN).then(serde_json::Map::new),
        code: code.as_u16(),
    }
}

/// An error as a `Status`, indented for people and their tools.
fn status(hints: RequestHints, code: StatusCode, reason: &str, message: &str) -> Response<AnswerBody> {
    respond(code, JSON, hints.encode(&failure(code, reason, message)))
}

/// 401: whoever it is, it could not be told.
pub(super) fn unauthorized(hints: RequestHints) -> Response<AnswerBody> {
    status(hints, StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

/// 403: known, and not allowed.
pub(super) fn forbidden(hints: RequestHints, message: &str) -> Response<AnswerBody> {
    status(hints, StatusCode::FORBIDDEN, "Forbidden", message)
}

/// What about a request matters to the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHints {
    pretty: bool,
}

impl RequestHints {
    /// Indented for browsers, curl and wget, and where `?pretty` says so; `?pretty=false` says not to.
    pub(super) fn of(headers: &HeaderMap, query: Option<&str>) -> Self {
        let asked = form_urlencoded::parse(query.unwrap_or_default().as_bytes())
            .find(|(name, _)| name == "pretty")
            .map(|(_, value)| !matches!(&*value, "false" | "0"));
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let people = ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool));
        Self { pretty: asked.unwrap_or(people) }
    }

    /// Indented also if `pretty`.
    pub(super) fn or_pretty(self, pretty: bool) -> Self {
        Self { pretty: self.pretty || pretty }
    }

    /// An object as JSON. Objects of strings, numbers, maps and lists always have such a form.
    pub(super) fn encode(self, object: &impl Serialize) -> String {
        if self.pretty {
            serde_json::to_string_pretty(object).unwrap_or_default()
        } else {
            serde_json::to_string(object).map(|text| text + "\n").unwrap_or_default()
        }
    }
}

/// Decodes `%xx`; `None` if an escape is broken or the result is not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' {
            let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
