//! What every request goes through: decode, authenticate, authorize, answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};

use super::answers::{AnswerBody, PageHandler, RequestBody, RequestHints};
use super::answers::{finish, forbidden, full, not_found, percent_decode, text, unauthorized};
use super::authn::{Authenticator, ClientCerts};
use super::authz::{Authorizer, Decision};
use super::limit::{Lines, quoted};
use super::options::Limits;
use super::router::Router;
use super::seats::Seat;
use super::user::UserInfo;
use crate::client::BoxError;

/// What handles all requests of a port.
pub(super) struct Chain {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) router: Arc<Router>,
    pub(super) limits: Limits,
    pub(super) refusals: Lines,
}

/// An answer, and whether who asked is known. The connection of one who is not should take no more requests.
pub(super) struct Answer {
    pub(super) response: Response<AnswerBody>,
    pub(super) known: bool,
}

/// `grpc-status` for a call whose user has too many busy connections.
const GRPC_RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
/// `grpc-status` for a call whose caller could not be told.
const GRPC_UNAUTHENTICATED: HeaderValue = HeaderValue::from_static("16");

impl Chain {
    /// Answers a request. Clients that are not known get one request per connection where a connection can carry
    /// many at once, so that opening and resetting streams costs them handshakes.
    pub(super) async fn answer<B>(&self, request: Request<B>, certs: &ClientCerts, seat: &Seat) -> Answer
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let head = request.method() == Method::HEAD;
        let Answer { mut response, known } = match self.router.find_grpc(request.method(), request.headers())
        {
            Some(handler) => self.answer_grpc(request, certs, seat, &handler).await,
            None => self.answer_page(request, certs, seat).await,
        };
        if head {
            strip_body(&mut response);
        }
        Answer { response, known }
    }

    async fn answer_grpc<B>(
        &self,
        request: Request<B>,
        certs: &ClientCerts,
        seat: &Seat,
        handler: &PageHandler,
    ) -> Answer
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        match self.authenticator.authenticate(&mut parts.headers, certs).await {
            Ok(user) => {
                let known = !user.is_anonymous();
                if known && !seat.identify(&user.name) {
                    let message = HeaderValue::from_static("too many busy connections for this user");
                    return Answer { response: refused_call(GRPC_RESOURCE_EXHAUSTED, message), known };
                }
                parts.extensions.insert(user);
                let body = body.map_err(Into::into).boxed_unsync();
                Answer { response: run(handler, Request::from_parts(parts, body)).await, known }
            }
            Err(reason) => {
                if let Some(left_out) = self.refusals.next() {
                    let path = quoted(parts.uri.path());
                    tracing::warn!(path, %reason, left_out, "Call not authenticated");
                }
                let message = HeaderValue::from_static("Unauthorized");
                Answer { response: refused_call(GRPC_UNAUTHENTICATED, message), known: false }
            }
        }
    }

    async fn answer_page<B>(&self, request: Request<B>, certs: &ClientCerts, seat: &Seat) -> Answer
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let begun = tokio::time::Instant::now();
        let method = request.method().clone();
        let (mut response, path, user) = self.page(request, certs, seat).await;
        finish(response.headers_mut());
        let known = user.as_ref().is_some_and(|user| !user.is_anonymous());
        tracing::debug!(
            %method,
            path,
            user = user.as_ref().map(|user| user.name.as_str()),
            code = response.status().as_u16(),
            took = ?begun.elapsed(),
            "Served a request"
        );
        Answer { response, known }
    }

    /// The answer, the path as decoded, and who asked.
    async fn page<B>(
        &self,
        request: Request<B>,
        certs: &ClientCerts,
        seat: &Seat,
    ) -> (Response<AnswerBody>, String, Option<Arc<UserInfo>>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let hints = RequestHints::of(&parts.headers, parts.uri.query());
        // Decoded once, here: what is authorized is what is looked up.
        let Some(path) = percent_decode(parts.uri.path()).filter(|path| path.starts_with('/')) else {
            return (text(StatusCode::BAD_REQUEST, "400 Bad Request\n"), String::new(), None);
        };
        let user = match self.authenticator.authenticate(&mut parts.headers, certs).await {
            Ok(user) => user,
            Err(reason) => {
                if let Some(left_out) = self.refusals.next() {
                    tracing::warn!(path = quoted(&path), %reason, left_out, "Request not authenticated");
                }
                return (unauthorized(hints), path, None);
            }
        };
        // The connection of a known user matters more from then on.
        if !user.is_anonymous() && !seat.identify(&user.name) {
            let message =
                format!("429 Too Many Requests: user {:?} has too many busy connections\n", user.name);
            return (text(StatusCode::TOO_MANY_REQUESTS, message), path, Some(user));
        }
        let verb = parts.method.as_str().to_ascii_lowercase();
        let response = match self.authorizer.authorize_path(&user, &verb, &path).await {
            Ok(Decision::Allowed) => match self.router.find(&path) {
                Some(handler) => {
                    parts.extensions.insert(Arc::clone(&user));
                    run(&handler, Request::from_parts(parts, self.limited(body))).await
                }
                None => not_found(),
            },
            Ok(Decision::Denied { reason }) => {
                let mut message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                if !reason.is_empty() {
                    message = format!("{message}: {reason}");
                }
                forbidden(hints, &message)
            }
            Err(error) => {
                if let Some(left_out) = self.refusals.next() {
                    let (path, user) = (quoted(&path), quoted(&user.name));
                    tracing::error!(path, user, %error, left_out, "Failed to authorize a request");
                }
                let message = format!("Internal Server Error: {path:?}: {error}\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        };
        (response, path, Some(user))
    }

    /// A body that ends in an error when it gets too long or takes too long.
    fn limited<B>(&self, body: B) -> RequestBody
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = Limited::new(body, self.limits.body_bytes);
        TimedBody { body: Box::pin(body), limit: self.limits.body_time, deadline: None }.boxed_unsync()
    }
}

/// The answer to a call that no handler gets.
fn refused_call(status: HeaderValue, message: HeaderValue) -> Response<AnswerBody> {
    let mut response = Response::new(full(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", status);
    headers.insert("grpc-message", message);
    response
}

/// Runs a handler; one that panics costs its request and nothing else.
async fn run(handler: &PageHandler, request: Request<RequestBody>) -> Response<AnswerBody> {
    let path = request.uri().path().to_owned();
    // A handler may panic when it is called as well as when its future is polled.
    let answer = async { handler(request).await };
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(_panic) => {
            tracing::error!(path, "A request handler panicked");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error: the request handler panicked; see the server log\n",
            )
        }
    }
}

/// The answer to `HEAD`: all but the body.
fn strip_body(response: &mut Response<AnswerBody>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = full(Bytes::new());
}

/// The request's body was not there in time.
#[derive(Debug, thiserror::Error)]
#[error("read request body: timed out after {0:?}")]
struct BodyTimeout(Duration);

/// A body whose end must come within a time from the first look at it.
struct TimedBody<B> {
    body: std::pin::Pin<Box<B>>,
    limit: Duration,
    deadline: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let std::task::Poll::Ready(frame) = this.body.as_mut().poll_frame(context) {
            return std::task::Poll::Ready(frame);
        }
        let limit = this.limit;
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        deadline.as_mut().poll(context).map(|()| Some(Err(BodyTimeout(limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
