//! `/debug/pprof`: the pages that `go tool pprof` asks for, as far as there is anything to show of a process in Rust.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_DISPOSITION, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};

use crate::serve::answers::{AnswerBody, RequestBody, TEXT, handler, respond, sync_handler, text};
use crate::serve::router::Router;
use crate::telemetry::{ProfileError, Profiler};

const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// A CPU profile's time if no other is asked for, as in the original.
const SECONDS: u64 = 30;
/// The longest time there is.
const MOST_SECONDS: u64 = 600;

/// What there is, and what for.
const THERE_IS: [(&str, &str); 4] = [
    ("cmdline", "command line; arguments are separated by zero bytes"),
    ("heap", "memory allocated within ?seconds=N and still in use, by function"),
    ("profile", "CPU time within ?seconds=N (30), by function"),
    ("symbol", "always 0 symbols, because profiles contain their symbols"),
];

/// What the original has, and why it is not here.
const THERE_IS_NOT: [(&str, &str); 6] = [
    ("allocs", "freed memory is not recorded by function; see heap"),
    ("block", "blocking is not recorded; see the coxswain_runtime_ metrics"),
    ("goroutine", "Coxswain has no goroutines; for tasks, see the coxswain_runtime_ metrics"),
    ("mutex", "lock contention is not recorded"),
    ("threadcreate", "creation of threads is not recorded"),
    ("trace", "execution traces are not recorded; use --tracing-endpoint for OpenTelemetry traces"),
];

pub(super) fn install(router: &Router, profiler: &Profiler) {
    let other = sync_handler(other);
    router.add_unlisted("/debug/pprof", Arc::clone(&other));
    router.add_prefix("/debug/pprof/", other);
    router.add_unlisted("/debug/pprof/cmdline", sync_handler(|_| cmdline()));
    // The protocol's word for "none here": whoever wants names for addresses looks elsewhere.
    router.add_unlisted("/debug/pprof/symbol", sync_handler(|_| text(StatusCode::OK, "num_symbols: 0\n")));
    profile(router, profiler, "profile", |profiler, seconds| async move {
        profiler.cpu(Duration::from_secs(seconds.unwrap_or(SECONDS))).await
    });
    profile(router, profiler, "heap", |profiler, seconds| async move {
        profiler.heap(seconds.map(Duration::from_secs)).await
    });
}

/// Adds the page of a profile, which is taken for the seconds that are asked for.
fn profile<F>(
    router: &Router,
    profiler: &Profiler,
    name: &'static str,
    take: impl Fn(Profiler, Option<u64>) -> F + Copy + Send + Sync + 'static,
) where
    F: Future<Output = Result<Vec<u8>, ProfileError>> + Send + 'static,
{
    let profiler = profiler.clone();
    let page = handler(move |request| {
        let profiler = profiler.clone();
        async move {
            match Asked::of(&request) {
                Ok(asked) => answer(name, take(profiler, asked.seconds).await),
                Err(response) => *response,
            }
        }
    });
    router.add_unlisted(format!("/debug/pprof/{name}"), page);
}

/// The parameters of a profile.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seconds: Option<u64>,
}

impl Asked {
    fn of(request: &Request<RequestBody>) -> Result<Self, Box<Response<AnswerBody>>> {
        Self::parse(request.uri().query().unwrap_or_default())
            .map_err(|why| Box::new(text(StatusCode::BAD_REQUEST, why + "\n")))
    }

    /// Parameters that change nothing here, such as `gc`, are passed over.
    fn parse(query: &str) -> Result<Self, String> {
        let mut seconds = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "seconds" => match value.parse() {
                    Ok(number @ 1..=MOST_SECONDS) => seconds = Some(number),
                    _ => return Err(format!("seconds: {value:?} is not a number from 1 to {MOST_SECONDS}")),
                },
                "debug" if value != "0" => {
                    return Err(format!("debug: {value:?} is not supported; allowed: 0 (protobuf)"));
                }
                _ => {}
            }
        }
        Ok(Self { seconds })
    }
}

fn answer(name: &'static str, profile: Result<Vec<u8>, ProfileError>) -> Response<AnswerBody> {
    let error = match profile {
        Ok(profile) => {
            tracing::info!(name, bytes = profile.len(), "Recorded a profile");
            let mut response = respond(StatusCode::OK, BINARY, profile);
            if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
                response.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            return response;
        }
        Err(error) => error,
    };
    let status = match &error {
        ProfileError::Busy => StatusCode::TOO_MANY_REQUESTS,
        ProfileError::NotSampled | ProfileError::Impossible => StatusCode::SERVICE_UNAVAILABLE,
        ProfileError::AlwaysSampled => StatusCode::BAD_REQUEST,
        ProfileError::Failed(_) => {
            tracing::error!(name, %error, "Failed to record a profile");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    let mut response = text(status, format!("{error}\n"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(SECONDS));
    }
    response
}

fn cmdline() -> Response<AnswerBody> {
    let parts: Vec<_> = std::env::args_os().collect();
    let parts: Vec<_> = parts.iter().map(|part| part.as_bytes()).collect();
    respond(StatusCode::OK, TEXT, parts.join(&0))
}

/// The index, and every name that is no page.
fn other(request: &Request<RequestBody>) -> Response<AnswerBody> {
    let path = request.uri().path();
    let name = path.strip_prefix("/debug/pprof").unwrap_or_default().trim_matches('/');
    if name.is_empty() {
        return respond(StatusCode::OK, HTML, index());
    }
    match THERE_IS_NOT.iter().find(|(not, _)| *not == name) {
        Some((name, why)) => text(StatusCode::NOT_IMPLEMENTED, format!("no {name} profile: {why}\n")),
        None => text(StatusCode::NOT_FOUND, "Unknown profile\n"),
    }
}

fn index() -> String {
    let row = |(name, what): &(_, _)| {
        format!("<dt><a href=\"/debug/pprof/{name}\">{name}</a></dt><dd>{what}</dd>\n")
    };
    let rows = THERE_IS.iter().map(row).collect::<Vec<_>>().concat();
    format!("<!DOCTYPE html>\n<title>/debug/pprof/</title>\n<h1>/debug/pprof/</h1>\n<dl>\n{rows}</dl>\n")
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn seconds_have_bounds_and_the_form_is_protobuf() {
        for (query, seconds) in [
            ("", None),
            ("seconds=1", Some(1)),
            ("gc=1&seconds=600&debug=0", Some(600)),
            ("seconds=5&seconds=7", Some(7)),
            ("other=x", None),
        ] {
            assert_eq!(Asked::parse(query), Ok(Asked { seconds }), "{query}");
        }
        for wrong in
            ["seconds=", "seconds=0", "seconds=-1", "seconds=601", "seconds=1.5", "debug=1", "debug="]
        {
            let name = wrong.split('=').next().unwrap();
            assert!(Asked::parse(wrong).unwrap_err().starts_with(name), "{wrong}");
        }
    }
}
