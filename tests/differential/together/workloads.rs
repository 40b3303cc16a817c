//! Sequences about workloads.

use serde_json::{Value, json};

use super::{ALL, ELSEWHERE, HOLD, Subject, allow, calm, choose, propagation, refuse};
use crate::generate::with_words;
use crate::operation::{Action, Fate, Operation, Propagation};
use crate::random::Random;
use crate::tables;

/// Quantities of a resource, each in two spellings.
const SPELLINGS: &[(&str, &str, &str)] = &[
    ("cpu", "0.5", "500m"),
    ("memory", "1Ki", "1024"),
    ("memory", "1Gi", "1073741824"),
    ("memory", "1e3", "1k"),
];

/// A Job ends, in part or as a whole, and is changed before the controller has counted its pods.
pub(super) fn ends_in_flight(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let count = json!(random.between(1, 3));
    let mut fields = vec![("/spec/parallelism", count.clone()), ("/spec/completions", count)];
    if random.chance(50) {
        fields.push(("/metadata/finalizers", json!([HOLD])));
    }
    let ends = [
        (Fate::Succeeded, ALL),
        (Fate::Succeeded, ALL),
        (Fate::Succeeded, 1),
        (Fate::Failed, ALL),
        (Fate::Failed, 1),
        (Fate::Evicted, 1),
    ];
    let (fate, take) = choose(random, &ends);
    let patch = |spec: Value| subject.patch("Job", &json!({ "spec": spec }));
    let change = match random.below(8) {
        0..3 => patch(json!({ "suspend": true })),
        3..5 => subject.delete("Job", Propagation::Foreground),
        5 => subject.delete("Job", propagation(random)),
        6 => patch(json!({ "parallelism": 0 })),
        _ => patch(json!({ "ttlSecondsAfterFinished": 0 })),
    };
    vec![subject.apply("Job", &fields), calm(), subject.pods(fate, take), change]
}

/// A Job writes more Normal events about one object than an event recorder admits, and then a Warning.
pub(super) fn many_pods(_: &mut Random, subject: &Subject) -> Vec<Operation> {
    let fields = [
        ("/spec/parallelism", json!(28)),
        ("/spec/completions", json!(28)),
        ("/spec/backoffLimit", json!(0)),
    ];
    vec![subject.apply("Job", &fields), calm(), subject.pods(Fate::Failed, ALL)]
}

/// A Job fails while its policy judges a pod that still runs.
pub(super) fn failure_judged_by_policy(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let on = [
        json!({ "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }),
        json!({ "onExitCodes": { "operator": "In", "values": [1] } }),
    ];
    let mut rule = choose(random, &[&on[0], &on[0], &on[1]]).clone();
    rule["action"] = choose(random, &["Ignore", "Ignore", "Count", "FailJob"]).into();
    let fields = [
        ("/spec/parallelism", json!(2)),
        ("/spec/completions", json!(2)),
        ("/spec/backoffLimit", json!(0)),
        ("/spec/podFailurePolicy", json!({ "rules": [rule] })),
    ];
    let mut list = vec![subject.apply("Job", &fields), calm(), subject.pods(Fate::Disrupted, 1), calm()];
    list.push(subject.pods(Fate::Failed, 1));
    list
}

/// A new object has several related fields at once, and its pods end or become ready.
fn several_fields_of(random: &mut Random, subject: &Subject, kind: &str) -> Vec<Operation> {
    let mut object = tables::kind(kind).document.clone();
    let fields = tables::fields(kind);
    let several: Vec<_> = fields.into_iter().filter(|field| field.sets_several()).collect();
    let field = *random.pick(&several);
    field.set(&mut object, random.pick(&field.values).clone());
    let object = with_words(&object, &subject.name, &subject.app, &subject.name);
    let fates = [Fate::Ready, Fate::Ready, Fate::Succeeded, Fate::Failed, Fate::Deleted, Fate::Disrupted];
    let pods = subject.pods(choose(random, &fates), choose(random, &[1, ALL]));
    vec![Operation::new("user", Action::Apply(object)), calm(), pods]
}

pub(super) fn several_fields(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kinds = tables::kinds().iter().map(|kind| kind.name.as_str());
    let kinds: Vec<&str> =
        kinds.filter(|kind| tables::fields(kind).iter().any(|field| field.sets_several())).collect();
    let kind = *random.pick(&kinds);
    several_fields_of(random, subject, kind)
}

pub(super) fn several_fields_of_a_job(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    several_fields_of(random, subject, "Job")
}

/// A Job of a CronJob is created by hand, under the name of an activation in 2027.
pub(super) fn activation_by_hand(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let mut owner = subject.owner("CronJob", random.chance(80));
    if random.chance(40) {
        owner[0]["blockOwnerDeletion"] = true.into();
    }
    let name = format!("{}-30000000", subject.name);
    let fields = [("/metadata/name", json!(name)), ("/metadata/ownerReferences", owner)];
    let mut list = vec![subject.apply("CronJob", &[]), subject.apply("Job", &fields)];
    if random.chance(50) {
        list.extend([calm(), subject.pods(choose(random, &[Fate::Succeeded, Fate::Failed]), ALL)]);
    }
    list
}

/// A container has a quantity, and then the same amount in another spelling.
pub(super) fn spelled_quantity(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = choose(random, &["Deployment", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"]);
    let (resource, one, other) = choose(random, SPELLINGS);
    let containers = |amount: &str| {
        let resources = json!({ "requests": { resource: amount } });
        json!([{ "name": "main", "image": "nginx:1", "resources": resources }])
    };
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers(other) } } } });
    let fields = [("/spec/template/spec/containers", containers(one))];
    vec![subject.apply(kind, &fields), calm(), subject.patch(kind, &patch)]
}

/// The template of a workload changes again before its rollout is complete.
pub(super) fn changed_rollout(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = choose(random, &["Deployment", "Deployment", "StatefulSet", "DaemonSet"]);
    let mut list = vec![subject.apply(kind, &[]), calm(), subject.pods(Fate::Ready, ALL), calm()];
    list.push(subject.patch_image(kind, "nginx:8"));
    if random.chance(30) {
        list.extend([calm(), subject.pods(Fate::Ready, 1)]);
    }
    list.push(match random.below(4) {
        0 => subject.patch_image(kind, "nginx:9"),
        1 if kind == "Deployment" => subject.patch(kind, &json!({ "spec": { "paused": true } })),
        2 if kind != "DaemonSet" => subject.scale(kind, random.below(5) as i64),
        _ => subject.patch_image(kind, "nginx:1"),
    });
    list
}

/// Writes of a rollout are refused, from its beginning or from the time at which new pods are ready.
pub(super) fn refused_rollout(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let strategy = random.pick(tables::values("Deployment", "/spec/strategy")).clone();
    let mut list = vec![subject.apply("Deployment", &[("/spec/strategy", strategy)]), calm()];
    list.extend([subject.pods(Fate::Ready, ALL), calm()]);
    let writes = [
        "UPDATE replicasets",
        "UPDATE replicasets",
        "UPDATE replicasets",
        "CREATE replicasets",
        "UPDATE deployments/status",
        "CREATE pods",
        "DELETE pods",
    ];
    let refuse = refuse(&format!("{} {} 0", random.pick(&writes), choose(random, &[403, 422, 500, 409])));
    let change = subject.patch_image("Deployment", "nginx:6");
    if random.chance(30) {
        list.extend([refuse, change]);
    } else {
        list.extend([change, calm(), refuse, subject.pods(Fate::Ready, ALL)]);
    }
    list.extend([calm(), allow()]);
    list
}

/// A Deployment with a history is paused, rolled back, and loses its history, in some combination.
pub(super) fn rollback(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 100, "maxUnavailable": 100 } });
    let mut list = vec![subject.apply("Deployment", &[("/spec/strategy", strategy)]), calm()];
    for image in ["nginx:6", "nginx:7"].iter().take(random.between(1, 2)) {
        list.extend([subject.patch_image("Deployment", image), calm()]);
    }
    let mut patch = json!({});
    if random.chance(75) {
        tables::set(&mut patch, "/spec/paused", true.into());
    }
    if random.chance(75) {
        let revision = choose(random, &["1", "1", "0", "9"]);
        tables::set(&mut patch, "/metadata/annotations/deprecated.deployment.rollback.to", revision.into());
    }
    if random.chance(75) {
        tables::set(&mut patch, "/spec/revisionHistoryLimit", random.below(2).into());
    }
    list.extend([subject.patch("Deployment", &patch), calm()]);
    list.push(subject.patch("Deployment", &json!({ "spec": { "paused": null } })));
    list
}

/// The retention policy of a StatefulSet's claims changes while its pods are in some state, and the set is scaled or deleted.
pub(super) fn retention(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let claims = tables::values("StatefulSet", "/spec/volumeClaimTemplates")[0].clone();
    let policy = |deleted: &str, scaled: &str| json!({ "whenDeleted": deleted, "whenScaled": scaled });
    let policies = [policy("Delete", "Delete"), policy("Delete", "Retain"), policy("Retain", "Delete")];
    let fields = [
        ("/spec/volumeClaimTemplates", claims),
        ("/spec/persistentVolumeClaimRetentionPolicy", choose(random, &policies)),
        ("/spec/podManagementPolicy", choose(random, &["Parallel", "OrderedReady"]).into()),
    ];
    let mut list = vec![subject.apply("StatefulSet", &fields), calm()];
    match random.below(5) {
        0 => list.extend([subject.pods(Fate::Ready, ALL), calm()]),
        1 => list.extend([subject.pods(Fate::Ready, ALL), calm(), subject.pods(Fate::Unready, 1)]),
        2 => list.push(subject.pods(Fate::Deleted, 1)),
        _ => {}
    }
    let next = if random.chance(60) { policy("Retain", "Retain") } else { choose(random, &policies) };
    let patch = json!({ "spec": { "persistentVolumeClaimRetentionPolicy": next } });
    list.push(subject.patch("StatefulSet", &patch));
    if random.chance(60) {
        list.push(calm());
    }
    list.push(match random.below(4) {
        0 => subject.scale("StatefulSet", 0),
        1 => subject.scale("StatefulSet", 1),
        _ => subject.delete("StatefulSet", propagation(random)),
    });
    list
}

/// The claim of a StatefulSet's first pod exists before the set, and another object owns it.
pub(super) fn foreign_claim(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let name = format!("data-{}-0", subject.name);
    let owner = subject.owner("ConfigMap", random.chance(70));
    let of_claim = [("/metadata/name", json!(name)), ("/metadata/ownerReferences", owner)];
    let claims = tables::values("StatefulSet", "/spec/volumeClaimTemplates")[0].clone();
    let policies = tables::values("StatefulSet", "/spec/persistentVolumeClaimRetentionPolicy");
    let of_set = [
        ("/spec/volumeClaimTemplates", claims),
        ("/spec/persistentVolumeClaimRetentionPolicy", random.pick(&policies[..3]).clone()),
    ];
    vec![
        subject.apply("ConfigMap", &[]),
        subject.apply("PersistentVolumeClaim", &of_claim),
        subject.apply("StatefulSet", &of_set),
    ]
}

/// The release of a pod that no longer matches is refused.
pub(super) fn refused_release(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind =
        choose(random, &["StatefulSet", "StatefulSet", "StatefulSet", "ReplicaSet", "ReplicationController"]);
    let refuse = refuse(&format!("UPDATE pods {} 0", choose(random, &[422, 422, 403, 404, 409, 500])));
    vec![subject.apply(kind, &[]), calm(), refuse, subject.pods(Fate::Relabeled, 1), calm(), allow()]
}

/// Creates are refused for a while, with every status code.
pub(super) fn refused_create(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let (kind, resource) = choose(
        random,
        &[
            ("ReplicaSet", "pods"),
            ("Job", "pods"),
            ("StatefulSet", "pods"),
            ("StatefulSet", "controllerrevisions"),
            ("Deployment", "pods"),
            ("Deployment", "replicasets"),
            ("DaemonSet", "controllerrevisions"),
            ("Service", "endpoints"),
            ("Service", "endpointslices"),
        ],
    );
    let code = choose(random, &[429, 429, 403, 404, 409, 422, 500, 503]);
    let times = if code == 429 { random.between(1, 3) } else { random.below(3) };
    let refuse = refuse(&format!("CREATE {resource} {code} {times}"));
    vec![refuse, subject.apply(kind, &[]), calm(), allow()]
}

/// A dependent is in another namespace than the object that it names as its controller.
pub(super) fn dependent_elsewhere(random: &mut Random, subject: &Subject) -> Vec<Operation> {
    let kind = choose(random, &["DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"]);
    let mut fields = vec![
        ("/metadata/name", json!("NAMESPACE-NAME")),
        ("/metadata/namespace", json!(ELSEWHERE)),
        ("/metadata/labels", json!({ "app": "APP" })),
        ("/metadata/finalizers", json!([HOLD])),
        ("/metadata/ownerReferences", subject.owner(kind, true)),
    ];
    let dependent = if kind == "Deployment" { "ReplicaSet" } else { "Pod" };
    if dependent == "ReplicaSet" {
        fields.push(("/spec/replicas", json!(0)));
    }
    let dependent = Operation::new("stranger", Action::Apply(subject.object(dependent, &fields)));
    let next = match random.below(3) {
        0 if matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet") => subject.scale(kind, 3),
        1 => subject.pods(Fate::Vanished, 1),
        _ => subject.pods(Fate::Ready, ALL),
    };
    vec![subject.apply(kind, &[]), calm(), dependent, calm(), next]
}
