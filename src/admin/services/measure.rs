//! Counts and measures each call.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use crate::admin::metrics::{AdminMetrics, Method};

/// Measures the calls of a service.
#[derive(Clone, Debug)]
pub(super) struct Measured<S> {
    pub(super) inner: S,
    pub(super) metrics: AdminMetrics,
}

impl<S> Service<Request<Body>> for Measured<S>
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
        let metrics = self.metrics.clone();
        let mut call = Call { of: metrics.method(request.uri().path()), metrics, code: Code::Cancelled };
        let began = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            call.metrics.answered(&call.of, began.elapsed().as_secs_f64());
            // Where a call fails at once, its status is in the head.
            call.see(response.headers());
            Ok(response.map(|body| Body::new(MeasuredBody { body, call })))
        })
    }
}

/// A call under way; it is counted when it is dropped.
struct Call {
    metrics: AdminMetrics,
    of: Method,
    /// Until there is a status nobody waits for one.
    code: Code,
}

impl Call {
    fn see(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            self.code = Code::from_bytes(status.as_bytes());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.metrics.ended(&self.of, self.code);
    }
}

struct MeasuredBody {
    body: Body,
    call: Call,
}

impl http_body::Body for MeasuredBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.call.see(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.call.code = status.code(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use coxswain_machinery::telemetry::{Registry, encode_text};

    /// A stream of one message that ends with this status.
    fn streaming(code: &'static str) -> Body {
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code.parse().unwrap())]);
        let frames =
            [Ok::<_, Status>(Frame::data(Bytes::from_static(b"one"))), Ok(Frame::trailers(trailers))];
        Body::new(StreamBody::new(futures::stream::iter(frames)))
    }

    #[tokio::test]
    async fn calls_are_counted_by_their_status_and_by_known_names_alone() {
        let registry = Registry::new();
        let metrics = AdminMetrics::register(&registry).unwrap();
        let service = service_fn(|request: Request<Body>| async move {
            let refused = Response::builder().header("grpc-status", "5").body(Body::empty()).unwrap();
            Ok(if request.uri().path().ends_with("GetController") {
                refused
            } else {
                Response::new(streaming("0"))
            })
        });
        let call = async |path: &str| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            Measured { inner: service, metrics: metrics.clone() }.oneshot(request).await.unwrap()
        };
        drop(call("/coxswain.admin.v1.ControllerService/GetController").await);
        let stream = "/coxswain.admin.v1.EventService/StreamEvents";
        call(stream).await.into_body().collect().await.unwrap();
        drop(call(stream).await);
        drop(call("/made.up/By-4711").await);
        let open = (metrics.stream(), metrics.stream());
        drop(open.0);
        metrics.events_dropped(7);
        let page = encode_text(&registry);
        let of = |code, method, service| {
            format!(
                "coxswain_admin_requests_total{{code=\"{code}\",method=\"{method}\",service=\"{service}\"}} 1\n"
            )
        };
        for series in [
            of("NotFound", "GetController", "coxswain.admin.v1.ControllerService"),
            of("OK", "StreamEvents", "coxswain.admin.v1.EventService"),
            of("Cancelled", "StreamEvents", "coxswain.admin.v1.EventService"),
            of("Cancelled", "unknown", "unknown"),
            "coxswain_admin_open_streams 1\n".to_owned(),
            "coxswain_admin_events_dropped_total 7\n".to_owned(),
        ] {
            assert!(page.contains(&series), "{series} in {page}");
        }
        assert!(!page.contains("4711"));
    }
}
