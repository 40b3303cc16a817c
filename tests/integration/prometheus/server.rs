//! A real Prometheus that scrapes a manager, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{ControlPlane, Manager, binaries, until};

/// The job of the manager's metrics, as the dashboard and the rules expect it.
pub(super) const JOB: &str = "kube-controller-manager";
/// That of its service-level indicators.
pub(super) const SLIS: &str = "kube-controller-manager-slis";
/// The same page, asked for in the older text format alone.
pub(super) const TEXT: &str = "text";
/// A scrape without a token.
pub(super) const NOBODY: &str = "nobody";
/// A scrape by a service account that may not.
pub(super) const STRANGER: &str = "stranger";
/// How long its start may take.
const LIMIT: Duration = Duration::from_mins(1);

pub(super) type Labels = BTreeMap<String, String>;

/// A running Prometheus; a component of the control plane, and ends with it.
pub(super) struct Prometheus {
    client: Client,
    _dir: TempDir,
}

/// What one series was over time: seconds and values.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) points: Vec<(f64, f64)>,
}

/// A target as Prometheus sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    labels: Labels,
    pub(super) health: String,
    pub(super) last_error: String,
}

/// Where a file of the repository is.
pub(super) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

impl Prometheus {
    /// Starts one that scrapes `manager` every two seconds, with the token of one who may and as some who may not.
    pub(super) async fn start(
        plane: &ControlPlane,
        manager: &Manager<'_>,
        token: &str,
        stranger: &str,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("prometheus.yaml");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
        let job = |name: &str, path: &str, token: Option<&str>| {
            let mut job = json!({
                "job_name": name,
                "scheme": "https",
                "metrics_path": path,
                "tls_config": { "ca_file": plane.report.ca_file },
                "static_configs": [{ "targets": [manager.url.trim_start_matches("https://")] }],
            });
            if let Some(token) = token {
                let file = dir.path().join(format!("{name}.token"));
                fs::write(&file, token).expect("the token is written");
                job["authorization"] = json!({ "credentials_file": file });
            }
            job
        };
        let mut text = job(TEXT, "/metrics", Some(token));
        text["scrape_protocols"] = json!(["PrometheusText0.0.4"]);
        let written = json!({
            "global": { "scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s" },
            "storage": { "exemplars": { "max_exemplars": 10000 } },
            "rule_files": [file("deploy/prometheus/rules.yaml")],
            "scrape_configs": [
                job(JOB, "/metrics", Some(token)),
                job(SLIS, "/metrics/slis", Some(token)),
                text,
                job(NOBODY, "/metrics", None),
                job(STRANGER, "/metrics", Some(stranger)),
            ],
        });
        fs::write(&config, written.to_string()).expect("its configuration");
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", dir.path().join("data").display()),
            format!("--web.listen-address={address}"),
            "--enable-feature=exemplar-storage".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        plane.add("prometheus", &binaries().join("prometheus"), &arguments);
        let mut config = Config::new(format!("http://{address}").parse().expect("a URL"));
        config.default_retry = false;
        let this = Self { client: Client::try_from(config).expect("a client"), _dir: dir };
        let ready = || async { this.try_get("/-/ready").await.is_ok() };
        until("Prometheus", LIMIT, ready, |ready| *ready).await;
        this
    }

    async fn try_get(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        self.client.request_text(request).await.map_err(|error| error.to_string())
    }

    /// The `data` of an answer of its API.
    async fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut path = format!("/api/v1/{path}?");
        for (name, value) in parameters {
            let _ = write!(path, "{name}={}&", encoded(value));
        }
        let text = self.try_get(&path).await.unwrap_or_else(|error| panic!("{parameters:?}: {error}"));
        let mut answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].take()
    }

    /// The values of an expression now.
    pub(super) async fn query(&self, expression: &str) -> Vec<(Labels, f64)> {
        #[derive(Deserialize)]
        struct Found {
            metric: Labels,
            value: (f64, String),
        }
        let mut data = self.api("query", &[("query", expression)]).await;
        let found: Vec<Found> = serde_json::from_value(data["result"].take()).expect("a vector");
        found.into_iter().map(|each| (each.metric, number(&each.value.1))).collect()
    }

    /// The clock of Prometheus, in seconds.
    pub(super) async fn now(&self) -> f64 {
        self.query("vector(time())").await[0].1
    }

    /// The values of an expression from `start` to `end`, every second.
    pub(super) async fn over(&self, expression: &str, start: f64, end: f64) -> Vec<Series> {
        #[derive(Deserialize)]
        struct Found {
            metric: Labels,
            values: Vec<(f64, String)>,
        }
        let (start, end) = (start.to_string(), end.to_string());
        let parameters = [("query", expression), ("start", &start), ("end", &end), ("step", "1")];
        let mut data = self.api("query_range", &parameters).await;
        let found: Vec<Found> = serde_json::from_value(data["result"].take()).expect("a matrix");
        let points = |each: &Found| each.values.iter().map(|(at, value)| (*at, number(value))).collect();
        found.into_iter().map(|each| Series { points: points(&each), labels: each.metric }).collect()
    }

    /// The labels of all series of a job, by metric; what rules record about it is not among them.
    pub(super) async fn series(&self, job: &str) -> BTreeMap<String, Vec<Labels>> {
        let data = self.api("series", &[("match[]", &format!("{{job={job:?}}}"))]).await;
        let all: Vec<Labels> = serde_json::from_value(data).expect("series");
        let mut by_name: BTreeMap<String, Vec<Labels>> = BTreeMap::new();
        for mut labels in all {
            let name = labels.remove("__name__").expect("a name");
            if name.contains(':') {
                continue;
            }
            labels.retain(|name, _| name != "job" && name != "instance");
            by_name.entry(name).or_default().push(labels);
        }
        by_name
    }

    /// The types of a job's metrics.
    pub(super) async fn types(&self, job: &str) -> BTreeMap<String, String> {
        #[derive(Deserialize)]
        struct Metadata {
            metric: String,
            r#type: String,
        }
        let data = self.api("targets/metadata", &[("match_target", &format!("{{job={job:?}}}"))]).await;
        let all: Vec<Metadata> = serde_json::from_value(data).expect("metadata");
        all.into_iter().map(|each| (each.metric, each.r#type)).collect()
    }

    /// The target of a job; an empty one as long as there is none.
    pub(super) async fn target(&self, job: &str) -> Target {
        let mut data = self.api("targets", &[("state", "active")]).await;
        let all: Vec<Target> = serde_json::from_value(data["activeTargets"].take()).expect("targets");
        all.into_iter().find(|target| target.labels["job"] == job).unwrap_or_default()
    }

    /// Trace ids of the exemplars of a job since `start`, by metric.
    pub(super) async fn exemplars(&self, job: &str, start: f64) -> BTreeMap<String, BTreeSet<String>> {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Found {
            series_labels: Labels,
            exemplars: Vec<Exemplar>,
        }
        #[derive(Debug, Deserialize)]
        struct Exemplar {
            labels: Labels,
        }
        let (from, to) = (start.to_string(), self.now().await.to_string());
        let all = format!("{{__name__=~\".+_bucket\", job={job:?}}}");
        let data = self.api("query_exemplars", &[("query", &all), ("start", &from), ("end", &to)]).await;
        let found: Vec<Found> = serde_json::from_value(data).expect("exemplars");
        let mut traces: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for each in found {
            let ids = each.exemplars.iter().filter_map(|exemplar| exemplar.labels.get("trace_id").cloned());
            traces.entry(each.series_labels["__name__"].clone()).or_default().extend(ids);
        }
        traces
    }

    /// The rules that it evaluates: names, expressions, and what is wrong with them.
    pub(super) async fn rules(&self) -> Vec<Value> {
        let data = self.api("rules", &[]).await;
        let groups = data["groups"].as_array().cloned().unwrap_or_default();
        groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect()
    }

    /// The metrics that an expression names. Fails if it is not an expression.
    pub(super) async fn names(&self, expression: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect(&self.api("parse_query", &[("query", expression)]).await, &mut names);
        names
    }
}

/// The names of the selectors in a syntax tree.
fn collect(node: &Value, names: &mut BTreeSet<String>) {
    match node {
        Value::Object(fields) => {
            let selects = matches!(node["type"].as_str(), Some("vectorSelector" | "matrixSelector"));
            if let Some(name) = node["name"].as_str().filter(|name| selects && !name.is_empty()) {
                names.insert(name.to_owned());
            }
            fields.values().for_each(|each| collect(each, names));
        }
        Value::Array(all) => all.iter().for_each(|each| collect(each, names)),
        _ => {}
    }
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

/// A value as part of a query string.
fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
