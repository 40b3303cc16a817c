//! `/debug/flags/v`: the verbosity of the log, while it is written.

use std::sync::Arc;

use futures::FutureExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;

use super::Debugging;
use crate::serve::answers::{AnswerBody, RequestBody, handler, respond, sync_handler, text};
use crate::serve::router::Router;
use crate::serve::user::UserInfo;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

pub(super) fn install(router: &Router, debugging: &Debugging) {
    let flags = sync_handler(|_| text(StatusCode::OK, "/debug/flags/\n\nv: log verbosity (PUT a number)\n"));
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
}

async fn put_verbosity(
    request: Request<RequestBody>,
    set: &(dyn Fn(u32) -> Result<(), String> + Send + Sync),
) -> Response<AnswerBody> {
    if request.method() != Method::PUT {
        return respond(StatusCode::NOT_ACCEPTABLE, PLAIN, "unsupported http method\n");
    }
    let caller = UserInfo::of(request.extensions()).cloned().unwrap_or_default();
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
                tracing::info!(
                    target: "audit",
                    user = caller.name,
                    uid = caller.uid,
                    groups = ?caller.groups,
                    level,
                    "Log verbosity changed"
                );
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
