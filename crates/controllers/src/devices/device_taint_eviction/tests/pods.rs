//! Who stays, waits and goes.

use super::super::Controller;
use super::fixtures::{
    Bench, CANCELLED, GOES, at, claim, claim_of, consumer, exists, pod, pod_with_extended_resource,
    pod_with_template, rule, slice, told,
};
use coxswain_machinery::api::kinds::{DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use coxswain_machinery::api::pod::PodCondition;
use coxswain_machinery::api::resource::ResourceClaim;
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{Read, Room as _};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::wire::Time;
use std::sync::Arc;

#[test]
fn one_on_a_tainted_device_goes_when_its_time_is_over() {
    assert_eq!(Bench::new(claim(vec![]), &[]).reconcile(at(0)), (vec![], None));
    assert_eq!(Bench::new(claim(vec![]), &["a:NoSchedule", "b:None"]).reconcile(at(0)), (vec![], None));
    assert_eq!(Bench::new(claim(vec![exists("a", None)]), &["a"]).reconcile(at(0)), (vec![], None));
    assert_eq!(Bench::new(claim(vec![]), &["a"]).reconcile(at(0)).0, GOES);

    let bench = Bench::new(claim(vec![exists("a", Some(30))]), &["a"]);
    assert_eq!(bench.reconcile(at(10)), (vec![], Some(20)));
    assert_eq!(bench.reconcile(at(29)), (vec![], Some(1)));
    assert_eq!(bench.reconcile(at(30)).0, GOES);
    assert_eq!(bench.reconcile(at(31)), (vec![], None), "once");
    assert_eq!(
        Bench::new(claim(vec![exists("a", Some(30))]), &["a"]).reconcile(at(31)).0,
        GOES,
        "after a restart"
    );
}

#[test]
fn times_move_with_taints_both_ways() {
    let tolerating = || claim(vec![exists("a", Some(30)), exists("b", Some(60))]);
    let bench = Bench::new(tolerating(), &["b"]);
    assert_eq!(bench.reconcile(at(0)), (vec![], Some(60)));
    bench.put(slice("s", 1, &[("a", &["b", "a"])]));
    assert_eq!(bench.reconcile(at(10)), (vec![], Some(20)), "another taint");
    bench.put(slice("s", 1, &[("a", &["b"])]));
    assert_eq!(bench.reconcile(at(20)), (vec![], Some(40)), "it went");
    bench.put(slice("s", 1, &[("a", &[])]));
    assert_eq!(bench.reconcile(at(30)), (vec![CANCELLED.to_owned()], None));
    assert_eq!(bench.reconcile(at(30)), (vec![], None), "it is told once");
}

#[test]
fn slices_of_older_generations_count_no_more() {
    let bench = Bench::new(claim(vec![]), &["a"]);
    bench.put(slice("t", 2, &[("a", &[])]));
    assert_eq!(bench.reconcile(at(0)), (vec![], None));
    bench.put(slice("s", 3, &[("b", &["a"])]));
    assert_eq!(bench.reconcile(at(0)), (vec![], None), "its device is in no slice");
    bench.put(slice("t", 3, &[("a", &["a"])]));
    assert_eq!(bench.reconcile(at(0)).0, GOES, "two slices of one generation");
}

#[test]
fn rules_need_no_slice() {
    let bench = Bench::new(claim(vec![]), &[]);
    bench.remove("ResourceSlice", &Key::new("", "s"));
    bench.put(rule(Some(["d", "*", "*"]), "NoSchedule"));
    assert_eq!(bench.reconcile(at(0)), (vec![], None));
    bench.put(rule(None, "NoExecute"));
    assert_eq!(bench.reconcile(at(0)), (vec![], None));
    bench.put(rule(Some(["d", "*", "*"]), "NoExecute"));
    assert_eq!(bench.reconcile(at(0)).0, GOES);
    assert_eq!(bench.room.timers.evicted_for(&"rule-uid".into()), 1);
    bench.room.timers.forget_rule(&"rule-uid".into());
    assert_eq!(bench.room.timers.evicted_for(&"rule-uid".into()), 0);
}

#[test]
fn of_two_reasons_one_is_enough() {
    let bench = Bench::new(claim(vec![exists("a", Some(60)), exists("broken", Some(30))]), &["a"]);
    bench.put(rule(Some(["*", "*", "*"]), "NoExecute"));
    assert_eq!(bench.reconcile(at(0)), (vec![], Some(30)));
    bench.remove("DeviceTaintRule", &Key::new("", "broken"));
    assert_eq!(bench.reconcile(at(0)), (vec![], Some(60)), "without a word");
}

#[test]
fn a_claim_counts_that_is_the_pods_and_reserved_for_it() {
    let reserved_for = |uid: &str| {
        let mut claim = claim(vec![]);
        claim.status.reserved_for = vec![consumer(uid)];
        claim
    };
    let mut unallocated = claim(vec![]);
    unallocated.status.allocation = None;
    for (what, claim, is_made, goes) in [
        ("by name", claim(vec![]), false, true),
        ("reserved for another", reserved_for("other"), false, false),
        ("not allocated", unallocated, false, false),
        ("made for it", claim_of("Pod", "web", "web-uid"), true, true),
        ("made for another", claim_of("Pod", "web", "other"), true, false),
        ("made for nobody", claim(vec![]), true, false),
        ("made for its group, where such have none", claim_of("PodGroup", "gang", "gang-uid"), true, false),
    ] {
        let bench = Bench::new(claim, &["a"]);
        if is_made {
            bench.put(pod_with_template());
        }
        assert_eq!(!bench.reconcile(at(0)).0.is_empty(), goes, "{what}");
    }
    let bench = Bench::new(claim(vec![]), &["a"]);
    let mut unbound = pod();
    unbound.spec.node_name = "".into();
    bench.put(unbound);
    assert_eq!(bench.reconcile(at(0)).0, ["nothing"], "the scheduler's affair");
}

/// kube-controller-manager 1.37 evicts no such pod, 1.38 does.
#[test]
fn a_claim_for_extended_resources_counts() {
    for (what, owner, tolerations, goes) in [
        ("made for it", "web-uid", vec![], true),
        ("tolerated", "web-uid", vec![exists("a", None)], false),
        ("made for another", "other", vec![], false),
    ] {
        let mut made = claim(tolerations);
        made.metadata.owner_references = claim_of("Pod", "web", owner).metadata.owner_references;
        let bench = Bench::new(made, &["a"]);
        bench.put(pod_with_extended_resource());
        assert_eq!(!bench.reconcile(at(0)).0.is_empty(), goes, "{what}");
    }
}

#[test]
fn groups_share_claims_where_they_have_them() {
    let bench = Bench::empty(true);
    let mut member = pod_with_template();
    let shape = coxswain_machinery::api::shape::PodShape {
        pod_group: "gang".into(),
        resource_claims: member.shape.resource_claims.clone(),
        ..coxswain_machinery::api::shape::PodShape::default()
    };
    member.shape = shape.into();
    let mut shared: ResourceClaim = claim_of("PodGroup", "gang", "gang-uid");
    shared.status.reserved_for[0].api_group = "scheduling.k8s.io".into();
    shared.status.reserved_for[0].resource = "podgroups".into();
    shared.status.reserved_for[0].name = "gang".into();
    bench.put(member);
    bench.put(shared);
    bench.put(slice("s", 1, &[("a", &["a"])]));
    assert_eq!(bench.reconcile(at(0)).0, GOES);
}

/// The cache is behind: nobody goes whom the API server would keep.
#[test]
fn who_is_due_is_looked_at_live_with_all_that_he_goes_for() {
    let object = |kind: &'static Kind, key: Key| Read::Object(kind, key);
    let freed = {
        let mut claim = claim(vec![]);
        claim.status.reserved_for.clear();
        claim
    };
    let mut another = pod();
    another.metadata.uid = "another".into();
    let broken = || object(&DEVICE_TAINT_RULES, Key::new("", "broken"));
    let healed = rule(Some(["d", "*", "*"]), "NoSchedule");
    let of_slice = || object(&RESOURCE_SLICES, Key::new("", "s"));
    let table: Vec<(&str, Read, Option<AnyObject>, Vec<&str>)> = vec![
        ("the pod is gone", object(&PODS, Key::new("ns", "web")), None, vec![]),
        ("it is another", object(&PODS, Key::new("ns", "web")), Some(Arc::new(another)), vec![]),
        (
            "the claim is freed",
            object(&RESOURCE_CLAIMS, Key::new("ns", "gpu")),
            Some(Arc::new(freed)),
            vec![CANCELLED],
        ),
        ("the claim is gone", object(&RESOURCE_CLAIMS, Key::new("ns", "gpu")), None, vec![CANCELLED]),
    ];
    for (what, read, found, expected) in table {
        let mut bench = Bench::new(claim(vec![]), &["a"]);
        bench.live.push((read, found));
        assert_eq!(bench.reconcile(at(0)).0, expected, "{what}");
    }
    let mut bench = Bench::new(claim(vec![]), &["a"]);
    bench.live.push((of_slice(), Some(Arc::new(slice("s", 1, &[("a", &[])])))));
    assert_eq!(bench.reconcile(at(0)).0, [CANCELLED], "the taint is gone");
    let mut bench = Bench::new(claim(vec![]), &[]);
    bench.put(rule(Some(["d", "*", "*"]), "NoExecute"));
    bench.live.push((broken(), Some(Arc::new(healed))));
    assert_eq!(bench.reconcile(at(0)).0, [CANCELLED], "the rule has another effect");
    let mut bench = Bench::new(claim(vec![]), &["a"]);
    let mut terminating = pod();
    terminating.metadata.deletion_timestamp = Time::from_seconds(5);
    bench.live.push((object(&PODS, Key::new("ns", "web")), Some(Arc::new(terminating))));
    assert_eq!(bench.reconcile(at(0)).0, Vec::<String>::new(), "it goes already");
    assert!(bench.room.timers.is_evicted(&"web-uid".into()), "which counts");
}

#[test]
fn the_condition_is_written_once_and_the_delete_is_of_the_pod() {
    let bench = Bench::new(claim(vec![]), &["a"]);
    let look = || {
        let view = bench.view().unwrap();
        let plan = Controller::plan(&view, at(3));
        if plan.look_again {
            use coxswain_machinery::framework::Memory as _;
            bench.room.timers.commit(&Key::new("ns", "web"), plan.note);
            return Controller::plan(&bench.view().unwrap(), at(3));
        }
        plan
    };
    let plan = look();
    let writes: Vec<_> = plan.writes().collect();
    let Verb::Patch(Patch::Strategic(patch)) = &writes[0].verb else { panic!("{}", writes[0]) };
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(condition["reason"], "DeletionByDeviceTaintManager");
    assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:13:23Z");
    assert!(condition.get("observedGeneration").is_none());
    assert_eq!(patch["metadata"]["resourceVersion"], "77");
    let Verb::Delete { uid, resource_version, .. } = &writes[1].verb else { panic!("{}", writes[1]) };
    assert_eq!((uid.to_string().as_str(), resource_version.is_none()), ("web-uid", true));
    assert_eq!(plan.note.eviction.as_ref().unwrap().overdue.as_secs(), 3);

    let mut said = pod();
    said.status.conditions = vec![PodCondition {
        r#type: "DisruptionTarget".into(),
        status: "True".into(),
        reason: "DeletionByDeviceTaintManager".into(),
        ..PodCondition::default()
    }];
    bench.put(said);
    assert_eq!(told(&look()), ["Marking for deletion", "delete pods"]);
}

#[test]
fn who_goes_by_himself_is_forgotten_without_a_word() {
    let bench = Bench::new(claim(vec![exists("a", Some(30))]), &["a"]);
    bench.reconcile(at(0));
    bench.remove("Pod", &Key::new("ns", "web"));
    assert_eq!(bench.reconcile(at(1)), (vec![], None));
    assert_eq!(bench.reconcile(at(1)).0, ["nothing"]);
}

#[test]
fn it_says_why() {
    let reasons = |bench: &Bench, now| Controller::reasons(&bench.view().unwrap(), now).join(" ");
    let bench = Bench::new(claim(vec![exists("a", Some(30)), exists("broken", Some(60))]), &["a"]);
    bench.put(rule(Some(["*", "*", "*"]), "NoExecute"));
    let said = reasons(&bench, at(10));
    for part in ["DeviceTaintRule broken", "device a of pool p of d", "deleted in 20s"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(reasons(&Bench::new(claim(vec![]), &["a"]), at(1)).contains("the pod is deleted now"));
    assert!(reasons(&Bench::new(claim(vec![]), &[]), at(1)).contains("The pod is kept"));
}
