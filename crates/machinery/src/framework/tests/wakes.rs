//! The ready-made wake-ups. Those that claim and select are tested by the rooms that use them, too.

use super::*;
use crate::api::apps::ReplicaSet;
use crate::api::kinds::REPLICA_SETS;
use crate::api::meta::OwnerReference;
use crate::api::pod::Pod;
use crate::api::{Index, IndexKeys};
use crate::framework::wake;
use crate::informer::{Indexed, Lister};

fn owner(kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        kind: kind.into(),
        name: name.into(),
        uid: name.into(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

fn pod_of(name: &str, owner: Option<OwnerReference>) -> AnyObject {
    let metadata = ObjectMeta {
        namespace: "ns".into(),
        name: name.into(),
        owner_references: owner.into_iter().collect(),
        ..ObjectMeta::default()
    };
    Arc::new(Pod { metadata, ..Pod::default() })
}

fn set(name: &str) -> AnyObject {
    let metadata =
        ObjectMeta { namespace: "ns".into(), name: name.into(), uid: name.into(), ..ObjectMeta::default() };
    Arc::new(ReplicaSet { metadata, ..ReplicaSet::default() })
}

fn store(kind: &'static crate::api::Kind, objects: Vec<AnyObject>) -> Arc<Store> {
    let store = Arc::new(Store::new(kind));
    store.replace(objects, "1");
    store
}

fn keys(map: &KeyMap, old: Option<&AnyObject>, new: Option<&AnyObject>, initial: bool) -> Vec<String> {
    let mut keys = Vec::new();
    map(Delta { old, new, initial, resync: false }, &mut |key| keys.push(key.to_string()));
    keys.sort();
    keys
}

#[test]
fn an_object_wakes_itself() {
    let pod = pod_of("a", None);
    let (own, existing) = (wake::own(), wake::existing());
    for (old, new, of_existing) in [(None, Some(&pod), 1), (Some(&pod), Some(&pod), 1), (Some(&pod), None, 0)]
    {
        assert_eq!(keys(&own, old, new, true), ["ns/a"]);
        assert_eq!(keys(&existing, old, new, true).len(), of_existing);
    }
    let constant = wake::constant(Key::new("", "all"));
    assert_eq!(keys(&constant, Some(&pod), None, false), ["all"]);
}

#[test]
fn an_object_wakes_its_controller_if_that_is_of_the_kind() {
    let sets = store(&REPLICA_SETS, vec![set("web"), set("db")]);
    let map = wake::controller::<Pod, ReplicaSet>(Lister::new(sets), |old, new| old.metadata == new.metadata);
    let of = |kind: &str, name: &str| pod_of("a", Some(owner(kind, name)));
    let (web, db) = (of("ReplicaSet", "web"), of("ReplicaSet", "db"));
    assert_eq!(keys(&map, None, Some(&web), false), ["ns/web"]);
    assert_eq!(keys(&map, None, Some(&web), true), [""; 0], "it is told of its owner, too");
    assert_eq!(keys(&map, Some(&web), Some(&db), false), ["ns/db", "ns/web"]);
    assert_eq!(keys(&map, Some(&web), Some(&web), false), [""; 0], "they are alike");
    assert_eq!(keys(&map, Some(&db), None, false), ["ns/db"]);
    for stranger in [of("StatefulSet", "web"), of("ReplicaSet", "gone"), pod_of("a", None)] {
        assert_eq!(keys(&map, None, Some(&stranger), false), [""; 0]);
    }
}

#[test]
fn an_object_wakes_those_that_an_index_files_under_it() {
    static BY_OWNERS_NAME: Index = Index {
        name: "owner",
        keys: |pod| pod.meta().owner_references.iter().map(|owner| owner.name.clone()).collect(),
    };
    let pods = ["a", "b"].map(|name| pod_of(name, Some(owner("ReplicaSet", "web"))));
    let pods = store(&PODS, [&pods[..], &[pod_of("c", Some(owner("ReplicaSet", "db")))]].concat());
    let index: Indexed<Pod> = Indexed::new(&pods, &BY_OWNERS_NAME);
    let map =
        wake::by_index::<ReplicaSet, Pod>(index, |set| IndexKeys::from_elem(set.metadata.name.clone(), 1));
    let (web, db) = (set("web"), set("db"));
    assert_eq!(keys(&map, Some(&web), Some(&web), false), ["ns/a", "ns/b"]);
    assert_eq!(keys(&map, Some(&web), Some(&db), false), ["ns/a", "ns/b", "ns/c"]);
    assert_eq!(keys(&map, None, Some(&web), true), [""; 0]);
}
