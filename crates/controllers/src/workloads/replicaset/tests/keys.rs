//! Which keys a change concerns.

use std::sync::Arc;

use super::fixtures::{Bench, deleting, labels, orphaned, owner, pod, replica_set};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::Selecting;
use coxswain_machinery::informer::{Delta, Lister};

fn keys(bench: &Bench, old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) -> Vec<String> {
    told(bench, old, new, false, false)
}

fn told(
    bench: &Bench,
    old: Option<Arc<Pod>>,
    new: Option<Arc<Pod>>,
    initial: bool,
    resync: bool,
) -> Vec<String> {
    let (old, new) = (old.map(|pod| pod as AnyObject), new.map(|pod| pod as AnyObject));
    let mut keys = Vec::new();
    let map = super::pod_keys::<ReplicaSet>(
        Lister::new(Arc::clone(&bench.replica_sets)),
        Selecting::new(&bench.replica_sets),
    );
    map(Delta { old: old.as_ref(), new: new.as_ref(), initial, resync }, &mut |key| {
        keys.push(key.to_string());
    });
    keys.sort();
    keys
}

/// `web` and `twin` select `app=web`; `api` does not; `twin` of another namespace does.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.add(&replica_set(|_| {}));
    let named = |name: &'static str, namespace: &'static str, app: &'static str| {
        replica_set(|set| {
            set.metadata.name = name.into();
            set.metadata.uid = format!("{namespace}-{name}-uid").into();
            set.metadata.namespace = namespace.into();
            set.spec.selector.match_labels = labels(&[("app", app)]);
        })
    };
    bench.add(&named("twin", "default", "web"));
    bench.add(&named("api", "default", "api"));
    bench.add(&named("twin", "other", "web"));
    let all = replica_set(|set| {
        set.metadata.name = "everything".into();
        set.spec.selector = coxswain_machinery::api::meta::LabelSelector::default();
    });
    bench.add(&all);
    bench
}

#[test]
fn a_managed_pod_concerns_its_manager() {
    let bench = bench();
    let is = pod("a", |_| {});
    assert_eq!(keys(&bench, None, Some(is.clone())), ["default/web"]);
    assert_eq!(
        keys(&bench, Some(is.clone()), Some(pod("a", |pod| pod.status.phase = "Failed".into()))),
        ["default/web"]
    );
    assert_eq!(keys(&bench, Some(is.clone()), Some(pod("a", deleting))), ["default/web"]);
    assert_eq!(keys(&bench, Some(is), None), ["default/web"]);
}

#[test]
fn what_does_not_count_concerns_nobody() {
    let bench = bench();
    let is = || Some(pod("a", |_| {}));
    let bound = pod("a", |pod| {
        pod.spec.node_name = "elsewhere".into();
        pod.metadata.resource_version = "later".into();
    });
    assert_eq!(keys(&bench, is(), Some(bound)), [""; 0]);
    let changes: [fn(&mut Pod); 3] = [
        |pod| pod.status.conditions.clear(),
        |pod| pod.metadata.labels = labels(&[("app", "other")]),
        |pod| pod.metadata.uid = "of its successor".into(),
    ];
    for change in changes {
        assert_eq!(keys(&bench, is(), Some(pod("a", change))), ["default/web"]);
    }
}

#[test]
fn a_pod_that_changed_hands_concerns_both() {
    let bench = bench();
    let theirs = pod("a", |pod| {
        let reference = &mut pod.metadata.owner_references[0];
        reference.name = "api".into();
        reference.uid = "default-api-uid".into();
    });
    assert_eq!(keys(&bench, Some(pod("a", |_| {})), Some(theirs)), ["default/api", "default/web"]);
    // Released: the old manager, and all that might adopt it, the old manager among them.
    assert_eq!(
        keys(&bench, Some(pod("a", |_| {})), Some(pod("a", orphaned))),
        ["default/twin", "default/web", "default/web"]
    );
    // Adopted.
    assert_eq!(keys(&bench, Some(pod("a", orphaned)), Some(pod("a", |_| {}))), ["default/web"]);
}

#[test]
fn an_orphan_concerns_whoever_selects_it() {
    let bench = bench();
    let orphan = pod("a", orphaned);
    let other = pod("a", |pod| {
        orphaned(pod);
        pod.metadata.labels = labels(&[("app", "api")]);
    });
    assert_eq!(keys(&bench, None, Some(orphan.clone())), ["default/twin", "default/web"]);
    assert_eq!(keys(&bench, Some(other.clone()), Some(orphan.clone())), ["default/twin", "default/web"]);
    assert_eq!(keys(&bench, Some(orphan.clone()), Some(other)), ["default/api"]);
    let ready_no_more = pod("a", |pod| {
        orphaned(pod);
        pod.status.conditions.clear();
    });
    assert_eq!(keys(&bench, Some(orphan.clone()), Some(ready_no_more)), [""; 0]);
    assert_eq!(keys(&bench, Some(orphan), None), [""; 0]);
    let going = pod("a", |pod| {
        orphaned(pod);
        deleting(pod);
    });
    assert_eq!(keys(&bench, None, Some(going)), [""; 0]);
}

#[test]
fn a_pod_of_someone_else_concerns_nobody_here() {
    let bench = bench();
    let owned = |change: fn(&mut coxswain_machinery::api::meta::OwnerReference)| {
        pod("a", |pod| {
            let mut reference = owner();
            change(&mut reference);
            pod.metadata.owner_references = vec![reference];
        })
    };
    for stranger in [
        owned(|reference| reference.kind = "Job".into()),
        owned(|reference| reference.uid = "an earlier web".into()),
        owned(|reference| reference.name = "unknown".into()),
    ] {
        assert_eq!(keys(&bench, None, Some(stranger.clone())), [""; 0]);
        assert_eq!(keys(&bench, Some(stranger), None), [""; 0]);
    }
}

#[test]
fn what_replica_sets_bring_themselves_is_not_told_twice() {
    let bench = bench();
    let pod = pod("a", |_| {});
    assert_eq!(told(&bench, None, Some(pod.clone()), true, false), [""; 0]);
    assert_eq!(told(&bench, Some(pod.clone()), Some(pod), false, true), [""; 0]);
    let set: AnyObject = replica_set(|_| {});
    for (old, new) in [(None, Some(&set)), (Some(&set), Some(&set)), (Some(&set), None)] {
        let mut keys = Vec::new();
        coxswain_machinery::framework::wake::own()(
            Delta { old, new, initial: false, resync: false },
            &mut |key| {
                keys.push(key.to_string());
            },
        );
        assert_eq!(keys, ["default/web"]);
    }
}
