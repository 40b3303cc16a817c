//! Metrics APIs for tests: an API server that answers for `metrics.k8s.io`, `custom.metrics.k8s.io` and
//! `external.metrics.k8s.io` with numbers that a test sets, for each namespace its own.
//!
//! It is registered by APIServices, as such servers are, and reached on loopback: by a Service that is another name for
//! `localhost`. Which pods there are it asks the API server, and says the same of each that runs. It can be told to answer
//! something else, or late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use jiff::{SignedDuration, Unit};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::controlplane::ControlPlane;
use super::kubernetes::object;
use super::tls::TlsServer;
use super::wait::until;

/// Where the Service is.
const SERVICE: &str = "metrics";
const NAMESPACE: &str = "default";
const RESOURCES: &str = "metrics.k8s.io";
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";

/// What is said in one namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Numbers {
    /// What each container of each pod uses, by resource.
    pub(crate) usage: BTreeMap<String, String>,
    /// What containers of these names use instead.
    pub(crate) containers: BTreeMap<String, BTreeMap<String, String>>,
    /// So many pods are not told of.
    pub(crate) without: usize,
    /// Names of things that are told of as if they were pods.
    pub(crate) strangers: Vec<String>,
    /// How many seconds ago it was measured; the future is allowed.
    pub(crate) age: i64,
    /// Custom metrics: `pods/METRIC`, of each pod; `RESOURCE.GROUP/NAME/METRIC`; `metrics/METRIC`, of the namespace.
    pub(crate) custom: BTreeMap<String, String>,
    /// External metrics, by name: the value of each series.
    pub(crate) external: BTreeMap<String, Vec<String>>,
    /// Answers by API group that are given instead.
    pub(crate) instead: BTreeMap<String, Instead>,
}

/// An answer that is none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Instead {
    /// The status code; 200 if it is 0.
    pub(crate) code: u16,
    /// The body: as it is if it is text, else as JSON.
    pub(crate) body: Value,
    /// After so many milliseconds.
    pub(crate) after: u64,
}

/// The running server; it ends when this is dropped.
pub(crate) struct MetricsApi {
    said: Arc<Said>,
    _server: TlsServer,
}

/// What it says, and was asked.
struct Said {
    client: Client,
    numbers: Mutex<BTreeMap<String, Numbers>>,
    asked: Mutex<Vec<String>>,
}

impl MetricsApi {
    /// Starts it, registers it with these versions of custom metrics, and waits until it can be reached.
    pub(crate) async fn start(plane: &ControlPlane, client: &Client, custom: &[&str]) -> Self {
        let said =
            Arc::new(Said { client: client.clone(), numbers: Mutex::default(), asked: Mutex::default() });
        let answering = Arc::clone(&said);
        let answer = move |request| answer(request, Arc::clone(&answering));
        let server = TlsServer::start(&plane.report.manager_serving, answer).await;
        let custom = custom.iter().map(|version| (CUSTOM, *version));
        let apis: Vec<_> = custom.chain([(RESOURCES, "v1beta1"), (EXTERNAL, "v1beta1")]).collect();
        register_apis(client, SERVICE, server.port, &apis).await;
        Self { said, _server: server }
    }

    /// Says this in a namespace from now on.
    pub(crate) fn say(&self, namespace: &str, numbers: Numbers) {
        self.said.numbers.lock().insert(namespace.to_owned(), numbers);
    }

    /// Paths that were asked for in a namespace, queries included.
    pub(crate) fn asked(&self, namespace: &str) -> Vec<String> {
        let is_in = format!("/namespaces/{namespace}/");
        self.said.asked.lock().iter().filter(|path| path.contains(&is_in)).cloned().collect()
    }
}

/// Registers an API server on loopback for these versions of groups, behind a Service of this name, and waits until each is available.
pub(crate) async fn register_apis(client: &Client, service: &str, port: u16, apis: &[(&str, &str)]) {
    let params = PostParams::default();
    let new = object(json!({
        "metadata": { "name": service },
        "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": port }] },
    }));
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.create(&params, &new).await.expect("the Service is created");
    let api: Api<APIService> = Api::all(client.clone());
    for (group, version) in apis {
        let name = format!("{version}.{group}");
        let registered = object(json!({
            "metadata": { "name": name },
            "spec": {
                "group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": if *version == "v1beta2" { 200 } else { 100 },
                "service": { "name": service, "namespace": NAMESPACE, "port": port },
            },
        }));
        api.create(&params, &registered).await.expect("the APIService is created");
        let status = || async { api.get(&name).await.expect("the APIService").status.unwrap_or_default() };
        let is_available =
            |status: &k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIServiceStatus| {
                let mut all = status.conditions.iter().flatten();
                all.any(|each| each.type_ == "Available" && each.status == "True")
            };
        until(&format!("{name} can be reached"), Duration::from_mins(3), status, is_available).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    said: Arc<Said>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let (code, body) = said.answer(&path).await;
    let is_text = body.is_string();
    let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let kind = if is_text { "text/plain" } else { "application/json" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// A part of a path as it is meant.
fn decoded(text: &str) -> String {
    form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}

impl Said {
    async fn answer(&self, target: &str) -> (StatusCode, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<String> = path.trim_start_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            ["apis", group, version] => (StatusCode::OK, resources(group, version)),
            ["apis", group, version, "namespaces", namespace, ref rest @ ..] => {
                self.asked.lock().push(target.to_owned());
                let numbers = self.numbers.lock().get(namespace).cloned().unwrap_or_default();
                if let Some(instead) = numbers.instead.get(group) {
                    tokio::time::sleep(Duration::from_millis(instead.after)).await;
                    if !instead.body.is_null() || instead.code != 0 {
                        let code = StatusCode::from_u16(instead.code).unwrap_or(StatusCode::OK);
                        return (code, instead.body.clone());
                    }
                }
                self.metric(&numbers, (group, version), namespace, rest, query).await
            }
            _ => not_found(path),
        }
    }

    async fn metric(
        &self,
        numbers: &Numbers,
        (group, version): (&str, &str),
        namespace: &str,
        rest: &[&str],
        query: &str,
    ) -> (StatusCode, Value) {
        let label = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(held, _)| held == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let api_version = format!("{group}/{version}");
        let at =
            SystemClock.now().round(Unit::Second).expect("a second") - SignedDuration::from_secs(numbers.age);
        let at = at.to_string();
        let list = |kind: &str, items: Vec<Value>| {
            (
                StatusCode::OK,
                json!({ "kind": kind, "apiVersion": api_version, "metadata": {}, "items": items }),
            )
        };
        let custom = |kind: &str, name: &str, metric: &str, value: &str| {
            let described =
                json!({ "kind": kind, "namespace": namespace, "name": name, "apiVersion": "/v1" });
            if version == "v1beta1" {
                json!({ "describedObject": described, "metricName": metric, "timestamp": at, "value": value })
            } else {
                json!({ "describedObject": described, "metric": { "name": metric }, "timestamp": at, "value": value })
            }
        };
        match (group, rest) {
            (RESOURCES, ["pods"]) => {
                if numbers.usage.is_empty() && numbers.containers.is_empty() {
                    return list("PodMetricsList", Vec::new());
                }
                let pods = self.pods(namespace, &label("labelSelector"), numbers).await;
                let items = pods.iter().map(|(name, containers)| {
                    let containers = containers.iter().map(|container| {
                        let usage = numbers.containers.get(container).unwrap_or(&numbers.usage);
                        json!({ "name": container, "usage": usage })
                    });
                    let containers: Vec<Value> = containers.collect();
                    json!({
                        "metadata": { "name": name, "namespace": namespace }, "timestamp": at, "window": "10s",
                        "containers": containers,
                    })
                });
                list("PodMetricsList", items.collect())
            }
            (CUSTOM, ["pods", "*", metric]) => match numbers.custom.get(&format!("pods/{metric}")) {
                None => list("MetricValueList", Vec::new()),
                Some(value) => {
                    let pods = self.pods(namespace, &label("labelSelector"), numbers).await;
                    let items = pods.iter().map(|(name, _)| custom("Pod", name, metric, value));
                    list("MetricValueList", items.collect())
                }
            },
            (CUSTOM, rest) => match numbers.custom.get(&rest.join("/")) {
                None => not_found(&rest.join("/")),
                Some(values) => {
                    let items = values.split(' ').map(|value| custom("Thing", "it", "metric", value));
                    list("MetricValueList", items.collect())
                }
            },
            (EXTERNAL, [metric]) => match numbers.external.get(*metric) {
                None => list("ExternalMetricValueList", Vec::new()),
                Some(values) => {
                    let items = values.iter().map(|value| {
                        json!({ "metricName": metric, "metricLabels": {}, "timestamp": at, "value": value })
                    });
                    list("ExternalMetricValueList", items.collect())
                }
            },
            _ => not_found(&rest.join("/")),
        }
    }

    /// Pods that run, and names of their containers.
    async fn pods(&self, namespace: &str, selector: &str, numbers: &Numbers) -> Vec<(String, Vec<String>)> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let listed = api.list(&ListParams::default().labels(selector)).await;
        let pods = listed.map(|list| list.items).unwrap_or_default().into_iter();
        let running = pods
            .filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
        let mut told: Vec<(String, Vec<String>)> = running
            .map(|pod| {
                let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
                (
                    pod.metadata.name.unwrap_or_default(),
                    containers.into_iter().map(|held| held.name).collect(),
                )
            })
            .collect();
        told.sort();
        told.drain(..numbers.without.min(told.len()));
        told.extend(numbers.strangers.iter().map(|name| (name.clone(), vec!["c".to_owned()])));
        told
    }
}

fn resources(group: &str, version: &str) -> Value {
    let resource = |name: &str, kind: &str| json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"] });
    let resources = match group {
        RESOURCES => vec![resource("pods", "PodMetrics")],
        CUSTOM => vec![resource("pods/requests", "MetricValueList")],
        _ => vec![resource("queue", "ExternalMetricValueList")],
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
        "resources": resources,
    })
}

fn not_found(what: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("the server could not find the metric {what}"),
    });
    (StatusCode::NOT_FOUND, status)
}
