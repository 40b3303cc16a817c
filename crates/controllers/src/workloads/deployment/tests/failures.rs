//! The second pass: what is recorded of a write that failed.

use std::sync::Arc;

use super::super::view::in_the_way;
use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::{DEPLOYMENTS, REPLICA_SETS};
use coxswain_machinery::model::{Failure, Key, Plan};

const FORBIDDEN: &str = "replicasets.apps \"web-x\" is forbidden: exceeded quota: q";

fn failure(what: &'static str, code: u16, reason: &str, message: &str) -> Failure {
    Failure {
        what: what.to_owned(),
        verb: what.split(' ').next().unwrap(),
        subresource: "",
        kind: if what.contains("deployments") { &DEPLOYMENTS } else { &REPLICA_SETS },
        key: Key::new("default", "web-x"),
        code,
        reason: reason.into(),
        message: message.to_owned(),
        existing: None,
    }
}

fn taken(by: Option<&Arc<ReplicaSet>>) -> Failure {
    Failure {
        existing: by.map(|set| Arc::clone(set) as AnyObject),
        ..failure("create replicasets.apps default/web-x", 409, "AlreadyExists", "it exists")
    }
}

/// The second pass's plan, with what observing would add.
fn second(deployment: &Arc<Deployment>, failure: Failure) -> Plan {
    let met = in_the_way(&failure).filter(|set| set.metadata.is_controlled_by(&deployment.metadata));
    let mut view = view(deployment, &met.into_iter().collect::<Vec<_>>());
    view.failures = vec![failure];
    super::super::plan::plan(&view, now())
}

#[test]
fn a_refused_creation_is_a_condition_and_an_event() {
    let plan = second(
        &deployment(|_| {}),
        failure("create replicasets.apps default/web-x", 403, "Forbidden", FORBIDDEN),
    );
    let message = format!("Failed to create new replica set \"web-x\": {FORBIDDEN}");
    assert_eq!(
        all_steps(&plan),
        [format!("Warning ReplicaSetCreateError: {message}"), "status web".to_owned()],
        "a conflict of the status update does not cost the event"
    );
    assert_eq!(conditions(&plan), ["Progressing=False ReplicaSetCreateError 0/0"]);
    let after = updated(&plan).unwrap();
    assert_eq!(after.status.conditions[0].message, message.as_str());
    assert_eq!(after.status.observed_generation, 0, "nothing else is known yet");
    assert_eq!(after.metadata.annotations.len(), 0);
}

#[test]
fn it_is_written_once_and_told_each_time() {
    let known = deployment(|deployment| {
        deployment.status.conditions = vec![condition("Progressing", "False", "ReplicaSetCreateError", 30)];
    });
    let plan = second(&known, failure("create replicasets.apps default/web-x", 403, "Forbidden", FORBIDDEN));
    assert_eq!(all_steps(&plan).len(), 1);
    let endless = deployment(|deployment| deployment.spec.progress_deadline_seconds = None);
    let plan =
        second(&endless, failure("create replicasets.apps default/web-x", 403, "Forbidden", FORBIDDEN));
    assert!(plan.is_empty() && plan.steps.len() == 1);
}

#[test]
fn other_failures_leave_no_trace() {
    let going = "replicasets.apps \"web-x\" is forbidden: unable to create new content in namespace default because it is \
                 being terminated";
    for failure in [
        failure("create replicasets.apps default/web-x", 403, "Forbidden", going),
        failure("update replicasets.apps default/web-x", 409, "Conflict", "changed"),
        failure("update deployments.apps/status default/web", 409, "Conflict", "changed"),
        failure("patch replicasets.apps default/web-x", 404, "NotFound", "gone"),
        failure("read deployments.apps default/web", 0, "", "gone"),
        taken(None),
    ] {
        let plan = second(&deployment(|_| {}), failure.clone());
        assert!(plan.steps.is_empty() && plan.retry.is_none(), "{failure:?}");
    }
}

/// The status shows the facts that precede a refused size; nothing else of it changes.
#[test]
fn refused_size_shows_pause_found_replica_set_and_revision() {
    let update = || failure("update replicasets.apps default/web-x", 403, "Forbidden", "frozen");
    let delete = || failure("delete replicasets.apps default/web-x", 403, "Forbidden", "frozen");
    let paused = deployment(|deployment| {
        deployment.spec.paused = true;
        deployment.status.conditions = vec![condition("Progressing", "True", "NewReplicaSetAvailable", 30)];
    });
    for (deployment, expected) in [
        (&paused, "Progressing=Unknown DeploymentPaused 0/0"),
        (&deployment(|_| {}), "Progressing=True FoundNewReplicaSet 0/0"),
    ] {
        for failure in [update(), delete()] {
            let mut view = view(deployment, &[replica_set(1, 4, |_| {})]);
            view.failures = vec![failure];
            let plan = super::super::plan::plan(&view, now());
            assert_eq!(all_steps(&plan), ["status web"]);
            assert_eq!(conditions(&plan), [expected]);
            let after = updated(&plan).unwrap();
            assert_eq!((after.status.observed_generation, after.status.replicas), (0, 0));
            assert_eq!(after.metadata.annotations.get("deployment.kubernetes.io/revision").unwrap(), "1");
            view.has_written_status = true;
            assert!(
                super::super::plan::plan(&view, now()).steps.is_empty(),
                "it is newer than what was observed"
            );
        }
    }
    // A revision that its ReplicaSet does not show yet.
    let behind = [replica_set(2, 4, |_| {}), replica_set(1, 4, |set| set.metadata.annotations = labels(&[]))];
    let mut view = view(&deployment(|_| {}), &behind);
    view.failures = vec![update()];
    let after = updated(&super::super::plan::plan(&view, now())).unwrap();
    assert!(after.metadata.annotations.get("deployment.kubernetes.io/revision").is_none());
}

#[test]
fn a_name_that_belongs_to_something_else_is_a_collision() {
    let others = replica_set(1, 3, |set| set.metadata.owner_references.clear());
    let ours_with_another_template = replica_set(2, 3, |_| {});
    for set in [&others, &ours_with_another_template] {
        let plan = second(&deployment(|_| {}), taken(Some(set)));
        assert_eq!(all_steps(&plan), ["status web"]);
        assert_eq!(updated(&plan).unwrap().status.collision_count, Some(1));
        assert_eq!(updated(&plan).unwrap().status.observed_generation, 0);
    }
    let again = deployment(|deployment| deployment.status.collision_count = Some(1));
    let plan = second(&again, taken(Some(&others)));
    assert_eq!(updated(&plan).unwrap().status.collision_count, Some(2));
    assert_ne!(
        steps(&plan_of(&again, &[])),
        steps(&plan_of(&deployment(|_| {}), &[])),
        "the next name is another one"
    );
}

#[test]
fn one_that_is_ours_is_gone_on_with() {
    let ours = replica_set(1, 4, |_| {});
    let plan = second(&deployment(|_| {}), taken(Some(&ours)));
    assert!(all_steps(&plan)[0].starts_with("update web-1 size=10 "), "{:?}", all_steps(&plan));
    assert_eq!(all_steps(&plan)[1], "status web");
}
