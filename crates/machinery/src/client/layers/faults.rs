//! Faults on purpose, for tests: what a network and an API server under stress do to a client.
//!
//! Only tests make a [`Faults`]; a client that was not given one has no such layer. The dice are seeded, so that a
//! run which fails can be run again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Middleware, Next};
use crate::client::api::{BoxError, ResponseBody};
use crate::client::request::RequestIntent;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The connection breaks before the request is sent.
    Drop,
    /// The request is carried out, but its answer is lost.
    LoseAnswer,
    /// The request is sent after this long.
    Delay(Duration),
    /// No answer ever comes; only the timeout ends it.
    Stall,
    /// The API server answers with this status instead, without carrying the request out.
    Status {
        /// HTTP status code.
        code: StatusCode,
        /// Reason in the `Status` object: `Conflict`, `Expired`, `TooManyRequests` …
        reason: &'static str,
        /// `Retry-After` in seconds.
        retry_after: Option<u32>,
    },
    /// The body breaks off with an error after this many bytes.
    Cut {
        /// Bytes let through.
        after: usize,
    },
    /// The body says no more after this many bytes, and does not end.
    Freeze {
        /// Bytes let through.
        after: usize,
    },
}

/// Which requests a fault befalls.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Only requests of this method.
    pub method: Option<Method>,
    /// Only paths that match; `*` stands for any text. Empty for all.
    pub path: String,
    /// Only watches, or only what is none.
    pub watch: Option<bool>,
    /// How likely it is, from 0 to 1.
    pub probability: f64,
    /// How often it happens at most.
    pub limit: Option<usize>,
}

impl FaultRule {
    /// A fault that befalls every request, always.
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, path: String::new(), watch: None, probability: 1.0, limit: None }
    }

    /// Restricts it to a method.
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Restricts it to paths; `*` stands for any text.
    pub fn path(mut self, pattern: impl Into<String>) -> Self {
        self.path = pattern.into();
        self
    }

    /// Restricts it to watches, or to what is none.
    pub fn watch(mut self, watch: bool) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Makes it happen with this probability.
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Makes it happen this often at most.
    pub fn times(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    fn matches(&self, request: &ApiRequest) -> bool {
        self.limit != Some(0)
            && self.method.as_ref().is_none_or(|method| method == request.method())
            && self.watch.is_none_or(|watch| watch == RequestIntent::of(request).is_watch())
            && (self.path.is_empty() || glob(&self.path, request.uri().path()))
    }
}

/// The faults of a test, shared between the test and the clients that suffer them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rules: Vec<FaultRule>,
    dice: StdRng,
    hits: usize,
}

impl Faults {
    /// No faults yet; `seed` decides every later throw of the dice.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State { rules: Vec::new(), dice: StdRng::seed_from_u64(seed), hits: 0 })))
    }

    /// Adds a rule. The first that matches and whose dice fall decides.
    pub fn add(&self, rule: FaultRule) {
        self.0.lock().rules.push(rule);
    }

    /// All is well again.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// How many requests were befallen.
    pub fn hits(&self) -> usize {
        self.0.lock().hits
    }

    fn throw(&self, request: &ApiRequest) -> Option<Fault> {
        let mut state = self.0.lock();
        let State { rules, dice, hits } = &mut *state;
        let rule = rules
            .iter_mut()
            .find(|rule| rule.matches(request) && dice.random_bool(rule.probability.clamp(0.0, 1.0)))?;
        if let Some(left) = &mut rule.limit {
            *left -= 1;
        }
        *hits += 1;
        Some(rule.fault.clone())
    }
}

impl Middleware for Faults {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        match self.throw(&request) {
            None => next.oneshot(request).await,
            Some(Fault::Drop) => Err("fault: the connection broke".into()),
            Some(Fault::LoseAnswer) => {
                let response = next.oneshot(request).await?;
                // The whole answer is awaited, so that the server is done with it.
                response.into_body().collect().await?;
                Err("fault: the answer was lost".into())
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                next.oneshot(request).await
            }
            Some(Fault::Stall) => std::future::pending().await,
            Some(Fault::Status { code, reason, retry_after }) => Ok(status(code, reason, retry_after)),
            Some(Fault::Cut { after }) => {
                let response = next.oneshot(request).await?;
                Ok(response.map(|body| Broken { body, left: after, freeze: false }.boxed_unsync()))
            }
            Some(Fault::Freeze { after }) => {
                let response = next.oneshot(request).await?;
                Ok(response.map(|body| Broken { body, left: after, freeze: true }.boxed_unsync()))
            }
        }
    }
}

fn status(code: StatusCode, reason: &str, retry_after: Option<u32>) -> ApiResponse {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "fault: answered on purpose", "reason": reason, "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A body that breaks off, or falls silent, after so many bytes.
struct Broken {
    body: ResponseBody,
    left: usize,
    freeze: bool,
}

impl Body for Broken {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.left == 0 {
            if this.freeze {
                // No waker is kept: nothing will ever wake it, which is what silence is.
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err("fault: the body broke off".into())));
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(mut data) => {
                    data.truncate(this.left);
                    this.left -= data.len();
                    Frame::data(data)
                }
                Err(frame) => frame,
            }))),
            other => other,
        }
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            rest.is_empty()
                || text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| glob(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, expected) in [
            ("/api/v1/pods", "/api/v1/pods", true),
            ("/api/v1/pods", "/api/v1/pods/x", false),
            ("*/pods", "/api/v1/namespaces/a/pods", true),
            ("*/pods/*", "/api/v1/namespaces/a/pods/b/status", true),
            ("*/pods/*", "/api/v1/namespaces/a/pods", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
