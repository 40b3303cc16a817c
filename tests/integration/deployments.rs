//! Deployments under Coxswain as the only manager: create, roll, scale, roll back.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;

use crate::harness::{ControlPlane, Namespace, until};

const LIMIT: Duration = Duration::from_mins(2);

/// Waits until all pods of a Deployment are available and of its newest template.
pub(crate) async fn settled(namespace: &Namespace, name: &str, replicas: i32) -> Deployment {
    let observe = || namespace.get_deployment(name);
    until(&format!("{replicas} available and updated pods"), LIMIT, observe, |deployment| {
        let (generation, status) =
            (deployment.metadata.generation, deployment.status.clone().unwrap_or_default());
        let count = |held: Option<i32>| held.unwrap_or(0) == replicas;
        status.observed_generation == generation
            && count(status.replicas)
            && count(status.updated_replicas)
            && count(status.available_replicas)
    })
    .await
}

fn is_available(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Follows the pods of a namespace and keeps the smallest number available and the largest number at all. Ends when
/// the watch has delivered everything up to `end`.
async fn extremes(
    namespace: &Namespace,
    from: String,
    end: tokio::sync::oneshot::Receiver<u64>,
) -> (usize, usize) {
    let mut pods: coxswain_machinery::random::HashMap<String, bool> =
        namespace.pods().await.iter().map(|pod| (name_of(pod), is_available(pod))).collect();
    let events = namespace.api::<Pod>().watch(&WatchParams::default(), &from).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let available = |pods: &coxswain_machinery::random::HashMap<String, bool>| {
        pods.values().filter(|held| **held).count()
    };
    let (mut least, mut most) = (available(&pods), pods.len());
    let mut end = Some(end);
    let mut final_version = None;
    loop {
        if let Some(receiver) = end.as_mut()
            && let Ok(version) = receiver.try_recv()
        {
            final_version = Some(version);
            end = None;
        }
        let event = tokio::time::timeout(Duration::from_millis(500), events.try_next()).await;
        let Ok(event) = event else {
            if final_version.is_some() {
                return (least, most);
            }
            continue;
        };
        match event.expect("an event") {
            Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                pods.insert(name_of(&pod), is_available(&pod));
            }
            Some(WatchEvent::Deleted(pod)) => {
                pods.remove(&name_of(&pod));
            }
            Some(_) => {}
            None => panic!("the watch ended"),
        }
        least = least.min(available(&pods));
        most = most.max(pods.len());
    }
}

fn name_of(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

#[tokio::test]
async fn a_deployment_lives_its_life() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("life").await;
    plane.kubectl(&["-n", &namespace.name, "create", "deployment", "web", "--image=nginx", "--replicas=50"]);
    settled(&namespace, "web", 50).await;
    let first = namespace.replica_sets().await;
    assert_eq!(first.len(), 1, "{:?}", first.keys());

    // A rolling update, watched all the way: 25 % of 50, rounded down, may be missing; 25 %, rounded up, may be extra.
    let from = namespace.get_deployment("web").await.metadata.resource_version.expect("a version");
    let (done, end) = tokio::sync::oneshot::channel();
    let roll = async {
        plane.kubectl(&["-n", &namespace.name, "set", "image", "deployment/web", "nginx=nginx:2"]);
        plane.kubectl(&["-n", &namespace.name, "rollout", "status", "deployment/web", "--timeout=120s"]);
        let deployment = settled(&namespace, "web", 50).await;
        let version = deployment.metadata.resource_version.unwrap_or_default();
        done.send(version.parse().expect("a number")).expect("the watcher listens");
    };
    let ((least, _most), ()) = tokio::join!(extremes(&namespace, from, end), roll);
    assert!(least >= 50 - 12, "only {least} pods were available");

    for replicas in [5, 200] {
        plane.kubectl(&["-n", &namespace.name, "scale", "deployment/web", &format!("--replicas={replicas}")]);
        settled(&namespace, "web", replicas).await;
    }

    plane.kubectl(&["-n", &namespace.name, "rollout", "undo", "deployment/web"]);
    settled(&namespace, "web", 200).await;
    let after = namespace.replica_sets().await;
    assert_eq!(after.len(), 2, "{:?}", after.keys());
    let current = first.keys().next().expect("one");
    assert_eq!(after[current].spec.as_ref().and_then(|spec| spec.replicas), Some(200));
    let annotations = after[current].metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");

    // While it is paused it is scaled, and its template waits.
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    kubectl(&["rollout", "pause", "deployment/web"]);
    kubectl(&["set", "image", "deployment/web", "nginx=nginx:3"]);
    kubectl(&["scale", "deployment/web", "--replicas=20"]);
    let scaled = || namespace.get_deployment("web");
    let paused = until("the paused Deployment to be scaled", LIMIT, scaled, |deployment| {
        let status = deployment.status.clone().unwrap_or_default();
        status.observed_generation == deployment.metadata.generation && status.replicas == Some(20)
    });
    assert_eq!(paused.await.status.and_then(|status| status.updated_replicas).unwrap_or_default(), 0);
    assert_eq!(namespace.replica_sets().await.len(), 2, "nothing is rolled");
    kubectl(&["rollout", "resume", "deployment/web"]);
    kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    settled(&namespace, "web", 20).await;
    assert_eq!(namespace.replica_sets().await.len(), 3);
}

/// The pods name a service account that does not exist, so admission refuses them until it does.
#[tokio::test]
async fn a_failed_rollout_says_so_and_recovers() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("failing").await;
    let template = json!({ "spec": { "serviceAccountName": "later" } });
    namespace.deployment("web", 5, json!({ "progressDeadlineSeconds": 3, "template": template })).await;
    let reason = |kind: &'static str| {
        move |deployment: &Deployment| {
            deployment
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .find(|condition| condition.type_ == kind)
                .and_then(|condition| condition.reason.clone())
                .unwrap_or_default()
        }
    };
    let observe = || namespace.get_deployment("web");
    let seen = until("the failure in the conditions", LIMIT, observe, |deployment| {
        reason("Progressing")(deployment) == "ProgressDeadlineExceeded"
            && reason("ReplicaFailure")(deployment) == "FailedCreate"
    })
    .await;
    assert_eq!(seen.status.and_then(|status| status.replicas), None);
    plane.kubectl(&["-n", &namespace.name, "create", "serviceaccount", "later"]);
    let settled = settled(&namespace, "web", 5).await;
    assert_eq!(reason("ReplicaFailure")(&settled), "");
}
