//! Jobs in many states change hands: those that run, are suspended, wait, fail, have ended, are being deleted, have indexes half
//! done. Nobody plays the node of their pods, so they go on only when they are told to.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ELECTION, LIMIT, end_of_log, leads, named, writes_of};
use crate::harness::{ControlPlane, Namespace, Options, Program, until};

/// What Jobs need, and nothing else.
pub(super) const CONTROLLERS: &str = "--controllers=job-controller,deployment-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller";
pub(super) const KINDS: [&str; 2] = ["pods", "jobs"];

/// All Jobs, and all pods with their finalizers and owners.
#[derive(Debug, PartialEq)]
struct State(BTreeMap<String, Value>, BTreeMap<String, Value>);

impl State {
    async fn of(namespace: &Namespace) -> Self {
        let list = ListParams::default();
        let jobs = namespace.api::<Job>().list(&list).await.expect("Jobs");
        let pods = namespace.api::<Pod>().list(&list).await.expect("pods");
        Self(
            jobs.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            pods.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
        )
    }
}

pub(super) async fn quiet(namespace: &Namespace) {
    let look = || async {
        let before = State::of(namespace).await;
        // Jobs are looked at again a second after a change.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        (before == State::of(namespace).await).then_some(())
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await;
}

pub(super) async fn job(namespace: &Namespace, name: &str, spec: Value) {
    let template = json!({ "spec": {
        "restartPolicy": "Never",
        "nodeName": "by-hand",
        "containers": [{ "name": "main", "image": "work:1" }],
    } });
    let mut body = json!({ "metadata": { "name": name }, "spec": spec });
    body["spec"]["template"] = template;
    let _: Job = namespace.create(body).await;
}

/// Pods of a Job end, or are deleted.
pub(super) async fn pods_become(namespace: &Namespace, job: &str, count: usize, phase: &str) {
    let api = namespace.api::<Pod>();
    let list = ListParams::default().labels(&format!("job-name={job}"));
    let pods = api.list(&list).await.expect("pods").items;
    let pending =
        |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    for pod in pods.iter().filter(pending).take(count) {
        let name = pod.metadata.name.as_deref().expect("a name");
        if phase == "Deleted" {
            drop(api.delete(name, &DeleteParams::default()).await.expect("deleted"));
            continue;
        }
        let condition =
            json!({ "type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z" });
        let status = json!({ "status": { "phase": phase, "conditions": [condition] } });
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
        patched.expect("the pod ends");
    }
}

async fn populate(namespace: &Namespace) {
    let indexed = |more: Value| {
        let mut spec = json!({ "parallelism": 3, "completions": 4, "completionMode": "Indexed" });
        for (field, value) in more.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        spec
    };
    let plain = json!({ "parallelism": 2, "completions": 4 });
    let limited = json!({ "backoffLimitPerIndex": 1 });
    let strict = json!({ "parallelism": 2, "completions": 4, "podReplacementPolicy": "Failed" });
    let early = json!({ "successPolicy": { "rules": [{ "succeededCount": 1 }] } });
    for (name, spec) in [
        ("runs", plain.clone()),
        ("half-done", plain.clone()),
        ("queue", json!({ "parallelism": 3 })),
        ("done", json!({ "parallelism": 1 })),
        ("failed", json!({ "backoffLimit": 0 })),
        ("failing", json!({ "parallelism": 2, "completions": 2, "backoffLimit": 0 })),
        ("suspended", plain.clone()),
        ("never-started", json!({ "suspend": true })),
        ("replacing", strict),
        ("half-indexed", indexed(json!({}))),
        ("limited", indexed(limited)),
        ("succeeding", indexed(early)),
        ("external", json!({ "managedBy": "example.com/another" })),
        ("going", plain),
    ] {
        job(namespace, name, spec).await;
    }
    quiet(namespace).await;
    for (name, count, phase) in [
        ("half-done", 1, "Succeeded"),
        ("queue", 1, "Succeeded"),
        ("done", 1, "Succeeded"),
        ("failed", 1, "Failed"),
        ("failing", 1, "Failed"),
        ("replacing", 1, "Deleted"),
        ("half-indexed", 2, "Succeeded"),
        ("limited", 1, "Failed"),
        ("succeeding", 1, "Succeeded"),
    ] {
        pods_become(namespace, name, count, phase).await;
    }
    let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
    let api = namespace.api::<Job>();
    api.patch("suspended", &PatchParams::default(), &patch).await.expect("it is suspended");
    // Without garbage collection it goes on being deleted.
    api.delete("going", &DeleteParams::foreground()).await.expect("it is deleted");
    quiet(namespace).await;
}

#[tokio::test]
async fn fourteen_jobs_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("jobs").await;
    populate(&namespace).await;
    let before = State::of(&namespace).await;
    let ended = before.0.values().filter(|job| !job["status"]["conditions"].is_null()).count();
    assert_eq!((before.0.len(), ended), (14, 6), "{:#?}", before.0.keys());

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    quiet(&namespace).await;
    let nothing = Vec::<String>::new();
    assert_eq!(
        writes_of(&plane, end, Program::Coxswain, &KINDS),
        nothing,
        "Coxswain wrote when it took over"
    );
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile.
    for (name, count, phase) in
        [("half-done", 2, "Succeeded"), ("half-indexed", 1, "Succeeded"), ("limited", 1, "Failed")]
    {
        pods_become(&namespace, name, count, phase).await;
    }
    quiet(&namespace).await;
    let after = State::of(&namespace).await;
    let succeeded = |name: &str| after.0[name]["status"]["succeeded"].clone();
    assert_eq!((succeeded("half-done"), succeeded("half-indexed")), (json!(3), json!(3)));

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert_eq!(written, nothing, "the Go manager wrote when it got it back");
    assert_eq!(State::of(&namespace).await, after, "the Go manager changed something");
}
