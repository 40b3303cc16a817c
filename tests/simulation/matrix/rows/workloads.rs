//! Controllers of workloads.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value as Json, json};

use super::{Row, Wait, row};
use crate::matrix::fault::Fault;
use crate::matrix::seeder::{Seeder, owner, selector, template};
use apiserver_model::metrics::Reading;

const REPLICA_SET: &str = "replicaset-controller";
const REPLICATION: &str = "replicationcontroller-controller";
const DEPLOYMENT: &str = "deployment-controller";
const DAEMON_SET: &str = "daemonset-controller";
const STATEFUL_SET: &str = "statefulset-controller";
const JOB: &str = "job-controller";
const CRON_JOB: &str = "cronjob-controller";
const DISRUPTION: &str = "disruption-controller";
const AUTOSCALER: &str = "horizontal-pod-autoscaler-controller";
const POD_GC: &str = "pod-garbage-collector-controller";
/// Gates by which the pods of a Job are scheduled together.
const GANGS: &[&str] = &["--feature-gates=GenericWorkload=true,WorkloadWithJob=true"];
/// The finalizer of a Job's pods.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// How often an autoscaler acts.
const AUTOSCALES: Duration = Duration::from_secs(15);
/// How often the collector of pods acts, and how long a node must have been absent.
const COLLECTS: Duration = Duration::from_secs(20);
const QUARANTINE: Duration = Duration::from_mins(1);

pub(super) static ROWS: &[Row] = &[
    row(REPLICA_SET, "create pods", |seeder| _ = replica_set(seeder, 1)),
    row(REPLICA_SET, "update replicasets.apps/status", |seeder| _ = replica_set(seeder, 1)),
    row(REPLICA_SET, "delete pods", |seeder| {
        let set = replica_set(seeder, 0);
        pod(seeder, "a", &owner("apps/v1", "ReplicaSet", &set));
    }),
    row(REPLICA_SET, "patch pods", |seeder| {
        replica_set(seeder, 1);
        pod(seeder, "a", &Json::Null);
    }),
    row(REPLICATION, "create pods", |seeder| _ = replication(seeder, 1)),
    row(REPLICATION, "update replicationcontrollers/status", |seeder| _ = replication(seeder, 1)),
    row(REPLICATION, "delete pods", |seeder| {
        let set = replication(seeder, 0);
        pod(seeder, "a", &owner("v1", "ReplicationController", &set));
    }),
    row(REPLICATION, "patch pods", |seeder| {
        replication(seeder, 1);
        pod(seeder, "a", &Json::Null);
    }),
    Row {
        // Four names are tried where a webhook removes the owner of what is created.
        writes_per_pass: 2,
        ..row(DEPLOYMENT, "create replicasets.apps", |seeder| _ = deployment(seeder))
    },
    row(DEPLOYMENT, "update deployments.apps/status", |seeder| _ = deployment(seeder)),
    row(DEPLOYMENT, "update deployments.apps", |seeder| {
        let deployment = deployment(seeder);
        seeder.amend("deployments", &deployment, |deployment| {
            // There is no such revision, so that the wish is taken away.
            deployment["metadata"]["annotations"] = json!({ "deprecated.deployment.rollback.to": "7" });
        });
    }),
    row(DEPLOYMENT, "update replicasets.apps", |seeder| {
        let deployment = deployment(seeder);
        old_replica_set(seeder, "main", &owner("apps/v1", "Deployment", &deployment));
    }),
    row(DEPLOYMENT, "patch replicasets.apps", |seeder| {
        deployment(seeder);
        old_replica_set(seeder, "main", &Json::Null);
    }),
    row(DEPLOYMENT, "delete replicasets.apps", |seeder| {
        // Old sets go when the Deployment is complete.
        let deployment = deployment_of(seeder, 0);
        old_replica_set(seeder, "old", &owner("apps/v1", "Deployment", &deployment));
    }),
    row(DAEMON_SET, "create pods", |seeder| _ = daemon_set(seeder, true)),
    row(DAEMON_SET, "update daemonsets.apps/status", |seeder| _ = daemon_set(seeder, true)),
    row(DAEMON_SET, "create controllerrevisions.apps", |seeder| _ = daemon_set(seeder, true)),
    row(DAEMON_SET, "delete pods", |seeder| {
        let set = daemon_set(seeder, false);
        let node = seeder.tag;
        bound_pod(seeder, "a", node, &owner("apps/v1", "DaemonSet", &set));
    }),
    row(DAEMON_SET, "patch pods", |seeder| {
        daemon_set(seeder, true);
        let node = seeder.tag;
        bound_pod(seeder, "a", node, &Json::Null);
    }),
    row(DAEMON_SET, "delete controllerrevisions.apps", |seeder| {
        let set = daemon_set(seeder, true);
        revision(seeder, &owner("apps/v1", "DaemonSet", &set));
    }),
    row(DAEMON_SET, "patch controllerrevisions.apps", |seeder| {
        daemon_set(seeder, true);
        revision(seeder, &Json::Null);
    }),
    row(STATEFUL_SET, "create pods", |seeder| _ = stateful_set(seeder, 1)),
    row(STATEFUL_SET, "update statefulsets.apps/status", |seeder| _ = stateful_set(seeder, 1)),
    Row {
        // If a name is taken, the next one is tried, up to five names in one try.
        writes_per_pass: 5,
        ..row(STATEFUL_SET, "create controllerrevisions.apps", |seeder| _ = stateful_set(seeder, 1))
    },
    row(STATEFUL_SET, "create persistentvolumeclaims", |seeder| _ = stateful_set_with_claims(seeder)),
    row(STATEFUL_SET, "update persistentvolumeclaims", |seeder| {
        stateful_set_with_claims(seeder);
        let name = format!("data-{}-0", seeder.tag);
        let labels = template()["metadata"]["labels"].clone();
        let mut claim = claim();
        claim["metadata"] = json!({ "name": name, "labels": labels });
        seeder.make("persistentvolumeclaims", claim);
    }),
    row(STATEFUL_SET, "delete pods", |seeder| {
        let set = stateful_set(seeder, 0);
        pod(seeder, "0", &owner("apps/v1", "StatefulSet", &set));
    }),
    row(STATEFUL_SET, "patch pods", |seeder| {
        stateful_set(seeder, 1);
        pod(seeder, "0", &Json::Null);
    }),
    row(STATEFUL_SET, "delete controllerrevisions.apps", |seeder| {
        let set = stateful_set(seeder, 1);
        revision(seeder, &owner("apps/v1", "StatefulSet", &set));
    }),
    row(STATEFUL_SET, "patch controllerrevisions.apps", |seeder| {
        stateful_set(seeder, 1);
        revision(seeder, &Json::Null);
    }),
    row(JOB, "create pods", |seeder| _ = job(seeder, false)),
    row(JOB, "update jobs.batch/status", |seeder| _ = job(seeder, false)),
    row(JOB, "delete pods", |seeder| {
        let job = job(seeder, true);
        job_pod(seeder, &job, "Running");
    }),
    row(JOB, "patch pods", |seeder| {
        let job = job(seeder, false);
        job_pod(seeder, &job, "Succeeded");
    }),
    Row { flags: GANGS, ..row(JOB, "create workloads.scheduling.k8s.io", |seeder| _ = gang(seeder)) },
    Row { flags: GANGS, ..row(JOB, "create podgroups.scheduling.k8s.io", |seeder| _ = gang(seeder)) },
    row(CRON_JOB, "create jobs.batch", |seeder| _ = cron_job(seeder)),
    row(CRON_JOB, "update cronjobs.batch/status", |seeder| _ = cron_job(seeder)),
    Row {
        waits_for_change: &[Wait {
            answers: &[
                Fault::Forbidden,
                Fault::Invalid,
                Fault::TooManyRequests,
                Fault::InternalError,
                Fault::Unavailable,
                Fault::TimeoutBefore,
            ],
            // See the behavior page `cronjob.md`, "History".
            reason: "a finished Job that could not be deleted is deleted by the next pass",
        }],
        ..row(CRON_JOB, "delete jobs.batch", |seeder| {
            let cron_job = cron_job(seeder);
            let ended = seeder.ago(SignedDuration::from_hours(2));
            let job = json!({
                "metadata": {
                    "name": format!("{}-old", seeder.tag), "ownerReferences": owner("batch/v1", "CronJob", &cron_job),
                },
                "spec": { "template": once() },
            });
            let status = json!({
                "startTime": ended, "completionTime": ended, "succeeded": 1,
                "conditions": [{ "type": "Complete", "status": "True", "lastTransitionTime": ended }],
            });
            seeder.make_with_status("jobs", job, status);
        })
    },
    Row {
        // A refused status is written once more, with no disruptions allowed. One worker takes all budgets.
        writes_per_pass: 2,
        timeouts: 2,
        ..row(DISRUPTION, "update poddisruptionbudgets.policy/status", |seeder| {
            let spec = json!({ "minAvailable": 1, "selector": selector() });
            seeder.make("poddisruptionbudgets", json!({ "spec": spec }));
            pod(seeder, "a", &Json::Null);
        })
    },
    row(DISRUPTION, "patch pods/status", |seeder| {
        let pod = pod(seeder, "a", &Json::Null);
        let then = seeder.ago(SignedDuration::from_mins(10));
        seeder.amend("pods", &pod, |pod| {
            pod["status"]["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": then,
            }]);
        });
    }),
    Row {
        period: AUTOSCALES,
        ..row(AUTOSCALER, "update deployments.apps/scale", |seeder| _ = autoscaler(seeder))
    },
    Row {
        period: AUTOSCALES,
        ..row(AUTOSCALER, "update horizontalpodautoscalers.autoscaling/status", |seeder| {
            _ = autoscaler(seeder);
        })
    },
    Row { period: COLLECTS, starts_after: QUARANTINE, ..row(POD_GC, "delete pods", orphan) },
    Row { period: COLLECTS, starts_after: QUARANTINE, ..row(POD_GC, "patch pods/status", orphan) },
    Row {
        flags: &["--feature-gates=GenericWorkload=true"],
        ..row("podgroup-protection-controller", "update podgroups.scheduling.k8s.io", |seeder| {
            let metadata = json!({ "finalizers": ["scheduling.k8s.io/podgroup-protection"] });
            seeder.make_deleted("podgroups", json!({ "metadata": metadata, "spec": {} }));
        })
    },
    Row {
        // After a conflict the Job is read live, and deleted at that version.
        writes_per_pass: 2,
        ..row("ttl-after-finished-controller", "delete jobs.batch", |seeder| {
            let ended = seeder.ago(SignedDuration::from_mins(10));
            let job = json!({ "spec": { "template": once(), "ttlSecondsAfterFinished": 60 } });
            let status = json!({
                "startTime": ended, "completionTime": ended, "succeeded": 1,
                "conditions": [{ "type": "Complete", "status": "True", "lastTransitionTime": ended }],
            });
            seeder.make_with_status("jobs", job, status);
        })
    },
];

fn replica_set(seeder: &mut Seeder<'_>, replicas: u32) -> Json {
    let spec = json!({ "replicas": replicas, "selector": selector(), "template": template() });
    seeder.make("replicasets", json!({ "spec": spec }))
}

fn replication(seeder: &mut Seeder<'_>, replicas: u32) -> Json {
    let spec = json!({ "replicas": replicas, "selector": { "app": "web" }, "template": template() });
    seeder.make("replicationcontrollers", json!({ "spec": spec }))
}

fn deployment(seeder: &mut Seeder<'_>) -> Json {
    deployment_of(seeder, 1)
}

fn deployment_of(seeder: &mut Seeder<'_>, replicas: u32) -> Json {
    let spec = json!({
        "replicas": replicas, "selector": selector(), "template": template(), "revisionHistoryLimit": 0,
    });
    seeder.make("deployments", json!({ "spec": spec }))
}

/// A `ReplicaSet` without replicas, of the template with this image.
fn old_replica_set(seeder: &mut Seeder<'_>, image: &str, owners: &Json) -> Json {
    let mut template = template();
    template["spec"]["containers"][0]["image"] = json!(image);
    let labels = json!({ "app": "web", "pod-template-hash": image });
    template["metadata"]["labels"] = labels.clone();
    let set = json!({
        "metadata": { "name": format!("{}-{image}", seeder.tag), "labels": labels, "ownerReferences": owners },
        "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": template },
    });
    seeder.make_with_status("replicasets", set, json!({ "replicas": 0, "observedGeneration": 1 }))
}

/// A `DaemonSet` and the node of the tag, on which it runs or not.
fn daemon_set(seeder: &mut Seeder<'_>, runs: bool) -> Json {
    let node = json!({ "metadata": { "labels": { "matrix": if runs { seeder.tag } else { "none" } } } });
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let node = seeder.make_with_status("nodes", node, json!({ "conditions": ready }));
    seeder.amend("nodes", &node, |node| node["spec"]["taints"] = json!([]));
    let mut template = template();
    template["spec"]["nodeSelector"] = json!({ "matrix": seeder.tag });
    let spec = json!({ "selector": selector(), "template": template, "revisionHistoryLimit": 0 });
    seeder.make("daemonsets", json!({ "spec": spec }))
}

fn stateful_set(seeder: &mut Seeder<'_>, replicas: u32) -> Json {
    let spec = json!({
        "replicas": replicas, "selector": selector(), "template": template(), "serviceName": "web",
        "revisionHistoryLimit": 0,
    });
    seeder.make("statefulsets", json!({ "spec": spec }))
}

fn claim() -> Json {
    json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

fn stateful_set_with_claims(seeder: &mut Seeder<'_>) -> Json {
    let spec = json!({
        "replicas": 1, "selector": selector(), "template": template(), "serviceName": "web",
        "volumeClaimTemplates": [claim()],
        "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
    });
    seeder.make("statefulsets", json!({ "spec": spec }))
}

/// A revision that no pod has.
fn revision(seeder: &mut Seeder<'_>, owners: &Json) -> Json {
    let metadata = json!({
        "name": format!("{}-old", seeder.tag), "labels": { "app": "web" }, "ownerReferences": owners,
    });
    seeder.make("controllerrevisions", json!({ "metadata": metadata, "revision": 1, "data": { "spec": {} } }))
}

fn pod(seeder: &mut Seeder<'_>, suffix: &str, owners: &Json) -> Json {
    let mut pod = template();
    pod["metadata"]["name"] = json!(format!("{}-{suffix}", seeder.tag));
    pod["metadata"]["ownerReferences"] = owners.clone();
    seeder.make("pods", pod)
}

fn bound_pod(seeder: &mut Seeder<'_>, suffix: &str, node: &str, owners: &Json) -> Json {
    let pod = pod(seeder, suffix, owners);
    seeder.amend("pods", &pod, |pod| {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
    })
}

/// A template of pods that end.
fn once() -> Json {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

fn job(seeder: &mut Seeder<'_>, suspend: bool) -> Json {
    let spec = json!({ "template": once(), "parallelism": 1, "completions": 1, "suspend": suspend });
    seeder.make("jobs", json!({ "spec": spec }))
}

/// A Job whose pods are scheduled together.
fn gang(seeder: &mut Seeder<'_>) -> Json {
    let spec = json!({
        "template": once(), "parallelism": 2, "completions": 2, "completionMode": "Indexed",
    });
    seeder.make("jobs", json!({ "spec": spec }))
}

fn job_pod(seeder: &mut Seeder<'_>, job: &Json, phase: &str) -> Json {
    let mut pod = once();
    pod["metadata"] = json!({
        "name": format!("{}-a", seeder.tag),
        "labels": job["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": owner("batch/v1", "Job", job),
        "finalizers": [TRACKED],
    });
    let pod = seeder.make("pods", pod);
    seeder.amend("pods", &pod, |pod| pod["status"]["phase"] = json!(phase))
}

/// A `CronJob` that has missed one run, half an hour ago, and has no other for a year.
fn cron_job(seeder: &mut Seeder<'_>) -> Json {
    let spec = json!({
        "schedule": "30 7 15 1 *", "successfulJobsHistoryLimit": 0, "timeZone": "Etc/UTC",
        "jobTemplate": { "spec": { "template": once() } },
    });
    let cron_job = seeder.make("cronjobs", json!({ "spec": spec }));
    let created = seeder.ago(SignedDuration::from_hours(1));
    seeder.amend("cronjobs", &cron_job, |cron_job| cron_job["metadata"]["creationTimestamp"] = json!(created))
}

/// An autoscaler of a Deployment with fewer replicas than its least.
fn autoscaler(seeder: &mut Seeder<'_>) -> Json {
    deployment(seeder);
    seeder.model.metrics.set(seeder.tag, "load", Reading::Value(1000));
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": seeder.tag });
    let metric = json!({
        "type": "External",
        "external": { "metric": { "name": "load" }, "target": { "type": "Value", "value": "1" } },
    });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3, "metrics": [metric] });
    seeder.make("horizontalpodautoscalers", json!({ "spec": spec }))
}

/// A pod of a node that does not exist.
fn orphan(seeder: &mut Seeder<'_>) {
    let node = format!("gone-{}", seeder.tag);
    bound_pod(seeder, "a", &node, &Json::Null);
}
