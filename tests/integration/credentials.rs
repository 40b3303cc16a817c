//! In whose name requests are made: read from the API server's audit log, and never from a log of Coxswain's own.

use std::collections::BTreeSet;
use std::time::Duration;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::Descriptor;
use k8s_openapi::api::core::v1::{Endpoints, Secret, Service, ServiceAccount};
use serde_json::json;

use crate::harness::{AuditEvent, Cluster, ControlPlane, Options, Program, built, eventually};

const LIMIT: Duration = Duration::from_mins(1);
/// The manager itself.
const MANAGER: &str = "system:kube-controller-manager";
/// What the manager does as itself, by the names in its user agents.
const OWN_CLIENTS: &[&str] = &[
    "controller-discovery",
    "coxswain-admin",
    "delegated-authentication",
    "delegated-authorization",
    "leader-election",
    "observer",
    REPLICAS,
    "shared-informers",
    "token-requests",
];
/// Controllers that have something to write in [`work_for_all`].
const BUSY: &[&str] = &[
    "deployment-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
];
/// Who deletes what replicas announce themselves by.
const COLLECTOR: &str = "generic-garbage-collector";
/// The client of replicas that announce themselves.
const REPLICAS: &str = "replicas";
/// A JSON Web Token begins like this (`{"`), and like the second in the base64 of a Secret's data.
const TOKEN_MARKS: [&str; 2] = ["eyJ", "ZXlK"];

fn descriptor(name: &str) -> Option<&'static Descriptor> {
    REGISTRY.iter().find(|descriptor| descriptor.name == name)
}

/// The user that a controller acts as.
fn user(descriptor: &Descriptor) -> String {
    match descriptor.service_account {
        Some(account) => format!("system:serviceaccount:kube-system:{account}"),
        None => MANAGER.to_owned(),
    }
}

/// Makes every controller in [`BUSY`] write something.
async fn work_for_all(plane: &ControlPlane, cluster: &Cluster) {
    let namespace = cluster.namespace("busy").await;
    namespace.deployment("web", 2, json!({})).await;
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    namespace.create::<Service>(json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    let spec = json!({ "ports": [{ "port": 80 }] });
    namespace.create::<Service>(json!({ "metadata": { "name": "manual" }, "spec": spec })).await;
    let subsets = json!([{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 80 }] }]);
    namespace.create::<Endpoints>(json!({ "metadata": { "name": "manual" }, "subsets": subsets })).await;
    namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "builder" } })).await;
    let annotations = json!({ "kubernetes.io/service-account.name": "builder" });
    namespace
        .create::<Secret>(json!({
            "metadata": { "name": "builder", "annotations": annotations },
            "type": "kubernetes.io/service-account-token",
        }))
        .await;
    eventually("something written by every controller", LIMIT, || async {
        let audit = plane.audit();
        let writers: BTreeSet<_> = audit
            .iter()
            .filter(|event| event.is_write() && event.response_status.code < 300)
            .filter_map(AuditEvent::coxswain)
            .collect();
        built().all(|each| !BUSY.contains(&each.name) || writers.contains(each.name))
    })
    .await;
}

/// Every request says whose it is and comes from whom it should.
fn assert_identities(audit: &[AuditEvent]) {
    for event in audit.iter().filter(|event| event.is_from(Program::Coxswain)) {
        let name = event.coxswain().unwrap_or_else(|| panic!("user agent {:?}", event.user_agent));
        let expected = descriptor(name).map_or_else(
            || {
                assert!(OWN_CLIENTS.contains(&name), "user agent {:?}", event.user_agent);
                MANAGER.to_owned()
            },
            user,
        );
        let what = format!("{name}: {} {} as {}", event.verb, event.uri, event.user.username);
        // The manager's own role lets it delete no Lease: a replica withdraws its own as the collector of garbage.
        let withdraws = name == REPLICAS && event.verb == "delete" && event.resource() == "leases";
        let expected =
            if withdraws { format!("system:serviceaccount:kube-system:{COLLECTOR}") } else { expected };
        assert_eq!(event.user.username, expected, "{what}");
        assert!(!event.is_forbidden(), "{what}");
        assert!(!matches!(event.response_status.code, 401 | 403), "{what}: {}", event.response_status.code);
    }
}

/// Controllers write only what their row in the registry says, and leave watching to the shared informers.
fn assert_grants(audit: &[AuditEvent]) {
    for event in audit {
        let Some(name) = event.coxswain() else { continue };
        let what = format!("{name}: {} {}", event.verb, event.uri);
        assert!(event.verb != "watch" || matches!(name, "shared-informers" | "leader-election"), "{what}");
        let Some(controller) = descriptor(name).filter(|_| event.is_write()) else { continue };
        let granted = controller.writes.iter().any(|grant| {
            grant.group == event.object_ref.api_group
                && grant.resource == event.resource()
                && grant.verbs.contains(&event.verb.as_str())
        });
        assert!(granted, "not in its grants: {what}");
    }
}

#[tokio::test]
async fn controllers_act_in_their_own_names() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let cluster = plane.cluster().await;
    let coxswain = plane.coxswain("coxswain", &["--v=10"]);
    work_for_all(&plane, &cluster).await;
    coxswain.stop();

    let audit = plane.audit();
    assert_identities(&audit);
    assert_grants(&audit);
    let by = |name: &'static str| audit.iter().filter(move |event| event.coxswain() == Some(name));
    assert!(by("shared-informers").any(|event| event.verb == "watch"));
    let requested: BTreeSet<&str> = by("token-requests")
        .filter(|event| event.resource() == "serviceaccounts/token" && event.response_status.code == 201)
        .map(|event| event.object_ref.name.as_str())
        .collect();
    // Those who had something to ask for, and nobody else.
    let ours = audit.iter().filter(|event| event.is_from(Program::Coxswain));
    let acted =
        ours.filter_map(|event| event.user.username.strip_prefix("system:serviceaccount:kube-system:"));
    let acted: BTreeSet<&str> = acted.collect();
    assert!(acted.contains(COLLECTOR) && acted.len() > BUSY.len(), "{acted:?}");
    assert_eq!(requested, acted, "tokens requested");
    for event in &audit {
        let own = event.resource() == "serviceaccounts/token" && event.coxswain().is_some();
        assert!(!own || event.object_ref.namespace == "kube-system", "{}", event.uri);
    }

    let log = coxswain.log();
    assert!(log.lines().count() > 100, "this log says too little to prove anything:\n{log}");
    for secret in TOKEN_MARKS.iter().chain(&["Bearer ", "PRIVATE KEY"]) {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret in the log, known by {secret:?}");
    }
}
