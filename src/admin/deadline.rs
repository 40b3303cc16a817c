//! Deadlines of calls: a client's `grpc-timeout`, for answers as well as for streams, and the server's own for requests, for
//! reflection, and for whatever a caller without credentials asks for.
//!
//! A call whose time is over is dropped where it waits, and its client told `DEADLINE_EXCEEDED`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};
use tonic::body::Body;
use tower::{Layer, Service};

use super::authorize::{METHODS, is_known};
use super::errors::timed_out;

/// The header: a number of at most eight digits and a unit.
const TIMEOUT: &str = "grpc-timeout";
/// Reflection alone takes requests for as long as its caller likes: one after the other, on one stream.
const REFLECTION: &str = "/grpc.reflection.";
/// The prefix of the paths of this API's methods.
const API: &str = "/coxswain.admin.v1.";
/// Within which a request must be there, whatever deadline its caller has or has not set: it is a few bytes.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The longest that a call without credentials may last, and that reflection may last for anybody: their places are few, and
/// who wants more of it calls again.
const SHORT_CALL: Duration = Duration::from_mins(1);

/// The longest that any other call which is no stream may last: longer than one that waits for a phase or a leader.
const LONG_CALL: Duration = Duration::from_secs(150);

/// Puts deadlines on a service's calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadlines<S>;

    fn layer(&self, inner: S) -> Deadlines<S> {
        Deadlines { inner }
    }
}

/// A service whose calls have deadlines.
#[derive(Clone, Debug)]
pub(super) struct Deadlines<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let request = if request.uri().path().starts_with(REFLECTION) {
            request
        } else {
            request.map(|body| Body::new(TimelyBody { body, end: None }))
        };
        let header = request.headers().get(TIMEOUT).map(parse);
        let deadline = match (header, longest(&request)) {
            (None, None) => return Box::pin(self.inner.call(request)),
            (None, Some(longest)) => Instant::now().checked_add(longest),
            (Some(Some(timeout)), longest) => {
                Instant::now().checked_add(longest.map_or(timeout, |longest| timeout.min(longest)))
            }
            (Some(None), _) => {
                let mut violations = super::errors::Violations::default();
                violations.add(TIMEOUT, "expected at most 8 digits and a unit: H, M, S, m, u or n");
                let status = violations.check().err().unwrap_or_else(|| timed_out("invalid timeout"));
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            // So far in the future that there is none.
            let Some(deadline) = deadline else { return answer.await };
            match timeout_at(deadline, answer).await {
                Ok(answer) => answer.map(|response| {
                    response.map(|body| {
                        Body::new(UntilBody { body, end: Box::pin(sleep_until(deadline)), ended: false })
                    })
                }),
                Err(_elapsed) => Ok(timed_out("the call's deadline expired").into_http()),
            }
        })
    }
}

/// For how long a call may last at most, if there is a limit.
fn longest(request: &Request<Body>) -> Option<Duration> {
    let path = request.uri().path();
    if path.starts_with(REFLECTION) || !is_known(request.extensions()) {
        return Some(SHORT_CALL);
    }
    is_unary(path).then_some(LONG_CALL)
}

/// Whether a path is that of a method of this API which is no stream.
fn is_unary(path: &str) -> bool {
    let method = path.strip_prefix(API).and_then(|rpc| METHODS.iter().find(|method| method.rpc == rpc));
    method.is_some_and(|method| method.verb != "watch")
}

/// `17m`: seventeen milliseconds. `None` if it is not of this form.
fn parse(value: &HeaderValue) -> Option<Duration> {
    let (number, unit) = value.to_str().ok()?.split_at_checked(value.len().checked_sub(1)?)?;
    if number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A request's body that fails with `DEADLINE_EXCEEDED` if its end does not come in time from the first wait for it.
struct TimelyBody {
    body: Body,
    end: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for TimelyBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let end = this.end.get_or_insert_with(|| Box::pin(sleep(REQUEST_TIME)));
        let late = || timed_out(format!("receive the request: timed out after {REQUEST_TIME:?}"));
        end.as_mut().poll(context).map(|()| Some(Err(late())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// A body that ends with `DEADLINE_EXCEEDED` when its time is over.
struct UntilBody {
    body: Body,
    end: Pin<Box<Sleep>>,
    ended: bool,
}

impl http_body::Body for UntilBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // The deadline first: a stream that always has something to say must end too.
        if self.end.as_mut().poll(context).is_pending() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        self.ended = true;
        self.body = Body::empty();
        let mut trailers = HeaderMap::new();
        let status = timed_out("the call's deadline expired");
        // Only a message that is no header could fail, and then the error ends the stream all the same.
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use coxswain_machinery::serve::UserInfo;

    /// A caller who showed credentials.
    fn known() -> Arc<UserInfo> {
        Arc::new(UserInfo { name: "jane".to_owned(), ..UserInfo::default() })
    }

    /// Calls a service that takes a second to answer, and a second more for its body.
    async fn call(timeout: Option<&'static str>) -> (Option<i32>, Option<i32>) {
        let slow = tower::service_fn(|_: Request<Body>| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let body = futures::stream::once(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, tonic::Status>(Frame::data(Bytes::from_static(b"late")))
            });
            Ok::<_, Infallible>(Response::new(Body::new(http_body_util::StreamBody::new(body))))
        });
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(known());
        if let Some(timeout) = timeout {
            request.headers_mut().insert(TIMEOUT, HeaderValue::from_static(timeout));
        }
        let response = DeadlineLayer.layer(slow).oneshot(request).await.unwrap();
        let status = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
        let head = status(response.headers());
        let body = response.into_body().collect().await.unwrap();
        (head, body.trailers().and_then(status))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_its_deadline_wherever_it_is() {
        assert_eq!(call(None).await, (None, None));
        assert_eq!(call(Some("3S")).await, (None, None));
        assert_eq!(call(Some("99999999H")).await, (None, None));
        assert_eq!(call(Some("500m")).await, (Some(4), None));
        assert_eq!(call(Some("1500m")).await, (None, Some(4)));
        assert_eq!(call(Some("soon")).await, (Some(3), None));
    }

    #[test]
    fn unary_calls_have_a_limit_and_streams_have_none() {
        let longest = |path: &str| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            request.extensions_mut().insert(known());
            super::longest(&request)
        };
        for method in METHODS {
            let limit = (method.verb != "watch").then_some(LONG_CALL);
            assert_eq!(longest(&format!("{API}{}", method.rpc)), limit, "{}", method.rpc);
        }
        assert_eq!(longest("/grpc.health.v1.Health/Watch"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_is_not_waited_for() {
        let reader = tower::service_fn(|request: Request<Body>| async {
            let read = request.into_body().collect().await;
            let status = read.map_or_else(|status| status, |_| tonic::Status::ok("read"));
            Ok::<_, Infallible>(status.into_http::<Body>())
        });
        let call = async |path: &str| {
            let endless = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            let mut request = Request::new(Body::new(http_body_util::StreamBody::new(endless)));
            *request.uri_mut() = path.parse().unwrap();
            let answer = DeadlineLayer.layer(reader).oneshot(request);
            let answer = tokio::time::timeout(2 * REQUEST_TIME, answer).await;
            answer.map(|response| response.unwrap().headers()["grpc-status"].clone())
        };
        assert_eq!(call("/coxswain.admin.v1.ControllerService/GetController").await.unwrap(), "4");
        assert!(call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_and_reflection_have_a_minute_whatever_they_ask_for() {
        let endless = tower::service_fn(|_: Request<Body>| async {
            let silence = futures::stream::pending::<Result<Frame<Bytes>, tonic::Status>>();
            Ok::<_, Infallible>(Response::new(Body::new(http_body_util::StreamBody::new(silence))))
        });
        let call = async |path: &str, user: Option<Arc<UserInfo>>, timeout: Option<&'static str>| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            if let Some(user) = user {
                request.extensions_mut().insert(user);
            }
            if let Some(timeout) = timeout {
                request.headers_mut().insert(TIMEOUT, HeaderValue::from_static(timeout));
            }
            let began = Instant::now();
            let response = DeadlineLayer.layer(endless).oneshot(request).await.unwrap();
            let end =
                tokio::time::timeout(Duration::from_hours(1), response.into_body().collect()).await.ok()?;
            let status = end.unwrap().trailers()?.get("grpc-status")?.to_str().ok()?.to_owned();
            Some((status, began.elapsed().as_secs()))
        };
        let minute = Some(("4".to_owned(), 60));
        let (watch, reflection) = ("/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/X");
        assert_eq!(call(watch, None, None).await, minute);
        assert_eq!(call(watch, Some(Arc::new(UserInfo::anonymous())), Some("9H")).await, minute);
        assert_eq!(call(watch, None, Some("5S")).await, Some(("4".to_owned(), 5)));
        assert_eq!(call(reflection, Some(known()), None).await, minute);
        assert_eq!(call(watch, Some(known()), None).await, None, "who is known stays as long as they like");
    }

    #[test]
    fn timeouts_are_a_number_and_a_unit() {
        let parsed = |text: &str| parse(&HeaderValue::from_str(text).unwrap());
        assert_eq!(parsed("1H"), Some(Duration::from_hours(1)));
        assert_eq!(parsed("2M"), Some(Duration::from_mins(2)));
        assert_eq!(parsed("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parsed("5m"), Some(Duration::from_millis(5)));
        assert_eq!(parsed("0u"), Some(Duration::ZERO));
        assert_eq!(parsed("7n"), Some(Duration::from_nanos(7)));
        for wrong in ["", "S", "1", "1s", "-1S", "+1S", "123456789S", "1 S", "1é"] {
            assert_eq!(
                HeaderValue::from_bytes(wrong.as_bytes()).ok().and_then(|value| parse(&value)),
                None,
                "{wrong:?}"
            );
        }
    }
}
