//! The descriptor, which keys a change concerns, and what is observed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::*;
use super::fixtures::*;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::PodStatus;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::informer::{Dependents, Store};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::options::Config;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Message;

struct Stores {
    deployments: Arc<Store>,
    replica_sets: Arc<Store>,
    pods: Arc<Store>,
    keys: Arc<Mutex<Vec<String>>>,
    room: Controller,
}

/// Stores with the room's own key maps as handlers.
fn stores() -> Stores {
    let [deployments, replica_sets, pods] =
        [&DEPLOYMENTS, &REPLICA_SETS, &PODS].map(|kind| Arc::new(Store::new(kind)));
    let keys = Arc::new(Mutex::new(Vec::new()));
    let listers = (Lister::new(Arc::clone(&deployments)), Lister::new(Arc::clone(&replica_sets)));
    for (store, map) in [
        (&deployments, coxswain_machinery::framework::wake::own()),
        (&replica_sets, replica_set_keys(listers.0.clone(), Selecting::new(&deployments))),
        (&pods, pod_keys(listers.0.clone(), listers.1.clone())),
    ] {
        let heard = Arc::clone(&keys);
        store.add_handler(
            "test",
            Arc::new(move |delta| map(delta, &mut |key| heard.lock().push(key.to_string()))),
        );
    }
    let room = Controller {
        deployments: listers.0,
        replica_sets: Dependents::new(&replica_sets),
        pods: Dependents::new(&pods),
        gates: Gates { terminating_replicas: true },
    };
    Stores { deployments, replica_sets, pods, keys, room }
}

impl Stores {
    /// Keys heard since the last call.
    fn heard(&self) -> Vec<String> {
        let mut keys = std::mem::take(&mut *self.keys.lock());
        keys.sort();
        keys
    }

    fn with(deployment: &Arc<Deployment>) -> Self {
        let stores = stores();
        put(&stores.deployments, deployment);
        stores.heard();
        stores
    }
}

fn put<T: Object>(store: &Arc<Store>, object: &Arc<T>) {
    let object: AnyObject = Arc::clone(object) as _;
    store.upsert(&object);
}

fn take<T: Object>(store: &Arc<Store>, object: &Arc<T>) {
    let object: AnyObject = Arc::clone(object) as _;
    store.remove(&object);
}

fn named(name: &str) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.metadata.name = name.into();
        deployment.metadata.uid = format!("{name}-uid").into();
    })
}

fn orphan(change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    replica_set(1, 1, |set| {
        set.metadata.owner_references.clear();
        change(set);
    })
}

#[test]
fn a_deployment_concerns_itself() {
    let stores = stores();
    let web = named("web");
    put(&stores.deployments, &web);
    put(&stores.deployments, &web);
    take(&stores.deployments, &web);
    assert_eq!(stores.heard(), ["default/web"; 3]);
}

#[test]
fn a_replica_set_concerns_its_owner() {
    let stores = Stores::with(&named("web"));
    let set = replica_set(1, 1, |_| {});
    put(&stores.replica_sets, &set);
    put(&stores.replica_sets, &set);
    take(&stores.replica_sets, &set);
    assert_eq!(stores.heard(), ["default/web"; 3]);
    put(&stores.replica_sets, &replica_set(2, 1, |set| set.metadata.owner_references[0].uid = "old".into()));
    put(&stores.replica_sets, &replica_set(3, 1, |set| set.metadata.owner_references[0].kind = "Odd".into()));
    assert_eq!(stores.heard(), [""; 0], "the owner is not the one of that name");
}

#[test]
fn one_that_changes_hands_concerns_both() {
    let stores = Stores::with(&named("web"));
    put(&stores.deployments, &named("other"));
    put(&stores.replica_sets, &replica_set(1, 1, |_| {}));
    stores.heard();
    let reference = controller_reference(&named("other").metadata, &DEPLOYMENTS);
    put(&stores.replica_sets, &replica_set(1, 1, |set| set.metadata.owner_references = vec![reference]));
    assert_eq!(stores.heard(), ["default/other", "default/web"]);
}

#[test]
fn an_orphan_concerns_all_that_select_it() {
    let stores = Stores::with(&named("web"));
    put(&stores.deployments, &named("twin"));
    put(
        &stores.deployments,
        &deployment(|deployment| {
            deployment.metadata.name = "else".into();
            deployment.spec.selector.match_labels = labels(&[("app", "else")]);
        }),
    );
    put(
        &stores.deployments,
        &deployment(|deployment| {
            deployment.metadata.name = "all".into();
            deployment.spec.selector.match_labels = labels(&[]);
        }),
    );
    stores.heard();
    put(&stores.replica_sets, &orphan(|_| {}));
    assert_eq!(stores.heard(), ["default/twin", "default/web"]);
    put(&stores.replica_sets, &orphan(|set| set.spec.replicas = Some(7)));
    assert_eq!(stores.heard(), [""; 0], "nothing that matters changed");
    put(&stores.replica_sets, &orphan(|set| set.metadata.labels = labels(&[("app", "else")])));
    assert_eq!(stores.heard(), ["default/else"]);
    put(&stores.replica_sets, &replica_set(1, 1, |_| {}));
    stores.heard();
    put(&stores.replica_sets, &orphan(|_| {}));
    assert_eq!(stores.heard(), ["default/twin", "default/web", "default/web"], "released");
}

fn pod(of: &ReplicaSet, phase: &str) -> Arc<Pod> {
    let metadata = ObjectMeta {
        name: format!("{}-x", of.metadata.name).into(),
        namespace: "default".into(),
        owner_references: vec![controller_reference(&of.metadata, &REPLICA_SETS)],
        ..ObjectMeta::default()
    };
    let status = PodStatus { phase: phase.into(), ..PodStatus::default() };
    decoded(&PODS, Pod { metadata, status, ..Pod::default() }.to_bytes())
}

fn recreating() -> Arc<Deployment> {
    deployment(|deployment| deployment.spec.strategy.r#type = RECREATE.into())
}

#[test]
fn a_pod_that_has_ended_or_is_gone_concerns_only_a_deployment_that_recreates() {
    let set = replica_set(1, 1, |_| {});
    let pod = pod(&set, "Running");
    for (deployment, expected) in [(recreating(), vec!["default/web"]), (named("web"), vec![])] {
        let stores = Stores::with(&deployment);
        put(&stores.replica_sets, &set);
        stores.heard();
        put(&stores.pods, &pod);
        assert_eq!(stores.heard(), [""; 0]);
        let ended = self::pod(&set, "Succeeded");
        put(&stores.pods, &ended);
        assert_eq!(stores.heard(), expected);
        put(&stores.pods, &ended);
        assert_eq!(stores.heard(), [""; 0]);
        take(&stores.pods, &ended);
        assert_eq!(stores.heard(), expected);
    }
}

#[test]
fn running_pods_are_looked_for_only_where_they_matter() {
    let set = replica_set(1, 1, |_| {});
    let key = Key::new("default", "web");
    let running = |deployment: &Arc<Deployment>, phase: &str| {
        let stores = Stores::with(deployment);
        put(&stores.replica_sets, &set);
        put(&stores.pods, &pod(&set, phase));
        view::observe(&stores.room, &key, &[], &Reads::default()).unwrap().unwrap().running
    };
    assert_eq!(running(&recreating(), "Running"), HashSet::from_iter([set.metadata.uid.clone()]));
    assert!(running(&recreating(), "Succeeded").is_empty());
    assert!(running(&named("web"), "Running").is_empty());
}

#[test]
fn its_own_and_nobodys_replica_sets_are_observed() {
    let stores = Stores::with(&named("web"));
    assert!(
        view::observe(&stores.room, &Key::new("default", "none"), &[], &Reads::default()).unwrap().is_none()
    );
    put(&stores.replica_sets, &replica_set(1, 1, |_| {}));
    put(&stores.replica_sets, &replica_set(2, 1, |set| set.metadata.owner_references.clear()));
    put(&stores.replica_sets, &replica_set(3, 1, |set| set.metadata.owner_references[0].uid = "x".into()));
    let names = |failures: &[Failure]| {
        let view = view::observe(&stores.room, &Key::new("default", "web"), failures, &Reads::default())
            .unwrap()
            .unwrap();
        let mut names: Vec<_> = view.replica_sets.iter().map(|set| set.metadata.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&[]), ["web-1", "web-2"]);
    let taken = |by: Arc<ReplicaSet>| Failure {
        what: "create replicasets.apps default/web-4".to_owned(),
        verb: "create",
        subresource: "",
        kind: &REPLICA_SETS,
        key: Key::new("default", "web-4"),
        code: 409,
        reason: "AlreadyExists".into(),
        message: String::new(),
        existing: Some(by),
    };
    assert_eq!(names(&[taken(replica_set(4, 1, |_| {}))]), ["web-1", "web-2", "web-4"]);
    assert_eq!(names(&[taken(replica_set(1, 1, |_| {}))]), ["web-1", "web-2"]);
    let others = replica_set(4, 1, |set| set.metadata.owner_references.clear());
    assert_eq!(names(&[taken(others)]), ["web-1", "web-2"]);
}

#[test]
fn an_invalid_selector_waits_for_a_change() {
    let odd = deployment(|deployment| {
        let requirement =
            coxswain_machinery::api::meta::LabelSelectorRequirement { key: "a".into(), ..Default::default() };
        deployment.spec.selector.match_expressions = vec![requirement].into();
    });
    let error = view::observe(&Stores::with(&odd).room, &Key::new("default", "web"), &[], &Reads::default())
        .err()
        .unwrap();
    assert!(matches!(&error, ObserveError::Terminal(what) if what.contains("default/web")), "{error}");
}

#[test]
fn the_controller_is_built_as_its_descriptor_says() {
    let built = Rig::new(Config::default()).build(build).unwrap();
    let [single] = &built.loops[..] else { panic!("one loop") };
    assert_eq!((single.queue, single.settings.workers), ("deployment", 5));
    assert_eq!(
        single.wake_ups.iter().map(|watch| watch.kind).collect::<Vec<_>>(),
        [&DEPLOYMENTS, &REPLICA_SETS, &PODS]
    );
    assert_eq!(DESCRIPTOR.service_account, Some(DESCRIPTOR.name));
}
