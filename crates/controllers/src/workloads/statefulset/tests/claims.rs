//! Claims: which are made, waited for, and whose they are.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{ClaimRetentionPolicy, StatefulSet};
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Step, Verb};

const OK: fn(&mut Pod) = |_| {};

/// A set of so many pods with a claim each, and a retention policy.
fn claiming(replicas: i32, when_deleted: &str, when_scaled: &str) -> Arc<StatefulSet> {
    set(|set| {
        says(set, "web:1", "web:1");
        set.spec.replicas = Some(replicas);
        set.spec.volume_claim_templates = vec![claim_template("data")];
        set.spec.persistent_volume_claim_retention_policy = Some(Box::new(ClaimRetentionPolicy {
            when_deleted: when_deleted.into(),
            when_scaled: when_scaled.into(),
        }));
    })
}

fn of_set() -> OwnerReference {
    controller_reference(&set(|_| {}).metadata, &STATEFUL_SETS)
}

fn of_pod(ordinal: i32) -> OwnerReference {
    controller_reference(&pod(ordinal, "web:1", OK).metadata, &PODS)
}

fn owned(name: &str, owners: &[OwnerReference]) -> Arc<PersistentVolumeClaim> {
    claim(name, |claim| claim.metadata.owner_references = owners.to_vec())
}

/// Whose the claims of a pod and of a surplus pod are after a plan; `None` for those that are left alone.
fn owners_after(policy: (&str, &str), held: &[OwnerReference]) -> [Option<Vec<String>>; 2] {
    let pods = [pod(0, "web:1", OK), pod(1, "web:1", OK)];
    let bench = Bench::of(&claiming(1, policy.0, policy.1), &pods)
        .with_claims(&[owned("data-web-0", held), owned("data-web-1", held)]);
    let plan = bench.plan();
    ["data-web-0", "data-web-1"].map(|name| {
        let write = plan.writes().find(|write| write.key.name == name)?;
        let Verb::Update(body) = &write.verb else { panic!("an update") };
        let claim: Arc<PersistentVolumeClaim> = typed((PERSISTENT_VOLUME_CLAIMS.decode)(body).unwrap());
        assert_eq!(claim.metadata.resource_version, "70");
        assert!(claim.metadata.owner_references.iter().all(|owner| owner.block_owner_deletion == Some(true)));
        Some(claim.metadata.owner_references.iter().map(|owner| owner.name.to_string()).collect())
    })
}

#[test]
fn each_policy_has_owners_of_its_own() {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for (policy, held, expected) in [
        (("Retain", "Retain"), vec![], [None, None]),
        (("Retain", "Retain"), vec![of_set()], [names(&[]), names(&[])]),
        (("Delete", "Retain"), vec![], [names(&["web"]), names(&["web"])]),
        (("Delete", "Retain"), vec![of_set()], [None, None]),
        (("Retain", "Delete"), vec![], [None, names(&["web-1"])]),
        (("Delete", "Delete"), vec![], [names(&["web"]), names(&["web-1"])]),
        (("Delete", "Delete"), vec![of_set()], [None, names(&["web-1"])]),
    ] {
        assert_eq!(owners_after(policy, &held), expected, "{policy:?} {held:?}");
    }
}

#[test]
fn claims_of_others_are_left_to_them() {
    let mut another = of_set();
    another.uid = "another".into();
    assert_eq!(owners_after(("Delete", "Retain"), &[another]), [None, None]);
    let stranger =
        OwnerReference { kind: "Thing".into(), name: "thing".into(), uid: "thing".into(), ..of_set() };
    assert_eq!(owners_after(("Delete", "Retain"), std::slice::from_ref(&stranger)), [None, None]);
    let both = [stranger.clone(), OwnerReference { controller: None, ..of_set() }];
    let thing = Some(vec!["thing".to_owned()]);
    assert_eq!(owners_after(("Delete", "Retain"), &both), [thing.clone(), thing]);
    let plain = OwnerReference { controller: None, ..of_set() };
    let web = Some(vec!["web".to_owned()]);
    assert_eq!(owners_after(("Delete", "Retain"), &[plain]), [web.clone(), web]);
}

/// With `Parallel` no state of a pod keeps its claims from following the policy; with `OrderedReady` it waits for the pod.
#[test]
fn parallel_sets_repair_pods_in_every_state() {
    let too_young: fn(&mut Pod) = |pod| pod.status.conditions = vec![ready(ago(5))];
    let states: [(&str, State); 5] = [
        ("pending", pending),
        ("unready", unready),
        ("not available yet", too_young),
        ("terminating", deleting),
        ("available", OK),
    ];
    for (state, change) in states {
        for (management, expected) in
            [("Parallel", true), ("OrderedReady", matches!(state, "pending" | "available"))]
        {
            let held = claiming(1, "Retain", "Retain");
            let mut changed = (*held).clone();
            changed.spec.pod_management_policy = management.into();
            changed.spec.min_ready_seconds = 60;
            let bench = Bench::of(&set(|set| *set = changed), &[pod(0, "web:1", change)])
                .with_claims(&[owned("data-web-0", &[of_set()])]);
            let updates = bench.acts().iter().filter(|line| *line == "update data-web-0").count();
            assert_eq!(updates, usize::from(expected), "{management}, {state}: {:?}", bench.acts());
        }
    }
    for state in [unready, pending] as [fn(&mut Pod); 2] {
        let nameless = pod(0, "web:1", |pod| {
            state(pod);
            pod.metadata.labels = pod.metadata.labels.without("statefulset.kubernetes.io/pod-name");
        });
        let mut changed = (*claiming(1, "Retain", "Retain")).clone();
        changed.spec.pod_management_policy = "Parallel".into();
        let bench =
            Bench::of(&set(|set| *set = changed), &[nameless]).with_claims(&[claim("data-web-0", |_| {})]);
        assert!(bench.acts()[0].starts_with("patch web-0"), "{:?}", bench.acts());
    }
}

#[test]
fn claims_follow_the_policy_although_the_pod_is_refused() {
    for management in ["OrderedReady", "Parallel"] {
        let mut changed = (*claiming(2, "Retain", "Retain")).clone();
        changed.spec.pod_management_policy = management.into();
        let bench = Bench::of(&set(|set| *set = changed), &[pod(1, "web:1", OK)])
            .with_claims(&[owned("data-web-0", &[of_set()]), owned("data-web-1", &[])]);
        let after = |failure| super::plan::plan(&bench.view(&[failure]), now()).0;
        let plan = after(refused(&PODS, "create", "web-0", "no"));
        assert_eq!(
            lines(&plan)[..2],
            ["FailedCreate: Create Pod web-0 in StatefulSet web failed error: no", "update data-web-0"],
            "{management}"
        );
        let update = plan.writes().next().unwrap();
        assert!(update.keep_going, "the status is written even if the claim is refused, too");
        let mut taken = refused(&PODS, "create", "web-0", "it is there");
        taken.reason = "AlreadyExists".into();
        assert!(
            !lines(&after(taken)).contains(&"update data-web-0".to_owned()),
            "as kube-controller-manager"
        );
    }
}

#[test]
fn one_that_somebody_else_controls_is_warned_of() {
    let stranger =
        OwnerReference { kind: "Thing".into(), name: "thing".into(), uid: "thing".into(), ..of_set() };
    let held = [stranger, OwnerReference { controller: None, ..of_set() }];
    let bench = Bench::of(&claiming(1, "Delete", "Retain"), &[pod(0, "web:1", OK)])
        .with_claims(&[owned("data-web-0", &held)]);
    let warning = "ConflictingController: PersistentVolumeClaim data-web-0 has a conflicting OwnerReference that acts \
                   as a manging controller, the retention policy is ignored for this claim";
    assert_eq!(bench.acts(), [warning, "update data-web-0"]);
}

/// Most claims that another object controls need no update, and the policy is ignored for them all the same.
#[test]
fn ignored_policy_is_reported_without_an_update() {
    let stranger =
        OwnerReference { kind: "Thing".into(), name: "thing".into(), uid: "thing".into(), ..of_set() };
    let bench = |policy: &str, pods: &[Arc<Pod>]| {
        let claims = [owned("data-web-0", std::slice::from_ref(&stranger))];
        Bench::of(&claiming(1, policy, "Retain"), pods).with_claims(&claims)
    };
    let is_warning =
        |line: &String| line.starts_with("ConflictingController: PersistentVolumeClaim data-web-0 ");
    let created = bench("Delete", &[]);
    assert!(
        created.acts()[0] == "create web-0 web:1" && is_warning(&created.acts()[1]),
        "{:?}",
        created.acts()
    );
    let waiting = bench("Delete", &[pod(0, "web:1", pending)]).acts();
    assert!(matches!(waiting.as_slice(), [line] if is_warning(line)), "{waiting:?}");
    let nameless: fn(&mut Pod) = |pod| {
        pod.metadata.labels = pod.metadata.labels.without("statefulset.kubernetes.io/pod-name");
    };
    let repaired = bench("Delete", &[pod(0, "web:1", nameless)]).acts();
    assert!(repaired.len() == 1 && !repaired.iter().any(is_warning), "no owner is to change: {repaired:?}");
    let restored = OwnerReference { uid: "of another time".into(), ..of_set() };
    let restored = Bench::of(&claiming(1, "Delete", "Retain"), &[pod(0, "web:1", pending)])
        .with_claims(&[owned("data-web-0", &[restored])])
        .acts();
    assert!(matches!(restored.as_slice(), [line] if is_warning(line)), "{restored:?}");
    assert_eq!(bench("Delete", &[pod(0, "web:1", OK)]).acts(), [""; 0], "nothing is to be repaired");
    assert_eq!(bench("Retain", &[pod(0, "web:1", pending)]).acts(), [""; 0], "there is no policy to ignore");
    let refused = refused(&PODS, "create", "web-0", "no");
    let plan = super::plan::plan(&created.view(&[refused]), now()).0;
    assert!(lines(&plan).iter().any(is_warning), "{:?}", lines(&plan));
}

#[test]
fn missing_claims_come_before_their_pod() {
    let bench = Bench::of(&claiming(1, "Retain", "Retain"), &[]);
    assert_eq!(bench.acts(), ["create data-web-0", "create web-0 web:1"]);
    let plan = bench.plan();
    let write = plan.writes().next().unwrap();
    let Verb::Create(body) = &write.verb else { panic!("a create") };
    let made: Arc<PersistentVolumeClaim> = typed((PERSISTENT_VOLUME_CLAIMS.decode)(body).unwrap());
    assert_eq!(made.metadata.labels, labels(&[("app", "web"), ("tier", "store")]));
    assert_eq!(made.metadata.namespace, "default");
    let event = write.on_success.as_ref().unwrap();
    assert_eq!(event.message, "Create Claim data-web-0 Pod web-0 in StatefulSet web success");
}

#[test]
fn each_claim_of_a_pod_is_tried_before_the_pod_waits_for_them() {
    let names = ["data", "logs", "own"];
    for pods in [vec![], vec![pod(0, "web:1", pending)], vec![pod(0, "web:1", OK)]] {
        let set = set(|set| {
            says(set, "web:1", "web:1");
            set.spec.replicas = Some(1);
            set.spec.pod_management_policy = "Parallel".into();
            set.spec.volume_claim_templates = names.map(claim_template).to_vec();
        });
        let plan = Bench::of(&set, &pods).plan();
        let Some(Step::Chains { chains, .. }) = plan.steps.first() else { panic!("{:?}", plan.steps) };
        let writes: Vec<_> =
            chains[0].iter().map(|write| (write.key.name.to_string(), write.with_next)).collect();
        let claims = [("data-web-0", true), ("logs-web-0", true), ("own-web-0", false)];
        let claims = claims.map(|(name, with_next)| (name.to_owned(), with_next));
        assert_eq!(writes[..3], claims, "{pods:?}");
        assert!(writes[3..].iter().all(|(_, with_next)| !with_next), "{writes:?}");
    }
}

#[test]
fn all_refused_claims_are_named_by_one_event_of_their_pod() {
    let set = set(|set| {
        says(set, "web:1", "web:1");
        set.spec.replicas = Some(1);
        set.spec.pod_management_policy = "Parallel".into();
        set.spec.volume_claim_templates = vec![claim_template("a"), claim_template("b")];
    });
    let failures =
        ["a-web-0", "b-web-0"].map(|name| refused(&PERSISTENT_VOLUME_CLAIMS, "create", name, "no"));
    let told = lines(&super::plan::plan(&Bench::of(&set, &[]).view(&failures), now()).0);
    assert!(
        told.contains(
            &"FailedCreate: Create Pod web-0 in StatefulSet web failed error: [failed to create PVC a-web-0: no, \
              failed to create PVC b-web-0: no]"
                .to_owned()
        ),
        "{told:?}"
    );
}

#[test]
fn a_pending_pod_gets_its_claims_back() {
    let bench = Bench::of(&claiming(1, "Delete", "Retain"), &[pod(0, "web:1", pending)]);
    assert_eq!(bench.acts(), ["create data-web-0"]);
    let bench = bench.with_claims(&[claim("data-web-0", |_| {})]);
    assert_eq!(bench.acts(), ["update data-web-0"]);
    let running = Bench::of(&claiming(1, "Retain", "Retain"), &[pod(0, "web:1", OK)]);
    assert_eq!(running.acts(), [""; 0], "of a running pod they are not made again");
}

#[test]
fn a_claim_that_goes_is_waited_for() {
    let going = claim("data-web-0", |claim| claim.metadata.deletion_timestamp = ago(1));
    let bench = Bench::of(&claiming(1, "Retain", "Retain"), &[]).with_claims(&[going]);
    let plan = bench.plan();
    let told =
        "FailedCreate: Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted";
    assert_eq!(bench.acts(), [told]);
    assert!(plan.retry.is_some());
    let stale = owned("data-web-0", &[of_pod(0)]);
    let bench = Bench::of(&claiming(1, "Retain", "Delete"), &[]).with_claims(&[stale]);
    assert_eq!(bench.acts(), [""; 0], "one of the previous pod is waited for without a word");
    assert!(bench.plan().retry.is_none());
}

#[test]
fn a_refused_claim_is_told_of_claim_and_pod() {
    let bench = Bench::of(&claiming(1, "Retain", "Retain"), &[]);
    let failure = refused(&PERSISTENT_VOLUME_CLAIMS, "create", "data-web-0", "no");
    let told = lines(&super::plan::plan(&bench.view(std::slice::from_ref(&failure)), now()).0);
    assert_eq!(
        told[..2],
        [
            "FailedCreate: Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: no",
            "FailedCreate: Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: no",
        ]
    );
    let pending = Bench::of(&claiming(1, "Retain", "Retain"), &[pod(0, "web:1", pending)]);
    let told = lines(&super::plan::plan(&pending.view(&[failure]), now()).0);
    assert_eq!(told.iter().filter(|line| line.starts_with("FailedCreate")).count(), 1, "its pod is there");
}

#[test]
fn statefulset_repair_that_cannot_create_a_claim_reports_a_failed_update_of_the_pod() {
    let foreign: fn(&mut Pod) = |pod| pod.claims = std::iter::empty().collect();
    let bench = Bench::of(&claiming(1, "Retain", "Retain"), &[pod(0, "web:1", foreign)]);
    assert_eq!(bench.acts(), ["create data-web-0", "patch web-0"]);
    let failure = refused(&PERSISTENT_VOLUME_CLAIMS, "create", "data-web-0", "no");
    let told = lines(&super::plan::plan(&bench.view(&[failure]), now()).0);
    assert_eq!(
        told[..2],
        [
            "FailedCreate: Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: no",
            "FailedUpdate: Update Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: no",
        ]
    );
}

#[test]
fn statefulset_claim_of_a_surplus_pod_has_no_event_for_a_refused_update() {
    let pods = [pod(0, "web:1", OK), pod(1, "web:1", OK)];
    let bench = Bench::of(&claiming(1, "Retain", "Delete"), &pods)
        .with_claims(&[owned("data-web-0", &[of_pod(0)]), owned("data-web-1", &[])]);
    let plan = bench.plan();
    let tells = |name: &str| {
        let write = plan.writes().find(|write| write.key.name == *name).unwrap();
        write.on_failure.is_some()
    };
    assert!(tells("data-web-0") && !tells("data-web-1"), "{:?}", lines(&plan));
    let delete = plan.writes().find(|write| write.verb.name() == "delete").unwrap();
    assert!(delete.tells_absence, "a pod that is gone counts as deleted");
}

#[test]
fn who_a_pod_is_gets_repaired() {
    let nameless: fn(&mut Pod) = |pod| {
        pod.metadata.labels = pod.metadata.labels.without("statefulset.kubernetes.io/pod-name");
    };
    let bench = Bench::of(&claiming(2, "Retain", "Retain"), &[pod(0, "web:1", nameless)]);
    assert_eq!(bench.acts(), ["patch web-0", "create data-web-1", "create web-1 web:1"]);
    let plan = bench.plan();
    let event = plan.writes().next().unwrap().on_success.as_ref().unwrap();
    assert_eq!(event.message, "Update Pod web-0 in StatefulSet web successful");
}
