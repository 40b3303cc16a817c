//! Autoscalers of kinds that nobody serves: discovery is not fetched again for each of them.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::ListParams;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{ControlPlane, Options, Program, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(3);
const AUTOSCALERS: usize = 120;
/// Fetches of discovery that a manager may make in this many seconds: for a name that is not found, and every 30 s anyway.
const SECONDS_FOR_A_FETCH: u64 = 3;
/// Fetches at the start.
const FIRST: u64 = 6;

#[tokio::test]
async fn autoscalers_of_unknown_kinds_cause_few_fetches_of_discovery() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let began = Instant::now();
    let _manager = plane.coxswain(
        "coxswain",
        &["--controllers=horizontal-pod-autoscaler-controller", "--kube-api-qps=200", "--kube-api-burst=200"],
    );
    let namespace = plane.cluster().await.namespace("unknown").await;
    for at in 0..AUTOSCALERS {
        let target = json!({ "apiVersion": "apps/v1", "kind": format!("Unknown{at}"), "name": "it" });
        let cpu = json!({ "type": "Resource", "resource": {
            "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } });
        let _: HorizontalPodAutoscaler = namespace
            .create(json!({ "metadata": { "name": format!("of-{at}") },
                "spec": { "scaleTargetRef": target, "maxReplicas": 3, "metrics": [cpu] } }))
            .await;
    }
    let autoscalers = namespace.api::<HorizontalPodAutoscaler>();
    let told = || async {
        let all = autoscalers.list(&ListParams::default()).await.expect("autoscalers").items;
        let conditions = all.iter().filter_map(|each| each.status.as_ref()?.conditions.as_ref());
        conditions.flatten().filter(|each| each.reason.as_deref() == Some("FailedGetScale")).count()
    };
    until("all say that their target has no scale", LIMIT, told, |told| *told == AUTOSCALERS).await;
    let seconds = began.elapsed().as_secs();
    let audit = plane.audit();
    let fetches =
        audit.iter().filter(|event| event.uri == "/apis" && event.is_from(Program::Coxswain)).count() as u64;
    assert!(fetches > 0, "the audit log has no requests for discovery");
    assert!(fetches < FIRST + seconds / SECONDS_FOR_A_FETCH, "{fetches} fetches in {seconds} s");
}
