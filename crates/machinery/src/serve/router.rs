//! Which handler answers a path. Handlers come and go while the server runs.
//!
//! Exact paths win over prefixes, longer prefixes over shorter ones; a trailing slash is another path. Everything here
//! is behind authentication and authorization; a gRPC service is behind authentication alone and judges each call by
//! itself, for it alone knows what a call is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Uri, header};
use parking_lot::RwLock;

use super::answers::{PageHandler, RequestBody};

#[derive(Clone)]
struct Route {
    handler: PageHandler,
    listed: bool,
}

struct Grpc {
    handler: PageHandler,
    browsers: bool,
}

#[derive(Default)]
struct Routes {
    exact: BTreeMap<String, Route>,
    prefixes: BTreeMap<String, Route>,
    grpc: Option<Grpc>,
}

/// The table of handlers. Share it in an `Arc`.
#[derive(Default)]
pub struct Router {
    routes: RwLock<Routes>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.paths()).finish()
    }
}

/// Below this, controllers' own pages.
const DEBUG_CONTROLLERS: &str = "/debug/controllers";

impl Router {
    /// An empty table: every path is a 404.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers exactly this path, in the place of what answered it before. It is listed on `/statusz`.
    pub fn add(&self, path: impl Into<String>, handler: PageHandler) {
        self.routes.write().exact.insert(path.into(), Route { handler, listed: true });
    }

    /// As [`Router::add`], and not listed.
    pub fn add_unlisted(&self, path: impl Into<String>, handler: PageHandler) {
        self.routes.write().exact.insert(path.into(), Route { handler, listed: false });
    }

    /// Answers every path that begins with this, which should end in a slash.
    pub fn add_prefix(&self, prefix: impl Into<String>, handler: PageHandler) {
        self.routes.write().prefixes.insert(prefix.into(), Route { handler, listed: false });
    }

    /// Stops answering an exact path or a prefix; whether it was answered.
    pub fn remove(&self, path: &str) -> bool {
        let mut routes = self.routes.write();
        let exact = routes.exact.remove(path).is_some();
        routes.prefixes.remove(path).is_some() || exact
    }

    /// A controller's debug pages: `/debug/controllers/NAME` and all below it. The handler sees the path without that.
    pub fn add_debug(&self, controller: &str, handler: &PageHandler) {
        let base = format!("{DEBUG_CONTROLLERS}/{controller}");
        let inner = Arc::clone(handler);
        let prefix = base.clone();
        let stripped: PageHandler = Arc::new(move |request| inner(strip(request, &prefix)));
        self.add_prefix(format!("{base}/"), Arc::clone(&stripped));
        self.add_unlisted(base, stripped);
    }

    /// Removes a controller's debug pages; whether there were any.
    pub fn remove_debug(&self, controller: &str) -> bool {
        let base = format!("{DEBUG_CONTROLLERS}/{controller}");
        let prefix = self.remove(&format!("{base}/"));
        self.remove(&base) || prefix
    }

    /// Answers every gRPC call (`content-type: application/grpc…`), behind authentication; the service authorizes. With
    /// `browsers` also their question whether a page of another origin may call (CORS preflight), which carries no
    /// credentials.
    pub fn mount_grpc(&self, handler: PageHandler, browsers: bool) {
        self.routes.write().grpc = Some(Grpc { handler, browsers });
    }

    /// The paths that are listed, in order.
    pub fn paths(&self) -> Vec<String> {
        let routes = self.routes.read();
        routes.exact.iter().filter(|(_, route)| route.listed).map(|(path, _)| path.clone()).collect()
    }

    /// Who answers a path, already decoded.
    pub(super) fn find(&self, path: &str) -> Option<PageHandler> {
        let routes = self.routes.read();
        if let Some(route) = routes.exact.get(path) {
            return Some(Arc::clone(&route.handler));
        }
        let longest = routes.prefixes.iter().rev().find(|(prefix, _)| path.starts_with(prefix.as_str()));
        longest.map(|(_, route)| Arc::clone(&route.handler))
    }

    /// Who answers gRPC calls, if this is one.
    pub(super) fn find_grpc(&self, method: &Method, headers: &HeaderMap) -> Option<PageHandler> {
        let is_grpc = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let is_preflight =
            method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_grpc && !is_preflight {
            return None;
        }
        let routes = self.routes.read();
        let grpc = routes.grpc.as_ref().filter(|grpc| is_grpc || grpc.browsers)?;
        Some(Arc::clone(&grpc.handler))
    }
}

/// The request with a path that lacks the prefix. A path that cannot be put together again stays as it is.
fn strip(mut request: Request<RequestBody>, prefix: &str) -> Request<RequestBody> {
    let Some(rest) = request.uri().path().strip_prefix(prefix) else { return request };
    let path = if rest.is_empty() { "/" } else { rest };
    let target = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    if let Ok(uri) = Uri::try_from(target) {
        *request.uri_mut() = uri;
    }
    request
}
