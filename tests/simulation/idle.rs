//! A large cluster in which nothing changes: controllers read from the API server what the table of live reads allows, and nothing else.
//! `make test-all` has 7,000 objects, `make unit` a tenth of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::{Service as _, ServiceExt as _};

use coxswain_controllers::live_reads::ALL;
use coxswain_machinery::api::kinds;
use coxswain_machinery::client::HttpService;
use coxswain_machinery::environment::Environment;

use crate::actors;
use crate::by_depth;
use crate::faults::Faults;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::{Deletion, Place};

const FLAGS: &[&str] = &[
    "--leader-elect=false",
    "--controllers=*,-root-ca-certificate-publisher-controller",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
];
/// Objects of each sort.
const MANY: usize = 1000;
/// The time in which the planted bug reads.
const PLANTED_FOR: Duration = Duration::from_mins(5);
/// The time until no object changes. The longest backoff is 17 minutes.
const SETTLES: Duration = Duration::from_mins(40);
/// The time in which reads are counted.
const WATCHED: Duration = Duration::from_mins(20);
/// The controller in whose name the planted bug reads.
const PLANTED: &str = "replicaset-controller";

fn metadata(sort: &str, number: usize) -> Json {
    json!({ "name": format!("{sort}-{number:05}"), "labels": { "app": format!("{sort}-{number}") } })
}

fn template(sort: &str, number: usize) -> Json {
    let containers = json!([{ "name": "main", "image": "main" }]);
    json!({ "metadata": { "labels": { "app": format!("{sort}-{number}") } }, "spec": { "containers": containers } })
}

/// A workload without pods.
fn workload(sort: &str, number: usize) -> Json {
    let labels = json!({ "matchLabels": { "app": format!("{sort}-{number}") } });
    let spec =
        json!({ "replicas": 0, "selector": labels, "serviceName": "it", "template": template(sort, number) });
    json!({ "metadata": metadata(sort, number), "spec": spec })
}

fn create(server: &Server, resource: &'static str, namespace: &str, object: Json) -> Json {
    server.with(|model| model.create("user", resource, namespace, object).expect("an object").json.clone())
}

/// Creates `many` objects of each of seven sorts that need no change, and `few` of each sort that controllers check without an effect.
fn populate(server: &Server, many: usize, few: usize) {
    let owner = create(server, "configmaps", "default", json!({ "metadata": { "name": "owner" } }));
    let reference =
        |kind: &str, uid: &Json| json!([{ "apiVersion": "v1", "kind": kind, "name": "owner", "uid": uid }]);
    let none = json!("a-uid-that-nobody-has");
    for number in 0..many {
        for (resource, sort) in
            [("replicasets", "sets"), ("deployments", "deployments"), ("statefulsets", "numbered")]
        {
            create(server, resource, "default", workload(sort, number));
        }
        let mut owned = json!({ "metadata": metadata("owned", number) });
        owned["metadata"]["ownerReferences"] = reference("ConfigMap", &owner["metadata"]["uid"]);
        create(server, "secrets", "default", owned);
        create(server, "serviceaccounts", "default", json!({ "metadata": metadata("account", number) }));
        let pod = json!({ "metadata": metadata("pod", number), "spec": template("pod", number)["spec"] });
        create(server, "pods", "default", pod);
        let spec = json!({ "selector": { "app": format!("pod-{number}") }, "clusterIP": "None", "ports": [{ "port": 80 }] });
        create(
            server,
            "services",
            "default",
            json!({ "metadata": metadata("service", number), "spec": spec }),
        );
    }
    for number in 0..few {
        let mut orphan = json!({ "metadata": metadata("orphan", number) });
        orphan["metadata"]["ownerReferences"] = reference("Unknown", &none);
        create(server, "secrets", "default", orphan);
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "deployments-00001" });
        let metric =
            json!({ "metric": { "name": "it" }, "target": { "type": "AverageValue", "averageValue": "1" } });
        let spec = json!({
            "scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 2,
            "metrics": [{ "type": "External", "external": metric }],
        });
        let autoscaler = json!({ "metadata": metadata("autoscaler", number), "spec": spec });
        create(server, "horizontalpodautoscalers", "default", autoscaler);
        let spec =
            json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": format!("pod-{number}") } } });
        create(
            server,
            "poddisruptionbudgets",
            "default",
            json!({ "metadata": metadata("budget", number), "spec": spec }),
        );
        let volume = json!({
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": "example.com", "volumeHandle": number.to_string() },
            "claimRef": { "namespace": "default", "name": "gone", "uid": "gone" },
        });
        create(
            server,
            "persistentvolumes",
            "",
            json!({ "metadata": metadata("released", number), "spec": volume }),
        );
        let spec = json!({
            "storageClassName": "none", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        });
        create(
            server,
            "persistentvolumeclaims",
            "default",
            json!({ "metadata": metadata("claim", number), "spec": spec }),
        );
        // A namespace that cannot be deleted: its content has a finalizer.
        let name = format!("ends-{number}");
        create(server, "namespaces", "", json!({ "metadata": { "name": name } }));
        let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/for-ever"] } });
        create(server, "configmaps", &name, held);
        server.with(|model| {
            drop(model.delete("user", &Place::new("namespaces", "", &name), &Deletion::default()));
        });
    }
}

/// Returns the number of requests that a read of a row takes for all objects that its controller checks periodically.
fn requests(controller: &str, row: &str, few: usize) -> usize {
    match (controller, row) {
        // One list for each namespace and resource.
        ("namespace-controller", "content") => few * kinds::ALL.iter().filter(|kind| kind.namespaced).count(),
        // /api and /apis.
        ("namespace-controller", "discovery") => 2 * few,
        (
            "namespace-controller"
            | "horizontal-pod-autoscaler-controller"
            | "persistentvolume-binder-controller",
            _,
        ) => few,
        _ => 0,
    }
}

/// Returns the maximum number of reads of a controller in a time in which nothing changes, with `few` objects that it checks.
fn allowed(controller: &str, few: usize, within: Duration) -> u64 {
    let of_row = |an_hour: u32| (f64::from(an_hour) * within.as_secs_f64() / 3600.0).ceil() as u64;
    ALL.iter()
        .filter(|row| row.controller == controller)
        .map(|row| of_row(row.idle_per_hour) * requests(controller, row.name, few) as u64)
        .sum()
}

/// A planted bug: a controller reads an unchanged pod once a minute.
async fn read_again(service: HttpService) {
    loop {
        sleep(Duration::from_mins(1)).await;
        let uri = "http://api.test/api/v1/namespaces/default/pods/pod-00001";
        let agent = format!("coxswain/{PLANTED}");
        let request =
            Request::get(uri).header(http::header::USER_AGENT, agent).body(Full::<Bytes>::default());
        let mut service = service.clone();
        let answer = service.ready().await.expect("a service").call(request.expect("a request")).await;
        assert!(answer.expect("an answer").status().is_success());
    }
}

/// Returns the reads of each controller in a time.
async fn reads(server: &Server, within: Duration) -> BTreeMap<String, u64> {
    let before = server.reads();
    sleep(within).await;
    let made = |(controller, reads): (&String, &u64)| {
        let made = reads - before.get(controller).copied().unwrap_or_default();
        (made > 0).then(|| (controller.clone(), made))
    };
    server.reads().iter().filter_map(made).collect()
}

/// Returns a complaint for each controller that has made more reads than the table allows.
fn excess(made: &BTreeMap<String, u64>, few: usize, within: Duration) -> Vec<String> {
    let excess = |(controller, made): (&String, &u64)| {
        let allowed = allowed(controller, few, within);
        (*made > allowed).then(|| format!("{controller} has made {made} reads, {allowed} are allowed"))
    };
    made.iter().filter_map(excess).collect()
}

#[test]
fn an_unchanged_cluster_causes_no_live_reads_beyond_their_bounds() {
    let (many, few) = by_depth((MANY / 10, 2), (MANY, 5));
    in_virtual_time(1, move || async move {
        let epoch = Timestamp::from_second(EPOCH).expect("a time");
        let server = Server::new(epoch, 1, Faults::outages(), Trace::new(false), None);
        server.checks(|checks| checks.is_off = true);
        populate(&server, many, few);
        let service = server.service(1, CancellationToken::new(), &Arc::default());
        let environment = Environment::simulated(server.now(), service.clone());
        let story = async {
            sleep(SETTLES).await;
            let made = reads(&server, WATCHED).await;
            let planted = tokio::select! {
                planted = reads(&server, PLANTED_FOR) => planted,
                () = read_again(service) => panic!("the planted bug never ends"),
            };
            (made, planted)
        };
        let (made, planted) = tokio::select! {
            biased;
            reads = story => reads,
            ended = manager(FLAGS, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
            () = actors::bookmarks(Arc::clone(&server)) => panic!("bookmarks never end"),
        };
        println!("live reads of 20 idle minutes: {made:?}");
        assert_eq!(excess(&made, few, WATCHED), [""; 0]);
        assert!(made.contains_key("namespace-controller"), "the reads are counted");
        let found = excess(&planted, few, PLANTED_FOR);
        assert!(found.iter().any(|line| line.starts_with(PLANTED)), "the planted bug is found: {found:?}");
    });
}
