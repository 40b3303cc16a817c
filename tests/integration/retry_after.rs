//! Requests that the API server refuses with 429 and `Retry-After`: both managers wait and repeat them, and report no failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{
    ControlPlane, Namespace, Options, create, eventually, object, turn_beside_another, until, webhook,
};

const LIMIT: Duration = Duration::from_mins(2);
/// Creates that are refused in each namespace.
const REFUSALS: usize = 3;
const PODS: i32 = 2;

/// Refusals by namespace.
type Refused = Arc<Mutex<BTreeMap<String, usize>>>;

/// Refuses the first creates of each namespace, with a second to wait.
fn judge(request: &Value, refused: &Refused) -> Value {
    let mut refused = refused.lock();
    let namespace = request["namespace"].as_str().unwrap_or_default();
    let count = refused.entry(namespace.to_owned()).or_default();
    if *count >= REFUSALS {
        return json!({ "allowed": true });
    }
    *count += 1;
    let details = json!({ "retryAfterSeconds": 1 });
    let status = json!({ "code": 429, "reason": "TooManyRequests", "message": "busy", "details": details });
    json!({ "allowed": false, "status": status })
}

/// The reasons of the events about the ReplicaSet.
async fn event_reasons(namespace: &Namespace) -> Vec<String> {
    let events = namespace.api::<Event>().list(&ListParams::default()).await.expect("events").items;
    let own = events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("ReplicaSet"));
    own.filter_map(|event| event.reason).collect()
}

// The start of a manager blocks the thread of the test, and the webhook answers meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_that_are_refused_with_retry_after_are_repeated_and_cause_no_event() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let cluster = plane.cluster().await;
    let refused = Refused::default();
    let counted = Arc::clone(&refused);
    let (_webhook, config) = webhook(&plane, move |request| judge(request, &counted)).await;
    let webhooks = json!({ "metadata": { "name": "busy" }, "webhooks": [{
        "name": "busy.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": config,
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"], "scope": "Namespaced" }],
    }] });
    create::<ValidatingWebhookConfiguration>(Api::all(cluster.client.clone()), webhooks).await;
    let probed = cluster.namespace("probed").await;
    probed.default_account().await;
    let probe = object::<Pod>(
        json!({ "metadata": { "name": "probe" }, "spec": { "containers": [{ "name": "main", "image": "image" }] } }),
    );
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let pods: Api<Pod> = Api::namespaced(cluster.once.clone(), &probed.name);
    let is_busy =
        async || matches!(pods.create(&dry, &probe).await, Err(kube::Error::Api(error)) if error.code == 429);
    eventually("the webhook is in force", LIMIT, is_busy).await;

    for program in ["go", "coxswain"] {
        let namespace = cluster.namespace(program).await;
        namespace.default_account().await;
        let controllers = "--controllers=replicaset-controller";
        let manager = match program {
            "go" => plane.go_manager(program, &[controllers]),
            _ => plane.coxswain(program, &[controllers]),
        };
        let template = json!({ "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "main", "image": "image" }] } });
        let _: ReplicaSet = namespace
            .create(json!({ "metadata": { "name": "web" }, "spec": {
                "replicas": PODS, "selector": { "matchLabels": { "app": "web" } }, "template": template } }))
            .await;
        // Events of one controller are written in order: an event of a refusal would come before these.
        let created = || async {
            event_reasons(&namespace).await.iter().filter(|reason| *reason == "SuccessfulCreate").count()
        };
        let all = usize::try_from(PODS).expect("a number");
        until(&format!("the events of all pods under {program}"), LIMIT, created, |created| *created == all)
            .await;
        assert_eq!(refused.lock().get(&namespace.name), Some(&REFUSALS), "{program}: refusals");
        let reasons = event_reasons(&namespace).await;
        assert!(reasons.iter().all(|reason| reason == "SuccessfulCreate"), "{program}: {reasons:?}");
        manager.stop();
    }
}
