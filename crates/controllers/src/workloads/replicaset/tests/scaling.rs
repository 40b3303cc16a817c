//! Claims, creates and deletes.

use super::super::metrics::age_ratios;
use super::cluster::{Cluster, Event};
use super::fixtures::{
    Bench, ago, deleting, labels, lines, now, orphaned, owner, pod, refused, replica_set, unready, writes,
};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Step, Tolerate, Verb};
use coxswain_machinery::wire::{Str, Uid};

fn pods(names: &[&str]) -> Vec<std::sync::Arc<Pod>> {
    names.iter().map(|name| pod(name, |_| {})).collect()
}

fn deleted(bench: &Bench) -> Vec<String> {
    let plan = bench.plan();
    let writes = writes(&plan).into_iter();
    writes
        .filter(|write| matches!(write.verb, Verb::Delete { .. }))
        .map(|write| write.key.name.to_string())
        .collect()
}

#[test]
fn missing_pods_are_created() {
    let bench = Bench::of(&replica_set(|_| {}), &pods(&["a"]));
    assert_eq!(
        bench.lines(),
        ["create pods default/ ×2", "update replicasets.apps/status default/web 1: 1/1/1/1+0"]
    );
    let plan = bench.plan();
    let Step::Batch(creates) = &plan.steps[0] else { panic!("{plan:?}") };
    assert_eq!(creates[0].tolerate, Tolerate { namespace_terminating: true, ..Default::default() });
    let success = creates[0].on_success.as_ref().unwrap();
    assert_eq!(
        (success.warning, success.reason, success.message.as_str()),
        (false, "SuccessfulCreate", "Created pod: {name}")
    );
    let failure = creates[0].on_failure.as_ref().unwrap();
    assert_eq!(
        (failure.warning, failure.reason, failure.message.as_str()),
        (true, "FailedCreate", "Error creating: {error}")
    );
    assert_eq!(
        (&failure.regarding.key.name, &failure.regarding.uid),
        (&Str::from("web"), &Uid::from("web-uid"))
    );
}

#[test]
fn a_replica_set_without_a_number_wants_one_pod() {
    let bench = Bench::of(&replica_set(|set| set.spec.replicas = None), &[]);
    assert_eq!(bench.lines()[0], "create pods default/");
}

#[test]
fn one_burst_at_a_time() {
    let bench = Bench::of(&replica_set(|set| set.spec.replicas = Some(1200)), &pods(&["a"]));
    assert_eq!(bench.lines()[0], "create pods default/ ×500");

    let many: Vec<_> = (0..1200).map(|number| pod(&format!("p{number}"), |_| {})).collect();
    for (desired, surplus) in [(0, 500), (800, 400)] {
        let bench = Bench::of(&replica_set(|set| set.spec.replicas = Some(desired)), &many);
        assert_eq!(deleted(&bench).len(), surplus);
    }
}

#[test]
fn finished_and_terminating_pods_are_replaced() {
    let bench = Bench::of(
        &replica_set(|_| {}),
        &[
            pod("a", |_| {}),
            pod("failed", |pod| pod.status.phase = "Failed".into()),
            pod("done", |pod| pod.status.phase = "Succeeded".into()),
            pod("going", deleting),
            pod("done-and-going", |pod| {
                deleting(pod);
                pod.status.phase = "Succeeded".into();
            }),
        ],
    );
    assert_eq!(
        bench.lines(),
        ["create pods default/ ×2", "update replicasets.apps/status default/web 1: 1/1/1/1+1"]
    );
}

#[test]
fn surplus_pods_are_deleted_by_rank_and_uid() {
    let set = replica_set(|set| set.spec.replicas = Some(1));
    let bench = Bench::of(
        &set,
        &[pod("a", |_| {}), pod("b", unready), pod("c", |pod| pod.spec.node_name = Str::EMPTY)],
    );
    assert_eq!(
        bench.lines(),
        [
            "delete pods default/b b-uid",
            "delete pods default/c c-uid",
            "update replicasets.apps/status default/web 1: 3/3/2/2+0"
        ]
    );
    assert_eq!(deleted(&bench), ["c", "b"]);
    let plan = bench.plan();
    let delete = writes(&plan)[0];
    assert_eq!(delete.tolerate, Tolerate { absent: true, ..Default::default() });
    let success = delete.on_success.as_ref().unwrap();
    assert_eq!(
        (success.warning, success.reason, success.message.as_str()),
        (false, "SuccessfulDelete", "Deleted pod: c")
    );
    let failure = delete.on_failure.as_ref().unwrap();
    assert_eq!(
        (failure.warning, failure.reason, failure.message.as_str()),
        (true, "FailedDelete", "Error deleting: {error}")
    );
}

#[test]
fn the_deletion_cost_counts_while_its_gate_is_on() {
    let cheap = |pod: &mut Pod| {
        pod.metadata.annotations = labels(&[("controller.kubernetes.io/pod-deletion-cost", "-5")]);
    };
    let set = replica_set(|set| set.spec.replicas = Some(1));
    let mut bench = Bench::of(&set, &[pod("a", |_| {}), pod("b", cheap)]);
    assert_eq!(deleted(&bench), ["b"]);
    bench.gates.deletion_cost = false;
    assert_eq!(deleted(&bench), ["a"]);
}

/// A user writes owner references, and may know the UID.
#[test]
fn a_pod_counts_only_if_it_names_the_replica_set_from_its_namespace() {
    let one = replica_set(|set| set.spec.replicas = Some(1));
    for (of_another, stranger) in [
        ("namespace", pod("a", |pod| pod.metadata.namespace = "elsewhere".into())),
        ("name", pod("a", |pod| pod.metadata.owner_references[0].name = "other".into())),
        ("kind", pod("a", |pod| pod.metadata.owner_references[0].kind = "StatefulSet".into())),
    ] {
        assert_eq!(Bench::of(&one, &[stranger]).view(&[]).pods.len(), 0, "of another {of_another}");
    }
    assert_eq!(Bench::of(&one, &[pod("a", |_| {})]).view(&[]).pods.len(), 1);
}

/// Old and new ReplicaSet of one Deployment: node-1 runs two of its pods, so the pod there goes first.
#[test]
fn a_crowded_node_gives_first() {
    let owned = |name: &'static str, uid: &'static str| {
        replica_set(move |set| {
            set.metadata.name = name.into();
            set.metadata.uid = uid.into();
            set.metadata.owner_references = vec![coxswain_machinery::api::meta::OwnerReference {
                kind: "Deployment".into(),
                name: "shop".into(),
                uid: "shop-uid".into(),
                controller: Some(true),
                ..Default::default()
            }];
            set.spec.replicas = Some(1);
        })
    };
    let at = |name: &str, node: &'static str| pod(name, |pod| pod.spec.node_name = node.into());
    let sibling_at = |node: &'static str, finished: bool| {
        pod("sibling", |pod| {
            pod.spec.node_name = node.into();
            pod.metadata.owner_references[0].name = "other".into();
            pod.metadata.owner_references[0].uid = "other-uid".into();
            if finished {
                pod.status.phase = "Failed".into();
            }
        })
    };
    let mine = [at("a", "node-0"), at("z", "node-1")];
    for (sibling, expected) in [
        (sibling_at("node-1", false), "z"),
        (sibling_at("node-0", false), "a"),
        // Inactive pods crowd nothing; then the UID decides.
        (sibling_at("node-1", true), "a"),
    ] {
        let bench = Bench::of(&owned("web", "web-uid"), &mine);
        bench.add(&owned("other", "other-uid"));
        bench.add(&sibling);
        assert_eq!(deleted(&bench), [expected]);
    }
    // Without a common controller nothing is related, not even a ReplicaSet's own pods (seen with the Go manager).
    let alone = replica_set(|set| set.spec.replicas = Some(2));
    let bench = Bench::of(&alone, &[at("a", "node-0"), at("y", "node-1"), at("z", "node-1")]);
    assert_eq!(deleted(&bench), ["a"]);
    // An orphan that is adopted in the same pass crowds its node too.
    let bench = Bench::of(&owned("web", "web-uid"), &mine);
    bench.add(&pod("y", |pod| {
        orphaned(pod);
        pod.spec.node_name = "node-1".into();
    }));
    assert_eq!(deleted(&bench), ["y", "z"]);
}

#[test]
fn orphans_are_adopted_after_a_live_look_at_the_owner() {
    let bench = Bench::of(
        &replica_set(|_| {}),
        &[
            pod("a", orphaned),
            pod("other-label", |pod| {
                orphaned(pod);
                pod.metadata.labels = labels(&[("app", "api")]);
            }),
            pod("going", |pod| {
                orphaned(pod);
                deleting(pod);
            }),
            pod("done", |pod| {
                orphaned(pod);
                pod.status.phase = "Succeeded".into();
            }),
            pod("elsewhere", |pod| {
                orphaned(pod);
                pod.metadata.namespace = "other".into();
            }),
            pod("taken", |pod| pod.metadata.owner_references[0].uid = "someone".into()),
        ],
    );
    assert_eq!(
        bench.lines(),
        [
            "verify default/web Alive(\"web-uid\")",
            "patch pods default/a {\"metadata\":{\"uid\":\"a-uid\",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\
             \"kind\":\"ReplicaSet\",\"name\":\"web\",\"uid\":\"web-uid\",\"controller\":true,\
             \"blockOwnerDeletion\":true}]}}",
            "create pods default/ ×2",
            "update replicasets.apps/status default/web 1: 1/1/1/1+0",
        ]
    );
    assert_eq!(writes(&bench.plan())[0].tolerate, Tolerate::default());
}

#[test]
fn a_pod_that_is_not_selected_any_more_is_released() {
    let bench = Bench::of(
        &replica_set(|set| set.spec.replicas = Some(0)),
        &[pod("a", |pod| {
            pod.metadata.labels = labels(&[("app", "api")]);
            pod.metadata
                .owner_references
                .push(coxswain_machinery::api::meta::OwnerReference { uid: "else".into(), ..owner() });
        })],
    );
    assert_eq!(
        bench.lines(),
        [
            "patch pods default/a {\"metadata\":{\"uid\":\"a-uid\",\"ownerReferences\":[{\"$patch\":\"delete\",\
             \"uid\":\"web-uid\"}]}}",
            "update replicasets.apps/status default/web 1: 0/0/0/0+0",
        ]
    );
    assert_eq!(
        writes(&bench.plan())[0].tolerate,
        Tolerate { absent: true, invalid: true, ..Default::default() }
    );
}

#[test]
fn a_replica_set_on_its_way_out_only_counts() {
    let set = replica_set(|set| set.metadata.deletion_timestamp = super::fixtures::ago(5));
    let relabeled = |pod: &mut Pod| pod.metadata.labels = labels(&[("app", "api")]);
    let bench = Bench::of(&set, &[pod("a", |_| {}), pod("b", orphaned), pod("c", relabeled)]);
    assert_eq!(bench.lines(), ["update replicasets.apps/status default/web 1: 1/1/1/1+0"]);
}

#[test]
fn a_refusal_is_in_nobodys_way() {
    // Of three too many the first is refused.
    let mut cluster = Cluster::new(4, 0);
    cluster.settle();
    assert_eq!(cluster.pods().len(), 4);
    cluster.happen(Event::Scale(1));
    cluster.happen(Event::Refuse(1));
    cluster.happen(Event::Deliver(usize::MAX));
    cluster.happen(Event::Reconcile);
    assert_eq!(cluster.active().len(), 2);

    let relabeled = |pod: &mut Pod| pod.metadata.labels = labels(&[("app", "api")]);
    let claims = [pod("a", relabeled), pod("b", relabeled), pod("c", orphaned), pod("d", orphaned)];
    let plan = Bench::of(&replica_set(|_| {}), &claims).plan();
    let [Step::Verify(_), Step::Each(claims), ..] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let mut names: Vec<&str> = claims.iter().map(|claim| claim.key.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c", "d"], "each is tried, released or adopted");
}

#[test]
fn a_failed_claim_leaves_everything_to_the_retry() {
    let bench = Bench::of(&replica_set(|_| {}), &[pod("a", orphaned)]);
    let plan = bench.plan();
    let patch = refused(writes(&plan)[0], "no");
    let mut verify = patch.clone();
    verify.verb = "";
    verify.kind = &coxswain_machinery::api::kinds::REPLICA_SETS;
    let mut status = verify.clone();
    (status.verb, status.subresource) = ("update", "status");
    for failure in [patch, verify, status] {
        let again = bench.plan_after(&[failure]);
        assert_eq!(lines(&again), [""; 0]);
        assert_eq!((again.requeue_after, again.retry), (None, None));
    }
}

#[test]
fn replicaset_releases_pods_although_the_check_before_adoptions_fails() {
    let relabeled = |pod: &mut Pod| pod.metadata.labels = labels(&[("app", "api")]);
    let bench = Bench::of(&replica_set(|_| {}), &[pod("a", orphaned), pod("b", relabeled)]);
    let mut check = refused(writes(&bench.plan())[0], "gone");
    (check.verb, check.kind) = ("", &coxswain_machinery::api::kinds::REPLICA_SETS);
    let again = bench.plan_after(&[check]);
    let released: Vec<&str> = writes(&again).iter().map(|write| write.key.name.as_str()).collect();
    assert_eq!(released, ["b"]);
}

#[test]
fn how_old_the_chosen_are_is_told_in_whole_multiples() {
    let set = replica_set(|set| set.spec.replicas = Some(2));
    let aged = |name: &str, age: i64, cost: Option<&str>| {
        pod(name, |pod| {
            pod.metadata.creation_timestamp = ago(age);
            let costs = cost.map(|cost| ("controller.kubernetes.io/pod-deletion-cost", cost));
            pod.metadata.annotations = labels(costs.as_slice());
        })
    };
    let pods = [
        aged("young", 100, None),
        aged("older", 250, None),
        aged("oldest", 390, Some("-1")),
        // Those that are not ready go first, and do not count.
        pod("unready", unready),
    ];
    let bench = Bench::of(&set, &pods);
    let mut names = deleted(&bench);
    names.sort();
    assert_eq!(names, ["oldest", "unready"]);
    let ratios = |bench: &Bench| age_ratios(&bench.view(&[]), &bench.plan(), now());
    assert_eq!(ratios(&bench), [3]);
    let none = replica_set(|set| set.spec.replicas = Some(0));
    assert!(ratios(&Bench::of(&none, &pods)).is_empty(), "nobody is chosen where all go");
    let all = replica_set(|set| set.spec.replicas = Some(4));
    assert!(ratios(&Bench::of(&all, &pods)).is_empty());
}
