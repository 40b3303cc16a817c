//! What a real Prometheus makes of our metrics, of the alerts and of the dashboard.

mod dashboard;
mod peer;
mod picture;
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use coxswain::admin::proto;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, ResourceQuota, Service};
use kube::api::{Api, DeleteParams};
use serde_json::json;

use self::server::{JOB, NOBODY, Prometheus, SLIS, STRANGER, TEXT, file};
use crate::admin::Admin;
use crate::deployments::settled;
use crate::harness::{Caller, ControlPlane, Manager, Namespace, Options, binaries, turn, until};
use crate::tracing::Collector;

const LIMIT: Duration = Duration::from_mins(2);
/// Set, it has the picture of the dashboard in the documentation drawn anew.
const DRAW: &str = "COXSWAIN_REGENERATE";
/// The histograms that name traces.
const WITH_EXEMPLARS: [&str; 5] = [
    "coxswain_admin_request_duration_seconds_bucket",
    "coxswain_change_to_write_seconds_bucket",
    "coxswain_reconcile_duration_seconds_bucket",
    "rest_client_request_duration_seconds_bucket",
    "workqueue_work_duration_seconds_bucket",
];

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(binaries().join("promtool"))
        .args(arguments)
        .current_dir(file("deploy/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Everything that promtool said.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn rules_are_tested_and_each_alert_is_explained() {
    let takes = |arguments: &[&str]| {
        let output = promtool(arguments, "");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    };
    takes(&["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"]);
    takes(&["test", "rules", "rules.test.yaml"]);
    let config = tempfile::NamedTempFile::new().expect("a file");
    let scrape = file("deploy/prometheus/scrape.yaml");
    let names_it =
        json!({ "scrape_config_files": [scrape], "rule_files": [file("deploy/prometheus/rules.yaml")] });
    fs::write(config.path(), names_it.to_string()).expect("written");
    takes(&["check", "config", "--syntax-only", config.path().to_str().expect("text")]);

    let read = |path: &str| fs::read_to_string(file(path)).expect("it can be read");
    let after = |text: &str, prefix: &str| -> BTreeSet<String> {
        let found = text.lines().filter_map(|line| line.trim_start().strip_prefix(prefix));
        found.map(str::to_owned).collect()
    };
    let rules = read("deploy/prometheus/rules.yaml");
    let alerts = after(&rules, "- alert: ");
    let tested = after(&read("deploy/prometheus/rules.test.yaml"), "- name: ");
    let untested: Vec<&String> = alerts.difference(&tested).collect();
    assert!(untested.is_empty(), "{untested:?}");
    for alert in &alerts {
        assert!(file(&format!("docs/alerts/{}.md", alert.to_lowercase())).exists(), "the page of {alert}");
    }
}

/// The token of a service account.
fn token(plane: &ControlPlane, namespace: &str, account: &str) -> String {
    plane.kubectl(&["-n", namespace, "create", "token", account]).trim().to_owned()
}

/// Some of all that the built controllers do, and calls of the admin API.
async fn work(plane: &ControlPlane, admin: &Admin, namespace: &Namespace) {
    let service = |name: &str| json!({ "metadata": { "name": name }, "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] } });
    let scratch = plane.cluster().await.namespace("scratch").await;
    scratch.create::<ConfigMap>(json!({ "metadata": { "name": "some" } })).await;
    namespace
        .create::<ResourceQuota>(
            json!({ "metadata": { "name": "some" }, "spec": { "hard": { "pods": "500" } } }),
        )
        .await;
    // A service without selector, whose endpoints are mirrored.
    let mut outside = service("outside");
    outside["spec"]["selector"] = json!(null);
    namespace.create::<Service>(outside).await;
    let addresses = json!([{ "addresses": [{ "ip": "192.0.2.7" }], "ports": [{ "port": 80 }] }]);
    namespace.create::<Endpoints>(json!({ "metadata": { "name": "outside" }, "subsets": addresses })).await;
    // A Job that comes to its end.
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "work:1" }] } });
    let spec = json!({ "completions": 1, "completionMode": "Indexed", "template": template });
    namespace.create::<Job>(json!({ "metadata": { "name": "some" }, "spec": spec })).await;
    for name in ["cart", "front", "search"] {
        namespace.create::<Service>(service(name)).await;
        namespace.deployment(name, 12, json!({})).await;
        settled(namespace, name, 12).await;
        for release in 2..4 {
            namespace.set_image(name, &format!("nginx:{release}")).await;
            settled(namespace, name, 12).await;
            for controller in ["deployment", "endpointslice"] {
                let request = proto::SyncObjectRequest {
                    controller: controller.to_owned(),
                    object: Some(proto::ObjectKey {
                        namespace: namespace.name.clone(),
                        name: name.to_owned(),
                    }),
                    ..Default::default()
                };
                admin.queues().sync_object(request).await.expect("an answer");
            }
        }
        namespace.patch_deployment(name, json!({ "spec": { "replicas": 4 } })).await;
        settled(namespace, name, 4).await;
    }
    plane.kubectl(&["-n", &namespace.name, "wait", "job/some", "--for=condition=Complete", "--timeout=3m"]);
    plane.kubectl(&["-n", &namespace.name, "delete", "deployment", "cart", "--wait=false"]);
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(scratch.client.clone());
    namespaces.delete(&scratch.name, &DeleteParams::default()).await.expect("it is deleted");
    let gone = || async { namespaces.get_opt(&scratch.name).await.expect("an answer").is_none() };
    until("the end of the namespace", LIMIT, gone, |gone| *gone).await;
}

/// Those who may are answered, those who may not are not.
async fn access(prometheus: &Prometheus) {
    for job in [JOB, SLIS, TEXT] {
        let up = || prometheus.target(job);
        until(&format!("the scrape of {job}"), LIMIT, up, |target| target.health == "up").await;
        let up = format!("up{{job={job:?}}} == 1");
        until(&up, LIMIT, || prometheus.query(&up), |found| found.len() == 1).await;
    }
    for job in [NOBODY, STRANGER] {
        let down = || prometheus.target(job);
        let refused =
            until(&format!("the scrape of {job}"), LIMIT, down, |target| target.health == "down").await;
        assert!(refused.last_error.contains("403 Forbidden"), "{refused:?}");
        let up = format!("up{{job={job:?}}} == 0");
        until(&up, LIMIT, || prometheus.query(&up), |found| found.len() == 1).await;
    }
}

/// Counters whose names are the original's and so stay as they are, without the ending that promtool asks for there too.
const WITHOUT_TOTAL: [&str; 5] = [
    "authenticated_user_requests",
    "authentication_attempts",
    "endpoint_slice_controller_changes",
    "endpoint_slice_controller_syncs",
    "endpoint_slice_mirroring_controller_changes",
];

/// Metrics of which labels have names of the original's: `backoffLimit`, `clusterCIDR`.
const CAMEL: [&str; 6] = [
    "job_controller_job_finished_indexes_total",
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "node_ipam_controller_cidrset_usage_cidrs",
    "node_ipam_controller_cirdset_max_cidrs",
];

/// A gauge whose name is the original's and ends like a histogram's part.
const COUNT: &str = "authentication_token_cache_active_fetch_count";

async fn lint(manager: &Manager<'_>, token: &str) {
    let excused = WITHOUT_TOTAL.map(|name| format!("{name} counter metrics should have \"_total\" suffix"));
    let camel =
        CAMEL.map(|name| format!("{name} label names should be written in 'snake_case' not 'camelCase'"));
    let count = format!("{COUNT} non-histogram and non-summary metrics should not have \"_count\" suffix");
    let excused = [&excused[..], &camel, &[count]].concat();
    for (path, excused) in [("/metrics", &excused[..]), ("/metrics/slis", &[])] {
        let page = manager.page(Caller::Bearer(token), path).await;
        assert_eq!(page.status, 200);
        let output = promtool(&["check", "metrics"], &page.text);
        let said = said(&output);
        let found: BTreeSet<&str> = said.lines().collect();
        assert_eq!(found, excused.iter().map(String::as_str).collect(), "{path}");
        // 3 is for what was listed above; 1 for a text that is not well-formed.
        assert_eq!(output.status.code(), Some(if excused.is_empty() { 0 } else { 3 }), "{output:?}");
    }
}

/// Rules can be evaluated, nothing is wrong, and they name only what there is.
async fn rules(prometheus: &Prometheus, known: &BTreeSet<String>) {
    let evaluated = || prometheus.rules();
    let rules = until("rules", LIMIT, evaluated, |rules| {
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
    })
    .await;
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        // Only those that are due at once can fire by now.
        assert_ne!(rule["state"], "firing", "{rule}");
        let recorded: BTreeSet<String> =
            rules.iter().filter_map(|rule| Some(rule["name"].as_str()?.to_owned())).collect();
        let named = prometheus.names(rule["query"].as_str().expect("an expression")).await;
        let unknown: Vec<&String> =
            named.difference(known).filter(|name| !recorded.contains(*name)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", rule["name"]);
    }
}

#[tokio::test]
async fn a_prometheus_finds_what_dashboards_and_alerts_ask_for() {
    let _turn = turn().await;
    let collector = Collector::new();
    let plane = ControlPlane::start(&Options { nodes: 3, args: Vec::new() });
    collector.start_on(&plane);
    let tracing = format!("--tracing-endpoint={}", collector.grpc);
    // Nodes get blocks of addresses only where that is asked for.
    let blocks = ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"];
    let manager = plane.coxswain("coxswain", &[&[tracing.as_str()][..], &blocks].concat());
    plane.kubectl(&["create", "namespace", "monitoring"]);
    let rbac = file("deploy/prometheus/rbac.yaml");
    plane.kubectl(&["apply", "-f", rbac.to_str().expect("text")]);
    let namespace = plane.cluster().await.namespace("shop").await;
    plane.kubectl(&["-n", &namespace.name, "create", "serviceaccount", "stranger"]);
    let scraper = token(&plane, "monitoring", "coxswain-scraper");
    let stranger = token(&plane, &namespace.name, "stranger");
    let prometheus = Prometheus::start(&plane, &manager, &scraper, &stranger).await;
    let start = prometheus.now().await;
    access(&prometheus).await;

    // Checks are counted when someone asks for them, as kubelets do.
    assert_eq!(manager.page(Caller::Anonymous, "/healthz").await.status, 200);
    work(&plane, &Admin::master(&plane, &manager), &namespace).await;
    for job in [TEXT, JOB] {
        let faults = || peer::faults(&prometheus, job);
        until(&format!("the original's series in {job}"), Duration::from_secs(20), faults, Vec::is_empty)
            .await;
    }
    lint(&manager, &scraper).await;
    // Which of the two it is asked in makes no difference to names.
    let apart = || async {
        let (text, openmetrics) = (prometheus.series(TEXT).await, prometheus.series(JOB).await);
        // Prometheus itself makes series of alerts that are pending.
        let is_alert = |name: &str| matches!(name, "ALERTS" | "ALERTS_FOR_STATE");
        let alone = |name: &&String| {
            !is_alert(name) && (!text.contains_key(*name) || !openmetrics.contains_key(*name))
        };
        text.keys().chain(openmetrics.keys()).filter(alone).cloned().collect::<Vec<_>>()
    };
    until("the same metrics in both formats", LIMIT, apart, Vec::is_empty).await;

    let exemplars = || prometheus.exemplars(JOB, start);
    let traces = until("exemplars", LIMIT, exemplars, |found| {
        WITH_EXEMPLARS.iter().all(|name| found.contains_key(*name))
    })
    .await;
    let known_to_the_collector = || async {
        let received = collector.traces();
        traces["coxswain_reconcile_duration_seconds_bucket"]
            .difference(&received)
            .cloned()
            .collect::<Vec<_>>()
    };
    until("traces that exemplars name", LIMIT, known_to_the_collector, Vec::is_empty).await;

    let mut known: BTreeSet<String> = prometheus.series(JOB).await.into_keys().collect();
    known.extend(prometheus.series(SLIS).await.into_keys());
    known.insert("up".to_owned());
    // This metric has series only while an override exists, and an override raises an alert. `admin::metrics` tests the series.
    known.insert("coxswain_override_end_timestamp_seconds".to_owned());
    rules(&prometheus, &known).await;
    let unknown: Vec<String> = dashboard::names(&prometheus).await.difference(&known).cloned().collect();
    assert!(unknown.is_empty(), "the dashboard names what is not there: {unknown:?}");
    let blank = || async { dashboard::blank(&prometheus, start, prometheus.now().await).await };
    until("panels with data", Duration::from_secs(30), blank, Vec::is_empty).await;

    if std::env::var_os(DRAW).is_some() {
        draw(&prometheus, start, &file("docs/dashboard.svg")).await;
    }
    manager.stop();
}

/// Draws what the panels show since `start`.
async fn draw(prometheus: &Prometheus, start: f64, to: &Path) {
    let end = prometheus.now().await;
    let mut drawn = Vec::new();
    for panel in dashboard::panels() {
        let lines = dashboard::shown(prometheus, &panel, start, end).await;
        drawn.push((panel, lines));
    }
    fs::write(to, picture::draw(&drawn, start, end)).expect("the picture is written");
}
