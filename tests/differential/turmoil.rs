//! Disruptive operations: refused writes, manager restarts, rights that are taken away.

use crate::generate::{MAKERS, Member};
use crate::life::LIVES;
use crate::operation::{Action, Operation};
use crate::random::Random;
use crate::refusals::{REASONS, Refusal};

/// Writes that are refused, each with the kinds whose controllers send it.
const WRITES: &[(&str, &[&str])] = &[
    ("CREATE controllerrevisions", &["DaemonSet", "StatefulSet"]),
    ("CREATE endpoints", &["Service"]),
    ("CREATE endpointslices", &["Endpoints", "Service"]),
    ("CREATE jobs", &["CronJob"]),
    ("CREATE persistentvolumeclaims", &["Pod", "StatefulSet"]),
    ("CREATE pods", MAKERS),
    ("CREATE replicasets", &["Deployment"]),
    ("DELETE configmaps", &["ConfigMap"]),
    ("DELETE endpointslices", &["Service"]),
    ("DELETE jobs", &["CronJob", "Job"]),
    ("DELETE persistentvolumeclaims", &["PersistentVolumeClaim", "StatefulSet"]),
    ("DELETE pods", MAKERS),
    ("DELETE replicasets", &["Deployment"]),
    ("UPDATE controllerrevisions", &["DaemonSet", "StatefulSet"]),
    ("UPDATE cronjobs/status", &["CronJob"]),
    ("UPDATE daemonsets/status", &["DaemonSet"]),
    ("UPDATE deployments", &["Deployment"]),
    ("UPDATE deployments/scale", &["HorizontalPodAutoscaler"]),
    ("UPDATE deployments/status", &["Deployment"]),
    ("UPDATE endpoints", &["Service"]),
    ("UPDATE endpointslices", &["Endpoints", "Service"]),
    ("UPDATE horizontalpodautoscalers/status", &["HorizontalPodAutoscaler"]),
    ("UPDATE jobs", &["CronJob", "Job"]),
    ("UPDATE jobs/status", &["Job"]),
    ("UPDATE persistentvolumeclaims", &["PersistentVolumeClaim", "StatefulSet"]),
    ("UPDATE persistentvolumeclaims/status", &["PersistentVolumeClaim"]),
    ("UPDATE poddisruptionbudgets/status", &["PodDisruptionBudget"]),
    ("UPDATE pods", MAKERS),
    ("UPDATE pods/status", &["Job", "PodDisruptionBudget"]),
    ("UPDATE replicasets", &["Deployment"]),
    ("UPDATE replicasets/status", &["Deployment", "ReplicaSet"]),
    ("UPDATE replicationcontrollers/status", &["ReplicationController"]),
    ("UPDATE resourcequotas/status", &["ResourceQuota"]),
    ("UPDATE serviceaccounts", &["Secret", "ServiceAccount"]),
    ("UPDATE statefulsets/status", &["StatefulSet"]),
];

/// Rights that are taken away: role, verb, resource.
const RIGHTS: &[(&str, &str, &str)] = &[
    ("daemon-set-controller", "create", "pods"),
    ("deployment-controller", "create", "replicasets"),
    ("deployment-controller", "update", "deployments/status"),
    ("endpoint-controller", "update", "endpoints"),
    ("endpointslice-controller", "create", "endpointslices"),
    ("generic-garbage-collector", "delete", "*"),
    ("job-controller", "create", "pods"),
    ("job-controller", "patch", "pods"),
    ("replicaset-controller", "create", "pods"),
    ("replicaset-controller", "delete", "pods"),
    ("statefulset-controller", "create", "persistentvolumeclaims"),
    ("statefulset-controller", "delete", "pods"),
];

/// Returns an operation on the manager itself.
pub(crate) fn disturb(random: &mut Random) -> Operation {
    let action = match random.below(10) {
        0..7 => Action::Manager(random.pick(&LIVES).0),
        7..9 => {
            let (role, verb, resource) = *random.pick(RIGHTS);
            Action::Forbid { role: role.to_owned(), verb: verb.to_owned(), resource: resource.to_owned() }
        }
        _ => Action::Permit,
    };
    Operation::new("operator", action)
}

/// Returns a refusal of writes of the manager, of those that the objects of the list need if there are any. A rule with 429 has a limit,
/// because clients retry after `Retry-After` until it ends.
pub(crate) fn refuse(random: &mut Random, members: &[Member]) -> Operation {
    let (code, _) = *random.pick(&REASONS);
    let times = if code == 429 { random.between(1, 3) } else { random.below(3) };
    let has = |kind: &&str| members.iter().any(|member| member.named.kind == *kind);
    let needed: Vec<_> = WRITES.iter().filter(|(_, kinds)| kinds.iter().any(has)).collect();
    let (write, _) = if needed.is_empty() { random.pick(WRITES) } else { *random.pick(&needed) };
    let (operation, resource) = write.split_once(' ').unwrap_or_default();
    let (operation, resource) = (operation.to_owned(), resource.to_owned());
    Operation::new("admission", Action::Refuse(Refusal { operation, resource, code, times }))
}
