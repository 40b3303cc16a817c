//! Which pods are made, waited for and taken away.

use std::sync::Arc;

use super::super::view::is_made_of;
use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::{
    ClaimRetentionPolicy, ControllerRevision, StatefulSet, StatefulSetOrdinals,
};
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::Reads;
use coxswain_machinery::model::{Failure, Key, Step};
use coxswain_machinery::wire::splice::{Edit, edit};

const OK: State = |_| {};

/// The acts on pods of `web:1` with these ordinals and states.
fn acts(change: impl FnOnce(&mut StatefulSet), pods: &[(i32, State)]) -> Vec<String> {
    let pods: Vec<_> = pods.iter().map(|(ordinal, state)| pod(*ordinal, "web:1", state)).collect();
    let set = set(|set| {
        says(set, "web:1", "web:1");
        change(set);
    });
    Bench::of(&set, &pods).acts()
}

fn three(_: &mut StatefulSet) {}

fn one(set: &mut StatefulSet) {
    set.spec.replicas = Some(1);
}

#[test]
fn pods_come_one_after_the_other() {
    assert_eq!(acts(three, &[]), ["create web-0 web:1"]);
    assert_eq!(acts(three, &[(0, pending)]), [""; 0]);
    assert_eq!(acts(three, &[(0, unready)]), [""; 0]);
    assert_eq!(acts(three, &[(0, deleting)]), [""; 0]);
    assert_eq!(acts(three, &[(0, OK)]), ["create web-1 web:1"]);
    assert_eq!(acts(three, &[(0, OK), (2, OK)]), ["create web-1 web:1"]);
    assert_eq!(acts(three, &[(0, OK), (1, unready)]), [""; 0]);
    assert_eq!(acts(three, &[(0, OK), (1, OK), (2, OK)]), [""; 0]);
}

#[test]
fn each_waits_until_those_before_it_have_been_ready_for_long_enough() {
    let slow = |set: &mut StatefulSet| set.spec.min_ready_seconds = 60;
    let fresh: State = |pod| pod.status.conditions = vec![ready(ago(10))];
    assert_eq!(acts(slow, &[(0, fresh)]), [""; 0]);
    assert_eq!(acts(slow, &[(0, OK)]), ["create web-1 web:1"]);
    let set = set(|set| {
        says(set, "web:1", "web:1");
        slow(set);
    });
    let plan = Bench::of(&set, &[pod(0, "web:1", fresh)]).plan();
    assert_eq!(plan.requeue_after, Some(std::time::Duration::from_secs(50)));
}

#[test]
fn finished_pods_are_deleted_whatever_came_of_them() {
    let succeeded: State = |pod| pod.status.phase = "Succeeded".into();
    let going: State = |pod| {
        failed(pod);
        deleting(pod);
    };
    assert_eq!(acts(three, &[(0, failed), (1, OK)]), ["delete web-0 web-0-uid"]);
    assert_eq!(acts(three, &[(0, OK), (1, succeeded)]), ["delete web-1 web-1-uid"]);
    assert_eq!(acts(three, &[(0, going)]), [""; 0]);
}

#[test]
fn surplus_pods_go_from_the_top_when_all_replicas_are_available() {
    assert_eq!(acts(one, &[(0, OK), (1, OK), (2, OK)]), ["delete web-2 web-2-uid"]);
    assert_eq!(acts(one, &[(0, unready), (1, OK), (2, OK)]), [""; 0]);
    assert_eq!(acts(one, &[(0, OK), (1, OK), (2, deleting)]), [""; 0]);
    assert_eq!(acts(one, &[(1, OK), (2, OK)]), ["create web-0 web:1"]);
}

#[test]
fn an_unhealthy_surplus_pod_goes_only_if_none_below_it_is_unhealthy() {
    assert_eq!(acts(one, &[(0, OK), (1, OK), (2, unready)]), ["delete web-2 web-2-uid"]);
    assert_eq!(acts(one, &[(0, OK), (1, unready), (2, unready)]), [""; 0]);
    assert_eq!(acts(one, &[(0, OK), (1, deleting), (2, unready)]), [""; 0]);
    assert_eq!(acts(one, &[(0, OK), (1, unready), (2, OK)]), ["delete web-2 web-2-uid"]);
}

#[test]
fn all_come_and_go_at_once_where_that_is_asked_for() {
    let parallel = |set: &mut StatefulSet| {
        set.spec.pod_management_policy = "Parallel".into();
    };
    assert_eq!(acts(parallel, &[(1, pending)]), ["create web-0 web:1 | create web-2 web:1"]);
    assert_eq!(acts(parallel, &[(0, failed), (1, OK), (2, deleting)]), ["delete web-0 web-0-uid"]);
    let one = |set: &mut StatefulSet| {
        parallel(set);
        one(set);
    };
    assert_eq!(
        acts(one, &[(0, unready), (1, deleting), (2, unready), (3, OK)]),
        ["delete web-3 web-3-uid | delete web-2 web-2-uid"]
    );
    let many = |set: &mut StatefulSet| {
        parallel(set);
        set.spec.replicas = Some(2000);
    };
    assert_eq!(acts(many, &[])[0].split(" | ").count(), 500, "the rest follows");
}

#[test]
fn another_start_condemns_on_both_sides() {
    let from_two = |set: &mut StatefulSet| {
        set.spec.ordinals = Some(Box::new(StatefulSetOrdinals { start: 2 }));
        set.spec.replicas = Some(2);
    };
    assert_eq!(acts(from_two, &[(0, OK), (1, OK)]), ["create web-2 web:1"]);
    assert_eq!(acts(from_two, &[(1, OK), (2, OK), (3, OK), (5, OK)]), ["delete web-5 web-5-uid"]);
    assert_eq!(acts(from_two, &[(1, OK), (2, OK), (3, OK)]), ["delete web-1 web-1-uid"]);
}

#[test]
fn a_set_that_is_being_deleted_deletes_no_pod_and_still_counts() {
    let going = set(|set| {
        says(set, "web:1", "web:1");
        set.metadata.deletion_timestamp = ago(1);
    });
    let bench = Bench::of(&going, &[pod(0, "web:1", OK), pod(5, "web:1", OK)]).with_revision("web:3", 0);
    assert_eq!(bench.lines(), ["status 2/2/2 2 2 web:1 web:1"]);
}

#[test]
fn pods_are_adopted_after_a_live_look_and_released_when_they_do_not_match() {
    let relabeled: State = |pod| pod.metadata.labels = labels(&[("app", "api")]);
    assert_eq!(
        acts(three, &[(0, orphaned), (1, relabeled)]),
        [r#"verify default/web Alive("web-uid")"#, "patch web-1 & patch web-0"]
    );
    let stranger: State = |pod| {
        orphaned(pod);
        pod.metadata.labels = labels(&[("app", "api")]);
    };
    assert_eq!(acts(three, &[(0, stranger)]), ["create web-0 web:1"], "the server refuses it");
}

/// kube-controller-manager counts the pods that need nothing, so the refused creation of `web-1` does not stop that of `web-2`.
#[test]
fn groups_count_pods_that_need_nothing() {
    let set = set(|set| {
        says(set, "web:1", "web:1");
        set.spec.pod_management_policy = "Parallel".into();
    });
    let chains = |pods: &[Arc<Pod>]| {
        let steps = Bench::of(&set, pods).plan().steps;
        let lengths = steps.iter().find_map(|step| match step {
            Step::Chains { chains, slow_start: true } => {
                Some(chains.iter().map(Vec::len).collect::<Vec<_>>())
            }
            _ => None,
        });
        lengths.unwrap_or_default()
    };
    assert_eq!(chains(&[pod(0, "web:1", OK)]), [0, 1, 1]);
    assert_eq!(chains(&[0, 1, 2].map(|at| pod(at, "web:1", OK))), [0_usize; 0], "nothing is to be done");
}

/// The surplus pods may take the room that the replicas lack.
#[test]
fn surplus_pods_go_although_replicas_are_refused() {
    let bench = |management: &str| {
        let set = set(|set| {
            says(set, "web:1", "web:1");
            one(set);
            set.spec.pod_management_policy = management.into();
        });
        Bench::of(&set, &[pod(1, "web:1", OK), pod(2, "web:1", deleting), pod(3, "web:1", unready)])
    };
    let deletes = |management: &str, failure| {
        let told = lines(&super::plan::plan(&bench(management).view(&[failure]), now()).0);
        assert!(
            !told.last().unwrap().starts_with("status")
                || told.iter().all(|line| !line.starts_with("delete"))
        );
        told.into_iter().filter(|line| line.starts_with("delete ")).collect::<Vec<_>>()
    };
    let unanswered = Failure { code: 0, ..refused(&PODS, "create", "web-0", "timeout") };
    assert_eq!(deletes("Parallel", unanswered), [""; 0], "nothing was refused");
    let moved = |start: i32, refused_pod: &str, change: fn(&mut StatefulSet)| {
        let set = set(|set| {
            says(set, "web:1", "web:1");
            set.spec.replicas = Some(3);
            set.spec.pod_management_policy = "Parallel".into();
            set.spec.ordinals = Some(Box::new(StatefulSetOrdinals { start }));
            change(set);
        });
        // One pod more than replicas, under the ordinals of another start.
        let pods = [20, 21, 22, 23].map(|at| pod(at, "web:1", OK));
        let failure = refused(&PODS, "create", refused_pod, "quota");
        let told = lines(&super::plan::plan(&Bench::of(&set, &pods).view(&[failure]), now()).0);
        told.into_iter().filter(|line| line.starts_with("delete ")).collect::<Vec<_>>()
    };
    let plain: fn(&mut StatefulSet) = |_| {};
    for (start, refused_pod) in [(30, "web-30"), (0, "web-0")] {
        let deleted = moved(start, refused_pod, plain);
        assert_eq!(deleted, ["delete web-23 web-23-uid"], "the others wait for their successors");
    }
    let set = set(|set| {
        says(set, "web:1", "web:1");
        set.spec.replicas = Some(2);
        set.spec.pod_management_policy = "Parallel".into();
        set.spec.volume_claim_templates = vec![claim_template("data")];
    });
    let beyond = |first: fn(&mut Pod), failures: &[Failure]| {
        let pods = [pod(0, "web:1", first), pod(5, "web:1", OK), pod(6, "web:1", OK)];
        let told = lines(&super::plan::plan(&Bench::of(&set, &pods).view(failures), now()).0);
        told.into_iter().filter(|line| line.starts_with("delete ")).collect::<Vec<_>>()
    };
    let of_pod = refused(&PODS, "create", "web-1", "quota");
    let of_claim = |name: &str| refused(&PERSISTENT_VOLUME_CLAIMS, "create", name, "quota");
    assert_eq!(beyond(OK, std::slice::from_ref(&of_pod)), ["delete web-6 web-6-uid"]);
    assert_eq!(beyond(failed, std::slice::from_ref(&of_pod)), [""; 0], "two that run stay");
    assert_eq!(beyond(OK, &[of_claim("data-web-1")]), ["delete web-6 web-6-uid"], "its pod is missing");
    assert_eq!(beyond(pending, &[of_claim("data-web-0")]), [""; 0], "its pod is there");
    assert_eq!(beyond(pending, &[of_claim("data-web-0"), of_pod]), ["delete web-6 web-6-uid"]);
    let with_claims: fn(&mut StatefulSet) = |set| {
        let policy = ClaimRetentionPolicy { when_scaled: "Delete".into(), ..ClaimRetentionPolicy::default() };
        set.spec.persistent_volume_claim_retention_policy = Some(Box::new(policy));
    };
    assert_eq!(moved(0, "web-0", with_claims), [""; 0], "the data would go with it");
    let refused = |verb| refused(&PODS, verb, "web-0", "quota");
    assert_eq!(
        deletes("Parallel", refused("create")),
        ["delete web-3 web-3-uid"],
        "as many stay as are asked for"
    );
    assert_eq!(deletes("OrderedReady", refused("create")), [""; 0], "one pod waits for another");
    assert_eq!(deletes("Parallel", refused("delete")), [""; 0], "not twice in one reconcile");
}

/// Returns the plan of a reconcile whose adoptions and releases had these answers.
fn after_claims(pods: &[Member<'_>], answers: Vec<(&str, WriteEffect, Option<Arc<Pod>>)>) -> Vec<String> {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|(at, image, state)| pod(*at, image, state)).collect();
    let bench = Bench::of(&set(|set| says(set, "web:1", "web:1")), &pods);
    let first = bench.plan();
    assert!(first.look_again && first.requeue_after.is_none(), "{first:?}");
    let read = answers.into_iter().fold(Reads::default(), |read, (name, change, answer)| {
        let answer = answer.map(|pod| pod as AnyObject);
        let key = Key::new("default", name);
        read.after(Effect { kind: &PODS, key, subresource: "", change, answer })
    });
    lines(&super::plan::plan(&bench.view_after(&[], read), now()).0)
}

#[test]
fn tolerated_release_does_not_lead_to_the_same_plan_again() {
    let relabeled: State = |pod| pod.metadata.labels = labels(&[("app", "api")]);
    let pods = [(0, "web:1", OK), (1, "web:1", relabeled)];
    // Refused with 422, or the pod is gone; a webhook has restored the reference.
    let restored = pod(1, "web:1", |pod| {
        relabeled(pod);
        pod.metadata.resource_version = "50".into();
    });
    for (change, answer) in [(WriteEffect::Nothing, None), (WriteEffect::Stored("50".into()), Some(restored))]
    {
        let then = after_claims(&pods, vec![("web-1", change, answer)]);
        assert_eq!(then, ["create web-1 web:1", "status 1/1/1 1 1 web:1 web:1"]);
    }
}

#[test]
fn adopted_pod_counts_in_the_same_reconcile_as_the_server_answered() {
    let pods = [(0, "web:1", orphaned as State), (1, "web:1", OK), (2, "web:1", OK)];
    let adopted = pod(0, "web:1", |pod| pod.metadata.resource_version = "60".into());
    let then = after_claims(&pods, vec![("web-0", WriteEffect::Stored("60".into()), Some(adopted))]);
    assert_eq!(then, ["status 3/3/3 3 3 web:1 web:1"]);
    let gone = after_claims(&pods, vec![("web-0", WriteEffect::Nothing, None)]);
    assert_eq!(gone[0], "create web-0 web:1", "a pod that was gone before its adoption is no replica");
}

#[test]
fn lost_answer_of_a_release_settles_nothing() {
    let relabeled: State = |pod| pod.metadata.labels = labels(&[("app", "api")]);
    let then = after_claims(&[(0, "web:1", relabeled)], vec![("web-0", WriteEffect::Unknown, None)]);
    assert_eq!(then, ["patch web-0"]);
}

#[test]
fn a_refusal_is_told_and_the_status_is_written_all_the_same() {
    let set = set(|set| says(set, "web:1", "web:1"));
    let bench = Bench::of(&set, &[pod(0, "web:1", OK)]);
    let after = |failure| lines(&super::plan::plan(&bench.view(&[failure]), now()).0);
    assert_eq!(
        after(refused(&PODS, "create", "web-1", "no")),
        [
            "FailedCreate: Create Pod web-1 in StatefulSet web failed error: no",
            "status 1/1/1 1 1 web:1 web:1",
        ]
    );
    let mut taken = refused(&PODS, "create", "web-1", "it is there");
    taken.reason = "AlreadyExists".into();
    assert_eq!(after(taken), ["status 1/1/1 1 1 web:1 web:1"], "a name that is taken is not told");
}

#[test]
fn a_pod_is_its_template_with_a_name_claims_and_an_owner() {
    let set = set(|set| {
        says(set, "web:1", "web:1");
        set.spec.volume_claim_templates = vec![claim_template("data")];
    });
    let bench = Bench::of(&set, &[]).with_claims(&[claim("data-web-0", |_| {})]);
    let plan = bench.plan();
    let create = plan.writes().find(|write| write.kind == &PODS).unwrap();
    let coxswain_machinery::model::plan::Verb::Create(body) = &create.verb else { panic!("a create") };
    let made: std::sync::Arc<Pod> = typed((PODS.decode)(body).unwrap());
    assert_eq!((made.metadata.name.as_str(), made.metadata.generate_name.as_str()), ("web-0", "web-"));
    assert_eq!((made.spec.hostname.as_str(), made.spec.subdomain.as_str()), ("web-0", "service"));
    assert_eq!(made.metadata.owner_references, [owner()]);
    let label = |name: &str| made.metadata.labels.get(name).cloned().unwrap_or_default();
    assert_eq!(label("app"), "web");
    assert_eq!(label("apps.kubernetes.io/pod-index"), "0");
    assert_eq!(label("statefulset.kubernetes.io/pod-name"), "web-0");
    assert_eq!(label("controller-revision-hash"), revision_name("web:1").as_str());
    let claims: Vec<_> = made.claims.iter().map(|claim| claim.claim_name("web-0").to_string()).collect();
    assert_eq!(claims, ["data-web-0"], "in place of the template's own volume of that name");
}

/// kube-controller-manager makes no pods of such a StatefulSet: the API server refuses the label's value.
#[test]
fn a_revision_with_a_long_name_is_found_by_a_label_that_is_valid() {
    let revision_of = |hash: &str| format!("{}-{hash}", "a".repeat(58));
    let name = revision_of("656b6d6c54");
    let set = set(|set| {
        set.status.current_revision = name.as_str().into();
        set.status.update_revision = name.as_str().into();
    });
    let bench = Bench::empty();
    bench.sets.upsert(&(set as AnyObject));
    let renamed = Edit::SetBytes(&[1, 1], name.clone().into_bytes());
    let bytes = edit(&revision_bytes("web:1", 1), &[renamed]).unwrap();
    let revision: Arc<ControllerRevision> = typed((CONTROLLER_REVISIONS.decode)(&bytes.into()).unwrap());
    bench.revisions.upsert(&(revision as AnyObject));
    let plan = bench.plan();
    let create = plan.writes().find(|write| write.kind == &PODS).unwrap();
    let coxswain_machinery::model::plan::Verb::Create(body) = &create.verb else { panic!("a create") };
    let made: Arc<Pod> = typed((PODS.decode)(body).unwrap());
    let label = made.metadata.labels.get("controller-revision-hash").cloned().unwrap_or_default();
    assert_eq!(label, format!("{}-656b6d6c54", "a".repeat(52)).as_str());
    assert!(is_made_of(&made, &name));
    assert!(!is_made_of(&made, &revision_of("656b6d6c55")));
}
