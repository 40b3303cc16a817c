//! A span for each request, and the W3C headers that join the API server's spans to it.
//!
//! Attributes are those of OpenTelemetry's semantic conventions for HTTP clients, and Kubernetes' own words for what is
//! asked. With tracing off, or in a trace that is not recorded, there is no span.

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use tower::ServiceExt;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, WritesStopped, hook, is_watch};
use crate::client::RequestTimeout;
use crate::client::api::BoxError;
use crate::telemetry::tracing::{child, inject};

/// Traces the requests to one server.
#[derive(Clone)]
pub(in crate::client) struct Trace {
    /// Scheme and authority.
    pub(in crate::client) server: Arc<str>,
}

impl Trace {
    fn span(&self, request: &ApiRequest) -> Span {
        let asked = Asked::of(request.method(), request.uri().path(), is_watch(request));
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
            k8s.namespace.name = asked.namespace,
            k8s.object.name = asked.name,
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
        let endless = is_watch(&request);
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
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(method: &Method, path: &'a str, watch: bool) -> Self {
        let mut rest = path.split('/').filter(|part| !part.is_empty());
        let group = match rest.next() {
            Some("api") => Some(""),
            Some("apis") => rest.next(),
            _ => None,
        };
        let mut asked = Self { group, verb: plain(method), ..Self::default() };
        let (Some(_), Some(_version)) = (group, rest.next()) else { return asked };
        let mut parts: Vec<&str> = rest.collect();
        if let ["namespaces", namespace, of, ..] = parts[..] {
            asked.namespace = Some(namespace);
            // These two are the Namespace's own.
            if !matches!(of, "status" | "finalize") {
                parts.drain(..2);
            }
        }
        let mut parts = parts.into_iter();
        asked.resource = parts.next();
        asked.name = parts.next();
        asked.subresource = parts.next();
        if asked.resource.is_some() {
            asked.verb = match (method.as_str(), asked.name.is_some()) {
                ("GET", _) if watch => "watch",
                ("GET", true) => "get",
                ("GET", false) => "list",
                ("POST", _) => "create",
                ("PUT", _) => "update",
                ("DELETE", false) => "deletecollection",
                _ => plain(method),
            };
        }
        asked
    }
}

fn plain(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
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
    use bytes::Bytes;
    use http::{Method, Request};
    use http_body_util::Full;

    use super::{Asked, Url};

    #[test]
    fn paths_say_what_is_asked() {
        for (method, path, watch, name, namespace, object) in [
            (Method::GET, "/api/v1/pods", false, "list pods", None, None),
            (Method::GET, "/api/v1/pods", true, "watch pods", None, None),
            (Method::GET, "/api/v1/namespaces/a/pods/b", false, "get pods", Some("a"), Some("b")),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods/b/eviction",
                false,
                "create pods/eviction",
                Some("a"),
                Some("b"),
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                false,
                "update namespaces/finalize",
                Some("a"),
                Some("a"),
            ),
            (Method::GET, "/api/v1/namespaces/a", false, "get namespaces", None, Some("a")),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/b/status",
                false,
                "patch deployments/status",
                Some("a"),
                Some("b"),
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/replicasets",
                false,
                "deletecollection replicasets",
                Some("a"),
                None,
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/replicasets/c",
                false,
                "delete replicasets",
                Some("a"),
                Some("c"),
            ),
            (Method::GET, "/apis", false, "get", None, None),
            (Method::GET, "/apis/apps/v1", false, "get", None, None),
            (Method::GET, "/readyz", false, "get", None, None),
        ] {
            let asked = Asked::of(&method, path, watch);
            assert_eq!(asked.to_string(), name, "{path}");
            assert_eq!((asked.namespace, asked.name), (namespace, object), "{path}");
        }
        assert_eq!(Asked::of(&Method::GET, "/apis/apps/v1/deployments", false).group, Some("apps"));
    }

    #[test]
    fn urls_are_whole_but_for_page_tokens() {
        let request =
            Request::get("/api/v1/pods?limit=500&continue=abc").body(Full::new(Bytes::new())).unwrap();
        let url = Url { server: "https://host:6443", request: &request };
        assert_eq!(url.to_string(), "https://host:6443/api/v1/pods?limit=500&continue=…");
    }
}
