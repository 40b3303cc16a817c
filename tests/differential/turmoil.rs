//! Disruptive operations: refused writes, manager restarts, sequences without a calm.

use serde_json::{Value, json};

use crate::generate::{Member, is_maker};
use crate::life::LIVES;
use crate::operation::{Action, Fate, Operation, Propagation};
use crate::random::Random;
use crate::refusals::{REASONS, Refusal};

/// Writes that are refused.
const WRITES: &[&str] = &[
    "CREATE controllerrevisions",
    "CREATE endpoints",
    "CREATE endpointslices",
    "CREATE jobs",
    "CREATE persistentvolumeclaims",
    "CREATE pods",
    "CREATE replicasets",
    "DELETE configmaps",
    "DELETE endpointslices",
    "DELETE jobs",
    "DELETE persistentvolumeclaims",
    "DELETE pods",
    "DELETE replicasets",
    "UPDATE controllerrevisions",
    "UPDATE cronjobs/status",
    "UPDATE daemonsets/status",
    "UPDATE deployments",
    "UPDATE deployments/scale",
    "UPDATE deployments/status",
    "UPDATE endpoints",
    "UPDATE endpointslices",
    "UPDATE horizontalpodautoscalers/status",
    "UPDATE jobs",
    "UPDATE jobs/status",
    "UPDATE persistentvolumeclaims",
    "UPDATE persistentvolumeclaims/status",
    "UPDATE poddisruptionbudgets/status",
    "UPDATE pods",
    "UPDATE pods/status",
    "UPDATE replicasets",
    "UPDATE replicasets/status",
    "UPDATE replicationcontrollers/status",
    "UPDATE resourcequotas/status",
    "UPDATE serviceaccounts",
    "UPDATE statefulsets/status",
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

/// Returns a refusal of writes of the manager. A rule with 429 has a limit, because clients retry after `Retry-After` until it ends.
pub(crate) fn refuse(random: &mut Random) -> Operation {
    let (code, _) = *random.pick(&REASONS);
    let times = if code == 429 { random.between(1, 3) } else { random.below(3) };
    let (operation, resource) = random.pick(WRITES).split_once(' ').unwrap_or_default();
    let (operation, resource) = (operation.to_owned(), resource.to_owned());
    Operation::new("admission", Action::Refuse(Refusal { operation, resource, code, times }))
}

/// Returns a race-prone sequence of operations on one object.
pub(crate) fn together(random: &mut Random, member: &Member) -> Vec<Operation> {
    let Member { named, app } = member;
    let patch = |patch: Value| Operation::new("other", Action::Patch(named.clone(), patch));
    let pods = |fate: Fate, take: usize| {
        Operation::new("kubelet", Action::Pods { fate, selector: format!("app={app}"), take })
    };
    let refuse = |line: &str| {
        line.parse::<Refusal>().map(|refusal| Operation::new("admission", Action::Refuse(refusal)))
    };
    let delete = || Operation::new("user", Action::Delete(named.clone(), Propagation::Foreground));
    let all = 99;
    let lists: Vec<Vec<Operation>> = match named.kind.as_str() {
        "Job" => vec![
            vec![pods(Fate::Succeeded, all), patch(json!({ "spec": { "suspend": true } }))],
            vec![pods(Fate::Failed, 1), patch(json!({ "spec": { "suspend": true } }))],
            vec![pods(Fate::Succeeded, all), delete()],
            vec![pods(Fate::Evicted, 1), pods(Fate::Failed, all)],
        ],
        "StatefulSet" => {
            let retain = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
            let retain = patch(json!({ "spec": { "persistentVolumeClaimRetentionPolicy": retain } }));
            vec![
                vec![pods(Fate::Unready, all), retain.clone()],
                vec![retain, patch(json!({ "spec": { "replicas": 0 } }))],
                vec![pods(Fate::Deleted, 1), patch(json!({ "spec": { "replicas": 4 } }))],
            ]
        }
        "Deployment" => {
            let image = |image: &str| json!([{ "name": "main", "image": image }]);
            let image = |name: &str| {
                patch(json!({ "spec": { "template": { "spec": { "containers": image(name) } } } }))
            };
            vec![
                vec![image("nginx:8"), image("nginx:9"), image("nginx:8")],
                vec![image("nginx:7"), patch(json!({ "spec": { "paused": true } }))],
            ]
        }
        "CertificateSigningRequest" => {
            vec![vec![Operation::new("approver", Action::Approve(named.clone()))]]
        }
        _ => Vec::new(),
    };
    let of_makers = [
        ("UPDATE pods 422 0", pods(Fate::Relabeled, 1)),
        ("CREATE pods 403 0", pods(Fate::Vanished, all)),
        ("DELETE pods 403 0", patch(json!({ "spec": { "replicas": 0 } }))),
    ];
    let of_makers = of_makers.into_iter().filter(|_| is_maker(member));
    let of_makers = of_makers.filter_map(|(line, then)| Some(vec![refuse(line).ok()?, then]));
    let lists: Vec<Vec<Operation>> = lists.into_iter().chain(of_makers).collect();
    if lists.is_empty() { Vec::new() } else { random.pick(&lists).clone() }
}

#[test]
fn operations_that_belong_together_are_read_back_from_their_lines() {
    let mut random = Random::new(5);
    for kind in ["Job", "StatefulSet", "Deployment", "DaemonSet", "CertificateSigningRequest", "ConfigMap"] {
        let named = format!("{kind}/web").parse().expect("an object");
        let member = Member { named, app: "web".to_owned() };
        let lists: Vec<Vec<Operation>> = (0..100).map(|_| together(&mut random, &member)).collect();
        assert_eq!(lists.concat().is_empty(), kind == "ConfigMap", "{kind}");
        for operation in lists.concat() {
            let line = operation.to_string();
            assert_eq!(line.parse::<Operation>().as_ref(), Ok(&operation), "{line}");
        }
    }
}
