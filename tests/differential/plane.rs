//! Three control planes of one version: two with kube-controller-manager, one with Coxswain, each with all default controllers and those
//! of bootstrap tokens.
//!
//! There is no scheduler and no kwok. Operations bind pods and report their statuses, so that the list decides the order of events.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::harness::{
    Activity, AuditEvent, AuditTail, Cluster, ControlPlane, Heartbeats, MetricsApi, Options, Program, object,
};
use crate::life::Managers;
use crate::refusals::Refusals;

/// Flags of the managers. Lists play next to each other and must not wait for each other's requests. An autoscaler acts at each of its
/// periods (`calm`), and forgets higher recommendations before the next.
pub(crate) const ARGS: [&str; 7] = [
    "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--max-endpoints-per-slice=3",
    "--horizontal-pod-autoscaler-sync-period=4s",
    "--horizontal-pod-autoscaler-downscale-stabilization=1s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
];
/// The manifest of the objects that all lists may use.
const WORLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential/world.yaml");
/// The version of custom metrics.
const CUSTOM_METRICS: [&str; 1] = ["v1beta2"];
const PLANE: [&str; 4] = [
    "--scheduler=false",
    "--kwok=false",
    "--apiserver-arg=service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
    "--audit",
];
/// Nodes, with their zones. The Leases of all are renewed.
pub(crate) const NODES: [(&str, &str); 3] =
    [("by-hand", "zone-1"), ("by-hand-2", "zone-2"), ("by-hand-3", "zone-3")];

/// A control plane and its manager.
pub(crate) struct Plane {
    pub(crate) program: Program,
    pub(crate) cluster: Cluster,
    pub(crate) activity: Activity,
    pub(crate) metrics: MetricsApi,
    pub(crate) refusals: Refusals,
    /// The CA bundle of the API server.
    pub(crate) bundle: String,
    pub(crate) managers: Mutex<Managers>,
    /// Copies of the roles whose rules were changed, each from before the change.
    pub(crate) changed_roles: Mutex<Vec<ClusterRole>>,
    /// The port of the manager.
    pub(crate) port: String,
    log: Mutex<Log>,
    _heartbeats: Heartbeats,
    pub(crate) launcher: ControlPlane,
}

/// The writes in an audit log, by the list that they belong to. Only lists that play have an entry.
struct Log {
    tail: AuditTail,
    writes: BTreeMap<String, Vec<AuditEvent>>,
}

/// Starts the three control planes at the same time.
pub(crate) async fn start() -> Vec<Plane> {
    let programs = [Program::Go, Program::Go, Program::Coxswain];
    let started: Vec<ControlPlane> = thread::scope(|scope| {
        let starts: Vec<_> = programs.iter().map(|program| scope.spawn(|| start_one(*program))).collect();
        starts.into_iter().map(|start| start.join().expect("the control plane starts")).collect()
    });
    join_all(programs.into_iter().zip(started).map(|(program, started)| follow(program, started))).await
}

fn start_one(program: Program) -> ControlPlane {
    let control_plane = ControlPlane::start(&Options { nodes: 0, args: PLANE.to_vec() });
    drop(control_plane.kubectl(&["create", "-f", WORLD]));
    drop(control_plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]));
    match program {
        Program::Go => drop(control_plane.go_manager(name(program), &ARGS)),
        Program::Coxswain => drop(control_plane.coxswain(name(program), &ARGS)),
    }
    control_plane
}

pub(crate) fn name(program: Program) -> &'static str {
    match program {
        Program::Go => "kube-controller-manager",
        Program::Coxswain => "coxswain",
    }
}

async fn follow(program: Program, control_plane: ControlPlane) -> Plane {
    let cluster = control_plane.cluster().await;
    let metrics = MetricsApi::start(&control_plane, &cluster.client, &CUSTOM_METRICS).await;
    let heartbeats = Heartbeats::start(cluster.client.clone());
    create_nodes(&cluster).await;
    heartbeats.renew("", NODES.iter().map(|(name, _)| (*name).to_owned()).collect()).await;
    let manager = control_plane.running(name(program));
    let activity = Activity::follow(&control_plane, &manager).await;
    let port = manager.url.rsplit(':').next().unwrap_or_default().to_owned();
    let log = Log { tail: control_plane.audit_tail(), writes: BTreeMap::new() };
    let refusals = Refusals::start(&control_plane, &cluster).await;
    Plane {
        program,
        cluster,
        activity,
        metrics,
        refusals,
        bundle: fs::read_to_string(&control_plane.report.ca_file).expect("the CA bundle"),
        managers: Mutex::default(),
        changed_roles: Mutex::default(),
        port,
        log: Mutex::new(log),
        _heartbeats: heartbeats,
        launcher: control_plane,
    }
}

async fn create_nodes(cluster: &Cluster) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    for (name, zone) in NODES {
        let labels = json!({ "topology.kubernetes.io/zone": zone });
        let node = object(json!({ "metadata": { "name": name, "labels": labels } }));
        api.create(&PostParams::default(), &node).await.expect("the node is created");
        let status = json!({ "status": {
            "allocatable": { "cpu": "64", "memory": "64Gi", "pods": "500" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
        drop(patched.expect("the node is ready"));
    }
}

impl Plane {
    pub(crate) fn name(&self) -> &'static str {
        name(self.program)
    }

    /// Keeps the writes to a list's objects from here on, until they are taken.
    pub(crate) fn keep_writes(&self, namespace: &str) {
        self.log.lock().writes.insert(namespace.to_owned(), Vec::new());
    }

    /// Returns the writes to a list's objects so far, by all clients, in the order of the audit log. Later ones are not kept.
    pub(crate) fn take_writes(&self, namespace: &str) -> Vec<AuditEvent> {
        let mut log = self.log.lock();
        let new = log.tail.more();
        for event in new.into_iter().filter(AuditEvent::is_write) {
            // Names of namespaces have no dash; objects in no namespace are named `NAMESPACE-…`.
            let list = event.place().split('-').next().unwrap_or_default().to_owned();
            if let Some(writes) = log.writes.get_mut(&list) {
                writes.push(event);
            }
        }
        log.writes.remove(namespace).unwrap_or_default()
    }
}

/// Returns the name of the namespace of a list: `d`, its seed, `x`, a number.
pub(crate) fn namespace(seed: u64, number: usize) -> String {
    format!("d{}x{number}", seed % 1_000_000)
}
