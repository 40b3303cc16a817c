//! The pages, and what they answer.

use crate::telemetry::CheckStatus;
use crate::telemetry::Registry;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use prometheus::IntCounter;

use super::fixtures::{Client, FakeReviews, Running, Setup, pages, request};
use crate::serve::*;

struct Check(&'static str, Mutex<Result<(), String>>);

impl HealthCheck for Check {
    fn name(&self) -> &str {
        self.0
    }

    fn check(&self) -> Result<(), String> {
        self.1.lock().clone()
    }
}

fn check(name: &'static str) -> Arc<Check> {
    Arc::new(Check(name, Mutex::new(Ok(()))))
}

fn admin(setup: &Setup, running: &Running) -> Client {
    running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]))
}

#[tokio::test]
async fn health_is_told_in_the_originals_words() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    assert_eq!(running.get("/healthz?verbose").await.body, "[+]ping ok\nhealthz check passed\n");

    let election = check("leaderElection");
    setup.health.add(Arc::clone(&election) as _);
    setup.health.add(check("deployment-controller"));
    let reply = running.get("/healthz").await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "ok"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(
        running.get("/healthz?verbose").await.body,
        "[+]leaderElection ok\n[+]deployment-controller ok\nhealthz check passed\n"
    );

    *election.1.lock() = Err("the lease is 42 s old".to_owned());
    let reply = running.get("/healthz").await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        reply.body,
        "[-]leaderElection failed: reason withheld\n[+]deployment-controller ok\nhealthz check failed\n"
    );
    let reply = running.get("/healthz?verbose&exclude=leaderElection&exclude=b&exclude=a").await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(
        reply.body,
        "[+]leaderElection excluded: ok\n[+]deployment-controller ok\n\
         warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nhealthz check passed\n"
    );
    assert_eq!(running.get("/livez").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(running.get("/readyz").await.body.ends_with("readyz check failed\n"));
}

#[tokio::test]
async fn single_checks_answer_for_themselves_to_who_may_ask() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let election = check("leaderElection");
    *election.1.lock() = Err("the lease is 42 s old".to_owned());
    setup.health.add(election);
    setup.health.add(check("fine"));
    let admin = admin(&setup, &running);
    assert_eq!(admin.get("/healthz/fine").await.body, "ok");
    let reply = admin.get("/healthz/leaderElection").await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.body, "internal server error: the lease is 42 s old\n");
    assert_eq!(admin.get("/healthz/nope").await.body, "404 page not found\n");
    assert_eq!(running.get("/healthz/leaderElection").await.status, StatusCode::FORBIDDEN);
}

/// Passes, and is degraded.
struct Degraded;

impl HealthCheck for Degraded {
    fn name(&self) -> &'static str {
        "token-controller"
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn degraded(&self) -> Option<String> {
        Some("secrets: not filled".to_owned())
    }
}

#[test]
fn what_is_degraded_fails_no_probe_and_shows() {
    let health = HealthRegistry::new();
    health.add(check("a"));
    health.add(Arc::new(Degraded));
    let heard = Heard::default();
    for probe in Probe::ALL {
        let report = health.report(probe, &[], Detail::Remarks, &heard);
        let end = format!("{} check passed\n", probe.name());
        let lines = "[+]a ok\n[+]token-controller ok, degraded: reason withheld\n".to_owned();
        assert_eq!(report, HealthReport { passed: true, text: lines + &end });
        let name = probe.name();
        let expected = [format!("a {name} success"), format!("token-controller {name} error")];
        assert_eq!(std::mem::take(&mut *heard.0.lock()), expected);
    }
    assert_eq!(health.report(Probe::Livez, &[], Detail::Summary, &heard).text, "ok");
    let report = health.report_one(Probe::Livez, "token-controller", &heard).unwrap();
    assert_eq!((report.passed, report.text.as_str()), (true, "ok, degraded: secrets: not filled\n"));
}

/// Passes, with a remark.
struct Remarked;

impl HealthCheck for Remarked {
    fn name(&self) -> &'static str {
        "token-controller"
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn remark(&self) -> Option<Remark> {
        Some(Remark { text: "a remark", detail: Some("ns/name".to_owned()) })
    }
}

#[test]
fn remark_fails_no_probe_and_names_objects_on_the_page_of_its_check_alone() {
    let health = HealthRegistry::new();
    health.add(Arc::new(Remarked));
    let heard = Heard::default();
    let report = health.report(Probe::Livez, &[], Detail::Remarks, &heard);
    let text = "[+]token-controller ok, a remark\nlivez check passed\n".to_owned();
    assert_eq!(report, HealthReport { passed: true, text });
    assert_eq!(*heard.0.lock(), ["token-controller livez success"]);
    let report = health.report_one(Probe::Livez, "token-controller", &heard).unwrap();
    assert_eq!((report.passed, report.text.as_str()), (true, "ok, a remark: ns/name\n"));
    assert_eq!(Remark::of("a remark").to_string(), "a remark");
}

/// An attacker without credentials must not learn which controllers an override disables.
#[tokio::test]
async fn remark_is_shown_to_callers_with_credentials_alone() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    setup.health.add(Arc::new(Remarked));
    for (reply, line) in [
        (running.get("/healthz?verbose").await, "[+]token-controller ok\n"),
        (admin(&setup, &running).get("/healthz?verbose").await, "[+]token-controller ok, a remark\n"),
    ] {
        assert!(reply.status == StatusCode::OK && reply.body.contains(line), "{}", reply.body);
    }
}

#[test]
fn checks_come_and_go_and_keep_their_places() {
    let health = HealthRegistry::new();
    for name in ["a", "b", "c"] {
        health.add(check(name));
    }
    let failing = check("b");
    *failing.1.lock() = Err("x".to_owned());
    health.add(failing);
    assert_eq!(health.names(), ["a", "b", "c"]);
    assert!(!health.report(Probe::Healthz, &[], Detail::Summary, &Unobserved).passed);
    assert!(health.remove("b"));
    assert!(!health.remove("b"));
    assert!(health.report(Probe::Healthz, &[], Detail::Summary, &Unobserved).passed);
    health.add_for(&[Probe::Readyz], check("r"));
    assert!(!health.report(Probe::Livez, &[], Detail::Checks, &Unobserved).text.contains("[+]r"));
    assert!(health.report(Probe::Readyz, &[], Detail::Checks, &Unobserved).text.contains("[+]r ok"));
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl ServeObserver for Heard {
    fn health_checked(&self, name: &str, probe: Probe, status: CheckStatus) {
        self.0.lock().push(format!("{name} {} {}", probe.name(), status.label()));
    }

    fn reset_slis(&self) {
        self.0.lock().push("reset".to_owned());
    }
}

#[tokio::test]
async fn metrics_are_shown_and_health_results_are_heard_of() {
    let setup = Setup::new(FakeReviews::default());
    let heard = Arc::new(Heard::default());
    let (metrics, slis) = (Registry::new(), Registry::new());
    for (registry, name) in [(&metrics, "some_total"), (&slis, "kubernetes_healthchecks_total")] {
        let counter = IntCounter::new(name, "Counts.").unwrap();
        counter.inc();
        registry.register(Box::new(counter)).unwrap();
    }
    Pages { metrics, slis, observer: Arc::clone(&heard) as _, ..pages(&setup.health) }.install(&setup.router);
    setup.health.add(check("a"));
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    let reply = admin.get("/metrics").await;
    assert_eq!(reply.body, "# HELP some_total Counts.\n# TYPE some_total counter\nsome_total 1\n");
    assert_eq!(
        reply.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    );
    assert_eq!(reply.header("process-start-time-unix"), "1767225600");
    assert!(admin.get("/metrics/slis").await.body.contains("kubernetes_healthchecks_total 1\n"));
    admin.get("/healthz").await;
    let reply = admin.send(request(Method::DELETE, "/metrics/slis", &[])).await;
    assert_eq!(reply.body, "metrics reset\n");
    assert_eq!(*heard.0.lock(), ["a healthz success", "reset"]);
}

#[tokio::test]
async fn configuration_flags_and_status_have_pages() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    let reply = admin.get("/configz").await;
    assert_eq!(reply.body, r#"{"kubecontrollermanager.config.k8s.io":{"kind":"Test"}}"#);
    assert_eq!(reply.header("content-type"), "application/json");
    let flags = admin.get("/flagz").await.body;
    assert!(flags.starts_with("\nkube-controller-manager flagz\n"), "{flags}");
    assert!(flags.ends_with("\nbind-address: ::\nv: 2\n"), "{flags}");
    let status = admin.get("/statusz").await.body;
    assert!(status.starts_with("\nkube-controller-manager statusz\n"), "{status}");
    for line in [
        "Started:  Thu Jan  1 00:00:00 UTC 2026\n",
        "Binary version:  1.36.3\n",
        "Emulation version:  1.36\n",
    ] {
        assert!(status.contains(line), "{status}");
    }
    assert!(status.ends_with("Paths:  /configz /flagz /healthz /livez /metrics /readyz\n"), "{status}");
}

/// A request for a page, past authentication.
async fn ask(router: &Router, page: &str, accept: &[String], agent: &str) -> (http::response::Parts, String) {
    let (path, query) = page.split_once('?').unwrap_or((page, ""));
    let mut request = http::Request::new(crate::serve::answers::full(""));
    *request.uri_mut() = format!("{path}?{query}").parse().unwrap();
    for value in accept {
        request.headers_mut().append(http::header::ACCEPT, value.parse().unwrap());
    }
    request.headers_mut().insert(http::header::USER_AGENT, agent.parse().unwrap());
    let (parts, body) = router.find(path).unwrap()(request).await.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    (parts, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn flagz_and_statusz_negotiate_as_kube_controller_manager_does() {
    let setup = Setup::new(FakeReviews::default());
    let recorded = include_str!("../../../../../tests/data/peer/accept.tsv");
    let mut rows = 0;
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [page, accept, status, content_type, warning] = columns[..] else { panic!("{line}") };
        let accept: Vec<String> = serde_json::from_str(accept).unwrap();
        let (parts, body) = ask(&setup.router, page, &accept, "test").await;
        let header = |name: &str| parts.headers.get(name).map_or("-", |value| value.to_str().unwrap());
        let ours = (parts.status.as_str(), header("content-type"), header("warning"));
        assert_eq!(ours, (status, content_type, warning), "{line}");
        let object: Option<serde_json::Value> = match content_type.split(';').next().unwrap() {
            "application/json" => Some(serde_json::from_str(&body).unwrap()),
            "application/yaml" => Some(serde_yaml_ng::from_str(&body).unwrap()),
            _ => None,
        };
        let kind = object.as_ref().map(|object| object["kind"].as_str().unwrap().to_lowercase());
        let expected = match (status, object) {
            ("406", _) => Some("status"),
            (_, Some(_)) => Some(&page[1..]),
            _ => None,
        };
        assert_eq!(kind.as_deref(), expected, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 284);
}

#[tokio::test]
async fn flagz_and_statusz_are_objects_in_json_and_yaml() {
    let setup = Setup::new(FakeReviews::default());
    let flagz = serde_json::json!({
        "kind": "Flagz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": { "name": "kube-controller-manager" },
        "flags": { "bind-address": "::", "v": "2" },
    });
    let statusz = serde_json::json!({
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": { "name": "kube-controller-manager" },
        "startTime": "2026-01-01T00:00:00Z",
        "uptimeSeconds": 0,
        "goVersion": "",
        "binaryVersion": "1.36.3",
        "emulationVersion": "1.36",
        "paths": ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"],
    });
    for (page, kind, mut expected) in [("/flagz", "Flagz", flagz), ("/statusz", "Statusz", statusz)] {
        let accept =
            |encoding: &str| vec![format!("application/{encoding};v=v1beta1;g=config.k8s.io;as={kind}")];
        let (_, compact) = ask(&setup.router, page, &accept("json"), "test").await;
        assert_eq!(compact.lines().count(), 1, "{compact}");
        assert!(compact.starts_with(&format!("{{\"kind\":\"{kind}\",\"apiVersion\":")), "{compact}");
        let mut object: serde_json::Value = serde_json::from_str(&compact).unwrap();
        // What the clock says is another matter.
        let uptime = object.get("uptimeSeconds").cloned();
        if let Some(uptime) = &uptime {
            assert!(uptime.is_u64());
            object["uptimeSeconds"] = 0.into();
        }
        assert_eq!(object, expected);
        for (page, agent) in [(page.to_owned(), "curl/8"), (format!("{page}?pretty=1"), "test")] {
            let (_, indented) = ask(&setup.router, &page, &accept("json"), agent).await;
            assert!(indented.starts_with("{\n  \"kind\": "), "{indented}");
        }
        let (_, yaml) = ask(&setup.router, page, &accept("yaml"), "test").await;
        assert!(yaml.starts_with("apiVersion: "), "{yaml}");
        let object: serde_json::Value = serde_yaml_ng::from_str(&yaml).unwrap();
        if let Some(uptime) = object.get("uptimeSeconds").cloned() {
            expected["uptimeSeconds"] = uptime;
        }
        assert_eq!(object, expected, "{yaml}");
    }
}

#[tokio::test]
async fn pages_whose_gates_or_flags_are_off_are_not_there() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.router = Arc::new(Router::new());
    Pages { flags: None, status: None, debugging: None, ..pages(&setup.health) }.install(&setup.router);
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    for path in
        ["/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/index.html", "/"]
    {
        let reply = admin.get(path).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (StatusCode::NOT_FOUND, "404 page not found\n"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn controllers_add_and_remove_debug_pages_at_run_time() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    let echo = sync_handler(|request| text(StatusCode::OK, request.uri().to_string()));
    setup.router.add_debug("garbage-collector-controller", &echo);
    assert_eq!(
        admin.get("/debug/controllers/garbage-collector-controller/graph?uid=1").await.body,
        "/graph?uid=1"
    );
    assert_eq!(admin.get("/debug/controllers/garbage-collector-controller").await.body, "/");
    assert_eq!(admin.get("/debug/controllers/other").await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        admin.get("/debug/controllers/garbage-collector-controllers").await.status,
        StatusCode::NOT_FOUND
    );
    assert!(setup.router.remove_debug("garbage-collector-controller"));
    assert_eq!(
        admin.get("/debug/controllers/garbage-collector-controller/graph").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_verbosity_of_the_log_is_set_by_put() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    let put = |body: &'static str| {
        let mut put = request(Method::PUT, "/debug/flags/v", &[]);
        *put.body_mut() = Full::new(Bytes::from_static(body.as_bytes()));
        admin.send(put)
    };
    let reply = put("4").await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (StatusCode::OK, "successfully set klog.logging.verbosity to 4\n")
    );
    for wrong in ["abc", "-1", "10", ""] {
        assert_eq!(put(wrong).await.status, StatusCode::BAD_REQUEST, "{wrong:?}");
    }
    assert_eq!(admin.get("/debug/flags/v").await.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn profiles_say_what_there_is_and_why_the_rest_is_not() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let admin = admin(&setup, &running);
    for path in ["/debug/pprof", "/debug/pprof/"] {
        let index = admin.get(path).await;
        assert_eq!(index.header("content-type"), "text/html; charset=utf-8");
        for name in ["cmdline", "heap", "profile", "symbol"] {
            assert!(index.body.contains(&format!("href=\"/debug/pprof/{name}\"")), "{}", index.body);
        }
    }
    for (path, status, begins) in [
        ("goroutine?debug=2", StatusCode::NOT_IMPLEMENTED, "no goroutine profile: "),
        ("trace", StatusCode::NOT_IMPLEMENTED, "no trace profile: "),
        ("nope", StatusCode::NOT_FOUND, "Unknown profile\n"),
        ("profile?seconds=0", StatusCode::BAD_REQUEST, "seconds: \"0\" is not a number from 1 to 600"),
        ("heap?debug=1", StatusCode::BAD_REQUEST, "debug: "),
        ("heap", StatusCode::SERVICE_UNAVAILABLE, "allocations are not sampled"),
        ("symbol", StatusCode::OK, "num_symbols: 0\n"),
        ("cmdline", StatusCode::OK, &std::env::args().collect::<Vec<_>>().join("\0")),
    ] {
        let reply = admin.get(&format!("/debug/pprof/{path}")).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(reply.body.starts_with(begins), "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn head_gets_everything_but_the_body_on_either_version() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    for client in [running.client(), running.client().with_h1()] {
        let reply = client.send(request(Method::HEAD, "/healthz", &[])).await;
        assert_eq!(
            (reply.status, reply.header("content-length"), reply.body.as_str()),
            (StatusCode::OK, "2", "")
        );
    }
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_request_alone() {
    let setup = Setup::new(FakeReviews::default());
    setup.router.add("/broken", handler(async |_| panic!("what only the log may say")));
    let running = setup.start().await;
    let mut session = admin(&setup, &running).connect().await;
    let reply = session.get("/broken").await.unwrap();
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!reply.body.contains("only the log may"), "{}", reply.body);
    assert_eq!(session.get("/configz").await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_grpc_service_is_behind_authentication_and_authorizes_by_itself() {
    let setup = Setup::new(FakeReviews::default().knows("good", "robot"));
    let grpc = [("content-type", "application/grpc+proto"), ("te", "trailers")];
    let call = |token: Option<&str>| {
        let mut call = request(Method::POST, "/coxswain.admin.v1.LeaderService/GetLeader", &grpc);
        if let Some(token) = token {
            call.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        call
    };
    let running = setup.start().await;
    let reply = running.client().send(call(None)).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "with no service mounted it is a path like any other");

    setup.router.mount_grpc(
        sync_handler(|request| {
            let user = UserInfo::of(request.extensions()).unwrap().name.clone();
            let mut response =
                respond(StatusCode::OK, http::HeaderValue::from_static("application/grpc"), user);
            response.headers_mut().insert("grpc-status", http::HeaderValue::from_static("0"));
            response
        }),
        false,
    );
    assert_eq!(running.client().send(call(None)).await.body, "system:anonymous");
    assert_eq!(running.client().send(call(Some("good"))).await.body, "robot");
    let reply = running.client().send(call(Some("bad"))).await;
    assert_eq!((reply.status, reply.header("grpc-status")), (StatusCode::OK, "16"));
    assert_eq!(setup.reviews.access_count(), 1, "only the path was judged here");
}
