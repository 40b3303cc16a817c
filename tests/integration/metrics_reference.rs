//! The reference of the original's metrics (`tests/data/peer/metrics.tsv`), kept by what the Go manager's own page shows: its
//! names, types, labels and bounds of buckets. With `COXSWAIN_PARITY_RECORD` set (`make metrics-reference`) what it lacks is written
//! into it; otherwise that is an error. And both managers count the same callers in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Endpoints, Node, Service, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::harness::{Caller, Cluster, ControlPlane, Manager, Namespace, Options, object, until};

const LIMIT: Duration = Duration::from_mins(2);
const FILE: &str = "tests/data/peer/metrics.tsv";
/// Of Go's own runtime and of any process: the library's that the original takes, not its own.
const OF_THE_RUNTIME: [&str; 2] = ["go_", "process_"];
/// Seen on this page when everything has come that is waited for.
const LATE: [&str; 7] = [
    "endpoint_slice_controller_num_endpoint_slices",
    "endpoint_slice_mirroring_controller_num_endpoint_slices",
    "job_controller_jobs_finished_total",
    "leader_election_master_status",
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "running_managed_controllers",
];
/// What is counted of callers.
const OF_CALLERS: [&str; 9] = [
    "apiserver_client_certificate_expiration_seconds_bucket",
    "apiserver_client_certificate_expiration_seconds_count",
    "apiserver_delegated_authn_request_total",
    "apiserver_delegated_authz_request_total",
    "authenticated_user_requests",
    "authentication_attempts",
    "authentication_token_cache_fetch_total",
    "authentication_token_cache_request_total",
    "authorization_attempts_total",
];

/// A metric, as a page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    kind: String,
    labels: BTreeSet<String>,
    /// Upper bounds of its buckets as they are written, in order.
    bounds: Vec<String>,
}

type Reference = BTreeMap<String, Row>;

/// The metrics of a page in the text format.
fn metrics_of(page: &str) -> Reference {
    let mut all = Reference::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut all.entry(name.to_owned()).or_default().kind);
        }
        let Some((series, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let ends = ["", "_bucket", "_count", "_sum"];
        let family =
            ends.iter().filter_map(|end| name.strip_suffix(end)).find(|name| all.contains_key(*name));
        let Some(row) = family.and_then(|name| all.get_mut(name)) else { continue };
        for (label, value) in
            labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""))
        {
            let value = value.trim_end_matches('"');
            if label != "le" {
                row.labels.insert(label.to_owned());
            } else if !row.bounds.iter().any(|bound| bound == value) {
                row.bounds.push(value.to_owned());
            }
        }
    }
    all.retain(|name, _| !OF_THE_RUNTIME.iter().any(|begin| name.starts_with(begin)));
    all
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(FILE)
}

fn stored() -> Reference {
    let text = fs::read_to_string(path()).expect("the reference");
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [name, kind, labels, bounds] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{FILE}: not four columns: {line}")
        };
        let split = |text: &str| text.split(',').filter(|each| !each.is_empty()).map(str::to_owned).collect();
        let bounds: Vec<String> = split(bounds);
        let labels: Vec<String> = split(labels);
        (name.to_owned(), Row { kind: kind.to_owned(), labels: labels.into_iter().collect(), bounds })
    });
    rows.collect()
}

fn store(reference: &Reference) {
    let text = fs::read_to_string(path()).expect("the reference");
    let mut text: String =
        text.lines().filter(|line| line.starts_with('#')).fold(String::new(), |all, line| all + line + "\n");
    for (name, row) in reference {
        let labels = row.labels.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        writeln!(text, "{name}\t{}\t{labels}\t{}", row.kind, row.bounds.join(",")).expect("memory");
    }
    fs::write(path(), text).expect("the reference is written");
}

/// Gives a manager something to count: pods, slices of two kinds, a Job that ends.
async fn work(namespace: &Namespace) {
    namespace.deployment("web", 2, json!({})).await;
    let ports = json!([{ "port": 80 }]);
    let select = json!({ "app": "web" });
    let _: Service = namespace
        .create(json!({ "metadata": { "name": "web" }, "spec": { "selector": select, "ports": ports } }))
        .await;
    let _: Service =
        namespace.create(json!({ "metadata": { "name": "other" }, "spec": { "ports": ports } })).await;
    let subset = json!({ "addresses": [{ "ip": "192.0.2.1" }], "ports": ports });
    let _: Endpoints =
        namespace.create(json!({ "metadata": { "name": "other" }, "subsets": [subset] })).await;
    let container = json!({ "name": "main", "image": "work:1" });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let _: Job =
        namespace.create(json!({ "metadata": { "name": "once" }, "spec": { "template": template } })).await;
    let get = || namespace.get_deployment("web");
    let is_there = |web: &Deployment| web.status.as_ref().and_then(|status| status.ready_replicas) == Some(2);
    until("the Deployment is ready", LIMIT, get, is_there).await;
}

/// A node gets a block of addresses, and gives it back.
async fn node_comes_and_goes(cluster: &Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = object(json!({ "metadata": { "name": "passing" } }));
    nodes.create(&PostParams::default(), &node).await.expect("the node is created");
    let get = || async { nodes.get("passing").await.expect("the node").spec.and_then(|spec| spec.pod_cidr) };
    until("the node has a block", LIMIT, get, Option::is_some).await;
    nodes.delete("passing", &DeleteParams::default()).await.expect("the node is deleted");
}

/// Every sort of caller, each a few times.
async fn call(plane: &ControlPlane, manager: &Manager<'_>, token: &str) {
    for name in ["client", "kube_proxy", "kubelet", "kube-apiserver", "system:apiserver", "jane"] {
        let kubeconfig = plane.identity(name, &[]);
        manager.page(Caller::Certificate(&kubeconfig), "/healthz").await;
    }
    for _ in 0..3 {
        manager.page(Caller::Bearer(token), "/healthz").await;
        let refused = manager.page(Caller::Bearer(token), "/metrics").await;
        assert_eq!(refused.status, 403, "{}", manager.name);
        let unknown = manager.page(Caller::Bearer("nobody's"), "/metrics").await;
        assert_eq!(unknown.status, 401, "{}", manager.name);
        manager.page(Caller::Anonymous, "/metrics").await;
        manager.page(Caller::Admin, "/configz").await;
    }
}

/// What is counted of callers, by series.
fn of_callers(page: &str) -> BTreeMap<String, f64> {
    let series = page
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| OF_CALLERS.contains(&series.split('{').next().unwrap_or_default()));
    // Bounds are numbers, however they are written.
    let plain = |series: &str| match series
        .split_once("le=\"")
        .and_then(|(name, rest)| Some((name, rest.strip_suffix("\"}")?)))
    {
        Some((name, bound)) => format!("{name}{:?}", bound.parse::<f64>().expect("a bound")),
        None => series.to_owned(),
    };
    series.map(|(series, value)| (plain(series), value.parse().expect("a number"))).collect()
}

async fn growth(plane: &ControlPlane, manager: &Manager<'_>, token: &str) -> BTreeMap<String, f64> {
    let look = || manager.page(Caller::Admin, "/metrics");
    let before = of_callers(&look().await.text);
    call(plane, manager, token).await;
    let after = of_callers(&look().await.text);
    let grown = after.into_iter().map(|(series, value)| {
        let by = value - before.get(&series).copied().unwrap_or(0.0);
        (series, by)
    });
    grown.filter(|(_, by)| *by != 0.0).collect()
}

#[tokio::test]
async fn the_reference_knows_all_that_the_original_shows() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec![] });
    let flags = ["--allocate-node-cidrs", "--cluster-cidr=10.128.0.0/16"];
    let go = plane.go_manager("go", &flags);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("metrics").await;
    work(&namespace).await;
    node_comes_and_goes(&cluster).await;
    let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "caller" } })).await;
    let token = plane.kubectl(&["create", "token", "caller", "-n", &namespace.name]);
    let theirs = growth(&plane, &go, token.trim()).await;
    let look = || async { metrics_of(&go.page(Caller::Admin, "/metrics").await.text) };
    let page =
        until("everything is counted", LIMIT, look, |page| LATE.iter().all(|name| page.contains_key(*name)))
            .await;

    let mut reference = stored();
    let is_recording = std::env::var_os("COXSWAIN_PARITY_RECORD").is_some();
    let mut missing = Vec::new();
    for (name, seen) in page {
        let Some(known) = reference.get_mut(&name) else {
            missing.push(format!("{name}: {seen:?} is not there"));
            reference.insert(name, seen);
            continue;
        };
        // One by labels shows none of them before it has values.
        let is_known = known.kind == seen.kind && seen.labels.is_subset(&known.labels);
        if !is_known || !(seen.bounds.is_empty() || seen.bounds == known.bounds) {
            missing.push(format!("{name}: {seen:?} is not {known:?}"));
            known.labels.extend(seen.labels);
            (known.kind, known.bounds) = (seen.kind, seen.bounds);
        }
    }
    if is_recording {
        store(&reference);
    } else {
        assert!(missing.is_empty(), "`make metrics-reference` writes into {FILE}: {missing:#?}");
    }

    // It stands by: the port is the same.
    let coxswain = plane.coxswain("coxswain", &flags);
    let ours = growth(&plane, &coxswain, token.trim()).await;
    assert!(theirs.len() > 12, "{theirs:#?}");
    assert_eq!(ours, theirs);
}
