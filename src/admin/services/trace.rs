//! A span for each call, which continues its caller's trace.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tower::Service;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use coxswain_machinery::telemetry::tracing::continue_from;

/// Traces the calls of a service, each to the head of its response: a stream may go on for days.
#[derive(Clone, Debug)]
pub(super) struct Traced<S>(pub(super) S);

impl<S, I, O> Service<Request<I>> for Traced<S>
where
    S: Service<Request<I>, Response = Response<O>, Error = Infallible, Future: Send + 'static>,
{
    type Response = Response<O>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<O>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let span = span(request.uri().path());
        continue_from(&span, request.headers());
        let answer = span.in_scope(|| self.0.call(request));
        let ended = span.clone();
        let answer = async move {
            let answer = answer.await;
            // Where a call fails at once, its status is in the head.
            let status = answer.as_ref().ok().and_then(|response| response.headers().get("grpc-status"));
            if let Some(status) = status.and_then(|status| status.to_str().ok()?.parse::<i64>().ok()) {
                ended.record("rpc.grpc.status_code", status);
                if status != 0 {
                    ended.record("otel.status_code", "ERROR");
                }
            }
            answer
        };
        Box::pin(answer.instrument(span))
    }
}

/// By the semantic conventions for RPC servers.
fn span(path: &str) -> Span {
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    tracing::debug_span!(
        "rpc",
        otel.name = %format_args!("{service}/{method}"),
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = Empty,
    )
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use coxswain_machinery::telemetry::tracing::{Tracing, present};

    #[test]
    fn a_call_continues_its_callers_trace() {
        let mut traces = Tracing::unsent(0);
        let subscriber = Registry::default().with(vec![traces.layer()]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let within = service_fn(|_: Request<()>| async {
            let response = Response::builder().header("grpc-status", "7");
            Ok(response.body(present()).unwrap())
        });
        tracing::subscriber::with_default(subscriber, || {
            let request = Request::post("/coxswain.admin.v1.QueueService/SyncObject")
                .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
            let request = request.body(()).unwrap();
            let answer = runtime.block_on(Traced(within).oneshot(request)).unwrap();
            let ids = answer.into_body().unwrap();
            assert_eq!(ids.trace_hex(), "0af7651916cd43dd8448eb211c80319c");
        });
        let spans = traces.recorded();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].name, "coxswain.admin.v1.QueueService/SyncObject");
        assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
        assert_ne!(spans[0].status, opentelemetry::trace::Status::Unset);
    }
}
