//! A webhook that refuses the events of one namespace takes no events from another.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::harness::{ControlPlane, Namespace, create, eventually, object, until};

/// Less than the two minutes for which an event that is refused would be tried.
const LIMIT: Duration = Duration::from_mins(1);

async fn replica_set(namespace: &Namespace, name: &str) {
    let template = json!({ "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "image" }] } });
    let _: ReplicaSet = namespace
        .create(json!({ "metadata": { "name": name }, "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": name } }, "template": template } }))
        .await;
}

#[tokio::test]
async fn events_of_a_namespace_whose_webhook_is_down_delay_no_events_of_others() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let (refused, other) = (cluster.namespace("refused").await, cluster.namespace("other").await);
    refused.default_account().await;
    other.default_account().await;
    // Nobody listens there.
    let webhooks = json!({ "metadata": { "name": refused.name }, "webhooks": [{
        "name": "down.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": { "url": "https://127.0.0.1:1/" },
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": refused.name } },
        "rules": [{ "apiGroups": ["", "events.k8s.io"], "apiVersions": ["*"], "operations": ["*"],
            "resources": ["events", "pods", "configmaps"], "scope": "*" }],
    }] });
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    create(configurations.clone(), webhooks).await;
    let probe = object::<ConfigMap>(json!({ "metadata": { "name": "probe" } }));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let is_refused = async || refused.api::<ConfigMap>().create(&dry, &probe).await.is_err();
    eventually("the webhook is in force", LIMIT, is_refused).await;

    for at in 0..5 {
        replica_set(&refused, &format!("web-{at}")).await;
    }
    let sets = refused.api::<ReplicaSet>();
    let failed = async || {
        let all = sets.list(&ListParams::default()).await.expect("ReplicaSets").items;
        let conditions = all.iter().filter_map(|set| set.status.as_ref()?.conditions.as_ref());
        conditions.flatten().filter(|condition| condition.type_ == "ReplicaFailure").count()
    };
    until("the pods of all are refused", LIMIT, failed, |failed| *failed == 5).await;
    replica_set(&other, "web").await;
    let events = other.api::<Event>();
    let reasons = || async {
        let all = events.list(&ListParams::default()).await.expect("events").items;
        all.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("ReplicaSet")).count()
    };
    until("an event of the other namespace", LIMIT, reasons, |count| *count > 0).await;
    assert!(refused.api::<Event>().list(&ListParams::default()).await.expect("events").items.is_empty());
    configurations.delete(&refused.name, &DeleteParams::default()).await.expect("it is deleted");
}
