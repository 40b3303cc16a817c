//! Which keys a change concerns.

use std::sync::Arc;

use super::super::keys;
use super::super::view::Gates;
use super::fixtures::{
    daemon_set, decoded, deleting, labels, node, orphaned, pod, revision, taint, unbound, unready,
};
use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::{Node, Taint};
use coxswain_machinery::api::kinds::DAEMON_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::framework::{KeyMap, Selecting};
use coxswain_machinery::informer::{Delta, Lister, Store};
use coxswain_machinery::wire::{Message, Time};

/// `agent` and `twin` select `app=agent`, `api` does not; `picky` runs on nodes with the label `disk` alone.
fn store() -> Arc<Store> {
    let store = Arc::new(Store::new(&DAEMON_SETS));
    let named = |name: &'static str, app: &'static str, more: &'static [u8]| {
        let set = daemon_set(|set| {
            set.metadata.name = name.into();
            set.metadata.uid = format!("{name}-uid").into();
            set.spec.selector.match_labels = labels(&[("app", app)]);
            set.spec.template = super::fixtures::template_with("agent:2", more);
        });
        let set: Arc<DaemonSet> = decoded(&DAEMON_SETS, set.to_bytes());
        set as AnyObject
    };
    store.upsert(&named("agent", "agent", b""));
    store.upsert(&named("twin", "agent", b""));
    store.upsert(&named("api", "api", b""));
    store.upsert(&named("picky", "picky", b"\x3a\x0b\x0a\x04disk\x12\x03ssd"));
    store
}

fn told<T: Object>(map: &KeyMap, old: Option<Arc<T>>, new: Option<Arc<T>>, initial: bool) -> Vec<String> {
    let (old, new) = (old.map(|held| held as AnyObject), new.map(|held| held as AnyObject));
    let mut keys = Vec::new();
    map(Delta { old: old.as_ref(), new: new.as_ref(), initial, resync: false }, &mut |key| {
        keys.push(key.name.to_string());
    });
    keys.sort();
    keys
}

fn of_pod(old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) -> Vec<String> {
    let store = store();
    told(&keys::of_pods(Lister::new(Arc::clone(&store)), Selecting::new(&store)), old, new, false)
}

#[test]
fn a_managed_pod_concerns_its_manager() {
    let is = || Some(pod("p", "a", |_| {}));
    assert_eq!(of_pod(None, is()), ["agent"]);
    assert_eq!(of_pod(is(), None), ["agent"]);
    assert_eq!(of_pod(is(), Some(pod("p", "a", unready))), ["agent"]);
    assert_eq!(of_pod(is(), Some(pod("p", "a", deleting))), ["agent"]);
    assert_eq!(of_pod(is(), Some(pod("p", "b", |_| {}))), ["agent"]);
}

#[test]
fn that_a_pod_is_bound_where_it_was_meant_to_be_concerns_nobody() {
    let bound = pod("p", "a", |pod| pod.metadata.resource_version = "later".into());
    assert_eq!(of_pod(Some(pod("p", "a", unbound)), Some(bound)), [""; 0]);
}

#[test]
fn an_orphan_concerns_whoever_selects_it() {
    let orphan = || Some(pod("p", "a", orphaned));
    assert_eq!(of_pod(None, orphan()), ["agent", "twin"]);
    assert_eq!(of_pod(orphan(), None), [""; 0]);
    let stranger = pod("p", "a", |pod| pod.metadata.owner_references[0].uid = "an earlier agent".into());
    assert_eq!(of_pod(None, Some(stranger)), [""; 0]);
}

#[test]
fn a_revision_concerns_its_manager_unless_it_is_new() {
    let store = store();
    let map = keys::of_revisions(Lister::new(Arc::clone(&store)), Selecting::new(&store));
    let told = |old: Option<Arc<ControllerRevision>>, new: Option<Arc<ControllerRevision>>| {
        told(&map, old, new, false)
    };
    let is = || Some(revision(1, "new", "agent:2", |_| {}));
    let going = || {
        Some(revision(1, "new", "agent:2", |held| held.metadata.deletion_timestamp = Time::from_seconds(1)))
    };
    let orphan = || Some(revision(1, "new", "agent:2", |held| held.metadata.owner_references.clear()));
    assert_eq!(told(None, is()), [""; 0]);
    assert_eq!(told(None, going()), ["agent"]);
    assert_eq!(told(is(), is()), ["agent"]);
    assert_eq!(told(is(), None), ["agent"]);
    assert_eq!(told(None, orphan()), ["agent", "twin"]);
    assert_eq!(told(orphan(), is()), ["agent"]);
}

#[test]
fn a_node_concerns_those_that_it_fits_otherwise_than_before() {
    let map = keys::of_nodes(Lister::new(store()), Gates { comparing_tolerations: false });
    let told = |old: Option<Arc<Node>>, new: Option<Arc<Node>>, initial| told(&map, old, new, initial);
    let bare = || Some(node("a", |_| {}));
    let disk = || Some(node("a", |node| node.metadata.labels = labels(&[("disk", "ssd")])));
    let most = ["agent", "api", "twin"];
    assert_eq!(told(None, bare(), false), most);
    assert_eq!(told(None, bare(), true), [""; 0]);
    assert_eq!(told(None, disk(), false), ["agent", "api", "picky", "twin"]);
    assert_eq!(told(bare(), disk(), false), ["picky"]);
    assert_eq!(told(disk(), bare(), false), ["picky"]);
    assert_eq!(told(bare(), None, false), most, "pods may wait for it that were never bound");
    assert_eq!(told(Some(node("a", |node| taint(node, "NoExecute"))), None, false), [""; 0]);
    for effect in ["NoSchedule", "NoExecute"] {
        assert_eq!(told(bare(), Some(node("a", |node| taint(node, effect))), false), most);
    }
    let cordoned = node("a", |node| {
        let key = "node.kubernetes.io/unschedulable".into();
        node.spec.taints = vec![Taint { key, effect: "NoSchedule".into(), ..Taint::default() }];
    });
    assert_eq!(told(bare(), Some(cordoned), false), [""; 0]);
    let heartbeat = node("a", |node| node.metadata.resource_version = "later".into());
    assert_eq!(told(bare(), Some(heartbeat), false), [""; 0]);
}
