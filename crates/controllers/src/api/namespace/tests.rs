//! The room's tables and properties.

use super::*;
use coxswain_machinery::framework::ApiResource;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::Config;

mod conditions;
mod fixtures;
mod looks;
mod properties;

#[test]
fn it_builds_and_watches_namespaces_that_go() {
    let mut config = Config::default();
    config.flags.concurrent_namespace_syncs = 3;
    let rig = Rig::new(config);
    let store = rig.store(&NAMESPACES);
    let built = rig.build(build).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers, work.kind), ("namespace", 3, Some(&NAMESPACES)));
    assert_eq!(coxswain_machinery::framework::rig::debounces(work), [Duration::from_secs(5)]);
    assert_eq!(work.settings.backoff.max_delay, Duration::from_mins(1));
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (into, keys) = (Arc::clone(&told), Arc::clone(&work.wake_ups[0].keys));
    store.add_handler(
        "test",
        Arc::new(move |delta: Delta<'_>| keys(delta, &mut |key| into.lock().push(key.to_string()))),
    );
    for (name, deleting) in [("stays", false), ("goes", true)] {
        store.upsert(&fixtures::cached(name, deleting));
    }
    store.remove_key(&Key::new("", "goes"), "9");
    assert_eq!(*told.lock(), ["goes"]);
}

/// A resource that is in namespaces and can do everything.
fn resource(group: &str, resource: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        singular: "".into(),
        kind: resource.into(),
        namespaced: true,
        verbs: ["create", "delete", "deletecollection", "get", "list"].map(Into::into).to_vec(),
        subresources: Vec::new(),
    }
}
