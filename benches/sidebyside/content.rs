//! What clusters are filled with, and how they are emptied again without a manager.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace, Pod, Secret, ServiceAccount};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Cluster, Namespace, object, until};

/// Requests of the benchmark's own under way at the same time.
pub(crate) const PARALLEL: usize = 16;
/// Nothing that is waited for takes longer.
pub(crate) const LIMIT: Duration = Duration::from_mins(20);

/// Kinds of objects that scenarios leave behind.
const LEFT: [(&str, &str); 19] = [
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("policy", "PodDisruptionBudget"),
    ("batch", "CronJob"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("apps", "ReplicaSet"),
    ("apps", "ControllerRevision"),
    ("", "Pod"),
    ("", "Service"),
    ("", "Endpoints"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "ServiceAccount"),
    ("coordination.k8s.io", "Lease"),
    ("events.k8s.io", "Event"),
    ("", "ResourceQuota"),
];

/// A kind in version 1 of its group.
pub(crate) fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// The account without which pods are not admitted.
pub(crate) async fn service_account(namespace: &Namespace) {
    let body = json!({ "metadata": { "name": "default" }, "automountServiceAccountToken": false });
    let made = namespace.api::<ServiceAccount>().create(&PostParams::default(), &object(body)).await;
    // A manager that runs may have been faster.
    assert!(made.is_ok() || is_conflict(&made), "the service account: {made:?}");
}

fn is_conflict<T>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 409)
}

/// Removes a namespace and everything that scenarios leave in it, as the namespace controller would.
pub(crate) async fn wipe(cluster: &Cluster, name: &str) {
    let namespaces: Api<CoreNamespace> = Api::all(cluster.client.clone());
    if namespaces.get_opt(name).await.expect("an answer").is_none() {
        return;
    }
    let (now, all) = (DeleteParams::background().grace_period(0), ListParams::default());
    for (group, each) in LEFT {
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), name, &kind(group, each));
        let deleted = api.delete_collection(&now, &all).await;
        deleted.unwrap_or_else(|error| panic!("{name}: {each} is not deleted: {error}"));
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), name);
    until(&format!("the last pod of {name}"), LIMIT, || count(&pods), |count| *count == 0).await;
    namespaces.delete(name, &now).await.expect("the namespace is deleted");
    let body: CoreNamespace = object(json!({ "metadata": { "name": name }, "spec": { "finalizers": [] } }));
    let finalized = namespaces.replace_subresource("finalize", name, &PostParams::default(), &body).await;
    finalized.unwrap_or_else(|error| panic!("{name} is not finalized: {error}"));
}

/// How many objects there are.
pub(crate) async fn count<K>(api: &Api<K>) -> usize
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    count_of(api, &ListParams::default()).await
}

/// How many objects there are of those that match.
pub(crate) async fn count_of<K>(api: &Api<K>, which: &ListParams) -> usize
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    if which.field_selector.is_some() || which.label_selector.is_some() {
        // The server does not count the rest of those.
        return api.list_metadata(which).await.expect("a list").items.len();
    }
    let page = api.list_metadata(&which.clone().limit(1)).await.expect("a list");
    page.items.len() + page.metadata.remaining_item_count.unwrap_or(0) as usize
}

/// Waits until so many pods run.
pub(crate) async fn running(namespace: &Namespace, pods: usize) {
    let which = ListParams::default().fields("status.phase=Running");
    let api = namespace.api::<Pod>();
    let running = || count_of(&api, &which);
    until("all pods run", LIMIT, running, |count| *count == pods).await;
}

/// Does something so many times, some at the same time.
pub(crate) async fn many<F: Future<Output = ()>>(count: usize, act: impl FnMut(usize) -> F) {
    stream::iter(0..count).map(act).buffer_unordered(PARALLEL).collect::<()>().await;
}

/// A pod on a node, without a scheduler; `rest` is merged into its labels.
pub(crate) async fn pod(namespace: &Namespace, name: &str, node: &str, labels: Value) {
    let _: Pod = namespace
        .create(json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "nodeName": node, "containers": [{ "name": "web", "image": "web:1" }] },
        }))
        .await;
}

/// A ConfigMap and a Secret of a kilobyte each.
pub(crate) async fn pair(namespace: &Namespace, at: usize) {
    let text = "x".repeat(1024);
    let name = format!("object-{at}");
    let _: ConfigMap = namespace.create(json!({ "metadata": { "name": name }, "data": { "k": text } })).await;
    let mut secret: Secret = object(json!({ "metadata": { "name": name } }));
    secret.data = Some([("k".to_owned(), ByteString(text.into_bytes()))].into());
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await.expect("created");
}
