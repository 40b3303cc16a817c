//! What is left to do when a write failed.

use super::super::view::View;
use super::fixtures::{all_steps, daemon_set, old, orphaned, planned, pod, refused, revision, view};
use coxswain_machinery::model::Write;

/// A node that lacks a pod, one that has a pod too many, a revision too many, and an orphan to adopt.
fn busy() -> View {
    let set = daemon_set(|set| set.spec.revision_history_limit = Some(0));
    let pods = [pod("p", "b", |_| {}), pod("q", "b", |_| {}), pod("r", "c", orphaned)];
    let mut view = view(&set, &["a", "b", "c"], &pods);
    view.revisions.push(revision(1, "older", "agent:0", |_| {}));
    view
}

fn after(failed: impl Fn(&Write) -> bool) -> Vec<String> {
    let mut view = busy();
    let plan = planned(&view);
    let write = plan.writes().find(|write| failed(write)).expect("such a write");
    view.failures = vec![refused(write, 403, "Forbidden")];
    all_steps(&view)
}

const STATUS: &str = "status 3/2/0 2/2/1 2 @3";

#[test]
fn everything_at_once() {
    assert_eq!(
        all_steps(&busy()),
        [
            "verify agent",
            "adopt r",
            "create on a",
            "delete q",
            "delete agent-old",
            "delete agent-older",
            STATUS
        ]
    );
}

#[test]
fn a_create_that_failed_does_not_keep_pods_from_being_deleted() {
    assert_eq!(after(|write| write.verb.name() == "create"), ["delete q", STATUS]);
}

#[test]
fn a_delete_that_failed_still_lets_the_status_be_told() {
    assert_eq!(after(|write| write.key.name == "q"), [STATUS]);
    assert_eq!(after(|write| write.key.name == "agent-old"), [STATUS]);
}

/// As with kube-controller-manager, where the sync ends.
#[test]
fn duplicate_that_cannot_be_deleted_ends_the_pass_without_a_status() {
    let mut view = busy();
    view.revisions.push(revision(1, "twin", "agent:2", |_| {}));
    let plan = planned(&view);
    let refuse = |name: &str| {
        let write = plan.writes().find(|write| write.key.name == *name).expect("such a write");
        refused(write, 403, "Forbidden")
    };
    view.failures = vec![refuse("agent-twin")];
    assert_eq!(all_steps(&view), [""; 0]);
    view.failures = vec![refuse("agent-old")];
    assert_eq!(all_steps(&view), [STATUS]);
}

#[test]
fn without_its_claims_or_revisions_nothing_is_told() {
    assert_eq!(after(|write| write.key.name == "r"), [""; 0]);
    assert_eq!(after(|write| write.subresource == "status"), [""; 0]);
    let set = daemon_set(|_| {});
    let mut view = View { revisions: vec![], ..view(&set, &["a"], &[]) };
    let plan = planned(&view);
    view.failures = vec![refused(plan.writes().next().unwrap(), 403, "Forbidden")];
    assert_eq!(all_steps(&view), [""; 0]);
    // A name that is taken by what cannot be read.
    view.failures = vec![refused(plan.writes().next().unwrap(), 409, "AlreadyExists")];
    assert_eq!(all_steps(&view), [""; 0]);
}

#[test]
fn what_failed_while_rolling_is_told_as_well() {
    let set = daemon_set(|_| {});
    let mut view = view(&set, &["a"], &[pod("p", "a", old)]);
    let plan = planned(&view);
    view.failures = vec![refused(plan.writes().next().unwrap(), 403, "Forbidden")];
    assert_eq!(all_steps(&view), ["status 1/1/0 1/1/0 0 @3"]);
}

/// A template that cannot be read is left to whoever changes it.
#[test]
fn a_malformed_template_makes_no_plan_and_no_panic() {
    let mut view = busy();
    let mut set = (*view.daemon_set).clone();
    set.spec.template = coxswain_machinery::wire::Raw(bytes::Bytes::from_static(b"\x0a\x05a"));
    view.daemon_set = std::sync::Arc::new(set);
    let plan = planned(&view);
    assert!(plan.is_empty() && plan.retry.is_some(), "{plan:?}");
}
