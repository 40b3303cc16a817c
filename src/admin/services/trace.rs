//! A span for each call, which continues its caller's trace, if the caller is known.
//!
//! A trace's parent says whether it is recorded, so that is not left to strangers; nor are the names of spans, by which
//! backends keep their indexes: what is no method of ours has one name.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tower::Service;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::admin::authorize::is_known;
use crate::admin::metrics::{AdminMetrics, Method};
use coxswain_machinery::telemetry::tracing::continue_from;

/// Traces the calls of a service, each to the head of its response: a stream may go on for days.
#[derive(Clone, Debug)]
pub(super) struct Traced<S> {
    pub(super) inner: S,
    pub(super) metrics: AdminMetrics,
}

impl<S, I, O> Service<Request<I>> for Traced<S>
where
    S: Service<Request<I>, Response = Response<O>, Error = Infallible, Future: Send + 'static>,
{
    type Response = Response<O>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<O>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let span = span(&self.metrics.method(request.uri().path()));
        if is_known(request.extensions()) {
            continue_from(&span, request.headers());
        }
        let answer = span.in_scope(|| self.inner.call(request));
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
fn span(of: &Method) -> Span {
    let (service, method) = of.names();
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
    use std::sync::Arc;

    use tower::{ServiceExt as _, service_fn};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use coxswain_machinery::serve::UserInfo;
    use coxswain_machinery::telemetry::Registry;
    use coxswain_machinery::telemetry::tracing::{Tracing, present};

    const SYNC: &str = "/coxswain.admin.v1.QueueService/SyncObject";
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    /// Calls these paths, each with a parent that wants to be recorded, and tells the traces that the calls were in.
    fn traced(user: &UserInfo, paths: &[&str], rate: i32) -> (Vec<String>, Tracing) {
        let traces = Tracing::unsent(rate);
        let subscriber = tracing_subscriber::Registry::default().with(vec![traces.layer()]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let within = service_fn(|_: Request<()>| async {
            let response = Response::builder().header("grpc-status", "7");
            Ok(response.body(present()).unwrap())
        });
        let metrics = AdminMetrics::register(&Registry::new()).unwrap();
        let ids = tracing::subscriber::with_default(subscriber, || {
            let call = |path: &&str| {
                let request = Request::post(*path)
                    .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
                    .extension(Arc::new(user.clone()));
                let service = Traced { inner: within, metrics: metrics.clone() };
                let answer = runtime.block_on(service.oneshot(request.body(()).unwrap())).unwrap();
                answer.into_body().map(|ids| ids.trace_hex()).unwrap_or_default()
            };
            paths.iter().map(call).collect()
        });
        (ids, traces)
    }

    #[test]
    fn a_call_continues_its_callers_trace() {
        let jane = UserInfo { name: "jane".to_owned(), ..UserInfo::default() };
        let (ids, mut traces) = traced(&jane, &[SYNC], 0);
        assert_eq!(ids, [TRACE]);
        let spans = traces.recorded();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].name, "coxswain.admin.v1.QueueService/SyncObject");
        assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
        assert_ne!(spans[0].status, opentelemetry::trace::Status::Unset);
    }

    #[test]
    fn a_stranger_has_nothing_recorded_and_continues_nothing() {
        let (_, mut traces) = traced(&UserInfo::anonymous(), &[SYNC, "/made.up/By-4711"], 0);
        let spans = traces.recorded();
        assert!(spans.is_empty(), "{spans:?}");
        // Where all is recorded, theirs are traces of their own, by names of ours.
        let (ids, mut traces) = traced(&UserInfo::anonymous(), &[SYNC, "/made.up/By-4711", "/x"], 1_000_000);
        assert!(ids.iter().all(|id| id != TRACE), "{ids:?}");
        let spans = traces.recorded();
        let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(
            names,
            ["coxswain.admin.v1.QueueService/SyncObject", "unknown/unknown", "unknown/unknown"]
        );
    }
}
