//! The revision of the present template, and which others are kept.

use std::sync::Arc;

use super::super::view::{View, node_of};
use super::cluster::{Cluster, Event};
use super::fixtures::{
    all_steps, daemon_set, deleting, labels, old, owner, pod, refused, revision, status, steps, template,
    view,
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
fn of_several_revisions_of_one_template_the_newest_stays_and_gets_the_pods_of_the_others() {
    let revisions = vec![
        revision(1, "twin", "agent:2", |_| {}),
        revision(2, "old", "agent:1", |_| {}),
        revision(3, "new", "agent:2", |_| {}),
    ];
    let twin = |pod: &mut Pod| {
        pod.metadata.labels = pod.metadata.labels.with("controller-revision-hash", "twin");
    };
    let pods = [pod("p", "a", twin), pod("q", "b", |_| {}), pod("r", "c", old)];
    let view = View { revisions, ..view(&daemon_set(|_| {}), &["a", "b", "c"], &pods) };
    assert_eq!(
        steps(&view),
        ["label p new", "delete agent-twin", "delete r"],
        "the pod of the earlier template is rolled, and none that the pass labels"
    );
}

#[test]
fn daemonset_with_a_long_name_gets_a_revision_whose_name_fits() {
    for length in [200, 242, 250, 253] {
        let name = "a".repeat(length);
        let set = daemon_set(|set| set.metadata.name = name.as_str().into());
        let hash = super::fixtures::document(&template("agent:2")).hash(0);
        let plan = super::fixtures::planned(&View { revisions: vec![], ..view(&set, &["a"], &[]) });
        let made = &plan.writes().next().unwrap().key.name;
        assert_eq!(*made, format!("{}-{hash}", "a".repeat(length.min(252 - hash.len()))));
    }
}

/// A finalizer holds the older one.
#[test]
fn revision_that_is_being_deleted_is_no_duplicate_once_no_pod_has_its_hash() {
    let held = |change: fn(&mut RevisionDocument)| {
        revision(1, "twin", "agent:2", move |held| {
            held.metadata.finalizers = vec!["example.com/hold".into()];
            change(held);
        })
    };
    let twin = |pod: &mut Pod| {
        pod.metadata.labels = pod.metadata.labels.with("controller-revision-hash", "twin");
    };
    let set = daemon_set(|_| {});
    let of = |held: &Arc<ControllerRevision>, pods: &[Arc<Pod>]| {
        let revisions = vec![Arc::clone(held), revision(2, "new", "agent:2", |_| {})];
        all_steps(&View { revisions, ..view(&set, &["a", "b"], pods) })
    };
    let status = |updated: i32| format!("status 2/1/0 1/1/1 {updated} @3");
    assert_eq!(
        of(&held(|_| {}), &[pod("p", "b", twin)]),
        ["label p new".to_owned(), "delete agent-twin".to_owned(), "create on a".to_owned(), status(1)],
        "the new node gets its pod in the pass that deletes the duplicate"
    );
    let going = held(|held| held.metadata.deletion_timestamp = super::fixtures::ago(1));
    assert_eq!(
        of(&going, &[pod("p", "b", twin)]),
        ["label p new".to_owned(), "create on a".to_owned(), status(1)],
        "no second delete"
    );
    assert_eq!(of(&going, &[pod("p", "b", |_| {})]), ["create on a".to_owned(), status(1)]);
    assert_eq!(
        of(&going, &[pod("p", "a", old), pod("q", "b", |_| {})])[0],
        "delete p",
        "a pod of an earlier template is rolled out and not taken for one of the present template"
    );
}

/// The manager ends after each of its writes in turn, and the answer to the last one is lost.
#[test]
fn duplicate_revisions_settle_without_another_pod_or_revision_wherever_the_manager_ends() {
    for writes in 0..9 {
        let mut cluster = Cluster::new(|_| {}, 2);
        cluster.settle();
        let before: Vec<_> = cluster.pods().iter().map(|pod| pod.metadata.uid.clone()).collect();
        cluster.duplicate_revision("twin");
        cluster.happen(Event::Join(2));
        cluster.work_until(writes);
        cluster.settle();
        let pods = cluster.pods();
        let mut nodes: Vec<_> = pods.iter().filter_map(|pod| node_of(pod)).map(ToString::to_string).collect();
        nodes.sort();
        assert_eq!(nodes, ["n0", "n1", "n2"], "{writes}");
        let has_hash = |pod: &Arc<Pod>| {
            pod.metadata.labels.get("controller-revision-hash").is_some_and(|hash| hash == "twin")
        };
        assert!(pods.iter().all(has_hash), "{writes}: {pods:?}");
        assert!(before.iter().all(|uid| pods.iter().any(|pod| pod.metadata.uid == *uid)), "{writes}");
        assert_eq!((cluster.revisions().len(), cluster.revisions_made()), (2, 1), "{writes}");
        assert!((1..=2).contains(&cluster.revision_deletes()), "{writes}: {}", cluster.revision_deletes());
        assert_eq!(cluster.set().status.number_available, 3, "{writes}");
    }
}

#[test]
fn revisions_are_claimed_as_pods_are() {
    let orphan = revision(2, "new", "agent:2", |held| held.metadata.owner_references.clear());
    let lines = steps(&with(vec![orphan], &[]));
    assert_eq!(lines, ["verify agent", "adopt agent-new", "create on a"]);
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

/// The label is what a policy may drop, on each try.
#[test]
fn revision_without_a_hash_has_its_name_as_one_in_the_same_pass() {
    let bare = |number: i64, hash: &str, image: &str| {
        revision(number, hash, image, |held| held.metadata.labels = labels(&[("app", "agent")]))
    };
    let view = with(vec![bare(2, "new", "agent:2")], &[]);
    assert_eq!(steps(&view), ["label agent-new agent-new", "create on a"]);
    let body = super::fixtures::first_created(&view);
    let made: Arc<Pod> = super::fixtures::decoded(&coxswain_machinery::api::kinds::PODS, body.to_vec());
    assert_eq!(made.metadata.labels.get("controller-revision-hash").unwrap(), "agent-new");
    let old = with(vec![bare(1, "old", "agent:1"), revision(2, "new", "agent:2", |_| {})], &[]);
    assert_eq!(steps(&old), ["label agent-old agent-old", "create on a"]);
    let back = with(vec![bare(1, "new", "agent:2"), revision(2, "old", "agent:1", |_| {})], &[]);
    assert_eq!(
        steps(&back),
        ["label agent-new agent-new number 3", "create on a"],
        "one patch, as each rests on the resource version"
    );
    let adopted = revision(1, "new", "agent:2", |held| {
        held.metadata.labels = labels(&[("app", "agent")]);
        held.metadata.owner_references.clear();
    });
    let adopted = with(vec![adopted, revision(2, "old", "agent:1", |_| {})], &[]);
    assert_eq!(
        steps(&adopted),
        ["verify agent", "adopt agent-new", "create on a"],
        "label and number follow when the adoption is seen, whose resource version they rest on"
    );
}

/// A change of a revision wakes the controller that it names, and it counts by its UID, so nobody would be woken here.
#[test]
fn pods_do_not_wait_for_a_revision_that_has_the_uid_under_another_name() {
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
        assert_eq!(steps(&with(revisions, &[])), [first, "create on a"]);
    }
}

fn history(limit: i32, pods: &[Arc<Pod>]) -> Vec<String> {
    history_with(limit, pods, |_| {})
}

fn deleting_first(held: &mut RevisionDocument) {
    if held.revision == 1 {
        held.metadata.deletion_timestamp = super::fixtures::ago(1);
    }
}

fn history_with(limit: i32, pods: &[Arc<Pod>], change: fn(&mut RevisionDocument)) -> Vec<String> {
    let set = daemon_set(|set| set.spec.revision_history_limit = Some(limit));
    let mut revisions: Vec<_> = (1..=4)
        .map(|number| revision(number, &format!("h{number}"), &format!("agent:0.{number}"), change))
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
    assert_eq!(history_with(2, &[], deleting_first), ["delete agent-h2"], "no second delete");
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
