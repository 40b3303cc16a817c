//! CronJobs and what clears up, by the tools that people use, and from one manager to the other and back. Jobs are played by hand:
//! somebody else is said to manage them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Manager, Namespace, Options, Program, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Both managers run these and nothing else, so that what differs is ours.
const CONTROLLERS: &str = "--controllers=cronjob-controller,ttl-after-finished-controller,\
    pod-garbage-collector-controller,serviceaccount-controller";
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

fn job_spec(ttl: Option<i32>) -> Value {
    json!({
        "managedBy": "example.com/by-hand",
        "ttlSecondsAfterFinished": ttl,
        "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "image:1" }] },
        },
    })
}

/// A CronJob of once a year that somebody has suspended.
fn cron_job(name: &str, ttl: Option<i32>, more: &Value) -> Value {
    let mut spec =
        json!({ "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": job_spec(ttl) } });
    spec.as_object_mut().expect("a spec").extend(more.as_object().cloned().unwrap_or_default());
    json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": name }, "spec": spec })
}

/// A status that says that a Job is complete.
fn complete() -> String {
    let condition =
        |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z" });
    json!({ "status": {
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:10:00Z",
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    } })
    .to_string()
}

/// What was missed since then is due once the CronJob is resumed.
const LONG_AGO: &str = r#"{"status":{"lastScheduleTime":"2020-01-01T00:00:00Z"}}"#;
const RESUMED: &str = r#"{"spec":{"suspend":false}}"#;
const HELD: &str = r#"{"metadata":{"finalizers":["example.com/hold"]}}"#;
const LET_GO: &str = r#"{"metadata":{"finalizers":null}}"#;

#[tokio::test]
async fn kubectl_makes_jobs_by_hand_and_cleanup_follows() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let namespace = plane.cluster().await.namespace("schedules").await;
    namespace.default_account().await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let patch = |target: &str, with: &str| kubectl(&["patch", target, "--type=merge", "-p", with]);
    let patch_status = |target: &str, with: &str| {
        kubectl(&["patch", target, "--subresource=status", "--type=merge", "-p", with])
    };
    let get = |what: &str, path: &str| kubectl(&["get", what, "-o", &format!("jsonpath={{{path}}}")]);

    // By hand: it is told of, and goes when its time is over.
    let _: CronJob = namespace.create(cron_job("nightly", Some(1), &json!({}))).await;
    kubectl(&["create", "job", "--from=cronjob/nightly", "by-hand"]);
    let reasons = || async { get("events", ".items[*].reason") };
    until("the Job is unexpected", LIMIT, reasons, |reasons| reasons.contains("UnexpectedJob")).await;
    patch_status("job/by-hand", &complete());
    let succeeded = || async { get("cronjob/nightly", ".status.lastSuccessfulTime") };
    until("the Job has succeeded", LIMIT, succeeded, |at| at == "2026-01-01T00:10:00Z").await;
    let jobs = || async { get("jobs", ".items[*].metadata.name") };
    until("the Job is gone", LIMIT, jobs, String::is_empty).await;

    // What is due is started, and stays without its CronJob.
    patch_status("cronjob/nightly", LONG_AGO);
    patch("cronjob/nightly", RESUMED);
    let active = || async { get("cronjob/nightly", ".status.active[*].name") };
    let name = until("a Job runs", LIMIT, active, |name| !name.is_empty()).await;
    let told = plane.kubectl(&["-n", &namespace.name, "describe", "cronjob/nightly"]);
    assert!(told.contains(&format!("Created job {name}")), "{told}");
    kubectl(&["delete", "cronjob/nightly", "--cascade=orphan"]);
    let owners = || async { get("jobs", ".items[*].metadata.ownerReferences[*].name") };
    until("the Job is nobody's", LIMIT, owners, String::is_empty).await;
    assert_eq!(jobs().await, name);

    // A pod that was never bound ends.
    let pod = json!({
        "metadata": { "name": "unbound" },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "c", "image": "image:1" }] },
    });
    let _: k8s_openapi::api::core::v1::Pod = namespace.create(pod).await;
    patch("pod/unbound", HELD);
    kubectl(&["delete", "pod/unbound", "--wait=false"]);
    let phase = || async { get("pod/unbound", ".status.phase") };
    until("the pod has failed", LIMIT, phase, |phase| phase == "Failed").await;
    patch("pod/unbound", LET_GO);
    let pods = || async { get("pods", ".items[*].metadata.name") };
    until("the pod is gone", LIMIT, pods, String::is_empty).await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// CronJobs and Jobs by name, but for what the API server itself counts on.
async fn state(namespace: &Namespace) -> BTreeMap<String, Value> {
    let list = ListParams::default();
    let cron_jobs = namespace.api::<CronJob>().list(&list).await.expect("CronJobs");
    let jobs = namespace.api::<Job>().list(&list).await.expect("Jobs");
    let cron_jobs = cron_jobs.items.iter().map(serde_json::to_value);
    let all = cron_jobs.chain(jobs.items.iter().map(serde_json::to_value));
    let named = all.map(|object| {
        let mut object = object.expect("JSON");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.retain(|field, _| field != "managedFields" && field != "resourceVersion");
        (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), object)
    });
    named.collect()
}

/// Waits until two looks, some time apart, see the same.
async fn quiet(namespace: &Namespace) -> BTreeMap<String, Value> {
    let look = || async {
        let before = state(namespace).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (before == state(namespace).await).then_some(before)
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await.expect("a state")
}

/// Waits until a manager has looked at everything.
async fn leads(manager: &Manager<'_>) {
    let log = || async { manager.log() };
    until(&format!("{} leads", manager.name), LIMIT, log, |text| {
        let ours = |name: &str| text.contains(&format!("\"Controller started\" controller=\"{name}\""));
        text.contains("Caches are synced")
            || ours("cronjob-controller") && ours("ttl-after-finished-controller")
    })
    .await;
}

/// What a manager has written of CronJobs, Jobs and pods since there were so many events.
fn writes(plane: &ControlPlane, since: usize, program: Program) -> Vec<String> {
    let audit = plane.audit();
    let own = audit.iter().skip(since).filter(|event| event.is_from(program));
    let own = own.filter(|event| {
        event.is_write() && ["cronjobs", "jobs", "pods"].contains(&event.object_ref.resource.as_str())
    });
    own.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

#[tokio::test]
async fn cron_jobs_and_finished_jobs_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("schedules").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let patch = |target: &str, with: &str| kubectl(&["patch", target, "--type=merge", "-p", with]);
    let patch_status = |target: &str, with: &str| {
        kubectl(&["patch", target, "--subresource=status", "--type=merge", "-p", with])
    };
    let active = async |name: &str| {
        let path = "jsonpath={.status.active[*].name}";
        let active = || async { kubectl(&["get", "cronjob", name, "-o", path]) };
        until(&format!("{name} has a Job"), LIMIT, active, |name| !name.is_empty()).await
    };
    // One that waits, one that waits suspended for what it has missed, those with Jobs that run, that have ended and are kept for
    // a while, and that somebody made by hand.
    for name in ["waits", "missed", "runs", "forbids", "keeps", "by-hand"] {
        let policy = if name == "forbids" { "Forbid" } else { "Allow" };
        let kept = (name == "keeps").then_some(i32::MAX);
        let _: CronJob =
            namespace.create(cron_job(name, kept, &json!({ "concurrencyPolicy": policy }))).await;
        if name != "waits" {
            patch_status(&format!("cronjob/{name}"), LONG_AGO);
        }
    }
    for name in ["runs", "forbids", "keeps"] {
        patch(&format!("cronjob/{name}"), RESUMED);
        active(name).await;
    }
    patch("cronjob/waits", RESUMED);
    let kept = active("keeps").await;
    patch_status(&format!("job/{kept}"), &complete());
    kubectl(&["create", "job", "--from=cronjob/by-hand", "made-by-hand"]);
    let before = quiet(&namespace).await;
    assert_eq!(before.len(), 10, "{:?}", before.keys());

    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    assert_eq!(quiet(&namespace).await, before, "Coxswain changed something");
    assert_eq!(
        writes(&plane, since, Program::Coxswain),
        Vec::<String>::new(),
        "Coxswain wrote when it took over"
    );

    // It does its work meanwhile.
    patch("cronjob/missed", RESUMED);
    active("missed").await;
    let started = quiet(&namespace).await;
    assert_eq!(started.len(), before.len() + 1);

    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    assert_eq!(quiet(&namespace).await, started, "the Go manager changed something");
    let written = writes(&plane, since, Program::Go);
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
}
