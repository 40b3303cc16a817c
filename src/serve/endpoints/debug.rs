//! `/debug/flags/v` and what is to be `/debug/pprof`.

use std::sync::Arc;

use futures::FutureExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;

use super::Debugging;
use crate::serve::answers::{RequestBody, ResponseBody, handler, respond, sync_handler, text};
use crate::serve::router::Router;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

/// The profiles of the original, none of which is taken yet.
const PROFILES: &[&str] = &[
    "allocs",
    "block",
    "cmdline",
    "goroutine",
    "heap",
    "mutex",
    "profile",
    "symbol",
    "threadcreate",
    "trace",
];

pub(super) fn install(router: &Router, debugging: &Debugging) {
    let flags =
        sync_handler(|_| text(StatusCode::OK, "/debug/flags/\n\nv: verbosity of the log (PUT a number)\n"));
    router.add_unlisted("/debug/flags", Arc::clone(&flags));
    router.add_unlisted("/debug/flags/", flags);
    let set = Arc::clone(&debugging.set_verbosity);
    router.add_unlisted(
        "/debug/flags/v",
        handler(move |request| {
            let set = Arc::clone(&set);
            async move { put_verbosity(request, &*set).await }.boxed()
        }),
    );
    let pprof = sync_handler(pprof);
    router.add_unlisted("/debug/pprof", Arc::clone(&pprof));
    router.add_prefix("/debug/pprof/", pprof);
}

async fn put_verbosity(
    request: Request<RequestBody>,
    set: &(dyn Fn(u32) -> Result<(), String> + Send + Sync),
) -> Response<ResponseBody> {
    if request.method() != Method::PUT {
        return respond(StatusCode::NOT_ACCEPTABLE, PLAIN, "unsupported http method\n");
    }
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return respond(StatusCode::BAD_REQUEST, PLAIN, format!("error reading body: {error}\n"));
        }
    };
    let level = String::from_utf8_lossy(&body);
    match level.trim().parse::<u32>() {
        Err(error) => respond(StatusCode::BAD_REQUEST, PLAIN, format!("verbosity: {error}\n")),
        Ok(level) => match set(level) {
            Ok(()) => {
                tracing::info!(level, "verbosity of the log set");
                respond(
                    StatusCode::OK,
                    PLAIN,
                    format!("successfully set klog.logging.verbosity to {level}\n"),
                )
            }
            Err(error) => respond(StatusCode::BAD_REQUEST, PLAIN, format!("verbosity: {error}\n")),
        },
    }
}

fn pprof(request: &Request<RequestBody>) -> Response<ResponseBody> {
    let path = request.uri().path();
    let name = path.strip_prefix("/debug/pprof").unwrap_or_default().trim_matches('/');
    if !name.is_empty() && !PROFILES.contains(&name) {
        return respond(StatusCode::NOT_FOUND, PLAIN, "Unknown profile\n");
    }
    respond(StatusCode::NOT_IMPLEMENTED, PLAIN, "profiles are not taken by this version\n")
}
