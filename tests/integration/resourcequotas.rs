//! Resource quotas on a real API server: custom resources are counted as they come and go, and usage is right in the end
//! whatever admission charges meanwhile.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::harness::{AuditEvent, Caller, Cluster, ControlPlane, Namespace, object, until};

/// Longer than discovery is remembered for, and than a quota waits for what nobody serves, twice.
const LIMIT: Duration = Duration::from_mins(3);
const GROUP: &str = "quota.coxswain.dev";

async fn quota(namespace: &Namespace, name: &str, hard: Value) {
    let _: ResourceQuota =
        namespace.create(json!({ "metadata": { "name": name }, "spec": { "hard": hard } })).await;
}

/// What is used of a resource, as it is written.
async fn used(namespace: &Namespace, name: &str, resource: &str) -> Option<String> {
    let quota = namespace.api::<ResourceQuota>().get(name).await.expect("the quota");
    Some(quota.status?.used?.get(resource)?.0.clone())
}

async fn becomes(namespace: &Namespace, name: &str, resource: &str, amount: &str) {
    let what = format!("{amount} {resource}");
    until(&what, LIMIT, || used(namespace, name, resource), |used| used.as_deref() == Some(amount)).await;
}

/// Requests of the controller to change something in a namespace.
fn writes(namespace: &Namespace) -> Vec<AuditEvent> {
    let audit = ControlPlane::shared().audit().into_iter();
    let concerns = |event: &AuditEvent| {
        event.is_write()
            && event.coxswain() == Some("resourcequota-controller")
            && event.object_ref.namespace == namespace.name
    };
    audit.filter(concerns).collect()
}

fn definitions(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&kind))
}

fn definition() -> DynamicObject {
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("gadgets.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }))
}

fn gadgets(namespace: &Namespace) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Gadget");
    Api::namespaced_with(namespace.client.clone(), &namespace.name, &ApiResource::from_gvk(&kind))
}

/// Whether a gadget could be made: not before its definition is served, nor before the quota is counted.
async fn gadget(namespace: &Namespace, name: &str) -> bool {
    let body = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Gadget", "metadata": { "name": name } });
    gadgets(namespace).create(&PostParams::default(), &object(body)).await.is_ok()
}

#[tokio::test]
async fn custom_resources_are_counted_while_they_exist() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("gadgets").await;
    let count = format!("count/gadgets.{GROUP}");
    let manager = plane.running("coxswain");
    let series = format!(
        "coxswain_informer_objects{{field_selector=\"\",group=\"{GROUP}\",resource=\"gadgets\",version=\"v1\"}}"
    );
    let watched = || async { manager.page(Caller::Admin, "/metrics").await.metric(&series) };
    assert_eq!(watched().await, None);
    // It limits what nobody serves yet.
    quota(&namespace, "few", json!({ "secrets": "5", count.as_str(): "2" })).await;
    becomes(&namespace, "few", "secrets", "0").await;
    assert_eq!(used(&namespace, "few", &count).await, None);
    let definitions = definitions(&cluster);
    for _ in 0..2 {
        definitions.create(&PostParams::default(), &definition()).await.expect("the definition is created");
        becomes(&namespace, "few", &count, "0").await;
        until("a gadget", LIMIT, || gadget(&namespace, "one"), |made| *made).await;
        until("another gadget", LIMIT, || gadget(&namespace, "two"), |made| *made).await;
        assert!(!gadget(&namespace, "three").await, "there may be but two");
        becomes(&namespace, "few", &count, "2").await;
        until("the watch of gadgets", LIMIT, watched, |objects| *objects == Some(2.0)).await;
        gadgets(&namespace).delete("one", &DeleteParams::default()).await.expect("the gadget is deleted");
        becomes(&namespace, "few", &count, "1").await;
        let name = format!("gadgets.{GROUP}");
        definitions.delete(&name, &DeleteParams::default()).await.expect("the definition is deleted");
        becomes(&namespace, "few", &count, "0").await;
        until("no watch of gadgets", LIMIT, watched, Option::is_none).await;
    }
    assert!(writes(&namespace).iter().all(|event| !event.is_forbidden()));
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": { "name": name },
        "spec": {
            // Nobody touches it.
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "web", "image": "web:1", "resources": { "requests": { "cpu": "100m" } } }],
        },
    }))
}

/// Pods are made and deleted, many at once, while the quota is counted again and again.
#[tokio::test]
async fn usage_is_right_after_a_storm() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("storm").await;
    let account = || async {
        namespace.api::<k8s_openapi::api::core::v1::ServiceAccount>().get("default").await.is_ok()
    };
    until("an account for pods", LIMIT, account, |is_there| *is_there).await;
    quota(&namespace, "some", json!({ "pods": "40", "requests.cpu": "4", "count/configmaps": "1k" })).await;
    becomes(&namespace, "some", "pods", "0").await;
    let pods = namespace.api::<Pod>();
    let storm = stream::iter(0..90).map(|number| {
        let pods = pods.clone();
        async move {
            let name = format!("pod-{number}");
            let made = pods.create(&PostParams::default(), &pod(&name)).await.is_ok();
            // A third of them goes again at once.
            if made && number % 3 == 0 {
                pods.delete(&name, &DeleteParams::default()).await.expect("the pod is deleted");
            }
            usize::from(made && number % 3 != 0)
        }
    });
    let left: usize = storm.buffer_unordered(12).fold(0, |sum, made| async move { sum + made }).await;
    let live = pods.list(&ListParams::default()).await.expect("pods").items.len();
    assert_eq!(live, left);
    becomes(&namespace, "some", "pods", &left.to_string()).await;
    // Amounts of CPUs are written in thousandths, unless they come out even.
    let cpus = if left.is_multiple_of(10) { (left / 10).to_string() } else { format!("{}m", left * 100) };
    becomes(&namespace, "some", "requests.cpu", &cpus).await;

    // Somebody writes nonsense into the status; the next pod that goes sets it right.
    let nonsense = json!({ "status": { "used": { "pods": "7", "requests.cpu": "9" } } });
    let quotas = namespace.api::<ResourceQuota>();
    quotas
        .patch_status("some", &PatchParams::default(), &Patch::Merge(nonsense))
        .await
        .expect("it is patched");
    let all = pods.list(&ListParams::default()).await.expect("pods").items;
    let first = all.first().and_then(|pod| pod.metadata.name.clone()).expect("a pod");
    pods.delete(&first, &DeleteParams::default()).await.expect("the pod is deleted");
    becomes(&namespace, "some", "pods", &(left - 1).to_string()).await;

    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("pods are deleted");
    becomes(&namespace, "some", "pods", "0").await;
    becomes(&namespace, "some", "requests.cpu", "0").await;

    // What is right is not written.
    let version = || async { quotas.get("some").await.expect("the quota").metadata.resource_version };
    let (before, told) = (version().await, writes(&namespace).len());
    let _: ConfigMap = namespace.create(json!({ "metadata": { "name": "unrelated" } })).await;
    becomes(&namespace, "some", "count/configmaps", "2").await;
    namespace.api::<ConfigMap>().delete("unrelated", &DeleteParams::default()).await.expect("it is deleted");
    becomes(&namespace, "some", "count/configmaps", "1").await;
    assert_ne!(version().await, before);
    let written = || async { writes(&namespace).len() - told };
    assert_eq!(until("a write in the audit log", LIMIT, written, |count| *count > 0).await, 1);
    assert!(writes(&namespace).iter().all(|event| !event.is_forbidden()));
}
