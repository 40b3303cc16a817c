//! Sequences about other objects than workloads, and about objects that workloads use.

use serde_json::json;

use super::{ALL, ELSEWHERE, Subject, calm, choose, propagation};
use crate::generate::{INVALID, METRICS, ODD_END};
use crate::operation::{Action, Fate, Named, Operation, PROPAGATIONS};
use crate::plane::NODES;
use crate::random::Random;
use crate::tables;

/// Times at which bootstrap tokens expire.
const EXPIRATIONS: &[&str] =
    &["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "2020-01-01T00:00:00Z", "1-1-1", ""];
/// Numbers of ready pods on each node.
const SPREADS: &[[usize; 3]] = &[[3, 3, 1], [2, 2, 0], [1, 0, 0], [4, 1, 1]];

/// The owner of an object whose name has characters that are reserved in a URL, or bytes that are not UTF-8, is deleted.
pub(super) fn odd_dependent(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let is_invalid = random.chance(30);
    let name = format!("{}{ODD_END}{}", subject.name, if is_invalid { INVALID } else { "" });
    let mut owner = subject.owner("ConfigMap", random.chance(50));
    owner[0]["blockOwnerDeletion"] = random.chance(50).into();
    let role =
        subject.object("Role", &[("/metadata/ownerReferences", owner), ("/metadata/name", json!(name))]);
    let role = if is_invalid { Action::Wire(role) } else { Action::Apply(role) };
    vec![
        subject.apply("ConfigMap", &[]),
        Operation::new("attacker", role),
        calm(),
        subject.delete("ConfigMap", propagation(random)),
    ]
}

/// Pods of a Service are spread over zones, before or after the Service asks for hints.
pub(super) fn spread(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let mut list = Vec::new();
    for ((node, _), replicas) in NODES.iter().zip(random.pick(SPREADS)).filter(|(_, replicas)| **replicas > 0)
    {
        let fields = [
            ("/metadata/name", json!(format!("{}-{node}", subject.name))),
            ("/spec/replicas", json!(replicas)),
            ("/spec/template/spec/nodeName", json!(node)),
        ];
        list.push(subject.apply("ReplicaSet", &fields));
    }
    let hints = json!({ "service.kubernetes.io/topology-mode": "Auto" });
    let service = subject.apply("Service", &[("/metadata/annotations", hints)]);
    let ready = subject.pods(Fate::Ready, ALL);
    if random.chance(40) {
        list.extend([service, calm(), ready]);
    } else {
        list.extend([calm(), ready, calm(), service]);
    }
    if random.chance(50) {
        list.extend([calm(), subject.pods(choose(random, &[Fate::Unready, Fate::Vanished]), 1)]);
    }
    list
}

/// Another ServiceAccount of the same name refers to the Secret of the first.
pub(super) fn account_made_again(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let secret = format!("{}-token", subject.name);
    let of_account = [("/metadata/annotations/kubernetes.io~1service-account.name", json!("NAME"))];
    let mut of_secret = vec![("/metadata/name", json!(secret))];
    of_secret.extend(of_account);
    let mut list = vec![subject.apply("ServiceAccount", &[]), subject.apply("Secret", &of_secret), calm()];
    list.push(subject.delete("ServiceAccount", PROPAGATIONS[0].0));
    if random.chance(20) {
        list.push(calm());
    }
    let mut fields = Vec::new();
    if random.chance(75) {
        fields.push(("/secrets", json!([{ "name": secret }])));
    }
    list.push(subject.apply("ServiceAccount", &fields));
    list
}

/// A bootstrap token expires, or never does.
pub(super) fn bootstrap_token(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let data = json!({ "token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": random.pick(EXPIRATIONS) });
    let fields = [
        ("/metadata/name", json!("NAMESPACE-NAME")),
        ("/metadata/namespace", json!(ELSEWHERE)),
        ("/metadata/annotations", json!({})),
        ("/type", json!("bootstrap.kubernetes.io/token")),
        ("/stringData", data),
    ];
    vec![Operation::new("stranger", Action::Apply(subject.object("Secret", &fields))), calm()]
}

/// Requests for certificates with odd contents are approved, some long ago.
pub(super) fn approvals(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = "CertificateSigningRequest";
    let requests = tables::values(kind, "/spec/request");
    let first = random.below(requests.len());
    let (mut list, mut approvals) = (Vec::new(), Vec::new());
    for at in first..first + random.between(2, 4) {
        let mut fields = vec![
            ("/metadata/name", json!(format!("NAMESPACE-NAME-{at}"))),
            ("/spec/request", requests[at % requests.len()].clone()),
        ];
        if random.chance(20) {
            fields.push(("/spec/signerName", random.pick(tables::values(kind, "/spec/signerName")).clone()));
        }
        let request = subject.object(kind, &fields);
        let since = random.chance(50).then(|| "NOW-7200s".to_owned());
        approvals.push(Operation::new("approver", Action::Approve(Named::of(&request), since)));
        list.push(Operation::new("user", Action::Apply(request)));
    }
    list.push(calm());
    list.extend(approvals);
    list
}

/// An autoscaler scales a Deployment by the use of its pods.
pub(super) fn scaled_by_metrics(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let numbers = serde_json::from_str(random.pick::<&str>(&METRICS[..5])).unwrap_or_default();
    let mut fields = Vec::new();
    if random.chance(30) {
        let pointer = choose(random, &["/spec/metrics", "/spec/behavior", "/spec/minReplicas"]);
        let value = random.pick(tables::values("HorizontalPodAutoscaler", pointer)).clone();
        fields.extend(Some((pointer, value)).filter(|(_, value)| !value.is_null()));
    }
    vec![
        subject.apply("Deployment", &[]),
        calm(),
        subject.pods(Fate::Ready, ALL),
        Operation::new("metrics", Action::Metrics(numbers)),
        subject.apply("HorizontalPodAutoscaler", &fields),
    ]
}

/// A quota is full, and then has room.
pub(super) fn full_quota(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = choose(random, &["Deployment", "Job", "ReplicaSet", "StatefulSet"]);
    let (resource, least) =
        choose(random, &[("pods", 1), ("count/jobs.batch", 0), ("count/replicasets.apps", 0)]);
    let hard = |count: u64| json!({ resource: count.to_string() });
    let mut list = vec![subject.apply("ResourceQuota", &[("/spec/hard", hard(least))]), calm()];
    list.extend([subject.apply(kind, &[]), calm()]);
    list.push(match random.below(3) {
        0 => subject.delete("ResourceQuota", PROPAGATIONS[0].0),
        1 => subject.pods(choose(random, &[Fate::Succeeded, Fate::Failed, Fate::Vanished]), 1),
        _ => subject.patch("ResourceQuota", &json!({ "spec": { "hard": hard(5) } })),
    });
    list
}

/// Pods that a budget protects are evicted, disrupted or end.
pub(super) fn budget(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = choose(random, &["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"]);
    let minimum = random.pick(tables::values("PodDisruptionBudget", "/spec/minAvailable")).clone();
    let fields = [("/spec/minAvailable", minimum)];
    let fields = if fields[0].1.is_null() { &fields[..0] } else { &fields[..] };
    let mut list = vec![subject.apply(kind, &[]), subject.apply("PodDisruptionBudget", fields), calm()];
    list.extend([subject.pods(Fate::Ready, choose(random, &[1, ALL, ALL])), calm()]);
    list.push(subject.pods(choose(random, &[Fate::Evicted, Fate::Disrupted, Fate::Unready]), 2));
    list
}

/// A claim is bound to its volume, and one of both is deleted or changed.
pub(super) fn bound_claim(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let policy = choose(random, &["Retain", "Delete"]);
    let volume = subject.apply("PersistentVolume", &[("/spec/persistentVolumeReclaimPolicy", json!(policy))]);
    let claim = subject.apply("PersistentVolumeClaim", &[]);
    let mut list =
        if random.chance(50) { vec![volume, claim.clone()] } else { vec![claim.clone(), calm(), volume] };
    list.push(calm());
    let delete = subject.delete("PersistentVolumeClaim", propagation(random));
    match random.below(3) {
        0 => list.push(delete),
        1 => list.extend([delete, claim]),
        _ => list.push(subject.delete("PersistentVolume", propagation(random))),
    }
    list
}
