//! Jobs whose manager ended in the midst of counting their pods change hands: Coxswain goes on from there as another Go manager
//! does, write by write. Nobody counts a pod twice.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::jobs::{CONTROLLERS, KINDS, job, pods_become, quiet};
use super::{ELECTION, LIMIT, end_of_log, leads, writes_of};
use crate::harness::{ControlPlane, Manager, Namespace, Options, Program, until};

/// The Jobs, each left behind at another moment: the pod is said to be about to be counted; its finalizer is off, too; it is gone.
const LEFT: [&str; 3] = ["said", "released", "gone"];
/// How each of their pods ended, one a Job.
const ENDS: [(&str, &str); 2] = [("Succeeded", "succeeded"), ("Failed", "failed")];

/// What a manager made of it: its writes, each as often as it was sent, and what the Jobs say in the end.
#[derive(Debug, PartialEq)]
struct Outcome {
    writes: BTreeMap<String, usize>,
    counts: BTreeMap<String, Value>,
}

async fn jobs_of(namespace: &Namespace) -> Vec<Job> {
    namespace.api::<Job>().list(&ListParams::default()).await.expect("Jobs").items
}

async fn populate(namespace: &Namespace) {
    for left in LEFT {
        for (_, end) in ENDS {
            let spec = json!({ "parallelism": 2, "completions": 3, "backoffLimit": 4 });
            job(namespace, &format!("{left}-{end}"), spec).await;
        }
    }
    quiet(namespace).await;
}

/// Leaves everything as a manager does that ends between two of its writes. None runs meanwhile.
async fn interrupt(namespace: &Namespace) {
    let (jobs, pods) = (namespace.api::<Job>(), namespace.api::<Pod>());
    let params = PatchParams::default();
    for left in LEFT {
        for (phase, end) in ENDS {
            let name = format!("{left}-{end}");
            pods_become(namespace, &name, 1, phase).await;
            let list = ListParams::default().labels(&format!("job-name={name}"));
            let ended =
                pods.list(&list).await.expect("pods").items.into_iter().find(|pod| {
                    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
                });
            let pod = ended.expect("a pod that has ended").metadata;
            let said = json!({ "status": { "uncountedTerminatedPods": { end: [pod.uid] } } });
            jobs.patch_status(&name, &params, &Patch::Merge(said)).await.expect("it is said");
            let pod = pod.name.expect("a name");
            if left != "said" {
                let released = json!({ "metadata": { "finalizers": null } });
                pods.patch(&pod, &params, &Patch::Merge(released)).await.expect("it is let go of");
            }
            if left == "gone" {
                drop(pods.delete(&pod, &DeleteParams::default().grace_period(0)).await.expect("deleted"));
            }
        }
    }
}

/// What this manager makes of it.
async fn outcome(
    plane: &ControlPlane,
    namespace: &Namespace,
    program: Program,
    manager: Manager<'_>,
    from: u64,
) -> Outcome {
    leads(&manager).await;
    let is_counted = |job: &Job| {
        let status = job.status.as_ref();
        status.is_some_and(|status| status.succeeded.or(status.failed) == Some(1) && status.ready == Some(0))
    };
    let all = || jobs_of(namespace);
    until("each Job has counted its pod", LIMIT, all, |jobs| jobs.iter().all(is_counted)).await;
    quiet(namespace).await;
    let mut writes = BTreeMap::new();
    for write in writes_of(plane, from, program, &KINDS) {
        // What the API server makes of a name is nobody's choice.
        let mut words: Vec<&str> = write.split('/').collect();
        if let Some(at) = words.iter().position(|word| *word == "pods")
            && let Some(name) = words.get_mut(at + 1)
        {
            *name = name.rsplit_once('-').map_or(*name, |(job, _)| job);
        }
        let write = words.join("/").replace(&namespace.name, "NAMESPACE");
        *writes.entry(write).or_default() += 1;
    }
    let counts = jobs_of(namespace).await.into_iter().map(|job| {
        let mut status = serde_json::to_value(job.status).expect("JSON");
        status.as_object_mut().expect("a status").remove("startTime");
        (job.metadata.name.unwrap_or_default(), status)
    });
    let counts = counts.collect();
    manager.stop();
    Outcome { writes, counts }
}

#[tokio::test]
async fn pods_that_were_being_counted_are_counted_once() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let cluster = plane.cluster().await;
    let first = plane.go_manager("go-1", &args);
    let (ours, theirs) = (cluster.namespace("ours").await, cluster.namespace("theirs").await);
    populate(&ours).await;
    populate(&theirs).await;
    first.stop();

    interrupt(&theirs).await;
    let end = end_of_log(&plane);
    let go = plane.go_manager("go-2", &args);
    let theirs = outcome(&plane, &theirs, Program::Go, go, end).await;
    interrupt(&ours).await;
    let end = end_of_log(&plane);
    let coxswain = plane.coxswain("coxswain-1", &args);
    let ours = outcome(&plane, &ours, Program::Coxswain, coxswain, end).await;
    assert_eq!(theirs.counts.len(), LEFT.len() * ENDS.len());
    assert_eq!(ours, theirs);
}
