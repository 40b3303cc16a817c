//! Jobs under faults: hundreds of pods end together while answers are lost, writes are refused and the controller is ended in the
//! middle of it, and each pod is counted once.

use std::sync::Arc;
use std::time::Duration;

use coxswain::manager::{Controller, Phase, supervise};
use coxswain_controllers::workloads::job;
use coxswain_machinery::client::{Fault, FaultRule, Faults};
use coxswain_machinery::framework::{Descriptor, Stop};
use futures::StreamExt as _;
use http::{Method, StatusCode};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::stage::{Shared, shared};
use crate::harness::{Namespace, by_depth, event_logger, faulty_clients, runtime_on, until};

const LIMIT: Duration = Duration::from_mins(3);
const GRACE: Duration = Duration::from_secs(10);
/// Pods that run at once, and how many of them fail.
const PODS: usize = 300;
const FAILING: usize = 100;
/// How many pods are seen to have lost their finalizers when the controller is ended without a word.
const ENDS: [usize; 3] = [20, 110, 220];

static JOBS: Descriptor = job::DESCRIPTOR;

fn suffer(faults: &Faults) {
    let refused = |code, reason| Fault::Status { code, reason, retry_after: None };
    let on = |fault, method, path: &str, probability| {
        FaultRule::new(fault).method(method).path(path).probability(probability)
    };
    faults.add(on(Fault::LoseAnswer, Method::PATCH, "*/pods/*", 0.02));
    faults.add(on(
        refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Method::PATCH,
        "*/pods/*",
        0.02,
    ));
    faults.add(on(Fault::LoseAnswer, Method::PUT, "*/status", 0.1));
    faults.add(on(refused(StatusCode::CONFLICT, "Conflict"), Method::PUT, "*/status", 0.1));
    faults.add(on(Fault::LoseAnswer, Method::POST, "*/pods", 0.05));
    faults.add(FaultRule::new(Fault::Cut { after: 3000 }).watch(true).probability(0.5));
}

/// The controller in this process, until it is ended.
struct Running(JoinSet<Stop>);

impl Running {
    async fn start(shared: &Shared, seed: u64) -> Self {
        let faults = Faults::new(seed);
        suffer(&faults);
        let clients = faulty_clients(&shared.plane.report.kubeconfigs["admin"], &faults).await;
        let runtime = Arc::new(runtime_on(clients));
        let controller = Arc::new(Controller::new(&JOBS, Phase::Standby, true, event_logger()));
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(Arc::clone(&controller), runtime, Some(GRACE), CancellationToken::new()));
        controller.wish(|wish| wish.lead = true);
        Self(tasks)
    }

    /// As if it was killed: nothing that it began is brought to its end, and nothing is remembered.
    async fn kill(mut self) {
        self.0.abort_all();
        while self.0.join_next().await.is_some() {}
    }
}

/// Ends pods that run: so many of them fail. They ended years ago, the successes last, so that no backoff is to be waited for.
async fn end(namespace: &Namespace, failing: usize) {
    let api = namespace.api::<Pod>();
    let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    let pods = namespace.pods().await.into_iter().filter(runs);
    let names: Vec<String> = pods.filter_map(|pod| pod.metadata.name).collect();
    let ended = names.iter().enumerate().map(|(at, name)| {
        let (phase, year) = if at < failing { ("Failed", 2020) } else { ("Succeeded", 2021) };
        let since = format!("{year}-01-01T00:00:00Z");
        let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": since });
        let status = json!({ "status": { "phase": phase, "conditions": [condition] } });
        let api = api.clone();
        async move {
            let patch = Patch::Strategic(status);
            api.patch_status(name, &PatchParams::default(), &patch).await.expect("the pod ends");
        }
    });
    futures::stream::iter(ended).buffer_unordered(16).for_each(|()| async {}).await;
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|held| held == "batch.kubernetes.io/job-tracking")
}

async fn status(namespace: &Namespace) -> JobStatus {
    let job: Option<Job> = namespace.api().get_opt("many").await.ok().flatten();
    job.and_then(|job| job.status).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_pods_is_counted_once_whatever_fails() {
    // The simulation shows as much in `make test`: see CONTRIBUTING.md.
    if !by_depth(false, true) {
        return;
    }
    let shared = shared().await;
    let namespace = shared.plane.cluster().await.namespace("jobs").await;
    let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "default" } })).await;
    let spec: Value = json!({
        "parallelism": PODS,
        "completions": PODS,
        "backoffLimit": 10_000,
        "template": { "spec": {
            "restartPolicy": "Never",
            // Nobody plays it.
            "nodeName": "by-hand",
            "containers": [{ "name": "main", "image": "work:1" }],
        } },
    });
    let _: Job = namespace.create(json!({ "metadata": { "name": "many" }, "spec": spec })).await;
    let mut running = Running::start(&shared, 1).await;
    let active = async || status(&namespace).await.active;
    until("all pods run", LIMIT, active, |active| *active == Some(PODS as i32)).await;

    end(&namespace, FAILING).await;
    let released = async || {
        // Those that replace what has failed are tracked, and have not ended.
        let pods = namespace.pods().await;
        pods.iter().filter(|pod| !is_tracked(pod)).count()
    };
    for (seed, least) in (2..).zip(ENDS) {
        until("finalizers go", LIMIT, released, |released| *released >= least).await;
        running.kill().await;
        running = Running::start(&shared, seed).await;
    }
    let counted = async || {
        let status = status(&namespace).await;
        (status.active.unwrap_or(0), status.succeeded.unwrap_or(0), status.failed.unwrap_or(0))
    };
    let expected = (FAILING as i32, (PODS - FAILING) as i32, FAILING as i32);
    until("all are counted, and what has failed is replaced", LIMIT, counted, |counted| *counted == expected)
        .await;

    end(&namespace, 0).await;
    let complete = async || {
        let conditions = status(&namespace).await.conditions.unwrap_or_default();
        conditions.iter().any(|held| held.type_ == "Complete" && held.status == "True")
    };
    until("the Job is complete", LIMIT, complete, |complete| *complete).await;
    assert_eq!(counted().await, (0, PODS as i32, FAILING as i32));
    let left = status(&namespace).await.uncounted_terminated_pods.unwrap_or_default();
    assert!(
        left.succeeded.is_none_or(|left| left.is_empty()) && left.failed.is_none_or(|left| left.is_empty())
    );
    let pods = namespace.pods().await;
    assert_eq!((pods.len(), pods.iter().filter(|pod| is_tracked(pod)).count()), (PODS + FAILING, 0));
    running.kill().await;
}
