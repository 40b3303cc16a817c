//! Tests of discovery against answers in both of its forms.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::client::testing::{answer, mock};

fn aggregated_core() -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [
        {"metadata": {}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "pods", "responseKind": {"group": "", "version": "v1", "kind": "Pod"}, "scope": "Namespaced",
             "singularResource": "pod", "verbs": ["get", "list", "watch", "delete"],
             "subresources": [{"subresource": "status"}, {"subresource": "eviction"}]},
            {"resource": "nodes", "responseKind": {"kind": "Node"}, "scope": "Cluster", "verbs": ["get", "list"]},
            {"resource": "onlysub", "responseKind": {}, "scope": "Namespaced", "verbs": []},
        ]}]},
    ]})
}

fn aggregated_groups() -> Value {
    let held = |version: &str, kind: &str| {
        json!({"version": version, "resources": [{"resource": "cronjobs", "responseKind": {"kind": kind},
               "scope": "Namespaced", "verbs": ["list"]}]})
    };
    json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": "batch"}, "versions": [held("v1", "CronJob"), held("v1beta1", "CronJob")]},
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [
            {"version": "v1beta1", "freshness": "Stale", "resources": []}]},
        // As the API server has it of a server that tells of `pods/requests` alone, or of nothing.
        {"metadata": {"name": "custom.metrics.k8s.io"}, "versions": [
            {"version": "v1beta2", "freshness": "Current", "resources": [
                {"resource": "pods", "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Namespaced",
                 "singularResource": "", "verbs": null, "subresources": [
                    {"subresource": "requests", "responseKind": null, "verbs": ["get"]}]},
            ]},
            {"version": "v1beta1", "freshness": "Current", "resources": null}]},
        {"metadata": {"name": "empty.example.com"}, "versions": null},
    ]})
}

fn list(resources: &Value) -> Value {
    json!({"kind": "APIResourceList", "groupVersion": "x", "resources": resources})
}

fn legacy(path: &str) -> Option<Value> {
    let held = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["list"]});
    Some(match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        "/api/v1" => list(&json!([
            held("pods", "Pod", true),
            held("pods/status", "Pod", true),
            held("nodes", "Node", false),
        ])),
        "/apis" => {
            let version = |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"kind": "APIGroupList", "groups": [
                {"name": "batch", "versions": [version("batch", "v1beta1"), version("batch", "v1")],
                 "preferredVersion": version("batch", "v1")},
                {"name": "metrics.k8s.io", "versions": [version("metrics.k8s.io", "v1beta1")]},
            ]})
        }
        "/apis/batch/v1" | "/apis/batch/v1beta1" => list(&json!([held("cronjobs", "CronJob", true)])),
        _ => return None,
    })
}

/// A server with discovery in its aggregated form, with entity tags, or only in the older one.
fn server(aggregated: bool) -> (Discovery, Arc<Mutex<Vec<Request<Bytes>>>>) {
    let (service, seen) = mock(move |request| async move {
        let path = request.uri().path();
        let found = match path {
            "/api" if aggregated => Some(aggregated_core()),
            "/apis" if aggregated => Some(aggregated_groups()),
            path => legacy(path),
        };
        let Some(found) = found else {
            return Ok(answer(
                503,
                r#"{"kind":"Status","reason":"ServiceUnavailable","message":"no backend"}"#,
            ));
        };
        if request.headers().get("if-none-match").is_some() {
            return Ok(answer(304, ""));
        }
        let mut response = answer(200, found.to_string());
        response.headers_mut().insert("etag", HeaderValue::from_static("\"tag\""));
        Ok(response)
    });
    (Discovery::new(ApiClient::new(service, "discovery")), seen)
}

#[tokio::test]
async fn both_forms_say_the_same() {
    for aggregated in [true, false] {
        let (discovery, seen) = server(aggregated);
        let mapper = discovery.mapper().await.unwrap();
        let pods = mapper.resource_for("", None, "Pod").unwrap();
        assert_eq!((&*pods.resource, pods.namespaced, pods.api_version().as_str()), ("pods", true, "v1"));
        assert_eq!(pods.subresources[0], "status");
        assert!(pods.supports(&["list"]) && !pods.supports(&["list", "create"]));
        assert!(!mapper.resource("", Some("v1"), "nodes").unwrap().namespaced);
        let preferred = mapper.resource_for("batch", None, "CronJob").unwrap();
        assert_eq!(preferred.api_version(), "batch/v1");
        let asked = mapper.resource_for_api_version("batch/v1beta1", "CronJob").unwrap();
        assert_eq!(&*asked.version, "v1beta1");
        assert!(mapper.resource_for("batch", None, "Pod").is_none());
        assert!(mapper.resource("", None, "onlysub").is_none(), "what has no kind is no resource");

        let resources = discovery.resources().await.unwrap();
        let failures: Vec<_> = resources.failures().map(ToString::to_string).collect();
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("metrics.k8s.io/v1beta1"), "{failures:?}");
        assert!(mapper.may_be_missing("metrics.k8s.io/v1beta1") && !mapper.may_be_missing("batch/v1"));
        let names: Vec<_> =
            resources.preferred().iter().map(|held| (&*held.resource, &*held.version)).collect();
        assert_eq!(names, [("pods", "v1"), ("nodes", "v1"), ("cronjobs", "v1")]);
        assert_eq!(seen.lock().len(), if aggregated { 2 } else { 6 }, "asked once, then cached");
    }
}

/// What a server of custom metrics has, for one, is known by its versions alone.
#[tokio::test]
async fn lists_may_be_null_and_versions_are_known_without_resources() {
    let (discovery, _) = server(true);
    let resources = discovery.resources().await.unwrap();
    let versions: Vec<&str> = resources.versions_of("custom.metrics.k8s.io").map(Str::as_str).collect();
    assert_eq!(versions, ["v1beta2", "v1beta1"]);
    assert!(!resources.all().any(|held| held.group == "custom.metrics.k8s.io"));
    assert_eq!(resources.versions_of("empty.example.com").count(), 0);
    assert_eq!(resources.versions_of("metrics.k8s.io").count(), 1, "one that does not answer is there, too");
}

#[tokio::test]
async fn what_has_not_changed_is_not_read_again() {
    let (discovery, seen) = server(true);
    let before = discovery.resources().await.unwrap();
    discovery.invalidate();
    let after = discovery.resources().await.unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(seen.lock().len(), 4);

    let (discovery, seen) = server(false);
    discovery.resources().await.unwrap();
    discovery.invalidate();
    discovery.resources().await.unwrap();
    assert_eq!(seen.lock().len(), 12, "names of groups do not tell what is in them");
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_emptied_every_half_minute_and_filled_once_for_all() {
    let (discovery, seen) = server(true);
    let asking = async {
        discovery.resources().await.unwrap();
        tokio::time::sleep(Duration::from_secs(29)).await;
        discovery.resources().await.unwrap();
        assert_eq!(seen.lock().len(), 2);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (one, two) = futures::join!(discovery.resources(), discovery.resources());
        assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
        assert_eq!(seen.lock().len(), 4);
    };
    tokio::select! {
        () = asking => {}
        () = discovery.reset_periodically() => panic!("it goes on for ever"),
    }
}

async fn search(discovery: &Discovery, name: &str) -> Arc<ApiResources> {
    discovery.search(&name.into()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_search_waits_for_the_fetch_under_way() {
    let (discovery, requests) = slow_server(200);
    discovery.resources().await.unwrap();
    tokio::time::sleep(SEARCH_EVERY * 2).await;
    let mut first = pin!(search(&discovery, "Rollout"));
    assert!(timeout(Duration::from_millis(500), first.as_mut()).await.is_err());
    let mut second = pin!(search(&discovery, "Thing"));
    let is_early = timeout(Duration::from_millis(400), second.as_mut()).await.is_ok();
    assert!(!is_early, "what is cached is older than five seconds");
    let (first, second) = futures::join!(first, second);
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(requests(), 4);
}

/// A server whose answers take a second, and the number of requests that it was sent.
fn slow_server(status: u16) -> (Arc<Discovery>, impl Fn() -> usize) {
    let (service, seen) = mock(move |request: Request<Bytes>| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let found = if request.uri().path() == "/api" { aggregated_core() } else { aggregated_groups() };
        Ok(answer(status, found.to_string()))
    });
    (Arc::new(Discovery::new(ApiClient::new(service, "discovery"))), move || seen.lock().len())
}

#[tokio::test(start_paused = true)]
async fn questions_for_the_latest_share_fetches_and_leave_the_cached_answer_in_place() {
    let (discovery, requests) = slow_server(200);
    discovery.resources().await.unwrap();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let asked_for_latest = Arc::clone(&discovery);
        asking.spawn(async move {
            let asked = Instant::now();
            asked_for_latest.latest().await.unwrap();
            asked.elapsed()
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let asked = Instant::now();
        discovery.resources().await.unwrap();
        assert!(asked.elapsed().is_zero(), "the answer is cached");
    }
    let longest = asking.join_all().await.into_iter().max().unwrap();
    assert!(longest <= Duration::from_secs(2), "the fetch under way and the next one: {longest:?}");
    assert!(requests() <= 2 * 24, "{}", requests());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_never_older_than_the_question_for_the_latest() {
    let (discovery, requests) = slow_server(200);
    let half = Duration::from_millis(500);
    let mut first = pin!(discovery.latest());
    assert!(timeout(half, first.as_mut()).await.is_err());
    let mut second = pin!(discovery.latest());
    assert!(timeout(Duration::ZERO, second.as_mut()).await.is_err());
    first.await.unwrap();
    let is_early = timeout(half, second.as_mut()).await.is_ok();
    assert!(!is_early, "the fetch under way began before the question");
    second.await.unwrap();
    assert_eq!(requests(), 4);
    // A fetch that is dropped serves nobody.
    assert!(timeout(half, discovery.latest()).await.is_err());
    discovery.latest().await.unwrap();
    assert_eq!(requests(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_fails_is_the_answer_for_all_that_wait_for_it() {
    let (discovery, requests) = slow_server(500);
    let began = Instant::now();
    let asked = (0..100).map(|_| discovery.resources());
    assert!(futures::future::join_all(asked).await.iter().all(Result::is_err));
    assert_eq!((began.elapsed(), requests()), (Duration::from_secs(1), 2));
    discovery.resources().await.unwrap_err();
    assert_eq!(requests(), 4, "the next caller has a fetch of its own");
}

#[tokio::test(start_paused = true)]
async fn names_that_nobody_serves_cause_few_fetches_however_many_ask() {
    // Each of 1,000 autoscalers asks every 15 s for two minutes: all for one name, or each for its own.
    for (names, most) in [(1, 2 * 4), (1000, 120 / 5 + 2)] {
        let (discovery, seen) = server(true);
        let asking = async {
            for _ in 0..8 {
                for caller in 0..1000 {
                    discovery.resources().await.unwrap();
                    discovery.search(&format!("Nope{}", caller % names).into()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(15)).await;
                }
            }
        };
        tokio::select! {
            () = asking => {}
            () = discovery.reset_periodically() => panic!("it goes on for ever"),
        }
        let fetches = seen.lock().len() / 2;
        assert!((4..=most).contains(&fetches), "{names}: {fetches}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_not_found_is_fetched_again_before_that_is_told() {
    let (discovery, seen) = server(true);
    let fetches = || seen.lock().len() / 2;
    discovery.resources().await.unwrap();
    tokio::time::sleep(SEARCH_EVERY).await;
    discovery.search(&"Rollout".into()).await.unwrap();
    assert_eq!(fetches(), 2, "what is cached may lack what was just installed");
    discovery.search(&"Other".into()).await.unwrap();
    assert_eq!(fetches(), 2, "what is cached is recent enough");
    tokio::time::sleep(SEARCH_EVERY).await;
    discovery.search(&"Rollout".into()).await.unwrap();
    assert_eq!(fetches(), 2, "its absence is remembered");
    discovery.search(&"Other".into()).await.unwrap();
    assert_eq!(fetches(), 3);
    tokio::time::sleep(SEARCH_EVERY).await;
    discovery.invalidate();
    discovery.search(&"Rollout".into()).await.unwrap();
    assert_eq!(fetches(), 4, "until the cache is emptied");
}

#[tokio::test]
async fn an_answer_of_an_unknown_form_is_an_error() {
    let (service, _) = mock(|_| async { Ok(answer(200, r#"{"kind":"Surprise"}"#)) });
    let error = Discovery::new(ApiClient::new(service, "test")).resources().await.unwrap_err();
    assert!(error.to_string().contains("Surprise"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_waited_for_and_its_last_word_is_told() {
    let tries = Arc::new(AtomicUsize::new(0));
    let (service, _) = mock(move |request: Request<Bytes>| {
        assert_eq!(request.uri(), "/healthz");
        let tries = tries.fetch_add(1, Ordering::SeqCst);
        async move { Ok(if tries < 4 { answer(500, "etcd failed") } else { answer(200, "ok") }) }
    });
    let client = ApiClient::new(service, "test");
    let error = wait_for_api_server(&client, Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "wait for the API server: not ready within 3s: GET /healthz: etcd failed (500)"
    );
    wait_for_api_server(&client, Duration::from_secs(10)).await.unwrap();

    let (silent, _) = mock(|_| std::future::pending());
    let error =
        wait_for_api_server(&ApiClient::new(silent, "test"), Duration::from_secs(10)).await.unwrap_err();
    assert!(matches!(error.last, ApiError::Timeout { .. }));
}

#[test]
fn resources_are_found_by_their_kind_as_if_all_were_looked_at() {
    let resource = |group: &str, version: &str, kind: &str, plural: &str| ApiResource {
        group: group.into(),
        version: version.into(),
        resource: plural.into(),
        kind: kind.into(),
        ..ApiResource::default()
    };
    let resources = ApiResources::of(
        vec![
            resource("", "v1", "Event", "events"),
            resource("batch", "v1", "CronJob", "cronjobs"),
            resource("batch", "v1beta1", "CronJob", "cronjobs"),
            resource("events.k8s.io", "v1", "Event", "events"),
            resource("example.com", "v1", "CronJob", "others"),
        ],
        vec![DiscoveryError::Stale { group_version: "metrics.k8s.io/v1beta1".to_owned() }],
    );
    for kind in ["Event", "CronJob", "Nothing", ""] {
        let all: Vec<&ApiResource> = resources.all().filter(|held| held.kind == kind).collect();
        assert_eq!(resources.of_kind(kind).collect::<Vec<_>>(), all, "{kind}");
    }
    let mapper = RestMapper::new(Arc::new(resources));
    let version = |group: &str, version: Option<&str>| {
        mapper.resource_for(group, version, "CronJob").map(|held| held.version.to_string())
    };
    assert_eq!(version("batch", None).as_deref(), Some("v1"));
    assert_eq!(version("batch", Some("v1beta1")).as_deref(), Some("v1beta1"));
    assert_eq!(version("apps", None), None);
}
