//! Requests to the API server are built by the client alone, from typed parts. Nothing else writes a URL or makes a request.

use std::path::Path;

use super::{CRATES, complain, sources};

/// The only module that makes paths of the API server.
const BUILDER: &str = "crates/machinery/src/client/request/";

/// Text with which a path of the API server begins. In code outside of [`BUILDER`] it is a path that was written by hand.
const PATHS: &[&str] = &["\"/api/", "\"/apis/", "\"/api\"", "\"/apis\"", "\"/openapi/", "\"/openapi\""];

/// Ways to make a request or a URI.
const MAKERS: &[&str] = &[
    "Request::builder",
    "Request::get(",
    "Request::post(",
    "Request::put(",
    "Request::patch(",
    "Request::delete(",
    "Request::new(",
    "ApiRequest::new(",
    "ApiRequest::default(",
    "Uri::builder",
    "Uri::from",
    "Uri::try_from",
    "parse::<Uri>",
    "parse::<http::Uri>",
    "PathAndQuery::",
];

/// Files, or folders of files, that make requests or URIs, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    (BUILDER, "builds all requests to the API server"),
    ("crates/machinery/src/client/layers/gate.rs", "sends a write to nobody, for tests of other crates"),
    ("crates/machinery/src/client/transport/proxy/", "the addresses of proxies"),
    ("crates/machinery/src/options/validate/", "checks addresses that flags give"),
    ("crates/machinery/src/serve/router.rs", "routes requests that the manager serves"),
    ("crates/machinery/src/telemetry/push/", "pushes metrics to an OTLP collector"),
    ("crates/machinery/src/telemetry/tracing/", "the address of an OTLP collector"),
    ("src/cli/connect.rs", "calls the admin API of a replica"),
    ("src/cli/identity.rs", "a configuration without a server"),
];

/// Sources of the manager without its tests, by their paths in the repository.
pub(super) fn of_the_manager() -> impl Iterator<Item = (String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_test = |path: &Path| {
        path.iter()
            .any(|part| part == "tests" || part == "tests.rs" || part == "testing.rs" || part == "tidy")
    };
    CRATES.into_iter().flat_map(sources).filter_map(move |(path, text)| {
        let path = path.strip_prefix(root).unwrap_or(&path);
        (!is_test(path)).then(|| (path.display().to_string(), text))
    })
}

/// The lines of code that have one of these words. The file ends with its test module, if that is in it.
pub(super) fn lines_with(text: &str, words: &[&str]) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests =
        |at: usize| lines[at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|line| line.ends_with('{'));
    let end = (0..lines.len()).find(|at| begins_tests(*at)).unwrap_or(lines.len());
    let code = lines[..end].iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = code.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    found.map(|(at, line)| (at + 1, line.trim().to_owned())).collect()
}

#[test]
fn paths_of_the_api_server_are_built_by_the_client_alone() {
    let others = of_the_manager().filter(|(path, _)| !path.starts_with(BUILDER));
    let complaints = others.flat_map(|(path, text)| {
        let lines = lines_with(&text, PATHS).into_iter();
        lines
            .map(move |(at, line)| format!("{path}:{at}: use RequestPath in place of `{line}`"))
            .collect::<Vec<_>>()
    });
    complain(&complaints.collect::<Vec<_>>());
}

#[test]
fn requests_are_made_by_the_client_alone() {
    let (mut complaints, mut used) = (Vec::new(), vec![false; ELSEWHERE.len()]);
    for (path, text) in of_the_manager() {
        let lines = lines_with(&text, MAKERS);
        match ELSEWHERE.iter().position(|(allowed, _)| path.starts_with(allowed)) {
            Some(at) => used[at] |= !lines.is_empty(),
            None => complaints.extend(
                lines.into_iter().map(|(at, line)| format!("{path}:{at}: `{line}` makes a request or a URI")),
            ),
        }
    }
    let unused = ELSEWHERE.iter().zip(used).filter(|(_, used)| !used);
    complaints.extend(unused.map(|((path, why), _)| format!("{path}: makes no request any longer ({why})")));
    complain(&complaints);
}

#[test]
fn deadlines_and_limits_do_not_follow_from_a_uri() {
    let folders = ["crates/machinery/src/client/layers/", "crates/machinery/src/client/transport/"];
    let layers = of_the_manager().filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)));
    let complaints = layers.flat_map(|(path, text)| {
        let lines = lines_with(&text, &[".query()", "watch=true"]).into_iter();
        // The span of a request shows its URL.
        let lines = lines.filter(|_| !path.ends_with("layers/trace.rs"));
        lines.map(|(at, line)| format!("{path}:{at}: `{line}` reads the query of a URI")).collect::<Vec<_>>()
    });
    complain(&complaints.collect::<Vec<_>>());
}
