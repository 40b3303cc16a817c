//! Which budgets a change concerns.

use std::sync::Arc;

use super::super::keys;
use super::super::replicas::is_of_deployment;
use super::fixtures::{budget, controlled_by, deleting, labels, meta, pod, unready};
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::core::PodTemplateSpec;
use coxswain_machinery::api::kinds::POD_DISRUPTION_BUDGETS;
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::framework::{KeyMap, Selecting};
use coxswain_machinery::informer::{Delta, Store};
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message as _, Raw, field};

/// `web` and `twin` select `app=web`, `api` `app=api`, `all` everything, `none` nothing.
fn selecting() -> Selecting<coxswain_machinery::api::policy::PodDisruptionBudget> {
    let store = Arc::new(Store::new(&POD_DISRUPTION_BUDGETS));
    let app = |app| Some(LabelSelector { match_labels: labels(&[("app", app)]), ..LabelSelector::default() });
    let all = Some(LabelSelector::default());
    for (name, selector) in
        [("web", app("web")), ("twin", app("web")), ("api", app("api")), ("all", all), ("none", None)]
    {
        let budget = budget(|budget| {
            budget.metadata.name = name.into();
            budget.spec.selector = selector.map(Box::new);
        });
        store.upsert(&(budget as AnyObject));
    }
    Selecting::new(&store)
}

fn told<T: Object>(map: &KeyMap, old: Option<Arc<T>>, new: Option<Arc<T>>) -> Vec<String> {
    let (old, new) = (old.map(|held| held as AnyObject), new.map(|held| held as AnyObject));
    let mut keys = Vec::new();
    map(Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false }, &mut |key| {
        keys.push(key.name.to_string());
    });
    keys.sort();
    keys
}

#[test]
fn a_pod_concerns_all_that_select_it_or_did() {
    let map = keys::of_pods(selecting());
    let is = |change: fn(&mut Pod)| Some(pod("p", change));
    let ours = ["all", "twin", "web"];
    assert_eq!(told(&map, None, is(|_| {})), ours);
    assert_eq!(told(&map, is(|_| {}), None), ours);
    assert_eq!(told(&map, is(|_| {}), is(unready)), ours);
    assert_eq!(told(&map, is(|_| {}), is(deleting)), ours);
    assert_eq!(told(&map, is(|_| {}), is(|pod| pod.metadata.owner_references.clear())), ours);
    let relabeled = is(|pod| pod.metadata.labels = labels(&[("app", "api")]));
    assert_eq!(told(&map, is(|_| {}), relabeled), ["all", "all", "api", "twin", "web"]);
    assert_eq!(told(&map, is(|_| {}), is(|pod| pod.status.phase = "Succeeded".into())), [""; 0]);
    assert_eq!(told(&map, is(|_| {}), is(|pod| pod.metadata.resource_version = "9".into())), [""; 0]);
}

/// A template whose pods have this label.
fn template(app: &str) -> Raw {
    let metadata = ObjectMeta { labels: labels(&[("app", app)]), ..ObjectMeta::default() };
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, field!(PodTemplateSpec, metadata), &metadata.to_bytes());
    Raw(bytes.into())
}

#[test]
fn what_grows_concerns_those_that_select_its_template() {
    let of = |replicas| {
        let mut deployment = Deployment { metadata: meta("web"), ..Deployment::default() };
        deployment.spec.replicas = Some(replicas);
        deployment.spec.template = template("web");
        Some(Arc::new(deployment))
    };
    let map = keys::of_growth(selecting(), keys::size_of_deployment, |_| true);
    assert_eq!(told(&map, of(2), of(3)), ["all", "twin", "web"]);
    // With fewer they would allow more, before a pod has gone.
    assert_eq!(told(&map, of(3), of(2)), [""; 0]);
    assert_eq!(told(&map, of(3), of(3)), [""; 0]);
    // It has no pods yet, or no more.
    assert_eq!(told(&map, None, of(3)), [""; 0]);
    assert_eq!(told(&map, of(3), None), [""; 0]);
}

#[test]
fn a_replica_set_of_a_deployment_grows_unheard() {
    let map = keys::of_growth(selecting(), keys::size_of_replica_set, |set| !is_of_deployment(&set.metadata));
    let of = |replicas, kind: Option<&str>| {
        let mut set = ReplicaSet { metadata: meta("rs"), ..ReplicaSet::default() };
        set.spec.replicas = Some(replicas);
        set.spec.template = template("web");
        set.metadata.owner_references =
            kind.map(|kind| controlled_by("apps/v1", kind, "web")).unwrap_or_default();
        Some(Arc::new(set))
    };
    assert_eq!(told(&map, of(1, None), of(2, None)), ["all", "twin", "web"]);
    assert_eq!(told(&map, of(1, Some("Rollout")), of(2, Some("Rollout"))), ["all", "twin", "web"]);
    assert_eq!(told(&map, of(1, Some("Deployment")), of(2, Some("Deployment"))), [""; 0]);
}
