//! The store against a naive map: whatever happens, it holds the same, files the same, and tells enough to rebuild it.

mod slices;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::super::fixture::{PODS, object};
use super::{Delta, Dependents, EventHandler, Labeled, Lister, Store};
use crate::api::meta::{ObjectMeta, OwnerReference};
use crate::api::pod::Pod;
use crate::api::{AnyObject, kinds};
use crate::model::Key;
use crate::model::owners::ControllerKey;
use crate::model::selector::Selector;
use crate::wire::Labels;

/// What identifies a pod's state: version, UID, owner.
type Facts = (String, String, Option<String>);
type Model = BTreeMap<(String, String), Facts>;

#[derive(Clone, Debug)]
struct Spec {
    namespace: u8,
    name: u8,
    uid: u8,
    owner: Option<u8>,
}

#[derive(Clone, Debug)]
enum Op {
    Upsert(Spec),
    Remove(Spec),
    RemoveKey(u8, u8),
    Replace(Vec<Spec>),
    Bookmark,
    Resync,
    AddHandler,
    Reindex,
}

fn spec() -> impl Strategy<Value = Spec> {
    (0_u8..3, 0_u8..6, 0_u8..2, prop::option::of(0_u8..3)).prop_map(|(namespace, name, uid, owner)| Spec {
        namespace,
        name,
        uid,
        owner,
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => spec().prop_map(Op::Upsert),
        3 => spec().prop_map(Op::Remove),
        1 => (0_u8..3, 0_u8..6).prop_map(|(namespace, name)| Op::RemoveKey(namespace, name)),
        2 => prop::collection::vec(spec(), 0..12).prop_map(Op::Replace),
        1 => Just(Op::Bookmark),
        1 => Just(Op::Resync),
        1 => Just(Op::AddHandler),
        1 => Just(Op::Reindex),
    ]
}

fn pod(spec: &Spec, version: usize) -> AnyObject {
    let owner = |uid: u8| OwnerReference {
        kind: "ReplicaSet".into(),
        name: format!("owner-{uid}").into(),
        uid: format!("owner-{uid}").into(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        namespace: format!("ns-{}", spec.namespace).into(),
        name: format!("pod-{}", spec.name).into(),
        uid: format!("uid-{}", spec.uid).into(),
        resource_version: version.to_string().into(),
        owner_references: spec.owner.map(owner).into_iter().collect(),
        ..ObjectMeta::default()
    };
    Arc::new(Pod { metadata, ..Pod::default() })
}

fn meta(namespace: &str, name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta { namespace: namespace.into(), name: name.into(), uid: uid.into(), ..ObjectMeta::default() }
}

fn place(object: &AnyObject) -> (String, String) {
    (object.meta().namespace.to_string(), object.meta().name.to_string())
}

fn facts(object: &AnyObject) -> Facts {
    let meta = object.meta();
    let owner = meta.controller().map(|owner| owner.uid.to_string());
    (meta.resource_version.to_string(), meta.uid.to_string(), owner)
}

/// A handler that rebuilds the store from what it is told, and checks that what it is told fits.
fn rebuilder() -> (EventHandler, Arc<Mutex<Model>>) {
    let view: Arc<Mutex<Model>> = Arc::default();
    let kept = Arc::clone(&view);
    let handler: EventHandler = Arc::new(move |delta: Delta<'_>| {
        let mut view = kept.lock();
        let at = place(delta.latest().unwrap());
        match (delta.old, delta.new) {
            (None, Some(new)) => assert!(view.insert(at, facts(new)).is_none(), "added twice"),
            (Some(old), Some(new)) => {
                assert_eq!(old.meta().uid, new.meta().uid, "an update is of one object");
                assert_eq!(delta.resync, Arc::ptr_eq(old, new));
                assert_eq!(
                    view.insert(at, facts(new)),
                    Some(facts(old)),
                    "the old state is the one told before"
                );
            }
            (Some(_), None) => assert!(view.remove(&at).is_some(), "removed twice"),
            (None, None) => panic!("a change of nothing"),
        }
    });
    (handler, view)
}

fn check(store: &Store, index: &Dependents<Pod>, model: &Model) {
    let held: Model = store.list().iter().map(|object| (place(object), facts(object))).collect();
    assert_eq!(&held, model);
    assert_eq!(store.len(), model.len());
    for namespace in ["ns-0", "ns-1", "ns-2"] {
        let expected = model.keys().filter(|(held, _)| held == namespace).count();
        assert_eq!(store.list_namespace(namespace).len(), expected);
    }
    let of = |pods: Vec<Arc<Pod>>| -> Model {
        pods.into_iter().map(|pod| -> AnyObject { pod }).map(|pod| (place(&pod), facts(&pod))).collect()
    };
    for namespace in ["ns-0", "ns-1", "ns-2"] {
        let expected = |owner: Option<&str>| -> Model {
            let is_its =
                |at: &(String, String), facts: &Facts| at.0 == namespace && facts.2.as_deref() == owner;
            let its = model.iter().filter(|(at, facts)| is_its(at, facts));
            its.map(|(at, facts)| (at.clone(), facts.clone())).collect()
        };
        for owner in ["owner-0", "owner-1", "owner-2"] {
            let set = meta(namespace, owner, owner);
            let key = ControllerKey::of(&set, &kinds::REPLICA_SETS);
            assert_eq!(of(index.of(key)), expected(Some(owner)), "pods of {owner} in {namespace}");
            assert_eq!(of(index.with_uid_of(key)), expected(Some(owner)), "pods of {owner} in {namespace}");
        }
        assert_eq!(of(index.orphans(namespace)), expected(None), "pods of nobody in {namespace}");
    }
}

proptest! {
    #[test]
    fn the_store_is_a_map_and_its_handlers_can_rebuild_it(ops in prop::collection::vec(op(), 0..60)) {
        let store = Arc::new(Store::new(PODS));
        let mut index = Some(Dependents::new(&store));
        let mut model = Model::new();
        let mut views = Vec::new();
        for (at, op) in ops.into_iter().enumerate() {
            let version = at + 1;
            match op {
                Op::Upsert(spec) => {
                    let object = pod(&spec, version);
                    store.upsert(&object);
                    model.insert(place(&object), facts(&object));
                }
                Op::Remove(spec) => {
                    let object = pod(&spec, version);
                    store.remove(&object);
                    model.remove(&place(&object));
                }
                Op::RemoveKey(namespace, name) => {
                    let key = Key::new(format!("ns-{namespace}"), format!("pod-{name}"));
                    store.remove_key(&key, &version.to_string());
                    model.remove(&(key.namespace.into(), key.name.into()));
                }
                Op::Replace(specs) => {
                    let objects: Vec<AnyObject> = specs.iter().map(|spec| pod(spec, version)).collect();
                    model = objects.iter().map(|object| (place(object), facts(object))).collect();
                    store.replace(objects, &version.to_string());
                }
                Op::Bookmark => store.bookmark(&version.to_string()),
                Op::Resync => while store.resync().now_or_never().is_none() {},
                Op::AddHandler => {
                    let (handler, view) = rebuilder();
                    store.add_handler("rebuilder", handler);
                    views.push(view);
                }
                Op::Reindex => {
                    index = None;
                    prop_assert_eq!(store.contents.read().index_count(), 0);
                }
            }
            let index = index.get_or_insert_with(|| Dependents::new(&store));
            check(&store, index, &model);
            prop_assert_eq!(store.handler_panics(), Vec::new());
            for view in &views {
                prop_assert_eq!(&*view.lock(), &model);
            }
        }
    }
}

#[test]
fn the_resource_version_moves_after_the_handlers_were_told() {
    let store = Arc::new(Store::new(PODS));
    let seen: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
    let (reader, log) = (Arc::downgrade(&store), Arc::clone(&seen));
    store.add_handler(
        "reader",
        Arc::new(move |_| {
            let store = reader.upgrade().unwrap();
            log.lock().push((store.resource_version().to_string(), store.len()));
        }),
    );
    store.replace(vec![object("a", 1), object("b", 2)], "5");
    store.upsert(&object("c", 6));
    store.remove(&object("c", 7));
    store.bookmark("9");
    let seen: Vec<(String, usize)> = seen.lock().clone();
    let before = |version: &str, objects| (version.to_owned(), objects);
    assert_eq!(seen, [before("", 2), before("", 2), before("5", 3), before("6", 2)]);
    assert_eq!(store.resource_version(), "9");
}

#[test]
fn store_is_filled_by_a_list_without_a_resource_version() {
    for objects in [Vec::new(), vec![object("a", 1)]] {
        let store = Store::new(PODS);
        assert!(!store.is_filled());
        store.replace(objects, "");
        assert_eq!((store.resource_version().as_str(), store.is_filled()), ("", true));
    }
    let store = Store::new(PODS);
    store.bookmark("9");
    assert!(store.is_filled());
}

#[test]
fn an_object_that_did_not_change_keeps_its_allocation() {
    let store = Store::new(PODS);
    let first = object("a", 1);
    store.replace(vec![Arc::clone(&first)], "1");
    store.replace(vec![object("a", 1), object("b", 2)], "2");
    assert!(Arc::ptr_eq(&store.find("ns", "a").unwrap(), &first));
}

#[test]
fn a_deletion_carries_the_final_state() {
    let store = Arc::new(Store::new(PODS));
    let index: Dependents<Pod> = Dependents::new(&store);
    store.upsert(&object("a", 1));
    assert_eq!(index.orphans("ns").len(), 1);
    let last: Arc<Mutex<Option<String>>> = Arc::default();
    let heard = Arc::clone(&last);
    store.add_handler(
        "test",
        Arc::new(move |delta| {
            if delta.new.is_none() {
                *heard.lock() = delta.old.map(|old| old.meta().resource_version.to_string());
            }
        }),
    );
    store.remove(&object("a", 4));
    assert_eq!(last.lock().as_deref(), Some("4"));
    assert!(index.orphans("ns").is_empty());
}

#[test]
fn a_lookup_by_controller_compares_namespace_kind_name_and_uid() {
    let store = Arc::new(Store::new(PODS));
    let index: Dependents<Pod> = Dependents::new(&store);
    let put = |namespace: &str, name: &str, kind: &str, owner: &str, uid: &str| {
        let reference = OwnerReference {
            kind: kind.into(),
            name: owner.into(),
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta { owner_references: vec![reference], ..meta(namespace, name, name) };
        store.upsert(&(Arc::new(Pod { metadata, ..Pod::default() }) as AnyObject));
    };
    put("ns", "its", "ReplicaSet", "web", "1");
    put("ns", "of-another-uid", "ReplicaSet", "web", "2");
    put("ns", "of-another-name", "ReplicaSet", "other", "1");
    put("ns", "of-another-kind", "StatefulSet", "web", "1");
    put("elsewhere", "copied", "ReplicaSet", "web", "1");
    let names = |pods: Vec<Arc<Pod>>| {
        let mut names: Vec<String> = pods.iter().map(|pod| pod.metadata.name.to_string()).collect();
        names.sort_unstable();
        names
    };
    let set = meta("ns", "web", "1");
    let key = ControllerKey::of(&set, &kinds::REPLICA_SETS);
    assert_eq!(names(index.of(key)), ["its"]);
    assert_eq!(names(index.with_uid_of(key)), ["its", "of-another-kind", "of-another-name"]);
    let elsewhere = meta("elsewhere", "web", "1");
    assert_eq!(names(index.of(ControllerKey::of(&elsewhere, &kinds::REPLICA_SETS))), ["copied"]);
    assert!(index.orphans("ns").is_empty());
    // UIDs of references are any text.
    put("ns", "odd", "ReplicaSet", "web", "orphan/ns");
    assert!(index.orphans("ns").is_empty(), "no UID stands for no controller");
}

#[test]
fn an_index_is_there_as_long_as_somebody_uses_it() {
    let store = Arc::new(Store::new(PODS));
    store.upsert(&object("a", 1));
    let count = || store.contents.read().index_count();
    let one: Dependents<Pod> = Dependents::new(&store);
    let other: Dependents<Pod> = Dependents::new(&store);
    assert_eq!(count(), 1, "both use the same");
    let clone = one.clone();
    drop((one, other));
    assert_eq!(clone.orphans("ns").len(), 1);
    drop(clone);
    assert_eq!(count(), 0);
}

#[test]
fn handlers_of_two_stores_may_read_each_others() {
    let stores = [Arc::new(Store::new(&kinds::PODS)), Arc::new(Store::new(&kinds::PODS))];
    for at in 0..2 {
        let other = Arc::clone(&stores[1 - at]);
        stores[at].add_handler("reader", Arc::new(move |_| drop((other.list(), other.resource_version()))));
    }
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(move || {
                for version in 0..2000 {
                    store.upsert(&object(&format!("pod-{}", version % 7), version));
                }
            });
        }
    });
    assert_eq!(stores.each_ref().map(|store| store.len()), [7, 7]);
}

#[test]
fn objects_are_found_by_their_labels_as_if_all_were_looked_at() {
    let selectors = [
        "app=web",
        "app=web,tier=front",
        "app.kubernetes.io/instance=a,app.kubernetes.io/name=web",
        "tier in (front)",
        "app in (web,api)",
        "app=web,!tier",
        "app=nothing",
        "",
    ];
    let labeled = |namespace: &str, name: &str, labels: &[(&str, &str)]| -> AnyObject {
        let metadata = ObjectMeta {
            namespace: namespace.into(),
            name: name.into(),
            labels: labels.iter().copied().collect(),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    };
    let store = Arc::new(Store::new(PODS));
    let found = Labeled::<Pod>::new(&store);
    let check = || {
        for selector in selectors {
            let selector = Selector::parse(selector).unwrap();
            let names = |pods: Vec<Arc<Pod>>| {
                let mut names: Vec<_> = pods.iter().map(|pod| pod.metadata.name.to_string()).collect();
                names.sort_unstable();
                names
            };
            let all =
                Lister::<Pod>::new(Arc::clone(&store)).select("one", |meta| selector.matches(&meta.labels));
            assert_eq!(names(found.select("one", &selector)), names(all), "{selector}");
        }
    };
    let helm = |name| [("app.kubernetes.io/instance", "a"), ("app.kubernetes.io/name", name)];
    for namespace in ["one", "two"] {
        store.upsert(&labeled(namespace, "a", &[("app", "web"), ("tier", "front")]));
        store.upsert(&labeled(namespace, "b", &[("app", "web")]));
        store.upsert(&labeled(namespace, "c", &[("app", "api"), ("tier", "front")]));
        store.upsert(&labeled(namespace, "d", &[]));
        store.upsert(&labeled(namespace, "e", &helm("web")));
        store.upsert(&labeled(namespace, "f", &helm("api")));
    }
    check();
    let one = |label: &str, value: &str| -> Labels { [(label, value)].into_iter().collect() };
    assert_eq!(found.having("one", &one("app", "web")).len(), 2);
    assert_eq!(found.having("one", &one("tier", "front")).len(), 2);
    assert!(found.having("one", &Labels::default()).is_empty(), "no labels select nothing");
    // A label changes, one goes, and an object goes.
    store.upsert(&labeled("one", "a", &[("app", "api"), ("tier", "front")]));
    store.upsert(&labeled("one", "e", &helm("api")));
    store.upsert(&labeled("one", "b", &[]));
    check();
    store.remove(&labeled("one", "c", &[("app", "api"), ("tier", "front")]));
    check();
}
