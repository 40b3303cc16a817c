//! Flags that say how controllers start and stop, on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

use crate::harness::{Caller, ControlPlane, Options, Page, built, turn_beside_another, until};

/// Much less than forty pauses in a row.
const LIMIT: Duration = Duration::from_secs(90);
const PODS: usize = 16;

#[tokio::test]
async fn controllers_wait_for_their_start_together_and_a_stop_without_a_limit_waits_for_a_reconcile() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let manager = plane.coxswain("together", &["--controller-start-interval=10s"]);
    let page = || manager.try_page(Caller::Admin, "/metrics");
    let is_complete = |page: &Option<Page>| {
        let series = |name: &str| {
            format!("running_managed_controllers{{manager=\"kube-controller-manager\",name=\"{name}\"}}")
        };
        let runs = |name: &str| page.as_ref().is_some_and(|page| page.metric(&series(name)) == Some(1.0));
        // node-ipam-controller needs a flag to run. Its series has the name of kube-controller-manager, too.
        let is_idle = |name: &str| page.as_ref().is_some_and(|page| page.metric(&series(name)) == Some(0.0));
        built().all(|each| runs(each.name)) && is_idle("node-ipam-controller") && is_idle("nodeipam")
    };
    until("all controllers run", LIMIT, page, is_complete).await;
    manager.stop();

    let args = [
        "--controller-shutdown-timeout=0",
        "--kube-api-qps=5",
        "--kube-api-burst=5",
        "--controllers=replicaset-controller",
    ];
    let manager = plane.coxswain("without-limit", &args);
    let namespace = plane.cluster().await.namespace("stop").await;
    namespace.default_account().await;
    namespace.replica_set("web", PODS).await;
    let pods = namespace.api::<Pod>();
    let made = || async { pods.list(&ListParams::default()).await.expect("pods").items.len() };
    let before = until("the first pods", LIMIT, made, |made| *made > 1).await;
    manager.stop();
    assert!(before < PODS, "it was stopped too late");
    // All of them are made by one reconcile.
    assert_eq!(made().await, PODS);
    assert!(manager.exit().contains("exit status 0"), "{}", manager.exit());
}
