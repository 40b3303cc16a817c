//! Disruptive operations: refused writes, manager restarts, sequences without a calm.

use serde_json::{Value, json};

use crate::generate::{Member, is_maker};
use crate::life::LIVES;
use crate::operation::{Action, Fate, Named, Operation, Propagation};
use crate::plane::NODES;
use crate::random::Random;
use crate::refusals::{REASONS, Refusal};
use crate::tables;

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

/// Takes all pods.
const ALL: usize = 99;
/// Numbers of ready pods on each node.
const SPREADS: &[[usize; 3]] = &[[3, 3, 1], [2, 2, 0], [1, 0, 0], [4, 1, 1]];

/// Returns operations that spread the pods of a Service over zones.
fn spread(random: &mut Random, member: &Member) -> Vec<Operation> {
    let Member { named, app } = member;
    let mut list = Vec::new();
    for ((node, _), replicas) in NODES.iter().zip(random.pick(SPREADS)).filter(|(_, replicas)| **replicas > 0)
    {
        let set = of_kind("ReplicaSet", &format!("on-{node}"), app);
        let fields = [("/spec/replicas", json!(replicas)), ("/spec/template/spec/nodeName", json!(node))];
        list.push(apply(set, &fields));
    }
    let hints = json!({ "service.kubernetes.io/topology-mode": "Auto" });
    let patch = json!({ "metadata": { "annotations": hints }, "spec": { "selector": { "app": app } } });
    list.push(Operation::new("other", Action::Patch(named.clone(), patch)));
    list.extend([calm(), pods(app, Fate::Ready, ALL)]);
    list
}

fn calm() -> Operation {
    Operation::new("all", Action::Calm)
}

fn pods(app: &str, fate: Fate, take: usize) -> Operation {
    Operation::new("kubelet", Action::Pods { fate, selector: format!("app={app}"), take })
}

/// Returns operations after which a Job has a Warning and more pods than Normal events about one object are written.
fn more_pods_than_events(app: &str) -> Vec<Operation> {
    let fields = [
        ("/spec/parallelism", json!(28)),
        ("/spec/completions", json!(28)),
        ("/spec/backoffLimit", json!(0)),
    ];
    vec![apply(of_kind("Job", "many", app), &fields), calm(), pods(app, Fate::Failed, ALL)]
}

/// Returns operations after which a Job fails by its policy, with a pod that runs and that the policy ignores.
fn failure_judged_by_policy(app: &str) -> Vec<Operation> {
    let disrupted = json!({ "type": "DisruptionTarget", "status": "True" });
    let policy = json!({ "rules": [{ "action": "Ignore", "onPodConditions": [disrupted] }] });
    let fields = [
        ("/spec/parallelism", json!(2)),
        ("/spec/completions", json!(2)),
        ("/spec/backoffLimit", json!(0)),
        ("/spec/podFailurePolicy", policy),
    ];
    let job = apply(of_kind("Job", "judged", app), &fields);
    vec![job, calm(), pods(app, Fate::Disrupted, 1), calm(), pods(app, Fate::Failed, 1)]
}

/// Returns operations after which another ServiceAccount of the same name refers to the Secret of the first.
fn account_made_again(app: &str) -> Vec<Operation> {
    let (name, secret) = (format!("{app}-account"), format!("{app}-token"));
    let account = || of_kind("ServiceAccount", &name, app);
    let token_of = [("/metadata/annotations/kubernetes.io~1service-account.name", json!(name))];
    let named = Named { kind: "ServiceAccount".to_owned(), name: name.clone() };
    vec![
        apply(account(), &[]),
        apply(of_kind("Secret", &secret, app), &token_of),
        calm(),
        Operation::new("user", Action::Delete(named, Propagation::Background)),
        apply(account(), &[("/secrets", json!([{ "name": secret }]))]),
    ]
}

/// Returns a new object of this kind.
fn of_kind(kind: &str, name: &str, app: &str) -> Value {
    let text = tables::kind(kind).document.to_string();
    serde_json::from_str(&text.replace("NAME", name).replace("APP", app)).unwrap_or_default()
}

fn apply(mut object: Value, fields: &[(&str, Value)]) -> Operation {
    for (pointer, value) in fields {
        tables::set(&mut object, pointer, value.clone());
    }
    Operation::new("user", Action::Apply(object))
}

/// Returns a race-prone sequence of operations on one object, or one that needs several objects.
pub(crate) fn together(random: &mut Random, member: &Member) -> Vec<Operation> {
    let Member { named, app } = member;
    let patch = |patch: Value| Operation::new("other", Action::Patch(named.clone(), patch));
    let pods = |fate: Fate, take: usize| pods(app, fate, take);
    let refuse = |line: &str| {
        line.parse::<Refusal>().map(|refusal| Operation::new("admission", Action::Refuse(refusal)))
    };
    let delete = || Operation::new("user", Action::Delete(named.clone(), Propagation::Foreground));
    let all = ALL;
    let lists: Vec<Vec<Operation>> = match named.kind.as_str() {
        "Job" => vec![
            vec![pods(Fate::Succeeded, all), patch(json!({ "spec": { "suspend": true } }))],
            vec![pods(Fate::Failed, 1), patch(json!({ "spec": { "suspend": true } }))],
            vec![pods(Fate::Succeeded, all), delete()],
            vec![pods(Fate::Evicted, 1), pods(Fate::Failed, all)],
            more_pods_than_events(app),
            failure_judged_by_policy(app),
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
            let requests = |cpu: &str, memory: &str| {
                let requests = json!({ "requests": { "cpu": cpu, "memory": memory } });
                let containers = json!([{ "name": "main", "image": "nginx:1", "resources": requests }]);
                patch(json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
            };
            let image = |name: &str| {
                patch(json!({ "spec": { "template": { "spec": { "containers": image(name) } } } }))
            };
            vec![
                vec![image("nginx:8"), image("nginx:9"), image("nginx:8")],
                vec![image("nginx:7"), patch(json!({ "spec": { "paused": true } }))],
                // One amount in two spellings.
                vec![requests("0.5", "1Ki"), calm(), requests("500m", "1024")],
                vec![requests("1", "1Gi"), calm(), requests("1000m", "1073741824")],
            ]
        }
        "CertificateSigningRequest" => {
            let long_ago = Some("NOW-7200s".to_owned());
            vec![
                vec![Operation::new("approver", Action::Approve(named.clone(), None))],
                vec![Operation::new("approver", Action::Approve(named.clone(), long_ago))],
            ]
        }
        "Service" => vec![spread(random, member)],
        "Secret" | "ServiceAccount" => vec![account_made_again(app)],
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
    for kind in [
        "Job",
        "StatefulSet",
        "Deployment",
        "DaemonSet",
        "CertificateSigningRequest",
        "Secret",
        "Service",
        "ConfigMap",
    ] {
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
