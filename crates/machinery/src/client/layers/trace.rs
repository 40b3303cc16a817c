//! A span for each request, and the W3C headers that join the API server's spans to it.
//!
//! Attributes are those of OpenTelemetry's semantic conventions for HTTP clients, and Kubernetes' own words for what is
//! asked. With tracing off, or in a trace that is not recorded, there is no span.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use tower::ServiceExt;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, WritesStopped, hook};
use crate::client::RequestTimeout;
use crate::client::api::BoxError;
use crate::client::request::{Part, Purpose, RequestIntent};
use crate::telemetry::tracing::{child, inject};

/// Traces the requests to one server.
#[derive(Clone)]
pub(in crate::client) struct Trace {
    /// Scheme and authority.
    pub(in crate::client) server: Arc<str>,
}

impl Trace {
    fn span(&self, request: &ApiRequest) -> Span {
        let asked = Asked::of(request);
        let address = self.server.split_once("://").map_or(&*self.server, |(_, authority)| authority);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "443"));
        tracing::debug_span!(
            "request",
            otel.name = %asked,
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            http.request.method = %request.method(),
            http.response.status_code = Empty,
            url.full = %Url { server: &self.server, request },
            server.address = host.trim_matches(['[', ']']),
            // The layer of traces knows signed numbers only, and makes text of others.
            server.port = port.parse::<u16>().ok().map(i64::from),
            "error.type" = Empty,
            k8s.request.verb = asked.verb,
            k8s.request.group = asked.group,
            k8s.request.resource = asked.resource,
            k8s.request.subresource = asked.subresource,
            k8s.namespace.name = asked.namespace.as_deref(),
            k8s.object.name = asked.name.as_deref(),
            // Told by the layer of the rate limit, below.
            coxswain.rate_limit.wait_us = Empty,
        )
    }
}

impl Middleware for Trace {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let span = child(|| self.span(&request));
        if span.is_disabled() {
            // That the present trace is not recorded is to be known to the server too.
            inject(request.headers_mut());
            return next.oneshot(request).await;
        }
        let endless = RequestIntent::of(&request).is_watch();
        span.in_scope(|| inject(request.headers_mut()));
        match next.oneshot(request).instrument(span.clone()).await {
            Ok(response) => {
                let status = response.status();
                span.record("http.response.status_code", i64::from(status.as_u16()));
                if status.is_client_error() || status.is_server_error() {
                    refused(&span, status);
                }
                // A watch has no end that would be of interest: its span is that of opening it.
                Ok(if endless { response } else { hook(response, Open(span)) })
            }
            Err(error) => {
                failed(&span, &error);
                Err(error)
            }
        }
    }
}

fn refused(span: &Span, status: StatusCode) {
    span.record("error.type", status.as_str());
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", status.canonical_reason().unwrap_or_default());
}

fn failed(span: &Span, error: &BoxError) {
    let kind = if error.is::<RequestTimeout>() {
        "timeout"
    } else if error.is::<WritesStopped>() {
        "writes_stopped"
    } else {
        "transport"
    };
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", display(error));
}

/// The span of a request whose response is being read; it ends with the body.
struct Open(Span);

impl Hook for Open {
    fn done(&mut self) {
        // A span ends when it was last entered.
        self.0.in_scope(|| ());
    }
}

/// What a request asks for, in Kubernetes' words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked<'a> {
    verb: &'static str,
    group: Option<&'a str>,
    resource: Option<&'a str>,
    subresource: Option<&'a str>,
    namespace: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
}

impl<'a> Asked<'a> {
    /// Follows from the typed parts that the request was built from; its text is not parsed.
    fn of(request: &'a ApiRequest) -> Self {
        let Some(Purpose { intent, layout }) = request.extensions().get() else {
            return Self { verb: RequestIntent::of(request).verb(), ..Self::default() };
        };
        let path = request.uri().path();
        let part = |part: Option<Part>| part.map(|part| part.of(path));
        let decoded = |held| part(held).map(|text| percent_decode_str(text).decode_utf8_lossy());
        let resource = part(layout.resource);
        // These are the Namespace's own.
        let namespace = decoded(layout.namespace);
        let namespace = namespace.or_else(|| decoded(layout.name.filter(|_| resource == Some("namespaces"))));
        Self {
            verb: intent.verb(),
            group: part(layout.group),
            resource,
            subresource: part(layout.subresource),
            namespace,
            name: decoded(layout.name),
        }
    }
}

impl fmt::Display for Asked<'_> {
    /// A name of few values, as conventions ask for: `update deployments/status`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.resource, self.subresource) {
            (Some(resource), Some(subresource)) => write!(f, "{} {resource}/{subresource}", self.verb),
            (Some(resource), None) => write!(f, "{} {resource}", self.verb),
            (None, _) => write!(f, "{}", self.verb),
        }
    }
}

/// The whole URL, but for the token of a further page, which is long and says nothing.
struct Url<'a> {
    server: &'a str,
    request: &'a ApiRequest,
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.request.uri();
        write!(f, "{}{}", self.server, uri.path())?;
        let mut before = '?';
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let shown = if pair.starts_with("continue=") { "continue=…" } else { pair };
            write!(f, "{before}{shown}")?;
            before = '&';
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{ApiRequest, Asked, RequestIntent, Url};
    use crate::api::kinds::{DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS};
    use crate::client::request::{Query, RequestPath, build};

    fn request(intent: RequestIntent, path: RequestPath<'_>, query: &Query<'_>) -> ApiRequest {
        build(intent, &(path, query).into(), HeaderValue::from_static("*/*"), None).unwrap().1
    }

    #[test]
    fn span_is_named_by_typed_parts() {
        let pod = RequestPath::object(&PODS, "a", "b?watch=true");
        let deployment = RequestPath::object(&DEPLOYMENTS, "a", "b#c");
        let replica_sets = RequestPath::collection(&REPLICA_SETS, "a");
        let metrics = RequestPath::group_version("custom.metrics.k8s.io", "v1beta2").in_namespace("a");
        for (intent, path, name, namespace, object) in [
            (RequestIntent::List, RequestPath::collection(&PODS, ""), "list pods", None, None),
            (RequestIntent::Watch, RequestPath::collection(&PODS, ""), "watch pods", None, None),
            (RequestIntent::Get, pod, "get pods", Some("a"), Some("b?watch=true")),
            (
                RequestIntent::Create,
                pod.subresource(Some("eviction")),
                "create pods/eviction",
                Some("a"),
                Some("b?watch=true"),
            ),
            (
                RequestIntent::Patch,
                deployment.subresource(Some("status")),
                "patch deployments/status",
                Some("a"),
                Some("b#c"),
            ),
            (RequestIntent::DeleteCollection, replica_sets, "deletecollection replicasets", Some("a"), None),
            (RequestIntent::Delete, replica_sets.named("c"), "delete replicasets", Some("a"), Some("c")),
            (
                RequestIntent::Get,
                RequestPath::object(&NAMESPACES, "", "a"),
                "get namespaces",
                Some("a"),
                Some("a"),
            ),
            (RequestIntent::Document, RequestPath::GROUPS, "get", None, None),
            (RequestIntent::Document, RequestPath::group_version("apps", "v1"), "get", None, None),
            (RequestIntent::Get, RequestPath::HEALTHZ, "get", None, None),
            (RequestIntent::Get, metrics.series(&["pods", "*", "text of a user"]), "get", Some("a"), None),
        ] {
            let request = request(intent, path, Query::NONE);
            let asked = Asked::of(&request);
            assert_eq!(asked.to_string(), name, "{path}");
            assert_eq!((asked.namespace.as_deref(), asked.name.as_deref()), (namespace, object), "{path}");
        }
        let request = request(RequestIntent::List, RequestPath::collection(&DEPLOYMENTS, ""), Query::NONE);
        assert_eq!(Asked::of(&request).group, Some("apps"));
    }

    #[test]
    fn urls_are_whole_but_for_page_tokens() {
        let query = Query::default().with("limit", "500").with("continue", "abc");
        let request = request(RequestIntent::List, RequestPath::collection(&PODS, ""), &query);
        let url = Url { server: "https://host:6443", request: &request };
        assert_eq!(url.to_string(), "https://host:6443/api/v1/pods?limit=500&continue=…");
    }
}
