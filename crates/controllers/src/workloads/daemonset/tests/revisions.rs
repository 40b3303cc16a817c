//! The revision of the present template, and which others are kept.

use std::sync::Arc;

use super::super::view::View;
use super::fixtures::{
    daemon_set, deleting, labels, old, owner, pod, refused, revision, status, steps, template, view,
};
use coxswain_machinery::api::apps::{ControllerRevision, RevisionDocument};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::Verb;

fn with(revisions: Vec<Arc<ControllerRevision>>, pods: &[Arc<Pod>]) -> View {
    let set = daemon_set(|_| {});
    View { revisions, ..view(&set, &["a"], pods) }
}

/// The name of the revision of a template that has none yet.
fn new_name() -> String {
    format!("agent-{}", super::fixtures::document(&template("agent:2")).hash(0))
}

#[test]
fn the_first_template_gets_the_first_revision_and_its_pods_carry_the_hash() {
    let view = with(vec![], &[]);
    let lines = steps(&view);
    assert_eq!(lines, [format!("create revision {} #1", new_name()), "create on a".to_owned()]);
    let hash = super::fixtures::document(&template("agent:2")).hash(0);
    let plan = super::fixtures::planned(&view);
    let Verb::Create(body) = &plan.writes().next().unwrap().verb else { panic!("{plan:?}") };
    let made: Arc<ControllerRevision> =
        super::fixtures::decoded(&coxswain_machinery::api::kinds::CONTROLLER_REVISIONS, body.to_vec());
    assert_eq!(made.metadata.labels, labels(&[("app", "agent"), ("controller-revision-hash", &hash)]));
    assert_eq!(made.metadata.owner_references, [owner()]);
    assert_eq!(made.digest, Some(super::fixtures::document(&template("agent:2")).digest()));
    let body = super::fixtures::first_created(&view);
    let pod: Arc<Pod> = super::fixtures::decoded(&coxswain_machinery::api::kinds::PODS, body.to_vec());
    assert_eq!(pod.metadata.labels.get("controller-revision-hash").unwrap(), &hash);
}

#[test]
fn a_new_template_gets_the_next_number() {
    let lines = steps(&with(vec![revision(4, "old", "agent:1", |_| {})], &[pod("p", "a", old)]));
    assert_eq!(lines, [format!("create revision {} #5", new_name()), "delete p".to_owned()]);
}

#[test]
fn rolling_back_makes_no_revision_but_the_old_one_gets_the_highest_number() {
    let revisions = vec![revision(1, "new", "agent:2", |_| {}), revision(2, "old", "agent:1", |_| {})];
    assert_eq!(steps(&with(revisions, &[pod("p", "a", old)])), ["number agent-new 3", "delete p"]);
    // Of one number it is not the newest.
    let revisions = vec![revision(2, "new", "agent:2", |_| {}), revision(2, "old", "agent:1", |_| {})];
    assert_eq!(steps(&with(revisions, &[pod("p", "a", |_| {})])), ["number agent-new 3"]);
    let alone = vec![revision(0, "new", "agent:2", |_| {})];
    assert_eq!(steps(&with(alone, &[pod("p", "a", |_| {})])), [""; 0]);
}

#[test]
fn of_several_revisions_of_one_template_the_newest_stays_and_all_pods_become_its() {
    let revisions = vec![
        revision(1, "twin", "agent:2", |_| {}),
        revision(2, "old", "agent:1", |_| {}),
        revision(3, "new", "agent:2", |_| {}),
    ];
    let twin = |pod: &mut Pod| {
        pod.metadata.labels = pod.metadata.labels.with("controller-revision-hash", "twin");
    };
    let pods = [pod("p", "a", twin), pod("q", "b", |_| {}), pod("r", "c", old)];
    assert_eq!(steps(&with(revisions, &pods)), ["label p new", "label r new", "delete agent-twin"]);
}

#[test]
fn revisions_are_claimed_as_pods_are() {
    let orphan = revision(2, "new", "agent:2", |held| held.metadata.owner_references.clear());
    let lines = steps(&with(vec![orphan], &[]));
    assert_eq!(lines, ["verify agent", "adopt agent-new"], "the rest comes when it is ours");
    let stranger = revision(2, "old", "agent:1", |held| {
        held.metadata.labels = labels(&[("app", "other"), ("controller-revision-hash", "old")]);
    });
    let lines = steps(&with(vec![stranger], &[]));
    assert_eq!(
        lines,
        [
            "release agent-old".to_owned(),
            format!("create revision {} #1", new_name()),
            "create on a".to_owned()
        ]
    );
    let another = revision(9, "new", "agent:2", |held| {
        held.metadata.owner_references[0].uid = "another".into();
    });
    assert_eq!(steps(&with(vec![another], &[]))[0], format!("create revision {} #1", new_name()));
}

#[test]
fn a_revision_without_a_hash_gets_its_name_as_one() {
    let bare = revision(2, "new", "agent:2", |held| held.metadata.labels = labels(&[("app", "agent")]));
    assert_eq!(steps(&with(vec![bare], &[])), ["label agent-new agent-new"]);
}

/// A change of a revision wakes the controller that it names; it counts by its UID.
#[test]
fn a_change_of_a_revision_under_another_name_is_followed_by_another_look() {
    let renamed = |hash: &str, image: &str, change: fn(&mut RevisionDocument)| {
        revision(2, hash, image, move |held| {
            held.metadata.owner_references[0].name = "other".into();
            change(held);
        })
    };
    let bare = renamed("old", "agent:1", |held| held.metadata.labels = labels(&[("app", "agent")]));
    let twin = renamed("twin", "agent:2", |_| {});
    let new = || revision(3, "new", "agent:2", |_| {});
    for (revisions, first) in
        [(vec![new(), bare], "label agent-old agent-old"), (vec![new(), twin], "delete agent-twin")]
    {
        let view = with(revisions, &[]);
        assert_eq!(steps(&view), [first]);
        assert!(super::fixtures::planned(&view).requeue_after.is_some(), "{first}");
    }
}

fn history(limit: i32, pods: &[Arc<Pod>]) -> Vec<String> {
    let set = daemon_set(|set| set.spec.revision_history_limit = Some(limit));
    let mut revisions: Vec<_> = (1..=4)
        .map(|number| revision(number, &format!("h{number}"), &format!("agent:0.{number}"), |_| {}))
        .collect();
    revisions.push(revision(5, "new", "agent:2", |_| {}));
    let mut all = vec![pod("new", "a", |_| {})];
    all.extend_from_slice(pods);
    steps(&View { revisions, ..view(&set, &["a"], &all) })
}

#[test]
fn history_is_kept_up_to_its_limit_and_what_runs_in_any_case() {
    assert_eq!(history(10, &[]), [""; 0]);
    assert_eq!(history(2, &[]), ["delete agent-h1", "delete agent-h2"]);
    assert_eq!(history(0, &[]), ["delete agent-h1", "delete agent-h2", "delete agent-h3", "delete agent-h4"]);
    // On a node that is gone: it is rolled by nobody.
    let of = |hash: &'static str, change: fn(&mut Pod)| {
        pod(hash, "a", |pod| {
            pod.metadata.labels = pod.metadata.labels.with("controller-revision-hash", hash);
            deleting(pod);
            change(pod);
        })
    };
    assert_eq!(history(2, &[of("h1", |_| {})]), ["delete agent-h2", "delete agent-h3"]);
    assert_eq!(
        history(0, &[of("h1", |_| {}), of("h4", |pod| pod.status.phase = "Failed".into())]),
        ["delete agent-h2", "delete agent-h3"]
    );
    let nowhere = of("h1", |pod| pod.spec.node_name = "".into());
    assert_eq!(history(3, &[nowhere]), ["delete agent-h1"]);
}

/// What the server says when the name of the new revision is taken by this.
fn taken(by: &Arc<ControllerRevision>) -> View {
    let mut view = with(vec![], &[]);
    let create = super::fixtures::planned(&view).writes().next().unwrap().clone();
    let mut failure = refused(&create, 409, "AlreadyExists");
    failure.existing = Some(Arc::clone(by) as coxswain_machinery::api::AnyObject);
    view.failures = vec![failure];
    view
}

#[test]
fn a_name_that_is_taken_by_the_same_document_is_as_good_as_made() {
    let foreign = revision(7, "theirs", "agent:2", |held| held.metadata.owner_references.clear());
    let view = taken(&foreign);
    assert_eq!(steps(&view), ["create on a"]);
    assert!(super::fixtures::planned(&view).end, "it is no failure");
}

#[test]
fn a_name_that_is_taken_by_another_document_is_a_collision() {
    let view = taken(&revision(7, "theirs", "agent:1", |_| {}));
    assert_eq!((steps(&view), status(&view).as_deref()), (vec![], Some("0/0/0 0/0/0 0 @3 !1")));
    // The next name is another one.
    let set = daemon_set(|set| set.status.collision_count = Some(1));
    let next = View { revisions: vec![], ..super::fixtures::view(&set, &[], &[]) };
    assert_ne!(steps(&next)[0], format!("create revision {} #1", new_name()));
}
