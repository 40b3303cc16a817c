//! Traces on their way to a real OpenTelemetry Collector, beside those of a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use coxswain::admin::proto;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::admin::Admin;
use crate::deployments::settled;
use crate::harness::{Caller, ControlPlane, KeyPair, Manager, Options, Status, binaries, turn, until};

const LIMIT: Duration = Duration::from_mins(2);

/// A collector that writes what it receives into a file. It is a component of a control plane, but its address is known
/// before that is up.
pub(crate) struct Collector {
    pub(crate) grpc: String,
    http: String,
    dir: TempDir,
}

/// A span as the collector wrote it.
#[derive(Clone, Debug)]
struct Span {
    service: String,
    name: String,
    trace: String,
    id: String,
    parent: String,
    attributes: BTreeMap<String, Value>,
    /// Trace and span of each.
    links: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Attributes,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Debug, Deserialize)]
struct ScopeSpans {
    spans: Vec<WrittenSpan>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSpan {
    trace_id: String,
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    #[serde(flatten)]
    attributes: Attributes,
    #[serde(default)]
    links: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    trace_id: String,
    span_id: String,
}

#[derive(Debug, Deserialize)]
struct Attributes {
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Debug, Deserialize)]
struct Attribute {
    key: String,
    /// `{"stringValue": …}` and the like.
    value: BTreeMap<String, Value>,
}

impl Attributes {
    fn map(self) -> BTreeMap<String, Value> {
        let value =
            |mut value: BTreeMap<String, Value>| value.pop_first().map_or(Value::Null, |(_, held)| held);
        self.attributes.into_iter().map(|each| (each.key, value(each.value))).collect()
    }
}

impl Span {
    fn text(&self, attribute: &str) -> &str {
        self.attributes.get(attribute).and_then(Value::as_str).unwrap_or_default()
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").to_string()
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// One that is spoken to over TLS alone, and has this certificate.
    fn secure(serving: &KeyPair) -> Self {
        Self::with(Some(serving))
    }

    fn with(serving: Option<&KeyPair>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let this = Self { grpc: free_address(), http: free_address(), dir };
        let tls = serving.map(|pair| json!({ "cert_file": pair.cert_file, "key_file": pair.key_file }));
        let config = json!({
            "receivers": { "otlp": { "protocols": {
                "grpc": { "endpoint": this.grpc, "tls": tls }, "http": { "endpoint": this.http, "tls": tls },
            } } },
            "exporters": { "file": { "path": this.file(), "flush_interval": "100ms" } },
            "service": {
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": { "traces": { "receivers": ["otlp"], "exporters": ["file"] } },
            },
        });
        fs::write(this.dir.path().join("collector.yaml"), config.to_string()).expect("its configuration");
        this
    }

    /// Where it writes what it receives.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("spans.json")
    }

    pub(crate) fn start_on(&self, plane: &ControlPlane) {
        self.start_as(plane, "collector");
    }

    fn start_as(&self, plane: &ControlPlane, name: &str) {
        let config = format!("--config=file:{}", self.dir.path().join("collector.yaml").display());
        plane.add(name, &binaries().join("collector"), &[&config]);
    }

    /// The ids of the traces of which it has received something so far.
    pub(crate) fn traces(&self) -> BTreeSet<String> {
        self.spans().into_iter().map(|span| span.trace).collect()
    }

    /// What it has received so far.
    fn spans(&self) -> Vec<Span> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        // The last line may be half written.
        let written = text.lines().filter_map(|line| serde_json::from_str::<Written>(line).ok());
        let mut spans = Vec::new();
        for each in written.flat_map(|written| written.resource_spans) {
            let resource = each.resource.map();
            let service = resource.get("service.name").and_then(Value::as_str).unwrap_or_default().to_owned();
            spans.extend(each.scope_spans.into_iter().flat_map(|scope| scope.spans).map(|span| Span {
                service: service.clone(),
                name: span.name,
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                attributes: span.attributes.map(),
                links: span.links.into_iter().map(|link| (link.trace_id, link.span_id)).collect(),
            }));
        }
        spans
    }
}

/// The spans of one write, outermost first: reconcile, request, the API server's answer to it.
fn chain(spans: &[Span], reconcile: &str, request: &str, namespace: &str) -> Option<[Span; 3]> {
    spans.iter().find_map(|served| {
        let above = |below: &Span| {
            spans.iter().find(|span| span.id == below.parent && span.trace == below.trace).cloned()
        };
        let sent = (served.service == "apiserver").then(|| above(served)).flatten()?;
        let reconciled = above(&sent)?;
        let ours = sent.service == "coxswain" && reconciled.service == "coxswain";
        let wanted = sent.name == request && reconciled.name == reconcile;
        let here = sent.text("k8s.namespace.name") == namespace;
        (ours && wanted && here).then(|| [reconciled, sent, served.clone()])
    })
}

#[tokio::test]
async fn a_rolling_update_is_traced_from_the_reconcile_into_the_api_server() {
    let _turn = turn().await;
    let collector = Collector::new();
    let endpoint: &'static str = collector.grpc.clone().leak();
    // The API server begins no trace by itself: what it records, it records because we did.
    let tracing = vec!["--tracing-endpoint", endpoint, "--tracing-sampling-per-million", "0"];
    let plane = ControlPlane::start(&Options { nodes: 2, args: tracing });
    collector.start_on(&plane);
    // An API server joins the traces of privileged callers only; others' it links to.
    let kubeconfig = format!("--kubeconfig={}", plane.report.kubeconfigs["admin"].display());
    let manager = plane.coxswain(
        "coxswain",
        &[&format!("--tracing-endpoint={endpoint}"), &kubeconfig, "--use-service-account-credentials=false"],
    );
    let namespace = plane.cluster().await.namespace("tracing").await;
    namespace.deployment("web", 2, json!({})).await;
    settled(&namespace, "web", 2).await;
    namespace.set_image("web", "nginx:2").await;
    let deployment = settled(&namespace, "web", 2).await;

    for (controller, request, path) in [
        ("deployment-controller", "create replicasets", "replicasets"),
        ("replicaset-controller", "create pods", "pods"),
        ("replicaset-controller", "delete pods", "pods/{:name}"),
    ] {
        let reconcile = format!("reconcile {controller}");
        let found = until(
            &format!("{request} within {reconcile}"),
            LIMIT,
            || async { chain(&collector.spans(), &reconcile, request, &namespace.name) },
            Option::is_some,
        )
        .await;
        let [reconciled, sent, served] = found.expect("it was waited for");
        assert!(served.name.ends_with(path), "{served:?}");
        assert_eq!(reconciled.parent, "", "a reconcile begins a trace");
        assert_eq!(reconciled.text("controller"), controller);
        assert_eq!(reconciled.text("coxswain.result"), "done", "{reconciled:?}");
        assert_eq!(reconciled.text("k8s.namespace.name"), namespace.name);
        assert_ne!(reconciled.text("k8s.object.resource_version"), "");
        if controller == "deployment-controller" {
            assert_eq!(reconciled.text("k8s.object.name"), "web");
            let uid = deployment.metadata.uid.as_deref().expect("it is stored");
            assert_eq!(reconciled.text("k8s.object.uid"), uid);
        }
        let expected = if request.starts_with("create") { "201" } else { "200" };
        assert_eq!(sent.text("http.response.status_code"), expected);
        assert!(collector.spans().iter().any(|span| span.name == "plan" && span.parent == reconciled.id));
        let named = format!("trace_id=\"{}\"", reconciled.trace);
        assert!(manager.log().contains(&named), "the lines of this reconcile name its trace");
    }

    the_rest_is_traced_too(&collector, &plane, &manager, &namespace.name).await;

    let others = ["OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_SERVICE_NAME=by-http"];
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT=http://{}", collector.http);
    let standby = plane.coxswain_with("standby", &[others[0], others[1], &endpoint], &[]);
    let by_http = || async { collector.spans().iter().filter(|span| span.service == "by-http").count() };
    until("spans by HTTP", LIMIT, by_http, |count| *count > 0).await;
    standby.stop();
    manager.stop();
    assert!(!manager.log().contains("Trace export failed"), "all of them were");
}

/// Start-up, elections, informers, events and calls, once a Deployment `web` was changed.
async fn the_rest_is_traced_too(
    collector: &Collector,
    plane: &ControlPlane,
    manager: &Manager<'_>,
    namespace: &str,
) {
    let spans = collector.spans();
    for name in [
        "start",
        "start controllers",
        "leader election acquire",
        "leader election renew",
        "informer stream deployments.apps",
    ] {
        let found = spans.iter().find(|span| span.name == name);
        assert!(found.is_some_and(|span| span.parent.is_empty()), "{name}: {found:?}");
    }
    let change = |span: &&Span| {
        span.name == "event deployments.apps"
            && span.text("k8s.namespace.name") == namespace
            && span.text("coxswain.change") == "updated"
    };
    let caused = spans.iter().filter(change).any(|change| {
        let links_here = |span: &Span| span.links.iter().any(|(_, id)| *id == change.id);
        spans.iter().any(|span| span.name == "reconcile deployment-controller" && links_here(span))
    });
    assert!(caused, "a reconcile links to what caused it");

    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let admin = Admin::master(plane, manager);
    let mut request = tonic::Request::new(proto::SyncObjectRequest {
        controller: "deployment".to_owned(),
        object: Some(proto::ObjectKey { namespace: namespace.to_owned(), name: "web".to_owned() }),
        ..Default::default()
    });
    let header = format!("00-{trace}-{parent}-01").parse().expect("a header's value");
    request.metadata_mut().insert("traceparent", header);
    let answer = admin.queues().sync_object(request).await.expect("an answer").into_inner();
    let told = admin.past("deployment-controller", proto::EventType::ReconcileFinished).await;
    assert!(told.iter().any(|event| event.trace_id == answer.trace_id), "{answer:?} {told:?}");
    let answered = || async {
        let spans = collector.spans();
        let call = spans.iter().find(|span| span.trace == trace && span.parent == parent)?;
        let reconcile = spans.iter().find(|span| span.trace == answer.trace_id && span.parent.is_empty())?;
        Some((call.clone(), reconcile.clone()))
    };
    let found = until("the call and its reconcile", LIMIT, answered, Option::is_some).await;
    let (call, reconcile) = found.expect("it was waited for");
    assert!(call.name.ends_with("QueueService/SyncObject"), "{call:?}");
    assert!(reconcile.links.contains(&(call.trace, call.id)), "{reconcile:?}");
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    exported: f64,
    dropped: f64,
}

async fn counts(manager: &Manager<'_>) -> Counts {
    let page = manager.page(Caller::Admin, "/metrics").await;
    let count = |name: &str| page.metric(name).unwrap_or_else(|| panic!("{name} in {}", page.text));
    Counts {
        exported: count("coxswain_trace_spans_exported_total"),
        dropped: count("coxswain_trace_spans_dropped_total"),
    }
}

/// More memory than this no queue of spans may take, in KiB.
const BEARABLE: u64 = 48 << 10;

#[tokio::test]
async fn a_collector_that_dies_or_stalls_costs_spans_and_nothing_else() {
    let _turn = turn().await;
    let collector = Collector::new();
    let plane = ControlPlane::start(&Options { nodes: 4, args: Vec::new() });
    collector.start_on(&plane);
    let endpoint = format!("--tracing-endpoint={}", collector.grpc);
    // A short queue and a short patience, so that there is something to see soon.
    let variables =
        ["OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_EXPORTER_OTLP_TIMEOUT=1000"];
    let manager = plane.coxswain_with("coxswain", &variables, &[&endpoint]);
    let namespace = plane.cluster().await.namespace("tracing").await;
    let work = async |name: &str| {
        for at in 0..3 {
            let name = format!("{name}-{at}");
            namespace.deployment(&name, 10, json!({})).await;
            settled(&namespace, &name, 10).await;
            namespace.set_image(&name, "nginx:2").await;
            settled(&namespace, &name, 10).await;
        }
    };
    let taken_after = async |before: Counts| {
        let holds = |now: &Counts| now.exported > before.exported;
        until("spans taken", LIMIT, || counts(&manager), holds).await
    };
    let dropped_after = async |before: Counts| {
        let holds = |now: &Counts| now.dropped > before.dropped;
        until("spans dropped", LIMIT, || counts(&manager), holds).await
    };

    work("well").await;
    let well = taken_after(Counts { exported: 0.0, dropped: 0.0 }).await;
    let memory = Status::of(manager.pid).field("VmRSS:");

    plane.operate("pause", "collector");
    work("stalled").await;
    let stalled = dropped_after(well).await;
    plane.operate("resume", "collector");
    let resumed = taken_after(stalled).await;

    plane.operate("kill", "collector");
    work("dead").await;
    let dead = dropped_after(resumed).await;
    plane.operate("start", "collector");
    work("again").await;
    taken_after(dead).await;

    let grown = Status::of(manager.pid).field("VmRSS:").saturating_sub(memory);
    assert!(grown < BEARABLE, "{grown} KiB more than before");
    assert_eq!(manager.errors(), [""; 0]);
    assert!(manager.log().contains("Trace export failed"));
    assert!(manager.log().contains("Trace export recovered"));
    manager.stop();
    assert!(manager.exit().starts_with("exit status 0"), "{}", manager.exit());
}

#[tokio::test]
async fn spans_go_over_tls_to_a_collector_that_a_private_authority_vouches_for() {
    let plane = ControlPlane::shared();
    let collector = Collector::secure(&plane.report.manager_serving);
    collector.start_as(plane, "secure-collector");
    let authority = format!("OTEL_EXPORTER_OTLP_CERTIFICATE={}", plane.report.ca_file.display());
    let service = |name: &str| format!("OTEL_SERVICE_NAME={name}");
    let by = |name: &str| collector.spans().iter().filter(|span| span.service == name).count();
    for (name, protocol, address) in
        [("by-grpc", "grpc", &collector.grpc), ("by-http", "http/protobuf", &collector.http)]
    {
        let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT=https://{address}");
        let protocol = format!("OTEL_EXPORTER_OTLP_PROTOCOL={protocol}");
        let manager = plane.coxswain_with(name, &[&endpoint, &protocol, &service(name), &authority], &[]);
        until(&format!("spans {name}"), LIMIT, || async { by(name) }, |count| *count > 0).await;
        manager.stop();
        assert!(!manager.log().contains("Trace export failed"), "all of them were");

        // The system's authorities do not know this one.
        let stranger = format!("stranger-{name}");
        let manager = plane.coxswain_with(&stranger, &[&endpoint, &protocol, &service("stranger")], &[]);
        let refused = || async { manager.log().contains("Trace export failed") };
        until("a collector that is not trusted", LIMIT, refused, |refused| *refused).await;
        manager.stop();
    }
    assert_eq!(by("stranger"), 0);
    plane.operate("stop", "secure-collector");
}
